//! Results of queries in the formats that clients accept: JSON, NDJSON, CSV, Arrow and Parquet.
//!
//! [`ResultOptions::sink`] returns the sink of a format. A query passes its rows to the sink, and [`ResultSink::end`]
//! writes the part after the last row. Every format streams: memory is bounded by one row, one batch (Arrow) or one
//! row group (Parquet).
//!
//! | module | holds |
//! |---|---|
//! | `json`, `ndjson`, `csv` | one sink each |
//! | `flat` | one table of tags and columns, for CSV, Arrow and Parquet |
//! | [`columnar`] | Arrow IPC streams and Parquet files: encoder and sink |
//! | [`text`] | names, times and values as text |
//! | `timeline`, `watched` | timelines and their attributes; points of watches and change streams |
//! | [`summary`] | part after the rows: next page, estimates, cost, plan |

pub mod columnar;
mod csv;
mod flat;
mod json;
mod ndjson;
pub mod summary;
pub mod text;
mod timeline;
mod watched;

use std::io::{self, Write};

use tideline_openapi::query::{IntegerForm, TimeForm};
use tideline_query::{RowSink, Summary};

use self::columnar::{ColumnarForm, ColumnarSink};
use self::csv::CsvSink;
use self::json::JsonSink;
use self::ndjson::NdjsonSink;

pub use json::put_series_head;
pub use summary::{plan_view, suggestion_view};
pub use text::{put_csv_text, put_json_text, put_json_time, put_json_value};
pub use timeline::{attribute_view, timeline_view};
pub use watched::put_watched_series;

/// Format of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultFormat {
    /// One JSON object: series with their rows.
    Json,
    /// One JSON object per row, each on its own line.
    Ndjson,
    /// Header line, then one line per row.
    Csv,
    /// Typed columns.
    Columnar(ColumnarForm),
}

/// Options of a result.
#[derive(Debug, Clone)]
pub struct ResultOptions {
    /// Output format.
    pub format: ResultFormat,
    /// Form of timestamps.
    pub times: TimeForm,
    /// Form of integers beyond ±2⁵³ in JSON.
    pub integers: IntegerForm,
    /// True if the cost includes the plan of the query.
    pub plan: bool,
    /// Request id, repeated in JSON and Parquet.
    pub request_id: String,
    /// True if the query sets a maximum number of rows.
    pub has_limit: bool,
}

/// Sink that writes one format.
pub trait ResultSink: RowSink {
    /// Writes the part after the last row.
    ///
    /// # Errors
    ///
    /// Returns the I/O error if writing to the output fails.
    fn end(&mut self, summary: &Summary) -> io::Result<()>;
}

impl ResultFormat {
    /// All accepted media types, for error messages.
    pub const ACCEPTED: &str = "application/json, application/x-ndjson, text/csv, application/vnd.apache.arrow.stream or \
                                application/vnd.apache.parquet";

    /// Returns the format with the highest `q` in the values of the `Accept` headers. If several have the same
    /// `q`, returns the first one.
    ///
    /// Returns JSON if all values are empty, and `None` if no media type with a `q` above 0 can be written.
    pub fn accepted<'a>(accept: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut has_preference = false;
        let mut best: Option<(Self, f32)> = None;
        for text in accept.filter(|text| !text.trim().is_empty()) {
            has_preference = true;
            for range in text.split(',') {
                let mut parts = range.split(';').map(str::trim);
                let format = match parts.next().unwrap_or_default().to_ascii_lowercase().as_str() {
                    "application/json" | "application/*" | "*/*" => Self::Json,
                    "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Self::Ndjson,
                    "text/csv" | "application/csv" | "text/*" => Self::Csv,
                    "application/vnd.apache.arrow.stream" => Self::Columnar(ColumnarForm::ArrowStream),
                    "application/vnd.apache.parquet" => Self::Columnar(ColumnarForm::Parquet),
                    _ => continue,
                };
                let quality = parts.find_map(|part| part.strip_prefix("q=")).map(str::parse);
                let quality = quality.and_then(|quality| quality.ok()).unwrap_or(1.0f32);
                if quality > best.map_or(0.0, |(_, quality)| quality) {
                    best = Some((format, quality));
                }
            }
        }
        match has_preference {
            true => best.map(|(format, _)| format),
            false => Some(Self::Json),
        }
    }

    /// Returns the media type for the `Content-Type` header.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Ndjson => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8; header=present",
            Self::Columnar(ColumnarForm::ArrowStream) => "application/vnd.apache.arrow.stream",
            Self::Columnar(ColumnarForm::Parquet) => "application/vnd.apache.parquet",
        }
    }
}

impl ResultOptions {
    /// Returns true if rows are missing although the query sets no limit, in a format without a reference to the next
    /// page. Such a result could be mistaken for a complete one.
    pub fn is_incomplete(&self, summary: &Summary) -> bool {
        let has_pages = matches!(self.format, ResultFormat::Json | ResultFormat::Ndjson);
        summary.more && !has_pages && !self.has_limit
    }

    /// Returns the sink that writes the format to `out`.
    ///
    /// # Examples
    ///
    /// Writes a row as a line of JSON. A query calls the same methods of the sink:
    ///
    /// ```
    /// use tideline_openapi::query::{IntegerForm, TimeForm};
    /// use tideline_query::{Header, RowSink, Series, ValueRef};
    /// use tideline_results::{ResultFormat, ResultOptions};
    ///
    /// let options = ResultOptions {
    ///     format: ResultFormat::accepted(["application/x-ndjson"].into_iter()).ok_or("not acceptable")?,
    ///     times: TimeForm::Rfc3339,
    ///     integers: IntegerForm::Number,
    ///     plan: false,
    ///     request_id: "r-1".to_owned(),
    ///     has_limit: false,
    /// };
    /// let header = Header { columns: vec!["usage".to_owned()], ..Header::default() };
    /// let series = Series { id: None, measurement: "cpu", tags: &[], columns: &[0] };
    ///
    /// let mut out = Vec::new();
    /// let mut sink = options.sink(&mut out);
    /// sink.begin(&header).and_then(|()| sink.series(&series)).map_err(|_| "closed")?;
    /// sink.row(1_000_000_000, &[Some(ValueRef::Float(0.5))]).map_err(|_| "closed")?;
    /// drop(sink);
    /// let row: serde_json::Value = serde_json::from_slice(&out)?;
    /// assert_eq!(row["usage"], 0.5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sink<'w>(self, out: &'w mut (dyn Write + Send)) -> Box<dyn ResultSink + 'w> {
        match self.format {
            ResultFormat::Json => Box::new(JsonSink::new(out, self)),
            ResultFormat::Ndjson => Box::new(NdjsonSink::new(out, self)),
            ResultFormat::Csv => Box::new(CsvSink::new(out, self)),
            ResultFormat::Columnar(form) => Box::new(ColumnarSink::new(out, form, self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_chooses_the_format() {
        for (accept, format) in [
            ("*/*", ResultFormat::Json),
            ("", ResultFormat::Json),
            ("text/csv", ResultFormat::Csv),
            (
                "text/html, application/x-ndjson;q=0.9, */*;q=0.1",
                ResultFormat::Ndjson,
            ),
            ("application/json;q=0.5, text/csv", ResultFormat::Csv),
            ("Application/JSON; charset=utf-8", ResultFormat::Json),
        ] {
            let accepted = ResultFormat::accepted([accept].into_iter());
            assert_eq!(accepted, Some(format), "{accept}");
        }
        assert_eq!(ResultFormat::accepted([].into_iter()), Some(ResultFormat::Json));
        for wrong in ["image/png", "text/csv;q=0"] {
            assert_eq!(ResultFormat::accepted([wrong].into_iter()), None, "{wrong}");
        }
    }
}
