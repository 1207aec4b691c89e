//! Rows of the shard's manifest that all models share: tables, the cursor of the journal, jobs.
//!
//! Rows are JSON with a `format` number. They are few, small and read once at start, so readability in an emergency
//! matters more than size. The models define the rows of segments and parts, and read and write them with the functions
//! of this module.

use std::collections::BTreeMap;

use crate::trusted_clock::StoredClock;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tideline_backend::{Manifest as StoredManifest, ManifestChange, ManifestKind, ManifestRow};
use tideline_key_codec::table_name;
use tideline_model::wide::KeySource;
use tideline_model::{PartsSpec, SequenceNumber, TableId, TableModel, TableName, TableSpec, WideSpec};

use crate::copy::is_unfinished_copy;
use crate::error::{LogError, Result};

mod leaps;
pub mod stored;

pub use leaps::Leaps;
use stored::{sequence, table};

/// Manifest rows that all models share, at one version of the manifest. A value in an `Arc` is never changed.
#[derive(Debug, Clone, Default)]
pub struct Manifest {
    /// Version of the shard's manifest.
    pub version: u64,
    /// Cursor of the journal, and the next ids.
    pub cursor: Cursor,
    /// All tables.
    pub tables: BTreeMap<TableId, TableRow>,
    /// Rows of the job scheduler, by name.
    pub jobs: BTreeMap<Bytes, Bytes>,
}

/// Table and its settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRow {
    format: u8,
    /// Id of the table.
    #[serde(with = "table")]
    pub id: TableId,
    /// Name of the table.
    pub name: TableName,
    /// Settings made by users.
    pub spec: TableSpec,
    /// Time of creation, nanoseconds since the epoch.
    pub created: i64,
    /// Time of the last change of the policy, nanoseconds since the epoch. Data hidden by the change is kept for a
    /// limited time.
    #[serde(default)]
    pub policy_changed: i64,
    /// Objects of the table that were written by other databases and now belong to this database. Garbage collection
    /// removes them once they are unreferenced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adopted: Vec<Adopted>,
    /// Counts of the catalog and schema rows that the segments of the table need. Valid only if the cursor is
    /// [`counted`](Cursor::counted).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<TableCounts>,
}

/// Counts of a table's durable catalog and schema rows at a seal. A start that finds fewer rows is refused, unless the
/// operator accepts the loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TableCounts {
    /// Number of timelines with a row in the catalog.
    pub timelines: u64,
    /// Highest field number in a schema row, plus one.
    pub fields: u32,
    /// Lowest field number that a new field may get.
    pub next_field: u32,
}

/// Objects that another database wrote and that now belong to this database.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Adopted {
    /// Archive target, as named in the segments.
    pub target: String,
    /// Name of the table in the other database.
    pub table: TableName,
    /// Origin id of the database that wrote the objects.
    pub origin: String,
}

impl TableRow {
    /// Creates the row of a table.
    pub fn new(id: TableId, name: TableName, spec: TableSpec, created: i64, policy_changed: i64) -> Self {
        Self {
            format: FORMAT,
            id,
            name,
            spec,
            created,
            policy_changed,
            adopted: Vec::new(),
            counts: None,
        }
    }

    /// Returns the row with these counts.
    #[must_use]
    pub fn with_counts(self, counts: Option<TableCounts>) -> Self {
        Self { counts, ..self }
    }

    /// Returns the row with these adopted objects.
    #[must_use]
    pub fn with_adopted(self, adopted: Vec<Adopted>) -> Self {
        Self { adopted, ..self }
    }
}

/// Journal positions, next ids and clock state of the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    format: u8,
    /// End of the sealed entries: entries below this sequence are sealed, and replay begins here.
    #[serde(with = "sequence")]
    pub sealed_to: SequenceNumber,
    /// Next id of a segment, group or part.
    pub next_segment: u64,
    /// Next id of a table, an index, a search index, a column group or the large values of a table.
    pub next_table: u32,
    /// Last stored trusted time, nanoseconds since the epoch. A start compares the wall clock with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_now: Option<i64>,
    /// Time, by the trusted clock, at which a jumped wall clock was last accepted only because it was steady;
    /// nanoseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_settled: Option<i64>,
    /// Id that distinguishes this database from others with files in the same target. Generated when it is first
    /// needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<u64>,
    /// First sequence of the last run that wrote entries; not set by the very first run. The next run begins above this
    /// sequence even if all entries of that run are lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequences_from: Option<u64>,
    /// Sequences that the last runs skipped before their first entries. A build that does not maintain the list omits
    /// the member; entries are then counted too high.
    #[serde(default, skip_serializing_if = "Leaps::is_empty")]
    pub leaps: Leaps,
    /// True if the counts of the tables are those of the last seal. A build that does not maintain counts omits the
    /// member.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counted: bool,
}

impl Cursor {
    /// Returns the stored time with which a start compares the wall clock.
    pub fn stored_clock(&self) -> StoredClock {
        StoredClock {
            now: self.trusted_now,
            settled: self.trusted_settled,
        }
    }
}

impl Cursor {
    /// Assigns an id to each index, search index and column group in `spec`, and to its large values, if they do not
    /// have one yet. Returns true if the cursor has changed.
    pub fn number_indexes(&mut self, spec: &mut TableSpec) -> bool {
        let Some(wide) = spec.wide.as_deref_mut() else {
            return false;
        };
        let ids = wide.indexes.iter_mut().map(|index| &mut index.id);
        let ids = ids.chain(wide.search_indexes.iter_mut().map(|index| &mut index.id));
        let ids = ids.chain(&mut wide.large_values);
        let ids = ids.chain(wide.groups.iter_mut().map(|group| &mut group.id));
        let mut has_new = false;
        for id in ids.filter(|id| **id == 0) {
            *id = self.next_table;
            self.next_table += 1;
            has_new = true;
        }
        has_new
    }
}

impl Default for Cursor {
    fn default() -> Self {
        Self {
            format: FORMAT,
            sealed_to: SequenceNumber(1),
            next_segment: 1,
            next_table: 1,
            trusted_now: None,
            trusted_settled: None,
            origin: None,
            sequences_from: None,
            leaps: Leaps::default(),
            counted: false,
        }
    }
}

/// Format number of the rows that this build writes, except those of [`FORMAT_INDEXES`], [`FORMAT_SEARCH`],
/// [`FORMAT_PARTS`], [`FORMAT_PART_AGES`], [`FORMAT_LARGE`], [`FORMAT_ANALYZERS`], [`FORMAT_TIERS`], [`FORMAT_GROUPS`],
/// [`FORMAT_FEEDS`], [`FORMAT_CUT`], [`FORMAT_FAN_OUT`], [`FORMAT_CODECS`], [`FORMAT_LIMITS`], [`FORMAT_COPY`],
/// [`FORMAT_PART_JOBS`], [`FORMAT_SHARDS`] and [`FORMAT_TTL_UNIT`]. This build reads formats 1 to 19 and 21 to 23.
///
/// A build must refuse rows with a format above its own, because it would misread them:
///
/// - a build of format 1 would show deleted points again;
/// - a build of format 2 would treat row positions in files as damaged chunks;
/// - a build of format 3 would free the data of copies, and remove files of other databases;
/// - a build of format 4 would treat segments with listed files as segments without files;
/// - a build of format 5 would search all chunks in the first bucket, and treat tables of other models as tables of
///   points.
pub const FORMAT: u8 = 6;
/// Format number of the row of a table with secondary indexes or a time-to-live of rows. A build of format 6 would not
/// maintain the indexes, and would return expired rows.
pub const FORMAT_INDEXES: u8 = 7;
/// Format number of the row of a table with search indexes over its rows. A build of format 7 would not maintain these
/// indexes.
pub const FORMAT_SEARCH: u8 = 8;
/// Format number of the row of a wide table that is divided into parts. A build of format 8 would read only one of the
/// parts.
pub const FORMAT_PARTS: u8 = 9;
/// Format number of the row of a wide table whose parts leave the hot tier, are closed for writes, or are archived at a
/// certain age. A build of format 9 would write to parts that are closed.
pub const FORMAT_PART_AGES: u8 = 10;
/// Format number of the row of a wide table with large values. A build of format 10 would not find the pieces of these
/// values, and would free the pieces.
pub const FORMAT_LARGE: u8 = 11;
/// Format number of the row of a table with analyzers of attributes, or with search indexes over rows whose cells
/// expire one by one. A build of format 11 would find wrong timelines, and would find rows by expired values.
pub const FORMAT_ANALYZERS: u8 = 12;
/// Format number of the row of a wide table with an index that covers only some of the tiers. A build of format 12
/// would move the parts of the table without building and dropping the index entries.
pub const FORMAT_TIERS: u8 = 13;
/// Format number of the row of a wide table with column groups. A build of format 13 would return rows without the
/// columns of the groups, and would free these columns.
pub const FORMAT_GROUPS: u8 = 14;
/// Format number of the row of a feed table, and of a wide table whose parts follow from generated ids. A build of
/// format 14 would discard the messages at a flush, and could not read the parts.
pub const FORMAT_FEEDS: u8 = 15;
/// Format number of the row of a wide table whose ordinary writes have stored values in pieces. A build of format 15
/// could not read the references to these values. Also the format number of the row of a table that holds state of the
/// server. An earlier build would let requests read the table, and would remove the journal entries that its change
/// streams keep.
pub const FORMAT_CUT: u8 = 16;
/// Format number of the row of a feed table whose messages a job writes to inboxes, or whose inboxes have copies of
/// messages. A build of format 16 would not run the job, and would leave the copies of edited and deleted messages
/// unchanged.
pub const FORMAT_FAN_OUT: u8 = 17;
/// Format number of the row of a wide table with columns that have a separate compression. A build of format 17
/// could not read the blocks of such columns.
pub const FORMAT_CODECS: u8 = 18;
/// Format number of the row of a wide table that limits the rates of reads and writes. A build of format 18 would
/// not apply the limits.
pub const FORMAT_LIMITS: u8 = 19;
/// Format number of the row that marks an unfinished copy. Earlier builds read the row as the cursor, and refuse its
/// format.
pub const FORMAT_COPY: u8 = 20;
/// Format number of the row of a wide table whose parts have schedules or a rate of jobs. A build of format 19 would
/// move and drop the parts at other times.
pub const FORMAT_PART_JOBS: u8 = 21;
/// Format number of the row of a wide table with a search index of several shards. A build of format 21 would search
/// only the first shard.
pub const FORMAT_SHARDS: u8 = 22;
/// Format number of the row of a wide table without a time-to-live whose cells expire once it has one again. A build of
/// format 22 would write index entries and documents with the times of rows instead of those of cells.
pub const FORMAT_TTL_UNIT: u8 = 23;
/// Exclusive upper bound of sequences. A row with this sequence or a higher one is damaged.
pub const SEQUENCE_END: u64 = 1 << 56;
const CURSOR_NAME: &[u8] = b"series";

impl Manifest {
    /// Reads the shared rows.
    ///
    /// # Errors
    ///
    /// [`LogError::StoredRow`] if a row is damaged or has a format that this build does not support;
    /// [`LogError::UnfinishedCopy`] if the rows are those of an unfinished copy.
    pub fn read(stored: &StoredManifest) -> Result<Self> {
        if stored.rows.iter().any(is_unfinished_copy) {
            return Err(LogError::UnfinishedCopy);
        }
        let mut manifest = Self {
            version: stored.version,
            ..Self::default()
        };
        for row in &stored.rows {
            match row.kind {
                ManifestKind::Table => {
                    let table: TableRow = parse_row("table row", &row.detail)?;
                    let table = TableRow {
                        format: FORMAT,
                        ..table
                    };
                    manifest.tables.insert(table.id, table);
                }
                ManifestKind::Cursor => {
                    let cursor: Cursor = parse_row("cursor row", &row.detail)?;
                    manifest.cursor = Cursor {
                        format: FORMAT,
                        ..cursor
                    };
                }
                ManifestKind::Job => {
                    manifest.jobs.insert(row.name.clone(), row.detail.clone());
                }
                ManifestKind::Segment | ManifestKind::Part => {}
            }
        }
        if !manifest.cursor.counted {
            // The cursor was last stored by a build that does not maintain counts.
            manifest.tables.values_mut().for_each(|table| table.counts = None);
        }
        Ok(manifest)
    }

    /// Sets the counts of tables; skips tables that do not exist. Returns the changes that store the counts.
    pub fn put_counts(&mut self, counts: &[(TableId, TableCounts)]) -> Vec<ManifestChange> {
        let mut changes = Vec::with_capacity(counts.len());
        for (table, counts) in counts {
            if let Some(row) = self.tables.get_mut(table) {
                row.counts = Some(*counts);
                changes.push(put_table(row));
            }
        }
        changes
    }
}

/// Returns the change that adds or replaces a job row.
pub fn put_job(name: &Bytes, detail: &Bytes) -> ManifestChange {
    ManifestChange::Put(ManifestRow {
        kind: ManifestKind::Job,
        name: name.clone(),
        detail: detail.clone(),
    })
}

/// Returns the change that removes a job row.
pub fn remove_job(name: &Bytes) -> ManifestChange {
    ManifestChange::Remove(ManifestKind::Job, name.clone())
}

/// Returns the change that adds or replaces a table.
pub fn put_table(table: &TableRow) -> ManifestChange {
    let name = table_name(table.id);
    let format = match &table.spec.wide {
        Some(wide) if wide.ttl.is_none() && wide.cells_expire() => FORMAT_TTL_UNIT,
        Some(wide) if wide.has_shards() => FORMAT_SHARDS,
        Some(wide) if wide.parts.as_ref().is_some_and(PartsSpec::limits_jobs) => FORMAT_PART_JOBS,
        Some(wide) if !wide.limits.is_empty() => FORMAT_LIMITS,
        Some(wide) if wide.codecs => FORMAT_CODECS,
        _ if has_fan_out(&table.spec) => FORMAT_FAN_OUT,
        _ if table.spec.is_system => FORMAT_CUT,
        Some(wide) if wide.cut_values => FORMAT_CUT,
        _ if table.spec.model == TableModel::Feed => FORMAT_FEEDS,
        Some(wide) if is_divided_by_ids(wide) => FORMAT_FEEDS,
        Some(wide) if !wide.groups.is_empty() => FORMAT_GROUPS,
        Some(wide) if wide.has_tiered_indexes() => FORMAT_TIERS,
        _ if !table.spec.attribute_analyzers.is_empty() => FORMAT_ANALYZERS,
        Some(wide) if !wide.search_indexes.is_empty() && wide.cells_expire() => FORMAT_ANALYZERS,
        Some(wide) if wide.large_values.is_some() => FORMAT_LARGE,
        Some(wide) if wide.parts.as_ref().is_some_and(PartsSpec::has_ages) => FORMAT_PART_AGES,
        Some(wide) if wide.parts.is_some() => FORMAT_PARTS,
        Some(wide) if !wide.search_indexes.is_empty() => FORMAT_SEARCH,
        Some(wide) if !wide.indexes.is_empty() || wide.ttl.is_some() => FORMAT_INDEXES,
        _ => return put_row(ManifestKind::Table, &name, table),
    };
    let row = TableRow {
        format,
        ..table.clone()
    };
    put_row(ManifestKind::Table, &name, &row)
}

/// Returns true if a job writes messages to the inboxes of a feed table, or if its inboxes have copies of messages.
fn has_fan_out(spec: &TableSpec) -> bool {
    spec.feed
        .is_some_and(|feed| feed.fan_out_max() > 0 || feed.has_copies())
}

/// Returns true if the parts of a table follow from generated ids.
fn is_divided_by_ids(wide: &WideSpec) -> bool {
    let is_generated = |name: &str| {
        let mut key = wide.key.iter();
        key.any(|column| column.name == name && matches!(column.source, KeySource::Generated(_)))
    };
    wide.parts.as_ref().is_some_and(|parts| is_generated(&parts.by))
}

/// Returns the change that drops a table.
pub fn remove_table(id: TableId) -> ManifestChange {
    ManifestChange::Remove(ManifestKind::Table, Bytes::copy_from_slice(&table_name(id)))
}

/// Returns the change that moves the cursor.
pub fn put_cursor(cursor: &Cursor) -> ManifestChange {
    put_row(ManifestKind::Cursor, CURSOR_NAME, cursor)
}

/// Returns the change that adds or replaces a row.
pub fn put_row(kind: ManifestKind, name: &[u8], detail: &impl Serialize) -> ManifestChange {
    let detail = serde_json::to_vec(detail).expect("plain structures always serialise");
    ManifestChange::Put(ManifestRow {
        kind,
        name: Bytes::copy_from_slice(name),
        detail: detail.into(),
    })
}

/// Parses the JSON of a row. `what` is the kind of row in error messages.
///
/// # Errors
///
/// [`LogError::StoredRow`] if the row is damaged or has a format that this build does not support.
pub fn parse_row<T: DeserializeOwned>(what: &'static str, detail: &[u8]) -> Result<T> {
    #[derive(Deserialize)]
    struct Version {
        format: u8,
    }
    let failed = |reason: String| LogError::StoredRow { what, reason };
    let version: Version = serde_json::from_slice(detail).map_err(|error| failed(error.to_string()))?;
    let is_known = matches!(
        version.format,
        1..=FORMAT_LIMITS | FORMAT_PART_JOBS | FORMAT_SHARDS | FORMAT_TTL_UNIT
    );
    if !is_known {
        return Err(failed(format!(
            "format {} is not supported by this build",
            version.format
        )));
    }
    serde_json::from_slice(detail).map_err(|error| failed(error.to_string()))
}
