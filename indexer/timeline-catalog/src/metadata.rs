//! What senders say of metrics: type, help and unit by name. Kept in memory and as a row each.
//!
//! Senders repeat all of it every minute, so what is known already costs a look-up and no write. Senders may disagree
//! too, each with every request; so what is known gives way to something else now and then only, and never to nothing.

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
use crate::store::{ROWS_AT_ONCE, each_row, remove_rows};
use crate::unsaved_rows::UnsavedRows;
use crate::{CatalogError, Result};

/// Most metrics of a table that something is remembered of; what is said of others is left out.
pub const METRICS_MAX: usize = 100_000;
/// Most bytes of names, helps and units that are remembered of a table, with [`METRIC_BYTES`] more for each metric: so
/// about what they take in memory. What is said beyond is left out.
pub const METADATA_BYTES_MAX: usize = 32 << 20;
/// Longest name of a metric, in bytes; what is said of longer ones is left out.
pub const METRIC_NAME_BYTES_MAX: usize = 1_024;
/// Longest help, in bytes; longer ones are cut.
pub const HELP_BYTES_MAX: usize = 2_048;
/// Longest unit, in bytes; longer ones are cut.
pub const UNIT_BYTES_MAX: usize = 128;
/// About what a metric takes in memory beside its texts.
pub const METRIC_BYTES: usize = 128;
/// How long, in nanoseconds, what has replaced something else stays: senders that disagree cost no more than a write of
/// a row in this time.
const REPLACED_AGAIN_AFTER: i64 = 60 * 1_000_000_000;
/// Rows of one write: a row is at most a few kilobytes, so these stay within its bytes.
const ROWS_PER_WRITE: usize = WRITE_BYTES_MAX / (4 * HELP_BYTES_MAX);
/// Nanoseconds between two warnings that something was left out.
const TOLD_AGAIN_AFTER: i64 = 3_600 * 1_000_000_000;

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
    remembered: RwLock<Remembered>,
    /// Held while something is changed, until the log answers.
    editing: Mutex<()>,
    /// Names of metrics whose row is not what memory says.
    unsaved: UnsavedRows,
    left_out: Mutex<LeftOut>,
}

#[derive(Debug, Default)]
struct Remembered {
    by_name: BTreeMap<Box<str>, Known>,
    /// What all of it takes; see [`METADATA_BYTES_MAX`].
    bytes: usize,
}

/// What was said and is not remembered.
#[derive(Debug, Default)]
struct LeftOut {
    count: u64,
    /// When that was last told.
    told: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    kind: MetricKind,
    help: Box<str>,
    unit: Box<str>,
    /// When it took the place of something else, if it did since the start.
    replaced: Option<Timestamp>,
}

/// What changes by what is said of metrics.
#[derive(Default)]
struct Changes<'m> {
    changed: BTreeMap<&'m str, Known>,
    left_out: usize,
}

impl Known {
    fn of(metric: &MetricMetadata) -> Self {
        Self {
            kind: metric.kind,
            help: cut(&metric.help, HELP_BYTES_MAX).into(),
            unit: cut(&metric.unit, UNIT_BYTES_MAX).into(),
            replaced: None,
        }
    }

    /// Whether nothing is said that is not known. An unknown type and empty texts say nothing.
    fn has(&self, kind: MetricKind, help: &str, unit: &str) -> bool {
        let has = |known: &str, said: &str| said.is_empty() || known == said;
        (kind == MetricKind::Unknown || kind == self.kind)
            && has(&self.help, cut(help, HELP_BYTES_MAX))
            && has(&self.unit, cut(unit, UNIT_BYTES_MAX))
    }

    /// What is known once more is said; `None` where that changes nothing, or replaces what was replaced just now.
    fn told(&self, metric: &MetricMetadata, now: Timestamp) -> Option<Self> {
        if self.has(metric.kind, &metric.help, &metric.unit) {
            return None;
        }
        let said = Self::of(metric);
        let mut is_replaced = false;
        let mut text = |known: &str, said: Box<str>| -> Box<str> {
            is_replaced |= !known.is_empty() && !said.is_empty() && *known != *said;
            if said.is_empty() { known.into() } else { said }
        };
        let (help, unit) = (text(&self.help, said.help), text(&self.unit, said.unit));
        let kind = match said.kind {
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

    /// What it takes, with its name.
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
    fn insert(&mut self, name: &str, known: Known) {
        self.bytes += known.bytes(name);
        if let Some(before) = self.by_name.insert(name.into(), known) {
            self.bytes -= before.bytes(name);
        }
    }

    /// What becomes of what is said, in its order.
    fn changes<'m>(&self, metrics: &'m [MetricMetadata], now: Timestamp) -> Changes<'m> {
        let mut changes = Changes::default();
        let (mut count, mut bytes) = (self.by_name.len(), self.bytes);
        for metric in metrics {
            let name = metric.name.as_str();
            let before = changes.changed.get(name).or_else(|| self.by_name.get(name));
            let after = match before {
                Some(before) => before.told(metric, now),
                None if (1..=METRIC_NAME_BYTES_MAX).contains(&name.len()) && count < METRICS_MAX => {
                    Some(Known::of(metric))
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

    /// Reads all rows of the table. Those that are damaged are passed over: what senders repeat is written anew.
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
                "damaged metadata of metrics is left out until senders repeat it"
            );
        }
        Ok(())
    }

    /// Reads all rows of a table, and hands on what is wrong with each that is damaged.
    ///
    /// # Errors
    ///
    /// Where the backend cannot be read.
    pub fn check(backend: &dyn Backend, table: TableId, found: &mut dyn FnMut(CatalogError)) -> Result<()> {
        each_metric(backend, table, &mut |row| {
            if let Err(error) = row {
                found(error);
            }
        })
    }

    /// What is known of one metric.
    pub fn get(&self, name: &str) -> Option<MetricMetadata> {
        let remembered = self.remembered.read();
        remembered.by_name.get(name).map(|known| known.named(name))
    }

    /// Whether nothing is said of a metric that is not known; an unknown type and empty texts say nothing. Allocates
    /// nothing: some senders say it again with every sample.
    pub fn knows(&self, name: &str, kind: MetricKind, help: &str, unit: &str) -> bool {
        let remembered = self.remembered.read();
        let known = remembered.by_name.get(name);
        known.is_some_and(|known| known.has(kind, help, unit))
    }

    /// What is known of all metrics, by name.
    pub fn all(&self) -> Vec<MetricMetadata> {
        let remembered = self.remembered.read();
        let all = remembered.by_name.iter();
        all.map(|(name, known)| known.named(name)).collect()
    }

    /// Takes in what is said of metrics: the journal says so.
    pub(crate) fn apply(&self, metrics: Vec<(Box<str>, Known)>) {
        let names = metrics.iter().map(|(name, _)| name.clone());
        self.unsaved.add(names);
        let mut remembered = self.remembered.write();
        for (name, known) in metrics {
            remembered.insert(&name, known);
        }
    }

    /// As [`apply`](Self::apply), for a row of the journal that is replayed.
    pub(crate) fn replay(&self, name: &str, row: Option<&[u8]>) -> Result<()> {
        let known = row.and_then(|row| decode(name, row));
        let known = known.ok_or_else(|| CatalogError::DamagedMetadata(name.to_owned()))?;
        self.apply(vec![(name.into(), known)]);
        Ok(())
    }

    /// Writes the rows that are not durable yet, buffered, and returns their names.
    pub(crate) fn write_rows(
        &self,
        backend: &dyn Backend,
        stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
    ) -> Result<BTreeSet<Box<str>>> {
        let row = |name: &str| Some(encode(name, &self.remembered.read().by_name[name]).into());
        self.unsaved.write(backend, stamp, row)
    }

    /// Takes note that rows that were written are durable.
    pub(crate) fn rows_synced(&self, written: &BTreeSet<Box<str>>) {
        self.unsaved.synced(written);
    }

    /// Counts what was left out, and says so now and then.
    fn note_left_out(&self, left_out: usize, now: Timestamp) {
        if left_out == 0 {
            return;
        }
        let mut noted = self.left_out.lock();
        noted.count += left_out as u64;
        if noted.told.is_none_or(|at| has_passed(at, now, TOLD_AGAIN_AFTER)) {
            noted.told = Some(now);
            tracing::warn!(
                table = %self.table,
                left_out = noted.count,
                metrics_max = METRICS_MAX,
                bytes_max = METADATA_BYTES_MAX,
                name_bytes_max = METRIC_NAME_BYTES_MAX,
                "metadata of metrics is left out: there is too much of it, or their names are too long"
            );
        }
    }

    /// Deletes all rows of a dropped table.
    pub(crate) fn remove_all(
        backend: &dyn Backend,
        table: TableId,
        stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
    ) -> Result<()> {
        remove_rows(backend, space::METADATA, table, stamp)
    }
}

impl Catalog {
    /// Remembers what is said of metrics; durable and visible on return. Returns how many were left out because of
    /// [`METRICS_MAX`], [`METADATA_BYTES_MAX`] or [`METRIC_NAME_BYTES_MAX`], or for want of a name.
    ///
    /// Known metadata costs a look-up. An unknown type and empty texts never replace a value. Different values do, at most once
    /// a minute for a metric, because senders may disagree. Of several entries with one name the first two count.
    ///
    /// # Errors
    ///
    /// Those of the log; some of it may be remembered then.
    pub fn put_metadata(
        self: &Arc<Self>,
        metrics: &[MetricMetadata],
        now: Timestamp,
        commit: &Commit<'_>,
    ) -> Result<usize> {
        let metadata = &self.metadata;
        let mut changes = metadata.remembered.read().changes(metrics, now);
        if !changes.changed.is_empty() {
            let _turn = metadata.editing.lock();
            // Others may have changed something meanwhile.
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

/// Takes what a row says of a metric, or what is wrong with it.
type VisitMetric<'a> = dyn FnMut(Result<(&str, Known)>) + 'a;

/// Hands on what each row of a table says of a metric, or what is wrong with it.
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

/// Whether so many nanoseconds lie between two instants; a clock that was set back lets it pass too.
fn has_passed(at: Timestamp, now: Timestamp, nanos: i64) -> bool {
    now.nanos().abs_diff(at.nanos()) >= nanos.unsigned_abs()
}

/// The beginning of a text, at most so many bytes.
fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests;
