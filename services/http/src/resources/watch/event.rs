//! Encoding of watch events as `text/event-stream`.
//!
//! Points are encoded directly from the columns, in the same form as in the result of a query.

use std::io::Write as _;

use tideline_engine::watch::{WatchEvents, WatchPart, WatchedDelete};
use tideline_openapi::query::{IntegerForm, TimeForm};
use tideline_openapi::watch::WatchTimelines;
use tideline_results::{put_json_time, put_watched_series, timeline_view};

use crate::live::{put_data, put_head};

/// Formats of timestamps and integers in events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventText {
    times: TimeForm,
    integers: IntegerForm,
}

impl EventText {
    pub(super) fn new(times: TimeForm, integers: IntegerForm) -> Self {
        Self { times, integers }
    }

    pub(crate) fn part(self, part: &WatchPart) -> Vec<u8> {
        let mut out = Vec::new();
        match &part.events {
            WatchEvents::Points(series) => {
                put_head(Some(&part.cursor), "points", &mut out);
                out.extend_from_slice(b"{\"series\":[");
                for (at, series) in series.iter().enumerate() {
                    if at > 0 {
                        out.push(b',');
                    }
                    put_watched_series(series, self.times, self.integers, &mut out);
                }
                out.extend_from_slice(b"]}\n\n");
            }
            WatchEvents::Timelines(found) => {
                put_head(Some(&part.cursor), "timelines", &mut out);
                let timelines = found.iter().cloned().map(timeline_view).collect();
                put_data(&WatchTimelines { timelines }, &mut out);
            }
            WatchEvents::Deleted(deleted) => {
                put_head(Some(&part.cursor), "deleted", &mut out);
                self.put_deleted(deleted, &mut out);
            }
        }
        out
    }

    /// Encodes a delete. Open bounds of the range are omitted. The whole range is omitted if the removed
    /// timelines had no points.
    fn put_deleted(self, deleted: &WatchedDelete, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"timelines\":[");
        for (at, id) in deleted.timelines.iter().enumerate() {
            let _ = write!(out, "{}\"{id}\"", if at > 0 { "," } else { "" });
        }
        let _ = write!(out, "],\"removed\":{}", deleted.is_removed);
        if deleted.range.is_empty() {
            out.extend_from_slice(b"}\n\n");
            return;
        }
        out.extend_from_slice(b",\"range\":{");
        let ends = [
            ("start", deleted.range.start, i64::MIN),
            ("end", deleted.range.end, i64::MAX),
        ];
        let said = ends.into_iter().filter(|(_, at, open)| at != open);
        for (index, (name, at, _)) in said.enumerate() {
            let _ = write!(out, "{}\"{name}\":", if index > 0 { "," } else { "" });
            put_json_time(at, self.times, out);
        }
        out.extend_from_slice(b"}}\n\n");
    }
}
