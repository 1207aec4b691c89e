//! Conversion of selectors, sort keys, time ranges and attributes between the HTTP interface and the engine.
//!
//! Relative times are resolved here, so that the engine only gets absolute timestamps.

use tideline_engine::catalog::AttributeValue;
use tideline_engine::condition::Subject;
use tideline_engine::model::{GeoPoint, TimeRange, TimelineId, Timestamp};
use tideline_engine::search::{Sort, SortBy, SortDirection};
use tideline_engine::{Engine, EngineError, TimelineSelector};
use tideline_openapi as wire;
use tideline_openapi::condition::{Property, TimeSpan};
use tideline_openapi::geo::LatLon;
use tideline_openapi::timeline::{SortKey, SortOrder};

use crate::failure::{Failure, Result};

/// Converts a sort key for the search index. Fails unless the key sets exactly one criterion (tag, attribute, property
/// or relevance) and timelines can be sorted by it.
pub(crate) fn to_sort(key: SortKey) -> Result<Sort> {
    let one_of = || Failure::invalid("a sort key needs exactly one of tag, attribute, property, relevance");
    let names_subject = key.tag.is_some() || key.attribute.is_some() || key.property.is_some();
    let by = if key.relevance {
        if names_subject || key.near.is_some() {
            return Err(one_of());
        }
        SortBy::Relevance
    } else {
        let subject = one_subject(key.tag, key.attribute, key.property).ok_or_else(one_of)?;
        match (subject, key.near) {
            (Subject::Any, _) => {
                return Err(Failure::invalid("the property \"any\" cannot be a sort key"));
            }
            (subject, None) => SortBy::Subject(subject),
            (Subject::Attribute(key), Some(point)) => SortBy::Distance {
                key,
                from: to_point(point)?,
            },
            (_, Some(_)) => {
                return Err(Failure::invalid(
                    "near requires attribute: it applies to geo points",
                ));
            }
        }
    };
    let order = match (key.order, &by) {
        (Some(SortOrder::Ascending), _) => SortDirection::Ascending,
        (Some(SortOrder::Descending), _) | (None, SortBy::Relevance) => SortDirection::Descending,
        (None, _) => SortDirection::Ascending,
    };
    Ok(Sort { by, order })
}

/// Returns the subject if exactly one is set, otherwise `None`.
pub(crate) fn one_subject(
    tag: Option<String>,
    attribute: Option<String>,
    property: Option<Property>,
) -> Option<Subject> {
    match (tag, attribute, property) {
        (Some(tag), None, None) => Some(Subject::Tag(tag)),
        (None, Some(attribute), None) => Some(Subject::Attribute(attribute)),
        (None, None, Some(property)) => Some(property.into()),
        _ => None,
    }
}

/// Converts a time span to a half-open range. A missing start is the smallest timestamp, a missing end the
/// largest.
pub(crate) fn to_range(span: TimeSpan, now: Timestamp) -> TimeRange {
    TimeRange {
        start: span.start.map_or(i64::MIN, |start| start.resolve(now).nanos()),
        end: span.end.map_or(i64::MAX, |end| end.resolve(now).nanos()),
    }
}

/// Converts a selector of timelines. Relative times of a condition are resolved against `now`. Fails if the selector
/// has neither a condition nor ids, or both, or if an id is not valid.
pub(crate) fn to_selector(
    selector: wire::query::TimelineSelector,
    now: Timestamp,
) -> Result<TimelineSelector> {
    match (selector.condition, selector.ids) {
        (Some(condition), None) => Ok(TimelineSelector::Condition(condition.0.resolve(now))),
        (None, Some(ids)) => {
            let ids = ids.iter().map(|id| id.parse::<TimelineId>());
            let ids = ids.collect::<std::result::Result<_, _>>();
            Ok(TimelineSelector::Ids(ids.map_err(Failure::invalid)?))
        }
        _ => Err(Failure::invalid(
            "a selector of timelines needs exactly one of where and ids",
        )),
    }
}

/// Resolves the times of a delete request. Fails if a time is relative to the current time and the clock is in doubt.
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

/// Converts an attribute value of a request. Relative times are resolved against `now`.
pub(crate) fn to_attribute(value: wire::AttributeValue, now: Timestamp) -> Result<AttributeValue> {
    Ok(match value {
        wire::AttributeValue::Text(text) => AttributeValue::Text(text),
        wire::AttributeValue::Number(number) => AttributeValue::Number(number),
        wire::AttributeValue::Boolean(boolean) => AttributeValue::Boolean(boolean),
        wire::AttributeValue::Time { time } => AttributeValue::Time(time.resolve(now)),
        wire::AttributeValue::Point(point) => AttributeValue::Point(to_point(point)?),
        wire::AttributeValue::Texts(texts) => AttributeValue::Texts(texts),
        wire::AttributeValue::Numbers(numbers) => AttributeValue::Numbers(numbers),
    })
}

fn to_point(LatLon { lat, lon }: LatLon) -> Result<GeoPoint> {
    GeoPoint::new(lat, lon).ok_or_else(|| {
        Failure::invalid(format!(
            "a geo point has a lat within ±90 and a lon within ±180 degrees; found {lat} and {lon}"
        ))
    })
}
