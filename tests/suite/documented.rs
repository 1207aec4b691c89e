//! Tests that the tables of the guide are complete and correct: settings, error codes, commands, functions and table
//! settings. Each table is compared in both directions with the output of the binary or with the OpenAPI document.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use tideline_tests::corpora::workspace;
use tideline_tests::server::binary;

/// Variable that makes the test rewrite the table of settings:
/// `TIDELINE_WRITE_SETTINGS=1 cargo test -p tideline-tests --test suite documented`.
const WRITE: &str = "TIDELINE_WRITE_SETTINGS";

fn page(name: &str) -> (PathBuf, String) {
    let path = workspace().join("docs").join(name);
    let text = fs::read_to_string(&path).expect("a page");
    (path, text)
}

/// Returns the cells of all table rows whose first cell begins with a code span.
fn rows(page: &str) -> Vec<Vec<String>> {
    let of_table = page.lines().filter(|line| line.starts_with("| `"));
    let cells = of_table.map(|line| {
        let inner = line.trim_matches('|').split(" | ");
        inner.map(|cell| cell.trim().to_owned()).collect()
    });
    cells.collect()
}

/// Returns all words of a text that are formatted as code.
fn code_words(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn said(arguments: &[&str]) -> String {
    let ran = Command::new(binary())
        .args(arguments)
        .output()
        .expect("the binary runs");
    assert!(ran.status.success(), "{arguments:?}");
    String::from_utf8(ran.stdout).expect("it is text")
}

fn schema(name: &str) -> Value {
    let text = fs::read_to_string(workspace().join("openapi/openapi.json")).expect("the document");
    let document: Value = serde_json::from_str(&text).expect("it is JSON");
    document["components"]["schemas"][name].clone()
}

/// Returns the rows of the table of settings, from the output of `tideline config reference`.
fn settings() -> Vec<String> {
    let mut rows = Vec::new();
    let (mut section, mut about, mut unit) = (String::new(), Vec::new(), String::new());
    let reference = said(&["config", "reference"]);
    for line in reference.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.to_owned();
            about.clear();
            unit.clear();
        } else if let Some(comment) = line.strip_prefix("# ") {
            match comment.strip_prefix("Unit: ") {
                Some(rest) => rest
                    .split(". Environment: ")
                    .next()
                    .unwrap_or_default()
                    .clone_into(&mut unit),
                None => about.push(comment.to_owned()),
            }
        } else if let Some((name, value)) = line.strip_prefix('#').and_then(|line| line.split_once(" = ")) {
            let default = match value.trim_matches('"') {
                "" => "not set".to_owned(),
                value => format!("`{value}`"),
            };
            rows.push(format!(
                "| `{section}.{name}` | {unit} | {default} | {} |",
                about.join(" ")
            ));
            about.clear();
            unit.clear();
        }
    }
    rows
}

#[test]
fn every_setting_is_in_the_guide_with_its_default_and_meaning() {
    let expected = settings();
    assert!(expected.len() > 40, "{} settings", expected.len());
    let (path, text) = page("settings.md");
    let (found, rest): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("| `"));
    if std::env::var_os(WRITE).is_some() {
        let head = rest
            .iter()
            .position(|line| line.starts_with("|---"))
            .expect("a table");
        let (before, behind) = rest.split_at(head + 1);
        let lines = before.iter().copied().chain(expected.iter().map(String::as_str));
        let lines: Vec<&str> = lines.chain(behind.iter().copied()).collect();
        return fs::write(&path, lines.join("\n") + "\n").expect("written");
    }
    for row in &expected {
        assert!(
            found.contains(&row.as_str()),
            "docs/settings.md lacks this row; {WRITE}=1 writes it:\n{row}"
        );
    }
    for row in found {
        assert!(
            expected.iter().any(|wanted| wanted == row),
            "docs/settings.md: no such setting:\n{row}"
        );
    }
}

#[test]
fn every_error_code_is_in_the_guide() {
    let codes = schema("ErrorCode")["enum"].as_array().expect("codes").clone();
    let codes: BTreeSet<String> = codes
        .iter()
        .filter_map(Value::as_str)
        .map(|code| format!("`{code}`"))
        .collect();
    let found: Vec<String> = rows(&page("errors.md").1)
        .into_iter()
        .map(|mut row| row.remove(0))
        .collect();
    assert_eq!(found.iter().cloned().collect::<BTreeSet<_>>(), codes);
    assert_eq!(found.len(), codes.len(), "a code is listed twice: {found:?}");
}

#[test]
fn every_command_is_in_the_guide() {
    let help = said(&["--help"]);
    let list = help
        .split("Commands:\n")
        .nth(1)
        .and_then(|rest| rest.split("\n\n").next())
        .expect("a list");
    let commands: BTreeSet<String> = list
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect();
    let first_cells: Vec<String> = rows(&page("command-line.md").1)
        .into_iter()
        .map(|mut row| row.remove(0))
        .collect();
    let found: BTreeSet<String> = first_cells.iter().flat_map(|cell| code_words(cell)).collect();
    assert_eq!(found, commands);
}

#[test]
fn every_function_is_in_the_guide() {
    let schema = schema("Function");
    let of_each = schema["oneOf"]
        .as_array()
        .expect("functions")
        .iter()
        .flat_map(|one| {
            let words = one["enum"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str);
            let members = one["properties"]
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, _)| name.as_str());
            words.chain(members).collect::<Vec<_>>()
        });
    let functions: BTreeSet<&str> = of_each.collect();
    let page = page("queries.md").1;
    let list = page
        .split("The functions are")
        .nth(1)
        .and_then(|rest| rest.split("Sums of").next());
    let mut found = code_words(list.expect("a list of functions"));
    // The guide lists the percentile with its parameter.
    assert!(found.remove("{\"percentile\": p}"), "{found:?}");
    found.insert("percentile".into());
    assert_eq!(
        found.iter().map(String::as_str).collect::<BTreeSet<_>>(),
        functions
    );
}

#[test]
fn every_setting_of_a_table_is_in_the_guide() {
    let members = |name: &str, before: &str| -> Vec<String> {
        let schema = schema(name);
        let members = schema["properties"].as_object().expect("members").keys();
        members.map(|member| format!("{before}{member}")).collect()
    };
    let mut settings: BTreeSet<String> = members("TableSettings", "").into_iter().collect();
    assert!(settings.remove("policy"), "its members are listed");
    settings.extend(members("Policy", "policy."));
    settings.extend(members("ArchivePolicy", "archive."));
    let first_cells = rows(&page("tables.md").1)
        .into_iter()
        .map(|mut row| row.remove(0));
    let found: BTreeSet<String> = first_cells.flat_map(|cell| code_words(&cell)).collect();
    assert_eq!(found, settings);
}

#[test]
fn the_terms_of_the_glossary_are_sorted() {
    let page = page("glossary.md").1;
    let terms: Vec<String> = page
        .lines()
        .skip_while(|line| !line.starts_with("| term |"))
        .skip(2)
        .take_while(|line| line.starts_with("| "))
        .filter_map(|line| line.split('|').nth(1))
        .map(|term| term.trim().to_lowercase())
        .collect();
    assert!(terms.len() > 50, "{terms:?}");
    for pair in terms.windows(2) {
        assert!(pair[0] < pair[1], "{pair:?}");
    }
}
