//! Scenarios in text form: requests and expected responses. Reading them requires knowledge of HTTP only.
//!
//! ```text
//! # A comment.
//! === A point is found when its write was acknowledged
//! POST /v1/tables/default/points?precision=s
//! content-type: text/plain
//!
//! cpu,host=a usage=1.5 1700000000
//! > 200
//! > json {"points": 1}
//! ```
//!
//! A step begins with `===` and its name. Then follow the request line, headers, an empty line, the body, and
//! the expectations, each on a line that begins with `> `:
//!
//! | expectation | holds when |
//! |---|---|
//! | `> 204` | the status is 204; it is the first expectation of every step |
//! | `> header NAME: TEXT` | the header contains the text; without a text, the header is absent |
//! | `> json {…}` | the body contains this JSON, see [`crate::subset`] |
//! | `> lines [{…}, …]` | the body is NDJSON, and its lines as an array contain this JSON |
//! | `> text WORDS` | the body contains this text |
//! | `> lacks WORDS` | the body does not contain this text |
//! | `> body TEXT` | the body is exactly this text (`\n` is a line end); without a text, it is empty |
//! | `> keep NAME = /pointer` | not a check: later steps write `${NAME}` for this part of the response |
//!
//! An expectation continues on lines that begin with `>   `. Bodies are sent as written, without the line end
//! before the first expectation, and compressed if a `content-encoding` header is `gzip`, `zstd` or `snappy`.
//! A leading `\` of a body line is removed, so that any line can be written. A header `encode: MESSAGE` is
//! not sent: it converts the body into a remote write message, see [`crate::remote_write`].

use std::collections::HashMap;

use serde_json::Value;

use crate::client::{Client, Response};
use crate::{compress, remote_write, subset};

/// Header that names the message into which the body is converted.
const ENCODE: &str = "encode";

/// Scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    /// Steps in order.
    pub steps: Vec<Step>,
}

/// Request and its expected response.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Name: the behaviour that the step shows.
    pub name: String,
    /// Line of the file at which the step begins, counted from 1.
    pub line: usize,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: String,
    expectations: Vec<Expectation>,
}

#[derive(Debug, Clone, PartialEq)]
enum Expectation {
    Status(u16),
    Header { name: String, text: String },
    Json(String),
    Lines(String),
    Text(String),
    Lacks(String),
    Body(String),
    Keep { name: String, pointer: String },
}

/// Failed step.
#[derive(Debug, thiserror::Error)]
#[error("line {line}, {step:?}: {reason}")]
pub struct Failure {
    /// Line of the beginning of the step.
    pub line: usize,
    /// Name of the step.
    pub step: String,
    /// Difference from the expected response, or the error of the request.
    pub reason: String,
}

impl Script {
    /// Parses a scenario.
    ///
    /// # Panics
    ///
    /// Panics if the text is not a valid scenario, which is an error in the test.
    pub fn parse(text: &str) -> Self {
        let lines: Vec<(usize, &str)> = text.lines().enumerate().collect();
        let starts: Vec<usize> = lines
            .iter()
            .filter(|(_, line)| line.starts_with("==="))
            .map(|(index, _)| *index)
            .collect();
        let ends = starts.iter().skip(1).copied().chain([lines.len()]);
        let steps = starts
            .iter()
            .zip(ends)
            .map(|(start, end)| Step::parse(&lines[*start..end]))
            .collect();
        Self { steps }
    }

    /// Runs all steps in order and returns the failures; a failure does not end the run. `names` are
    /// predefined, in addition to the names that steps keep.
    pub fn run(&self, client: &Client, names: &[(&str, &str)]) -> Vec<Failure> {
        let mut kept: HashMap<String, String> = names
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect();
        let mut failures = Vec::new();
        for step in &self.steps {
            if let Err(reason) = step.run(client, &mut kept) {
                failures.push(Failure {
                    line: step.line,
                    step: step.name.clone(),
                    reason,
                });
            }
        }
        failures
    }
}

impl Step {
    fn parse(lines: &[(usize, &str)]) -> Self {
        let (line, name) = lines[0];
        let line = line + 1;
        let mut rest = lines[1..]
            .iter()
            .map(|(_, text)| *text)
            .filter(|text| !text.starts_with('#'))
            .skip_while(|text| text.is_empty())
            .peekable();
        let request = rest.next().unwrap_or_default();
        let Some((method, path)) = request.split_once(' ') else {
            panic!("line {line}: {request:?} is not a request line");
        };
        let mut headers = Vec::new();
        while let Some(header) = rest.next_if(|text| !text.is_empty() && !text.starts_with('>')) {
            let Some((name, value)) = header.split_once(": ") else {
                panic!("line {line}: {header:?} is not a header");
            };
            headers.push((name.to_owned(), value.to_owned()));
        }
        let _ = rest.next_if(|text| text.is_empty());
        let mut body = Vec::new();
        while let Some(text) = rest.next_if(|text| !text.starts_with('>')) {
            body.push(text.strip_prefix('\\').unwrap_or(text));
        }
        let mut expected: Vec<String> = Vec::new();
        for text in rest.filter(|text| text.starts_with('>')) {
            match (text.strip_prefix(">   "), expected.last_mut()) {
                (Some(more), Some(last)) => last.extend(["\n", more]),
                _ => expected.push(text[1..].trim().to_owned()),
            }
        }
        let expectations: Vec<Expectation> = expected
            .iter()
            .map(|text| Expectation::parse(line, text))
            .collect();
        assert!(
            matches!(expectations.first(), Some(Expectation::Status(_))),
            "line {line}: the first expectation is the status"
        );
        Self {
            name: name.trim_start_matches('=').trim().to_owned(),
            line,
            method: method.to_owned(),
            path: path.to_owned(),
            headers,
            body: body.join("\n"),
            expectations,
        }
    }

    fn run(&self, client: &Client, kept: &mut HashMap<String, String>) -> Result<(), String> {
        let headers: Vec<(String, String)> = self
            .headers
            .iter()
            .map(|(name, value)| Ok((name.clone(), fill(value, kept)?)))
            .collect::<Result<_, String>>()?;
        let headers: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let header = |wanted: &str| {
            let mut found = headers
                .iter()
                .filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.next().map(|(_, value)| *value)
        };
        let body = fill(&self.body, kept)?;
        let body = match header(ENCODE) {
            Some(message) => remote_write::encode(message, &body),
            None => body.into_bytes(),
        };
        let body = match header("content-encoding") {
            Some("gzip") => compress::gzip(&body),
            Some("zstd") => compress::zstd(&body),
            Some("snappy") => compress::snappy(&body),
            _ => body,
        };
        let headers: Vec<(&str, &str)> = headers
            .iter()
            .copied()
            .filter(|(name, _)| *name != ENCODE)
            .collect();
        let response = client
            .send(&self.method, &fill(&self.path, kept)?, &headers, &body)
            .map_err(|error| error.to_string())?;
        for expectation in &self.expectations {
            expectation
                .check(&response, kept)
                .map_err(|reason| format!("{reason}\n    the response: {response:?}"))?;
        }
        Ok(())
    }
}

impl Expectation {
    fn parse(line: usize, text: &str) -> Self {
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.to_owned();
        match word {
            "header" => {
                let (name, text) = rest.split_once(':').unwrap_or((&rest, ""));
                Self::Header {
                    name: name.trim().to_owned(),
                    text: text.trim().to_owned(),
                }
            }
            "json" => Self::Json(rest),
            "lines" => Self::Lines(rest),
            "text" => Self::Text(rest),
            "lacks" => Self::Lacks(rest),
            "body" => Self::Body(rest.replace("\\n", "\n")),
            "keep" => {
                let Some((name, pointer)) = rest.split_once(" = ") else {
                    panic!("line {line}: expected keep NAME = /pointer, found {text:?}");
                };
                Self::Keep {
                    name: name.trim().to_owned(),
                    pointer: pointer.trim().to_owned(),
                }
            }
            status => match status.parse() {
                Ok(status) => Self::Status(status),
                Err(_) => panic!("line {line}: unknown expectation {text:?}"),
            },
        }
    }

    fn check(&self, response: &Response, kept: &mut HashMap<String, String>) -> Result<(), String> {
        match self {
            Self::Status(status) if response.status == *status => Ok(()),
            Self::Status(status) => Err(format!("status {}, expected {status}", response.status)),
            Self::Header { name, text } => check_header(response, name, &fill(text, kept)?),
            Self::Json(expected) => {
                let actual: Value =
                    serde_json::from_slice(&response.body).map_err(|error| format!("not JSON: {error}"))?;
                subset::holds(&actual, &parse_expected(&fill(expected, kept)?))
            }
            Self::Lines(expected) => {
                let lines: Result<Vec<Value>, _> =
                    response.text().lines().map(serde_json::from_str).collect();
                let lines = lines.map_err(|error| format!("not NDJSON: {error}"))?;
                subset::holds(&Value::Array(lines), &parse_expected(&fill(expected, kept)?))
            }
            Self::Text(words) => match response.text().contains(&fill(words, kept)?) {
                true => Ok(()),
                false => Err(format!("the body lacks {words:?}")),
            },
            Self::Lacks(words) => match response.text().contains(&fill(words, kept)?) {
                true => Err(format!("the body has {words:?}")),
                false => Ok(()),
            },
            Self::Body(expected) => match response.text() == fill(expected, kept)? {
                true => Ok(()),
                false => Err(format!("the body is not {expected:?}")),
            },
            Self::Keep { name, pointer } => {
                let body = response.json();
                let part = body
                    .pointer(pointer)
                    .ok_or_else(|| format!("nothing at {pointer}"))?;
                let text = part.as_str().map_or_else(|| part.to_string(), str::to_owned);
                kept.insert(name.clone(), text);
                Ok(())
            }
        }
    }
}

fn check_header(response: &Response, name: &str, text: &str) -> Result<(), String> {
    let there = response.headers.contains_key(name);
    match (text.is_empty(), there) {
        (true, false) => Ok(()),
        (true, true) => Err(format!("header {name} is present: {:?}", response.header(name))),
        (false, _) if response.header(name).contains(text) => Ok(()),
        (false, _) => Err(format!(
            "header {name} is {:?}, expected {text:?}",
            response.header(name)
        )),
    }
}

fn parse_expected(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("invalid expected JSON ({error}): {text}"))
}

/// Returns the text with every `${name}` replaced by its kept value.
fn fill(text: &str, kept: &HashMap<String, String>) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        filled.push_str(before);
        let Some((name, after)) = after.split_once('}') else {
            return Err(format!("unterminated name in {text:?}"));
        };
        match kept.get(name) {
            Some(value) => filled.push_str(value),
            None => {
                return Err(format!(
                    "the name {name:?} is undefined: an earlier step failed, or it is misspelt"
                ));
            }
        }
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_has_request_headers_body_and_expectations() {
        let script = Script::parse(
            "# before\n=== one\nPOST /a?b=c\nx: y\n\nline 1\n\\# line 2\n> 200\n> json {\"a\":\n>   1}\n\n\
             === two\nGET /\n> 204\n> header x:\n> body\n",
        );
        assert_eq!(script.steps.len(), 2);
        let [one, two] = &script.steps[..] else {
            unreachable!("two steps")
        };
        assert_eq!((one.method.as_str(), one.path.as_str()), ("POST", "/a?b=c"));
        assert_eq!(one.headers, [("x".to_owned(), "y".to_owned())]);
        assert_eq!(one.body, "line 1\n# line 2");
        assert_eq!(one.expectations[0], Expectation::Status(200));
        assert_eq!(one.expectations[1], Expectation::Json("{\"a\":\n1}".into()));
        assert_eq!((two.line, two.name.as_str()), (12, "two"));
        assert_eq!(two.expectations.len(), 3);
    }
}
