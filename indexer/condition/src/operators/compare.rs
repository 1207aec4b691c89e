//! `gt`, `gte`, `lt`, `lte`: the subject satisfies a lower bound, an upper bound, or both.
//!
//! A test of a timeline or a row may have both bounds; a test of a value has exactly one.

use std::ops::{Bound, RangeBounds};

use super::equals::intervals;
use super::{Operator, Symbol, typed_literal};
use crate::Result;
use crate::condition::Subject;
use crate::json::{Content, Fault, Form, Member, Members, Shape};
use crate::literal::Literal;
use crate::matcher::{Compiler, Node};
use crate::domain::Domain;
use crate::stable::StableBytes;
use crate::text::{TextPredicate, TextTest, read};

/// Test that the subject is between two bounds; one side may be unbounded. For timelines, the subject is a numeric
/// attribute, or a measurement, source or tag whose text parses as a number. For points and rows, it is a number or a
/// text.
#[derive(Debug, Clone, PartialEq)]
pub struct Compare {
    /// Lower bound.
    pub low: Bound<Literal>,
    /// Upper bound.
    pub high: Bound<Literal>,
}

/// A range of doubles.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NumberRange {
    /// Lower bound.
    pub low: Bound<f64>,
    /// Upper bound.
    pub high: Bound<f64>,
}

impl NumberRange {
    /// Returns true if the number is in the range.
    pub fn contains(&self, number: f64) -> bool {
        (self.low, self.high).contains(&number)
    }
}

impl From<NumberRange> for Compare {
    fn from(NumberRange { low, high }: NumberRange) -> Self {
        Self {
            low: low.map(Literal::Float),
            high: high.map(Literal::Float),
        }
    }
}

/// Creates the member of one bound.
const fn member(name: &'static str, timelines: &'static str, values: &'static str) -> Member {
    Member {
        name,
        timelines: Some(Form {
            shape: Shape::Number,
            doc: timelines,
        }),
        values: Some(Form {
            shape: Shape::Value,
            doc: values,
        }),
        unused: "",
    }
}

const fn symbol(text: &'static str) -> Symbol {
    Symbol {
        text,
        is_not: false,
        timelines: false,
        values: true,
    }
}

impl Operator for Compare {
    const LISTED: &'static [&'static str] = &["bounds of a number"];
    const MEMBERS: &'static [Member] = &[
        member(
            "gt",
            "Test: it is a number above this. For numeric attributes, and for tags that parse as a number.",
            "Test: it is above this.",
        ),
        member(
            "gte",
            "Test: it is this number or above.",
            "Test: it is this or above.",
        ),
        member(
            "lt",
            "Test: it is a number below this. May be combined with `gt` or `gte`.",
            "Test: it is below this.",
        ),
        member(
            "lte",
            "Test: it is this number or below. May be combined with `gt` or `gte`.",
            "Test: it is this or below.",
        ),
    ];
    const SYMBOLS: &'static [Symbol] = &[symbol(">="), symbol("<="), symbol(">"), symbol("<")];
    const CODES: [Option<u8>; 2] = [Some(11), Some(3)];
    const DESCRIBED: &'static str = "a range of numbers";

    fn read(members: &mut Members) -> std::result::Result<Option<Self>, Fault> {
        let bounds = ["gt", "gte", "lt", "lte"].map(|name| members.literal(name));
        let count = bounds.iter().flatten().count();
        if count > 1 && members.domain() == Domain::Values {
            return Err(Fault::Tests);
        }
        let [gt, gte, lt, lte] = bounds;
        let low = end(gt, gte)?;
        let high = end(lt, lte)?;
        Ok((count > 0).then_some(Self { low, high }))
    }

    fn write(&self) -> Vec<(&'static str, Content)> {
        let sides = [(&self.low, "gt", "gte"), (&self.high, "lt", "lte")];
        let members = sides.into_iter().filter_map(|(bound, excluded, included)| match bound {
            Bound::Excluded(literal) => Some((excluded, Content::Literal(literal.clone()))),
            Bound::Included(literal) => Some((included, Content::Literal(literal.clone()))),
            Bound::Unbounded => None,
        });
        members.collect()
    }

    fn compile(&self, subject: &Subject, _compiler: &mut Compiler<'_>) -> Result<Option<Node>> {
        if let Subject::Field(_) | Subject::Column(_) = subject {
            return intervals(subject, &[(self.low.as_ref(), self.high.as_ref())], false).map(Some);
        }
        let (Some(low), Some(high)) = (double(&self.low), double(&self.high)) else {
            return Ok(None);
        };
        let range = NumberRange { low, high };
        Ok(match subject {
            Subject::Attribute(_) => Some(Node::Number(subject.clone(), range)),
            subject if subject.is_text() => {
                Some(Node::Text(subject.clone(), TextTest::predicate(Reads(range))))
            }
            _ => None,
        })
    }

    fn encode(&self, to: &mut StableBytes) {
        to.bound(&self.low);
        to.bound(&self.high);
    }

    fn parse_typed(
        symbol: &str,
        subject: &Subject,
        text: &str,
    ) -> std::result::Result<Option<Self>, String> {
        if !matches!(subject, Subject::Field(_) | Subject::Column(_)) {
            return Ok(None);
        }
        let literal = typed_literal::parse(subject, text);
        let (low, high) = match symbol {
            ">" => (Bound::Excluded(literal), Bound::Unbounded),
            ">=" => (Bound::Included(literal), Bound::Unbounded),
            "<" => (Bound::Unbounded, Bound::Excluded(literal)),
            _ => (Bound::Unbounded, Bound::Included(literal)),
        };
        Ok(Some(Self { low, high }))
    }

    fn typed(&self, subject: &Subject) -> Option<(&'static str, String)> {
        let (symbol, literal) = match (&self.low, &self.high) {
            (Bound::Excluded(literal), Bound::Unbounded) => (">", literal),
            (Bound::Included(literal), Bound::Unbounded) => (">=", literal),
            (Bound::Unbounded, Bound::Excluded(literal)) => ("<", literal),
            (Bound::Unbounded, Bound::Included(literal)) => ("<=", literal),
            _ => return None,
        };
        Some((symbol, typed_literal::write(subject, literal)?))
    }
}

/// Returns the bound of one side; an error if the side has both an exclusive and an inclusive bound.
fn end(excluded: Option<Literal>, included: Option<Literal>) -> std::result::Result<Bound<Literal>, Fault> {
    match (excluded, included) {
        (Some(_), Some(_)) => Err(Fault::Because(
            "a number has at most one bound on each side: gt or gte, lt or lte",
        )),
        (Some(excluded), None) => Ok(Bound::Excluded(excluded)),
        (None, Some(included)) => Ok(Bound::Included(included)),
        (None, None) => Ok(Bound::Unbounded),
    }
}

/// Returns a bound as a double; `None` if it is not a number.
fn double(bound: &Bound<Literal>) -> Option<Bound<f64>> {
    match bound {
        Bound::Included(literal) => literal.as_f64().map(Bound::Included),
        Bound::Excluded(literal) => literal.as_f64().map(Bound::Excluded),
        Bound::Unbounded => Some(Bound::Unbounded),
    }
}

/// Test that a text parses as a finite number in the range.
#[derive(Debug)]
struct Reads(NumberRange);

impl TextPredicate for Reads {
    fn matches(&self, text: &[u8]) -> bool {
        let number = read(text).and_then(|text| text.parse().ok());
        number.is_some_and(|number: f64| number.is_finite() && self.0.contains(number))
    }
}

#[cfg(test)]
mod tests {
    use crate::operators::testing::{holds, refuses};

    #[test]
    fn lies_above_or_below() {
        for json in [
            r#"{"attribute":"cores","gte":8,"lt":64}"#,
            r#"{"tag":"rack","gt":11.5}"#,
            r#"{"field":"usage","gt":90}"#,
            r#"{"field":"count","lte":7}"#,
            r#"{"field":"state","gt":"a"}"#,
            r#"{"column":"items","gte":7,"lt":7.5}"#,
            r#"{"column":"note","gt":"The"}"#,
            r#"{"column":"labels","lt":"c"}"#,
            r#"{"column":"labels","gt":"c"}"#,
        ] {
            assert!(holds(json), "{json}");
        }
        for json in [
            r#"{"attribute":"cores","gt":8}"#,
            r#"{"tag":"host","gt":0}"#,
            r#"{"field":"count","lt":7}"#,
            r#"{"field":"state","gt":0}"#,
            r#"{"field":"missing","lt":1}"#,
            r#"{"column":"items","gt":6,"lt":7}"#,
            r#"{"column":"labels","gt":"backup","lt":"ssd"}"#,
            r#"{"column":"labels","gt":0}"#,
            r#"{"column":"missing","lt":1}"#,
        ] {
            assert!(!holds(json), "{json}");
        }
    }

    #[test]
    fn each_side_has_one_bound() {
        assert!(refuses(r#"{"tag":"a","gt":1,"gte":2}"#).contains("at most one bound on each side"));
        assert!(refuses(r#"{"field":"a","gt":1,"lt":2}"#).contains("exactly one test"));
        assert!(refuses(r#"{"field":"a","lt":true}"#).contains("field \"a\": booleans are equal or not"));
        assert!(refuses(r#"{"column":"a","lt":true}"#).contains("column \"a\": booleans are equal or not"));
        assert!(refuses(r#"{"column":"a","gt":1,"gte":2}"#).contains("at most one bound on each side"));
    }
}
