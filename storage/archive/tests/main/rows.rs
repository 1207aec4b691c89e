//! Archived rows of wide tables: random groups of all types are read back bit for bit.
//!
//! Tideline reads a group by its recorded location. The footer, which other readers use, must have the same number of
//! rows, and the smallest and largest value of each column must match the rows.

use std::path::Path;

use parquet::basic::Type;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;
use tideline_archive::rows::{
    GroupColumn, GroupValues, PartTarget, RowColumn, RowColumnKind, RowGroup, RowSchema, WrittenRows,
};
use tideline_model::TableName;
use tideline_testkit::{Random, is_slow, seeds};

use crate::kit::{archive, in_directory};

const KINDS: [RowColumnKind; 8] = [
    RowColumnKind::Text,
    RowColumnKind::Json,
    RowColumnKind::Bytes,
    RowColumnKind::Float,
    RowColumnKind::Signed,
    RowColumnKind::Unsigned,
    RowColumnKind::Boolean,
    RowColumnKind::Time,
];

/// Distribution of the values of a column.
#[derive(Debug, Clone, Copy)]
enum Spread {
    One,
    Few,
    Rising,
    Any,
}

/// Returns a schema with the key and one required and one optional column of each type.
pub(crate) fn schema() -> RowSchema {
    let column = |name: String, kind, required| RowColumn { name, kind, required };
    let mut columns = vec![column("_key".to_owned(), RowColumnKind::Sorted, true)];
    for kind in KINDS {
        let name = format!("{kind:?}").to_lowercase();
        columns.push(column(name.clone(), kind, true));
        columns.push(column(format!("{name}_or_null"), kind, false));
    }
    RowSchema::new(columns).expect("a schema")
}

pub(crate) fn part_target(directory: &Path) -> PartTarget {
    PartTarget {
        origin: "0123456789abcdef".to_owned(),
        table: TableName::new("orders").expect("a name"),
        name: "2026-10".to_owned(),
        part: 7,
        target: in_directory(directory),
    }
}

fn number(spread: Spread, row: usize, random: &mut Random) -> u64 {
    match spread {
        Spread::One => 7,
        Spread::Few => random.below(20),
        Spread::Rising => row as u64 * 1_000 + random.below(10),
        Spread::Any => match random.below(8) {
            0 => u64::MAX,
            1 => 1 << 63,
            2 => (1 << 63) - 1,
            3 => 0,
            _ => random.next(),
        },
    }
}

fn push(column: &mut GroupColumn, spread: Spread, row: usize, random: &mut Random) {
    let number = number(spread, row, random);
    match &column.values {
        GroupValues::Bytes(_) => {
            let length = match spread {
                Spread::Any => [0, 1, 70, 300][random.below(4) as usize],
                _ => 1,
            };
            column.push_bytes(format!("ü{number}").repeat(length).as_bytes());
        }
        GroupValues::Floats(_) => column.push_float(f64::from_bits(number)),
        GroupValues::Integers(_) => column.push_integer(number.cast_signed()),
        GroupValues::Booleans(_) => column.push_boolean(number % 2 == 1),
    }
}

/// Returns a group that follows `first` earlier rows. The keys of the group are above the keys of these rows.
fn group(schema: &RowSchema, first: usize, random: &mut Random) -> RowGroup {
    let mut group = RowGroup::new(schema);
    let rows_max = random.of(&[3, 200, 3_000]);
    group.rows = 1 + random.below(rows_max) as usize;
    for (column, of) in group.columns.iter_mut().zip(schema.columns()) {
        let spread = random.of(&[Spread::One, Spread::Few, Spread::Rising, Spread::Any]);
        let absent = match of.required {
            true => 0,
            false => random.of(&[0, 10, 90, 100]),
        };
        for row in 0..group.rows {
            match of.kind {
                RowColumnKind::Sorted => column.push_bytes(format!("key-{:08}", first + row).as_bytes()),
                _ if random.is(absent) => column.push_absent(),
                _ => push(column, spread, row, random),
            }
        }
    }
    group
}

/// Compares columns bit for bit; a NaN is equal to itself.
fn assert_same(one: &GroupColumn, other: &GroupColumn, name: &str) {
    assert_eq!(one.levels, other.levels, "{name}");
    match (&one.values, &other.values) {
        (GroupValues::Floats(one), GroupValues::Floats(other)) => {
            let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(one), bits(other), "{name}");
        }
        (one, other) => assert_eq!(one, other, "{name}"),
    }
}

/// Compares the bounds in the footer with the values.
fn check_bounds(column: &GroupColumn, kind: RowColumnKind, found: &Statistics) {
    let nulls = column
        .levels
        .iter()
        .flatten()
        .filter(|level| **level == 0)
        .count();
    assert_eq!(found.null_count_opt(), Some(nulls as u64));
    match (&column.values, found) {
        (GroupValues::Integers(values), Statistics::Int64(found)) => {
            let order = |value: &i64| match kind {
                RowColumnKind::Unsigned => value.cast_unsigned(),
                _ => value.cast_unsigned() ^ 1 << 63,
            };
            assert_eq!(found.min_opt(), values.iter().min_by_key(|value| order(value)));
            assert_eq!(found.max_opt(), values.iter().max_by_key(|value| order(value)));
        }
        (GroupValues::Bytes(values), Statistics::ByteArray(found)) => {
            let values = || (0..values.len()).filter_map(|at| values.get(at));
            assert_eq!(found.min_opt().map(|bound| bound.data()), values().min());
            assert_eq!(found.max_opt().map(|bound| bound.data()), values().max());
        }
        other => panic!("unexpected bounds: {other:?}"),
    }
}

#[test]
fn random_groups_are_read_back_bit_for_bit() {
    let count = if is_slow() { 200 } else { 20 };
    for seed in seeds("random_groups_are_read_back_bit_for_bit", count) {
        let mut random = Random::new(seed);
        let directory = tempfile::tempdir().expect("made");
        let (archive, schema) = (archive(directory.path()), schema());
        let part_target = part_target(directory.path());
        let mut writer = archive
            .rows_writer(part_target.clone(), schema.clone())
            .expect("a writer");
        let (mut groups, mut first) = (Vec::new(), 0);
        for _ in 0..1 + random.below(3) {
            let group = group(&schema, first, &mut random);
            first += group.rows;
            writer.add(&group).expect("it is added");
            groups.push(group);
        }
        let WrittenRows {
            files,
            groups: locations,
        } = writer.finish().expect("they are written");
        assert_eq!(files.iter().map(|file| file.rows).sum::<u64>(), first as u64);
        for (group, at) in groups.iter().zip(&locations) {
            let file = &files[at.file as usize];
            let read = archive
                .row_group(&part_target.target, file, &schema, at)
                .expect("it is read");
            for (number, of) in schema.columns().iter().enumerate() {
                assert_same(
                    &read.columns[number],
                    &group.columns[number],
                    &format!("{seed}: {}", of.name),
                );
            }
        }
        let path = part_target.target.strip_prefix("file://").expect("a directory");
        let file = std::fs::File::open(Path::new(path).join(&files[0].key)).expect("it exists");
        let footer = SerializedFileReader::new(file).expect("a footer");
        for (at, group) in groups.iter().enumerate() {
            let about = footer.metadata().row_group(at);
            for ((column, of), chunk) in group.columns.iter().zip(schema.columns()).zip(about.columns()) {
                if let Some(found) = chunk.statistics() {
                    check_bounds(column, of.kind, found);
                }
                let has_values = column.levels.as_ref().is_none_or(|levels| levels.contains(&1));
                if has_values && chunk.column_type() == Type::INT64 {
                    assert!(chunk.statistics().is_some(), "{}", of.name);
                }
            }
        }
        assert_eq!(footer.get_row_iter(None).expect("rows").count(), first);
    }
}
