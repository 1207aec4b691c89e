//! Tests that sparse points are stored in few files, and that the settings of a table are kept while the table has
//! files.
//!
//! Years of a few points per day must not become thousands of small files.

use tideline_archive::{FoundSettings, SETTINGS_FORMAT, TableSettings};
use tideline_model::time::NANOS_PER_DAY;
use tideline_model::{TableName, TableSpec, ValueType};

use crate::kit::{Known, archive, flat, floats, in_directory, read, segment_target, sequences};

const DAY: i64 = NANOS_PER_DAY;
const TEN_YEARS: usize = 3_653;

#[test]
fn ten_years_of_few_points_are_one_file_and_few_runs() {
    for (step, count) in [(DAY, TEN_YEARS), (30 * DAY, 122), (365 * DAY, 10)] {
        let mut known = Known::default();
        known.field("tide", 1, "level", ValueType::Float);
        let mut ids: Vec<_> = (0..3)
            .map(|number| known.timeline(number, "tide", &[("port", "a")]))
            .collect();
        ids.sort_unstable();
        let directory = tempfile::tempdir().expect("made");
        let archive = archive(directory.path());
        let segment_target = segment_target(&in_directory(directory.path()));
        let writer = archive
            .writer(segment_target.clone(), &known, &known)
            .expect("it begins");
        let last = step * (count as i64 - 1);
        let mut writer = writer.expecting(3 * count as u64, 0, last);
        let run = floats(0, step, count, 1, |row| row as f64 / 7.0);
        for id in &ids {
            writer.add(*id, &run, sequences()).expect("added");
        }
        let written = writer.finish(&mut || true).expect("written and verified");
        let extents: Vec<_> = written.extents.collect::<Result<_, _>>().expect("they read back");
        assert_eq!(
            (written.copy.files.len(), extents.len()),
            (1, 3),
            "every {step} ns"
        );
        let copy = std::sync::Arc::new(written.copy);
        assert!(archive.verify(&copy).expect("known").is_sound());
        let back = read(&archive, &copy, &extents, &known, 0);
        for id in &ids {
            assert_eq!(flat(&back[id]), flat(std::slice::from_ref(&run)));
        }
    }
}

#[test]
fn neighboring_days_of_small_measurements_share_files_and_days_with_many_rows_do_not() {
    let mut known = Known::default();
    let directory = tempfile::tempdir().expect("made");
    let archive = archive(directory.path());
    let segment_target = segment_target(&in_directory(directory.path()));
    let mut ids = Vec::new();
    for number in 0..20 {
        let measurement = format!("m{number}");
        known.field(&measurement, 1, "value", ValueType::Float);
        ids.push(known.timeline(number, &measurement, &[("host", "a")]));
    }
    ids.sort_unstable();
    let mut writer = archive.writer(segment_target, &known, &known).expect("it begins");
    let sent = writer.sent();
    // A hundred days with a thousand rows each.
    let run = floats(0, DAY / 50, 5_000, 1, |row| row as f64);
    for id in &ids {
        writer.add(*id, &run, sequences()).expect("added");
    }
    let written = writer.finish(&mut || true).expect("written and verified");
    // A file holds 65 days.
    assert_eq!(written.copy.files.len(), 2, "{:#?}", written.copy.files);
    let keys: Vec<&str> = written.copy.files.iter().map(|file| file.key.as_str()).collect();
    assert!(keys[0].contains("/day=1970-01-01_1970-03-06/"), "{keys:?}");
    assert!(keys[1].contains("/day=1970-03-07_1970-04-10/"), "{keys:?}");
    let extents: Vec<_> = written.extents.collect::<Result<_, _>>().expect("they read back");
    let mut noted = sent.newest_first();
    noted.reverse();
    let all: Vec<&str> = written.copy.keys().collect();
    assert_eq!(noted, all, "every object is noted before it is put");
    let back = read(
        &archive,
        &std::sync::Arc::new(written.copy),
        &extents,
        &known,
        1 << 20,
    );
    for id in &ids {
        assert_eq!(flat(&back[id]), flat(std::slice::from_ref(&run)));
    }
}

#[test]
fn the_newest_settings_of_a_table_are_found_and_stay_as_long_as_its_files() {
    let directory = tempfile::tempdir().expect("made");
    let archive = archive(directory.path());
    let target = in_directory(directory.path());
    let files = directory.path().join("files");
    let settings = |retention: i64| {
        let mut spec = TableSpec::default();
        spec.policy.retention = Some(retention);
        TableSettings {
            format: SETTINGS_FORMAT,
            table: TableName::new("default").expect("valid"),
            changed: retention,
            spec,
        }
    };
    let write = |origin: &str, retention: i64| {
        let done = archive.write_settings((target.as_str(), "default"), origin, &settings(retention));
        done.expect("written");
    };
    let found = || -> Vec<(String, i64, u64)> {
        let found = archive
            .settings(&target, "default")
            .expect("it answers")
            .into_iter();
        let found = found.map(|(_, found)| found.expect("it reads"));
        found
            .map(
                |FoundSettings {
                     origin,
                     revision,
                     settings,
                 }| (origin, settings.changed, revision),
            )
            .collect()
    };
    assert_eq!(found(), []);
    for retention in [9, 9, 8, 9] {
        write("aa", retention);
    }
    write("bb", 4);
    let newest = [("bb".to_owned(), 4, 1), ("aa".to_owned(), 9, 3)];
    assert_eq!(found(), newest);
    let names = || {
        let folder = std::fs::read_dir(files.join("default/_settings")).expect("a folder");
        folder
            .map(|entry| entry.expect("an entry").path())
            .collect::<Vec<_>>()
    };
    assert_eq!(names().len(), 2, "earlier ones are removed");
    // Adds a file of the table, written by an unknown database.
    let foreign = format!("default/_segments/cc-7-{}.json", "0123456789abcdef".repeat(2));
    std::fs::create_dir_all(files.join("default/_segments")).expect("made");
    std::fs::write(files.join(&foreign), "{}").expect("written");
    let remove_orphans = || {
        archive
            .remove_orphans(&target, "default", "aa", i64::MAX, &|_| false)
            .expect("removed")
    };
    assert_eq!((remove_orphans(), found().len()), (0, 2));
    std::fs::remove_file(files.join(&foreign)).expect("removed");
    assert_eq!((remove_orphans(), found()), (1, newest[..1].to_vec()));
    // A truncated object is returned as an error.
    let [name] = names().try_into().expect("one is left");
    std::fs::write(&name, "{\"format\"").expect("written");
    let damaged = archive.settings(&target, "default").expect("it answers");
    assert!(damaged.len() == 1 && damaged[0].1.is_err());
}
