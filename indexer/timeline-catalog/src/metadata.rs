//! What senders say of metrics: type, help and unit by name. Kept in memory and as a row each.
//!
//! Senders repeat all of it every minute, so what is known already costs a look-up and no write.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tideline_backend::{Backend, RowChange, Stamp, WRITE_BYTES_MAX, WRITE_ROWS_MAX};
use tideline_key_codec::{named_key, parse_named_key, space, table_rows};
use tideline_model::TableId;
use xxhash_rust::xxh3::xxh3_64;

use crate::store::{ROWS_AT_ONCE, each_row, remove_rows};
use crate::{CatalogError, Result};

/// Most metrics of a table that something is remembered of; what is said of others is left out.
pub const METRICS_MAX: usize = 100_000;
/// Longest name of a metric, in bytes; what is said of longer ones is left out.
pub const METRIC_NAME_BYTES_MAX: usize = 1_024;
/// Longest help, in bytes; longer ones are cut.
pub const HELP_BYTES_MAX: usize = 2_048;
/// Longest unit, in bytes; longer ones are cut.
pub const UNIT_BYTES_MAX: usize = 128;
/// The layout of rows.
const VERSION: u8 = 1;

/// What is said of a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricMetadata {
    /// Its name, or that of the family that it is of.
    pub name: String,
    /// What its samples are.
    pub kind: MetricKind,
    /// What it is about, for people; may be empty.
    pub help: String,
    /// The unit of its samples; may be empty.
    pub unit: String,
}

/// What samples of a metric are, in the words of OpenMetrics. The number is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
#[allow(missing_docs, reason = "each is the type of its name")]
pub enum MetricKind {
    #[default]
    Unknown = 0,
    Counter = 1,
    Gauge = 2,
    Summary = 3,
    Histogram = 4,
    GaugeHistogram = 5,
    Info = 6,
    StateSet = 7,
}

impl MetricKind {
    /// Every kind, by its stored number.
    pub const ALL: [Self; 8] = [
        Self::Unknown,
        Self::Counter,
        Self::Gauge,
        Self::Summary,
        Self::Histogram,
        Self::GaugeHistogram,
        Self::Info,
        Self::StateSet,
    ];

    /// As Prometheus writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Summary => "summary",
            Self::Histogram => "histogram",
            Self::GaugeHistogram => "gaugehistogram",
            Self::Info => "info",
            Self::StateSet => "stateset",
        }
    }

    /// What a text means; `None` where it is none of the kinds. `untyped` is unknown.
    pub fn parse(text: &str) -> Option<Self> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == text);
        known.or_else(|| (text == "untyped").then_some(Self::Unknown))
    }
}

/// What is remembered of the metrics of one table.
#[derive(Debug)]
pub struct MetadataOfMetrics {
    table: TableId,
    by_name: RwLock<BTreeMap<Box<str>, Known>>,
    /// Held while rows are written, so that memory and rows see the same order.
    writing: Mutex<()>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    kind: MetricKind,
    help: Box<str>,
    unit: Box<str>,
}

impl Known {
    fn of(metric: &MetricMetadata) -> Self {
        Self {
            kind: metric.kind,
            help: cut(&metric.help, HELP_BYTES_MAX).into(),
            unit: cut(&metric.unit, UNIT_BYTES_MAX).into(),
        }
    }

    fn is(&self, kind: MetricKind, help: &str, unit: &str) -> bool {
        self.kind == kind
            && *self.help == *cut(help, HELP_BYTES_MAX)
            && *self.unit == *cut(unit, UNIT_BYTES_MAX)
    }

    fn named(&self, name: &str) -> MetricMetadata {
        MetricMetadata {
            name: name.to_owned(),
            kind: self.kind,
            help: self.help.to_string(),
            unit: self.unit.to_string(),
        }
    }
}

impl MetadataOfMetrics {
    pub(crate) fn new(table: TableId) -> Self {
        Self {
            table,
            by_name: RwLock::default(),
            writing: Mutex::default(),
        }
    }

    /// Reads all rows of the table.
    pub(crate) fn load(&self, backend: &dyn Backend) -> Result<()> {
        each_row(backend, space::METADATA, self.table, ROWS_AT_ONCE, &mut |rows| {
            for row in rows {
                let (_, name) = parse_named_key(&row.key).ok_or(CatalogError::DamagedKey(row.key.len()))?;
                let name = std::str::from_utf8(name).map_err(|_| CatalogError::DamagedKey(row.key.len()))?;
                let known =
                    decode(name, &row.value).ok_or_else(|| CatalogError::DamagedMetadata(name.to_owned()))?;
                self.by_name.write().insert(name.into(), known);
            }
            Ok(())
        })
    }

    /// What is known of one metric.
    pub fn get(&self, name: &str) -> Option<MetricMetadata> {
        self.by_name.read().get(name).map(|known| known.named(name))
    }

    /// Whether just this is known of a metric. Allocates nothing: some senders say it again with every sample.
    pub fn knows(&self, name: &str, kind: MetricKind, help: &str, unit: &str) -> bool {
        let by_name = self.by_name.read();
        by_name.get(name).is_some_and(|known| known.is(kind, help, unit))
    }

    /// What is known of all metrics, by name.
    pub fn all(&self) -> Vec<MetricMetadata> {
        let by_name = self.by_name.read();
        by_name.iter().map(|(name, known)| known.named(name)).collect()
    }

    /// Remembers what is said of metrics, in the place of what was said before; durable and visible on return. Returns how
    /// many were left out because of [`METRICS_MAX`] or [`METRIC_NAME_BYTES_MAX`], or for want of a name.
    ///
    /// What is known already costs a look-up. Of several of one name the last counts.
    pub fn put(
        &self,
        backend: &dyn Backend,
        metrics: &[MetricMetadata],
        stamp: &mut dyn FnMut() -> Stamp,
    ) -> Result<usize> {
        let is_named = |metric: &&MetricMetadata| (1..=METRIC_NAME_BYTES_MAX).contains(&metric.name.len());
        let is_new = |by_name: &BTreeMap<Box<str>, Known>, metric: &MetricMetadata| {
            by_name
                .get(&*metric.name)
                .is_none_or(|known| !known.is(metric.kind, &metric.help, &metric.unit))
        };
        let named = || metrics.iter().filter(is_named);
        let unnamed = metrics.len() - named().count();
        if !named().any(|metric| is_new(&self.by_name.read(), metric)) {
            return Ok(unnamed);
        }
        let _writing = self.writing.lock();
        let (mut changed, mut left_out) = (BTreeMap::new(), unnamed);
        {
            let by_name = self.by_name.read();
            let mut count = by_name.len();
            for metric in named() {
                let is_more = !by_name.contains_key(&*metric.name) && !changed.contains_key(&*metric.name);
                if is_more && count >= METRICS_MAX {
                    left_out += 1;
                    continue;
                }
                count += usize::from(is_more);
                changed.insert(metric.name.as_str(), Known::of(metric));
            }
            changed.retain(|name, known| by_name.get(*name) != Some(known));
        }
        let changed: Vec<(&str, Known)> = changed.into_iter().collect();
        // A row is at most a few kilobytes, so this many stay within the bytes of a write.
        let at_once = WRITE_ROWS_MAX.min(WRITE_BYTES_MAX / (4 * HELP_BYTES_MAX));
        for group in changed.chunks(at_once) {
            let rows = group.iter().map(|(name, known)| RowChange {
                key: named_key(self.table, name.as_bytes()).into(),
                value: Some(Bytes::from(encode(name, known))),
            });
            let (partition, _) = table_rows(space::METADATA, self.table);
            backend.write(partition, &rows.collect::<Vec<_>>(), stamp())?;
            let mut by_name = self.by_name.write();
            by_name.extend(group.iter().map(|(name, known)| ((*name).into(), known.clone())));
        }
        Ok(left_out)
    }

    /// Deletes all rows of a dropped table.
    pub(crate) fn remove_all(
        backend: &dyn Backend,
        table: TableId,
        stamp: &mut dyn FnMut() -> Stamp,
    ) -> Result<()> {
        remove_rows(backend, space::METADATA, table, stamp)
    }
}

/// The beginning of a text, at most so many bytes.
fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The row of a metric, as `FORMAT.md` draws it.
fn encode(name: &str, known: &Known) -> Vec<u8> {
    let mut row = vec![VERSION, known.kind as u8, known.unit.len() as u8];
    row.extend_from_slice(known.unit.as_bytes());
    row.extend_from_slice(known.help.as_bytes());
    let checksum = checksum(name, &row);
    row.extend_from_slice(&checksum);
    row
}

fn decode(name: &str, row: &[u8]) -> Option<Known> {
    let (content, stored) = row.split_last_chunk::<4>()?;
    if checksum(name, content) != *stored {
        return None;
    }
    let ([VERSION, kind, unit], texts) = content.split_first_chunk::<3>()? else {
        return None;
    };
    let (unit, help) = texts.split_at_checked(usize::from(*unit))?;
    Some(Known {
        kind: *MetricKind::ALL.get(usize::from(*kind))?,
        help: std::str::from_utf8(help).ok()?.into(),
        unit: std::str::from_utf8(unit).ok()?.into(),
    })
}

/// Ties a row to its name.
fn checksum(name: &str, content: &[u8]) -> [u8; 4] {
    let all = [name.as_bytes(), content].concat();
    (xxh3_64(&all) as u32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};

    use super::*;

    fn metric(name: &str, kind: MetricKind, help: &str, unit: &str) -> MetricMetadata {
        MetricMetadata {
            name: name.into(),
            kind,
            help: help.into(),
            unit: unit.into(),
        }
    }

    /// Rows are on disk: these bytes must open for ever.
    #[test]
    fn golden_row() {
        let known = Known::of(&metric("up", MetricKind::Gauge, "Is it up?", "s"));
        let row = encode("up", &known);
        let golden = [&[1, 2, 1][..], b"sIs it up?", &[135, 35, 87, 125]].concat();
        assert_eq!(row, golden);
        assert_eq!(decode("up", &golden), Some(known));
        assert_eq!(decode("down", &golden), None, "a row belongs to its name");
        for at in 0..golden.len() * 8 {
            let mut flipped = golden.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            assert_eq!(decode("up", &flipped), None, "bit {at}");
        }
    }

    #[test]
    fn kinds_are_read_as_they_are_written() {
        for (at, kind) in MetricKind::ALL.into_iter().enumerate() {
            assert_eq!((MetricKind::parse(kind.name()), kind as usize), (Some(kind), at));
        }
        assert_eq!(MetricKind::parse("untyped"), Some(MetricKind::Unknown));
        assert_eq!(MetricKind::parse("thing"), None);
    }

    #[test]
    fn what_is_said_is_durable_and_what_is_known_is_not_written_again() {
        let disk = MemoryDisk::new(Character::Embedded);
        let backend = MemoryBackend::open(&disk);
        let mut writes = 0;
        let mut stamp = || {
            writes += 1;
            Stamp(writes)
        };
        let kept = MetadataOfMetrics::new(TableId(7));
        let said = [
            metric("b", MetricKind::Counter, "old", ""),
            metric("a", MetricKind::Unknown, "", "bytes"),
            metric("b", MetricKind::Counter, "new", ""),
            metric("", MetricKind::Counter, "nobody", ""),
            metric(&"n".repeat(1_025), MetricKind::Counter, "long", ""),
            metric("long", MetricKind::Info, &"ä".repeat(2_000), &"ü".repeat(65)),
        ];
        assert_eq!(kept.put(&backend, &said, &mut stamp).expect("written"), 2);
        assert_eq!(kept.put(&backend, &said[1..3], &mut stamp).expect("written"), 0);
        assert_eq!(kept.put(&backend, &said[5..], &mut stamp).expect("written"), 0);
        let loaded = MetadataOfMetrics::new(TableId(7));
        loaded.load(&backend).expect("sound rows");
        assert_eq!(loaded.all(), kept.all());
        assert_eq!(loaded.get("b"), Some(said[2].clone()));
        assert_eq!(loaded.get("a"), Some(said[1].clone()));
        let long = loaded.get("long").expect("known");
        assert_eq!((long.help.len(), long.unit.len()), (2_048, 128));
        let others = MetadataOfMetrics::new(TableId(8));
        others.put(&backend, &said[..1], &mut stamp).expect("written");
        MetadataOfMetrics::remove_all(&backend, TableId(7), &mut stamp).expect("written");
        for (table, left) in [(7, 0), (8, 1)] {
            let loaded = MetadataOfMetrics::new(TableId(table));
            loaded.load(&backend).expect("sound rows");
            assert_eq!(loaded.all().len(), left);
        }
        // One write for all that was new, one for the other table, one to remove.
        assert_eq!(writes, 3);
    }

    #[test]
    fn there_is_an_end_to_how_many_are_remembered() {
        let disk = MemoryDisk::new(Character::Embedded);
        let backend = MemoryBackend::open(&disk);
        let mut stamps = 0;
        let mut stamp = || {
            stamps += 1;
            Stamp(stamps)
        };
        let kept = MetadataOfMetrics::new(TableId(7));
        let many = (0..METRICS_MAX + 3).map(|at| metric(&format!("m{at}"), MetricKind::Gauge, "", ""));
        let many: Vec<MetricMetadata> = many.collect();
        assert_eq!(kept.put(&backend, &many, &mut stamp).expect("written"), 3);
        assert_eq!(kept.all().len(), METRICS_MAX);
        let changed = metric("m0", MetricKind::Counter, "", "");
        assert_eq!(
            kept.put(&backend, std::slice::from_ref(&changed), &mut stamp)
                .expect("written"),
            0
        );
        assert_eq!(kept.get("m0"), Some(changed));
    }
}
