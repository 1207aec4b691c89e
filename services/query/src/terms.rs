//! Canonical encoding of the terms of a query: the parts that must not change from page to page. A page token contains
//! their hash.
//!
//! Every number has a fixed width, every text and list has a length prefix, and every alternative has a permanent
//! number. Two sets of terms are therefore equal if and only if their bytes are equal, in all builds.

use tideline_engine::Table;
use tideline_engine::condition::stable::stable_bytes;
use tideline_engine::condition::{Condition, Domain};
use tideline_engine::model::{Tier, TimeRange, TimelineId};
use xxhash_rust::xxh3::xxh3_64;

use crate::compute::Computation;
use crate::point_query::{Direction, Selector};

/// Encoder of terms.
#[derive(Debug, Default)]
pub(crate) struct Terms(Vec<u8>);

/// Kind of query with pages.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TermsOf {
    Rows,
    Latest,
}

impl Terms {
    /// Encodes the terms that all kinds share.
    pub(crate) fn new(
        kind: TermsOf,
        table: &Table,
        timelines: &Selector,
        fields: &[String],
        tier: Option<Tier>,
    ) -> Self {
        Self::default()
            .choice(match kind {
                TermsOf::Rows => 0,
                TermsOf::Latest => 1,
            })
            .number(table.points().id().0.into())
            .selector(timelines)
            .list(fields, |terms, field| terms.text(field))
            .choice(match tier {
                None => 0,
                Some(Tier::Hot) => 1,
                Some(Tier::Cold) => 2,
                Some(Tier::Archive) => 3,
            })
    }

    /// Returns the hash of the terms.
    pub(crate) fn hash(&self) -> u64 {
        xxh3_64(&self.0)
    }

    /// Appends the number of an alternative.
    fn choice(mut self, number: u8) -> Self {
        self.0.push(number);
        self
    }

    /// Appends an integer.
    fn number(mut self, number: u64) -> Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// Appends a text with its length.
    fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    /// Appends bytes with their length.
    fn bytes(self, bytes: &[u8]) -> Self {
        let mut terms = self.number(bytes.len() as u64);
        terms.0.extend_from_slice(bytes);
        terms
    }

    /// Appends a list with its length.
    fn list<T>(self, list: &[T], put: impl FnMut(Self, &T) -> Self) -> Self {
        list.iter().fold(self.number(list.len() as u64), put)
    }

    /// Appends a time range.
    pub(crate) fn range(self, range: TimeRange) -> Self {
        self.number(range.start as u64).number(range.end as u64)
    }

    /// Appends a time order.
    pub(crate) fn direction(self, direction: Direction) -> Self {
        self.choice(match direction {
            Direction::Ascending => 0,
            Direction::Descending => 1,
        })
    }

    /// Appends a condition on values. `None` appends nothing, so that tokens of queries without a condition do not
    /// change.
    pub(crate) fn values(self, condition: Option<&Condition>) -> Self {
        match condition {
            Some(condition) => self.choice(0).condition(condition, Domain::Values),
            None => self,
        }
    }

    /// Appends computations. An empty list appends nothing, so that tokens of queries without computations do
    /// not change.
    pub(crate) fn computations(self, computations: &[Computation]) -> Self {
        if computations.is_empty() {
            return self;
        }
        self.choice(1).list(computations, |terms, one| {
            terms.text(&one.name).text(&one.expression)
        })
    }

    /// Appends a selection of timelines.
    fn selector(self, selector: &Selector) -> Self {
        match selector {
            Selector::Condition(condition) => self.choice(0).condition(condition, Domain::Timelines),
            Selector::Ids(ids) => self.choice(1).list(ids, |mut terms, TimelineId(id)| {
                terms.0.extend_from_slice(id);
                terms
            }),
        }
    }

    fn condition(mut self, condition: &Condition, domain: Domain) -> Self {
        self.0.extend(stable_bytes(condition, domain));
        self
    }
}

#[cfg(test)]
mod tests {
    use tideline_engine::condition::operators::{In, Within};
    use tideline_engine::condition::{Literal, Subject};

    use super::*;

    /// Tokens outlive the build that issued them, so this hash must never change.
    #[test]
    fn terms_hash_alike_for_ever() {
        let condition = Condition::And(vec![
            Condition::tag("host", "a"),
            Condition::Not(Box::new(Condition::leaf(
                Subject::Attribute("floor".into()),
                In(vec![
                    Literal::Float(2.5),
                    Literal::Boolean(true),
                    Literal::Text("é".into()),
                ]),
            ))),
            Condition::Or(vec![
                Condition::All,
                Condition::leaf(Subject::LastSeen, Within::from(TimeRange::new(-1, 9))),
            ]),
        ]);
        let terms = Terms::default()
            .number(7)
            .selector(&Selector::Condition(condition))
            .list(&["v".to_owned()], |terms, name| terms.text(name))
            .direction(Direction::Descending);
        assert_eq!(terms.hash(), 16_738_602_296_173_788_474);
    }
}
