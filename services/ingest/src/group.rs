//! Groups of pushed series, compatible with the Prometheus Pushgateway.
//!
//! Unlike a Pushgateway, the database does not keep the last push for scraping. A push is therefore an ordinary write
//! with the labels of its group, and deleting a group writes stale markers for its series.

use std::collections::{BTreeMap, HashSet};

use roaring::RoaringBitmap;
use tideline_engine::condition::Condition;
use tideline_engine::find::NEVER;
use tideline_engine::model::{ColumnData, Ordinal, PointBatch, PointGroup, ValueType};
use tideline_engine::{Engine, EngineError, Table, TimelineSelector, WriteOptions};
use tideline_ingest_protocols::prometheus::STALE_NAN_BITS;
use tideline_ingest_protocols::prometheus::{HISTOGRAM_FIELD, VALUE_FIELD};

/// Metric that holds the time of the last push of a group; a Pushgateway uses the same name. The series of this
/// metric also serve as the list of existing groups.
pub const PUSH_TIME: &str = "push_time_seconds";
/// Maximum number of series that one request can mark as ended.
const ENDED_SERIES_MAX: u64 = 100_000;

/// Writes stale markers for all series of a group. Series of a more specific group, which has additional labels, are
/// not marked.
///
/// # Errors
///
/// - [`EngineError::OverLimit`] if more than 100,000 series have the labels of the group.
/// - [`EngineError::ClockInDoubt`] if the current time is not reliable.
/// - Errors of the selection and of the write.
pub fn end(engine: &Engine, table: &Table, labels: &BTreeMap<String, String>) -> Result<(), EngineError> {
    let selector = TimelineSelector::Condition(condition(labels));
    let selected = engine.selected(table, &selector, NEVER)?;
    if selected.len() > ENDED_SERIES_MAX {
        return Err(EngineError::OverLimit {
            what: "number of series of a group",
            limit: ENDED_SERIES_MAX,
            actual: selected.len(),
        });
    }
    // A float stale marker also ends a series of native histograms.
    let samples = engine.fields(table).into_iter().filter(|field| {
        let has = |name, kind| field.field == name && field.types.contains(&kind);
        has(VALUE_FIELD, ValueType::Float) || has(HISTOGRAM_FIELD, ValueType::Histogram)
    });
    let pushed: HashSet<String> = samples.map(|field| field.measurement).collect();
    let now = engine.need_arrival_time()?;
    let batch = PointBatch {
        groups: ended(table, labels, &selected, &pushed, now.nanos()),
        rejects: Vec::new(),
    };
    engine.write(table, batch, &WriteOptions::default())?;
    Ok(())
}

/// Returns the labels with a non-empty value. Series do not store labels with an empty value.
fn borne(labels: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    let labels = labels.iter().map(|(name, value)| (&**name, &**value));
    labels.filter(|(_, value)| !value.is_empty())
}

/// Returns the condition for series that have all labels of a group.
fn condition(labels: &BTreeMap<String, String>) -> Condition {
    let leaf = |(name, value): (&str, &str)| Condition::tag(name, value);
    Condition::And(borne(labels).map(leaf).collect())
}

/// Returns stale markers for the series of a group. `selected` contains all series that have the labels of the
/// group. The result is empty if the group was never pushed.
fn ended(
    table: &Table,
    labels: &BTreeMap<String, String>,
    selected: &RoaringBitmap,
    pushed: &HashSet<String>,
    now: i64,
) -> Vec<PointGroup> {
    let reader = table.reader();
    let entries = || {
        selected
            .iter()
            .filter_map(|ordinal| reader.entry(Ordinal(ordinal)))
    };
    let own = borne(labels).count();
    let (mut is_pushed, mut special) = (false, Vec::new());
    for entry in entries().filter(|entry| entry.measurement() == PUSH_TIME) {
        match entry.tags().len() > own {
            true => special.push(entry),
            false => is_pushed = true,
        }
    }
    let mut series: BTreeMap<&str, Vec<Ordinal>> = BTreeMap::new();
    for entry in entries().filter(|entry| is_pushed && pushed.contains(entry.measurement())) {
        let bears = |(name, value): (&str, &str)| entry.tag(name) == Some(value);
        if !special.iter().any(|special| special.tags().all(bears)) {
            series
                .entry(entry.measurement())
                .or_default()
                .push(entry.ordinal());
        }
    }
    let series = series.into_iter();
    series
        .map(|(measurement, timelines)| stale(measurement, timelines, now))
        .collect()
}

/// Returns one stale marker for each timeline.
fn stale(measurement: &str, timelines: Vec<Ordinal>, now: i64) -> PointGroup {
    let rows = timelines.len();
    PointGroup {
        measurements: measurement.into(),
        fields: vec![VALUE_FIELD.into()],
        columns: vec![ColumnData::Float(vec![f64::from_bits(STALE_NAN_BITS); rows])],
        timelines,
        timestamps: vec![now; rows],
        lines: vec![1; rows],
    }
}
