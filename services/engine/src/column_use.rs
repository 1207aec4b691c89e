//! Use of the columns of wide tables since the start of the process: how many reads need a column, and how many updates
//! change it.
//!
//! A request counts once, however many rows it reads. Memory is bounded: at most [`COLUMNS_MAX`] columns of a table are
//! counted.

use hashbrown::HashMap;
use tideline_wide_table::{Action, RowWrite};

use crate::engine::Engine;
use crate::wide_table::WideTable;

/// Maximum number of counted columns of a table. Further columns are not counted.
const COLUMNS_MAX: usize = 1_000;

/// Number of requests that have used a column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ColumnUse {
    /// Number of reads that requested the column by name.
    pub reads: u64,
    /// Number of row updates that changed the column.
    pub updates: u64,
}

/// Use of the columns of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableColumnUse {
    /// Number of reads.
    pub reads: u64,
    /// Number of reads that needed all columns.
    pub whole_reads: u64,
    /// Number of updated rows.
    pub updates: u64,
    /// Use of each column, by name.
    pub columns: HashMap<String, ColumnUse>,
}

impl TableColumnUse {
    /// Returns the number of reads and updates that used a column.
    pub fn of(&self, column: &str) -> ColumnUse {
        let named = self.columns.get(column).copied().unwrap_or_default();
        ColumnUse {
            reads: named.reads + self.whole_reads,
            ..named
        }
    }

    fn add(&mut self, column: &str, add: impl FnOnce(&mut ColumnUse)) {
        if let Some(known) = self.columns.get_mut(column) {
            add(known);
        } else if self.columns.len() < COLUMNS_MAX {
            add(self.columns.entry(column.to_owned()).or_default());
        }
    }
}

impl Engine {
    /// Counts a read of rows that needs these columns; `None` for all columns.
    pub fn note_column_reads<'n>(&self, table: &WideTable, columns: Option<impl Iterator<Item = &'n str>>) {
        let mut used = table.table().activity.column_use.lock();
        used.reads += 1;
        match columns {
            Some(columns) => columns.for_each(|column| used.add(column, |of| of.reads += 1)),
            None => used.whole_reads += 1,
        }
    }

    /// Counts the columns that updates of rows change.
    pub(crate) fn note_column_updates(&self, table: &WideTable, writes: &[RowWrite<'_>]) {
        let updates = writes.iter().filter_map(|write| match &write.action {
            Action::Update(update) => Some(update),
            _ => None,
        });
        let mut updates = updates.peekable();
        if updates.peek().is_none() {
            return;
        }
        let mut used = table.table().activity.column_use.lock();
        for update in updates {
            used.updates += 1;
            let set = update.columns.iter().map(|column| &column.name);
            let added = update.increments.iter().map(|increment| &increment.column);
            let removed = update.removed.iter().map(|(name, _)| name);
            for name in set.chain(added).chain(removed) {
                if let Some(name) = table.name_of(name) {
                    used.add(name, |of| of.updates += 1);
                }
            }
        }
    }

    /// Returns the use of the columns of a table since the start of the process.
    pub fn column_use(&self, table: &WideTable) -> TableColumnUse {
        table.table().activity.column_use.lock().clone()
    }
}
