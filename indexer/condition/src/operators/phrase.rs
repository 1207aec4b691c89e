//! `phrase`: the subject contains the words of a text in order, without other words between them.
//!
//! Words are split and compared as in the operator `text`.

use super::Operator;
use crate::Result;
use crate::condition::Subject;
use crate::json::{Content, Fault, Form, Member, Members, Shape};
use crate::matcher::{Compiler, Node};
use crate::stable::StableBytes;
use crate::text::{TextTest, query_words};

/// Test that the subject contains the words of `text` one after the other. In a list, one text must contain the whole
/// phrase.
#[derive(Debug, Clone, PartialEq)]
pub struct Phrase {
    /// Text with the words of the phrase.
    pub text: String,
    /// Maximum number of edits per word, at most [`DISTANCE_MAX`](crate::condition::DISTANCE_MAX).
    pub distance: u8,
}

impl Operator for Phrase {
    const LISTED: &'static [&'static str] = &["phrase"];
    const MEMBERS: &'static [Member] = &[
        Member {
            name: "phrase",
            timelines: Some(Form {
                shape: Shape::Text,
                doc: "Test: it contains these words one after the other.",
            }),
            values: None,
            unused: "",
        },
        Member {
            name: "distance",
            timelines: Some(Form {
                shape: Shape::Count,
                doc: "For `fuzzy`, `text` or `phrase`: maximum number of edits, 0 to 2; for `text` and `phrase`, per word.\n\
                      Default 1 for `fuzzy`, otherwise 0.",
            }),
            values: None,
            unused: "distance belongs to fuzzy, text or phrase",
        },
    ];
    const CODES: [Option<u8>; 2] = [Some(10), None];
    const DESCRIBED: &'static str = "words";

    fn read(members: &mut Members) -> std::result::Result<Option<Self>, Fault> {
        let Some(text) = members.text("phrase") else {
            return Ok(None);
        };
        let distance = members.count("distance").unwrap_or(0);
        Ok(Some(Self { text, distance }))
    }

    fn write(&self) -> Vec<(&'static str, Content)> {
        vec![
            ("phrase", Content::Text(self.text.clone())),
            ("distance", Content::Count(self.distance)),
        ]
    }

    fn compile(&self, subject: &Subject, compiler: &mut Compiler<'_>) -> Result<Option<Node>> {
        if !(subject.is_text() || *subject == Subject::Any) {
            return Ok(None);
        }
        let test = TextTest::Phrase(query_words(&self.text, self.distance, subject, compiler)?);
        Ok(Some(Node::Text(subject.clone(), test)))
    }

    fn encode(&self, to: &mut StableBytes) {
        to.choice(self.distance);
        // Words (0) and phrases (1) share the operator code 10.
        to.choice(1);
        to.text(&self.text);
    }
}

#[cfg(test)]
mod tests {
    use crate::operators::testing::{holds, refuses};

    #[test]
    fn words_in_order_match() {
        for json in [
            r#"{"attribute":"title","phrase":"the backup store"}"#,
            r#"{"property":"any","phrase":"backup store"}"#,
            r#"{"column":"note","phrase":"the backup store"}"#,
        ] {
            assert!(holds(json), "{json}");
        }
        for json in [
            r#"{"attribute":"title","phrase":"store backup"}"#,
            r#"{"attribute":"labels","phrase":"backup ssd"}"#,
            r#"{"column":"labels","phrase":"backup ssd"}"#,
            r#"{"column":"missing","phrase":"backup"}"#,
        ] {
            assert!(!holds(json), "{json}");
        }
        assert!(refuses(r#"{"tag":"host","equals":"a","distance":1}"#).contains("distance belongs to"));
    }
}
