//! Repeated reads send no requests, as long as the caches are large enough.
//!
//! The tests count the requests of a target.

use tideline_archive::{Archive, ArchiveSettings};
use tideline_model::time::{NANOS_PER_DAY, NANOS_PER_SECOND};
use tideline_model::{FieldId, ValueType};

use crate::kit::{Known, Points, flat, floats, in_directory, write};

const DAYS: i64 = 20;

/// Returns timelines with `rows` rows per day on each of [`DAYS`] days.
fn days(timelines: u64, rows: usize) -> (Known, Points) {
    let mut known = Known::default();
    known.field("cpu", 1, "value", ValueType::Float);
    known.field("cpu", 2, "other", ValueType::Float);
    let mut points = Points::new();
    for number in 0..timelines {
        let id = known.timeline(number, "cpu", &[("host", &format!("h{number}"))]);
        let runs = (0..DAYS).map(|day| {
            let start = (20_000 + day) * NANOS_PER_DAY;
            let step = NANOS_PER_DAY / rows as i64 / NANOS_PER_SECOND * NANOS_PER_SECOND;
            let mut run = floats(start, step, rows, 1, |row| (row as f64 + day as f64).sin());
            run.columns
                .extend(floats(start, step, rows, 2, |row| row as f64).columns);
            run
        });
        points.insert(id, runs.collect());
    }
    (known, points)
}

fn open(directory: &std::path::Path, pages_bytes_max: usize) -> Archive {
    Archive::open(ArchiveSettings {
        pages_bytes_max,
        own_file_rows: 100,
        ..ArchiveSettings::new(directory.join("temporary"))
    })
    .expect("it opens")
}

/// Reads one field of one timeline twice. Returns the number of requests of each read, and the cached bytes.
fn gets(timelines: u64, rows: usize, pages_bytes_max: usize) -> (u64, u64, usize) {
    let (known, points) = days(timelines, rows);
    let directory = tempfile::tempdir().expect("made");
    let address = in_directory(directory.path());
    let (copy, extents) = write(&open(directory.path(), 0), &address, &known, &points);
    let archive = open(directory.path(), pages_bytes_max);
    let target = archive.target(&address).expect("known");
    let id = extents[0].0;
    let read = || {
        let before = target.traffic().gets;
        let mut reader = archive.reader(&copy, Some(&[FieldId(1)]), 0).expect("it opens");
        let mut runs = Vec::new();
        for (_, extent) in extents.iter().filter(|(of, _)| *of == id) {
            runs.push(
                reader
                    .read(extent, &|name: &str| known.id_of(name))
                    .expect("it reads"),
            );
        }
        let mut expected = points[&id].clone();
        expected.iter_mut().for_each(|run| run.columns.truncate(1));
        assert_eq!(flat(&runs), flat(&expected));
        target.traffic().gets - before
    };
    let (first, again) = (read(), read());
    assert!(archive.cached_bytes() <= pages_bytes_max);
    (first, again, archive.cached_bytes())
}

#[test]
fn twenty_days_of_a_timeline_are_read_once() {
    let days = DAYS as u64;
    // Each small file is fetched as a whole.
    let (first, again, _) = gets(3, 400, 8 << 20);
    assert_eq!((first, again), (days, 0));
    // For large files, the footer and the pages of the column are fetched.
    let (first, again, cached) = gets(20, 1_440, 8 << 20);
    assert!(first <= 3 * days, "{first} requests");
    assert_eq!(again, 0);
    assert!(cached > 0);
    // Without a page cache only footers are cached.
    let (_, again, cached) = gets(20, 1_440, 0);
    assert!(again >= days, "{again} requests");
    assert_eq!(cached, 0);
}

/// A reader with `passing`, as used by compactions, adds nothing to the cache.
#[test]
fn a_reader_that_passes_keeps_nothing() {
    let (known, points) = days(20, 1_440);
    let directory = tempfile::tempdir().expect("made");
    let address = in_directory(directory.path());
    let (copy, extents) = write(&open(directory.path(), 0), &address, &known, &points);
    let archive = open(directory.path(), 8 << 20);
    let mut reader = archive.reader(&copy, None, 8 << 20).expect("it opens").passing();
    for (id, extent) in &extents {
        let run = reader
            .read(extent, &|name: &str| known.id_of(name))
            .expect("it reads");
        assert!(
            points[id]
                .iter()
                .any(|of| flat(std::slice::from_ref(of)) == flat(std::slice::from_ref(&run)))
        );
    }
    assert_eq!(archive.cached_bytes(), 0);
}

#[test]
fn a_budget_that_is_too_small_is_kept() {
    let budget = 256 << 10;
    let (first, again, cached) = gets(60, 1_440, budget);
    assert!(
        cached <= budget && first > 0 && again > 0,
        "{first}, {again}, {cached}"
    );
}
