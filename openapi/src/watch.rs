//! Watches: new points, timelines and deletes as server-sent events.
//!
//! The types are the request, its form as URL parameters, and the data of the events.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::condition::TimeSpan;
use crate::query::{IntegerForm, Series, TimeForm, TimelineSelector};
use crate::time::DurationText;
use crate::timeline::TimelineView;

/// Watch of a table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "timelines": {"where": {"tag": "host", "prefix": "web-"}},
    "fields": ["usage_user"],
    "tell": ["points"],
    "for": "100ms"
}))]
pub struct WatchRequest {
    /// Timelines to watch. Default: all timelines of the table, including new ones. Conditions on `first_seen` and
    /// `last_seen` are refused, because every point changes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timelines: Option<TimelineSelector>,
    /// Fields to return; empty or missing = all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// True if "all fields" includes the fields that accompany Prometheus samples: start timestamps (`_start`) and
    /// exemplars (`_exemplar`). Fields named in `fields` are always returned.
    #[serde(default, skip_serializing_if = "crate::query::is_false")]
    pub sample_details: bool,
    /// Kinds of events; empty or missing = all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tell: Vec<WatchKind>,
    /// Id of the last event received: the watch continues right after it. Default: from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Duration after which the watch ends, at most `7d`. `0s`: send the pending events and end. Default: until
    /// the client disconnects.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub time: Option<DurationText>,
    /// Format of timestamps.
    #[serde(default)]
    pub times: TimeForm,
    /// Format of integers beyond ±2⁵³.
    #[serde(default)]
    pub int64: IntegerForm,
}

/// Watch of a table as URL parameters, for clients that cannot send a body, such as `EventSource` in browsers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct WatchQuery {
    /// Timelines to watch, as JSON: `{"where": …}` or `{"ids": […]}`.
    pub timelines: Option<String>,
    /// Fields to return, separated by commas.
    pub fields: Option<String>,
    /// True if "all fields" includes the fields that accompany Prometheus samples: start timestamps (`_start`) and
    /// exemplars (`_exemplar`).
    #[serde(default)]
    pub sample_details: bool,
    /// Kinds of events (`points`, `timelines`, `deletes`), separated by commas. Default: all.
    pub tell: Option<String>,
    /// Id of the last event received: the watch continues right after it. Same as the header `Last-Event-ID`, which
    /// takes precedence.
    pub from: Option<String>,
    /// Duration after which the watch ends, at most `7d`. `0s`: send the pending events and end. Default: until the
    /// client disconnects.
    #[param(example = "0s", value_type = Option<String>)]
    #[serde(rename = "for")]
    pub time: Option<DurationText>,
    /// Format of timestamps.
    #[serde(default)]
    pub times: TimeForm,
    /// Format of integers beyond ±2⁵³.
    #[serde(default)]
    pub int64: IntegerForm,
}

/// Kind of watch events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WatchKind {
    /// New points: events `points`.
    Points,
    /// New timelines and timelines with changed attributes: events `timelines`.
    Timelines,
    /// Deleted points and deleted timelines: events `deleted`.
    Deletes,
}

/// Data of the first event, `ready`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"cursor": "1-2a7f-0-0"}))]
pub struct WatchReady {
    /// Start of the watch: writes acknowledged after this position are sent.
    pub cursor: String,
}

/// Data of the last event, `resume`. The watch has ended, but can continue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"cursor": "1-2a80-0-0", "reason": "slow"}))]
pub struct WatchResume {
    /// End of the watch: a watch from this cursor misses nothing and repeats nothing.
    pub cursor: String,
    /// Reason why the watch has ended.
    pub reason: ResumeReason,
}

/// Reason why a watch that can continue has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ResumeReason {
    /// The client has read no events for too long.
    Slow,
}

/// Data of an event `points`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"series": [{
    "id": "3f2a9c017bde45a18c40f1e29d3b6a57", "measurement": "cpu", "tags": {"host": "web-1"},
    "columns": ["time", "usage_user"], "points": [["2026-11-20T12:00:00Z", 41.5]]
}]}))]
pub struct WatchPoints {
    /// New points by timeline, in the order of their writes.
    pub series: Vec<Series>,
}

/// Data of an event `timelines`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WatchTimelines {
    /// Timelines in their current state.
    pub timelines: Vec<TimelineView>,
}

/// Data of an event `deleted`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "timelines": ["3f2a9c017bde45a18c40f1e29d3b6a57"],
    "range": {"start": "2026-11-20T12:00:00Z", "end": "2026-11-20T13:00:00Z"},
    "removed": false
}))]
pub struct WatchDeleted {
    /// Ids of the timelines that were deleted, or whose points were deleted. A very long list is split over several
    /// events. Ids of deleted timelines may include some that do not match the condition.
    pub timelines: Vec<String>,
    /// Deleted time range, if any points were deleted. A missing bound is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<TimeSpan>,
    /// True if the timelines were removed too, with their attributes.
    pub removed: bool,
}
