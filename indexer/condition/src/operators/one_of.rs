//! `in`: the subject is one of these values.

use super::Operator;
use super::equals::{EQUALITY, equality};
use crate::Result;
use crate::condition::Subject;
use crate::json::{Content, Fault, Form, Member, Members, Shape};
use crate::literal::Literal;
use crate::matcher::{Compiler, Node};
use crate::stable::StableBytes;

/// Test that the subject is one of these values. The values for a field or column must be of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct In(pub Vec<Literal>);

impl Operator for In {
    const LISTED: &'static [&'static str] = &["in"];
    const MEMBERS: &'static [Member] = &[Member {
        name: "in",
        timelines: Some(Form {
            shape: Shape::Attributes,
            doc: "Test: it is one of these values.",
        }),
        values: Some(Form {
            shape: Shape::Values,
            doc: "Test: it is one of these values, which must be of one kind.",
        }),
        unused: "",
    }];
    const CODES: [Option<u8>; 2] = [Some(2), Some(2)];
    const DESCRIBED: &'static str = EQUALITY;

    fn read(members: &mut Members) -> std::result::Result<Option<Self>, Fault> {
        Ok(members.literals("in").map(Self))
    }

    fn write(&self) -> Vec<(&'static str, Content)> {
        vec![("in", Content::Literals(self.0.clone()))]
    }

    fn compile(&self, subject: &Subject, compiler: &mut Compiler<'_>) -> Result<Option<Node>> {
        compiler.count(self.0.len())?;
        equality(subject, &self.0, false)
    }

    fn encode(&self, to: &mut StableBytes) {
        to.literals(&self.0);
    }

    fn resolve(&mut self, now: tideline_model::Timestamp) {
        self.0.iter_mut().for_each(|literal| literal.resolve(now));
    }
}

#[cfg(test)]
mod tests {
    use crate::operators::testing::{holds, refuses};

    #[test]
    fn is_one_of_several() {
        for json in [
            r#"{"tag":"host","in":["db-1","web-1"]}"#,
            r#"{"attribute":"cores","in":["x",8,true]}"#,
            r#"{"field":"count","in":[6,7]}"#,
            r#"{"field":"state","in":["idle","busy"]}"#,
            r#"{"column":"items","in":[6,7]}"#,
            r#"{"column":"labels","in":["hdd","ssd"]}"#,
        ] {
            assert!(holds(json), "{json}");
        }
        for json in [
            r#"{"tag":"host","in":[]}"#,
            r#"{"field":"count","in":[]}"#,
            r#"{"field":"count","in":[6.5,8]}"#,
            r#"{"field":"missing","in":[7]}"#,
            r#"{"column":"labels","in":["hdd"]}"#,
            r#"{"column":"items","in":[]}"#,
            r#"{"column":"missing","in":[7]}"#,
        ] {
            assert!(!holds(json), "{json}");
        }
    }

    #[test]
    fn values_of_a_field_are_of_one_kind() {
        assert!(refuses(r#"{"field":"count","in":[1,"a"]}"#).contains("values of one kind"));
        assert!(refuses(r#"{"column":"items","in":[1,"a"]}"#).contains("column \"items\": a test must compare"));
    }
}
