//! `regex`: the whole subject matches a regular expression.
//!
//! An expression that matches only a few texts is compiled to an equality test, which an index evaluates by lookup.

use tideline_pattern::{Limits, Pattern};

use super::{Operator, Symbol};
use crate::Result;
use crate::condition::{PATTERN_BYTES_MAX, REGEX_BYTES_MAX, Subject};
use crate::json::{Content, Fault, Form, Member, Members, Shape};
use crate::matcher::{Compiler, Node};
use crate::stable::StableBytes;
use crate::text::{TextPredicate, TextTest};

/// Test that the whole subject matches the regular expression (syntax of the `regex` crate; a dot also matches a line
/// break).
#[derive(Debug, Clone, PartialEq)]
pub struct Regex(pub String);

impl Operator for Regex {
    const LISTED: &'static [&'static str] = &["regex"];
    const MEMBERS: &'static [Member] = &[Member {
        name: "regex",
        timelines: Some(Form {
            shape: Shape::Text,
            doc: "Test: all of it matches this regular expression.",
        }),
        values: None,
        unused: "",
    }];
    const SYMBOLS: &'static [Symbol] = &[
        Symbol {
            text: "=~",
            is_not: false,
            timelines: true,
            values: false,
        },
        Symbol {
            text: "!~",
            is_not: true,
            timelines: true,
            values: false,
        },
    ];
    const CODES: [Option<u8>; 2] = [Some(5), None];
    const DESCRIBED: &'static str = "a regular expression";

    fn read(members: &mut Members) -> std::result::Result<Option<Self>, Fault> {
        Ok(members.text("regex").map(Self))
    }

    fn write(&self) -> Vec<(&'static str, Content)> {
        vec![("regex", Content::Text(self.0.clone()))]
    }

    fn compile(&self, subject: &Subject, compiler: &mut Compiler<'_>) -> Result<Option<Node>> {
        if !subject.is_text() {
            return Ok(None);
        }
        let test = compile(&self.0, compiler)?;
        Ok(Some(Node::Text(subject.clone(), test)))
    }

    fn encode(&self, to: &mut StableBytes) {
        to.text(&self.0);
    }

    fn parse_typed(
        _symbol: &str,
        subject: &Subject,
        text: &str,
    ) -> std::result::Result<Option<Self>, String> {
        let is_time = matches!(subject, Subject::FirstSeen | Subject::LastSeen);
        Ok((!is_time).then(|| Self(text.to_owned())))
    }

    fn typed(&self, _subject: &Subject) -> Option<(&'static str, String)> {
        Some(("=~", self.0.clone()))
    }
}

/// Limits of a regular expression in a condition.
const LIMITS: Limits = Limits {
    text_bytes_max: PATTERN_BYTES_MAX,
    compiled_bytes_max: REGEX_BYTES_MAX as u64,
};

/// Returns true if a condition may contain this regular expression: it is valid, not too long, and its estimated
/// compiled size is within the limit. Does not compile the expression.
pub fn takes_regular_expression(pattern: &str) -> bool {
    Pattern::new(pattern, LIMITS).is_ok()
}

/// Compiled expression.
#[derive(Debug)]
struct Fits {
    pattern: Pattern,
    /// Prefix of every matching text.
    prefix: String,
}

impl TextPredicate for Fits {
    fn matches(&self, text: &[u8]) -> bool {
        text.starts_with(self.prefix.as_bytes()) && self.pattern.matches(text)
    }

    fn literal_prefix(&self) -> &str {
        &self.prefix
    }
}

fn compile(expression: &str, compiler: &mut Compiler<'_>) -> Result<TextTest> {
    let pattern = Pattern::new(expression, LIMITS)?;
    if let Some(texts) = pattern.texts() {
        // Dashboards write lists of values as alternations; term lookups are faster than matching a pattern.
        return Ok(TextTest::OneOf(texts.to_vec()));
    }
    compiler.take_pattern(&pattern)?;
    pattern.compile()?;
    let prefix = literal_prefix(expression).to_owned();
    Ok(TextTest::predicate(Fits { pattern, prefix }))
}

/// Returns a literal prefix of every text that matches an expression.
fn literal_prefix(expression: &str) -> &str {
    let is_plain = |c: char| c.is_alphanumeric() || "_-:/ @,;=%~\"'!<>".contains(c);
    if expression.contains('|') {
        return "";
    }
    let rest = expression.trim_start_matches(is_plain);
    let prefix = &expression[..expression.len() - rest.len()];
    match prefix.char_indices().next_back() {
        // The quantifier applies to the last character, which may occur zero times.
        Some((last, _)) if rest.starts_with(['*', '?', '{']) => &prefix[..last],
        _ => prefix,
    }
}

#[cfg(test)]
mod tests {
    use crate::operators::testing::{holds, refuses};

    #[test]
    fn fits_an_expression() {
        for json in [
            r#"{"tag":"host","regex":"web-[0-9]"}"#,
            r#"{"tag":"host","regex":"db-1|web-1"}"#,
            r#"{"tag":"missing","regex":"a*"}"#,
            r#"{"column":"labels","regex":"s+d"}"#,
        ] {
            assert!(holds(json), "{json}");
        }
        for json in [
            r#"{"tag":"host","regex":"web"}"#,
            r#"{"tag":"missing","regex":"a+"}"#,
            r#"{"column":"missing","regex":"a*"}"#,
            r#"{"column":"missing","regex":""}"#,
            r#"{"column":"items","regex":".*"}"#,
        ] {
            assert!(!holds(json), "{json}");
        }
        assert!(refuses(r#"{"tag":"host","regex":"("}"#).contains("regular expression"));
    }
}
