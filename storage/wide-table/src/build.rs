//! Online build of an index: adds the entries of the rows that are older than the index.
//!
//! Writes maintain an index from the moment of its creation. The build reads the rows in key order and writes the entry
//! of each row, on the condition that the row has not changed since it was read. It therefore never overwrites the
//! entry of a newer write.

use std::sync::Arc;

use bytes::Bytes;
use tideline_backend::Direction;
use tideline_log::LogThreads;
use tideline_model::{Durability, KeyRange, TableId};

use crate::division::{ALL_PARTS, PartNumbers};
use crate::entry::{Change, Entry};
use crate::error::{Result, WideError};
use crate::index::Index;
use crate::read::{STEP_PAGE, Scope};
use crate::store::WideStore;
use crate::tables::TableRules;
use crate::write::{Seen, until_current};

/// Result of one step of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildStep {
    /// Number of rows that were read.
    pub rows: u64,
    /// Bytes of the rows that were read.
    pub bytes_read: u64,
    /// Bytes of the entries that were written.
    pub bytes_written: u64,
    /// Key at which the next step begins; `None` if all rows have their entries.
    pub next: Option<Bytes>,
}

impl WideStore {
    /// Waits until every write that was decided under older settings is applied or refused. A build begins with this
    /// call, also when it continues after a restart. Otherwise, a write that was decided without the index could become
    /// visible after the build has passed its key.
    ///
    /// # Errors
    ///
    /// The errors of the log.
    pub fn settle_writes(self: &Arc<Self>, threads: &LogThreads, table: TableId) -> Result<()> {
        until_current(|| {
            let seen = Seen::of_indexes(self, self.rules(table)?.index_ids().collect());
            let entry = Entry {
                table,
                request: None,
                changes: Vec::new(),
                index_changes: Vec::new(),
                newest: None,
            };
            // Waits for a part whose move is being published without the index. Later steps then see the part in its
            // new tier.
            self.wait_ending();
            // The committer checks entries in the order of their submission, so it checks this one after all earlier
            // ones.
            self.commit(threads, entry, Durability::Synced, seen)
        })
    }

    /// Adds the entries of up to 500 rows, beginning with the key `from`, in the parts that the index covers. The
    /// entries are durable on return.
    ///
    /// # Errors
    ///
    /// [`WideError::NoTable`] if the table or the index does not exist, [`WideError::NotIndexable`] for a row that
    /// cannot have an entry, [`WideError::Contended`] if the rows were changed by other writes during every attempt,
    /// and the errors of reads and of the log.
    pub fn build_index(
        self: &Arc<Self>,
        threads: &LogThreads,
        table: TableId,
        index: TableId,
        from: &[u8],
    ) -> Result<BuildStep> {
        self.build_parts(threads, table, (index, &ALL_PARTS), from)
    }

    /// Adds entries like [`build_index`](Self::build_index), but only in the parts with these numbers.
    pub(crate) fn build_parts(
        self: &Arc<Self>,
        threads: &LogThreads,
        table: TableId,
        (index, numbers): (TableId, &PartNumbers),
        from: &[u8],
    ) -> Result<BuildStep> {
        let rest = KeyRange {
            start: from.to_vec(),
            end: None,
        };
        until_current(|| {
            let rules = self.rules(table)?;
            let tier = rules.index(index).ok_or(WideError::NoTable(index))?.tier();
            // Parts outside of the tiers of the index, for example in the archive, are not read. If one of them is
            // marked for a move after this read, the move builds its entries.
            let wanted = (&rest, Direction::Ascending, STEP_PAGE);
            let page = self.stored_page(table, &rules, numbers, Scope::Indexed(tier), wanted)?;
            let rules = self.rules(table)?;
            rules.check(table)?;
            let compiled = rules.index(index).ok_or(WideError::NoTable(index))?;
            let mut step = BuildStep::done();
            let mut seen = Seen::of_indexes(self, rules.index_ids().collect());
            // If a part moves after this read of the state, the committer refuses the entry as outdated.
            let state = self.state();
            let mut puts = Vec::with_capacity(page.rows.len());
            for row in page.rows {
                step.rows += 1;
                step.bytes_read += row.bytes() as u64;
                let number = rules.part_of(&row.key);
                let number = number.map_err(|reason| WideError::Damaged { table, reason })?;
                if !rules.maintains(&state, (table, number), compiled) {
                    continue;
                }
                if let Some(put) = self.entry_now(table, (&rules, compiled), &row.key, &mut seen)? {
                    step.bytes_written += put.bytes() as u64;
                    puts.push(put);
                }
            }
            step.next = page.next.map(|next| next.start.into());
            if puts.is_empty() {
                return Ok(Some(step));
            }
            let entry = Entry {
                table,
                request: None,
                changes: Vec::new(),
                index_changes: vec![(index, puts)],
                newest: None,
            };
            let committed = self.commit(threads, entry, Durability::Synced, seen)?;
            Ok(committed.map(|()| step))
        })
    }

    /// Reads a row and returns the change that writes its entry; `None` if the row has no entry. Adds the revision of
    /// the row to `seen`.
    fn entry_now(
        &self,
        table: TableId,
        (rules, index): (&TableRules, &Index),
        key: &Bytes,
        seen: &mut Seen,
    ) -> Result<Option<Change>> {
        let damaged = |reason| WideError::Damaged { table, reason };
        let (row, revision) = self.row_at(table, rules, key)?;
        seen.add_row(key.clone(), revision);
        let Some(row) = row else {
            return Ok(None);
        };
        let columns = row.columns().map_err(damaged)?;
        let values = index.primary_values(key).map_err(damaged)?;
        let entry = index.entry(&values, &columns);
        let entry = entry.map_err(|reason| WideError::NotIndexable { table, reason })?;
        Ok(entry.map(|entry| Change::Row {
            key: entry.key,
            mutation: entry.value,
        }))
    }
}

impl BuildStep {
    fn done() -> Self {
        Self {
            rows: 0,
            bytes_read: 0,
            bytes_written: 0,
            next: None,
        }
    }
}
