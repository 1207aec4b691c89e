//! Work after a start that no request waits for, above all read-ahead: the order of names, and when each timeline was
//! first and last seen.
//!
//! The values of a tag are sorted when they are first listed, which delays that request. The spans of timelines (times
//! of the oldest and newest point) are kept in memory, together with the latest values. After a start, spans are read
//! on demand, with one seek per timeline of a page. Reading spans ahead in key order costs a tenth of that.

use std::sync::{Arc, Weak};

use tideline_model::TimelineId;

use crate::engine::Engine;
use crate::error::Result;
use crate::tables::Table;

/// Largest table that is read ahead, in sealed bytes: about two seconds of one processor. Larger tables are read on
/// demand.
const TABLE_BYTES_MAX: u64 = 1 << 30;
/// Number of steps per table. An eighth of the timelines is still dense enough for sequential reads.
const STEPS: usize = 8;

impl Engine {
    /// Announces the log of changed timelines to standbys, sorts the names of each table, and reads the spans of tables
    /// of up to 1 GiB ahead, step by step. Ends when this is done, a read fails or the engine is dropped. To be called in
    /// a separate thread.
    pub fn warm(engine: &Weak<Self>) {
        if let Some(engine) = engine.upgrade()
            && let Err(error) = engine.announce_changes()
        {
            tracing::warn!(%error, "standbys cannot read timelines ahead before the next flush");
        }
        let tables = engine.upgrade().map(|engine| engine.tables()).unwrap_or_default();
        for table in tables {
            table.catalog.sort_names();
            if let Err(error) = warm_table(engine, &table) {
                tracing::debug!(%error, table = %table.name(), "reading ahead ended early");
                return;
            }
        }
    }
}

fn warm_table(engine: &Weak<Engine>, table: &Table) -> Result<()> {
    let bytes = engine
        .upgrade()
        .map_or(0, |engine| engine.table_stats(table).sealed_bytes);
    if bytes == 0 || bytes > TABLE_BYTES_MAX {
        return Ok(());
    }
    let mut ids: Vec<TimelineId> = {
        let reader = table.catalog.reader();
        reader
            .visible()
            .iter()
            .map(|ordinal| reader.id(tideline_model::Ordinal(ordinal)))
            .collect()
    };
    ids.sort_unstable();
    for step in ids.chunks(ids.len().div_ceil(STEPS).max(1)) {
        let Some(engine): Option<Arc<Engine>> = engine.upgrade() else {
            return Ok(());
        };
        engine.store.seen(&table.points, step)?;
    }
    Ok(())
}
