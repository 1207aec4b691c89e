//! Reading of an archive by a database that did not write it: the result is complete, or an error reports the damage.
//!
//! Covers descriptions, the file of timelines, and fields that are read from the files.

use std::fs;
use std::path::PathBuf;

use tideline_archive::{DescribedFields, TimelineRun, origin_of};
use tideline_model::ValueType;
use tideline_model::time::{NANOS_PER_DAY, NANOS_PER_SECOND};

use crate::kit::{Known, Points, archive, floats, in_directory, write};

/// Returns points of one measurement with its own files over two days, and of seven small measurements in shared files.
/// Together they have more timelines than one decoding batch. One timeline has no identity.
fn story() -> (Known, Points) {
    let mut known = Known::default();
    known.field("cpu", 1, "value", ValueType::Float);
    known.field("cpu", 2, "never written", ValueType::String);
    let mut points = Points::new();
    for number in 0..40 {
        let id = known.timeline(number, "cpu", &[("host", "a"), ("core", "☃ 1")]);
        let run = |day: i64| {
            floats(day * NANOS_PER_DAY, NANOS_PER_SECOND, 400, 1, |row| {
                (row as f64).sin()
            })
        };
        points.insert(id, vec![run(-1), run(0)]);
    }
    for number in 40..3_000 {
        let measurement = format!("small {}", number % 7);
        known.field(&measurement, 3, "other", ValueType::Float);
        let id = known.timeline(number, &measurement, &[]);
        points.insert(id, vec![floats(number as i64, 1, 1, 3, |_| f64::NAN)]);
    }
    let unknown = known.timeline(3_000, "gone", &[]);
    known.metadata.remove(&unknown);
    points.insert(unknown, vec![floats(5, 1, 2, 1, |_| 1.0)]);
    (known, points)
}

fn names(fields: &DescribedFields) -> Vec<(String, String, Vec<String>)> {
    let each = fields.iter().flat_map(|(measurement, fields)| {
        let field = |field: &tideline_archive::DescribedField| {
            (measurement.clone(), field.name.clone(), field.types.clone())
        };
        fields.iter().map(field)
    });
    each.collect()
}

#[test]
fn what_is_beside_the_files_reads_back_in_full() {
    let (known, points) = story();
    let directory = tempfile::tempdir().expect("made");
    let target = in_directory(directory.path());
    let archive = archive(directory.path());
    let (copy, extents) = write(&archive, &target, &known, &points);
    let keys = archive.descriptions(&target, None).expect("listed");
    assert_eq!(keys, std::slice::from_ref(&copy.sidecar));
    let description = archive
        .description(&target, &keys[0])
        .expect("it is what was written");
    assert_eq!(description.archive, *copy);
    assert_eq!(origin_of(&keys[0]).map(|(_, segment)| segment.0), Some(7));
    // The fields read from the files equal those in the description. Fields without rows are found only for
    // measurements with their own files.
    let said = names(description.fields.as_ref().expect("they are described"));
    let read = names(&archive.fields(&copy).expect("the files say them"));
    assert_eq!(said, read);
    let file = archive.timelines(&copy).expect("it is there");
    for _ in 0..2 {
        let runs = file.runs().expect("it begins");
        let runs: Vec<TimelineRun> = runs.collect::<Result<_, _>>().expect("all of it");
        assert_eq!(runs.len(), extents.len());
        for (run, (id, extent)) in runs.iter().zip(&extents) {
            assert_eq!((run.id, &run.extent), (*id, extent));
            assert_eq!(run.identity.as_ref(), known.metadata.get(id).map(AsRef::as_ref));
        }
    }
}

#[test]
fn what_is_damaged_is_not_attached() {
    let (known, points) = story();
    let directory = tempfile::tempdir().expect("made");
    let target = in_directory(directory.path());
    let archive = archive(directory.path());
    let (copy, _) = write(&archive, &target, &known, &points);
    let files = PathBuf::from(target.strip_prefix("file://").expect("it begins so"));
    for key in [&copy.sidecar, &copy.timelines.key] {
        let path = files.join(key);
        let whole = fs::read(&path).expect("it is there");
        for at in [0, whole.len() / 3, whole.len() - 1] {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).expect("written");
            let error = match *key == copy.sidecar {
                true => archive.description(&target, key).map(drop),
                false => archive.timelines(&copy).map(drop),
            };
            let error = error.expect_err("it is damaged");
            assert!(
                !error.is_retryable() && error.to_string().contains(key.as_str()),
                "{error}"
            );
        }
        fs::write(&path, &whole[..whole.len() - 1]).expect("written");
        assert!(archive.timelines(&copy).is_err() || *key == copy.sidecar);
        fs::write(&path, whole).expect("written");
    }
    // A description is rejected under the name of another segment.
    let other = copy.sidecar.replace("-7-", "-8-");
    fs::copy(files.join(&copy.sidecar), files.join(&other)).expect("copied");
    let error = archive
        .description(&target, &other)
        .expect_err("of another segment");
    assert!(error.to_string().contains("another segment"), "{error}");
}
