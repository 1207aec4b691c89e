//! `range`: the subject is a time in a time range.
//!
//! Bounds may be relative to now; they must be resolved before compilation.

use std::ops::Bound;

use tideline_model::{TimeExpression, TimeRange, Timestamp};

use super::equals::intervals;
use super::{Operator, Symbol};
use crate::Result;
use crate::condition::Subject;
use crate::json::{Content, Fault, Form, Member, Members, Shape};
use crate::literal::{Literal, TimeSpan};
use crate::matcher::{Compiler, Node};
use crate::stable::StableBytes;

/// Test that `first_seen`, `last_seen`, a time attribute or a timestamp in a column is in the time range. A timeline
/// without points never passes a test of `first_seen` or `last_seen`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Within(pub TimeSpan);

impl From<TimeRange> for Within {
    fn from(range: TimeRange) -> Self {
        Self(range.into())
    }
}

const fn symbol(text: &'static str) -> Symbol {
    Symbol {
        text,
        is_not: false,
        timelines: true,
        values: false,
    }
}

impl Operator for Within {
    const LISTED: &'static [&'static str] = &["range"];
    const MEMBERS: &'static [Member] = &[Member {
        name: "range",
        timelines: Some(Form {
            shape: Shape::Span,
            doc: "Test: `first_seen`, `last_seen`, an attribute of type time or a timestamp in a column is in this time range.",
        }),
        values: None,
        unused: "",
    }];
    const SYMBOLS: &'static [Symbol] = &[symbol(">="), symbol("<")];
    const CODES: [Option<u8>; 2] = [Some(7), None];
    const DESCRIBED: &'static str = "a time range";

    fn read(members: &mut Members) -> std::result::Result<Option<Self>, Fault> {
        Ok(members.span("range").map(Self))
    }

    fn write(&self) -> Vec<(&'static str, Content)> {
        vec![("range", Content::Span(self.0))]
    }

    fn compile(&self, subject: &Subject, _compiler: &mut Compiler<'_>) -> Result<Option<Node>> {
        Ok(match subject {
            Subject::FirstSeen | Subject::LastSeen | Subject::Attribute(_) => {
                Some(Node::Time(subject.clone(), self.0.range()?))
            }
            Subject::Column(_) => {
                let TimeRange { start, end } = self.0.range()?;
                let (start, end) = (Literal::of_nanos(start), Literal::of_nanos(end));
                let ends = (Bound::Included(&start), Bound::Excluded(&end));
                Some(intervals(subject, &[ends], false)?)
            }
            _ => None,
        })
    }

    fn encode(&self, to: &mut StableBytes) {
        let range = self.0.range().unwrap_or(TimeRange::ALL);
        to.number(range.start as u64);
        to.number(range.end as u64);
    }

    fn resolve(&mut self, now: Timestamp) {
        self.0.resolve(now);
    }

    fn parse_typed(
        symbol: &str,
        subject: &Subject,
        text: &str,
    ) -> std::result::Result<Option<Self>, String> {
        if !matches!(subject, Subject::FirstSeen | Subject::LastSeen) {
            return Ok(None);
        }
        let time = TimeExpression::parse(text).map_err(|error| error.to_string())?;
        let (start, end) = match symbol {
            ">=" => (Some(time), None),
            _ => (None, Some(time)),
        };
        Ok(Some(Self(TimeSpan { start, end })))
    }

    fn typed(&self, _subject: &Subject) -> Option<(&'static str, String)> {
        match (self.0.start, self.0.end) {
            (Some(start), None) => Some((">=", start.to_string())),
            (None, Some(end)) => Some(("<", end.to_string())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::operators::testing::{holds, refuses};

    #[test]
    fn lies_in_a_span() {
        assert!(holds(r#"{"attribute":"bought","range":{"start":"5s","end":"6s"}}"#));
        assert!(!holds(r#"{"attribute":"bought","range":{"end":"5s"}}"#));
        assert!(holds(r#"{"property":"last_seen","range":{"start":"10s"}}"#));
        assert!(!holds(r#"{"property":"first_seen","range":{"start":"10s"}}"#));
        assert!(!holds(r#"{"attribute":"cores","range":{}}"#));
        assert!(holds(r#"{"column":"placed","range":{"start":"5s","end":"6s"}}"#));
        assert!(holds(r#"{"column":"placed","range":{}}"#));
        assert!(holds(r#"{"column":"seen","range":{"start":"5s","end":"6s"}}"#));
        assert!(!holds(r#"{"column":"seen","range":{"end":"5s"}}"#));
        assert!(!holds(r#"{"column":"placed","range":{"end":"5s"}}"#));
        assert!(!holds(r#"{"column":"placed","range":{"start":"6s","end":"5s"}}"#));
        assert!(!holds(r#"{"column":"note","range":{}}"#));
        assert!(!holds(r#"{"column":"missing","range":{}}"#));
        assert!(refuses(r#"{"column":"placed","range":{"end":"now"}}"#).contains("relative to now"));
        assert!(refuses(r#"{"tag":"host","range":{}}"#).contains("a time range cannot be applied"));
        assert!(refuses(r#"{"property":"last_seen","range":{"start":"now"}}"#).contains("relative to now"));
    }
}
