//! Reading ahead after a start: the order of names, and when each timeline was first and last seen.
//!
//! The values of a tag are sorted when they are first listed, which somebody would wait for. Spans live in memory beside
//! the latest values. After a start they are found again when somebody asks, which costs a seek for each timeline of a
//! page; this sweep, timelines in key order, costs a tenth of that.

use std::sync::{Arc, Weak};

use tideline_model::TimelineId;

use crate::engine::Engine;
use crate::error::Result;
use crate::tables::Table;

/// Sealed bytes of a table up to which it is read ahead: about two seconds of one processor. A larger one is read as
/// it is asked for.
const TABLE_BYTES_MAX: u64 = 1 << 30;
/// Steps that a table is read in. An eighth of the timelines is still dense enough to be read through, not sought.
const STEPS: usize = 8;

impl Engine {
    /// Reads ahead, step by step, until all is known or the engine is gone. For a thread of its own.
    pub fn warm(engine: &Weak<Self>) {
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
