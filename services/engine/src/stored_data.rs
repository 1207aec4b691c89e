//! Stored data of each table: timelines, and bytes in each tier. Tenants have budgets of both, and `/metrics` shows
//! them.

use std::sync::atomic::Ordering;

use tideline_access::StoredData;
use tideline_model::{TableId, TableModel, TableName, Tier};

use crate::engine::Engine;
use crate::tables::{Table, TableStats};

/// Stored data of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableData {
    /// Id of the table.
    pub id: TableId,
    /// Table to which the data belongs. The data of a table of users belongs to its feed table.
    pub table: TableName,
    /// The data.
    pub data: StoredData,
    /// Points, rows and messages written since the start, and deletes of rows.
    pub written: u64,
    /// False if the stored rows of the table have not been surveyed since the start. The hot bytes then do not include
    /// them.
    pub is_surveyed: bool,
}

impl TableData {
    /// Adds the data of another table.
    pub fn add(&mut self, other: &Self) {
        self.written += other.written;
        self.is_surveyed &= other.is_surveyed;
        self.data.add(&other.data);
    }
}

impl Engine {
    /// Returns the stored data of all tables except those of the server, without a check of the access. The cost grows
    /// with the number of segments.
    ///
    /// Sealed points count with their encoded size, unsealed points with their size in memory. Rows that are not
    /// archived, large values, and entries of secondary indexes count as hot: with their size in the last survey or
    /// removal since the start, and with their size in the row buffer. Attributes, saved searches and metadata of metrics
    /// count as hot. Search indexes do not count.
    pub fn stored_data(&self) -> Vec<TableData> {
        self.stored_data_of(&self.all_table_stats())
    }

    /// Returns [`stored_data`](Self::stored_data) from the statistics of all tables, for callers that have them.
    pub fn stored_data_of(&self, tables: &[(Table, TableStats)]) -> Vec<TableData> {
        let rows = self.rows.stats();
        let large_values = self.large_values();
        let of_table = |(table, stats): &(Table, TableStats)| {
            let spec = table.spec();
            let id = table.points().id();
            let mut written = table.activity.written.load(Ordering::Relaxed);
            let mut tier_bytes = [0; 3];
            let mut is_surveyed = true;
            let settings = table.catalog.setting_bytes();
            tier_bytes[Tier::Hot as usize] = stats.hot.bytes + stats.head.bytes + settings;
            tier_bytes[Tier::Cold as usize] = stats.cold.bytes;
            tier_bytes[Tier::Archive as usize] = stats.archive.bytes;
            if spec.model != TableModel::Series {
                let of_rows = rows.tables.get(&id);
                written += of_rows.map_or(0, |stats| stats.changes);
                let survey = self.row_survey(id);
                is_surveyed = survey.is_some();
                let surveyed = survey.map_or(0, |survey| survey.all_bytes());
                let buffered = of_rows.map_or(0, |stats| stats.buffered_bytes);
                let large = large_values.iter().filter(|(table, _)| *table == id);
                let large: u64 = large.map(|(_, values)| values.bytes).sum();
                tier_bytes[Tier::Hot as usize] += surveyed + buffered + large;
                let archived = self.archived_parts(id);
                let archived: u64 = archived.iter().map(|part| part.bytes).sum();
                tier_bytes[Tier::Archive as usize] += archived;
            }
            TableData {
                id,
                table: spec.users_of.clone().unwrap_or_else(|| table.name().clone()),
                data: StoredData {
                    timelines: stats.timelines,
                    tier_bytes,
                },
                written,
                is_surveyed,
            }
        };
        let tables = tables.iter().filter(|(table, _)| !table.spec().is_system);
        tables.map(of_table).collect()
    }
}
