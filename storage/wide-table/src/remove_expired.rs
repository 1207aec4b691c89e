//! Removal of expired rows and cells that no flush drops.
//!
//! Rows are removed by writes like those of clients. Their index entries are therefore removed too, and a row that a
//! client writes in the meantime is kept.

use std::sync::Arc;

use bytes::Bytes;
use tideline_backend::Direction;
use tideline_log::LogThreads;
use tideline_model::{Durability, KeyRange, TableId};

use crate::codec;
use crate::division::ALL_PARTS;
use crate::error::{Damage, Result, WideError};
use crate::expiry::Expiry;
use crate::mutation::{ColumnName, Mutation};
use crate::read::{STEP_PAGE, Scope, StoredRow};
use crate::store::WideStore;
use crate::write::{Action, Image, RowOutcome, RowWrite, Update, WRITE_BYTES_MAX, WriteOptions};

/// Maximum size of the columns of a row that one removal changes, in bytes; a single column can be larger. The rest of
/// the limit of a write is reserved for the index entries.
const CHANGED_BYTES_MAX: usize = WRITE_BYTES_MAX / 2;

/// Result of one step of a removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovalStep {
    /// Number of rows that were read.
    pub rows: u64,
    /// Bytes of the rows that were read.
    pub bytes_read: u64,
    /// Number of rows that were removed, or from which cells were removed.
    pub removed: u64,
    /// Key at which the next step begins; `None` at the end of the table.
    pub next: Option<Bytes>,
}

impl WideStore {
    /// Reads up to 500 rows, beginning with the key `from`, in parts that are not closed. Removes the rows and cells
    /// among them that expired at least `delay` nanoseconds ago.
    ///
    /// # Errors
    ///
    /// The errors of [`write`](Self::write) and of reads.
    pub fn remove_expired(
        self: &Arc<Self>,
        threads: &LogThreads,
        table: TableId,
        from: &[u8],
        delay: i64,
    ) -> Result<RemovalStep> {
        let damaged = |reason| WideError::Damaged { table, reason };
        let rest = KeyRange {
            start: from.to_vec(),
            end: None,
        };
        let now = self.log.trusted_now().now.nanos();
        let rules = self.rules(table)?;
        let expiry = Expiry::new(rules.ttl, now.saturating_sub(delay));
        let wanted = (&rest, Direction::Ascending, STEP_PAGE);
        let page = self.stored_page(table, &rules, &ALL_PARTS, Scope::Open, wanted)?;
        let mut step = RemovalStep {
            rows: page.rows.len() as u64,
            bytes_read: page.rows.iter().map(|row| row.bytes() as u64).sum(),
            removed: 0,
            next: page.next.map(|next| next.start.into()),
        };
        let mut writes = Vec::new();
        for row in &page.rows {
            writes.extend(removal(&expiry, row).map_err(damaged)?);
        }
        if writes.is_empty() {
            return Ok(step);
        }
        let options = WriteOptions {
            durability: Durability::Buffered,
            is_removal: true,
            ..WriteOptions::default()
        };
        let written = self.write_divided(threads, table, &writes, &options)?;
        let is_written = |outcome: &&RowOutcome| matches!(outcome, RowOutcome::Written(_));
        step.removed = written.iter().filter(is_written).count() as u64;
        Ok(step)
    }
}

/// Returns the write that removes the expired parts of a row; `None` if the row has no expired parts.
fn removal(expiry: &Expiry, row: &StoredRow) -> std::result::Result<Option<RowWrite<'static>>, Damage> {
    let columns = row.columns()?;
    let time = columns.time;
    let (action, is_whole) = match expiry.has_expired(time) {
        true => (Action::Delete, true),
        false => match expired_versions(expiry, &columns) {
            removed if removed.is_empty() => return Ok(None),
            removed => {
                let update = Update {
                    removed,
                    ..Update::default()
                };
                (Action::Update(update), false)
            }
        },
    };
    Ok(Some(RowWrite {
        partition: row.key.len(),
        key: row.key.clone(),
        // The time of the row is kept, because the removal must not prolong the life of the row.
        time,
        action,
        // Conditions receive an expired row as `None`. A row that was written in the meantime is not `None`, and is
        // kept. The cells of a row that was deleted in the meantime are not removed, because an update creates a
        // missing row.
        condition: Some(Box::new(move |row: Option<&Mutation<'_>>| {
            row.is_none() == is_whole
        })),
        image: Image::None,
    }))
}

/// Returns the versions of columns that have expired. If the columns are too large to be changed by one write, the
/// versions of the other columns are left to the next removal.
fn expired_versions(expiry: &Expiry, row: &Mutation<'_>) -> Vec<(ColumnName<'static>, i64)> {
    let (mut expired, mut bytes) = (Vec::new(), 0);
    if !expiry.is_of_cells() {
        return expired;
    }
    for column in &row.columns {
        let versions = column.versions.iter().map(|version| version.time);
        let mut times = versions.filter(|time| expiry.has_expired(*time)).peekable();
        if times.peek().is_none() {
            continue;
        }
        // The change of a column holds the versions that remain.
        let mut rest = column.clone();
        rest.versions.retain(|version| !expiry.has_expired(version.time));
        bytes += codec::column_bytes(row.time, &rest);
        if bytes > CHANGED_BYTES_MAX && !expired.is_empty() {
            break;
        }
        expired.extend(times.map(|time| (column.name.clone().into_owned(), time)));
    }
    expired
}
