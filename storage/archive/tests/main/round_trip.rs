//! Everything that is written is read back bit for bit.
//!
//! Random runs cover all types, sparse rows and unusual names. Separate tests cover shared files, growing columns,
//! memory limits and stopping.

use std::sync::Arc;

use parquet::file::reader::{FileReader, SerializedFileReader};
use proptest::prelude::*;
use tideline_archive::{ArchiveError, ReadMemory, TimelineMetadata};
use tideline_chunk::{Bitmap, Presence, Run, RunColumn};
use tideline_model::time::{NANOS_PER_DAY, NANOS_PER_SECOND};
use tideline_model::{ColumnData, FieldId, Identity, TimelineId, ValueType};

use crate::kit::{Known, Points, archive, flat, floats, histograms, in_directory, read, write};

/// Returns values of a type, including extreme values.
fn values(of: ValueType, seeds: &[u64]) -> ColumnData {
    let pick = |seed: &u64| seed % 7;
    match of {
        ValueType::Float => ColumnData::Float(
            seeds
                .iter()
                .map(|seed| match pick(seed) {
                    0 => f64::from_bits(0x7ff8_0000_0000_0000 | seed >> 16),
                    1 => -0.0,
                    2 => f64::NEG_INFINITY,
                    3 => (seed % 1_000) as f64 / 10.0,
                    4 => f64::from_bits(seed >> 12),
                    _ => f64::from_bits(*seed),
                })
                .collect(),
        ),
        ValueType::Signed => ColumnData::Signed(seeds.iter().map(|seed| *seed as i64).collect()),
        ValueType::Unsigned => ColumnData::Unsigned(seeds.iter().map(|seed| !seed).collect()),
        ValueType::Boolean => ColumnData::Boolean(seeds.iter().map(|seed| seed % 2 == 0).collect()),
        ValueType::String => {
            let texts: Vec<String> = seeds
                .iter()
                .map(|seed| match pick(seed) {
                    0 => String::new(),
                    1 => "ümlaut\0 and \u{202e}".into(),
                    _ => format!("text {}", seed % 40),
                })
                .collect();
            ColumnData::String(texts.iter().map(String::as_str).collect())
        }
        ValueType::Histogram => {
            // Arbitrary bytes, which need not be UTF-8.
            let bytes = seeds.iter().map(|seed| seed.to_le_bytes());
            let all: Vec<[u8; 8]> = bytes.collect();
            let some = all.iter().zip(seeds);
            ColumnData::Histogram(some.map(|(bytes, seed)| &bytes[..pick(seed) as usize]).collect())
        }
    }
}

/// Returns a run of random fields and types. Each row has at most one type per field; some rows have no values.
fn run(start: i64, steps: &[u16], kinds: &[u8], seeds: &[u64]) -> Run {
    let mut time = start;
    let mut timestamps = Vec::new();
    for step in steps {
        time += 1 + i64::from(*step) * NANOS_PER_SECOND;
        timestamps.push(time);
    }
    let rows = timestamps.len();
    let mut columns = Vec::new();
    for field in 0..3u32 {
        // Type of the field in each row, if any.
        let of_row = |row: usize| usize::from(kinds[(row * 3 + field as usize) % kinds.len()]) % 8;
        for (code, of) in ValueType::ALL.into_iter().enumerate() {
            let has: Vec<bool> = (0..rows).map(|row| of_row(row) == code).collect();
            let count = has.iter().filter(|has| **has).count();
            if count == 0 {
                continue;
            }
            let seeds: Vec<u64> = seeds
                .iter()
                .cycle()
                .skip(field as usize + code)
                .take(count)
                .copied()
                .collect();
            columns.push(RunColumn {
                field: FieldId(field + 1),
                presence: if count == rows {
                    Presence::All
                } else {
                    Presence::Some(has.into_iter().collect::<Bitmap>())
                },
                values: values(of, &seeds),
            });
        }
    }
    Run { timestamps, columns }
}

fn known(measurements: &[&str]) -> Known {
    let mut known = Known::default();
    for measurement in measurements {
        for (field, name) in ["a", "host", "A b"].into_iter().enumerate() {
            for of in ValueType::ALL {
                known.field(measurement, field as u32 + 1, name, of);
            }
        }
    }
    known
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(24))]

    #[test]
    fn anything_reads_back_bit_for_bit(
        timelines in prop::collection::vec(
            (
                0u8..4,
                -40_000i64..40_000,
                prop::collection::vec(0u16..3_000, 1..120),
                prop::collection::vec(0u8..8, 1..40),
                prop::collection::vec(any::<u64>(), 1..40),
            ),
            1..40,
        ),
        ahead in prop::sample::select(vec![0u64, 1 << 20]),
    ) {
        let measurements = ["cpu", "a/b=c ü%", "..", "mem"];
        let mut known = known(&measurements);
        let mut points = Points::new();
        for (number, (measurement, day, steps, kinds, seeds)) in (0u64..).zip(&timelines) {
            let host = format!("host {}", number % 5);
            let mut tags = vec![("host", host.as_str())];
            if number % 3 == 0 {
                tags.push(("a", "also a field"));
            }
            let id = known.timeline(number, measurements[usize::from(*measurement)], &tags);
            points.insert(id, vec![run(day * NANOS_PER_DAY - 5, steps, kinds, seeds)]);
        }
        let directory = tempfile::tempdir().expect("made");
        let archive = archive(directory.path());
        let (copy, extents) = write(&archive, &in_directory(directory.path()), &known, &points);
        let back = read(&archive, &copy, &extents, &known, ahead);
        for (id, runs) in &points {
            prop_assert_eq!(flat(runs), flat(&back[id]));
        }
        prop_assert_eq!(back.len(), points.len());
    }
}

/// Three thousand timelines of large and small measurements over two days. All are read back in order, and some
/// individually.
#[test]
fn thousands_of_timelines_in_own_and_shared_files() {
    let mut known = Known::default();
    let mut points = Points::new();
    for number in 0..3_000u64 {
        let (measurement, rows) = match number % 100 {
            0 => (format!("rare{}", number / 100), 20),
            1..30 => ("cpu".to_owned(), 60),
            _ => ("net".to_owned(), 40),
        };
        let host = format!("h{}", number / 10);
        let id = known.timeline(number, &measurement, &[("host", &host)]);
        known.field(&measurement, 1, "value", ValueType::Float);
        let start = NANOS_PER_DAY * 20_000 - 1_000 * NANOS_PER_SECOND;
        let step = 60 * NANOS_PER_SECOND;
        points.insert(
            id,
            vec![floats(start, step, rows, 1, |row| {
                (number * 100 + row as u64) as f64 / 10.0
            })],
        );
    }
    let directory = tempfile::tempdir().expect("made");
    let archive = archive(directory.path());
    let (copy, extents) = write(&archive, &in_directory(directory.path()), &known, &points);
    let shared = copy.files.iter().filter(|file| file.shared).count();
    assert_eq!((shared, copy.files.len() - shared), (1, 4), "{:#?}", copy.files);
    for ahead in [0, 8 << 20] {
        let back = read(&archive, &copy, &extents, &known, ahead);
        for (id, runs) in &points {
            assert_eq!(flat(runs), flat(&back[id]));
        }
    }
    // Some runs are read one at a time, in reverse order.
    let mut reader = archive.reader(&copy, None, 0).expect("it opens");
    for (id, extent) in extents.iter().rev().step_by(97) {
        let run = reader
            .read(extent, &|name: &str| known.id_of(name))
            .expect("it reads");
        let whole = flat(&points[id]);
        let part = flat(&[run]);
        assert!(whole.windows(part.len()).any(|rows| rows == part));
    }
    assert!(archive.verify(&copy).expect("it can be asked").is_sound());
}

/// A timeline without an identity is read back, a reader returns only the requested fields, and a writer without runs
/// is empty.
#[test]
fn fields_by_choice_and_timelines_without_a_name() {
    let mut known = known(&["cpu"]);
    let id = known.timeline(1, "cpu", &[("host", "a")]);
    let unknown = TimelineId([9; 16]);
    let one = run(0, &[1, 2, 3], &[0, 1, 2, 3, 4, 5], &[1, 2, 3]);
    let points = Points::from([(id, vec![one.clone()]), (unknown, vec![one.clone()])]);
    let directory = tempfile::tempdir().expect("made");
    let archive = archive(directory.path());
    let (copy, extents) = write(&archive, &in_directory(directory.path()), &known, &points);
    let back = read(&archive, &copy, &extents, &known, 0);
    assert_eq!(flat(&back[&unknown]), flat(std::slice::from_ref(&one)));
    let mut reader = archive.reader(&copy, Some(&[FieldId(2)]), 0).expect("it opens");
    let some = reader
        .read(&extents[0].1, &|name: &str| known.id_of(name))
        .expect("it reads");
    assert_eq!(some.timestamps, one.timestamps);
    let wanted: Vec<_> = one
        .columns
        .iter()
        .filter(|column| column.field == FieldId(2))
        .cloned()
        .collect();
    assert_eq!(some.columns, wanted);
    let writer = archive
        .writer(crate::kit::segment_target("memory:///"), &known, &known)
        .expect("it begins");
    assert!(writer.is_empty());
}

/// A shared file has a column of histograms only if a row has one. Builds without support for histograms can
/// therefore read all files without histograms.
#[test]
fn shared_files_have_a_column_of_histograms_only_where_a_row_is_one() {
    let mut known = Known::default();
    known.field("up", 1, "value", ValueType::Float);
    known.field("lag", 2, "histogram", ValueType::Histogram);
    let (up, lag) = (
        known.timeline(1, "up", &[("host", "a")]),
        known.timeline(2, "lag", &[("host", "a")]),
    );
    let days = [0, 1].map(|day| floats(day * NANOS_PER_DAY, NANOS_PER_SECOND, 9, 1, |row| row as f64));
    let plain = Points::from([(up, days.to_vec())]);
    let mut both = plain.clone();
    both.insert(lag, vec![histograms(NANOS_PER_DAY, NANOS_PER_SECOND, 50, 2)]);
    for (points, leaves, last) in [(plain, 11, "string"), (both, 12, "histogram")] {
        let directory = tempfile::tempdir().expect("made");
        let archive = archive(directory.path());
        let target = in_directory(directory.path());
        let (copy, extents) = write(&archive, &target, &known, &points);
        let files = target.strip_prefix("file://").expect("it begins so");
        let [file] = copy.files.as_slice() else {
            panic!("two days share a file: {:#?}", copy.files)
        };
        assert!(file.shared);
        let stored = std::fs::File::open(format!("{files}/{}", file.key)).expect("it is there");
        let reader = SerializedFileReader::new(stored).expect("a Parquet file");
        let schema = reader.metadata().file_metadata().schema_descr();
        let name = schema.columns().last().map(|column| column.name().to_owned());
        assert_eq!((schema.num_columns(), name.as_deref()), (leaves, Some(last)));
        let back = read(&archive, &copy, &extents, &known, 0);
        for (id, runs) in &points {
            assert_eq!(flat(runs), flat(&back[id]));
        }
        assert!(archive.verify(&copy).expect("it can be asked").is_sound());
    }
}

/// A field has another type in the last timeline of a day. The rows of this timeline are written to another file, which
/// has a column for the type.
#[test]
fn a_shape_that_grows_goes_on_in_another_file() {
    let mut known = Known::default();
    known.field("cpu", 1, "value", ValueType::Float);
    let mut points = Points::new();
    for number in 0..20 {
        let id = known.timeline(number, "cpu", &[("host", "a")]);
        points.insert(id, vec![floats(0, NANOS_PER_SECOND, 1_000, 1, |row| row as f64)]);
    }
    let last = *points.keys().next_back().expect("there are some");
    if let Some(run) = points.get_mut(&last).and_then(|runs| runs.first_mut()) {
        run.columns[0].values = ColumnData::Boolean(vec![true; 1_000]);
    }
    let directory = tempfile::tempdir().expect("made");
    let archive = archive(directory.path());
    let (copy, extents) = write(&archive, &in_directory(directory.path()), &known, &points);
    assert_eq!(copy.files.len(), 2);
    let back = read(&archive, &copy, &extents, &known, 0);
    for (id, runs) in &points {
        assert_eq!(flat(runs), flat(&back[id]));
    }
}

/// Reading one field of one timeline and day takes at most three ranged gets if no footer is cached. If the footer is
/// cached, it takes at most two.
#[test]
fn one_timeline_of_a_day_is_a_handful_of_requests() {
    let mut known = Known::default();
    for field in 1..=5 {
        known.field("cpu", field, &format!("f{field}"), ValueType::Float);
    }
    let mut points = Points::new();
    for number in 0..60 {
        let id = known.timeline(number, "cpu", &[("host", &format!("h{number}"))]);
        let mut run = floats(0, 10 * NANOS_PER_SECOND, 8_640, 1, |row| {
            ((row * 7) % 1_000) as f64 / 10.0
        });
        for field in 2..=5 {
            let more = floats(0, 1, 8_640, field, |row| (row as f64 + f64::from(field)).sin());
            run.columns.extend(more.columns);
        }
        points.insert(id, vec![run]);
    }
    let directory = tempfile::tempdir().expect("made");
    let address = in_directory(directory.path());
    let (copy, extents) = write(&archive(directory.path()), &address, &known, &points);
    // The reading archive has its footers in another directory.
    let elsewhere = tempfile::tempdir().expect("made");
    let archive = archive(elsewhere.path());
    let target = archive.target(&address).expect("known");
    for (nth, (id, extent)) in extents.iter().enumerate().step_by(29) {
        for is_cold in [nth == 0, false] {
            let before = target.traffic();
            let mut reader = archive.reader(&copy, Some(&[FieldId(4)]), 0).expect("it opens");
            let run = reader
                .read(extent, &|name: &str| known.id_of(name))
                .expect("it reads");
            assert_eq!(run.columns[0], points[id][0].columns[3]);
            let after = target.traffic();
            let (gets, bytes) = (after.gets - before.gets, after.bytes_got - before.bytes_got);
            assert!(
                gets <= if is_cold { 3 } else { 2 },
                "{gets} requests, cold: {is_cold}"
            );
            assert!(bytes < 1 << 20, "{bytes} bytes");
        }
    }
}

/// The columns of a file of one measurement have the layout of a shared file: three tags, a string, and five columns of
/// the types of a shared file. Still, the file is read as a file of one measurement.
#[test]
fn a_file_of_the_form_of_a_shared_one_reads_back_whole() {
    let mut known = Known::default();
    let kinds = [
        ValueType::String,
        ValueType::Float,
        ValueType::Signed,
        ValueType::Unsigned,
        ValueType::Boolean,
        ValueType::String,
    ];
    for (field, of) in (1..).zip(kinds) {
        known.field("cpu", field, &format!("f{field}"), of);
    }
    let id = known.timeline(1, "cpu", &[("a", "1"), ("b", "2"), ("c", "3")]);
    let mut whole = floats(0, NANOS_PER_SECOND, 9_000, 1, |_| 0.0);
    let seeds: Vec<u64> = (0..9_000).map(|row| row * 0x9e37_79b9).collect();
    whole.columns = (1..)
        .zip(kinds)
        .map(|(field, of)| RunColumn {
            field: FieldId(field),
            presence: Presence::All,
            values: values(of, &seeds),
        })
        .collect();
    let points = Points::from([(id, vec![whole])]);
    let directory = tempfile::tempdir().expect("made");
    let archive = archive(directory.path());
    let (copy, extents) = write(&archive, &in_directory(directory.path()), &known, &points);
    assert!(!copy.files[0].shared);
    let back = read(&archive, &copy, &extents, &known, 0);
    assert_eq!(flat(&points[&id]), flat(&back[&id]));
}

/// Two readers are used alternately and share a small memory limit. Both readers return the same points, and each
/// exceeds the limit by at most one file.
#[test]
fn readers_of_many_files_keep_to_their_memory() {
    let mut known = Known::default();
    let mut points = Points::new();
    for number in 0..600u64 {
        let measurement = format!("m{}", number % 30);
        known.field(&measurement, 1, "value", ValueType::Float);
        let id = known.timeline(number, &measurement, &[("host", "a")]);
        points.insert(
            id,
            vec![floats(0, NANOS_PER_SECOND, 500, 1, |row| (row as f64).sin())],
        );
    }
    let directory = tempfile::tempdir().expect("made");
    let archive = archive(directory.path());
    let (copy, extents) = write(&archive, &in_directory(directory.path()), &known, &points);
    assert_eq!(copy.files.len(), 30);
    for ahead in [0, 1 << 20] {
        let memory = Arc::new(ReadMemory::new(512 << 10));
        let reader = || {
            archive
                .reader(&copy, None, ahead)
                .expect("it opens")
                .within(&memory)
        };
        let mut readers = [reader(), reader()];
        for (nth, (id, extent)) in extents.iter().enumerate() {
            let reader = &mut readers[nth % 2];
            let run = reader
                .read(extent, &|name: &str| known.id_of(name))
                .expect("it reads");
            assert_eq!(flat(&[run]), flat(&points[id]));
            // One file of each reader may exceed the limit.
            assert!(memory.bytes() < 1 << 20, "{} bytes", memory.bytes());
        }
        drop(readers);
        assert_eq!(memory.bytes(), 0);
    }
}

/// Timelines have alternating tags that `tag_keys` does not list. The timelines need only three files, because the
/// third file has columns for all tags.
#[test]
fn tags_that_take_turns_need_no_file_for_each_turn() {
    struct Forgetful(Known);
    impl TimelineMetadata for Forgetful {
        fn identity(&self, id: TimelineId) -> Option<Arc<Identity>> {
            self.0.identity(id)
        }

        fn attributes(&self, _id: TimelineId) -> Option<String> {
            None
        }

        fn tag_keys(&self, _measurement: &str) -> Vec<String> {
            Vec::new()
        }
    }
    let mut known = Known::default();
    known.field("cpu", 1, "value", ValueType::Float);
    let mut ids: Vec<TimelineId> = (0..30)
        .map(|number| known.timeline(number, "cpu", &[("a", "1")]))
        .collect();
    ids.sort_unstable();
    for (nth, id) in ids.iter().enumerate().skip(12) {
        let tag = if nth % 2 == 0 { "b" } else { "c" };
        let identity = Identity::new("cpu".into(), vec![(tag.into(), "1".into())]);
        known.metadata.insert(*id, Arc::new(identity.expect("valid")));
    }
    let directory = tempfile::tempdir().expect("made");
    let archive = archive(directory.path());
    let metadata = Forgetful(known);
    let segment_target = crate::kit::segment_target(&in_directory(directory.path()));
    let mut writer = archive
        .writer(segment_target, &metadata, &metadata.0)
        .expect("it begins");
    for id in &ids {
        let run = floats(0, NANOS_PER_SECOND, 1_000, 1, |row| row as f64);
        writer.add(*id, &run, crate::kit::sequences()).expect("added");
    }
    let written = writer.finish(&mut || true).expect("it is written");
    assert_eq!(written.copy.files.len(), 3, "{:#?}", written.copy.files);
}

/// If `go_on` returns false, `finish` fails with `Stopped`. The file sent before remains at the target.
#[test]
fn a_writer_that_is_stopped_ends_before_the_next_file() {
    let mut known = Known::default();
    let directory = tempfile::tempdir().expect("made");
    let archive = archive(directory.path());
    let segment_target = crate::kit::segment_target(&in_directory(directory.path()));
    let mut ids = Vec::new();
    for number in 0..3 {
        let measurement = format!("m{number}");
        known.field(&measurement, 1, "value", ValueType::Float);
        ids.push(known.timeline(number, &measurement, &[("host", "a")]));
    }
    ids.sort_unstable();
    let mut writer = archive
        .writer(segment_target.clone(), &known, &known)
        .expect("it begins");
    for id in &ids {
        let run = floats(0, NANOS_PER_SECOND, 9_000, 1, |row| row as f64);
        writer.add(*id, &run, crate::kit::sequences()).expect("added");
    }
    let mut files = 0;
    let stopped = writer.finish(&mut || {
        files += 1;
        files < 2
    });
    assert!(matches!(stopped, Err(ArchiveError::Stopped)));
    let target = archive.target(&segment_target.target).expect("known");
    assert_eq!(target.list("").expect("listed").len(), 1);
}
