//! `suffix`: the subject ends with a text.

use super::Operator;
use crate::Result;
use crate::condition::{PATTERN_BYTES_MAX, Subject};
use crate::error::limit;
use crate::json::{Content, Fault, Form, Member, Members, Shape};
use crate::matcher::{Compiler, Node};
use crate::stable::StableBytes;
use crate::text::{TextPredicate, TextTest};

/// Test that the subject ends with this text.
#[derive(Debug, Clone, PartialEq)]
pub struct Suffix(pub String);

impl Operator for Suffix {
    const LISTED: &'static [&'static str] = &["suffix"];
    const MEMBERS: &'static [Member] = &[Member {
        name: "suffix",
        timelines: Some(Form {
            shape: Shape::Text,
            doc: "Test: it ends with this.",
        }),
        values: None,
        unused: "",
    }];
    const CODES: [Option<u8>; 2] = [Some(8), None];
    const DESCRIBED: &'static str = "a suffix";

    fn read(members: &mut Members) -> std::result::Result<Option<Self>, Fault> {
        Ok(members.text("suffix").map(Self))
    }

    fn write(&self) -> Vec<(&'static str, Content)> {
        vec![("suffix", Content::Text(self.0.clone()))]
    }

    fn compile(&self, subject: &Subject, _compiler: &mut Compiler<'_>) -> Result<Option<Node>> {
        if !subject.is_text() {
            return Ok(None);
        }
        limit("bytes of a suffix", PATTERN_BYTES_MAX, self.0.len())?;
        let test = TextTest::predicate(Ends(self.0.clone()));
        Ok(Some(Node::Text(subject.clone(), test)))
    }

    fn encode(&self, to: &mut StableBytes) {
        to.text(&self.0);
    }
}

/// Compiled suffix.
#[derive(Debug)]
struct Ends(String);

impl TextPredicate for Ends {
    fn matches(&self, text: &[u8]) -> bool {
        text.ends_with(self.0.as_bytes())
    }

    fn matched(&self, text: &str) -> std::ops::Range<usize> {
        text.len() - self.0.len()..text.len()
    }
}

#[cfg(test)]
mod tests {
    use crate::operators::testing::{holds, refuses};

    #[test]
    fn ends_with_a_text() {
        for json in [
            r#"{"tag":"host","suffix":"-1"}"#,
            r#"{"property":"source","suffix":"1"}"#,
            r#"{"column":"labels","suffix":"up"}"#,
        ] {
            assert!(holds(json), "{json}");
        }
        assert!(!holds(r#"{"tag":"host","suffix":"web"}"#));
        assert!(!holds(r#"{"column":"missing","suffix":""}"#));
        assert!(!holds(r#"{"column":"items","suffix":""}"#));
        let long = "x".repeat(1_025);
        assert!(refuses(&format!(r#"{{"tag":"host","suffix":"{long}"}}"#)).contains("limit of 1024"));
    }
}
