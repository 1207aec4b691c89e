//! Export of samples as JSON lines in the format of VictoriaMetrics.
//!
//! Lines are encoded and written page by page, so that memory does not grow with the export.

use std::io::Write;
use std::time::Duration;

use tideline_promql::{Labels, Matcher, PromqlError, Result, Samples};

use crate::error;
use crate::failure::client_left;
use crate::json::{put_comma, put_labels};
use crate::number::{NumberForm, put_plain_number};
use crate::parameters::{Parameters, wrong};
use crate::request::SeriesRequest;
use crate::view::SeriesView;

/// Default number of rows per line. The rows of such a line take at most 4 MB; importers accept lines
/// of 10 MiB.
const ROWS_DEFAULT: usize = 100_000;
/// Maximum number of rows per line. A row takes at most 40 bytes, so importers accept every line.
const ROWS_MAX: usize = 200_000;

/// Request for an export.
#[derive(Debug)]
pub struct Export {
    selectors: Vec<Vec<Matcher>>,
    /// Time range in milliseconds, both ends included.
    range: (i64, i64),
    rows: usize,
    skips_histograms: bool,
    text: String,
}

impl Export {
    /// Reads the parameters of an export.
    ///
    /// # Errors
    ///
    /// `RequestError` if a parameter is missing or not valid, or if a regular expression is too large.
    pub fn read(parameters: &Parameters) -> error::Result<Self> {
        parameters.need_selector()?;
        let selectors = parameters.selectors()?;
        let range = parameters.range()?;
        let rows = rows(parameters.text("max_rows_per_line"))?;
        // Accepted without effect: an export of any size holds only a few megabytes in memory.
        parameters.switch("reduce_mem_usage")?;
        let skips_histograms = parameters.switch("skip_histograms")?.unwrap_or(false);
        if !matches!(parameters.text("format"), "" | "json") {
            return Err(wrong("format", "only json is supported"));
        }
        Ok(Self {
            selectors,
            range,
            rows,
            skips_histograms,
            text: parameters.selectors_text(),
        })
    }

    fn put(&self, labels: &Labels, samples: &Samples<'_>, out: &mut Vec<u8>) -> Result<()> {
        if !samples.histograms.is_empty() && !self.skips_histograms {
            return Err(PromqlError::Execution(format!(
                "{labels} has native histograms, which a line of JSON cannot hold; exclude the series, \
                 omit histograms with skip_histograms=true, or use remote read"
            )));
        }
        let times = samples.times.chunks(self.rows);
        for (times, values) in times.zip(samples.values.chunks(self.rows)) {
            put_line(labels, times, values, out);
        }
        Ok(())
    }
}

impl SeriesRequest for Export {
    fn text(&self) -> String {
        self.text.clone()
    }

    fn read_range(&self) -> Option<(i64, i64)> {
        Some(self.range)
    }

    /// Writes one line per series, or several for a series of many samples. The order of the lines is unspecified.
    fn write(&self, view: &SeriesView<'_>, _: Duration, out: &mut dyn Write) -> Result<()> {
        let encode =
            |labels: &Labels, samples: Samples<'_>, line: &mut Vec<u8>| self.put(labels, &samples, line);
        let mut write = |bytes: &[u8]| out.write_all(bytes).map_err(client_left);
        view.transfer(&self.selectors, self.range, &encode, &mut write)
    }
}

/// Parses the number of rows per line; an empty text and 0 select the default.
fn rows(text: &str) -> error::Result<usize> {
    match text.parse() {
        _ if text.is_empty() => Ok(ROWS_DEFAULT),
        Ok(0) => Ok(ROWS_DEFAULT),
        Ok(rows) if rows <= ROWS_MAX => Ok(rows),
        Ok(_) | Err(_) => Err(wrong(
            "max_rows_per_line",
            format!("{text:?} is not a number from 0 to {ROWS_MAX}"),
        )),
    }
}

fn put_line(labels: &Labels, times: &[i64], values: &[f64], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"metric\":");
    put_labels(labels, out);
    out.extend_from_slice(b",\"values\":[");
    for (at, value) in values.iter().enumerate() {
        put_comma(at, out);
        match *value {
            value if value.is_nan() => out.extend_from_slice(b"null"),
            f64::INFINITY => out.extend_from_slice(b"\"Infinity\""),
            f64::NEG_INFINITY => out.extend_from_slice(b"\"-Infinity\""),
            value => put_plain_number(value, NumberForm::Short, out),
        }
    }
    out.extend_from_slice(b"],\"timestamps\":[");
    for (at, time) in times.iter().enumerate() {
        put_comma(at, out);
        out.extend_from_slice(itoa::Buffer::new().format(*time).as_bytes());
    }
    out.extend_from_slice(b"]}\n");
}
