//! What is damaged is noticed: by a check of all files, and by whoever reads.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use tideline_archive::ArchiveCopy;
use tideline_model::ValueType;
use tideline_model::time::NANOS_PER_SECOND;

use crate::kit::{Known, Points, archive, floats, in_directory, write};

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
            let wrong = archive.verify(&copy).expect("it can be asked");
            assert_eq!(wrong.len(), 1, "{wrong:?}");
            assert!(wrong[0].contains(key), "{wrong:?}");
            if key == copy.files[0].key {
                read_fails(&archive, &copy, &extents, &known, damaged.is_none());
            }
        }
        fs::write(&path, &whole).expect("written");
    }
    assert_eq!(
        archive.verify(&copy).expect("it can be asked"),
        Vec::<String>::new()
    );
    // The same without the database: from what lies beside the files.
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
}

/// Reading all of a damaged file fails, or gives what was written: never anything else. A flipped bit in a page may go
/// unnoticed by readers only where it changes nothing that is decoded.
fn read_fails(
    archive: &tideline_archive::Archive,
    copy: &Arc<ArchiveCopy>,
    extents: &[(tideline_model::TimelineId, tideline_archive::Extent)],
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
