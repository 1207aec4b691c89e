//! `tideline sql`: runs statements on wide tables, from the arguments, a file or standard input, or at a prompt.
//!
//! Rows are streamed as lines of JSON. A table is printed for each thousand rows, so that memory use is bounded.

use std::io::{BufRead, BufReader, IsTerminal, Read, Write};

use clap::Args;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tideline_openapi::row::Members;

use crate::client::{Client, ConnectionArguments};
use crate::error::{CliError, Result};
use crate::output;
use crate::output::grid::Grid;

mod complete;
mod prompt;
mod split;

/// Maximum number of rows of a printed table.
const GRID_ROWS: usize = 1_000;
/// Longest file of statements, in bytes.
const SCRIPT_BYTES_MAX: u64 = 256 << 20;
const NDJSON: &str = "application/x-ndjson";

/// Arguments of `sql`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tideline sql \"SELECT * FROM orders WHERE customer = 'acme' LIMIT 10\"
  tideline sql 'SELECT * FROM orders WHERE customer = ?' --param acme --json
  tideline sql --file tables.sql
  tideline sql

Without a statement, a terminal gets a prompt with history and completion; otherwise the statements
are read from standard input. Statements are separated by semicolons, and the first error ends a file.")]
pub(crate) struct SqlArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
    /// The statement
    #[arg(value_name = "STATEMENT", conflicts_with = "file")]
    statement: Option<String>,
    /// File of statements; - for standard input
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
    /// Value of the next placeholder: JSON, or a text; may be repeated
    #[arg(
        long = "param",
        value_name = "VALUE",
        requires = "statement",
        allow_hyphen_values = true
    )]
    params: Vec<String>,
}

/// Number of rows that are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    /// All rows.
    All,
    /// The first [`GRID_ROWS`] rows, in one printed table.
    First,
}

/// Last line of a result.
#[derive(Debug, Deserialize)]
struct End {
    scanned: u64,
    returned: u64,
}

/// Runs the command.
pub(crate) fn run(arguments: &SqlArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let is_json = arguments.connection.json;
    if let Some(statement) = &arguments.statement {
        let params: Vec<Box<RawValue>> = arguments.params.iter().map(|text| param(text)).collect();
        return execute(&client, statement, &params, is_json, Shown::All);
    }
    let script = match arguments.file.as_deref() {
        None if std::io::stdin().is_terminal() => return prompt::run(&client, is_json),
        None | Some("-") => read_script(&mut std::io::stdin().lock(), "standard input")?,
        Some(path) => {
            let file = std::fs::File::open(path).map_err(|source| CliError::File {
                path: path.into(),
                source,
            })?;
            read_script(&mut BufReader::new(file), path)?
        }
    };
    let statements = split::statements(&script);
    let count = statements.len();
    for (number, statement) in (1..).zip(statements) {
        let done = execute(&client, statement.text, &[], is_json, Shown::All);
        if done.is_err() && count > 1 {
            eprintln!("statement {number} of {count}, from line {}:", statement.line);
        }
        done?;
    }
    Ok(())
}

/// Parses a parameter as JSON, which keeps all digits of numbers. A text that is not valid JSON becomes a string.
fn param(text: &str) -> Box<RawValue> {
    let string = || RawValue::from_string(json!(text).to_string());
    let json = RawValue::from_string(text.to_owned()).or_else(|_| string());
    json.unwrap_or_default()
}

fn read_script(from: &mut dyn Read, name: &str) -> Result<String> {
    let mut script = String::new();
    let failed = |source| CliError::File {
        path: name.into(),
        source,
    };
    from.take(SCRIPT_BYTES_MAX + 1)
        .read_to_string(&mut script)
        .map_err(failed)?;
    match script.len() as u64 > SCRIPT_BYTES_MAX {
        false => Ok(script),
        true => Err(CliError::usage(format!(
            "{name} has more than the limit of {SCRIPT_BYTES_MAX} bytes; split the file"
        ))),
    }
}

/// Runs a statement and prints its result.
fn execute(
    client: &Client,
    statement: &str,
    params: &[Box<RawValue>],
    is_json: bool,
    shown: Shown,
) -> Result<()> {
    let params: Vec<&str> = params.iter().map(|param| param.get()).collect();
    let body = format!(
        "{{\"statement\":{},\"params\":[{}]}}",
        json!(statement),
        params.join(",")
    );
    let (content_type, reader) = client.stream_typed("/v1/sql", NDJSON, &body)?;
    let mut reader = BufReader::new(reader);
    if is_json {
        return copy(client, &mut reader);
    }
    if !content_type.starts_with(NDJSON) {
        let mut text = String::new();
        reader
            .read_to_string(&mut text)
            .map_err(|error| cut_off(client, &error))?;
        return output::print(&summary(&client.parse(&text)?));
    }
    print_rows(client, &mut reader, shown)
}

/// Returns the error of a response that ended early.
fn cut_off(client: &Client, error: &std::io::Error) -> CliError {
    client.strange(&format!("the response was cut off: {error}"))
}

/// Copies a response to standard output, and adds a line end if the response does not end with one.
fn copy(client: &Client, reader: &mut dyn Read) -> Result<()> {
    struct Tail<W> {
        out: W,
        last: u8,
    }
    impl<W: Write> Write for Tail<W> {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let written = self.out.write(bytes)?;
            self.last = bytes[..written].last().copied().unwrap_or(self.last);
            Ok(written)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            self.out.flush()
        }
    }
    let mut out = Tail {
        out: std::io::stdout().lock(),
        last: b'\n',
    };
    output::copy(reader, &mut out).map_err(|error| match error {
        output::CopyError::Read(error) => cut_off(client, &error),
        output::CopyError::Write(error) => CliError::Output(error),
    })?;
    if out.last != b'\n' {
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

/// Prints the rows of a result as tables, followed by their number.
fn print_rows(client: &Client, reader: &mut dyn BufRead, shown: Shown) -> Result<()> {
    let mut rows: Vec<Members> = Vec::new();
    // A line is a row if another line follows it.
    let mut last: Option<String> = None;
    for line in reader.lines() {
        let line = line.map_err(|error| cut_off(client, &error))?;
        if let Some(row) = last.replace(line) {
            let row = serde_json::from_str(&row).map_err(|error| client.strange(&error.to_string()))?;
            rows.push(row);
        }
        if rows.len() == GRID_ROWS {
            output::print(&grid(&rows))?;
            rows.clear();
            if shown == Shown::First {
                return output::print(&format!(
                    "{GRID_ROWS} rows, more may follow; add LIMIT or a condition, or use tideline sql --json"
                ));
            }
        }
    }
    let end: End = serde_json::from_str(&last.unwrap_or_default())
        .map_err(|_| client.strange("the response has no last line"))?;
    if !rows.is_empty() {
        output::print(&grid(&rows))?;
    }
    let name = if end.returned == 1 { "row" } else { "rows" };
    let scanned = match end.scanned > end.returned {
        true => format!(", {} read", output::count(end.scanned)),
        false => String::new(),
    };
    output::print(&format!("{} {name}{scanned}", output::count(end.returned)))
}

/// Returns a table with the columns of all rows, in the order in which they first occur.
fn grid(rows: &[Members]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().flat_map(Members::iter) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut grid = Grid::new(names.iter().copied()).wrapping();
    for row in rows {
        let cell = |name: &&str| {
            let json = row.get(name);
            let value = json.and_then(|json| serde_json::from_str::<Value>(json).ok());
            value.as_ref().map(output::cell).unwrap_or_default()
        };
        grid.row(names.iter().map(cell).collect());
    }
    grid.render()
}

/// Describes the result of a statement without rows.
fn summary(result: &Value) -> String {
    if let Some(done) = result["done"].as_str() {
        return match done {
            "exists" => "the table exists already; nothing was changed".to_owned(),
            "missing" => "the table does not exist; nothing was changed".to_owned(),
            done => done.to_owned(),
        };
    }
    let counted = [
        ("written", "written"),
        (
            "condition_failed",
            "not written, because the condition is not met",
        ),
        (
            "not_applied",
            "not written, because another row of the partition was not",
        ),
        ("refused", "refused"),
    ];
    let counts = counted.iter().filter_map(|(member, text)| {
        let count = result[*member].as_u64().unwrap_or(0);
        (count > 0 || *member == "written").then(|| format!("{} {text}", output::count(count)))
    });
    let mut lines = vec![format!("rows: {}", counts.collect::<Vec<_>>().join(", "))];
    let outcomes = result["rows"].as_array().into_iter().flatten();
    let refused = outcomes.filter(|row| row["status"] == "refused").take(10);
    lines.extend(refused.map(|row| format!("  row {}: {}", row["index"], output::member(row, "reason"))));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_keep_their_order_and_missing_values_are_empty() {
        let row = |json: &str| serde_json::from_str::<Members>(json).expect(json);
        let table = grid(&[
            row(r#"{"z": 1, "a": null, "m": "x"}"#),
            row(r#"{"z": 10, "extra": {"k": [1]}}"#),
        ]);
        let lines: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0], ["z", "a", "m", "extra"]);
        assert!(table.contains(r#"{"k":[1]}"#), "{table}");
    }

    #[test]
    fn a_parameter_is_json_or_a_text() {
        for (text, json) in [
            ("5", "5"),
            ("1234567890123456.76", "1234567890123456.76"),
            ("acme", "\"acme\""),
            ("\"5\"", "\"5\""),
            ("null", "null"),
            ("2026-11-20", "\"2026-11-20\""),
        ] {
            assert_eq!(param(text).get(), json, "{text}");
        }
    }

    #[test]
    fn results_without_rows_are_described() {
        assert_eq!(summary(&json!({"done": "created"})), "created");
        let written =
            json!({"written": 2, "refused": 1, "rows": [{"index": 1, "status": "refused", "reason": "why"}]});
        assert_eq!(summary(&written), "rows: 2 written, 1 refused\n  row 1: why");
    }
}
