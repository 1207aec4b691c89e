//! Metadata of metrics: type, help and unit by metric name. Each metric is kept in memory and in one row.
//!
//! Senders repeat their metadata every minute, so known metadata costs a lookup and no write. Senders may also
//! contradict each other with every request. A known value is therefore replaced at most once a minute, and never by
//! an empty one.

mod row;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tideline_backend::{Backend, Stamp, WRITE_BYTES_MAX};
use tideline_key_codec::{parse_named_key, space};
use tideline_model::{TableId, Timestamp};

use self::row::{decode, encode};
use crate::catalog::Catalog;
use crate::change::{Changed, Commit, EntryRows, RowKind};
use crate::store::{ROWS_AT_ONCE, each_row};
use crate::unsaved_rows::UnsavedRows;
use crate::{CatalogError, Result};

/// Maximum number of metrics with stored metadata per table; metadata of further metrics is dropped.
pub const METRICS_MAX: usize = 100_000;
/// Maximum number of bytes of stored metadata per table: names, help texts and units, plus [`METRIC_BYTES`] per
/// metric. This approximates the memory usage. Metadata beyond it is dropped.
pub const METADATA_BYTES_MAX: usize = 32 << 20;
/// Maximum length of a metric name, in bytes; metadata with a longer name is dropped.
pub const METRIC_NAME_BYTES_MAX: usize = 1_024;
/// Maximum length of a help text, in bytes; a longer text is truncated.
pub const HELP_BYTES_MAX: usize = 2_048;
/// Maximum length of a unit, in bytes; a longer unit is truncated.
pub const UNIT_BYTES_MAX: usize = 128;
/// Approximate memory per metric in addition to its texts, in bytes.
pub const METRIC_BYTES: usize = 128;
/// Minimum time between two replacements of a metric's values, in nanoseconds. Senders that contradict each other
/// thus cost at most one row write per metric in this time.
const REPLACED_AGAIN_AFTER: i64 = 60 * 1_000_000_000;
/// Number of rows per write. A row has at most a few kilobytes, so a write stays within its byte limit.
const ROWS_PER_WRITE: usize = WRITE_BYTES_MAX / (4 * HELP_BYTES_MAX);
/// Minimum time between two warnings about dropped metadata, in nanoseconds.
const WARNED_AGAIN_AFTER: i64 = 3_600 * 1_000_000_000;

/// Metadata of a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricMetadata {
    /// Name of the metric or of its family.
    pub name: String,
    /// Type of the metric.
    pub kind: MetricKind,
    /// Description for humans; may be empty.
    pub help: String,
    /// Unit of the samples; may be empty.
    pub unit: String,
}

/// Type of a metric in OpenMetrics terms. The number of the variant is stored.
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
    /// All kinds, indexed by their stored number.
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

    /// Returns the name that Prometheus uses.
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

    /// Parses a type name; `None` if it is unknown to Prometheus. `untyped` is parsed as `Unknown`.
    pub fn parse(text: &str) -> Option<Self> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == text);
        known.or_else(|| (text == "untyped").then_some(Self::Unknown))
    }
}

/// Metadata of the metrics of one table.
#[derive(Debug)]
pub struct MetadataOfMetrics {
    table: TableId,
    remembered: RwLock<Remembered>,
    /// Held while metadata is changed, until the log has responded.
    editing: Mutex<()>,
    /// Names of metrics whose row may differ from memory.
    unsaved: UnsavedRows,
    left_out: Mutex<LeftOut>,
}

#[derive(Debug, Default)]
struct Remembered {
    by_name: BTreeMap<Box<str>, StoredMetadata>,
    /// Bytes as defined at [`METADATA_BYTES_MAX`].
    bytes: usize,
}

/// Statistics of dropped metadata.
#[derive(Debug, Default)]
struct LeftOut {
    count: u64,
    /// Time of the last warning.
    warned: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredMetadata {
    kind: MetricKind,
    help: Box<str>,
    unit: Box<str>,
    /// Time of the last replacement of a value since the start; `None` before the first replacement.
    replaced: Option<Timestamp>,
}

/// Changes to store for the metadata of one call.
#[derive(Default)]
struct Changes<'m> {
    changed: BTreeMap<&'m str, StoredMetadata>,
    left_out: usize,
}

impl StoredMetadata {
    fn of(metric: &MetricMetadata) -> Self {
        Self {
            kind: metric.kind,
            help: cut(&metric.help, HELP_BYTES_MAX).into(),
            unit: cut(&metric.unit, UNIT_BYTES_MAX).into(),
            replaced: None,
        }
    }

    /// Returns true if the given metadata contains nothing new. An unknown type and empty texts are never new.
    fn has(&self, kind: MetricKind, help: &str, unit: &str) -> bool {
        let has = |known: &str, given: &str| given.is_empty() || known == given;
        (kind == MetricKind::Unknown || kind == self.kind)
            && has(&self.help, cut(help, HELP_BYTES_MAX))
            && has(&self.unit, cut(unit, UNIT_BYTES_MAX))
    }

    /// Returns the metadata merged with `metric`; `None` if nothing changes, or if a value would be replaced less than
    /// [`REPLACED_AGAIN_AFTER`] after the last replacement.
    fn merged(&self, metric: &MetricMetadata, now: Timestamp) -> Option<Self> {
        if self.has(metric.kind, &metric.help, &metric.unit) {
            return None;
        }
        let given = Self::of(metric);
        let mut is_replaced = false;
        let mut text = |known: &str, given: Box<str>| -> Box<str> {
            is_replaced |= !known.is_empty() && !given.is_empty() && *known != *given;
            if given.is_empty() { known.into() } else { given }
        };
        let (help, unit) = (text(&self.help, given.help), text(&self.unit, given.unit));
        let kind = match given.kind {
            MetricKind::Unknown => self.kind,
            kind => kind,
        };
        is_replaced |= self.kind != MetricKind::Unknown && kind != self.kind;
        if is_replaced
            && self
                .replaced
                .is_some_and(|at| !has_passed(at, now, REPLACED_AGAIN_AFTER))
        {
            return None;
        }
        Some(Self {
            kind,
            help,
            unit,
            replaced: if is_replaced { Some(now) } else { self.replaced },
        })
    }

    /// Returns the size as defined at [`METADATA_BYTES_MAX`].
    fn bytes(&self, name: &str) -> usize {
        METRIC_BYTES + name.len() + self.help.len() + self.unit.len()
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

impl Remembered {
    fn insert(&mut self, name: &str, known: StoredMetadata) {
        self.bytes += known.bytes(name);
        if let Some(before) = self.by_name.insert(name.into(), known) {
            self.bytes -= before.bytes(name);
        }
    }

    /// Computes the changes that result from `metrics`, in their order.
    fn changes<'m>(&self, metrics: &'m [MetricMetadata], now: Timestamp) -> Changes<'m> {
        let mut changes = Changes::default();
        let (mut count, mut bytes) = (self.by_name.len(), self.bytes);
        for metric in metrics {
            let name = metric.name.as_str();
            let before = changes.changed.get(name).or_else(|| self.by_name.get(name));
            let after = match before {
                Some(before) => before.merged(metric, now),
                None if (1..=METRIC_NAME_BYTES_MAX).contains(&name.len()) && count < METRICS_MAX => {
                    Some(StoredMetadata::of(metric))
                }
                None => {
                    changes.left_out += 1;
                    continue;
                }
            };
            let Some(after) = after else { continue };
            let total = bytes + after.bytes(name) - before.map_or(0, |before| before.bytes(name));
            if total > bytes && total > METADATA_BYTES_MAX {
                changes.left_out += 1;
                continue;
            }
            count += usize::from(before.is_none());
            bytes = total;
            changes.changed.insert(name, after);
        }
        changes
    }
}

impl MetadataOfMetrics {
    pub(crate) fn new(table: TableId) -> Self {
        Self {
            table,
            remembered: RwLock::default(),
            editing: Mutex::default(),
            unsaved: UnsavedRows::new(space::METADATA, table, ROWS_PER_WRITE),
            left_out: Mutex::default(),
        }
    }

    /// Reads all rows of the table. Damaged rows are skipped: they are written again when a sender repeats the
    /// metadata.
    pub(crate) fn load(&self, backend: &dyn Backend) -> Result<()> {
        let (mut damaged, mut first) = (0u64, None);
        each_metric(backend, self.table, &mut |row| match row {
            Ok((name, known)) => self.remembered.write().insert(name, known),
            Err(error) => {
                damaged += 1;
                first.get_or_insert(error);
            }
        })?;
        if let Some(error) = first {
            tracing::warn!(
                table = %self.table,
                %error,
                rows = damaged,
                "skipped damaged metadata rows of metrics; senders restore them when they repeat the metadata"
            );
        }
        Ok(())
    }

    /// Reads all rows of a table, and passes the error of each damaged row to `found`.
    ///
    /// # Errors
    ///
    /// [`CatalogError::Backend`] if the backend cannot be read.
    pub fn check(backend: &dyn Backend, table: TableId, found: &mut dyn FnMut(CatalogError)) -> Result<()> {
        each_metric(backend, table, &mut |row| {
            if let Err(error) = row {
                found(error);
            }
        })
    }

    /// Returns the metadata of one metric; `None` if no metadata is stored.
    pub fn get(&self, name: &str) -> Option<MetricMetadata> {
        let remembered = self.remembered.read();
        remembered.by_name.get(name).map(|known| known.named(name))
    }

    /// Returns true if metadata of the metric is stored and the given metadata contains nothing new; an unknown
    /// type and empty texts are never new. Does not allocate, because some senders repeat metadata with every
    /// sample.
    pub fn knows(&self, name: &str, kind: MetricKind, help: &str, unit: &str) -> bool {
        let remembered = self.remembered.read();
        let known = remembered.by_name.get(name);
        known.is_some_and(|known| known.has(kind, help, unit))
    }

    /// Returns the metadata of all metrics, sorted by name.
    pub fn all(&self) -> Vec<MetricMetadata> {
        let remembered = self.remembered.read();
        let all = remembered.by_name.iter();
        all.map(|(name, known)| known.named(name)).collect()
    }

    /// Returns the bytes of all metadata, as defined at [`METADATA_BYTES_MAX`].
    pub fn bytes(&self) -> usize {
        self.remembered.read().bytes
    }

    /// Applies committed metadata.
    pub(crate) fn apply(&self, metrics: Vec<(Box<str>, StoredMetadata)>) {
        let mut remembered = self.remembered.write();
        let names = metrics.iter().map(|(name, _)| name.clone());
        self.unsaved.add(&mut remembered, names);
        for (name, known) in metrics {
            remembered.insert(&name, known);
        }
    }

    /// Applies a row of a replayed journal entry, like [`apply`](Self::apply). A missing or damaged row is an
    /// error.
    pub(crate) fn replay(&self, name: &str, row: Option<&[u8]>) -> Result<()> {
        let known = row.and_then(|row| decode(name, row));
        let known = known.ok_or_else(|| CatalogError::DamagedMetadata(name.to_owned()))?;
        self.apply(vec![(name.into(), known)]);
        Ok(())
    }

    /// Writes the rows that are not durable yet, without a sync, and returns their names.
    pub(crate) fn write_rows(
        &self,
        backend: &dyn Backend,
        stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
    ) -> Result<BTreeSet<Box<str>>> {
        let row = |name: &str| Some(encode(name, &self.remembered.read().by_name[name]).into());
        self.unsaved.write(backend, stamp, row)
    }

    /// Marks written rows as durable.
    pub(crate) fn rows_synced(&self, written: &BTreeSet<Box<str>>) {
        self.unsaved.synced(written);
    }

    /// Counts dropped metadata, and logs a warning at most once per [`WARNED_AGAIN_AFTER`].
    fn note_left_out(&self, left_out: usize, now: Timestamp) {
        if left_out == 0 {
            return;
        }
        let mut noted = self.left_out.lock();
        noted.count += left_out as u64;
        if noted
            .warned
            .is_none_or(|at| has_passed(at, now, WARNED_AGAIN_AFTER))
        {
            noted.warned = Some(now);
            tracing::warn!(
                table = %self.table,
                left_out = noted.count,
                metrics_max = METRICS_MAX,
                bytes_max = METADATA_BYTES_MAX,
                name_bytes_max = METRIC_NAME_BYTES_MAX,
                "dropped metadata of metrics: too many metrics, too many bytes, or an empty or too long name"
            );
        }
    }
}

impl Catalog {
    /// Stores metadata of metrics. The metadata is durable and visible on return. Returns the number of items that were
    /// dropped because of [`METRICS_MAX`], [`METADATA_BYTES_MAX`], [`METRIC_NAME_BYTES_MAX`] or an empty name.
    ///
    /// Known metadata costs a lookup. An unknown type and empty texts never replace a value. A different value does, at
    /// most once a minute per metric, because senders may contradict each other. This limit also applies to several
    /// items with the same name in one call.
    ///
    /// # Errors
    ///
    /// [`CatalogError::NotCommitted`] if a commit fails; a part of the metadata may be stored then.
    pub fn put_metadata(
        self: &Arc<Self>,
        metrics: &[MetricMetadata],
        now: Timestamp,
        commit: &Commit<'_>,
    ) -> Result<usize> {
        let metadata = &self.metadata;
        let mut changes = metadata.remembered.read().changes(metrics, now);
        if !changes.changed.is_empty() {
            let _editing = metadata.editing.lock();
            // Another call may have changed the metadata meanwhile.
            changes = metadata.remembered.read().changes(metrics, now);
            let mut changed = changes.changed.into_iter().peekable();
            while changed.peek().is_some() {
                let mut rows = EntryRows::new(self.table);
                let mut taken = Vec::new();
                while let Some((name, known)) = changed.next_if(|_| !rows.is_full()) {
                    rows.push(RowKind::Metric, name.as_bytes(), Some(&encode(name, &known)));
                    taken.push((name.into(), known));
                }
                self.commit(rows, Changed::Metrics(taken), commit)?;
            }
        }
        metadata.note_left_out(changes.left_out, now);
        Ok(changes.left_out)
    }
}

/// Callback for a decoded metadata row, or for its error.
type VisitMetric<'a> = dyn FnMut(Result<(&str, StoredMetadata)>) + 'a;

/// Passes each decoded metadata row of a table, or its error, to `visit`.
fn each_metric(backend: &dyn Backend, table: TableId, visit: &mut VisitMetric<'_>) -> Result<()> {
    each_row(backend, space::METADATA, table, ROWS_AT_ONCE, &mut |rows| {
        for row in &rows {
            let name = parse_named_key(&row.key).and_then(|(_, name)| std::str::from_utf8(name).ok());
            visit(match name {
                Some(name) => match decode(name, &row.value) {
                    Some(known) => Ok((name, known)),
                    None => Err(CatalogError::DamagedMetadata(name.to_owned())),
                },
                None => Err(CatalogError::DamagedKey(row.key.len())),
            });
        }
        Ok(())
    })
}

/// Returns true if at least `nanos` nanoseconds separate the two timestamps, in either direction. A clock that was set
/// back therefore does not suppress replacements and warnings.
fn has_passed(at: Timestamp, now: Timestamp, nanos: i64) -> bool {
    now.nanos().abs_diff(at.nanos()) >= nanos.unsigned_abs()
}

/// Returns the longest prefix of at most `bytes_max` bytes.
fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests;
