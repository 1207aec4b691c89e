//! `between`: the value of a field or column is in an inclusive range.

use std::ops::Bound;

use super::Operator;
use super::equals::intervals;
use crate::Result;
use crate::condition::Subject;
use crate::json::{Content, Fault, Form, Member, Members, Shape};
use crate::literal::Literal;
use crate::matcher::{Compiler, Node};
use crate::stable::StableBytes;

/// Test that the value of a field or column is between these two values, both inclusive. The lower value is first.
#[derive(Debug, Clone, PartialEq)]
pub struct Between(pub Box<[Literal; 2]>);

impl Operator for Between {
    const LISTED: &'static [&'static str] = &["between"];
    const MEMBERS: &'static [Member] = &[Member {
        name: "between",
        timelines: None,
        values: Some(Form {
            shape: Shape::Pair,
            doc: "Test: it is between these two values, lower first, both included.",
        }),
        unused: "",
    }];
    // Encoded as two inclusive bounds, like the equivalent `Compare`.
    const CODES: [Option<u8>; 2] = [None, Some(3)];
    const DESCRIBED: &'static str = "a range of values";

    fn read(members: &mut Members) -> std::result::Result<Option<Self>, Fault> {
        Ok(members.pair("between").map(Box::new).map(Self))
    }

    fn write(&self) -> Vec<(&'static str, Content)> {
        vec![("between", Content::Pair(self.0.clone()))]
    }

    fn compile(&self, subject: &Subject, _compiler: &mut Compiler<'_>) -> Result<Option<Node>> {
        let [from, to] = &*self.0;
        match subject {
            Subject::Field(_) | Subject::Column(_) => {
                let ends = (Bound::Included(from), Bound::Included(to));
                intervals(subject, &[ends], false).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn encode(&self, to: &mut StableBytes) {
        for end in &*self.0 {
            to.bound(&Bound::Included(end.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::operators::testing::{holds, refuses};

    #[test]
    fn lies_between_two() {
        assert!(holds(r#"{"field":"usage","between":[90,90.5]}"#));
        assert!(holds(r#"{"field":"state","between":["a","c"]}"#));
        assert!(!holds(r#"{"field":"count","between":[8,6]}"#));
        assert!(!holds(r#"{"field":"missing","between":[0,9]}"#));
        assert!(holds(r#"{"column":"items","between":[7,7.5]}"#));
        assert!(holds(r#"{"column":"labels","between":["s","t"]}"#));
        assert!(!holds(r#"{"column":"labels","between":["c","d"]}"#));
        assert!(!holds(r#"{"column":"missing","between":[0,9]}"#));
        assert!(refuses(r#"{"field":"count","between":[1]}"#).contains("invalid length"));
        assert!(refuses(r#"{"tag":"count","between":[1,2]}"#).contains("unknown field `between`"));
    }
}
