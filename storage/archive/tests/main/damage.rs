//! Damage is detected, both by a verification of all files and by reads.
//!
//! Damaged objects are truncated, changed or removed, or have footers and extents with impossible numbers.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use tideline_archive::{Archive, ArchiveCopy, ArchiveSettings, Extent, Verified};
use tideline_model::ValueType;
use tideline_model::time::NANOS_PER_SECOND;

use crate::kit::{Known, Points, archive, flat, floats, in_directory, read, write};

#[test]
fn a_file_that_is_cut_changed_or_gone_is_named() {
    let mut known = Known::default();
    known.field("cpu", 1, "value", ValueType::Float);
    let mut points = Points::new();
    for number in 0..40 {
        let id = known.timeline(number, "cpu", &[("host", "a")]);
        points.insert(
            id,
            vec![floats(0, NANOS_PER_SECOND, 500, 1, |row| (row as f64).sin())],
        );
    }
    let directory = tempfile::tempdir().expect("made");
    let target = in_directory(directory.path());
    let archive = archive(directory.path());
    let (copy, extents) = write(&archive, &target, &known, &points);
    let files = PathBuf::from(target.strip_prefix("file://").expect("it begins so"));
    let named: Vec<&str> = copy.keys().collect();
    assert_eq!(named.len(), 3);
    for key in named {
        let path = files.join(key);
        let whole = fs::read(&path).expect("it is there");
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 4;
        for damaged in [Some(whole[..whole.len() - 1].to_vec()), Some(flipped), None] {
            match &damaged {
                Some(damaged) => fs::write(&path, damaged).expect("written"),
                None => fs::remove_file(&path).expect("removed"),
            }
            let Verified { wrong, unread } = archive.verify(&copy).expect("it can be asked");
            assert_eq!(unread, Vec::<String>::new());
            assert_eq!(wrong.len(), 1, "{wrong:?}");
            assert!(wrong[0].contains(key), "{wrong:?}");
            if key == copy.files[0].key {
                read_fails(&archive, &copy, &extents, &known, damaged.is_none());
            }
        }
        fs::write(&path, &whole).expect("written");
    }
    assert!(archive.verify(&copy).expect("it can be asked").is_sound());
    // The objects at the target are sufficient to find the segment; the database is not needed.
    let described = archive.described(&target).expect("listed");
    let [(key, found)] = described.as_slice() else {
        panic!("one segment is described: {described:?}");
    };
    assert_eq!((key, found.as_ref().ok()), (&copy.sidecar, Some(&*copy)));
    fs::write(files.join(&copy.sidecar), r#"{"format": 2}"#).expect("written");
    let described = archive.described(&target).expect("listed");
    let error = described[0]
        .1
        .as_ref()
        .expect_err("of a later format")
        .to_string();
    assert!(error.contains("format 2") && error.contains(key), "{error}");
    archive.remove(&copy).expect("removed");
    archive.remove(&copy).expect("removing again is as good");
    assert_eq!(
        archive
            .target(&target)
            .expect("known")
            .list("default/")
            .expect("listed"),
        []
    );
    // No empty folder of a day is left.
    assert_eq!(fs::read_dir(&files).expect("the target itself stays").count(), 0);
}

/// Reads all runs of a segment. The read must fail if a file is gone. [`flips`](crate::flips) tests reads of changed
/// files.
fn read_fails(
    archive: &Archive,
    copy: &Arc<ArchiveCopy>,
    extents: &[(tideline_model::TimelineId, Extent)],
    known: &Known,
    is_gone: bool,
) {
    let mut reader = archive.reader(copy, None, 0).expect("it opens");
    let read = extents
        .iter()
        .map(|(_, extent)| reader.read(extent, &|name: &str| known.id_of(name)).map(drop));
    let outcome: Result<(), _> = read.collect();
    assert!(outcome.is_err() || !is_gone, "a file that is gone cannot be read");
}

/// Changes every fifth byte of the footers, one at a time. After each change, a read either fails or returns as many
/// points and values as were written. No read panics.
#[test]
fn a_footer_that_was_changed_panics_nowhere() {
    let mut known = Known::default();
    let mut points = Points::new();
    for number in 0..4 {
        let measurement = if number == 3 { "rare" } else { "cpu" };
        known.field(measurement, 1, "value", ValueType::Float);
        let id = known.timeline(number, measurement, &[("host", "a")]);
        points.insert(id, vec![floats(0, NANOS_PER_SECOND, 40, 1, |row| row as f64)]);
    }
    let directory = tempfile::tempdir().expect("made");
    let target = in_directory(directory.path());
    let open = |own_file_rows| {
        Archive::open(ArchiveSettings {
            own_file_rows,
            ..ArchiveSettings::new(directory.path().join("temporary"))
        })
        .expect("it opens")
    };
    let (copy, extents) = write(&open(100), &target, &known, &points);
    assert_eq!(copy.files.len(), 2);
    // The description omits the checksum of the footer and contains the checksum of the changed file. The changed
    // bytes therefore reach the decoder, as they may in a foreign file.
    let mut copy = (*copy).clone();
    copy.files.iter_mut().for_each(|file| file.index_sha256.clear());
    let files = PathBuf::from(target.strip_prefix("file://").expect("it begins so"));
    for (number, file) in (0u32..).zip(copy.files.clone()) {
        let path = files.join(&file.key);
        let whole = fs::read(&path).expect("it is there");
        for at in (file.index_from as usize..whole.len()).step_by(5) {
            for bits in [1, 0x40, 0xff] {
                let mut changed = whole.clone();
                changed[at] ^= bits;
                fs::write(&path, &changed).expect("written");
                let mut described = copy.clone();
                described.files[number as usize].sha256 = sha256_hex(&changed);
                let described = Arc::new(described);
                let archive = open(100);
                let mut reader = archive.reader(&described, None, 0).expect("it opens");
                for (id, extent) in extents.iter().filter(|(_, extent)| extent.file == number) {
                    match reader.read(extent, &|name: &str| known.id_of(name)) {
                        Ok(run) => assert_eq!(run.values(), points[id][0].values(), "{at} ^ {bits}"),
                        Err(error) => assert!(!error.is_retryable(), "{at} ^ {bits}: {error}"),
                    }
                }
            }
        }
        fs::write(&path, &whole).expect("written");
    }
}

fn sha256_hex(bytes: &[u8]) -> String {
    let sum = ring::digest::digest(&ring::digest::SHA256, bytes);
    sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Impossible numbers in extents and descriptions are rejected with an error.
#[test]
fn places_that_cannot_be_are_refused() {
    let mut known = Known::default();
    known.field("cpu", 1, "value", ValueType::Float);
    let id = known.timeline(1, "cpu", &[("host", "a")]);
    let points = Points::from([(id, vec![floats(0, NANOS_PER_SECOND, 10, 1, |row| row as f64)])]);
    let directory = tempfile::tempdir().expect("made");
    let archive = archive(directory.path());
    let (copy, extents) = write(&archive, &in_directory(directory.path()), &known, &points);
    let fails = |copy: ArchiveCopy, extent: Extent| {
        let mut reader = archive.reader(&Arc::new(copy), None, 0).expect("it opens");
        let outcome = reader.read(&extent, &|name: &str| known.id_of(name));
        outcome.expect_err("it is refused").to_string()
    };
    let extent = extents[0].1;
    fails(
        (*copy).clone(),
        Extent {
            row: u64::MAX,
            ..extent
        },
    );
    fails((*copy).clone(), Extent { file: 9, ..extent });
    let with = |change: &dyn Fn(&mut tideline_archive::ArchiveFile)| {
        let mut copy = (*copy).clone();
        change(&mut copy.files[0]);
        // A different checksum prevents the use of a cached footer.
        copy.files[0].sha256 = "0".repeat(64);
        copy
    };
    fails(with(&|file| file.index_from = u64::MAX), extent);
    fails(with(&|file| file.index_from = 0), extent);
    fails(with(&|file| file.shared = !file.shared), extent);
    let huge = with(&|file| file.bytes = u64::MAX);
    assert_eq!(huge.bytes(), u64::MAX);
    fails(huge, extent);
}

/// A truncated or changed footer in the disk cache is fetched again.
#[test]
fn a_footer_on_disk_is_taken_only_whole() {
    let mut known = Known::default();
    known.field("cpu", 1, "value", ValueType::Float);
    let id = known.timeline(1, "cpu", &[("host", "a")]);
    // A small file would be fetched as a whole with its footer.
    let run = floats(0, NANOS_PER_SECOND, 20_000, 1, |row| (row as f64).sin());
    let points = Points::from([(id, vec![run])]);
    let directory = tempfile::tempdir().expect("made");
    let target = in_directory(directory.path());
    let (copy, extents) = write(&archive(directory.path()), &target, &known, &points);
    assert!(copy.files[0].bytes > 64 << 10, "{}", copy.files[0].bytes);
    let read_anew = || {
        let archive = archive(directory.path());
        let before = archive.target(&target).expect("known").traffic().gets;
        let back = read(&archive, &copy, &extents, &known, 0);
        assert_eq!(flat(&points[&id]), flat(&back[&id]));
        archive.target(&target).expect("known").traffic().gets - before
    };
    let cold = read_anew();
    let warm = read_anew();
    assert_eq!(cold, warm + 1);
    let kept: Vec<_> = fs::read_dir(directory.path().join("footers"))
        .expect("there")
        .map(|entry| entry.expect("there").path())
        .collect();
    assert_eq!(kept.len(), 1);
    let whole = fs::read(&kept[0]).expect("there");
    let mut changed = whole.clone();
    let middle = whole.len() / 2;
    changed[middle] ^= 1;
    for damaged in [changed, whole[..middle].to_vec(), Vec::new()] {
        fs::write(&kept[0], damaged).expect("written");
        assert_eq!((read_anew(), read_anew()), (cold, warm));
    }
}
