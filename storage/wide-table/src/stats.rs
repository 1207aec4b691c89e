//! Statistics of wide tables: row buffer, rows written, flush lag.
//!
//! Reading the statistics takes one lock per buffered table.

use std::collections::BTreeMap;
use std::time::Duration;

use tideline_model::TableId;

use crate::dictionaries::DictionaryStats;
use crate::store::WideStore;

/// Statistics of all wide tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WideStats {
    /// Bytes of the active generation of the row buffer.
    pub active_bytes: usize,
    /// Bytes of the generations that wait for their flush.
    pub frozen_bytes: usize,
    /// Size of the active generation at which it is frozen and then flushed, in bytes.
    pub budget_bytes: usize,
    /// Dictionaries of compressed columns.
    pub dictionaries: DictionaryStats,
    /// Statistics of each table and index that was changed since the start or has changes in the buffer.
    pub tables: BTreeMap<TableId, WideTableStats>,
}

/// Statistics of a wide table or index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WideTableStats {
    /// Row changes and range deletions committed since the start; replayed changes are not counted.
    pub changes: u64,
    /// Number of changed rows in the buffer. A row with changes in several generations is counted once per generation.
    pub buffered_rows: u64,
    /// Bytes of the table in the buffer.
    pub buffered_bytes: u64,
    /// Time since the oldest buffered change; `None` if everything is flushed.
    pub flush_lag: Option<Duration>,
}

impl WideStore {
    /// Returns the number of changes that were committed to a table or index since the start.
    pub fn changes_of(&self, table: TableId) -> u64 {
        self.committed.lock().get(&table).copied().unwrap_or_default()
    }

    /// Returns true if the row buffer has changes of a table or index.
    pub fn has_buffered(&self, table: TableId) -> bool {
        let state = self.state();
        let mut generations = std::iter::once(&state.active).chain(&state.frozen);
        generations.any(|generation| generation.table(table).is_some())
    }

    /// Returns the statistics of all wide tables.
    pub fn stats(&self) -> WideStats {
        let state = self.state();
        let changes = self.committed.lock().clone();
        let of_changes = |(table, changes)| {
            let stats = WideTableStats {
                changes,
                ..WideTableStats::default()
            };
            (table, stats)
        };
        let mut tables: BTreeMap<TableId, WideTableStats> = changes.into_iter().map(of_changes).collect();
        for generation in std::iter::once(&state.active).chain(&state.frozen) {
            for (table, buffer) in generation.tables() {
                let stats = tables.entry(table).or_default();
                stats.buffered_rows += buffer.rows() as u64;
                stats.buffered_bytes += buffer.bytes() as u64;
                stats.flush_lag = stats.flush_lag.max(Some(buffer.age()));
            }
        }
        let (active_bytes, frozen_bytes) = self.buffer_bytes();
        WideStats {
            active_bytes,
            frozen_bytes,
            budget_bytes: self.settings.buffer_bytes,
            dictionaries: self.dictionaries.stats(),
            tables,
        }
    }
}
