//! Timelines and their attributes in responses.

use tideline_engine::Timeline;
use tideline_engine::catalog::AttributeValue;
use tideline_engine::model::Timestamp;
use tideline_openapi::geo::LatLon;
use tideline_openapi::timeline::TimelineView;
use tideline_openapi::{self as wire, TimeInput};

/// Converts a timeline for a response.
pub fn timeline_view(timeline: Timeline) -> TimelineView {
    TimelineView {
        id: timeline.id.to_string(),
        measurement: timeline.measurement,
        source: timeline.source,
        tags: timeline.tags.into_iter().collect(),
        attributes: timeline
            .attributes
            .into_iter()
            .map(|(key, value)| (key, attribute_view(value)))
            .collect(),
        first_seen: timeline.seen.map(|seen| Timestamp::to_rfc3339(seen.first)),
        last_seen: timeline.seen.map(|seen| Timestamp::to_rfc3339(seen.last)),
    }
}

/// Converts an attribute value for a response.
pub fn attribute_view(value: AttributeValue) -> wire::AttributeValue {
    match value {
        AttributeValue::Text(text) => wire::AttributeValue::Text(text),
        AttributeValue::Number(number) => wire::AttributeValue::Number(number),
        AttributeValue::Boolean(boolean) => wire::AttributeValue::Boolean(boolean),
        AttributeValue::Time(time) => wire::AttributeValue::Time {
            time: TimeInput::from(time),
        },
        AttributeValue::Point(point) => wire::AttributeValue::Point(LatLon {
            lat: point.latitude(),
            lon: point.longitude(),
        }),
        AttributeValue::Texts(texts) => wire::AttributeValue::Texts(texts),
        AttributeValue::Numbers(numbers) => wire::AttributeValue::Numbers(numbers),
    }
}
