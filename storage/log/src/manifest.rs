//! The rows of the shard's manifest that all models share: tables, the cursor of the journal, jobs.
//!
//! Rows are JSON with a `format` number: few, small and read once at start, so being readable by people in a
//! bad hour is worth more than bytes. Rows of segments and parts belong to the models, which read and write them with the same
//! functions.

use std::collections::BTreeMap;

use crate::trusted_clock::StoredClock;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tideline_backend::{Manifest as StoredManifest, ManifestChange, ManifestKind, ManifestRow};
use tideline_key_codec::table_name;
use tideline_model::{SequenceNumber, TableId, TableName, TableSpec};

use crate::error::{LogError, Result};

pub mod stored;

use stored::{sequence, table};

/// The shared rows of the manifest in one version, never changed.
#[derive(Debug, Clone, Default)]
pub struct Manifest {
    /// Version of the shard's manifest.
    pub version: u64,
    /// How far the journal is flushed, and the next ids.
    pub cursor: Cursor,
    /// All tables.
    pub tables: BTreeMap<TableId, TableRow>,
    /// Rows about jobs, which belong to whoever plans them.
    pub jobs: BTreeMap<Bytes, Bytes>,
}

/// A table and its settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableRow {
    format: u8,
    /// Its number.
    #[serde(with = "table")]
    pub id: TableId,
    /// Its name.
    pub name: TableName,
    /// What a user has set.
    pub spec: TableSpec,
    /// When it was made, nanoseconds since the epoch.
    pub created: i64,
    /// When its policy was last changed, nanoseconds since the epoch. What a change hides is kept for a while after.
    #[serde(default)]
    pub policy_changed: i64,
    /// What other databases had written of it and is this one's now: swept as its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adopted: Vec<Adopted>,
    /// Rows of catalog and schema that the segments of the table need; only of use where the cursor is
    /// [`counted`](Cursor::counted).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<TableCounts>,
}

/// Rows of a table outside the manifest that were durable at a seal. A start with fewer is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TableCounts {
    /// Timelines with a row in the catalog.
    pub timelines: u64,
    /// The highest field number that a schema row has, plus one.
    pub fields: u32,
    /// The lowest field number that may be given to a new field.
    pub next_field: u32,
}

/// Objects of another database that are this one's now.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Adopted {
    /// The target, as its segments name it.
    pub target: String,
    /// What the table is called there.
    pub table: TableName,
    /// The database that wrote them.
    pub origin: String,
}

impl TableRow {
    /// Describes a table.
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

    /// The same with counts.
    #[must_use]
    pub fn with_counts(self, counts: Option<TableCounts>) -> Self {
        Self { counts, ..self }
    }

    /// The same with what it has adopted.
    #[must_use]
    pub fn with_adopted(self, adopted: Vec<Adopted>) -> Self {
        Self { adopted, ..self }
    }
}

/// Positions of the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    format: u8,
    /// Entries below this sequence are sealed; replay begins here.
    #[serde(with = "sequence")]
    pub sealed_to: SequenceNumber,
    /// The next id of a segment, group or part.
    pub next_segment: u64,
    /// The next table id.
    pub next_table: u32,
    /// The trusted time of the last edit, nanoseconds since the epoch: a start compares the clock with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_now: Option<i64>,
    /// When a jumped clock was last believed only because it was steady, in trusted time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trusted_settled: Option<i64>,
    /// What tells this database from others that keep files in the same target; made with the first archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<u64>,
    /// The first sequence that the last run with a write gave: the next begins above it although all of them are lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequences_from: Option<u64>,
    /// Whether the counts of tables are of the last seal. A build that does not count them leaves this out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counted: bool,
}

impl Cursor {
    /// The time that a start compares the wall clock with.
    pub fn stored_clock(&self) -> StoredClock {
        StoredClock {
            now: self.trusted_now,
            settled: self.trusted_settled,
        }
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
            counted: false,
        }
    }
}

/// The stored form that this build writes; it reads all from 1 on. A build that knows only format 1 would show
/// points again that were deleted, and one that knows only format 2 would take places of rows in files for damaged chunks,
/// and one that knows only format 3 would free what copies consist of, and remove files of other databases, and one that knows
/// only format 4 would take segments with listed files for ones without any, and one that knows only format 5 would look for
/// all chunks in the first bucket, and take a table of another model for one of points, so they must refuse.
pub const FORMAT: u8 = 6;
/// No journal comes this far: what says so is damaged.
pub const SEQUENCE_END: u64 = 1 << 56;
const CURSOR_NAME: &[u8] = b"series";

impl Manifest {
    /// Reads the shared rows.
    ///
    /// # Errors
    ///
    /// A row is damaged, or of a format that this build does not know.
    pub fn read(stored: &StoredManifest) -> Result<Self> {
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
            // A build that does not count has sealed since.
            manifest.tables.values_mut().for_each(|table| table.counts = None);
        }
        Ok(manifest)
    }

    /// Notes the counts of tables that are there; the changes that store them.
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

/// The change that adds or alters a row about a job.
pub fn put_job(name: &Bytes, detail: &Bytes) -> ManifestChange {
    ManifestChange::Put(ManifestRow {
        kind: ManifestKind::Job,
        name: name.clone(),
        detail: detail.clone(),
    })
}

/// The change that removes a row about a job.
pub fn remove_job(name: &Bytes) -> ManifestChange {
    ManifestChange::Remove(ManifestKind::Job, name.clone())
}

/// The change that adds or alters a table.
pub fn put_table(table: &TableRow) -> ManifestChange {
    put_row(ManifestKind::Table, &table_name(table.id), table)
}

/// The change that drops a table.
pub fn remove_table(id: TableId) -> ManifestChange {
    ManifestChange::Remove(ManifestKind::Table, Bytes::copy_from_slice(&table_name(id)))
}

/// The change that moves the cursor.
pub fn put_cursor(cursor: &Cursor) -> ManifestChange {
    put_row(ManifestKind::Cursor, CURSOR_NAME, cursor)
}

/// The change that adds or alters a row.
pub fn put_row(kind: ManifestKind, name: &[u8], detail: &impl Serialize) -> ManifestChange {
    let detail = serde_json::to_vec(detail).expect("plain structures always serialise");
    ManifestChange::Put(ManifestRow {
        kind,
        name: Bytes::copy_from_slice(name),
        detail: detail.into(),
    })
}

/// Reads the JSON of a row with a known format.
///
/// # Errors
///
/// It is damaged, or of a format that this build does not know. `what` names the kind of row.
pub fn parse_row<T: DeserializeOwned>(what: &'static str, detail: &[u8]) -> Result<T> {
    #[derive(Deserialize)]
    struct Version {
        format: u8,
    }
    let failed = |reason: String| LogError::StoredRow { what, reason };
    let version: Version = serde_json::from_slice(detail).map_err(|error| failed(error.to_string()))?;
    if !(1..=FORMAT).contains(&version.format) {
        return Err(failed(format!(
            "format {} is not known to this build",
            version.format
        )));
    }
    serde_json::from_slice(detail).map_err(|error| failed(error.to_string()))
}
