//! `not_equals`: the subject is not this value.
//!
//! On timelines it is the negation of `equals`. On points and rows, a missing field or column does not pass.

use super::equals::{EQUALITY, equality};
use super::{Operator, Symbol, typed_literal};
use crate::Result;
use crate::condition::Subject;
use crate::json::{Content, Fault, Form, Member, Members, Shape};
use crate::literal::Literal;
use crate::matcher::{Compiler, Node};
use crate::stable::StableBytes;

/// Test that the subject is not this value. A field or column without a value does not pass. A list passes if none of
/// its values is equal.
#[derive(Debug, Clone, PartialEq)]
pub struct NotEquals(pub Literal);

impl Operator for NotEquals {
    const LISTED: &'static [&'static str] = &["not_equals"];
    const MEMBERS: &'static [Member] = &[Member {
        name: "not_equals",
        timelines: Some(Form {
            shape: Shape::Attribute,
            doc: "Test: it is not this value.",
        }),
        values: Some(Form {
            shape: Shape::Value,
            doc: "Test: there is a value, and it is not this one.",
        }),
        unused: "",
    }];
    const SYMBOLS: &'static [Symbol] = &[Symbol {
        text: "!=",
        is_not: false,
        timelines: true,
        values: true,
    }];
    const CODES: [Option<u8>; 2] = [Some(1), Some(1)];
    const DESCRIBED: &'static str = EQUALITY;

    fn read(members: &mut Members) -> std::result::Result<Option<Self>, Fault> {
        Ok(members.literal("not_equals").map(Self))
    }

    fn write(&self) -> Vec<(&'static str, Content)> {
        vec![("not_equals", Content::Literal(self.0.clone()))]
    }

    fn compile(&self, subject: &Subject, _compiler: &mut Compiler<'_>) -> Result<Option<Node>> {
        let is_field = matches!(subject, Subject::Field(_));
        let equal = equality(subject, std::slice::from_ref(&self.0), is_field)?;
        let differs = |equal| Node::Not(Box::new(equal));
        Ok(match subject {
            Subject::Field(_) => equal,
            Subject::Column(_) => {
                equal.map(|equal| Node::And(vec![Node::Exists(subject.clone()), differs(equal)]))
            }
            _ => equal.map(differs),
        })
    }

    fn encode(&self, to: &mut StableBytes) {
        to.literal(&self.0);
    }

    fn resolve(&mut self, now: tideline_model::Timestamp) {
        self.0.resolve(now);
    }

    fn parse_typed(
        _symbol: &str,
        subject: &Subject,
        text: &str,
    ) -> std::result::Result<Option<Self>, String> {
        let is_time = matches!(subject, Subject::FirstSeen | Subject::LastSeen);
        Ok((!is_time).then(|| Self(typed_literal::parse(subject, text))))
    }

    fn typed(&self, subject: &Subject) -> Option<(&'static str, String)> {
        Some(("!=", typed_literal::write(subject, &self.0)?))
    }
}

#[cfg(test)]
mod tests {
    use crate::operators::testing::holds;

    #[test]
    fn differs_from_one_value() {
        for json in [
            r#"{"tag":"host","not_equals":"web"}"#,
            r#"{"tag":"missing","not_equals":"web"}"#,
            r#"{"attribute":"cores","not_equals":"8"}"#,
            r#"{"field":"usage","not_equals":1}"#,
            r#"{"field":"usage","not_equals":"idle"}"#,
            r#"{"column":"items","not_equals":1}"#,
            r#"{"column":"labels","not_equals":"hdd"}"#,
            r#"{"column":"site","not_equals":"x"}"#,
        ] {
            assert!(holds(json), "{json}");
        }
        for json in [
            r#"{"tag":"host","not_equals":"web-1"}"#,
            r#"{"tag":"missing","not_equals":""}"#,
            r#"{"attribute":"labels","not_equals":"ssd"}"#,
            r#"{"field":"missing","not_equals":1}"#,
            r#"{"column":"items","not_equals":7.0}"#,
            r#"{"column":"labels","not_equals":"ssd"}"#,
            r#"{"column":"missing","not_equals":1}"#,
        ] {
            assert!(!holds(json), "{json}");
        }
    }
}
