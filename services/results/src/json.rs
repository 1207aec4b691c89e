//! Sink of JSON results: one object that contains the series with their rows, followed by the members of the summary.
//!
//! Each row is written when it arrives, so memory is bounded by one row.

use std::io::{self, Write};

use tideline_engine::model::TimelineId;
use tideline_query::{Header, RowSink, Series, SinkClosed, Summary, ValueRef};

use crate::summary::put_summary;
use crate::text::{pass_on, put_json_text, put_json_time, put_json_value};
use crate::{ResultOptions, ResultSink};

/// Streaming writer of `tideline_openapi::query::PointAnswer`.
pub(crate) struct JsonSink<'w> {
    out: &'w mut (dyn Write + Send),
    options: ResultOptions,
    columns: Vec<String>,
    /// Number of series started.
    series: u64,
    /// Number of rows written of the current series.
    rows: u64,
    text: Vec<u8>,
}

impl<'w> JsonSink<'w> {
    pub(crate) fn new(out: &'w mut (dyn Write + Send), options: ResultOptions) -> Self {
        Self {
            out,
            options,
            columns: Vec::new(),
            series: 0,
            rows: 0,
            text: Vec::new(),
        }
    }
}

impl RowSink for JsonSink<'_> {
    fn begin(&mut self, header: &Header) -> Result<(), SinkClosed> {
        self.columns.clone_from(&header.columns);
        self.text.extend_from_slice(b"{\"request_id\":");
        put_json_text(&self.options.request_id, &mut self.text);
        self.text.extend_from_slice(b",\"series\":[");
        pass_on(self.out, &mut self.text)
    }

    fn series(&mut self, series: &Series<'_>) -> Result<(), SinkClosed> {
        let text = &mut self.text;
        if self.series > 0 {
            text.extend_from_slice(b"]},");
        }
        self.series += 1;
        self.rows = 0;
        let columns = series.columns.iter().map(|column| self.columns[*column].as_str());
        put_series_head(series.id, series.measurement, series.tags, columns, text);
        pass_on(self.out, text)
    }

    fn row(&mut self, time: i64, values: &[Option<ValueRef<'_>>]) -> Result<(), SinkClosed> {
        let text = &mut self.text;
        text.extend_from_slice(if self.rows == 0 { b"[" } else { b",[" });
        self.rows += 1;
        put_json_time(time, self.options.times, text);
        for value in values {
            text.push(b',');
            match value {
                Some(value) => put_json_value(*value, self.options.integers, text),
                None => text.extend_from_slice(b"null"),
            }
        }
        text.push(b']');
        pass_on(self.out, text)
    }
}

impl ResultSink for JsonSink<'_> {
    fn end(&mut self, summary: &Summary) -> io::Result<()> {
        if self.series > 0 {
            self.text.extend_from_slice(b"]}");
        }
        self.text.extend_from_slice(b"],");
        put_summary(summary, self.options.plan, &mut self.text);
        self.text.extend_from_slice(b"}\n");
        self.out.write_all(&self.text)
    }
}

/// Appends the start of a series up to the opening bracket of its points: id, measurement, tags, column names.
/// Only a timeline has an id; a group omits it.
pub fn put_series_head<'a>(
    id: Option<TimelineId>,
    measurement: &str,
    tags: &[(String, String)],
    columns: impl Iterator<Item = &'a str>,
    text: &mut Vec<u8>,
) {
    text.push(b'{');
    if let Some(id) = id {
        // Writing to memory cannot fail.
        let _ = write!(text, "\"id\":\"{id}\",");
    }
    text.extend_from_slice(b"\"measurement\":");
    put_json_text(measurement, text);
    text.extend_from_slice(b",\"tags\":{");
    for (at, (key, value)) in tags.iter().enumerate() {
        if at > 0 {
            text.push(b',');
        }
        put_json_text(key, text);
        text.push(b':');
        put_json_text(value, text);
    }
    text.extend_from_slice(b"},\"columns\":[\"time\"");
    for column in columns {
        text.push(b',');
        put_json_text(column, text);
    }
    text.extend_from_slice(b"],\"points\":[");
}
