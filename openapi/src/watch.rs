//! Watching a table: new points, timelines and deletes as server-sent events.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::condition::TimeSpan;
use crate::query::{IntegerForm, Series, TimeForm, TimelineSelector};
use crate::time::DurationText;
use crate::timeline::TimelineView;

/// What is watched.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "timelines": {"where": {"tag": "host", "prefix": "web-"}},
    "fields": ["usage_user"],
    "tell": ["points"],
    "for": "100ms"
}))]
pub struct WatchRequest {
    /// Which timelines; without it all of the table, also those that come to be. A condition on `first_seen` or
    /// `last_seen` is refused, since every point changes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timelines: Option<TimelineSelector>,
    /// Which fields; empty or missing = all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// Whether all fields include those that accompany samples of Prometheus: start timestamps (`_start`) and exemplars
    /// (`_exemplar`). Named in `fields` they are there either way.
    #[serde(default, skip_serializing_if = "crate::query::is_false")]
    pub sample_details: bool,
    /// Which events; empty or missing = all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tell: Vec<WatchKind>,
    /// Go on behind the event with this `id`; missing = from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// End after this time, once what was at hand has been told; `0s` tells that alone. Missing = go on until the client
    /// leaves.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub time: Option<DurationText>,
    /// How times are written.
    #[serde(default)]
    pub times: TimeForm,
    /// How integers beyond 2⁵³ are written.
    #[serde(default)]
    pub int64: IntegerForm,
}

/// The same as parameters of an address, for clients that can only ask for one, such as `EventSource` of browsers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct WatchQuery {
    /// Which timelines, as JSON: `{"where": …}` or `{"ids": […]}`.
    pub timelines: Option<String>,
    /// Which fields, separated by commas.
    pub fields: Option<String>,
    /// Whether all fields include those that accompany samples of Prometheus: start timestamps (`_start`) and exemplars
    /// (`_exemplar`).
    #[serde(default)]
    pub sample_details: bool,
    /// `points`, `timelines`, `deletes`, separated by commas; without it all.
    pub tell: Option<String>,
    /// Go on behind the event with this `id`; the header `Last-Event-ID` says the same.
    pub from: Option<String>,
    /// End after this time
    #[param(example = "0s", value_type = Option<String>)]
    #[serde(rename = "for")]
    pub time: Option<DurationText>,
    /// How times are written.
    #[serde(default)]
    pub times: TimeForm,
    /// How integers beyond 2⁵³ are written.
    #[serde(default)]
    pub int64: IntegerForm,
}

/// What a watch tells of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WatchKind {
    /// New points: events `points`.
    Points,
    /// Timelines that are new, or whose attributes were edited: events `timelines`.
    Timelines,
    /// Points that were deleted: events `deleted`.
    Deletes,
}

/// The data of an event `ready`, the first one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"cursor": "1-2a7f-0-0"}))]
pub struct WatchReady {
    /// Where the watch begins: everything acknowledged from here on is told.
    pub cursor: String,
}

/// The data of an event `points`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"series": [{
    "id": "3f2a9c017bde45a18c40f1e29d3b6a57", "measurement": "cpu", "tags": {"host": "web-1"},
    "columns": ["time", "usage_user"], "points": [["2026-11-20T12:00:00Z", 41.5]]
}]}))]
pub struct WatchPoints {
    /// The new points by timeline, in the order in which they were written.
    pub series: Vec<Series>,
}

/// The data of an event `timelines`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WatchTimelines {
    /// Timelines as they are now.
    pub timelines: Vec<TimelineView>,
}

/// The data of an event `deleted`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "timelines": ["3f2a9c017bde45a18c40f1e29d3b6a57"],
    "range": {"start": "2026-11-20T12:00:00Z", "end": "2026-11-20T13:00:00Z"},
    "removed": false
}))]
pub struct WatchDeleted {
    /// Ids of the timelines whose points were deleted; of very many in several events.
    pub timelines: Vec<String>,
    /// Which of their instants, where there were points; an end that is missing is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<TimeSpan>,
    /// Whether the timelines themselves were removed, with their attributes.
    pub removed: bool,
}
