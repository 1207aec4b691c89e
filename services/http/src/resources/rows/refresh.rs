//! Waits for the search indexes of a table. Before a write, a request waits while an index is far behind. After a write
//! or a change of the indexes, it waits with `refresh` until searches find the write or the indexes are built.
//!
//! A wait uses no permit and no thread, because it can last for seconds and must not delay other requests.

use std::time::{Duration, Instant};

use tideline_engine::Engine;
use tideline_engine::row_search::{AwaitedSearches, BACK_PRESSURE_MAX};
use tideline_rows::Outcomes;
use tideline_rows::search::WAIT_MAX;

use crate::grant::Grant;

/// Time between two checks whether a search index has caught up.
const BACK_PRESSURE_STEP: Duration = Duration::from_millis(10);

/// Waits while search indexes of a table are far behind, for at most [`BACK_PRESSURE_MAX`]. Does not wait if the table
/// does not exist.
pub(crate) async fn wait_for_searches(engine: &Engine, table: &str) {
    let Ok(table) = engine.table_of_rows(table) else {
        return;
    };
    let deadline = Instant::now() + BACK_PRESSURE_MAX;
    while engine.is_search_behind(&table) && Instant::now() < deadline {
        tokio::time::sleep(BACK_PRESSURE_STEP).await;
    }
}

/// Waits until search indexes are ready. Returns false after [`WAIT_MAX`], or if an index was dropped.
pub(crate) async fn wait_searches(engine: &Engine, mut awaited: AwaitedSearches) -> bool {
    let begun = Instant::now();
    loop {
        if let Some(are_ready) = engine.awaited_end(&mut awaited) {
            return are_ready;
        }
        let waited = begun.elapsed();
        if waited >= WAIT_MAX {
            return false;
        }
        // Thousands of requests can wait at the same time, and each check takes a lock that commits need. A long wait
        // therefore checks rarely, and takes at most one eighth longer.
        let step = BACK_PRESSURE_STEP.max(waited / 8);
        tokio::time::sleep(step.min(WAIT_MAX - waited)).await;
    }
}

/// Waits like [`wait_searches`], and reserves memory for the outcomes of the write meanwhile, because the wait has no
/// permit that would limit them. Returns false at once if the memory is used up.
pub(super) async fn wait_with_outcomes(
    app: &Grant,
    outcomes: &Outcomes,
    mut awaited: AwaitedSearches,
) -> bool {
    if let Some(are_ready) = app.engine.awaited_end(&mut awaited) {
        return are_ready;
    }
    let mut memory = app.memory().open("outcomes of writes that wait for searches");
    if memory.grow(bytes_of(outcomes)).is_err() {
        return false;
    }
    wait_searches(&app.engine, awaited).await
}

/// Returns the memory of outcomes, in bytes.
fn bytes_of(outcomes: &Outcomes) -> u64 {
    let texts = outcomes.rows.iter().map(|row| {
        let json = [&row.key, &row.row].into_iter().flatten();
        let reason = row.reason.as_ref().map_or(0, String::len);
        json.map(|json| json.get().len()).sum::<usize>() + reason
    });
    (size_of_val(outcomes.rows.as_slice()) + texts.sum::<usize>()) as u64
}
