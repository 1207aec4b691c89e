//! `equals`: the subject is a given value, or a list that contains it.
//!
//! Also compiles the equality tests of `not_equals` and `in`.

use std::ops::Bound;

use super::{Operator, Symbol, typed_literal};
use crate::condition::Subject;
use crate::intervals::Intervals;
use crate::json::{Content, Fault, Form, Member, Members, Shape};
use crate::literal::Literal;
use crate::matcher::{Compiler, Node};
use crate::stable::StableBytes;
use crate::text::TextTest;
use crate::{ConditionError, Result};

/// Test that the subject is this value, or a list that contains it. Only attributes, fields and columns can have
/// values other than text. Numbers are compared by value, regardless of their type; a number never equals a text. Lists
/// are not compared as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Equals(pub Literal);

impl Operator for Equals {
    const LISTED: &'static [&'static str] = &["equals"];
    const MEMBERS: &'static [Member] = &[Member {
        name: "equals",
        timelines: Some(Form {
            shape: Shape::Attribute,
            doc: "Test: it is this value, or a list that contains it. Non-text values need an attribute.",
        }),
        values: Some(Form {
            shape: Shape::Value,
            doc: "Test: it is this value.",
        }),
        unused: "",
    }];
    const SYMBOLS: &'static [Symbol] = &[Symbol {
        text: "=",
        is_not: false,
        timelines: true,
        values: true,
    }];
    const CODES: [Option<u8>; 2] = [Some(0), Some(0)];
    const DESCRIBED: &'static str = EQUALITY;

    fn read(members: &mut Members) -> std::result::Result<Option<Self>, Fault> {
        Ok(members.literal("equals").map(Self))
    }

    fn write(&self) -> Vec<(&'static str, Content)> {
        vec![("equals", Content::Literal(self.0.clone()))]
    }

    fn compile(&self, subject: &Subject, _compiler: &mut Compiler<'_>) -> Result<Option<Node>> {
        equality(subject, std::slice::from_ref(&self.0), false)
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
        Some(("=", typed_literal::write(subject, &self.0)?))
    }
}

/// Name of equality in messages.
pub(super) const EQUALITY: &str = "equality with this kind of value";

/// Compiles equality with any of `literals`. If `is_outside`, the test of a field is negated: the field must have a
/// value that equals no literal.
pub(super) fn equality(subject: &Subject, literals: &[Literal], is_outside: bool) -> Result<Option<Node>> {
    match subject {
        Subject::Id => ids(literals),
        Subject::Field(_) | Subject::Column(_) => {
            let each = literals
                .iter()
                .map(|literal| (Bound::Included(literal), Bound::Included(literal)));
            intervals(subject, &each.collect::<Vec<_>>(), is_outside).map(Some)
        }
        subject if !subject.is_text() => Ok(None),
        subject => one_of(subject, literals),
    }
}

/// Compiles a test of the values of a field or column.
pub(super) fn intervals(
    subject: &Subject,
    ends: &[(Bound<&Literal>, Bound<&Literal>)],
    is_outside: bool,
) -> Result<Node> {
    let intervals = Intervals::new(ends).map_err(|reason| ConditionError::Values {
        subject: subject.describe(),
        reason,
    })?;
    Ok(Node::Intervals {
        subject: subject.clone(),
        intervals,
        is_outside,
    })
}

/// Compiles equality of a timeline property. Texts are separated from other values, which only attributes have.
fn one_of(subject: &Subject, literals: &[Literal]) -> Result<Option<Node>> {
    let (mut texts, mut others) = (Vec::new(), Vec::new());
    for literal in literals {
        match literal {
            Literal::Text(text) => texts.push(text.clone()),
            Literal::Texts(_) | Literal::Numbers(_) => return Err(ConditionError::List),
            Literal::Point(lat_lon) => {
                lat_lon.checked()?;
                others.push(literal.clone());
            }
            Literal::Time { .. } if literal.as_time().is_none() => return Err(ConditionError::RelativeTime),
            other => others.push(other.clone()),
        }
    }
    let texts = Node::Text(subject.clone(), TextTest::one_of(texts));
    Ok(match subject {
        _ if others.is_empty() => Some(texts),
        Subject::Attribute(_) => Some(Node::Or(vec![texts, Node::OneOf(subject.clone(), others)])),
        _ => None,
    })
}

fn ids(literals: &[Literal]) -> Result<Option<Node>> {
    let mut ids = Vec::new();
    for literal in literals {
        let Literal::Text(text) = literal else {
            return Ok(None);
        };
        ids.push(text.parse().map_err(|_| {
            let shown = text.chars().take(80).collect();
            ConditionError::InvalidId(shown)
        })?);
    }
    ids.sort_unstable();
    Ok(Some(Node::Ids(ids)))
}

#[cfg(test)]
mod tests {
    use crate::operators::testing::{holds, refuses};

    #[test]
    fn equals_one_value_or_one_of_a_list() {
        for json in [
            r#"{"tag":"host","equals":"web-1"}"#,
            r#"{"tag":"missing","equals":""}"#,
            r#"{"attribute":"cores","equals":8}"#,
            r#"{"attribute":"labels","equals":"ssd"}"#,
            r#"{"attribute":"retired","equals":false}"#,
            r#"{"attribute":"bought","equals":{"time":"1970-01-01T00:00:05Z"}}"#,
            r#"{"attribute":"site","equals":{"lat":52.5,"lon":13.4}}"#,
            r#"{"property":"measurement","equals":"cpu"}"#,
            r#"{"property":"id","equals":"30313233343536373839616263646566"}"#,
            r#"{"field":"usage","equals":90.5}"#,
            r#"{"field":"count","equals":7}"#,
            r#"{"column":"note","equals":"The backup store"}"#,
            r#"{"column":"labels","equals":"ssd"}"#,
            r#"{"column":"items","equals":7.0}"#,
        ] {
            assert!(holds(json), "{json}");
        }
        for json in [
            r#"{"tag":"host","equals":"web"}"#,
            r#"{"tag":"host","equals":""}"#,
            r#"{"attribute":"cores","equals":"8"}"#,
            r#"{"field":"missing","equals":""}"#,
            r#"{"field":"count","equals":"7"}"#,
            r#"{"column":"missing","equals":""}"#,
            r#"{"column":"items","equals":"7"}"#,
            r#"{"column":"site","equals":7}"#,
        ] {
            assert!(!holds(json), "{json}");
        }
    }

    #[test]
    fn refuses_values_that_a_subject_cannot_have() {
        assert!(refuses(r#"{"tag":"host","equals":8}"#).contains("equality with this kind of value"));
        assert!(refuses(r#"{"attribute":"labels","equals":["a"]}"#).contains("not compared as a whole"));
        assert!(refuses(r#"{"property":"id","equals":"x"}"#).contains("32 hexadecimal digits"));
        assert!(refuses(r#"{"property":"any","equals":"x"}"#).contains("all properties together"));
        assert!(refuses(r#"{"attribute":"site","equals":{"lat":91,"lon":0}}"#).contains("within ±90"));
    }
}
