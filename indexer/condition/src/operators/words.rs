//! `text`: the subject contains all words of a text, in any order.

use super::Operator;
use crate::Result;
use crate::condition::Subject;
use crate::json::{Content, Fault, Form, Member, Members, Shape};
use crate::matcher::{Compiler, Node};
use crate::stable::StableBytes;
use crate::text::{TextTest, query_words};

/// Test that the subject contains all words of `text`. The analyzer of the subject splits texts into words; by default,
/// a word is a run of letters and digits. Case is ignored. The words may be spread over the texts of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Words {
    /// Text with the searched words.
    pub text: String,
    /// Maximum number of edits per word, at most [`DISTANCE_MAX`](crate::condition::DISTANCE_MAX).
    pub distance: u8,
}

impl Operator for Words {
    const LISTED: &'static [&'static str] = &["text"];
    const MEMBERS: &'static [Member] = &[
        Member {
            name: "text",
            timelines: Some(Form {
                shape: Shape::Text,
                doc: "Test: it contains all of these words, at most 32, in any order. Words are runs of letters and digits; case is\nignored.",
            }),
            values: None,
            unused: "",
        },
    ];
    const CODES: [Option<u8>; 2] = [Some(10), None];
    const DESCRIBED: &'static str = "words";

    fn read(members: &mut Members) -> std::result::Result<Option<Self>, Fault> {
        let Some(text) = members.text("text") else {
            return Ok(None);
        };
        let distance = members.count("distance").unwrap_or(0);
        Ok(Some(Self { text, distance }))
    }

    fn write(&self) -> Vec<(&'static str, Content)> {
        vec![
            ("text", Content::Text(self.text.clone())),
            ("distance", Content::Count(self.distance)),
        ]
    }

    fn compile(&self, subject: &Subject, compiler: &mut Compiler<'_>) -> Result<Option<Node>> {
        if !(subject.is_text() || *subject == Subject::Any) {
            return Ok(None);
        }
        let test = TextTest::Words(query_words(&self.text, self.distance, subject, compiler)?);
        Ok(Some(Node::Text(subject.clone(), test)))
    }

    fn encode(&self, to: &mut StableBytes) {
        to.choice(self.distance);
        // Words (0) and phrases (1) share the operator code 10.
        to.choice(0);
        to.text(&self.text);
    }
}

#[cfg(test)]
mod tests {
    use crate::operators::testing::{holds, refuses};

    #[test]
    fn all_words_match() {
        for json in [
            r#"{"attribute":"title","text":"store Backup"}"#,
            r#"{"attribute":"title","text":"bakcup","distance":1}"#,
            r#"{"attribute":"labels","text":"backup ssd"}"#,
            r#"{"property":"any","text":"cpu store"}"#,
            r#"{"column":"note","text":"store Backup"}"#,
            r#"{"column":"labels","text":"backup ssd"}"#,
        ] {
            assert!(holds(json), "{json}");
        }
        for json in [
            r#"{"attribute":"title","text":"back"}"#,
            r#"{"property":"any","text":"cpu nothing"}"#,
            r#"{"column":"items","text":"7"}"#,
            r#"{"column":"missing","text":"backup"}"#,
        ] {
            assert!(!holds(json), "{json}");
        }
        assert!(refuses(r#"{"tag":"host","text":"-"}"#).contains("at least one word"));
    }
}
