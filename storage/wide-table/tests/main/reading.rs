//! Tests of page reads of rows in the buffer and in a part, and of freeing the parts of a dropped table.

use tideline_backend::Direction;
use tideline_model::KeyRange;
use tideline_wide_table::Action;

use super::database::*;

#[test]
fn pages_join_buffer_and_part_in_both_directions() {
    every_backend(|backend| {
        let database = Database::open(backend(), 1);
        for number in (0..100).step_by(2) {
            database.write_one(put(&format!("k{number:03}"), 1, &[("n", number)]));
        }
        database.flush();
        for number in (0..100).step_by(3) {
            database.write_one(set(&format!("k{number:03}"), 2, "m", number));
        }
        database.write_one(write_of("k010", 3, Action::Delete));
        database.delete_rows(KeyRange::new(*b"k050", *b"k060"));
        let expected: Vec<String> = (0..100)
            .filter(|number| number % 2 == 0 || number % 3 == 0)
            .filter(|number| *number != 10 && !(50..60).contains(number))
            .map(|number| format!("k{number:03}"))
            .collect();
        for rows_max in [1, 7, 1_000] {
            let keys = |direction| -> Vec<String> {
                let rows = database.rows(KeyRange::ALL, direction, rows_max);
                let text = |(key, _): &(bytes::Bytes, _)| String::from_utf8_lossy(key).into_owned();
                rows.iter().map(text).collect()
            };
            assert_eq!(keys(Direction::Ascending), expected);
            let mut descending = keys(Direction::Descending);
            descending.reverse();
            assert_eq!(descending, expected);
        }
        database.close();
    });
}

#[test]
fn rows_of_a_dropped_table_are_freed() {
    every_backend(|backend| {
        let database = Database::open(backend(), 1);
        database.write_one(put("a", 1, &[]));
        database.flush();
        let log = database.threads.log();
        let shard = tideline_log::SHARD;
        assert_eq!(log.backend().parts(shard).expect("parts").len(), 1);
        log.edit_shared(|manifest| {
            manifest.tables.remove(&TABLE);
            vec![tideline_log::manifest::remove_table(TABLE)]
        })
        .expect("it is dropped");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !log.backend().parts(shard).expect("parts").is_empty() {
            assert!(std::time::Instant::now() < deadline, "the part is still there");
            std::thread::yield_now();
        }
        assert!(database.store.row(TABLE, b"a").is_err());
        database.close();
    });
}
