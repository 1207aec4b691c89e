//! `fuzzy`: the subject is within an edit distance of a text.

use super::Operator;
use crate::Result;
use crate::condition::Subject;
use crate::json::{Content, Fault, Form, Member, Members, Shape};
use crate::matcher::{Compiler, Node};
use crate::stable::StableBytes;
use crate::text::{Close, TextTest};

/// Test that the subject is not empty and within an edit distance of `text`. An edit inserts, removes or replaces a
/// character, or swaps two adjacent characters.
#[derive(Debug, Clone, PartialEq)]
pub struct Fuzzy {
    /// Text that the subject is compared with.
    pub text: String,
    /// Maximum number of edits, at most [`DISTANCE_MAX`](crate::condition::DISTANCE_MAX).
    pub distance: u8,
}

impl Operator for Fuzzy {
    const LISTED: &'static [&'static str] = &["fuzzy"];
    const MEMBERS: &'static [Member] = &[
        Member {
            name: "fuzzy",
            timelines: Some(Form {
                shape: Shape::Text,
                doc: "Test: it is not empty, and within `distance` edits of this text of at most 96 bytes. An edit inserts, removes or\nreplaces a character, or swaps two adjacent ones.",
            }),
            values: None,
            unused: "",
        },
    ];
    const CODES: [Option<u8>; 2] = [Some(9), None];
    const DESCRIBED: &'static str = "a fuzzy match";

    fn read(members: &mut Members) -> std::result::Result<Option<Self>, Fault> {
        let Some(text) = members.text("fuzzy") else {
            return Ok(None);
        };
        let distance = members.count("distance").unwrap_or(1);
        Ok(Some(Self { text, distance }))
    }

    fn write(&self) -> Vec<(&'static str, Content)> {
        vec![
            ("fuzzy", Content::Text(self.text.clone())),
            ("distance", Content::Count(self.distance)),
        ]
    }

    fn compile(&self, subject: &Subject, compiler: &mut Compiler<'_>) -> Result<Option<Node>> {
        if !subject.is_text() {
            return Ok(None);
        }
        let test = match self.distance {
            0 if self.text.is_empty() => TextTest::OneOf(Vec::new()),
            0 => TextTest::OneOf(vec![self.text.clone()]),
            distance => TextTest::Close(Close::new(&self.text, distance, compiler)?),
        };
        Ok(Some(Node::Text(subject.clone(), test)))
    }

    fn encode(&self, to: &mut StableBytes) {
        to.choice(self.distance);
        to.text(&self.text);
    }
}

#[cfg(test)]
mod tests {
    use crate::operators::testing::{holds, refuses};

    #[test]
    fn is_within_some_edits() {
        for json in [
            r#"{"tag":"host","fuzzy":"wbe-1"}"#,
            r#"{"tag":"host","fuzzy":"wb-2","distance":2}"#,
            r#"{"column":"labels","fuzzy":"sd"}"#,
            r#"{"column":"labels","fuzzy":"ssd","distance":0}"#,
        ] {
            assert!(holds(json), "{json}");
        }
        for json in [
            r#"{"tag":"host","fuzzy":"db"}"#,
            r#"{"tag":"missing","fuzzy":"a"}"#,
            r#"{"tag":"missing","fuzzy":"","distance":0}"#,
            r#"{"column":"missing","fuzzy":"a"}"#,
            r#"{"column":"items","fuzzy":"7"}"#,
        ] {
            assert!(!holds(json), "{json}");
        }
        assert!(refuses(r#"{"tag":"host","fuzzy":"a","distance":3}"#).contains("distance of a fuzzy search of 3"));
    }
}
