//! `exists`: the subject is present, or absent.

use super::Operator;
use crate::Result;
use crate::condition::Subject;
use crate::json::{Content, Fault, Form, Member, Members, Shape};
use crate::matcher::{Compiler, Node};

/// Test that the subject is present (`true`) or absent (`false`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exists(pub bool);

impl Operator for Exists {
    const LISTED: &'static [&'static str] = &["exists"];
    const MEMBERS: &'static [Member] = &[Member {
        name: "exists",
        timelines: Some(Form {
            shape: Shape::Flag,
            doc: "Test: it exists (`true`) or does not (`false`).",
        }),
        values: Some(Form {
            shape: Shape::Flag,
            doc: "Test: it has a value (`true`) or does not (`false`).",
        }),
        unused: "",
    }];
    // Absence is encoded as the negation of presence.
    const CODES: [Option<u8>; 2] = [Some(6), Some(4)];
    const DESCRIBED: &'static str = "existence";

    fn read(members: &mut Members) -> std::result::Result<Option<Self>, Fault> {
        Ok(members.flag("exists").map(Self))
    }

    fn write(&self) -> Vec<(&'static str, Content)> {
        vec![("exists", Content::Flag(self.0))]
    }

    fn compile(&self, subject: &Subject, _compiler: &mut Compiler<'_>) -> Result<Option<Node>> {
        if !subject.is_text() && !matches!(subject, Subject::Field(_)) {
            return Ok(None);
        }
        let exists = Node::Exists(subject.clone());
        Ok(Some(match self.0 {
            true => exists,
            false => Node::Not(Box::new(exists)),
        }))
    }
}

#[cfg(test)]
mod tests {
    use crate::operators::testing::{holds, refuses};

    #[test]
    fn is_there_or_not() {
        assert!(holds(r#"{"tag":"host","exists":true}"#));
        assert!(holds(r#"{"attribute":"cores","exists":true}"#));
        assert!(holds(r#"{"field":"missing","exists":false}"#));
        assert!(!holds(r#"{"tag":"missing","exists":true}"#));
        assert!(!holds(r#"{"field":"usage","exists":false}"#));
        assert!(holds(r#"{"column":"site","exists":true}"#));
        assert!(holds(r#"{"column":"missing","exists":false}"#));
        assert!(!holds(r#"{"column":"missing","exists":true}"#));
        assert!(refuses(r#"{"property":"id","exists":true}"#).contains("existence cannot be applied"));
    }
}
