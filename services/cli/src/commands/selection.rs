//! Arguments and helpers that several commands share: time range, query body, confirmation, number of rows, and the
//! format and the file of an output.
//!
//! Times are validated here, so that a time in the wrong unit is refused before a request is sent.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use tideline_openapi::plain;
use tideline_openapi::time::TimeInput;

use crate::client::Client;
use crate::condition::WhereArguments;
use crate::error::{CliError, Result};
use crate::output;

/// Arguments of a time range.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct RangeArguments {
    /// Duration before now, such as 15m, 1h or 7d
    #[arg(help_heading = "Time", long, value_name = "DURATION", value_parser = duration)]
    #[arg(conflicts_with_all = ["from", "to"])]
    last: Option<String>,
    /// Start of the range: RFC 3339, a date, now-1h, or an integer with a unit such as 1795392000s
    #[arg(help_heading = "Time", long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    from: Option<String>,
    /// End of the range, exclusive
    #[arg(help_heading = "Time", long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    to: Option<String>,
}

impl RangeArguments {
    /// Returns the range for the API. A missing bound is open.
    pub(crate) fn range(&self) -> Map<String, Value> {
        let mut range = Map::new();
        if let Some(last) = &self.last {
            range.insert("start".into(), format!("now-{last}").into());
            range.insert("end".into(), "now".into());
        }
        for (name, time) in [("start", &self.from), ("end", &self.to)] {
            if let Some(time) = time {
                range.insert(name.into(), time.as_str().into());
            }
        }
        range
    }

    /// Returns true if neither bound of the range is given.
    pub(crate) const fn is_open(&self) -> bool {
        self.last.is_none() && self.from.is_none() && self.to.is_none()
    }
}

/// Returns a query for timelines and fields. Without conditions it selects all timelines, without fields all fields.
pub(crate) fn query(timelines: &WhereArguments, fields: &[String]) -> Result<Map<String, Value>> {
    let mut query = Map::new();
    if let Some(tree) = timelines.tree()? {
        query.insert("timelines".into(), json!({"where": tree}));
    }
    if !fields.is_empty() {
        query.insert("fields".into(), json!(fields));
    }
    Ok(query)
}

/// Reads a JSON body from a file, or from standard input for `-`. Fails with a usage error if it is not valid JSON.
pub(crate) fn body(path: &Path) -> Result<String> {
    let text = if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        fs::read_to_string(path)
    };
    let text = text.map_err(|error| CliError::file(path, error))?;
    match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
        Ok(_) => Ok(text),
        Err(error) => {
            let reason = plain::syntax(text.as_bytes(), &error);
            Err(CliError::usage(format!(
                "{} is not valid JSON: {reason}",
                path.display()
            )))
        }
    }
}

/// Requests a confirmation on the terminal. Fails unless the reply is `y`, `Y` or `yes`. If standard input is not a
/// terminal, fails with an error that mentions `--yes`.
pub(crate) fn confirm(question: &str) -> Result<()> {
    if !io::stdin().is_terminal() {
        return Err(CliError::usage(format!("{question} Add --yes to confirm.")));
    }
    eprint!("{question} [y/N] ");
    io::stderr().flush()?;
    let mut reply = String::new();
    io::stdin().lock().read_line(&mut reply)?;
    match reply.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(CliError::Incomplete("nothing was done".into())),
    }
}

/// Returns the number of rows of a wide table, exact or estimated, as a text such as `about 12,000 rows`. `path` is the
/// path of the count request, and `bounds` holds the members of its body.
///
/// # Errors
///
/// Fails if the server refuses the count or is not reachable.
pub(crate) fn counted_rows(client: &Client, path: &str, mut bounds: Map<String, Value>) -> Result<String> {
    bounds.insert("estimate".into(), true.into());
    let counted = client.parse(&client.post(path, &bounds.into())?)?;
    let about = match counted["interval"].is_null() {
        true => "",
        false => "about ",
    };
    let rows = counted["count"].as_u64().unwrap_or_default();
    Ok(format!("{about}{} rows", output::count(rows)))
}

/// Output format of results that the server returns in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PageOutput {
    /// A table for terminals
    Table,
    /// One row or message per line, the last line with the summary
    Ndjson,
    /// The response of the server
    Json,
}

/// File endings and their formats.
const PAGE_ENDINGS: &[(&str, PageOutput)] = &[
    ("ndjson", PageOutput::Ndjson),
    ("jsonl", PageOutput::Ndjson),
    ("json", PageOutput::Json),
    ("txt", PageOutput::Table),
];

impl PageOutput {
    /// Returns the output format: the option, or the format of the file ending. Without both, it is JSON if `json` is
    /// set, NDJSON if no file is given and standard output is not a terminal, and otherwise a table.
    ///
    /// # Errors
    ///
    /// Returns a usage error for a file with an unknown ending.
    pub(crate) fn chosen(option: Option<Self>, file: Option<&Path>, json: bool) -> Result<Self> {
        let by_file = file.map(|path| by_ending(path, PAGE_ENDINGS, "--output"));
        let by_file = by_file.transpose()?.flatten();
        Ok(option.or(by_file).unwrap_or(match json {
            true => Self::Json,
            false if file.is_none() && !io::stdout().is_terminal() => Self::Ndjson,
            false => Self::Table,
        }))
    }
}

/// Returns the format of a file's ending, or `None` if the file has no ending.
///
/// # Errors
///
/// Returns a usage error if `endings` lacks the ending. The message lists `endings` and mentions `flag`, which selects
/// a format.
pub(crate) fn by_ending<F: Copy>(path: &Path, endings: &[(&str, F)], flag: &str) -> Result<Option<F>> {
    let Some(ending) = path.extension() else {
        return Ok(None);
    };
    let known = endings
        .iter()
        .find(|(known, _)| ending.eq_ignore_ascii_case(known));
    let unknown = || {
        let known: Vec<String> = endings.iter().map(|(known, _)| format!(".{known}")).collect();
        CliError::usage(format!(
            "{} has none of the endings {}; set the format with {flag}",
            path.display(),
            known.join(", ")
        ))
    };
    known.map(|(_, format)| Some(*format)).ok_or_else(unknown)
}

/// Creates the output file, or returns standard output if `path` is `None`.
pub(crate) fn output_to(path: Option<&PathBuf>) -> Result<Box<dyn Write>> {
    match path {
        None => Ok(Box::new(io::stdout().lock())),
        Some(path) => {
            let file = fs::File::create(path).map_err(|error| CliError::file(path, error))?;
            Ok(Box::new(io::BufWriter::new(file)))
        }
    }
}

/// Smallest integer without a unit that is accepted as nanoseconds: a time in 1973. Current times in seconds,
/// milliseconds or microseconds are smaller.
const BARE_NANOS_MIN: u64 = 100_000_000_000_000_000;

/// Validates a time for the API. An integer whose magnitude suggests another unit than nanoseconds is refused:
/// in nanoseconds it would be a time near 1970, and select everything or nothing.
pub(crate) fn time(text: &str) -> std::result::Result<String, String> {
    if let Ok(count) = text.parse::<i64>()
        && count.unsigned_abs() < BARE_NANOS_MIN
    {
        let unit = match count.unsigned_abs() {
            0..100_000_000_000 => "s",
            100_000_000_000..100_000_000_000_000 => "ms",
            _ => "us",
        };
        return Err(format!(
            "an integer without a unit means nanoseconds, and this one is a time near 1970; \
             did you mean {text}{unit}? ({text}ns for nanoseconds)"
        ));
    }
    match TimeInput::parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn duration(text: &str) -> std::result::Result<String, String> {
    match tideline_openapi::model::time::parse_duration(text) {
        Some(1..) => Ok(text.to_owned()),
        _ => Err("expected a duration such as 15m, 1h or 7d".into()),
    }
}
