//! Files of earlier builds can still be read, with the same content.
//!
//! Each directory in `tests/golden` is the output of an earlier build to a target, and is never changed or removed. To
//! write a missing directory, run
//!
//! ```text
//! TIDELINE_WRITE_GOLDENS=1 cargo test -p tideline-archive goldens
//! ```
//!
//! The bytes are not compared with the output of the current build, because they depend on the versions of libraries.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use hashbrown::HashMap;
use tideline_archive::{Archive, ArchiveSettings, DEFAULT_TARGET, Extent, TargetOptions, TimelineRun};
use tideline_chunk::Run;
use tideline_model::time::{NANOS_PER_DAY, NANOS_PER_SECOND};
use tideline_model::{TimelineId, ValueType};

use crate::kit::{FlatPoint, Known, Points, flat, floats, histograms, read, write};

/// Number of rows at which a measurement gets its own file in these tests.
const OWN_FILE_ROWS: usize = 200;

/// Returns points of a measurement of histograms with its own file, a measurement of histograms that shares a file with
/// floats, and a measurement of floats on two days.
pub(crate) fn story() -> (Known, Points) {
    let mut known = Known::default();
    known.field("request_seconds", 1, "histogram", ValueType::Histogram);
    known.field("request_seconds", 2, "value", ValueType::Float);
    known.field("lag", 1, "histogram", ValueType::Histogram);
    known.field("up", 2, "value", ValueType::Float);
    let mut points = Points::new();
    let start = 20_000 * NANOS_PER_DAY;
    for number in 0..3 {
        let host = format!("h{number}");
        let id = known.timeline(number, "request_seconds", &[("host", &host)]);
        let numbers = floats(start - NANOS_PER_SECOND, 2 * NANOS_PER_SECOND, 20, 2, |row| {
            row as f64
        });
        let stored = histograms(start + NANOS_PER_DAY / 2, NANOS_PER_SECOND, 80, 1);
        points.insert(id, vec![numbers, stored]);
        let id = known.timeline(10 + number, "lag", &[("host", &host)]);
        points.insert(id, vec![histograms(start, NANOS_PER_SECOND, 30, 1)]);
        let id = known.timeline(20 + number, "up", &[]);
        let up = |day| {
            floats(start + day * NANOS_PER_DAY, NANOS_PER_SECOND, 9, 2, |row| {
                row as f64 / 8.0
            })
        };
        points.insert(id, vec![up(0), up(1)]);
    }
    (known, points)
}

/// Copies the golden files. The build that wrote them did not write block checksums.
pub(crate) fn unpack(to: &Path) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/histograms-v1");
    copy_tree(&golden, to);
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("it is there") {
        let entry = entry.expect("listed");
        let to = to.join(entry.file_name());
        match entry.file_type().expect("listed").is_dir() {
            true => copy_tree(&entry.path(), &to),
            false => fs::copy(entry.path(), to).map(drop).expect("copied"),
        }
    }
}

#[test]
fn files_with_histograms_read_as_they_were_written() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/histograms-v1");
    let (known, points) = story();
    let directory = tempfile::tempdir().expect("made");
    if !golden.exists() {
        assert!(
            std::env::var_os("TIDELINE_WRITE_GOLDENS").is_some(),
            "the golden files are in the tree"
        );
        fs::create_dir_all(&golden).expect("made");
        write(
            &archive(directory.path(), &golden),
            DEFAULT_TARGET,
            &known,
            &points,
        );
    }
    let archive = archive(directory.path(), &golden);
    let keys = archive.descriptions(DEFAULT_TARGET, None).expect("listed");
    assert_eq!(keys.len(), 1);
    let described = archive
        .description(DEFAULT_TARGET, &keys[0])
        .expect("it is whole");
    let copy = Arc::new(described.archive);
    assert!(archive.verify(&copy).expect("it can be asked").is_sound());
    let shared = copy.files.iter().filter(|file| file.shared).count();
    assert_eq!((shared, copy.files.len() - shared), (3, 1), "{:#?}", copy.files);
    assert_eq!(
        archive.fields(&copy).expect("the files say them"),
        described.fields.expect("they are described")
    );
    let file = archive.timelines(&copy).expect("it is there");
    let runs = file
        .runs()
        .expect("it begins")
        .collect::<Result<Vec<TimelineRun>, _>>();
    let extents = runs
        .expect("all of it")
        .into_iter()
        .map(|run| (run.id, run.extent));
    let extents: Vec<(TimelineId, Extent)> = extents.collect();
    let back = read(&archive, &copy, &extents, &known, 0);
    let flat = |points: &BTreeMap<TimelineId, Vec<Run>>| -> Vec<(TimelineId, Vec<FlatPoint>)> {
        points.iter().map(|(id, runs)| (*id, flat(runs))).collect()
    };
    assert_eq!(flat(&points), flat(&back));
}

/// Opens an archive whose target is a directory.
fn archive(directory: &Path, files: &Path) -> Archive {
    let address = format!("file://{}", files.display());
    let targets = HashMap::from([(DEFAULT_TARGET.to_owned(), (address, TargetOptions::default()))]);
    Archive::open(ArchiveSettings {
        own_file_rows: OWN_FILE_ROWS,
        targets,
        ..ArchiveSettings::new(directory.join("temporary"))
    })
    .expect("it opens")
}
