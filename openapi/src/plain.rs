//! Error messages for JSON bodies and parameters: location, expected value, actual value.
//!
//! Deserializers report errors in terms of Rust ("expected u64", "data did not match any variant"), which clients do
//! not use. [`read`] parses a body and reports errors such as
//! `/aggregate/functions/0: "median" is not one of count, sum, …`. [`message`] translates the text of an error from
//! another parser.

use std::error::Error;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::error::Category;
use serde_path_to_error::{Path, Segment};

/// Maximum nesting depth of lists and objects. Deeper documents are refused; the depth of values that stay unparsed
/// (ignored members, raw JSON) is checked only if the document has another error.
pub const DEPTH_MAX: u64 = 127;
/// Maximum number of characters of a text value that an error quotes.
const QUOTED_CHARS_MAX: usize = 80;

/// Phrases of serde errors and their replacements, applied anywhere in a text.
const PHRASES: &[(&str, &str)] = &[
    ("invalid digit found in string", "not a whole number"),
    (
        "cannot parse integer from empty string",
        "empty instead of a whole number",
    ),
    (
        "cannot parse float from empty string",
        "empty instead of a number",
    ),
    (
        "number too large to fit in target type",
        "the number is too large",
    ),
    (
        "number too small to fit in target type",
        "the number is too small",
    ),
    ("invalid float literal", "not a number"),
    (
        "provided string was not `true` or `false`",
        "neither true nor false",
    ),
    ("EOF while parsing a list", "the text ends within a list"),
    ("EOF while parsing an object", "the text ends within an object"),
    ("EOF while parsing a string", "the text ends within a quoted text"),
    ("EOF while parsing a value", "the text ends before a value"),
    ("expected ident", "expected a value"),
    ("expected value", "expected a value"),
    (
        "key must be a string",
        "the name of a member must be in double quotes",
    ),
    ("invalid unicode code point", "not valid UTF-8"),
    ("lone leading surrogate in hex escape", "unpaired surrogate"),
    ("unexpected end of hex escape", "unpaired surrogate"),
];

/// Reason why a JSON document could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonFault {
    /// Description and location of the error.
    pub message: String,
    /// Limit that was exceeded, and the actual value.
    pub limit: Option<(u64, u64)>,
}

/// Parses a JSON document.
///
/// # Errors
///
/// Returns a [`JsonFault`] if the document is not valid JSON, is nested deeper than [`DEPTH_MAX`], or does not have
/// the form of `T`.
pub fn read<T: DeserializeOwned>(document: &[u8]) -> Result<T, JsonFault> {
    // Checking the whole document once takes less time than checking each of its texts.
    match std::str::from_utf8(document) {
        Ok(text) => serde_json::from_str(text).map_err(|error| fault::<T>(document, &error)),
        Err(error) => Err(fault::<T>(document, &error)),
    }
}

/// Describes why a document could not be read. Parses it again to find the location.
fn fault<T: DeserializeOwned>(document: &[u8], error: &dyn Error) -> JsonFault {
    let depth = depth(document);
    if depth > DEPTH_MAX {
        return JsonFault {
            message: format!("the body is nested {depth} levels deep; the limit is {DEPTH_MAX}"),
            limit: Some((DEPTH_MAX, depth)),
        };
    }
    let without_limit = |message| JsonFault { message, limit: None };
    if let Err(error) = serde_json::from_slice::<IgnoredAny>(document) {
        return without_limit(format!(
            "the body is not valid JSON: {}",
            syntax(document, &error)
        ));
    }
    let mut reader = serde_json::Deserializer::from_slice(document);
    let Err(placed) = serde_path_to_error::deserialize::<_, T>(&mut reader) else {
        return without_limit(message(&error.to_string()));
    };
    let location = match pointer(placed.path()) {
        location if location.is_empty() => "the body".to_owned(),
        location => location,
    };
    // If a word is expected, the parser reports any other value as a syntax error.
    let reason = match placed.inner().classify() {
        Category::Data => message(&without_position(placed.inner())),
        _ => "expected a word or an object".to_owned(),
    };
    without_limit(format!("{location}: {reason}"))
}

/// Describes a syntax error of a document and its location.
pub fn syntax(document: &[u8], error: &serde_json::Error) -> String {
    let reason = message(&without_position(error));
    match document.contains(&b'\n') {
        true => format!("{reason} (line {}, character {})", error.line(), error.column()),
        false => format!("{reason} (character {})", error.column()),
    }
}

/// Translates the text of an error and removes the position at its end. Text without known phrases stays unchanged.
pub fn message(text: &str) -> String {
    let text = match text.rfind(" at line ") {
        Some(at) if is_position(&text[at..]) => &text[..at],
        _ => text,
    };
    if let Some(translated) = of_types(text).or_else(|| of_names(text)) {
        return translated;
    }
    let mut text = text.to_owned();
    for (phrase, plain) in PHRASES {
        if text.contains(phrase) {
            text = text.replace(phrase, plain);
        }
    }
    text
}

/// Returns the text of an error without " at line 1 column 32".
fn without_position(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&position).unwrap_or(&text).to_owned()
}

fn is_position(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
    matches!(words[..], ["at", "line", line, "column", column] if is_number(line) && is_number(column))
}

/// Translates errors about the type, size or length of a value; `None` for other errors.
fn of_types(text: &str) -> Option<String> {
    if let Some((found, wanted)) = split(text, "invalid length ") {
        return Some(format!("expected {}, found {found} values", expected(wanted)));
    }
    let (found, wanted) = split(text, "invalid type: ").or_else(|| split(text, "invalid value: "))?;
    Some(format!("expected {}, found {}", expected(wanted), shown(found)))
}

fn split<'a>(text: &'a str, begin: &str) -> Option<(&'a str, &'a str)> {
    text.strip_prefix(begin)?.rsplit_once(", expected ")
}

/// Translates errors about missing, duplicate or unknown members and words; `None` for other errors.
fn of_names(text: &str) -> Option<String> {
    if let Some(rest) = text.strip_prefix("missing field ") {
        return Some(format!("the member {} is missing", unquoted(rest)));
    }
    if let Some(rest) = text.strip_prefix("duplicate field ") {
        return Some(format!("the member {} is given twice", unquoted(rest)));
    }
    if let Some(rest) = text.strip_prefix("unknown field ") {
        let (name, known) = rest.split_once("`, ").unwrap_or((rest, ""));
        let known = match known.strip_prefix("expected ") {
            Some(known) => format!("; known are {}", listed(known)),
            None => String::new(),
        };
        return Some(format!("the member {} is not known here{known}", unquoted(name)));
    }
    let rest = text.strip_prefix("unknown variant ")?;
    let (name, known) = rest.split_once("`, expected ")?;
    Some(format!("{} is not one of {}", unquoted(name), listed(known)))
}

/// Converts "one of `a`, `b`" or "`a` or `b`" to a list of words.
fn listed(words: &str) -> String {
    let words = words.strip_prefix("one of ").unwrap_or(words);
    words.replace("` or `", "`, `").replace('`', "")
}

/// Replaces backquotes around a name by double quotes.
fn unquoted(name: &str) -> String {
    format!("{:?}", name.trim_matches('`'))
}

/// Describes the value that was found, in terms of JSON.
fn shown(found: &str) -> String {
    let inner = |prefix: &str| found.strip_prefix(prefix).map(|rest| rest.trim_matches('`'));
    if let Some(value) = inner("boolean ") {
        return value.to_owned();
    }
    if let Some(number) = inner("integer ").or_else(|| inner("floating point ")) {
        return format!("the number {number}");
    }
    if let Some(text) = found
        .strip_prefix("string ")
        .or_else(|| found.strip_prefix("character "))
    {
        return match text.chars().count() > QUOTED_CHARS_MAX {
            true => format!(
                "the text {}…\"",
                text.chars().take(QUOTED_CHARS_MAX).collect::<String>()
            ),
            false => format!("the text {}", text.replace('`', "\"")),
        };
    }
    match found {
        "sequence" => "a list".into(),
        "map" => "an object".into(),
        "null" | "unit value" | "Option value" => "null".into(),
        "number" => "a number".into(),
        _ => "another kind of value".into(),
    }
}

/// Describes the expected value in terms of JSON. Unknown texts stay unchanged.
pub fn expected(wanted: &str) -> String {
    let count = |text: &str| {
        let digits = text
            .rsplit(' ')
            .find(|word| word.bytes().all(|byte| byte.is_ascii_digit()));
        digits.map_or_else(
            || "a list".to_owned(),
            |count| format!("a list of {count} values"),
        )
    };
    let plain = match wanted {
        "a string" | "string" | "str" | "a borrowed string" | "a character" => "a text",
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" | "u128" => "a whole number that is not negative",
        "i8" | "i16" | "i32" | "i64" | "isize" | "i128" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" | "bool" => "true or false",
        "a sequence" | "sequence" => "a list",
        "a map" | "map" => "an object",
        "unit" | "null" => "null",
        "string or map" | "variant identifier" => "a word, or an object with one member",
        "field identifier" => "the name of a member",
        _ if wanted.starts_with("a nonzero") => "a whole number above 0",
        _ if wanted.starts_with("struct ") => "an object",
        _ if wanted.starts_with("enum ") => "a word, or an object with one member",
        _ if ["an array of", "a tuple", "tuple "]
            .iter()
            .any(|begin| wanted.starts_with(begin)) =>
        {
            return count(wanted);
        }
        _ => wanted,
    };
    plain.to_owned()
}

/// Returns the location of an error as a JSON pointer, up to the first unknown part; empty for the whole document.
fn pointer(path: &Path) -> String {
    let mut pointer = String::new();
    for segment in path {
        let part = match segment {
            Segment::Seq { index } => index.to_string(),
            Segment::Map { key } => key.replace('~', "~0").replace('/', "~1"),
            Segment::Enum { variant } => variant.clone(),
            Segment::Unknown => break,
        };
        pointer.push('/');
        pointer.push_str(&part);
    }
    pointer
}

/// Returns the largest nesting depth of lists and objects in a document. Brackets in strings do not count.
fn depth(document: &[u8]) -> u64 {
    let (mut depth, mut deepest) = (0u64, 0);
    let (mut is_text, mut is_escaped) = (false, false);
    for byte in document {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b'[' | b'{' if !is_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !is_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::PointQuery;

    fn said(json: &str) -> String {
        read::<PointQuery>(json.as_bytes()).expect_err(json).message
    }

    #[test]
    fn errors_say_where_and_what_in_words_of_json() {
        for (json, message) in [
            (
                r#"{"limit":"x"}"#,
                "/limit: expected a whole number that is not negative, found the text \"x\"",
            ),
            (
                r#"{"limit":-1}"#,
                "/limit: expected a whole number that is not negative, found the number -1",
            ),
            (
                r#"{"fields":["a",{}]}"#,
                "/fields/1: expected a text, found an object",
            ),
            (r#"{"fields":null}"#, "/fields: expected a list, found null"),
            (
                r#"{"timelines":7}"#,
                "/timelines: expected an object, found the number 7",
            ),
            ("7", "the body: expected an object, found the number 7"),
            (
                r#"{"aggregate":{"functions":[{"percentile":"x"}]}}"#,
                "/aggregate/functions/0/percentile: expected a number, found the text \"x\"",
            ),
            (
                r#"{"range":{"start":"yesterday"}}"#,
                "/range/start: expected a time between",
            ),
            (
                r#"{"order":"up"}"#,
                "/order: \"up\" is not one of asc, ascending, desc, descending",
            ),
            (
                r#"{"bogus":1}"#,
                "the member \"bogus\" is not known here; known are timelines, fields, sample_details, range, where",
            ),
            (r#"{"sort":{}}"#, "/sort: the member \"field\" is missing"),
            (r#"{"limit":1,"limit":2}"#, "the member \"limit\" is given twice"),
            (
                r#"{"aggregate":{"group_by":7}}"#,
                "/aggregate/group_by: expected a list of tags",
            ),
            (r#"{"where":{"field":"a","gt":[]}}"#, "/where/gt: "),
            (r#"{"order":7}"#, "/order: expected a word or an object"),
            (
                "{",
                "the body is not valid JSON: the text ends within an object (character 1)",
            ),
            ("", "the body is not valid JSON: the text ends before a value"),
            (
                "{\n\"limit\": x}",
                "the body is not valid JSON: expected a value (line 2, character ",
            ),
            (
                r#"{"limit":1} 2"#,
                "the body is not valid JSON: trailing characters (character 13)",
            ),
        ] {
            let text = said(json);
            assert!(text.contains(message), "{json}: {text}");
        }
    }

    #[test]
    fn depth_is_named_with_its_limit() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let fault = read::<serde_json::Value>(deep.as_bytes()).expect_err("too deep");
        assert_eq!(fault.limit, Some((127, 200)));
        assert!(
            fault.message.contains("200 levels deep; the limit is 127"),
            "{fault:?}"
        );
        let just = format!("{}{}", "[".repeat(127), "]".repeat(127));
        assert!(read::<serde_json::Value>(just.as_bytes()).is_ok());
    }

    #[test]
    fn parameters_are_translated_within_a_text() {
        assert_eq!(
            message("limit: invalid digit found in string"),
            "limit: not a whole number"
        );
        assert_eq!(
            message("unknown variant `int`, expected one of `float`, `signed` \"{}\" in field \"f\""),
            "\"int\" is not one of float, signed \"{}\" in field \"f\""
        );
    }
}
