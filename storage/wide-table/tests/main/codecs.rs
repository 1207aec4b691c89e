//! Columns with a separate compression setting: their stored form, and reads that return the same rows in every
//! place.
//!
//! The texts are paragraphs of the guide.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_backend::{Backend, Direction, ManifestKind, PartRef, Partition, Row, RowChange, Stamp};
use tideline_key_codec::layout::KeyLayout;
use tideline_key_codec::parse_part_name;
use tideline_log::SHARD;
use tideline_model::{
    ColumnCompression, Durability, KeyRange, RowLimit, SystemClock, TableId, TableModel, TableSpec, Tier,
};
use tideline_testkit::{Random, seed};
use tideline_wide_table::check::{JournalChanges, StoredParts, check_rows};
use tideline_wide_table::survey::{ColumnSize, RowSurvey};
use tideline_wide_table::{
    Action, CellValue, Column, LARGE_BYTES_MIN, LargeKind, MoveEnd, Mutation, PIECE_BYTES, RowOutcome,
    RowWrite, Update, ValueToCut, check_large,
};

use super::database::*;

const DICTIONARIES: u16 = 3;
/// Id under which the pieces are stored.
const PIECES: TableId = TableId(900);

type Rows = BTreeMap<String, BTreeMap<&'static str, CellValue<'static>>>;

/// Returns the settings of a table whose columns have these compressions.
fn spec_with(columns: &[(&str, ColumnCompression)]) -> TableSpec {
    let mut spec = spec(2);
    let wide = spec.wide.as_deref_mut().expect("a wide table");
    wide.large_values = Some(PIECES.0);
    wide.cut_values = true;
    for (name, compression) in columns {
        let column = serde_json::json!({"name": name, "type": "string", "compression": compression});
        wide.columns
            .push(serde_json::from_value(column).expect("a valid column"));
    }
    spec
}

fn all() -> TableSpec {
    spec_with(&[
        ("text", ColumnCompression::Zstd),
        ("noise", ColumnCompression::None),
        ("note", ColumnCompression::Lz4),
    ])
}

fn open(backend: &Arc<dyn Backend>, spec: TableSpec) -> Database {
    let settings = tideline_wide_table::Settings {
        block_bytes: 8 << 10,
        ..settings()
    };
    Database::open_at(Arc::clone(backend), Arc::new(SystemClock), spec, settings)
}

fn paragraphs() -> Vec<&'static str> {
    let pages = [
        include_str!("../../../../docs/rows.md"),
        include_str!("../../../../docs/row-examples.md"),
        include_str!("../../../../docs/queries.md"),
        include_str!("../../../../docs/feeds.md"),
        include_str!("../../../../docs/jobs.md"),
    ];
    let paragraphs = pages.into_iter().flat_map(|page| page.split("\n\n"));
    paragraphs.filter(|text| text.len() > 200).collect()
}

fn noise(random: &mut Random, bytes: usize) -> CellValue<'static> {
    let words = (0..bytes.div_ceil(8)).flat_map(|_| random.next().to_le_bytes());
    CellValue::Binary(words.take(bytes).collect::<Vec<u8>>().into())
}

fn text(text: &str) -> CellValue<'static> {
    CellValue::String(text.to_owned().into())
}

impl Database {
    fn set_values(&self, writes: &[(String, Vec<(&'static str, CellValue<'static>)>)], rows: &mut Rows) {
        for chunk in writes.chunks(200) {
            let writes: Vec<RowWrite<'_>> = chunk
                .iter()
                .map(|(key, values)| {
                    let time = self.store.next_version();
                    let columns = values
                        .iter()
                        .map(|(name, value)| Column::with(named(name), time, value.clone()));
                    let update = Update {
                        columns: columns.collect(),
                        ..Update::default()
                    };
                    write_of(key, time, Action::Update(update))
                })
                .collect();
            self.write(&writes);
        }
        for (key, values) in writes {
            rows.entry(key.clone())
                .or_default()
                .extend(values.iter().cloned());
        }
    }

    fn assert_rows(&self, rows: &Rows, place: &str) {
        let newest = |row: &Mutation<'static>| -> BTreeMap<String, CellValue<'static>> {
            let columns = row.columns.iter();
            let columns = columns.map(|column| {
                let name = match &column.name {
                    tideline_wide_table::ColumnName::Named(name) => name.to_string(),
                    tideline_wide_table::ColumnName::Declared(number) => number.to_string(),
                };
                (name, column.versions[0].value.clone())
            });
            columns.collect()
        };
        let owned = |values: &BTreeMap<&'static str, CellValue<'static>>| {
            let values = values.iter();
            values
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect()
        };
        for direction in [Direction::Ascending, Direction::Descending] {
            let mut found = self.rows(KeyRange::ALL, direction, 97);
            if direction == Direction::Descending {
                found.reverse();
            }
            assert_eq!(found.len(), rows.len(), "{place}");
            for ((key, row), (expected, values)) in found.iter().zip(rows) {
                let values: BTreeMap<String, CellValue<'static>> = owned(values);
                assert_eq!(key[..], *expected.as_bytes(), "{place}");
                assert!(newest(row) == values, "{place}: row {expected:?} differs");
            }
        }
        for (key, values) in rows.iter().step_by(41) {
            let row = self.row(key.as_bytes()).expect("the row exists");
            let values: BTreeMap<String, CellValue<'static>> = owned(values);
            assert!(newest(&row) == values, "{place}: row {key:?} differs");
        }
    }

    fn survey(&self) -> RowSurvey {
        let spec = spec(1).wide.expect("a wide table");
        let layout = KeyLayout::new(&spec.key, false).expect("a valid key");
        let mut survey = self.store.begin_survey(TABLE, layout).expect("it begins");
        while !self.store.survey_step(&mut survey).expect("it is read").is_done {}
        survey.finish()
    }
}

fn part_of(backend: &dyn Backend, table: TableId) -> PartRef {
    let rows = backend.manifest(SHARD).expect("it is read").rows;
    let parts = rows.into_iter().filter_map(|row| {
        let detail: serde_json::Value = serde_json::from_slice(&row.detail).ok()?;
        let is_part = detail["table"] == table.0 && parse_part_name(&row.name).is_some();
        is_part.then(|| PartRef {
            part: parse_part_name(&row.name).expect("a part"),
            table,
            tier: match detail["tier"] == "cold" {
                true => Tier::Cold,
                false => Tier::Hot,
            },
        })
    });
    parts.last().expect("the table has a part")
}

fn stored(backend: &dyn Backend, table: TableId, bucket: u16) -> Vec<Row> {
    stored_rows(backend, Partition::part(part_of(backend, table), bucket))
}

fn size_of(survey: &RowSurvey, name: &'static str) -> ColumnSize {
    let found = survey.columns.iter().find(|size| size.name == named(name));
    found.cloned().expect("the column was measured")
}

fn findings(backend: &dyn Backend) -> Vec<String> {
    let parts = StoredParts::read(backend).expect("they are read");
    let journal = JournalChanges::default();
    let checked = check_rows(backend, &parts, TABLE, &journal, &|_| Ok(()));
    checked.expect("they are checked").findings
}

/// Writes rows with texts, noise and notes, some of them in several writes, and flushes them three times.
fn fill(database: &Database, random: &mut Random, rows: &mut Rows) {
    let paragraphs = paragraphs();
    for round in 0..3 {
        let mut writes = Vec::new();
        for number in 0..700 {
            let key = encoded(&format!("k{number:04}{round}"));
            let mut values = vec![
                ("text", text(random.of(&paragraphs))),
                ("noise", noise(random, 300)),
                (
                    "note",
                    text("seen, and seen again, and seen once more, and then again, and so on"),
                ),
            ];
            if number % 3 == 0 {
                values.truncate(2);
            }
            if number % 100 == 0 {
                values = vec![("text", text("")), ("a", CellValue::I64(number))];
            }
            writes.push((key, values));
        }
        database.set_values(&writes, rows);
        // Rows with columns of several times.
        let later = writes.iter().step_by(7).map(|(key, _)| {
            let note = text(&format!("{} changed", random.of(&paragraphs)));
            (key.clone(), vec![("text", note)])
        });
        database.set_values(&later.collect::<Vec<_>>(), rows);
        database.flush();
    }
    let mut rest = Some(KeyRange::ALL);
    while let Some(range) = rest {
        let step = database.store.pack_range(TABLE, 0, &range).expect("it is packed");
        rest = step.next.map(|start| KeyRange { start, end: None });
    }
}

#[test]
fn texts_become_small_and_noise_stays_as_it_is() {
    let seed = seed("texts_become_small_and_noise_stays_as_it_is");
    every_backend(|backend| {
        let backend = backend();
        let (mut random, mut rows) = (Random::new(seed), Rows::new());
        let database = open(&backend, all());
        fill(&database, &mut random, &mut rows);
        database.assert_rows(&rows, "in the hot tier");
        assert!(stored(&*backend, TABLE, SINGLES).len() < 60);
        assert_eq!(
            stored(&*backend, TABLE, DICTIONARIES).len(),
            1,
            "one column has a dictionary"
        );
        let survey = database.survey();
        let (texts, noise, notes) = (
            size_of(&survey, "text"),
            size_of(&survey, "noise"),
            size_of(&survey, "note"),
        );
        assert!(texts.stored_bytes * 3 < texts.bytes, "{texts:?}");
        assert!(notes.stored_bytes * 4 < notes.bytes, "{notes:?}");
        let ratio = noise.stored_bytes as f64 / noise.bytes as f64;
        assert!((0.9..1.05).contains(&ratio), "{noise:?}");
        // The contents that are not compressed can be found in the blocks.
        let of_row = rows.values().find_map(|values| match values.get("noise") {
            Some(CellValue::Binary(bytes)) => Some(bytes.to_vec()),
            _ => None,
        });
        let of_row = of_row.expect("a row has noise");
        let blocks = stored(&*backend, TABLE, BLOCKS);
        let has = |block: &Row| block.value.windows(of_row.len()).any(|bytes| bytes == of_row);
        assert!(blocks.iter().any(has));
        assert_eq!(findings(&*backend), Vec::<String>::new());

        drop(database);
        let database = open(&backend, all());
        database.assert_rows(&rows, "after a restart");
        let moved = database.store.move_table_part(
            &database.threads,
            (TABLE, 0),
            Tier::Cold,
            &mut |_, _| Ok(None),
            &mut |_| ControlFlow::Continue(()),
        );
        assert!(matches!(moved.expect("it is moved"), MoveEnd::Moved(_)));
        database.assert_rows(&rows, "in the cold tier");
        assert_eq!(
            stored(&*backend, TABLE, DICTIONARIES).len(),
            1,
            "the dictionary was copied"
        );
        assert_eq!(findings(&*backend), Vec::<String>::new());

        // Other settings apply to later blocks only.
        database.change_wide(|wide| {
            for column in &mut wide.columns {
                column.compression = ColumnCompression::Auto;
            }
        });
        database.assert_rows(&rows, "with other settings");
        fill(&database, &mut random, &mut rows);
        database.assert_rows(&rows, "with blocks of both kinds");
        drop(database);
    });
}

/// Returns the words of a language.
fn language(random: &mut Random) -> Vec<String> {
    let letters: Vec<char> = ('a'..='z').collect();
    let words = (0..600).map(|_| (0..4 + random.below(9)).map(|_| random.of(&letters)).collect());
    words.collect()
}

/// Writes 4 MiB of rows with texts of random words, and flushes them.
fn write_words(database: &Database, (name, words): (&str, &[String]), random: &mut Random, rows: &mut Rows) {
    let mut writes = Vec::new();
    for number in 0..(4 << 20) / 800 {
        let mut words_of_row = String::new();
        while words_of_row.len() < 800 {
            let word = &words[random.below(words.len() as u64) as usize];
            words_of_row.push_str(word);
            words_of_row.push(' ');
        }
        let key = encoded(&format!("{name}{number:05}"));
        writes.push((key, vec![("text", text(&words_of_row))]));
    }
    for writes in writes.chunks(1_000) {
        database.set_values(writes, rows);
        database.flush();
    }
}

fn format_of_part(backend: &dyn Backend) -> u64 {
    let rows = backend.manifest(SHARD).expect("it is read").rows;
    let details = rows.iter().filter(|row| row.kind == ManifestKind::Part);
    let details = details.filter_map(|row| serde_json::from_slice::<serde_json::Value>(&row.detail).ok());
    let of_table = details.filter(|detail| detail["table"] == TABLE.0);
    of_table
        .filter_map(|detail| detail["format"].as_u64())
        .max()
        .expect("a part")
}

#[test]
fn many_small_flushes_make_a_dictionary() {
    let seed = seed("many_small_flushes_make_a_dictionary");
    every_backend(|backend| {
        let backend = backend();
        let (mut random, mut rows) = (Random::new(seed), Rows::new());
        let database = open(&backend, all());
        let paragraphs = paragraphs();
        for flush in 0..100 {
            let writes = (0..20).map(|number| {
                let key = encoded(&format!("k{flush:03}{number:02}"));
                (key, vec![("text", text(random.of(&paragraphs)))])
            });
            let writes: Vec<_> = writes.collect();
            database.set_values(&writes, &mut rows);
            database.flush();
        }
        assert_eq!(stored(&*backend, TABLE, DICTIONARIES).len(), 1);
        database.assert_rows(&rows, "after small flushes");
        drop(database);
    });
}

#[test]
fn a_dictionary_that_no_longer_fits_its_column_is_replaced() {
    let seed = seed("a_dictionary_that_no_longer_fits_its_column_is_replaced");
    every_backend(|backend| {
        let backend = backend();
        let (mut random, mut rows) = (Random::new(seed), Rows::new());
        let settings = tideline_wide_table::Settings {
            block_bytes: 8 << 10,
            buffer_bytes: 8 << 20,
            dictionary_check_bytes: 1 << 20,
            ..settings()
        };
        let reopen = || {
            let clock = Arc::new(SystemClock);
            Database::open_at(Arc::clone(&backend), clock, all(), settings)
        };
        let database = reopen();
        let (first, second) = (language(&mut random), language(&mut random));
        // Texts of one language, as many as several comparisons need.
        write_words(&database, ("a", &first), &mut random, &mut rows);
        assert_eq!(stored(&*backend, TABLE, DICTIONARIES).len(), 1);
        let before = database.store.stats().dictionaries;
        assert_eq!((before.made, before.replaced, before.refusals), (1, 0, 0));
        let format = format_of_part(&*backend);
        let bytes_of_blocks = || bytes_of(&stored(&*backend, TABLE, BLOCKS));
        let of_first = bytes_of_blocks();

        // Texts of another language.
        write_words(&database, ("b", &second), &mut random, &mut rows);
        assert_eq!(
            stored(&*backend, TABLE, DICTIONARIES).len(),
            2,
            "one was replaced"
        );
        let after = database.store.stats().dictionaries;
        assert_eq!((after.made, after.replaced), (2, 1));
        assert!(format < 8 && format_of_part(&*backend) == 8);
        database.assert_rows(&rows, "with two dictionaries");
        let read = database.store.stats().dictionaries;
        assert!(
            read.bytes > 100_000 && read.bytes <= read.budget_bytes / 4,
            "{read:?}"
        );
        assert_eq!(findings(&*backend), Vec::<String>::new());
        let of_second = bytes_of_blocks() - of_first;
        drop(database);

        // After a restart, blocks use the new dictionary from the beginning.
        let database = reopen();
        write_words(&database, ("c", &second), &mut random, &mut rows);
        let of_third = bytes_of_blocks() - of_first - of_second;
        assert!(
            of_third * 100 < of_second * 95 && of_third * 100 < of_first * 105,
            "{of_first}, {of_second}, {of_third}"
        );
        assert_eq!(stored(&*backend, TABLE, DICTIONARIES).len(), 2);
        database.assert_rows(&rows, "after a restart");
        drop(database);
    });
}

#[test]
fn a_table_with_codecs_or_limits_has_a_later_format() {
    for (has_codecs, has_limits, format) in [(false, false, 16), (true, false, 18), (true, true, 19)] {
        let disk = MemoryDisk::new(Character::Embedded);
        let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::open(&disk));
        let mut spec = all();
        let wide = spec.wide.as_deref_mut().expect("a wide table");
        wide.codecs = has_codecs;
        wide.limits = has_limits
            .then_some(RowLimit {
                older_than: None,
                reads_per_second: Some(1),
                writes_per_second: None,
            })
            .into_iter()
            .collect();
        drop(open(&backend, spec));
        let rows = backend.manifest(SHARD).expect("it is read").rows;
        let table = rows.iter().find(|row| row.kind == ManifestKind::Table);
        let detail: serde_json::Value =
            serde_json::from_slice(&table.expect("a table").detail).expect("valid settings");
        assert_eq!(detail["format"], format);
    }
}

#[test]
fn a_table_whose_parts_have_schedules_or_a_rate_has_a_later_format() {
    for (settings, format) in [
        (r#"{"by": "at", "every": "day", "keep": 5}"#, 9),
        (r#"{"by": "at", "every": "day", "hot": 5}"#, 10),
        (r#"{"by": "at", "every": "day", "move_bytes_per_second": 5}"#, 21),
        (
            r#"{"by": "at", "every": "day",
                "expire": {"cron": {"expression": "0 3 * * *", "time_zone": "UTC"}}}"#,
            21,
        ),
    ] {
        let disk = MemoryDisk::new(Character::Embedded);
        let backend: Arc<dyn Backend> = Arc::new(MemoryBackend::open(&disk));
        let wide = serde_json::json!({
            "key": [{"name": "id", "type": "u64"}, {"name": "at", "type": "timestamp"}],
            "parts": serde_json::from_str::<serde_json::Value>(settings).expect("valid settings"),
        });
        let spec = TableSpec {
            model: TableModel::Wide,
            wide: Some(serde_json::from_value(wide).expect("valid settings")),
            ..TableSpec::default()
        };
        drop(open(&backend, spec.clone()));
        let rows = backend.manifest(SHARD).expect("it is read").rows;
        let table = rows.iter().find(|row| row.kind == ManifestKind::Table);
        let detail: serde_json::Value =
            serde_json::from_slice(&table.expect("a table").detail).expect("valid settings");
        assert_eq!(detail["format"], format, "{settings}");
        // This build reads the format.
        drop(open(&backend, spec));
    }
}

#[test]
fn a_missing_or_damaged_dictionary_is_reported() {
    let seed = seed("a_missing_or_damaged_dictionary_is_reported");
    every_backend(|backend| {
        let backend = backend();
        let (mut random, mut rows) = (Random::new(seed), Rows::new());
        let database = open(&backend, all());
        fill(&database, &mut random, &mut rows);
        drop(database);
        let dictionary = stored(&*backend, TABLE, DICTIONARIES).remove(0);
        let mut damaged = dictionary.value.to_vec();
        damaged[1_000] ^= 1;
        for (stamp, value) in [(0, Some(Bytes::from(damaged))), (1, None)] {
            let change = RowChange {
                key: dictionary.key.clone(),
                value,
            };
            let partition = Partition::part(part_of(&*backend, TABLE), DICTIONARIES);
            let written = backend.write(
                partition,
                &[change],
                Stamp(u64::MAX / 2 + stamp),
                Durability::Synced,
            );
            written.expect("it is written");
            let found = findings(&*backend);
            assert!(
                found.iter().any(|finding| finding.contains("dictionary")),
                "{found:?}"
            );
        }
    });
}

#[test]
fn pieces_are_compressed_as_their_column_specifies() {
    let seed = seed("pieces_are_compressed_as_their_column_specifies");
    every_backend(|backend| {
        let backend = backend();
        let mut random = Random::new(seed);
        let database = open(&backend, all());
        let paragraphs = paragraphs();
        let mut long = String::new();
        while long.len() < PIECE_BYTES + LARGE_BYTES_MIN {
            long.push_str(random.of(&paragraphs));
        }
        let mut sizes = BTreeMap::new();
        for column in ["text", "noise", "note", "other"] {
            let name = named(column);
            let value = text(&long);
            // A value of an ordinary write.
            let key = encoded(&format!("cut {column}"));
            let to_cut = ValueToCut {
                key: key.as_bytes(),
                column: &name,
                value: &value,
            };
            let before = bytes_of(&stored_pieces(&*backend));
            let cut = database
                .store
                .cut_values(TABLE, &[to_cut])
                .expect("it is stored")
                .remove(0);
            let cut = cut.expect("the part can be written");
            write_large(&database, &key, column, CellValue::Large(cut.value()));
            let after_cut = bytes_of(&stored_pieces(&*backend));
            // A value that is uploaded in a separate request.
            let key = encoded(&format!("streamed {column}"));
            let upload = database
                .store
                .begin_large(TABLE, key.as_bytes(), &name, LargeKind::Text);
            let mut upload = upload.expect("it begins");
            for part in long.as_bytes().chunks(100_001) {
                upload.write(part).expect("it is written");
            }
            let streamed = upload.finish().expect("it is complete");
            write_large(&database, &key, column, CellValue::Large(streamed));
            upload.kept();
            let reader = database.store.read_large(TABLE, key.as_bytes(), streamed);
            let reader = reader.expect("it is read").expect("it exists");
            let mut read = Vec::new();
            while read.len() < long.len() {
                read.extend_from_slice(&reader.at(read.len() as u64).expect("it is read"));
            }
            assert!(read == long.as_bytes(), "{column}");
            assert!(
                reader.at(PIECE_BYTES as u64 + 7).expect("it is read")[..]
                    == long.as_bytes()[PIECE_BYTES + 7..]
            );
            let after = bytes_of(&stored_pieces(&*backend));
            sizes.insert(column, (after_cut - before, after - after_cut));
        }
        let plain = long.len();
        let (cut, streamed) = sizes["text"];
        assert!(cut * 3 < plain * 2 && streamed * 3 < plain * 2, "{sizes:?}");
        assert!(sizes["note"].1 < plain && sizes["note"].1 > streamed, "{sizes:?}");
        assert!(
            sizes["noise"].0 >= plain && sizes["noise"].1 >= plain,
            "{sizes:?}"
        );
        assert!(sizes["other"].0 < plain && sizes["other"].1 >= plain, "{sizes:?}");
        assert!(cut < sizes["other"].0, "{sizes:?}");
        database.flush();
        drop(database);
        let parts = StoredParts::read(&*backend).expect("they are read");
        let checked = check_large(&*backend, &parts, TABLE, &JournalChanges::default());
        let checked = checked.expect("they are checked");
        assert_eq!((checked.rows, checked.findings), (8, Vec::new()));
    });
}

fn write_large(database: &Database, key: &str, column: &'static str, value: CellValue<'static>) {
    let time = database.store.next_version();
    let update = Update {
        columns: vec![Column::with(named(column), time, value)],
        ..Update::default()
    };
    let written = database.write_one(write_of(key, time, Action::Update(update)));
    assert_eq!(written, RowOutcome::Written(None));
}

fn stored_pieces(backend: &dyn Backend) -> Vec<Row> {
    let has_part = backend
        .manifest(SHARD)
        .expect("it is read")
        .rows
        .iter()
        .any(|row| {
            let detail: serde_json::Value = serde_json::from_slice(&row.detail).unwrap_or_default();
            detail["table"] == PIECES.0
        });
    match has_part {
        true => stored(backend, PIECES, 0),
        false => Vec::new(),
    }
}

fn bytes_of(rows: &[Row]) -> usize {
    rows.iter().map(|row| row.value.len()).sum()
}
