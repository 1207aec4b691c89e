//! Sink of CSV results (RFC 4180): a header line, then one line per row.
//!
//! The header line names all tags and columns of the result, so the rows of all series have the same number of
//! cells.

use std::io::{self, Write};

use tideline_query::{Header, RowSink, Series, SinkClosed, Summary, ValueRef, histogram_text};

use crate::flat::FlatColumns;
use crate::text::{
    flat_column, flat_tag, pass_on, put_csv_text as put_text, put_plain_time, put_plain_value,
};
use crate::{ResultOptions, ResultSink};

/// Sink that writes the rows of all series into one flat table. An absent value is an empty cell; an empty text is
/// `""`.
pub(crate) struct CsvSink<'w> {
    out: &'w mut (dyn Write + Send),
    options: ResultOptions,
    columns: FlatColumns,
    /// Start of each row of the current series: the cells before the time, with the comma before the time.
    prefix: Vec<u8>,
    text: Vec<u8>,
}

impl<'w> CsvSink<'w> {
    pub(crate) fn new(out: &'w mut (dyn Write + Send), options: ResultOptions) -> Self {
        Self {
            out,
            options,
            columns: FlatColumns::default(),
            prefix: Vec::new(),
            text: Vec::new(),
        }
    }
}

impl RowSink for CsvSink<'_> {
    fn needs_tags(&self) -> bool {
        true
    }

    fn begin(&mut self, header: &Header) -> Result<(), SinkClosed> {
        self.columns.begin(header);
        let text = &mut self.text;
        text.extend_from_slice(if header.is_by_timeline {
            b"id,measurement"
        } else {
            b"measurement"
        });
        for tag in &header.tags {
            text.push(b',');
            put_text(&flat_tag(tag, &header.columns), text);
        }
        text.extend_from_slice(b",time");
        for column in &header.columns {
            text.push(b',');
            put_text(&flat_column(column), text);
        }
        text.extend_from_slice(b"\r\n");
        pass_on(self.out, text)
    }

    fn series(&mut self, series: &Series<'_>) -> Result<(), SinkClosed> {
        let prefix = &mut self.prefix;
        prefix.clear();
        if let Some(id) = series.id {
            // Writing to memory cannot fail.
            let _ = write!(prefix, "{id},");
        }
        put_text(series.measurement, prefix);
        for value in self.columns.tags(series) {
            prefix.push(b',');
            if let Some(value) = value {
                put_text(value, prefix);
            }
        }
        prefix.push(b',');
        self.columns.series(series);
        Ok(())
    }

    fn row(&mut self, time: i64, values: &[Option<ValueRef<'_>>]) -> Result<(), SinkClosed> {
        let text = &mut self.text;
        text.extend_from_slice(&self.prefix);
        put_plain_time(time, self.options.times, text);
        for value in self.columns.cells(values) {
            text.push(b',');
            match value {
                Some(ValueRef::String(value)) => put_text(value, text),
                Some(ValueRef::Histogram(stored)) => put_text(&histogram_text(stored), text),
                Some(value) => put_plain_value(value, text),
                None => {}
            }
        }
        text.extend_from_slice(b"\r\n");
        pass_on(self.out, text)
    }
}

impl ResultSink for CsvSink<'_> {
    fn end(&mut self, _: &Summary) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tideline_openapi::query::{IntegerForm, TimeForm};

    use super::*;
    use crate::ResultFormat;

    #[test]
    fn a_reader_of_csv_gets_back_what_was_written() {
        let mut out = Vec::new();
        let options = ResultOptions {
            has_limit: false,
            format: ResultFormat::Csv,
            times: TimeForm::Nanos,
            integers: IntegerForm::Number,
            plan: false,
            request_id: String::new(),
        };
        let mut answer = CsvSink::new(&mut out, options);
        let header = Header {
            is_by_timeline: false,
            tags: vec!["host".into(), "v".into(), "zone".into()],
            columns: vec!["v".into(), "time".into()],
            types: Vec::new(),
        };
        answer.begin(&header).expect("open");
        let tags = [
            ("host".to_owned(), "a,\"b\"".to_owned()),
            ("v".to_owned(), "x".to_owned()),
        ];
        let series = Series {
            id: None,
            measurement: "m\n1",
            tags: &tags,
            columns: &[1],
        };
        answer.series(&series).expect("open");
        answer.row(7, &[Some(ValueRef::String(""))]).expect("open");
        answer.row(8, &[None]).expect("open");
        let text = String::from_utf8(out).expect("text");
        assert_eq!(
            text,
            "measurement,host,tag:v,zone,time,v,field:time\r\n\
             \"m\n1\",\"a,\"\"b\"\"\",x,,7,,\"\"\r\n\"m\n1\",\"a,\"\"b\"\"\",x,,8,,\r\n"
        );
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let rows: Vec<csv::StringRecord> = reader.records().collect::<Result<_, _>>().expect("valid");
        assert_eq!(rows.len(), 2);
        assert_eq!((&rows[0][0], &rows[0][1]), ("m\n1", "a,\"b\""));
    }
}
