//! `tideline complete`: completions at the cursor of a command line, from the server that the line selects.
//!
//! The scripts of `tideline completions` call this command. The command prints no errors and gives up on a server that
//! does not respond within 700 ms; the shell then completes only words that need no server.

use clap::{Arg, Args, Command, Parser};
use clap_complete::Shell;
use serde_json::{Value, json};

use crate::client::{Client, TableArguments, encoded};
use crate::commands::feed;
use crate::error::Result;
use crate::output;

/// Request timeout; longer waits would disturb typing.
const TIMEOUT: &str = "700ms";
/// Maximum number of candidates printed.
const CANDIDATES_MAX: usize = 200;
/// Maximum number of feeds that are requested to find those with a prefix.
const FEEDS_MAX: usize = 2_000;
/// Condition operators before a tag value, in the order in which they are tried at each character.
const OPERATORS: [&str; 3] = ["!=", "^=", "="];
/// Characters at which bash starts a new word.
const BASH_BREAKS: [char; 2] = ['=', ':'];
/// Command for which no names are completed: some of its options have the same names as options of other commands, but
/// another meaning.
const WITHOUT_CANDIDATES: &str = "write";

/// Arguments of `complete`.
#[derive(Debug, Args)]
pub struct CompleteArguments {
    /// The command line up to the cursor
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    line: String,
    /// The calling shell
    #[arg(long)]
    shell: Option<Shell>,
}

/// Connection options found in the line.
#[derive(Parser)]
struct ConnectionOptions {
    #[command(flatten)]
    connection: TableArguments,
}

/// Kind of names that a server can list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameKind {
    Tables,
    Measurements,
    Fields,
    /// Tag keys, separated by commas.
    Tags,
    /// Condition: a key, an operator and a value.
    Condition,
    Searches,
    /// Secondary indexes of a wide table.
    Indexes,
    /// Search indexes of a wide table.
    SearchIndexes,
    /// Feeds of a feed table.
    Feeds,
    /// Change streams.
    Streams,
    /// Consumer groups of a change stream.
    Groups,
}

/// Command line up to the cursor.
#[derive(Debug, Default)]
struct Typed {
    /// Words before the one at the cursor.
    words: Vec<String>,
    /// Word at the cursor, without quotes.
    current: String,
    /// True if the cursor is within quotes.
    is_quoted: bool,
}

/// Command and options parsed from the words before the cursor.
#[derive(Debug, Default)]
struct Context {
    kind: Option<NameKind>,
    /// `--server`, `--profile` and `--table`, each followed by its value.
    connection: Vec<String>,
    measurement: Option<String>,
    /// First positional argument of `changes`.
    stream: Option<String>,
}

/// Prints one candidate per line. `command` is the definition of the whole command line. Prints nothing if no
/// name fits or the request to the server fails.
///
/// # Errors
///
/// Returns an error if standard output cannot be written.
pub fn run(arguments: &CompleteArguments, command: &Command) -> Result<()> {
    let typed = Typed::read(&arguments.line);
    let context = Context::of(command, &typed.words);
    let Some(found) = context
        .kind
        .and_then(|kind| candidates(kind, &context, &typed.current))
    else {
        return Ok(());
    };
    let lines: Vec<String> = found
        .iter()
        .take(CANDIDATES_MAX)
        .map(|candidate| written(candidate, &typed, arguments.shell) + "\n")
        .collect();
    match lines.is_empty() {
        true => Ok(()),
        false => output::print(&lines.concat()),
    }
}

/// Formats a candidate as the shell inserts it: for bash outside of quotes, the part after the last word break,
/// escaped; otherwise unchanged.
fn written(candidate: &str, typed: &Typed, shell: Option<Shell>) -> String {
    if shell != Some(Shell::Bash) || typed.is_quoted {
        return candidate.to_owned();
    }
    let kept = typed.current.rfind(BASH_BREAKS).map_or(0, |at| at + 1);
    let rest = candidate.get(kept..).unwrap_or(candidate);
    let is_plain = |c: char| c.is_alphanumeric() || "_-.,/=:+@%^".contains(c);
    let escaped = rest.chars().map(|c| match is_plain(c) {
        true => c.to_string(),
        false => format!("\\{c}"),
    });
    escaped.collect()
}

impl Typed {
    /// Splits the last command of a line into words, following the quoting rules of shells.
    fn read(line: &str) -> Self {
        let mut typed = Self::default();
        let mut quote = None;
        let mut is_escaped = false;
        let mut is_word = false;
        for c in line.chars() {
            match (quote, c) {
                _ if is_escaped => {
                    typed.current.push(c);
                    is_escaped = false;
                }
                (None | Some('"'), '\\') => (is_escaped, is_word) = (true, true),
                (Some(mark), _) if c == mark => quote = None,
                (Some(_), _) => typed.current.push(c),
                (None, '\'' | '"') => (quote, is_word) = (Some(c), true),
                (None, '|' | ';' | '&' | '(') => {
                    typed.words.clear();
                    typed.current.clear();
                    is_word = false;
                }
                (None, c) if c.is_whitespace() => {
                    if is_word {
                        typed.words.push(std::mem::take(&mut typed.current));
                    }
                    is_word = false;
                }
                (None, c) => {
                    typed.current.push(c);
                    is_word = true;
                }
            }
        }
        typed.is_quoted = quote.is_some();
        typed
    }
}

impl Context {
    /// Parses the words as clap does, but ignores errors.
    fn of(mut command: &Command, words: &[String]) -> Self {
        let mut path = Vec::new();
        let mut positional = Vec::new();
        let mut open: Option<&Arg> = None;
        let mut context = Self::default();
        for word in words.iter().skip(1) {
            if let Some(option) = open.take() {
                context.note(option, word);
            } else if word.starts_with('-') {
                let (name, value) = match word.split_once('=') {
                    Some((name, value)) => (name, Some(value)),
                    None => (word.as_str(), None),
                };
                let option = option_of(command, name).filter(|option| option.get_action().takes_values());
                match (option, value) {
                    (Some(option), Some(value)) => context.note(option, value),
                    (option, _) => open = option,
                }
            } else if let Some(below) = command.find_subcommand(word) {
                command = below;
                path.push(below.get_name().to_owned());
            } else {
                positional.push(word);
            }
        }
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        match (path.as_slice(), open) {
            ([WITHOUT_CANDIDATES, ..], _) => {}
            ([group @ ("rows" | "feed"), below @ ..], open) => {
                // These commands have the table as their first argument.
                if let Some(table) = positional.first() {
                    context
                        .connection
                        .extend(["--table".to_owned(), (*table).clone()]);
                }
                let option = open.map(|option| option.get_id().as_str());
                context.kind = match (*group, option) {
                    ("rows", Some(option)) => of_rows_option(below, option),
                    ("rows", None) => of_rows_command(below, positional.len()),
                    (_, Some(option)) => of_feed_option(option),
                    (_, None) => of_feed_command(below, positional.len()),
                };
            }
            (["changes", below @ ..], None) => {
                context.stream = positional.first().map(|stream| (*stream).clone());
                context.kind = of_changes_command(below, positional.len());
            }
            (["changes", ..], Some(option)) if option.get_id() == "group" => {
                context.stream = positional.first().map(|stream| (*stream).clone());
                context.kind = Some(NameKind::Groups);
            }
            (_, Some(option)) => context.kind = of_option(option.get_id().as_str()),
            (path, None) => context.kind = of_command(path),
        }
        context
    }

    fn note(&mut self, option: &Arg, value: &str) {
        match option.get_id().as_str() {
            name @ ("server" | "profile" | "table") => {
                self.connection.extend([format!("--{name}"), value.to_owned()]);
            }
            "measurement" => self.measurement = Some(value.to_owned()),
            _ => {}
        }
    }
}

/// Returns the option of a command by its name, which includes the leading `-` or `--`; `None` for an unknown name.
fn option_of<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let long = name.strip_prefix("--");
    let short = name.strip_prefix('-').and_then(|name| name.chars().next());
    command.get_arguments().find(|argument| match long {
        Some(long) => argument.get_long() == Some(long),
        None => short.is_some() && argument.get_short() == short,
    })
}

/// Returns the kind of names that complete the value of an option; `None` if the server has no such names.
fn of_option(id: &str) -> Option<NameKind> {
    match id {
        "table" | "tables" => Some(NameKind::Tables),
        "measurement" => Some(NameKind::Measurements),
        "fields" | "values" | "highest" | "lowest" => Some(NameKind::Fields),
        "group_by" => Some(NameKind::Tags),
        "conditions" => Some(NameKind::Condition),
        _ => None,
    }
}

/// Returns the kind of names that complete a positional argument of a command; `None` if the server has no such names.
fn of_command(path: &[&str]) -> Option<NameKind> {
    match path {
        ["tags" | "facets"] => Some(NameKind::Tags),
        ["fields"] => Some(NameKind::Measurements),
        ["find"] => Some(NameKind::Condition),
        [
            "tables",
            "show" | "alter" | "policy" | "parts" | "preview-parts" | "drop-parts" | "restore-parts" | "drop",
        ] => Some(NameKind::Tables),
        ["searches", "run" | "delete"] => Some(NameKind::Searches),
        _ => None,
    }
}

/// Returns the kind of names that complete the value of an option of `rows`; `None` if the server has no such names.
fn of_rows_option(path: &[&str], id: &str) -> Option<NameKind> {
    match (path, id) {
        (["search" | "facets"], "index") | (["aggregate"], "search") => Some(NameKind::SearchIndexes),
        (_, "index") => Some(NameKind::Indexes),
        _ => None,
    }
}

/// Returns the kind of names that complete the positional argument with this number, from 0, of a command of `rows`;
/// `None` if the server has no such names.
fn of_rows_command(path: &[&str], number: usize) -> Option<NameKind> {
    match (path, number) {
        ([] | ["index" | "search-index"], _) => None,
        (_, 0) | (["rekey"], 1) => Some(NameKind::Tables),
        (["index", "drop"], 1) => Some(NameKind::Indexes),
        (["search-index", "create" | "drop"], 1) => Some(NameKind::SearchIndexes),
        _ => None,
    }
}

/// Returns the kind of names that complete the value of an option of `feed`; `None` if the server has no such names.
fn of_feed_option(id: &str) -> Option<NameKind> {
    match id {
        "feeds" => Some(NameKind::Feeds),
        "index" => Some(NameKind::SearchIndexes),
        _ => None,
    }
}

/// Returns the kind of names that complete the positional argument with this number, from 0, of a command of `feed`;
/// `None` if the server has no such names.
fn of_feed_command(path: &[&str], number: usize) -> Option<NameKind> {
    match (path, number) {
        ([], _) => None,
        (_, 0) => Some(NameKind::Tables),
        (["list" | "search"], _) => None,
        (["merge"], _) | (_, 1) => Some(NameKind::Feeds),
        _ => None,
    }
}

/// Returns the kind of names that complete the positional argument with this number, from 0, of a command of `changes`;
/// `None` if the server has no such names.
fn of_changes_command(path: &[&str], number: usize) -> Option<NameKind> {
    match (path, number) {
        ([] | ["list"], _) => None,
        (_, 0) => Some(NameKind::Streams),
        (["group" | "delete-group" | "confirm"], 1) => Some(NameKind::Groups),
        _ => None,
    }
}

/// Returns the names that begin with the word at the cursor. `None` if the word is an option, a connection
/// option is invalid, or the request fails.
fn candidates(kind: NameKind, context: &Context, current: &str) -> Option<Vec<String>> {
    if current.starts_with('-') {
        return None;
    }
    let line = ["complete", "--timeout", TIMEOUT].map(str::to_owned);
    let options =
        ConnectionOptions::try_parse_from(line.into_iter().chain(context.connection.clone())).ok()?;
    let client = options.connection.client().ok()?;
    match kind {
        NameKind::Tables => listed(&client, "/v1/tables", "tables", "name", current),
        NameKind::Measurements => names(&client, "/measurements", current),
        NameKind::Fields => {
            let only = context.measurement.as_ref();
            let only = only.map(|name| format!("?measurement={}", encoded(name)));
            let path = client.of_table(&format!("/fields{}", only.unwrap_or_default()));
            listed(&client, &path, "fields", "field", current)
        }
        NameKind::Tags => {
            let (before, last) = current.split_at(current.rfind(',').map_or(0, |at| at + 1));
            let found = names(&client, "/tags", last)?;
            Some(found.into_iter().map(|name| format!("{before}{name}")).collect())
        }
        NameKind::Condition => conditions(&client, current),
        NameKind::Searches => listed(
            &client,
            &client.of_table("/searches"),
            "searches",
            "name",
            current,
        ),
        NameKind::Indexes => listed(&client, &client.of_table("/indexes"), "indexes", "name", current),
        NameKind::SearchIndexes => {
            let path = client.of_table("/search-indexes");
            listed(&client, &path, "search_indexes", "name", current)
        }
        NameKind::Feeds => feeds(&client, current),
        NameKind::Streams => listed(&client, "/v1/changes", "streams", "name", current),
        NameKind::Groups => {
            let path = format!("/v1/changes/{}/groups", encoded(context.stream.as_ref()?));
            listed(&client, &path, "groups", "name", current)
        }
    }
}

/// Completes a condition: its key, or after an operator its value. `None` if the request fails.
fn conditions(client: &Client, current: &str) -> Option<Vec<String>> {
    let typed = current.char_indices().find_map(|(at, _)| {
        let operator = OPERATORS
            .iter()
            .find(|operator| current[at..].starts_with(**operator))?;
        Some(current.split_at(at + operator.len()))
    });
    let Some((subject, value)) = typed else {
        let keys = names(client, "/tags", current)?;
        let property = "measurement"
            .starts_with(current)
            .then(|| "measurement=".to_owned());
        return Some(keys.iter().map(|key| format!("{key}=")).chain(property).collect());
    };
    let key = subject.trim_end_matches(['!', '^', '=']);
    let found = match key {
        "measurement" => names(client, "/measurements", value)?,
        _ => {
            let key = key.strip_prefix("tag:").unwrap_or(key);
            names(client, &format!("/tags/{}/values", encoded(key)), value)?
        }
    };
    Some(
        found
            .into_iter()
            .map(|value| format!("{subject}{value}"))
            .collect(),
    )
}

/// Returns the names of feeds that begin with `prefix`, sorted. `None` if the request fails.
fn feeds(client: &Client, prefix: &str) -> Option<Vec<String>> {
    let kind = prefix.split([',', '\\']).next().unwrap_or_default();
    let search = json!({"where": {"property": "measurement", "prefix": kind}, "limit": FEEDS_MAX});
    let response = client.post(&client.of_table("/feeds/search"), &search).ok()?;
    let response = client.parse(&response).ok()?;
    let found = response["timelines"].as_array()?.iter();
    let names = found.filter_map(|feed| feed::name_of(&output::member(feed, "measurement"), &feed["tags"]));
    let mut names: Vec<String> = names.filter(|name| name.starts_with(prefix)).collect();
    names.sort_unstable();
    Some(names)
}

/// Returns the names of a list of the table, which the server filters by prefix. `None` if the request fails.
fn names(client: &Client, rest: &str, prefix: &str) -> Option<Vec<String>> {
    let path = format!("{rest}?prefix={}&limit={CANDIDATES_MAX}", encoded(prefix));
    listed(client, &client.of_table(&path), "names", "name", prefix)
}

/// Returns the values of `member` in the objects of `list` that begin with `prefix`, sorted and without duplicates.
/// `None` if the request fails.
fn listed(client: &Client, path: &str, list: &str, member: &str, prefix: &str) -> Option<Vec<String>> {
    let response: Value = client.parse(&client.get(path).ok()?).ok()?;
    let names = response[list].as_array()?.iter();
    let names = names.filter_map(|one| one[member].as_str());
    let mut names: Vec<String> = names
        .filter(|name| name.starts_with(prefix))
        .map(str::to_owned)
        .collect();
    names.sort_unstable();
    names.dedup();
    Some(names)
}

#[cfg(test)]
mod tests {
    use clap::Subcommand;

    use super::*;
    use crate::ClientCommand;

    fn context(line: &str) -> Context {
        let command = ClientCommand::augment_subcommands(Command::new("tideline"));
        let command = command.subcommand(Command::new("serve").arg(Arg::new("data_dir").long("data-dir")));
        Context::of(&command, &Typed::read(line).words)
    }

    #[test]
    fn lines_are_split_as_shells_do() {
        let typed = Typed::read("cd x && tideline query -w 'host^=we");
        assert_eq!(typed.words, ["tideline", "query", "-w"]);
        assert!(typed.current == "host^=we" && typed.is_quoted, "{typed:?}");
        let typed = Typed::read(r"tideline find a\ b ");
        assert_eq!(typed.words, ["tideline", "find", "a b"]);
        assert!(typed.current.is_empty() && !typed.is_quoted);
    }

    #[test]
    fn the_words_before_say_what_can_follow() {
        for (line, kind) in [
            ("tideline query -m ", Some(NameKind::Measurements)),
            ("tideline query --field ", Some(NameKind::Fields)),
            ("tideline query -m cpu --group-by host,", Some(NameKind::Tags)),
            ("tideline query -w ho", Some(NameKind::Condition)),
            ("tideline query --table ", Some(NameKind::Tables)),
            ("tideline query --last ", None),
            ("tideline query --desc ", None),
            ("tideline find --desc ho", Some(NameKind::Condition)),
            ("tideline tags ", Some(NameKind::Tags)),
            ("tideline tables show ", Some(NameKind::Tables)),
            ("tideline searches run ", Some(NameKind::Searches)),
            ("tideline rows search ", Some(NameKind::Tables)),
            (
                "tideline rows search orders --index ",
                Some(NameKind::SearchIndexes),
            ),
            (
                "tideline rows facets orders --index ",
                Some(NameKind::SearchIndexes),
            ),
            ("tideline tables drop-parts ", Some(NameKind::Tables)),
            ("tideline tables restore-parts ", Some(NameKind::Tables)),
            ("tideline rows scan orders --index ", Some(NameKind::Indexes)),
            ("tideline rows scan orders --where ", None),
            ("tideline rows rekey orders ", Some(NameKind::Tables)),
            ("tideline rows index drop orders ", Some(NameKind::Indexes)),
            (
                "tideline rows search-index drop orders ",
                Some(NameKind::SearchIndexes),
            ),
            ("tideline rows search-index ", None),
            ("tideline rows put orders ", None),
            ("tideline feed read ", Some(NameKind::Tables)),
            ("tideline feed read chat ", Some(NameKind::Feeds)),
            ("tideline feed merge chat a b ", Some(NameKind::Feeds)),
            ("tideline feed search chat --feed ", Some(NameKind::Feeds)),
            (
                "tideline feed search chat --index ",
                Some(NameKind::SearchIndexes),
            ),
            ("tideline feed search chat ", None),
            ("tideline feed find ", Some(NameKind::Tables)),
            ("tideline feed recall chat room,name=lobby ", None),
            ("tideline feed ", None),
            ("tideline changes create orders --table ", Some(NameKind::Tables)),
            ("tideline changes read ", Some(NameKind::Streams)),
            ("tideline changes read orders --group ", Some(NameKind::Groups)),
            ("tideline changes confirm orders ", Some(NameKind::Groups)),
            ("tideline changes list ", None),
            ("tideline serve --data-dir ", None),
            ("tideline write -m ", None),
            ("tideline ", None),
        ] {
            assert_eq!(context(line).kind, kind, "{line}");
        }
        let context = self::context("tideline fields --server=http://a:1 --table t -m cpu x");
        assert_eq!(context.connection, ["--server", "http://a:1", "--table", "t"]);
        let context = self::context("tideline rows scan --server http://a:1 orders --index ");
        assert_eq!(
            context.connection,
            ["--server", "http://a:1", "--table", "orders"]
        );
    }

    #[test]
    fn bash_gets_what_follows_its_word_break() {
        let typed = Typed::read("tideline find host=we");
        assert_eq!(written("host=web 1", &typed, Some(Shell::Bash)), "web\\ 1");
        assert_eq!(written("host=web 1", &typed, Some(Shell::Zsh)), "host=web 1");
    }
}
