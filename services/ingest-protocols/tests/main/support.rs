//! Helpers: a resolver that numbers identities, and decoded rows in a comparable form.
//!
//! The comparison by rows is independent of how the decoder groups points.

use std::collections::HashMap;

use tideline_ingest_protocols::{DecodeOptions, series_key};
use tideline_model::{
    ColumnData, Identity, LineReject, Ordinal, PointBatch, RejectReason, SeriesResolver, Timestamp, Value,
};

/// Timestamp that the decoder gives to points without one.
pub(crate) const DEFAULT_TIME: i64 = 42_000_000_000;

/// Resolver that numbers identities in the order of their first occurrence.
#[derive(Debug, Default)]
pub(crate) struct NumberingResolver {
    pub(crate) identities: Vec<Identity>,
    known: HashMap<Vec<u8>, Ordinal>,
    ordinals: HashMap<Identity, Ordinal>,
}

impl NumberingResolver {
    /// Returns the number of distinct resolved keys.
    pub(crate) fn keys(&self) -> usize {
        self.known.len()
    }
}

impl SeriesResolver for NumberingResolver {
    fn resolve(&mut self, key: &[u8]) -> Result<Ordinal, RejectReason> {
        if let Some(ordinal) = self.known.get(key) {
            return Ok(*ordinal);
        }
        let identity = series_key::parse(key)?;
        let next = Ordinal(u32::try_from(self.identities.len()).expect("few identities"));
        let ordinal = *self.ordinals.entry(identity.clone()).or_insert(next);
        if ordinal == next {
            self.identities.push(identity);
        }
        self.known.insert(key.to_vec(), ordinal);
        Ok(ordinal)
    }
}

/// Returns the text of a reject; panics if the reason is not [`RejectReason::Unreadable`].
pub(crate) fn words(reject: &LineReject) -> &str {
    match &reject.reason {
        RejectReason::Unreadable(words) => words,
        other => panic!("{other:?}"),
    }
}

/// Decoded point.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) line: u32,
    pub(crate) identity: Identity,
    pub(crate) nanos: i64,
    pub(crate) fields: Vec<(String, Value)>,
}

/// Returns the points of a batch, sorted by line. Checks that all columns have the length of their group.
pub(crate) fn rows(batch: &PointBatch, resolver: &NumberingResolver) -> Vec<Row> {
    let mut rows = Vec::new();
    for group in &batch.groups {
        assert_ne!(group.rows(), 0, "a group without rows");
        assert_eq!(group.fields.len(), group.columns.len());
        assert_eq!(group.timelines.len(), group.rows());
        assert_eq!(group.lines.len(), group.rows());
        assert!(
            group.columns.iter().all(|column| column.len() == group.rows()),
            "uneven columns: {group:?}"
        );
        for row in 0..group.rows() {
            let identity = resolver.identities[group.timelines[row].0 as usize].clone();
            assert_eq!(identity.measurement(), group.measurements.of(row));
            let values = group.columns.iter().map(|column| value_at(column, row));
            rows.push(Row {
                line: group.lines[row],
                identity,
                nanos: group.timestamps[row],
                fields: group
                    .fields
                    .iter()
                    .map(|name| name.to_string())
                    .zip(values)
                    .collect(),
            });
        }
    }
    rows.sort_by_key(|row| row.line);
    rows
}

/// Formats each row as `name{label=value} fields @nanos`.
pub(crate) fn shown(rows: &[Row]) -> Vec<String> {
    let row = |row: &Row| {
        let tags = row.identity.tags().iter();
        let tags: Vec<String> = tags.map(|(name, value)| format!("{name}={value}")).collect();
        let fields = row.fields.iter().map(|(name, value)| match value {
            Value::Float(value) => format!("{name}={value}"),
            Value::Signed(value) => format!("{name}={value}i"),
            other => format!("{name}={other:?}"),
        });
        let fields: Vec<String> = fields.collect();
        format!(
            "{}{{{}}} {} @{}",
            row.identity.measurement(),
            tags.join(","),
            fields.join(" "),
            row.nanos
        )
    };
    rows.iter().map(row).collect()
}

pub(crate) fn options() -> DecodeOptions {
    DecodeOptions::new(Timestamp::from_nanos(DEFAULT_TIME).expect("in range"))
}

fn value_at(column: &ColumnData, row: usize) -> Value {
    match column {
        ColumnData::Float(values) => Value::Float(values[row]),
        ColumnData::Signed(values) => Value::Signed(values[row]),
        ColumnData::Unsigned(values) => Value::Unsigned(values[row]),
        ColumnData::Boolean(values) => Value::Boolean(values[row]),
        ColumnData::String(values) => Value::String(values.get(row).into()),
        ColumnData::Histogram(values) => Value::Histogram(values.get(row).into()),
    }
}
