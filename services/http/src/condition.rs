//! From a condition as people write it to one that the index answers.

use std::ops::Bound;

use tideline_engine::TimelineSelector;
use tideline_model::{TimeRange, TimelineId, Timestamp};
use tideline_openapi::condition::{Condition, Property, Scalar, Subject, Test, TimeSpan};
use tideline_openapi::query as wire;
use tideline_openapi::timeline::{SortKey, SortOrder};
use tideline_search_index as index;
use tideline_search_index::{Order, Sort};
use tideline_timeline_catalog::AttributeValue;

use crate::failure::{Failure, Result};

/// The condition for the index; relative times count from `now`. Limits and fitness are the index's to check.
pub(crate) fn to_index(condition: Condition, now: Timestamp) -> index::Condition {
    let all = |conditions: Vec<Condition>| conditions.into_iter().map(|inner| to_index(inner, now)).collect();
    match condition {
        Condition::And(conditions) => index::Condition::And(all(conditions)),
        Condition::Or(conditions) => index::Condition::Or(all(conditions)),
        Condition::Not(inner) => index::Condition::Not(Box::new(to_index(*inner, now))),
        Condition::Test(subject, test) => {
            let is_absent = test == Test::Exists(false);
            let leaf = index::Condition::leaf(to_subject(subject), to_test(test, now));
            if is_absent {
                index::Condition::Not(Box::new(leaf))
            } else {
                leaf
            }
        }
    }
}

/// A sort key for the index.
pub(crate) fn to_sort(key: SortKey) -> Result<Sort> {
    let subject = one_subject(key.tag, key.attribute, key.property)
        .ok_or_else(|| Failure::invalid("a sort key is exactly one of tag, attribute and property"))?;
    Ok(Sort {
        subject,
        order: match key.order {
            SortOrder::Ascending => Order::Ascending,
            SortOrder::Descending => Order::Descending,
        },
    })
}

/// The one subject that is named; `None` where none or several are.
pub(crate) fn one_subject(
    tag: Option<String>,
    attribute: Option<String>,
    property: Option<Property>,
) -> Option<index::Subject> {
    Some(to_subject(match (tag, attribute, property) {
        (Some(tag), None, None) => Subject::Tag(tag),
        (None, Some(attribute), None) => Subject::Attribute(attribute),
        (None, None, Some(property)) => Subject::Property(property),
        _ => return None,
    }))
}

/// A half-open range; what is left away is open.
pub(crate) fn to_range(span: TimeSpan, now: Timestamp) -> TimeRange {
    TimeRange {
        start: span.start.map_or(i64::MIN, |start| start.resolve(now).nanos()),
        end: span.end.map_or(i64::MAX, |end| end.resolve(now).nanos()),
    }
}

/// Named timelines; relative times of a condition count from `now`.
pub(crate) fn to_selector(selector: wire::TimelineSelector, now: Timestamp) -> Result<TimelineSelector> {
    match (selector.condition, selector.ids) {
        (Some(condition), None) => Ok(TimelineSelector::Condition(to_index(condition, now))),
        (None, Some(ids)) => {
            let ids = ids.iter().map(|id| id.parse::<TimelineId>());
            let ids = ids.collect::<std::result::Result<_, _>>();
            Ok(TimelineSelector::Ids(ids.map_err(Failure::invalid)?))
        }
        _ => Err(Failure::invalid(
            "timelines are named by exactly one of where and ids",
        )),
    }
}

/// The value of an attribute.
pub(crate) fn to_attribute(value: Scalar) -> AttributeValue {
    match value {
        Scalar::Text(text) => AttributeValue::Text(text),
        Scalar::Number(number) => AttributeValue::Number(number),
        Scalar::Boolean(boolean) => AttributeValue::Boolean(boolean),
    }
}

/// The value of an attribute, as answers show it.
pub(crate) fn from_attribute(value: AttributeValue) -> Scalar {
    match value {
        AttributeValue::Text(text) => Scalar::Text(text),
        AttributeValue::Number(number) => Scalar::Number(number),
        AttributeValue::Boolean(boolean) => Scalar::Boolean(boolean),
    }
}

fn to_subject(subject: Subject) -> index::Subject {
    match subject {
        Subject::Tag(key) => index::Subject::Tag(key),
        Subject::Attribute(key) => index::Subject::Attribute(key),
        Subject::Property(property) => match property {
            Property::Measurement => index::Subject::Measurement,
            Property::Source => index::Subject::Source,
            Property::Id => index::Subject::Id,
            Property::FirstSeen => index::Subject::FirstSeen,
            Property::LastSeen => index::Subject::LastSeen,
        },
    }
}

fn to_test(test: Test, now: Timestamp) -> index::Test {
    match test {
        Test::Equals(value) => index::Test::Equals(to_attribute(value)),
        Test::NotEquals(value) => index::Test::NotEquals(to_attribute(value)),
        Test::In(values) => index::Test::In(values.into_iter().map(to_attribute).collect()),
        Test::Prefix(text) => index::Test::Prefix(text),
        Test::Suffix(text) => index::Test::Suffix(text),
        Test::Wildcard(text) => index::Test::Wildcard(text),
        Test::Regex(text) => index::Test::Regex(text),
        Test::Fuzzy { text, distance } => index::Test::Fuzzy { text, distance },
        Test::Text { text, distance } => index::Test::Words {
            text,
            distance,
            is_phrase: false,
        },
        Test::Phrase { text, distance } => index::Test::Words {
            text,
            distance,
            is_phrase: true,
        },
        Test::Number(bounds) => index::Test::Number(index::NumberRange {
            low: bound(bounds.gt, bounds.gte),
            high: bound(bounds.lt, bounds.lte),
        }),
        Test::Exists(_) => index::Test::Exists,
        Test::Range(span) => index::Test::TimeRange(to_range(span, now)),
    }
}

/// One end of a range of numbers.
fn bound(excluded: Option<f64>, included: Option<f64>) -> Bound<f64> {
    match (excluded, included) {
        (Some(excluded), _) => Bound::Excluded(excluded),
        (None, Some(included)) => Bound::Included(included),
        (None, None) => Bound::Unbounded,
    }
}
