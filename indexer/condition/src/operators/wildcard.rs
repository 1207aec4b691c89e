//! `wildcard`: the whole subject matches a pattern.

use tideline_pattern::Glob;

use super::Operator;
use crate::Result;
use crate::condition::{PATTERN_BYTES_MAX, Subject};
use crate::error::limit;
use crate::json::{Content, Fault, Form, Member, Members, Shape};
use crate::matcher::{Compiler, Node};
use crate::stable::StableBytes;
use crate::text::{TextPredicate, TextTest};

/// Test that the whole subject matches a pattern: `*` matches any text, `?` matches any one character.
#[derive(Debug, Clone, PartialEq)]
pub struct Wildcard(pub String);

impl Operator for Wildcard {
    const LISTED: &'static [&'static str] = &["wildcard"];
    const MEMBERS: &'static [Member] = &[Member {
        name: "wildcard",
        timelines: Some(Form {
            shape: Shape::Text,
            doc: "Test: all of it matches; `*` stands for any text, `?` for any one character.",
        }),
        values: None,
        unused: "",
    }];
    const CODES: [Option<u8>; 2] = [Some(4), None];
    const DESCRIBED: &'static str = "a wildcard pattern";

    fn read(members: &mut Members) -> std::result::Result<Option<Self>, Fault> {
        Ok(members.text("wildcard").map(Self))
    }

    fn write(&self) -> Vec<(&'static str, Content)> {
        vec![("wildcard", Content::Text(self.0.clone()))]
    }

    fn compile(&self, subject: &Subject, _compiler: &mut Compiler<'_>) -> Result<Option<Node>> {
        if !subject.is_text() {
            return Ok(None);
        }
        limit("bytes of a wildcard pattern", PATTERN_BYTES_MAX, self.0.len())?;
        let test = TextTest::predicate(Glob::new(self.0.clone()));
        Ok(Some(Node::Text(subject.clone(), test)))
    }

    fn encode(&self, to: &mut StableBytes) {
        to.text(&self.0);
    }
}

impl TextPredicate for Glob {
    fn matches(&self, text: &[u8]) -> bool {
        Self::matches(self, text)
    }

    fn literal_prefix(&self) -> &str {
        Self::literal_prefix(self)
    }
}

#[cfg(test)]
mod tests {
    use crate::operators::testing::{holds, refuses};

    #[test]
    fn fits_a_pattern() {
        for json in [
            r#"{"tag":"host","wildcard":"w*-?"}"#,
            r#"{"tag":"missing","wildcard":"*"}"#,
            r#"{"column":"note","wildcard":"The*"}"#,
        ] {
            assert!(holds(json), "{json}");
        }
        assert!(!holds(r#"{"tag":"host","wildcard":"web"}"#));
        assert!(!holds(r#"{"column":"missing","wildcard":"*"}"#));
        assert!(!holds(r#"{"column":"items","wildcard":"*"}"#));
        let long = "x".repeat(1_025);
        assert!(refuses(&format!(r#"{{"tag":"host","wildcard":"{long}"}}"#)).contains("limit of 1024"));
    }
}
