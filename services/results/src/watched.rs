//! Points of a timeline as watches and change streams report them, in the form of query results.

use tideline_engine::watch::WatchedSeries;
use tideline_openapi::query::{IntegerForm, TimeForm};
use tideline_query::ValueRef;

use crate::json::put_series_head;
use crate::text::{put_json_time, put_json_value};

/// Appends the points of a timeline as a JSON object.
pub fn put_watched_series(series: &WatchedSeries, times: TimeForm, integers: IntegerForm, out: &mut Vec<u8>) {
    let timeline = &series.timeline;
    let columns = series.fields.iter().map(AsRef::as_ref);
    put_series_head(
        Some(timeline.id),
        &timeline.measurement,
        &timeline.tags,
        columns,
        out,
    );
    for (row, time) in series.timestamps.iter().enumerate() {
        out.extend_from_slice(if row == 0 { b"[" } else { b",[" });
        put_json_time(*time, times, out);
        for column in &series.columns {
            out.push(b',');
            put_json_value(ValueRef::at(column, row), integers, out);
        }
        out.push(b']');
    }
    out.extend_from_slice(b"]}");
}
