//! Examples of the guide in `docs/` and of the README. The commands of a page run in order against a separate
//! server. The response must match the JSON block after a command, as far as the block shows it (`…` matches
//! anything).
//!
//! The sequence numbers of messages on a page differ from those that the server assigns in the test. The first block
//! that shows a number is compared with the response, which contains the number of the server in its place. In later
//! commands and blocks, the number of the server replaces the shown number.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tideline_tests::client::escaped;
use tideline_tests::corpora::workspace;
use tideline_tests::server::{DataFolder, binary};
use tideline_tests::subset;
use tideline_tests::{Client, Launch, Response};

/// Server address in the pages.
const ADDRESS: &str = "localhost:8490";
/// Archive target in the pages; the test replaces it by a folder.
const TARGET: &str = "s3://bucket/tideline";

/// Page whose server requires tokens. Its commands use the token of the configuration.
const PAGE_WITH_TOKENS: &str = "access.md";
/// File with that token, and the token.
const ADMIN: (&str, &str) = ("admin.token", "token-of-the-examples");

/// Blocks with commands that are not run: page, beginning of the first command of the block, and reason.
const NOT_RUN: [(&str, &str, &str); 14] = [
    ("access.md", "tideline serve", "starts a server"),
    ("access.md", "curl --cacert", "needs a server with a certificate"),
    (
        "archive.md",
        "tideline tables policy metrics",
        "needs a server with a default target",
    ),
    (
        "archive.md",
        "tideline archive attach",
        "needs the archive of another server",
    ),
    ("cassandra.md", "tideline backend schema", "needs a cluster"),
    ("cassandra.md", "tideline backend check", "needs a cluster"),
    ("cassandra.md", "tideline serve", "needs a cluster"),
    ("cassandra.md", "curl -s --cacert", "needs containers"),
    (
        "changes.md",
        "curl -s -X PUT localhost:8490/v1/changes/orders/webhooks",
        "needs a public host that receives the requests",
    ),
    ("index.md", "tideline serve", "starts a server"),
    (
        "jobs.md",
        "curl -s -X POST localhost:8490/v1/jobs/17/pause",
        "the number of a waiting job differs between runs",
    ),
    (
        "operations.md",
        "tideline archive verify",
        "needs the archive of a lost machine",
    ),
    ("rows.md", "tideline archive verify", "needs archived parts"),
    ("rows.md", "tideline tables restore-parts", "needs archived parts"),
];

/// Number of digits of a sequence number.
const SEQUENCE_DIGITS: usize = 19;

/// Sequence numbers that a page shows, and those that the server assigned.
type SequenceNumbers = BTreeMap<String, String>;

/// Fenced code block of a page.
struct Block {
    language: String,
    line: usize,
    /// Number of spaces before the fence, in a list.
    indent: usize,
    text: String,
}

#[test]
fn every_example_of_the_guide_works() {
    let pages = pages();
    let mut commands = 0;
    for page in &pages {
        commands += check(page);
    }
    println!("{} pages, {commands} commands", pages.len());
    assert!(
        pages.len() > 10 && commands > 25,
        "{} pages, {commands} commands",
        pages.len()
    );
}

#[test]
fn every_example_of_the_readme_works() {
    let text = fs::read_to_string(workspace().join("README.md")).expect("the README is there");
    let mut blocks = blocks(&text);
    // The two cargo commands build this binary and run this test; `serve` and `demo` have separate tests. The test
    // finds the binary without `PATH`.
    let is_run_here = |line: &&str| {
        !line.starts_with("cargo ") && !line.starts_with("export ") && !line.contains(" serve &")
    };
    for block in &mut blocks {
        let lines = block.text.lines().filter(is_run_here);
        block.text = lines.map(|line| format!("{line}\n")).collect();
    }
    assert_eq!(check_blocks("README.md", &blocks), 11);
}

#[test]
fn every_command_is_run_or_listed_with_a_reason() {
    let (mut unlisted, mut found) = (Vec::new(), BTreeSet::new());
    for page in &pages() {
        let name = name(page);
        let not_run = read(page).into_iter().filter(|block| block.language != "sh");
        for block in not_run {
            let is_command = |line: &&str| line.starts_with("curl ") || line.starts_with("tideline ");
            let Some(command) = block.text.lines().find(is_command) else {
                continue;
            };
            let listed = NOT_RUN
                .iter()
                .position(|(page, start, _)| *page == name && command.starts_with(start));
            match listed {
                Some(index) => {
                    found.insert(index);
                }
                None => unlisted.push(format!("docs/{name}:{}: {command}", block.line)),
            }
        }
    }
    assert!(
        unlisted.is_empty(),
        "make these blocks `sh`, so that they are run, or list them in NOT_RUN:\n  {}",
        unlisted.join("\n  ")
    );
    for (index, (page, start, reason)) in NOT_RUN.iter().enumerate() {
        assert!(found.contains(&index), "docs/{page} has no such block: {start}");
        println!("docs/{page}: {start} …: {reason}");
    }
}

/// Returns the pages of the guide.
fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = fs::read_dir(workspace().join("docs"))
        .expect("the guide is there")
        .map(|entry| entry.expect("a page").path())
        .filter(|path| path.is_file())
        .collect();
    pages.sort();
    pages
}

fn name(page: &Path) -> String {
    page.file_name().expect("a file").to_string_lossy().into_owned()
}

fn read(page: &Path) -> Vec<Block> {
    blocks(&fs::read_to_string(page).expect("it is text"))
}

fn check(page: &Path) -> usize {
    check_blocks(&name(page), &read(page))
}

fn check_blocks(name: &str, blocks: &[Block]) -> usize {
    if !blocks.iter().any(|block| block.language == "sh") {
        return 0;
    }
    let folder = DataFolder::new();
    let archive = folder.beside("archive");
    fs::create_dir(&archive).expect("a folder");
    let target = format!("file://{}", archive.display());
    let mut launch = Launch::default().environment("TIDELINE__ARCHIVE__ALLOWED_TARGETS", &target);
    if name == PAGE_WITH_TOKENS {
        launch = launch.environment("TIDELINE__AUTH__TOKEN", ADMIN.1);
    }
    let server = folder.start(&launch);
    let client = server.client();
    let files = folder.beside("files");
    fs::create_dir(&files).expect("a folder");
    fs::write(files.join(ADMIN.0), ADMIN.1).expect("a file");
    fs::write(files.join("harbour.mp4"), vec![7; 300_000]).expect("a file");
    let mut commands = 0;
    let mut last: Option<Response> = None;
    let mut numbers = SequenceNumbers::new();
    for block in blocks {
        let location = format!("{name}:{}", block.line);
        match block.language.as_str() {
            "sh" => {
                let mut text = block.text.replace(TARGET, &target);
                for (shown, assigned) in &numbers {
                    text = text.replace(shown, assigned);
                }
                let text = with_files(&text, &files);
                for command in commands_of(&text) {
                    commands += 1;
                    settle(last.take(), None, &mut numbers, &location);
                    last = run(&command, &client, &files, &location);
                }
            }
            "json" => {
                let got = last
                    .take()
                    .unwrap_or_else(|| panic!("{location}: no command before this response"));
                settle(Some(got), Some(&block.text), &mut numbers, &location);
            }
            _ => {}
        }
    }
    settle(last, None, &mut numbers, name);
    commands
}

/// Replaces `$(cat FILE)` by the content of the file, without a line end, as a shell does.
fn with_files(text: &str, files: &Path) -> String {
    let mut parts = text.split("$(cat ");
    let mut joined = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (file, rest) = part.split_once(')').expect("a closing bracket");
        let content = fs::read_to_string(files.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        joined.push_str(content.trim_end());
        joined.push_str(rest);
    }
    joined
}

/// Asserts that a response is a success, or the failure that the page shows, and that it matches the page.
fn settle(answer: Option<Response>, shown: Option<&str>, numbers: &mut SequenceNumbers, location: &str) {
    let Some(answer) = answer else { return };
    let shows_code = |shown: &str| {
        let shown: Value = serde_json::from_str(shown).unwrap_or_default();
        shown.get("code").is_some() || shown["status"] == "error"
    };
    let shows_failure = shown.is_some_and(shows_code);
    assert_eq!(
        answer.is_success(),
        !shows_failure,
        "{location}: {}",
        answer.text()
    );
    if let Some(shown) = shown {
        check_answer(shown, &answer.json(), numbers, location);
    }
}

/// Returns the fenced code blocks of a page.
fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    for (line, text) in (1..).zip(page.lines()) {
        let unindented = text.trim_start_matches(' ');
        match (unindented.strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                open = Some(Block {
                    language: language.trim().to_owned(),
                    line,
                    indent: text.len() - unindented.len(),
                    text: String::new(),
                });
            }
            (Some(_), Some(_)) => found.extend(open.take()),
            (None, Some(block)) => {
                block.text.push_str(text.get(block.indent..).unwrap_or_default());
                block.text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed");
    found
}

/// Returns the commands of a block. Each begins on a line with `curl`, `tideline` or `echo`; it may continue over
/// line ends in quotes or after a backslash.
fn commands_of(block: &str) -> Vec<Vec<String>> {
    let mut commands: Vec<String> = Vec::new();
    for line in block.lines().filter(|line| !line.starts_with('#')) {
        let begins = line.starts_with("curl ") || line.starts_with("tideline ") || line.starts_with("echo ");
        match commands.last_mut() {
            Some(command) if !begins => {
                command.push('\n');
                command.push_str(line);
            }
            _ => commands.push(line.to_owned()),
        }
    }
    let split =
        |command: &String| shell_words::split(command).unwrap_or_else(|error| panic!("{error}: {command}"));
    let commands = commands.iter().filter(|command| !command.trim().is_empty());
    commands.map(split).collect()
}

fn run(command: &[String], client: &Client, files: &Path, location: &str) -> Option<Response> {
    match command[0].as_str() {
        "curl" => Some(curl(&command[1..], client, location)),
        "tideline" => {
            let ran = Command::new(binary())
                .args(&command[1..])
                .current_dir(files)
                .env("TIDELINE_SERVER", format!("http://{}", client.address()))
                .env("HOME", files)
                .env("TIDELINE_TOKEN_FILE", ADMIN.0)
                .output()
                .expect("the binary runs");
            let text = String::from_utf8_lossy(&ran.stderr);
            assert!(
                ran.status.success(),
                "{location}: {command:?} ended with {}: {text}",
                ran.status
            );
            None
        }
        "echo" => {
            let [_, text, redirection, file] = command else {
                panic!("{location}: {command:?} does not have the form echo TEXT > FILE");
            };
            assert_eq!(redirection, ">", "{location}: {command:?}");
            fs::write(files.join(file), format!("{text}\n")).expect("a file");
            None
        }
        other => panic!("{location}: {other} is not supported by this test"),
    }
}

/// Appends form data to a body; parts are joined by `&`.
fn join(body: &mut Option<String>, more: &str) {
    match body {
        Some(body) => {
            body.push('&');
            body.push_str(more);
        }
        None => *body = Some(more.to_owned()),
    }
}

/// Sends the request that curl would send. Only the options used in the pages are supported.
fn curl(words: &[String], client: &Client, location: &str) -> Response {
    let (mut method, mut url, mut body, mut is_get) = (None, None, None, false);
    let mut headers: Vec<(String, String)> = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || {
            words
                .next()
                .unwrap_or_else(|| panic!("{location}: {word} has no value"))
                .clone()
        };
        match word.as_str() {
            "-s" | "-i" | "-N" => {}
            "-X" => method = Some(value()),
            "-d" | "--data-binary" => join(&mut body, &value()),
            "--data-urlencode" => {
                let pair = value();
                let (name, value) = pair.split_once('=').expect("a pair has a name and a value");
                join(&mut body, &format!("{name}={}", escaped(value)));
            }
            "-G" => is_get = true,
            "-H" => {
                let header = value();
                let (name, value) = header.split_once(": ").expect("a header has a name and a value");
                headers.push((name.to_owned(), value.to_owned()));
            }
            option if option.starts_with('-') => panic!("{location}: curl {option} is not supported here"),
            address => url = Some(address.to_owned()),
        }
    }
    let url = url.unwrap_or_else(|| panic!("{location}: no address"));
    let path = url
        .strip_prefix(ADDRESS)
        .unwrap_or_else(|| panic!("{location}: {url} is not at {ADDRESS}"));
    let path = match body.take_if(|_| is_get) {
        Some(parameters) => format!("{path}?{parameters}"),
        None => path.to_owned(),
    };
    if body.is_some() && !headers.iter().any(|(name, _)| name == "content-type") {
        headers.push(("content-type".into(), "application/x-www-form-urlencoded".into()));
    }
    let method = method.unwrap_or_else(|| if body.is_some() { "POST" } else { "GET" }.to_owned());
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (&**name, &**value)).collect();
    let body = body.unwrap_or_default();
    let answer = client.send(&method, &path, &headers, body.as_bytes());
    answer.unwrap_or_else(|error| panic!("{location}: {error}"))
}

/// Asserts that a response matches the page, as far as the page shows it.
fn check_answer(shown: &str, got: &Value, numbers: &mut SequenceNumbers, location: &str) {
    let shown: Value = serde_json::from_str(shown).unwrap_or_else(|error| panic!("{location}: {error}"));
    find_numbers(&shown, got, numbers);
    if let Err(difference) = subset::holds(got, &to_pattern(&shown, numbers)) {
        panic!("{location}: {difference}\n{got:#}");
    }
}

/// Adds the sequence numbers that a block shows for the first time, with those of the response.
fn find_numbers(shown: &Value, got: &Value, numbers: &mut SequenceNumbers) {
    let is_number =
        |text: &str| text.len() == SEQUENCE_DIGITS && text.bytes().all(|digit| digit.is_ascii_digit());
    match (shown, got) {
        (Value::String(shown), Value::String(got)) if is_number(shown) && is_number(got) => {
            numbers.entry(shown.clone()).or_insert_with(|| got.clone());
        }
        (Value::Array(shown), Value::Array(got)) => {
            for (shown, got) in shown.iter().zip(got) {
                find_numbers(shown, got, numbers);
            }
        }
        (Value::Object(shown), Value::Object(got)) => {
            for (key, shown) in shown {
                find_numbers(shown, got.get(key).unwrap_or(&Value::Null), numbers);
            }
        }
        _ => {}
    }
}

/// Converts a shown value into a pattern: `…` matches anything; at the end of a list, it matches all further entries.
/// Sequence numbers become those of the server.
fn to_pattern(shown: &Value, numbers: &SequenceNumbers) -> Value {
    let to_pattern = |shown: &Value| to_pattern(shown, numbers);
    match shown {
        Value::String(text) if text == "…" => json!("<any>"),
        Value::String(text) => json!(numbers.get(text).unwrap_or(text)),
        Value::Array(shown) => match shown.split_last() {
            Some((last, rest)) if last == "…" => {
                rest.iter().map(to_pattern).chain([json!("...")]).collect()
            }
            _ => shown.iter().map(to_pattern).collect(),
        },
        Value::Object(shown) => {
            let members = shown.iter().map(|(key, shown)| (key.clone(), to_pattern(shown)));
            members.collect::<serde_json::Map<_, _>>().into()
        }
        shown => shown.clone(),
    }
}
