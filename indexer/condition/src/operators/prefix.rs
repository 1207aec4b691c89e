//! `prefix`: the subject begins with a text.
//!
//! A missing tag or attribute is the empty text, so only the empty prefix matches it.

use super::{Operator, Symbol};
use crate::Result;
use crate::condition::{PATTERN_BYTES_MAX, Subject};
use crate::error::limit;
use crate::json::{Content, Fault, Form, Member, Members, Shape};
use crate::matcher::{Compiler, Node};
use crate::stable::StableBytes;
use crate::text::{TextPredicate, TextTest};

/// Test that the subject begins with this text.
#[derive(Debug, Clone, PartialEq)]
pub struct Prefix(pub String);

impl Operator for Prefix {
    const LISTED: &'static [&'static str] = &["prefix"];
    const MEMBERS: &'static [Member] = &[Member {
        name: "prefix",
        timelines: Some(Form {
            shape: Shape::Text,
            doc: "Test: it begins with this.",
        }),
        values: None,
        unused: "",
    }];
    const SYMBOLS: &'static [Symbol] = &[Symbol {
        text: "^=",
        is_not: false,
        timelines: true,
        values: false,
    }];
    const CODES: [Option<u8>; 2] = [Some(3), None];
    const DESCRIBED: &'static str = "a prefix";

    fn read(members: &mut Members) -> std::result::Result<Option<Self>, Fault> {
        Ok(members.text("prefix").map(Self))
    }

    fn write(&self) -> Vec<(&'static str, Content)> {
        vec![("prefix", Content::Text(self.0.clone()))]
    }

    fn compile(&self, subject: &Subject, _compiler: &mut Compiler<'_>) -> Result<Option<Node>> {
        if !subject.is_text() {
            return Ok(None);
        }
        limit("bytes of a prefix", PATTERN_BYTES_MAX, self.0.len())?;
        let test = TextTest::predicate(Starts(self.0.clone()));
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
        Some(("^=", self.0.clone()))
    }
}

/// Compiled prefix.
#[derive(Debug)]
struct Starts(String);

impl TextPredicate for Starts {
    fn matches(&self, text: &[u8]) -> bool {
        text.starts_with(self.0.as_bytes())
    }

    fn literal_prefix(&self) -> &str {
        &self.0
    }

    fn matched(&self, _text: &str) -> std::ops::Range<usize> {
        0..self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use crate::operators::testing::{holds, refuses};

    #[test]
    fn begins_with_a_text() {
        for json in [
            r#"{"tag":"host","prefix":"web-"}"#,
            r#"{"tag":"missing","prefix":""}"#,
            r#"{"attribute":"labels","prefix":"ss"}"#,
            r#"{"column":"note","prefix":"The "}"#,
            r#"{"column":"labels","prefix":"ss"}"#,
        ] {
            assert!(holds(json), "{json}");
        }
        for json in [
            r#"{"tag":"host","prefix":"eb"}"#,
            r#"{"tag":"missing","prefix":"a"}"#,
            r#"{"attribute":"cores","prefix":""}"#,
            r#"{"column":"note","prefix":"the"}"#,
            r#"{"column":"missing","prefix":""}"#,
            r#"{"column":"items","prefix":""}"#,
        ] {
            assert!(!holds(json), "{json}");
        }
        let long = "x".repeat(1_025);
        assert!(refuses(&format!(r#"{{"tag":"host","prefix":"{long}"}}"#)).contains("limit of 1024"));
        assert!(refuses(r#"{"property":"any","prefix":"a"}"#).contains("a prefix cannot be applied"));
    }
}
