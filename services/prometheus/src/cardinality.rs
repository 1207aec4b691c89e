//! Cardinality of a table: number of series, and the metric names and labels that contribute most.
//!
//! The numbers come from the schema, the catalog and the table statistics; no points are read.

use std::cmp::Reverse;

use hashbrown::HashMap;
use tideline_engine::catalog::CatalogReader;
use tideline_openapi::prometheus::{HeadStats, TsdbStat, TsdbStatus};
use tideline_promql::Result;
use tideline_promql::labels::METRIC_NAME;

use crate::error::{self, RequestError};
use crate::names::measurements;
use crate::parameters::Parameters;
use crate::time::millis;
use crate::view::SeriesView;

/// Default number of entries per list.
const LIMIT_DEFAULT: usize = 10;
/// Maximum number of entries per list.
const LIMIT_MAX: usize = 10_000;

/// Number of series, and the largest contributors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cardinality {
    /// Number of series. A timeline counts once for each metric of its measurement.
    pub series: u64,
    /// Number of distinct pairs of label and value, including metric names.
    pub label_pairs: u64,
    /// Metric names with their number of series, largest first.
    pub by_metric_name: Vec<(String, u64)>,
    /// Labels with their number of values, largest first.
    pub values_by_label: Vec<(String, u64)>,
    /// Labels with the bytes of their distinct values, largest first.
    pub bytes_by_label: Vec<(String, u64)>,
    /// Pairs `label=value` with the number of timelines that have the pair, largest first. A pair of a metric name has
    /// its number of series instead.
    pub by_label_pair: Vec<(String, u64)>,
    /// Oldest and newest stored timestamp in milliseconds since the epoch; `None` for a table
    /// without points.
    pub span: Option<(i64, i64)>,
}

/// Reads the number of entries per list for [`SeriesView::tsdb_status`]. Returns 10 if `limit` is
/// missing.
///
/// # Errors
///
/// [`RequestError::Invalid`] if `limit` is not a number from 1 to 10,000.
pub fn read_limit(parameters: &Parameters) -> error::Result<usize> {
    match parameters.text("limit") {
        "" => Ok(LIMIT_DEFAULT),
        text => match text.parse() {
            Ok(0) | Err(_) => Err(RequestError::invalid("limit must be a positive number")),
            Ok(limit) if limit > LIMIT_MAX => Err(RequestError::Invalid(format!(
                "limit must not exceed {LIMIT_MAX}"
            ))),
            Ok(limit) => Ok(limit),
        },
    }
}

impl SeriesView<'_> {
    /// Returns [`cardinality`](Self::cardinality) in the format of Prometheus' TSDB status.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`cardinality`](Self::cardinality).
    pub fn tsdb_status(&self, limit: usize) -> Result<TsdbStatus> {
        let chunk_count = self.engine().table_stats(self.table).segments;
        let found = self.cardinality(limit)?;
        let list = |counts: Vec<(String, u64)>| {
            let stat = |(name, value)| TsdbStat { name, value };
            counts.into_iter().map(stat).collect()
        };
        // Values that Prometheus reports for an empty head block.
        let (min_time, max_time) = found.span.unwrap_or((i64::MAX, i64::MIN));
        Ok(TsdbStatus {
            head_stats: HeadStats {
                num_series: found.series,
                num_label_pairs: found.label_pairs,
                chunk_count,
                min_time,
                max_time,
            },
            series_count_by_metric_name: list(found.by_metric_name),
            label_value_count_by_label_name: list(found.values_by_label),
            memory_in_bytes_by_label_name: list(found.bytes_by_label),
            series_count_by_label_value_pair: list(found.by_label_pair),
        })
    }

    /// Counts series and labels, and lists the `limit` largest of each kind.
    ///
    /// Visits each field of the table and each distinct value of its tags.
    ///
    /// # Errors
    ///
    /// `PromqlError::Canceled` if the request was cancelled, `PromqlError::Timeout` if its time is over.
    pub fn cardinality(&self, limit: usize) -> Result<Cardinality> {
        self.check()?;
        let metrics = measurements(self.table, &[]);
        let stats = self.engine().table_stats(self.table);
        let reader = self.table.reader();
        let timelines: HashMap<String, u64> = reader
            .measurement_counts()
            .map(|(name, count)| (name.text().to_owned(), u64::from(count)))
            .collect();
        let mut by_name: HashMap<&str, u64> = HashMap::new();
        for of in &metrics {
            let Some(timelines) = timelines.get(&*of.name) else {
                continue;
            };
            for metric in &of.metrics {
                *by_name.entry(&metric.name).or_default() += timelines;
            }
        }
        let keys: Vec<Key> = reader
            .tag_keys(&crate::listing::everything())
            .into_iter()
            .map(|key| Key::count(&reader, key.name))
            .collect();
        let pairs = reader.cardinality(limit).top_tag_values;
        drop(reader);
        let name = Key {
            name: METRIC_NAME.to_owned(),
            values: by_name.len() as u64,
            bytes: by_name.keys().map(|name| name.len() as u64).sum(),
        };
        let keys = || keys.iter().chain([&name]);
        let names = || by_name.iter().map(|(name, count)| (*name, *count));
        let pairs = pairs
            .iter()
            .map(|tag| (format!("{}={}", tag.key, tag.value), u64::from(tag.timelines)));
        let named = names().map(|(name, count)| (format!("{METRIC_NAME}={name}"), count));
        let milli = |(first, last)| (millis(first), millis(last));
        Ok(Cardinality {
            series: by_name.values().sum(),
            label_pairs: keys().map(|key| key.values).sum(),
            by_metric_name: largest(names().map(|(name, count)| (name.to_owned(), count)), limit),
            values_by_label: largest(keys().map(|key| (key.name.clone(), key.values)), limit),
            bytes_by_label: largest(keys().map(|key| (key.name.clone(), key.bytes)), limit),
            by_label_pair: largest(pairs.chain(named), limit),
            span: joined(stats.sealed_span, stats.head.span).map(milli),
        })
    }
}

/// Label with the number and the bytes of its values.
struct Key {
    name: String,
    values: u64,
    bytes: u64,
}

impl Key {
    fn count(reader: &CatalogReader<'_>, name: String) -> Self {
        let (mut values, mut bytes) = (0, 0);
        for (value, _) in reader.tag_counts(&name) {
            values += 1;
            bytes += value.text().len() as u64;
        }
        Self { name, values, bytes }
    }
}

fn joined(one: Option<(i64, i64)>, other: Option<(i64, i64)>) -> Option<(i64, i64)> {
    match (one, other) {
        (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
        (one, other) => one.or(other),
    }
}

/// Returns the `limit` largest entries, in descending order. Entries with equal counts are sorted by name. Entries with
/// a count of 0 are omitted.
fn largest(all: impl Iterator<Item = (String, u64)>, limit: usize) -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = all.filter(|(_, count)| *count > 0).collect();
    all.sort_by(|(a, more), (b, less)| Reverse(more).cmp(&Reverse(less)).then_with(|| a.cmp(b)));
    all.truncate(limit);
    all
}
