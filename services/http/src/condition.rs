//! From a condition as people write it to one that the index answers.

use std::ops::Bound;

use tideline_engine::{Engine, EngineError, TimelineSelector};
use tideline_model::{TimeRange, TimelineId, Timestamp};
use tideline_openapi::condition::{Condition, Property, Subject, Test, TimeSpan};
use tideline_openapi::geo::{Circle, GeoBox, Place};
use tideline_openapi::timeline::{SortKey, SortOrder};
use tideline_openapi::{self as wire, TimeInput};
use tideline_search_index as index;
use tideline_search_index::{Area, Order, Sort, SortBy};
use tideline_timeline_catalog::{AttributeValue, GeoPoint};

use crate::failure::{Failure, Result};

/// The condition for the index; relative times count from `now`. Limits and fitness are the index's to check.
pub(crate) fn to_index(condition: Condition, now: Timestamp) -> Result<index::Condition> {
    let all = |conditions: Vec<Condition>| -> Result<Vec<index::Condition>> {
        conditions.into_iter().map(|inner| to_index(inner, now)).collect()
    };
    Ok(match condition {
        Condition::And(conditions) => index::Condition::And(all(conditions)?),
        Condition::Or(conditions) => index::Condition::Or(all(conditions)?),
        Condition::Not(inner) => index::Condition::Not(Box::new(to_index(*inner, now)?)),
        // Whoever may use saved searches has spelled them out.
        Condition::Saved(name) => {
            return Err(Failure::invalid(format!(
                "saved search {name:?} cannot be used here"
            )));
        }
        Condition::Test(subject, test) => {
            let is_absent = test == Test::Exists(false);
            let leaf = index::Condition::leaf(to_subject(subject), to_test(test, now)?);
            if is_absent {
                index::Condition::Not(Box::new(leaf))
            } else {
                leaf
            }
        }
    })
}

/// A sort key for the index.
pub(crate) fn to_sort(key: SortKey) -> Result<Sort> {
    let one_of = || Failure::invalid("a sort key is exactly one of tag, attribute, property and relevance");
    let names_subject = key.tag.is_some() || key.attribute.is_some() || key.property.is_some();
    let by = if key.relevance {
        if names_subject || key.near.is_some() {
            return Err(one_of());
        }
        SortBy::Relevance
    } else {
        let subject = one_subject(key.tag, key.attribute, key.property).ok_or_else(one_of)?;
        match (subject, key.near) {
            (index::Subject::Any, _) => {
                return Err(Failure::invalid("all properties together have no order"));
            }
            (subject, None) => SortBy::Subject(subject),
            (index::Subject::Attribute(key), Some(place)) => SortBy::Distance {
                key,
                from: to_point(place)?,
            },
            (_, Some(_)) => return Err(Failure::invalid("near belongs beside attribute: a geo point")),
        }
    };
    let order = match (key.order, &by) {
        (Some(SortOrder::Ascending), _) => Order::Ascending,
        (Some(SortOrder::Descending), _) | (None, SortBy::Relevance) => Order::Descending,
        (None, _) => Order::Ascending,
    };
    Ok(Sort { by, order })
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
pub(crate) fn to_selector(
    selector: wire::query::TimelineSelector,
    now: Timestamp,
) -> Result<TimelineSelector> {
    match (selector.condition, selector.ids) {
        (Some(condition), None) => Ok(TimelineSelector::Condition(to_index(condition, now)?)),
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

/// Resolves the times of a request that deletes. Where they are relative to a now that is in doubt, nothing is deleted.
pub(crate) fn resolve_surely<T: PartialEq>(
    engine: &Engine,
    resolve: impl Fn(Timestamp) -> Result<T>,
) -> Result<T> {
    let resolved = resolve(engine.now())?;
    if engine.arrival_time().is_none() && resolve(Timestamp::EPOCH)? != resolved {
        return Err(EngineError::ClockInDoubt.into());
    }
    Ok(resolved)
}

/// The value of an attribute; relative times count from `now`.
pub(crate) fn to_attribute(value: wire::AttributeValue, now: Timestamp) -> Result<AttributeValue> {
    Ok(match value {
        wire::AttributeValue::Text(text) => AttributeValue::Text(text),
        wire::AttributeValue::Number(number) => AttributeValue::Number(number),
        wire::AttributeValue::Boolean(boolean) => AttributeValue::Boolean(boolean),
        wire::AttributeValue::Time { time } => AttributeValue::Time(time.resolve(now)),
        wire::AttributeValue::Point(place) => AttributeValue::Point(to_point(place)?),
        wire::AttributeValue::Texts(texts) => AttributeValue::Texts(texts),
        wire::AttributeValue::Numbers(numbers) => AttributeValue::Numbers(numbers),
    })
}

/// The value of an attribute, as answers show it.
pub(crate) fn from_attribute(value: AttributeValue) -> wire::AttributeValue {
    match value {
        AttributeValue::Text(text) => wire::AttributeValue::Text(text),
        AttributeValue::Number(number) => wire::AttributeValue::Number(number),
        AttributeValue::Boolean(boolean) => wire::AttributeValue::Boolean(boolean),
        AttributeValue::Time(time) => wire::AttributeValue::Time {
            time: TimeInput::At(time),
        },
        AttributeValue::Point(point) => wire::AttributeValue::Point(Place {
            lat: point.latitude(),
            lon: point.longitude(),
        }),
        AttributeValue::Texts(texts) => wire::AttributeValue::Texts(texts),
        AttributeValue::Numbers(numbers) => wire::AttributeValue::Numbers(numbers),
    }
}

fn to_point(Place { lat, lon }: Place) -> Result<GeoPoint> {
    GeoPoint::new(lat, lon).ok_or_else(|| {
        Failure::invalid(format!(
            "a geo point has a lat within ±90 and a lon within ±180 degrees; they were {lat} and {lon}"
        ))
    })
}

fn to_subject(subject: Subject) -> index::Subject {
    match subject {
        Subject::Tag(key) => index::Subject::Tag(key),
        Subject::Attribute(key) => index::Subject::Attribute(key),
        Subject::Property(property) => match property {
            Property::Measurement => index::Subject::Measurement,
            Property::Source => index::Subject::Source,
            Property::Any => index::Subject::Any,
            Property::Id => index::Subject::Id,
            Property::FirstSeen => index::Subject::FirstSeen,
            Property::LastSeen => index::Subject::LastSeen,
        },
    }
}

fn to_test(test: Test, now: Timestamp) -> Result<index::Test> {
    let value = |value| to_attribute(value, now);
    Ok(match test {
        Test::Equals(equal) => index::Test::Equals(value(equal)?),
        Test::NotEquals(unequal) => index::Test::NotEquals(value(unequal)?),
        Test::In(values) => index::Test::In(values.into_iter().map(value).collect::<Result<_>>()?),
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
        Test::Near(Circle { lat, lon, meters }) => index::Test::Within(Area::Circle {
            center: to_point(Place { lat, lon })?,
            meters,
        }),
        Test::Box(GeoBox {
            south,
            west,
            north,
            east,
        }) => index::Test::Within(Area::Box {
            south,
            west,
            north,
            east,
        }),
        Test::Polygon(corners) => {
            let corners = corners.into_iter().map(to_point);
            index::Test::Within(Area::Polygon(corners.collect::<Result<_>>()?))
        }
    })
}

/// One end of a range of numbers.
fn bound(excluded: Option<f64>, included: Option<f64>) -> Bound<f64> {
    match (excluded, included) {
        (Some(excluded), _) => Bound::Excluded(excluded),
        (None, Some(included)) => Bound::Included(included),
        (None, None) => Bound::Unbounded,
    }
}
