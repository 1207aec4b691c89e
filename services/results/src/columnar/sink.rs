//! Sink of columnar results: an Arrow IPC stream or a Parquet file.
//!
//! Tags and columns form one flat table, as in CSV. The header fixes the schema before the first row.

use std::io::{self, Write};

use super::{Cell, ColumnType, ColumnarForm, ColumnarWriter};
use serde_json::{Value as Json, json};
use tideline_engine::model::ValueType;
use tideline_query::{Header, RowSink, Series, SinkClosed, Summary, ValueRef};

use crate::flat::FlatColumns;
use crate::summary::put_summary;
use crate::text::{flat_column, flat_tag};
use crate::{ResultOptions, ResultSink};

/// Output of the result.
type Out<'w> = &'w mut (dyn Write + Send);

/// Sink that writes the rows of all series into one flat table.
pub(crate) struct ColumnarSink<'w> {
    form: ColumnarForm,
    options: ResultOptions,
    /// `Some` until the header is written.
    out: Option<Out<'w>>,
    /// `Some` once the header is written.
    writer: Option<ColumnarWriter<Out<'w>>>,
    columns: FlatColumns,
    /// Description of each column in JSON: name, tag or field, and type. Imports of Parquet files read it.
    notes: Vec<Json>,
    /// Leading text cells of the current series: id, measurement and tags. `None` = the series lacks the tag.
    texts: Vec<Option<String>>,
}

impl<'w> ColumnarSink<'w> {
    pub(crate) fn new(out: Out<'w>, form: ColumnarForm, options: ResultOptions) -> Self {
        Self {
            form,
            options,
            out: Some(out),
            writer: None,
            columns: FlatColumns::default(),
            notes: Vec::new(),
            texts: Vec::new(),
        }
    }
}

impl RowSink for ColumnarSink<'_> {
    fn needs_tags(&self) -> bool {
        true
    }

    fn needs_types(&self) -> bool {
        true
    }

    fn begin(&mut self, header: &Header) -> Result<(), SinkClosed> {
        self.columns.begin(header);
        let text = ColumnType::Value(ValueType::String);
        let mut columns = Vec::new();
        let mut add = |name: &str, of: ColumnType, note: serde_json::Value| {
            columns.push((name.to_owned(), of));
            self.notes.push(note);
        };
        if header.is_by_timeline {
            add("id", text, json!({"column": "id"}));
        }
        add("measurement", text, json!({"column": "measurement"}));
        for tag in &header.tags {
            let name = flat_tag(tag, &header.columns);
            add(&name, text, json!({"column": name, "tag": tag}));
        }
        add("time", ColumnType::Time, json!({"column": "time"}));
        for (field, of) in header.columns.iter().zip(&header.types) {
            let name = flat_column(field);
            let note = json!({"column": name, "field": field, "type": of.map(ValueType::name)});
            add(&name, of.map_or(ColumnType::Text, ColumnType::Value), note);
        }
        let out = self.out.take().ok_or(SinkClosed)?;
        let writer = ColumnarWriter::new(out, self.form, &columns);
        self.writer = Some(writer.map_err(|error| closed(&error))?);
        Ok(())
    }

    fn series(&mut self, series: &Series<'_>) -> Result<(), SinkClosed> {
        self.texts.clear();
        if self.columns.header.is_by_timeline {
            self.texts.push(series.id.map(|id| id.to_string()));
        }
        self.texts.push(Some(series.measurement.to_owned()));
        let tags = self.columns.tags(series);
        self.texts.extend(tags.map(|value| value.map(str::to_owned)));
        self.columns.series(series);
        Ok(())
    }

    fn row(&mut self, time: i64, values: &[Option<ValueRef<'_>>]) -> Result<(), SinkClosed> {
        let texts = self.texts.iter().map(|text| match text {
            Some(text) => Cell::Value(ValueRef::String(text)),
            None => Cell::Null,
        });
        // `i64::MIN` marks a range without a start, which has no timestamp.
        let time = if time == i64::MIN {
            Cell::Null
        } else {
            Cell::Time(time)
        };
        let values = self.columns.cells(values);
        let values = values.map(|value| value.map_or(Cell::Null, Cell::Value));
        let writer = self.writer.as_mut().ok_or(SinkClosed)?;
        writer
            .row(texts.chain([time]).chain(values))
            .map_err(|error| closed(&error))
    }
}

impl ResultSink for ColumnarSink<'_> {
    fn end(&mut self, summary: &Summary) -> io::Result<()> {
        let mut text = vec![b'{'];
        put_summary(summary, self.options.plan, &mut text);
        text.push(b'}');
        let notes = [
            (
                "tideline.columns",
                Json::from(std::mem::take(&mut self.notes)).to_string(),
            ),
            ("tideline.request_id", self.options.request_id.clone()),
            ("tideline.summary", String::from_utf8_lossy(&text).into_owned()),
        ];
        match self.writer.take() {
            Some(writer) => writer.end(&notes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

/// Logs why writing failed and returns the error for the query.
fn closed(error: &io::Error) -> SinkClosed {
    tracing::debug!(%error, "failed to write a columnar result");
    SinkClosed
}
