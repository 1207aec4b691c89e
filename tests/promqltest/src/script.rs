//! Parser of scripts. The commands are `clear`, `load` and `eval`; the last two extend to the next
//! empty line.
//!
//! Lines that begin with `#` count as empty.

use thiserror::Error;
use tideline_promql::parse_duration;

use crate::expect::{Expectation, Expected, ExpectedSeries, Message};
use crate::load::{LoadedSeries, Loading};
use crate::series::{self, Value};

/// Parsed script.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    /// Commands in the order of the file.
    pub commands: Vec<Command>,
}

/// Command of a script.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// Line number, from 1.
    pub line: usize,
    /// Action.
    pub action: Action,
}

/// Action of a command.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Removal of all series.
    Clear,
    /// Addition of samples.
    Load(Vec<LoadedSeries>),
    /// Evaluation of a query and comparison of its result.
    Eval(Box<Eval>),
}

/// Query with its expected result.
#[derive(Debug, Clone, PartialEq)]
pub struct Eval {
    /// Query.
    pub query: String,
    /// Evaluation time.
    pub when: When,
    /// Expectation.
    pub expectation: Expectation,
}

/// Evaluation time of a query, in milliseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Instant query at this timestamp.
    Instant(i64),
    /// Range query.
    Range {
        /// First timestamp.
        start: i64,
        /// Last timestamp.
        end: i64,
        /// Step.
        step: i64,
    },
}

/// Error of parsing a script.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {message}")]
pub struct ScriptError {
    /// Line number, from 1.
    pub line: usize,
    /// Description of the error.
    pub message: String,
}

impl Script {
    /// Parses a script.
    ///
    /// # Errors
    ///
    /// Returns the first error with its line: an unknown command, a malformed series, duration or
    /// expectation.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let mut lines = Lines {
            rest: text
                .lines()
                .map(|line| line.trim())
                .map(|line| if line.starts_with('#') { "" } else { line })
                .collect(),
            at: 0,
        };
        let mut commands = Vec::new();
        while let Some(first) = lines.next_command() {
            let line = lines.at;
            let word = first.split_whitespace().next().unwrap_or_default();
            let action = match word.to_ascii_lowercase().as_str() {
                "clear" => Ok(Action::Clear),
                load if load.starts_with("load") => parse_load(first, &mut lines).map(Action::Load),
                eval if eval.starts_with("eval") => {
                    parse_eval(first, &mut lines).map(|eval| Action::Eval(Box::new(eval)))
                }
                _ => Err(format!("unknown command: {first}")),
            };
            let fault = |message| ScriptError {
                line: lines.at,
                message,
            };
            commands.push(Command {
                line,
                action: action.map_err(fault)?,
            });
        }
        Ok(Self { commands })
    }
}

struct Lines<'a> {
    rest: Vec<&'a str>,
    /// Number of consumed lines, which is the line number of the last consumed line.
    at: usize,
}

impl<'a> Lines<'a> {
    fn next_command(&mut self) -> Option<&'a str> {
        while self.rest.get(self.at)?.is_empty() {
            self.at += 1;
        }
        self.at += 1;
        Some(self.rest[self.at - 1])
    }

    /// Returns the next line of a command; `None` at its end.
    fn next_in_command(&mut self) -> Option<&'a str> {
        let line = self.rest.get(self.at).filter(|line| !line.is_empty())?;
        self.at += 1;
        Some(line)
    }
}

fn parse_load(first: &str, lines: &mut Lines<'_>) -> Result<Vec<LoadedSeries>, String> {
    let (word, step) = first.split_once(char::is_whitespace).unwrap_or((first, ""));
    let with_histograms = match word.to_ascii_lowercase().as_str() {
        "load" => false,
        "load_with_nhcb" => true,
        _ => return Err(format!("unknown command: {word}")),
    };
    let mut loading = Loading::new(duration(step.trim())?);
    while let Some(line) = lines.next_in_command() {
        loading.add(line)?;
    }
    loading.finish(with_histograms)
}

fn parse_eval(first: &str, lines: &mut Lines<'_>) -> Result<Eval, String> {
    let (command, rest) = word(first);
    let (kind, rest) = word(rest);
    let (when, query) = match kind {
        "instant" => {
            let ([at], query) = times(["at"], rest)?;
            (When::Instant(at), query)
        }
        "range" => {
            let ([start, end, step], query) = times(["from", "to", "step"], rest)?;
            (When::Range { start, end, step }, query)
        }
        _ => return Err(format!("{kind} is neither instant nor range")),
    };
    let mut eval = Eval {
        query: query.to_owned(),
        when,
        expectation: Expectation::default(),
    };
    let expectation = &mut eval.expectation;
    match command.to_ascii_lowercase().as_str() {
        "eval" => {}
        "eval_fail" => expectation.fail = Some(Message::Any),
        "eval_warn" => expectation.has_warnings = true,
        "eval_info" => expectation.has_infos = true,
        "eval_ordered" => expectation.is_ordered = true,
        _ => return Err(format!("unknown command: {command}")),
    }
    while let Some(line) = lines.next_in_command() {
        eval.expect(line)?;
    }
    Ok(eval)
}

impl Eval {
    fn expect(&mut self, line: &str) -> Result<(), String> {
        let expectation = &mut self.expectation;
        if let Some(message) = line.strip_prefix("expected_fail_message") {
            expectation.fail = Some(Message::Exact(message.trim().to_owned()));
        } else if let Some(pattern) = line.strip_prefix("expected_fail_regexp") {
            expectation.fail = Some(Message::pattern(pattern.trim())?);
        } else if let Some(range) = line.strip_prefix("expect range vector") {
            let ([start, end, step], _) = times(["from", "to", "step"], range)?;
            expectation.samples_at = Some((start, end, step));
            self.when = When::Instant(end);
        } else if let Some(text) = line.strip_prefix("expect string") {
            expectation.expected = Expected::String(string(text.trim())?);
        } else if line.split(' ').next() == Some("expect") {
            expectation.add(line["expect".len()..].trim())?;
        } else if let Some(number) = series::number(line) {
            expectation.expected = Expected::Scalar(number);
        } else {
            let (labels, values) = series::parse(line)?;
            let is_instant = matches!(self.when, When::Instant(_));
            if values.len() > 1 && is_instant && expectation.samples_at.is_none() {
                return Err("an instant query has one value per series".to_owned());
            }
            if let [Value::Omitted] | [] = values.as_slice() {
                return Err("an expected series must have a value".to_owned());
            }
            expectation.expect_series(ExpectedSeries { labels, values });
        }
        Ok(())
    }
}

/// Parses durations, each after its keyword. Also returns the rest of the text.
fn times<'a, const N: usize>(names: [&str; N], text: &'a str) -> Result<([i64; N], &'a str), String> {
    let mut rest = text;
    let mut times = [0; N];
    for (name, time) in names.into_iter().zip(&mut times) {
        let (found, behind) = word(rest);
        if found != name {
            return Err(format!("expected {name}, found {found}"));
        }
        let (value, behind) = word(behind);
        *time = duration(value)?;
        rest = behind;
    }
    Ok((times, rest.trim()))
}

fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_once([' ', '\t']).unwrap_or((text, ""))
}

fn duration(text: &str) -> Result<i64, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

fn string(quoted: &str) -> Result<String, String> {
    match tideline_promql::parse(quoted) {
        Ok(tideline_promql::ast::Expr::String(string)) => Ok(string.value),
        _ => Err(format!("{quoted} is not a quoted string")),
    }
}
