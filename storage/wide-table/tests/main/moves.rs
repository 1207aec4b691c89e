//! Tests of moves of parts between the hot and the cold tier while rows are flushed.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use tideline_backend::{Backend, Direction};
use tideline_log::SHARD;
use tideline_model::{KeyRange, SystemClock, Tier};
use tideline_wide_table::MoveEnd;

use super::database::*;
use super::paused::paused_backend;

/// Number of buckets of a part. A move of few values calls `proceed` after each of them.
const BUCKETS: usize = 4;

#[test]
fn a_move_copies_the_values_of_a_flush_that_writes_during_the_copy() {
    let (backend, opened) = paused_backend();
    let database = Database::open_at(opened, Arc::new(SystemClock), divided_by_day(), settings());
    let rows = |value: i64| {
        let row = |name| put_on_day(name, 20_000, &[("a", value)]);
        ["r1", "r2", "r3"].map(row)
    };
    database.write(&rows(1));
    database.flush();
    database.write(&rows(2));

    let part = backend.parts(SHARD).expect("the parts").remove(0);
    let part_number = database.store.parts_in_tiers(TABLE)[0].number;
    let write = backend.pause(move |call| call.writes(part));
    let moved = thread::scope(|scope| {
        scope.spawn(|| database.flush());
        write.wait();
        let mut steps = 0;
        database.store.move_table_part(
            &database.threads,
            (TABLE, part_number),
            Tier::Cold,
            &mut |_, _| Ok(None),
            &mut |_| {
                steps += 1;
                // The write of the flush began before the move, and takes effect after everything was copied.
                if steps == BUCKETS {
                    write.end();
                }
                ControlFlow::Continue(())
            },
        )
    });
    assert!(matches!(moved, Ok(MoveEnd::Moved(_))), "{moved:?}");
    assert_eq!(database.store.parts_in_tiers(TABLE)[0].tier, Tier::Cold);
    let found = database.rows(KeyRange::ALL, Direction::Ascending, 10);
    let found: Vec<Option<i64>> = found.iter().map(|(_, row)| number(row, "a")).collect();
    assert_eq!(found, [Some(2); 3]);
    database.close();
}
