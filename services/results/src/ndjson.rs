//! Sink of NDJSON results: each row is a flat JSON object on its own line, and the last line is the summary.

use std::io::{self, Write};

use tideline_query::{Header, RowSink, Series, SinkClosed, Summary, ValueRef};

use crate::summary::put_summary;
use crate::text::{flat_column, flat_tag, pass_on, put_json_text, put_json_time, put_json_value};
use crate::{ResultOptions, ResultSink};

/// Sink that writes one line per row.
pub(crate) struct NdjsonSink<'w> {
    out: &'w mut (dyn Write + Send),
    options: ResultOptions,
    columns: Vec<String>,
    /// Start of each row of the current series, up to its time.
    prefix: Vec<u8>,
    /// Text before each value of the current series: comma, quoted column name, colon.
    names: Vec<Vec<u8>>,
    text: Vec<u8>,
}

impl<'w> NdjsonSink<'w> {
    pub(crate) fn new(out: &'w mut (dyn Write + Send), options: ResultOptions) -> Self {
        Self {
            out,
            options,
            columns: Vec::new(),
            prefix: Vec::new(),
            names: Vec::new(),
            text: Vec::new(),
        }
    }
}

impl RowSink for NdjsonSink<'_> {
    fn begin(&mut self, header: &Header) -> Result<(), SinkClosed> {
        self.columns.clone_from(&header.columns);
        Ok(())
    }

    fn series(&mut self, series: &Series<'_>) -> Result<(), SinkClosed> {
        let prefix = &mut self.prefix;
        prefix.clear();
        prefix.push(b'{');
        if let Some(id) = series.id {
            // Writing to memory cannot fail.
            let _ = write!(prefix, "\"id\":\"{id}\",");
        }
        prefix.extend_from_slice(b"\"measurement\":");
        put_json_text(series.measurement, prefix);
        for (key, value) in series.tags {
            prefix.push(b',');
            put_json_text(&flat_tag(key, &self.columns), prefix);
            prefix.push(b':');
            put_json_text(value, prefix);
        }
        prefix.extend_from_slice(b",\"time\":");
        self.names.clear();
        for column in series.columns {
            let mut name = vec![b','];
            put_json_text(&flat_column(&self.columns[*column]), &mut name);
            name.push(b':');
            self.names.push(name);
        }
        Ok(())
    }

    fn row(&mut self, time: i64, values: &[Option<ValueRef<'_>>]) -> Result<(), SinkClosed> {
        let text = &mut self.text;
        text.extend_from_slice(&self.prefix);
        put_json_time(time, self.options.times, text);
        for (name, value) in self.names.iter().zip(values) {
            if let Some(value) = value {
                text.extend_from_slice(name);
                put_json_value(*value, self.options.integers, text);
            }
        }
        text.extend_from_slice(b"}\n");
        pass_on(self.out, text)
    }
}

impl ResultSink for NdjsonSink<'_> {
    fn end(&mut self, summary: &Summary) -> io::Result<()> {
        self.text.push(b'{');
        put_summary(summary, self.options.plan, &mut self.text);
        self.text.extend_from_slice(b"}\n");
        self.out.write_all(&self.text)
    }
}
