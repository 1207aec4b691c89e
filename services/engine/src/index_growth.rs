//! Growth of wide tables and their indexes: samples over time, and the time at which a size is reached.
//!
//! Each survey of a table adds a sample of its rows and of the entries or documents of its indexes. Samples are kept in
//! one file in the folder of the search index. The file is disposable: without it, forecasts begin again.

use std::collections::BTreeMap;
use std::path::Path;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tideline_model::TableId;
use tideline_model::time::NANOS_PER_DAY;

use crate::engine::Engine;
use crate::row_surveys::TableSurvey;
use crate::wide_table::WideTable;

/// Name of the file.
const FILE: &str = "growth.json";
/// Maximum number of samples of a table or index. If there are more, every second one is dropped.
const SAMPLES_MAX: usize = 128;
/// Period before the last sample from which growth is computed, in nanoseconds: 30 days.
const WINDOW: i64 = 30 * NANOS_PER_DAY;
/// Minimum time between the first and the last sample of a forecast, in nanoseconds: one hour.
const SPAN_MIN: i64 = 3_600_000_000_000;

/// Size of a table or index at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrowthSample {
    /// Time in nanoseconds since the epoch.
    pub at: i64,
    /// Number of rows, entries or documents.
    pub rows: u64,
    /// Stored bytes.
    pub bytes: u64,
}

/// Kind of a growing object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrowingKind {
    /// The rows of the table.
    Table,
    /// A secondary index.
    Secondary,
    /// A search index.
    Search,
}

/// Growth of a table or index.
#[derive(Debug, Clone, PartialEq)]
pub struct Growing {
    /// Table or kind of the index.
    pub kind: GrowingKind,
    /// Name of the index or table.
    pub name: String,
    /// Samples, oldest first.
    pub samples: Vec<GrowthSample>,
}

/// Growth per day.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GrowthRate {
    /// Rows, entries or documents per day.
    pub rows: f64,
    /// Bytes per day.
    pub bytes: f64,
}

impl Growing {
    /// Returns the growth per day: the slope of the least-squares line through the samples of the last 30 days. `None`
    /// if these samples span less than an hour.
    pub fn rate(&self) -> Option<GrowthRate> {
        let last = self.samples.last()?;
        let recent: Vec<&GrowthSample> = self
            .samples
            .iter()
            .filter(|sample| sample.at >= last.at.saturating_sub(WINDOW))
            .collect();
        if last.at.saturating_sub(recent.first()?.at) < SPAN_MIN {
            return None;
        }
        let days = |at: i64| (at - last.at) as f64 / NANOS_PER_DAY as f64;
        let slope = |size: &dyn Fn(&GrowthSample) -> f64| {
            let count = recent.len() as f64;
            let mean_day = recent.iter().map(|sample| days(sample.at)).sum::<f64>() / count;
            let mean_size = recent.iter().map(|sample| size(sample)).sum::<f64>() / count;
            let (mut products, mut squares) = (0.0, 0.0);
            for sample in &recent {
                let day = days(sample.at) - mean_day;
                products += day * (size(sample) - mean_size);
                squares += day * day;
            }
            products / squares
        };
        Some(GrowthRate {
            rows: slope(&|sample| sample.rows as f64),
            bytes: slope(&|sample| sample.bytes as f64),
        })
    }
}

/// Returns the time at which a size that grows by `per_day` reaches `mark`, in nanoseconds since the epoch. `at` is the
/// time at which the size was measured; it is returned if the size has already reached the mark. `None` if the mark is
/// not reached within 100 years.
pub fn reached(at: i64, size: u64, per_day: f64, mark: u64) -> Option<i64> {
    if size >= mark {
        return Some(at);
    }
    let days = (mark - size) as f64 / per_day;
    (per_day > 0.0 && days < 36_500.0).then(|| at.saturating_add((days * NANOS_PER_DAY as f64) as i64))
}

/// Samples of all tables and indexes, by the id of the table or index.
#[derive(Debug, Default)]
pub(crate) struct GrowthLog(Mutex<Option<Samples>>);

type Samples = BTreeMap<u32, Vec<GrowthSample>>;

impl GrowthLog {
    /// Calls `change` with the samples, which are read from the file at the first call. Writes the file if `change`
    /// returns true.
    fn with<T>(&self, folder: &Path, change: impl FnOnce(&mut Samples) -> (T, bool)) -> T {
        let mut held = self.0.lock();
        let samples = held.get_or_insert_with(|| {
            let stored = std::fs::read(folder.join(FILE)).ok();
            let stored = stored.and_then(|stored| serde_json::from_slice(&stored).ok());
            stored.unwrap_or_default()
        });
        let (result, is_changed) = change(samples);
        if is_changed && let Err(error) = write(folder, samples) {
            tracing::warn!(%error, "the sizes of indexes could not be stored; forecasts begin again after a restart");
        }
        result
    }
}

fn write(folder: &Path, samples: &Samples) -> std::io::Result<()> {
    let (file, new) = (folder.join(FILE), folder.join("growth.new"));
    std::fs::create_dir_all(folder)?;
    std::fs::write(&new, serde_json::to_vec(samples)?)?;
    std::fs::rename(new, file)
}

/// Adds a sample. A sample at or before the last one, as after a change of the clock, is ignored.
fn add(samples: &mut Vec<GrowthSample>, sample: GrowthSample) {
    if samples.last().is_some_and(|last| last.at >= sample.at) {
        return;
    }
    samples.push(sample);
    if samples.len() > SAMPLES_MAX {
        let last = samples.len() - 1;
        let mut number = 0;
        samples.retain(|_| {
            number += 1;
            (number - 1) % 2 == 0 || number - 1 == last
        });
    }
}

impl Engine {
    /// Adds samples of the sizes that a survey has found.
    pub(crate) fn note_growth(&self, table: &WideTable, survey: &TableSurvey) {
        let sample = |rows, bytes| GrowthSample {
            at: survey.at,
            rows,
            bytes,
        };
        let id = table.table().points().id();
        let mut found = vec![(id.0, sample(survey.rows.rows, survey.stored_bytes()))];
        for (index, surveyed) in table.indexes().iter().zip(&survey.indexes) {
            let entries = &surveyed.entries;
            found.push((index.id().0, sample(entries.rows, entries.stored_bytes)));
        }
        for spec in &table.settings().search_indexes {
            if let Some((documents, bytes)) = self.search_size(TableId(spec.id)) {
                found.push((spec.id, sample(documents, bytes)));
            }
        }
        let known: Vec<u32> = self
            .tables()
            .iter()
            .flat_map(|table| {
                let spec = table.spec();
                let wide = spec.wide.iter();
                let indexes: Vec<u32> = wide
                    .flat_map(|wide| {
                        let secondary = wide.indexes.iter().map(|index| index.id);
                        secondary.chain(wide.search_indexes.iter().map(|index| index.id))
                    })
                    .collect();
                std::iter::once(table.points().id().0).chain(indexes)
            })
            .collect();
        self.growth_log.with(&self.settings.index_dir, |samples| {
            samples.retain(|id, _| known.contains(id));
            for (id, sample) in found {
                add(samples.entry(id).or_default(), sample);
            }
            ((), true)
        });
    }

    /// Returns the samples of a table and of its indexes.
    pub fn growing(&self, table: &WideTable) -> Vec<Growing> {
        let name = table.table().name().to_string();
        let mut all = vec![(table.table().points().id().0, GrowingKind::Table, name)];
        let indexes = table.indexes().iter();
        all.extend(indexes.map(|index| (index.id().0, GrowingKind::Secondary, index.name().to_owned())));
        let searches = table.settings().search_indexes.iter();
        all.extend(searches.map(|spec| (spec.id, GrowingKind::Search, spec.name.clone())));
        self.growth_log.with(&self.settings.index_dir, |samples| {
            let growing = all.into_iter().map(|(id, kind, name)| Growing {
                kind,
                name,
                samples: samples.get(&id).cloned().unwrap_or_default(),
            });
            (growing.collect(), false)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn growing(sizes: impl Iterator<Item = (i64, u64)>) -> Growing {
        let mut samples = Vec::new();
        for (at, rows) in sizes {
            add(
                &mut samples,
                GrowthSample {
                    at,
                    rows,
                    bytes: 60 * rows,
                },
            );
        }
        Growing {
            kind: GrowingKind::Search,
            name: "all".to_owned(),
            samples,
        }
    }

    #[test]
    fn the_date_of_a_mark_is_found_on_synthetic_growth() {
        // Ten million documents a day for 60 days, plus a daily sine wave with an amplitude of a million.
        let size = |hour: i64| {
            let wave = 1_000_000.0 * (hour as f64 / 24.0 * std::f64::consts::TAU).sin();
            (hour as f64 * 10_000_000.0 / 24.0 + wave + 1e9) as u64
        };
        let growing = growing((0..60 * 24).map(|hour| (hour * NANOS_PER_DAY / 24, size(hour))));
        assert!(growing.samples.len() <= SAMPLES_MAX);
        let rate = growing.rate().expect("enough samples");
        assert!((9.8e6..10.2e6).contains(&rate.rows), "{rate:?}");
        assert!((59.0..61.0).contains(&(rate.bytes / rate.rows)));
        let last = growing.samples.last().expect("a sample");
        let mark = 20_000_000_000;
        let date = reached(last.at, last.rows, rate.rows, mark).expect("it grows");
        let days = (date - last.at) as f64 / NANOS_PER_DAY as f64;
        let expected = (mark - last.rows) as f64 / 10_000_000.0;
        assert!((days - expected).abs() < expected * 0.02, "{days} {expected}");
    }

    #[test]
    fn no_date_without_growth_or_samples() {
        let still = growing((0..10).map(|hour| (hour * NANOS_PER_DAY / 24, 1_000)));
        let rate = still.rate().expect("enough samples");
        assert_eq!(reached(0, 1_000, rate.rows, 2_000), None);
        assert_eq!(reached(7, 2_000, rate.rows, 2_000), Some(7));
        assert_eq!(growing(std::iter::once((0, 5))).rate(), None);
        assert_eq!(growing([(0, 5), (1_000, 6)].into_iter()).rate(), None);
    }

    #[test]
    fn samples_survive_a_restart_and_a_damaged_file_is_ignored() {
        let folder = tempfile::tempdir().expect("a folder");
        let sample = GrowthSample {
            at: 1,
            rows: 2,
            bytes: 3,
        };
        let log = GrowthLog::default();
        log.with(folder.path(), |samples| {
            add(samples.entry(7).or_default(), sample);
            ((), true)
        });
        let read = || GrowthLog::default().with(folder.path(), |samples| (samples.get(&7).cloned(), false));
        assert_eq!(read(), Some(vec![sample]));
        std::fs::write(folder.path().join(FILE), b"{").expect("it is written");
        assert_eq!(read(), None);
    }
}
