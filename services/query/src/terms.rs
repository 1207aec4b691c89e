//! The terms of a query as bytes that every build writes alike: what page tokens are bound to.
//!
//! Every number has a fixed width, every text and list is preceded by its length, every choice by a number that
//! stays its own. So two sets of terms are equal exactly if their bytes are.

use std::ops::Bound;

use tideline_engine::Table;
use tideline_model::{Tier, TimeRange, TimelineId, Value};
use tideline_search_index::{Area, Condition, Subject, Test};
use tideline_timeline_catalog::{AttributeValue, GeoPoint};
use xxhash_rust::xxh3::xxh3_64;

use crate::compute::Computation;
use crate::filter::{ValueCondition, ValueTest};
use crate::question::{Direction, Selector};

/// Terms while they are written down.
#[derive(Debug, Default)]
pub(crate) struct Terms(Vec<u8>);

/// A kind of query with pages.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TermsOf {
    Rows,
    Latest,
}

impl Terms {
    /// The terms that all kinds share.
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

    /// Their hash.
    pub(crate) fn hash(&self) -> u64 {
        xxh3_64(&self.0)
    }

    /// A choice by its number.
    fn choice(mut self, number: u8) -> Self {
        self.0.push(number);
        self
    }

    /// A whole number.
    fn number(mut self, number: u64) -> Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// A text.
    fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    /// Any bytes.
    fn bytes(self, bytes: &[u8]) -> Self {
        let mut terms = self.number(bytes.len() as u64);
        terms.0.extend_from_slice(bytes);
        terms
    }

    /// Several of a kind.
    fn list<T>(self, list: &[T], put: impl FnMut(Self, &T) -> Self) -> Self {
        list.iter().fold(self.number(list.len() as u64), put)
    }

    /// A range of time.
    pub(crate) fn range(self, range: TimeRange) -> Self {
        self.number(range.start as u64).number(range.end as u64)
    }

    /// An order of time.
    pub(crate) fn direction(self, direction: Direction) -> Self {
        self.choice(match direction {
            Direction::Ascending => 0,
            Direction::Descending => 1,
        })
    }

    /// A condition on values; terms without one are as they were before there were such conditions.
    pub(crate) fn values(self, condition: Option<&ValueCondition>) -> Self {
        match condition {
            Some(condition) => self.choice(0).value_condition(condition),
            None => self,
        }
    }

    /// Computations; terms without any are as they were before there were such.
    pub(crate) fn computations(self, computations: &[Computation]) -> Self {
        if computations.is_empty() {
            return self;
        }
        self.choice(1).list(computations, |terms, one| {
            terms.text(&one.name).text(&one.expression)
        })
    }

    fn value_condition(self, condition: &ValueCondition) -> Self {
        match condition {
            ValueCondition::And(all) => self.choice(0).list(all, Self::value_condition),
            ValueCondition::Or(any) => self.choice(1).list(any, Self::value_condition),
            ValueCondition::Not(not) => self.choice(2).value_condition(not),
            ValueCondition::Field { field, test } => self.choice(3).text(field).value_test(test),
        }
    }

    fn value_test(self, test: &ValueTest) -> Self {
        match test {
            ValueTest::Equals(value) => self.choice(0).stored(value),
            ValueTest::NotEquals(value) => self.choice(1).stored(value),
            ValueTest::In(values) => self.choice(2).list(values, Self::stored),
            ValueTest::Between(from, to) => self.choice(3).bound(from).bound(to),
            ValueTest::Exists => self.choice(4),
        }
    }

    fn bound(self, bound: &Bound<Value>) -> Self {
        match bound {
            Bound::Included(value) => self.choice(0).stored(value),
            Bound::Excluded(value) => self.choice(1).stored(value),
            Bound::Unbounded => self.choice(2),
        }
    }

    fn stored(self, value: &Value) -> Self {
        let terms = self.choice(value.value_type().code());
        match value {
            Value::Float(value) => terms.number(value.to_bits()),
            Value::Signed(value) => terms.number(*value as u64),
            Value::Unsigned(value) => terms.number(*value),
            Value::Boolean(value) => terms.choice(u8::from(*value)),
            Value::String(value) => terms.text(value),
            Value::Histogram(value) => terms.bytes(value),
        }
    }

    /// Timelines.
    fn selector(self, selector: &Selector) -> Self {
        match selector {
            Selector::Condition(condition) => self.choice(0).condition(condition),
            Selector::Ids(ids) => self.choice(1).list(ids, |mut terms, TimelineId(id)| {
                terms.0.extend_from_slice(id);
                terms
            }),
        }
    }

    fn condition(self, condition: &Condition) -> Self {
        match condition {
            Condition::All => self.choice(0),
            Condition::And(all) => self.choice(1).list(all, Self::condition),
            Condition::Or(any) => self.choice(2).list(any, Self::condition),
            Condition::Not(not) => self.choice(3).condition(not),
            Condition::Leaf { subject, test } => self.choice(4).subject(subject).test(test),
        }
    }

    fn subject(self, subject: &Subject) -> Self {
        match subject {
            Subject::Measurement => self.choice(0),
            Subject::Source => self.choice(1),
            Subject::Tag(key) => self.choice(2).text(key),
            Subject::Attribute(key) => self.choice(3).text(key),
            Subject::Id => self.choice(4),
            Subject::FirstSeen => self.choice(5),
            Subject::LastSeen => self.choice(6),
            Subject::Any => self.choice(7),
        }
    }

    fn test(self, test: &Test) -> Self {
        match test {
            Test::Equals(value) => self.choice(0).value(value),
            Test::NotEquals(value) => self.choice(1).value(value),
            Test::In(values) => self.choice(2).list(values, Self::value),
            Test::Prefix(text) => self.choice(3).text(text),
            Test::Wildcard(pattern) => self.choice(4).text(pattern),
            Test::Regex(pattern) => self.choice(5).text(pattern),
            Test::Exists => self.choice(6),
            Test::TimeRange(range) => self.choice(7).range(*range),
            Test::Suffix(text) => self.choice(8).text(text),
            Test::Fuzzy { text, distance } => self.choice(9).choice(*distance).text(text),
            Test::Words {
                text,
                distance,
                is_phrase,
            } => {
                let terms = self.choice(10).choice(*distance).choice(u8::from(*is_phrase));
                terms.text(text)
            }
            Test::Number(range) => self.choice(11).number_bound(range.low).number_bound(range.high),
            Test::Within(area) => self.choice(12).area(area),
        }
    }

    fn area(self, area: &Area) -> Self {
        match area {
            Area::Circle { center, meters } => self.choice(0).point(*center).number(meters.to_bits()),
            Area::Box {
                south,
                west,
                north,
                east,
            } => [south, west, north, east]
                .into_iter()
                .fold(self.choice(1), |terms, side| terms.number(side.to_bits())),
            Area::Polygon(corners) => self.choice(2).list(corners, |terms, corner| terms.point(*corner)),
        }
    }

    fn point(self, point: GeoPoint) -> Self {
        self.number(point.latitude().to_bits())
            .number(point.longitude().to_bits())
    }

    /// One end of a range of numbers.
    fn number_bound(self, bound: Bound<f64>) -> Self {
        match bound {
            Bound::Unbounded => self.choice(0),
            Bound::Included(number) => self.choice(1).number(number.to_bits()),
            Bound::Excluded(number) => self.choice(2).number(number.to_bits()),
        }
    }

    fn value(self, value: &AttributeValue) -> Self {
        match value {
            AttributeValue::Text(text) => self.choice(0).text(text),
            AttributeValue::Number(number) => self.choice(1).number(number.to_bits()),
            AttributeValue::Boolean(boolean) => self.choice(2).choice(u8::from(*boolean)),
            AttributeValue::Time(time) => self.choice(3).number(time.nanos() as u64),
            AttributeValue::Point(point) => self.choice(4).point(*point),
            AttributeValue::Texts(texts) => self.choice(5).list(texts, |terms, text| terms.text(text)),
            AttributeValue::Numbers(numbers) => self
                .choice(6)
                .list(numbers, |terms, number| terms.number(number.to_bits())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tokens outlive the build that wrote them: this hash must never change.
    #[test]
    fn terms_hash_alike_for_ever() {
        let condition = Condition::And(vec![
            Condition::tag("host", "a"),
            Condition::Not(Box::new(Condition::leaf(
                Subject::Attribute("floor".into()),
                Test::In(vec![
                    AttributeValue::Number(2.5),
                    AttributeValue::Boolean(true),
                    AttributeValue::Text("é".into()),
                ]),
            ))),
            Condition::Or(vec![
                Condition::All,
                Condition::leaf(Subject::LastSeen, Test::TimeRange(TimeRange::new(-1, 9))),
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
