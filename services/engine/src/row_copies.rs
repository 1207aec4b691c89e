//! Copies of the rows of a table into another one: the changes of the source that the last complete copy has covered.
//!
//! A repeated copy must write only rows of the source that have changed since the last complete copy. Clients may have
//! written only into the target since then, and the target has no trace of the rows and columns that they have deleted.
//!
//! 1. A copy takes a version as its *floor*. From then on, each change of the source gets at least this time, also if
//!    its write has begun before. All changes with an earlier time are visible before the copy reads the first row.
//! 2. When the copy is complete, its floor is stored in the table of the states of services, under the ids of both
//!    tables. A source row with an earlier time has not changed since, so the copy has covered it.
//! 3. A covered row can have a later time: it was written after the floor and before it was read, or a client has given
//!    it a version in the future. The digests of such rows are stored with the floor, and also the rows that the target
//!    refused, which are not covered.
//!
//! Tables get new ids when they are created again, so nothing is covered then. An interrupted copy stores nothing. Rows
//! of attached parts keep the times that another database gave them, so an attachment removes what is stored about
//! copies from its table. Earlier builds ignore the stored rows.

use std::collections::BTreeSet;

use hashbrown::HashSet;
use serde::{Deserialize, Serialize};
use tideline_model::time::NANOS_PER_SECOND;
use tideline_model::{TableId, TableName};
use tideline_series_store::StoreError;
use tideline_wide_table::{RangeDigest, RowDigest, StoredRow};

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::state_table::{STATE_ROWS_MAX, StateRow};
use crate::wide_table::WideTable;

/// Owner of the state rows. The name of a row is the id of the target, and its part the id of the source.
const OWNER: &str = "rekey";
/// Format of the texts of the state rows.
const FORMAT: u8 = 1;
/// Maximum number of refused rows of a copy that can be stored as complete. This number of digests takes up 0.8 MB of a
/// value, which is limited to 2 MiB.
pub const ROW_COPY_REFUSED_MAX: usize = 25_000;
/// Maximum number of stored digests of covered rows whose times are not below the floor. Further ones count as changed.
const LATER_MAX: usize = 25_000;
/// Longest time in nanoseconds that a write is assumed to take from its version to its commit. A write that has begun
/// before the floor of a copy, and is committed after the copy has passed its row, has a version below the floor.
const WRITE_MAX: i64 = 600 * NANOS_PER_SECOND;
/// Number of hexadecimal digits of a stored digest.
const DIGEST_DIGITS: usize = 32;

/// Copy of the rows of a table into another one.
#[derive(Debug)]
pub struct RowCopy {
    from: TableId,
    /// Name of the source.
    from_name: TableName,
    into: TableId,
    /// Coverage of the last complete copy; `None` for the first copy.
    last: Option<Coverage>,
    /// Coverage of this copy.
    own: Coverage,
    /// True if more rows were refused than can be stored.
    has_too_many_refused: bool,
    /// Number of attachments to the source when the copy has begun.
    attachments: u64,
}

/// Content of the source that a complete copy has covered.
#[derive(Debug, Default)]
struct Coverage {
    /// Version that bounds the times of covered rows. Rows with an earlier time are covered unless they were refused.
    floor: i64,
    /// Digests of the keys and contents of covered rows whose times are not below the floor.
    later: HashSet<RowDigest>,
    /// Digests of the keys of rows that are not covered, because they were refused.
    refused: HashSet<RowDigest>,
}

/// Stored form of a [`Coverage`]. Digests are concatenated hexadecimal numbers.
#[derive(Serialize, Deserialize)]
struct StoredCoverage {
    format: u8,
    floor: i64,
    later: String,
    refused: String,
}

impl RowCopy {
    /// Returns true if no complete copy between the tables is stored.
    pub const fn is_first(&self) -> bool {
        self.last.is_none()
    }

    /// Returns true if the last complete copy has covered the content of a source row. This copy covers it too, then.
    ///
    /// # Errors
    ///
    /// [`EngineError::Store`] if the row is damaged.
    pub fn is_covered(&mut self, row: &StoredRow) -> Result<bool> {
        let Some(last) = &self.last else {
            return Ok(false);
        };
        let is_covered = match time_of(row)? < last.floor {
            true => !last.has_refused(row),
            false => last.later.contains(&digest_of(row)),
        };
        if is_covered {
            self.add_covered(row)?;
        }
        Ok(is_covered)
    }

    /// Returns true if the last complete copy can have missed a version with this time.
    pub fn is_recent(&self, version: i64) -> bool {
        let last = self.last.as_ref();
        last.is_some_and(|last| version >= last.missed_from())
    }

    /// Returns the earliest time of the versions of a source row that this copy writes. If the target row is newer than
    /// the source row, these are only the versions that the last complete copy can have missed; older versions that the
    /// target row lacks were removed there. The source row must have had the same key in the target during the last
    /// copy.
    ///
    /// # Errors
    ///
    /// [`EngineError::Store`] if a row is damaged.
    pub fn versions_from(&self, source: &StoredRow, target: Option<&StoredRow>) -> Result<i64> {
        let (Some(last), Some(target)) = (&self.last, target) else {
            return Ok(i64::MIN);
        };
        let is_newer = time_of(target)? > time_of(source)?;
        Ok(match is_newer && !last.has_refused(source) {
            true => last.missed_from(),
            false => i64::MIN,
        })
    }

    /// Records that this copy has covered the content of a source row.
    ///
    /// # Errors
    ///
    /// [`EngineError::Store`] if the row is damaged.
    pub fn add_covered(&mut self, row: &StoredRow) -> Result<()> {
        if time_of(row)? >= self.own.floor && self.own.later.len() < LATER_MAX {
            self.own.later.insert(digest_of(row));
        }
        Ok(())
    }

    /// Records that the target has refused a row.
    pub fn add_refused(&mut self, row: &StoredRow) {
        if self.own.refused.len() < ROW_COPY_REFUSED_MAX {
            self.own.refused.insert(key_digest_of(row));
        } else {
            self.has_too_many_refused = true;
        }
    }
}

impl Coverage {
    /// Returns the earliest time of versions that the copy can have missed.
    const fn missed_from(&self) -> i64 {
        self.floor.saturating_sub(WRITE_MAX)
    }

    fn has_refused(&self, row: &StoredRow) -> bool {
        !self.refused.is_empty() && self.refused.contains(&key_digest_of(row))
    }

    fn to_text(&self) -> String {
        let text = |digests: &HashSet<RowDigest>| {
            let digests = digests
                .iter()
                .map(|digest| format!("{:0width$x}", digest.0, width = DIGEST_DIGITS));
            digests.collect::<String>()
        };
        let stored = StoredCoverage {
            format: FORMAT,
            floor: self.floor,
            later: text(&self.later),
            refused: text(&self.refused),
        };
        serde_json::to_string(&stored).expect("numbers and texts have a JSON form")
    }

    fn parse(text: &str) -> Result<Self> {
        let stored: StoredCoverage = serde_json::from_str(text).map_err(|error| damaged(&error))?;
        if stored.format != FORMAT {
            let format = stored.format;
            let reason = format!("it has the format {format}, which a newer build has written");
            return Err(damaged(&reason));
        }
        let digests = |text: &str| -> Result<HashSet<RowDigest>> {
            let digest = |digits: &[u8]| {
                let digits = std::str::from_utf8(digits).ok()?;
                u128::from_str_radix(digits, 16).ok().map(RowDigest)
            };
            let digests = text.as_bytes().chunks(DIGEST_DIGITS).map(digest);
            let digests: Option<HashSet<RowDigest>> = digests.collect();
            digests.ok_or_else(|| damaged(&"a digest is not a number"))
        };
        Ok(Self {
            floor: stored.floor,
            later: digests(&stored.later)?,
            refused: digests(&stored.refused)?,
        })
    }
}

impl Engine {
    /// Begins a copy of rows. On return, all changes of the source with a time below the floor of the copy are visible,
    /// and later changes get later times.
    ///
    /// # Errors
    ///
    /// [`EngineError::Store`] if a stored coverage cannot be read, and the errors of the store.
    pub fn begin_row_copy(&self, from: &WideTable, into: &WideTable) -> Result<RowCopy> {
        let from_name = from.table().name().clone();
        // Read before the coverage, which an attachment removes after it was counted.
        let attachments = self.row_attachments.lock().get(&from_name).copied();
        let (from, into) = (from.table().points().id(), into.table().points().id());
        let threads = self.store.threads();
        let mut last = None;
        for row in self.state_rows(OWNER)? {
            let is_own = row.name == into.to_string() && row.part == from.to_string();
            let is_of_target = row.part == into.to_string();
            if !is_own && !is_of_target {
                continue;
            }
            let coverage = Coverage::parse(row.value.as_deref().unwrap_or_default())?;
            if is_own {
                last = Some(coverage);
            } else {
                // The rows are written with the times of the source. A copy from the target must not take them for
                // rows that it has covered.
                self.rows.raise_times(threads, into, coverage.floor)?;
            }
        }
        let floor = self.next_version();
        self.rows.raise_times(threads, from, floor)?;
        Ok(RowCopy {
            from,
            from_name,
            into,
            last,
            own: Coverage {
                floor,
                ..Coverage::default()
            },
            has_too_many_refused: false,
            attachments: attachments.unwrap_or(0),
        })
    }

    /// Stores the coverage of a complete copy. Returns false if it cannot be stored: too many rows were refused, or
    /// parts were attached to the source meanwhile. The coverage of the last complete copy stays valid then, unless
    /// parts were attached.
    ///
    /// # Errors
    ///
    /// The errors of [`state_rows`](Self::state_rows) and [`put_state`](Self::put_state).
    pub fn end_row_copy(&self, copy: &RowCopy) -> Result<bool> {
        // The lock is held until the row is stored, so that an attachment removes the row.
        let attachments = self.row_attachments.lock();
        let is_attached = attachments.get(&copy.from_name).copied().unwrap_or(0) != copy.attachments
            || self.unbuilt.lock().contains(&copy.from_name);
        if copy.has_too_many_refused || is_attached {
            return Ok(false);
        }
        let own = StateRow {
            name: copy.into.to_string(),
            part: copy.from.to_string(),
            value: Some(copy.own.to_text()),
        };
        let tables = self.store.tables();
        let tables: BTreeSet<String> = tables.iter().map(|table| table.id().to_string()).collect();
        let mut rows = Vec::new();
        for row in self.state_rows(OWNER)? {
            let is_own = row.name == own.name && row.part == own.part;
            if is_own && Coverage::parse(row.value.as_deref().unwrap_or_default())?.floor > copy.own.floor {
                // A copy that has begun later is complete.
                return Ok(true);
            }
            if !tables.contains(&row.name) || !tables.contains(&row.part) {
                rows.push(StateRow { value: None, ..row });
            }
        }
        rows.truncate(STATE_ROWS_MAX - 1);
        rows.push(own);
        self.put_state(OWNER, &rows)?;
        Ok(true)
    }

    /// Removes what is stored about copies from a table.
    ///
    /// # Errors
    ///
    /// The errors of [`state_rows`](Self::state_rows) and [`put_state`](Self::put_state).
    pub(crate) fn forget_row_copies(&self, from: TableId) -> Result<()> {
        let rows = self.state_rows(OWNER)?.into_iter();
        let rows = rows.filter(|row| row.part == from.to_string());
        let rows: Vec<StateRow> = rows.map(|row| StateRow { value: None, ..row }).collect();
        for rows in rows.chunks(STATE_ROWS_MAX) {
            self.put_state(OWNER, rows)?;
        }
        Ok(())
    }
}

/// Returns the digest of the key and the content of a row.
fn digest_of(row: &StoredRow) -> RowDigest {
    let mut digest = RangeDigest::default();
    digest.add(row);
    digest.finish()
}

/// Returns the digest of the key of a row.
fn key_digest_of(row: &StoredRow) -> RowDigest {
    digest_of(&StoredRow::with_columns(row.key.clone(), bytes::Bytes::new()))
}

fn time_of(row: &StoredRow) -> Result<i64> {
    row.time().map_err(|reason| {
        EngineError::Store(StoreError::StoredRow {
            what: "row",
            reason: reason.to_string(),
        })
    })
}

fn damaged(reason: &dyn std::fmt::Display) -> EngineError {
    EngineError::Store(StoreError::StoredRow {
        what: "state row of copies of rows",
        reason: reason.to_string(),
    })
}
