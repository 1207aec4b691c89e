//! Groups of pushed series, as a Pushgateway has them.
//!
//! Nothing is shown again here, so a push is an ordinary write with the labels of its group. The end of a group is a write
//! of stale markers for its series.

use std::collections::{BTreeMap, HashSet};

use roaring::RoaringBitmap;
use tideline_engine::condition::Condition;
use tideline_engine::find::NEVER;
use tideline_engine::model::{ColumnData, Ordinal, PointBatch, PointGroup, ValueType};
use tideline_engine::{Engine, EngineError, Table, TimelineSelector, WriteOptions};
use tideline_ingest_protocols::prometheus::STALE_NAN_BITS;
use tideline_ingest_protocols::prometheus::{HISTOGRAM_FIELD, VALUE_FIELD};

/// The metric with the time of the last push of a group, named as a Pushgateway names it. Its series also list the groups
/// that there are.
pub const PUSH_TIME: &str = "push_time_seconds";
/// Series that one request ends.
const ENDED_SERIES_MAX: u64 = 100_000;

/// Marks the series of a group as ended. A more special group, whose series bear the same labels and more, goes on.
///
/// # Errors
///
/// The group has more than 100,000 series, the clock is in doubt, or the engine fails.
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
    // A marker that is a number ends a series of native histograms as well.
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

/// The labels that series bear: those with a value.
fn borne(labels: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    let labels = labels.iter().map(|(name, value)| (&**name, &**value));
    labels.filter(|(_, value)| !value.is_empty())
}

/// Series that bear all labels of a group.
fn condition(labels: &BTreeMap<String, String>) -> Condition {
    let leaf = |(name, value): (&str, &str)| Condition::tag(name, value);
    Condition::And(borne(labels).map(leaf).collect())
}

/// Stale markers for the series of a group among those that bear its labels; none where the group was never pushed.
fn ended(
    table: &Table,
    labels: &BTreeMap<String, String>,
    selected: &RoaringBitmap,
    pushed: &HashSet<String>,
    now: i64,
) -> Vec<PointGroup> {
    let reader = table.catalog().reader();
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

/// A stale marker for each timeline.
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
