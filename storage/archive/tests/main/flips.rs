//! After a flip of one bit in any object, reads return the written data, or an error with object name and target.
//!
//! `TIDELINE_FLIPS` sets the number of flipped bits.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hashbrown::HashMap;
use tideline_archive::{
    Archive, ArchiveCopy, ArchiveError, ArchiveSettings, DEFAULT_TARGET, TargetOptions, TimelineRun,
};
use tideline_chunk::{Presence, RunColumn};
use tideline_model::time::{NANOS_PER_DAY, NANOS_PER_SECOND};
use tideline_model::{ColumnData, FieldId, TimelineId, ValueType};

use crate::goldens;
use crate::kit::{FlatPoint, Known, Points, flat, floats, histograms, in_directory, read, write};

/// Number of flipped bits in CI, and in the slow run.
const FLIPS: (usize, usize) = (60, 2_000);

/// Seeded random number generator (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}

/// Returns points with columns of all types except unsigned integers, in files of one measurement and in a shared file.
/// One column of floats has few distinct values, another one has many.
fn story() -> (Known, Points) {
    let mut known = Known::default();
    for (field, name, of) in [
        (1, "few", ValueType::Float),
        (2, "many", ValueType::Float),
        (3, "count", ValueType::Signed),
        (4, "text", ValueType::String),
        (5, "ok", ValueType::Boolean),
    ] {
        known.field("cpu", field, name, of);
    }
    known.field("lag", 6, "histogram", ValueType::Histogram);
    known.field("rare", 1, "few", ValueType::Float);
    let mut points = Points::new();
    for number in 0..6 {
        let id = known.timeline(number, "cpu", &[("host", &format!("h{number}"))]);
        let rows = 2_500;
        let mut run = floats(0, NANOS_PER_SECOND, rows, 1, |row| (row % 50) as f64 / 10.0);
        run.columns
            .extend(floats(0, 1, rows, 2, |row| (row as f64 + number as f64).sin()).columns);
        let texts: Vec<String> = (0..rows).map(|row| format!("text {}", row % 300)).collect();
        for (field, values) in [
            (
                3,
                ColumnData::Signed((0..rows as i64).map(|row| row * row).collect()),
            ),
            (4, ColumnData::String(texts.iter().map(String::as_str).collect())),
            (
                5,
                ColumnData::Boolean((0..rows).map(|row| row % 3 == 0).collect()),
            ),
        ] {
            run.columns.push(RunColumn {
                field: FieldId(field),
                presence: Presence::All,
                values,
            });
        }
        points.insert(id, vec![run]);
        let id = known.timeline(100 + number, "rare", &[("host", "a")]);
        points.insert(
            id,
            vec![floats(0, NANOS_PER_SECOND, 300, 1, |row| (row as f64).cos())],
        );
        let id = known.timeline(200 + number, "lag", &[("host", "a")]);
        points.insert(id, vec![histograms(NANOS_PER_DAY, NANOS_PER_SECOND, 40, 6)]);
    }
    (known, points)
}

/// Opens an archive with empty caches.
fn opened(directory: &Path, files: &Path) -> Archive {
    let address = format!("file://{}", files.display());
    let targets = HashMap::from([(DEFAULT_TARGET.to_owned(), (address, TargetOptions::default()))]);
    Archive::open(ArchiveSettings {
        own_file_rows: 1_000,
        targets,
        ..ArchiveSettings::new(directory.join("temporary"))
    })
    .expect("it opens")
}

type Flat = BTreeMap<TimelineId, Vec<FlatPoint>>;

/// Reads all points at a target using its objects only: the descriptions, the timelines, then the points.
fn read_all(archive: &Archive, known: &Known, ahead: u64) -> Result<Flat, ArchiveError> {
    let mut all = Flat::new();
    for key in archive.descriptions(DEFAULT_TARGET, None)? {
        let copy = Arc::new(archive.description(DEFAULT_TARGET, &key)?.archive);
        let runs = archive.timelines(&copy)?.runs()?;
        let runs = runs.collect::<Result<Vec<TimelineRun>, _>>()?;
        let mut reader = archive.reader(&copy, None, ahead)?;
        for run in runs {
            let points = reader.read(&run.extent, &|name: &str| known.id_of(name))?;
            all.entry(run.id).or_default().extend(flat(&[points]));
        }
    }
    Ok(all)
}

/// Flips random bits, one at a time, and reads all points after each flip.
fn flip_and_read(test: &str, files: &Path, known: &Known, expected: &Flat) {
    let mut random = Random(tideline_testkit::seed(test));
    let directory = tempfile::tempdir().expect("made");
    let archive = opened(directory.path(), files);
    assert_eq!(&read_all(&archive, known, 0).expect("it is sound"), expected);
    let listed = archive
        .target(DEFAULT_TARGET)
        .expect("known")
        .list("")
        .expect("listed");
    let paths: Vec<PathBuf> = listed.iter().map(|object| files.join(&object.key)).collect();
    let flips = tideline_testkit::rounds("TIDELINE_FLIPS", FLIPS.0, FLIPS.1);
    let mut unchanged = 0;
    for nth in 0..flips {
        let at = random.below(paths.len());
        let (path, key) = (&paths[at], &listed[at].key);
        let whole = fs::read(path).expect("it is there");
        let bit = random.below(whole.len() * 8);
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(path, &flipped).expect("written");
        let case = format!("flip {nth}: bit {bit} of {key}");
        let archive = opened(directory.path(), files);
        for ahead in [0, 8 << 20] {
            match read_all(&archive, known, ahead) {
                Ok(read) => {
                    assert!(&read == expected, "{case}: other points were read, and no error");
                    unchanged += 1;
                }
                Err(error) => {
                    let text = error.to_string();
                    assert!(matches!(error, ArchiveError::Damaged { .. }), "{case}: {text}");
                    assert!(!error.is_retryable(), "{case}: {text}");
                    assert!(text.contains(key) && text.contains("default"), "{case}: {text}");
                }
            }
        }
        fs::write(path, &whole).expect("written");
    }
    println!(
        "{test}: {flips} flips, {unchanged} of {} reads were not affected",
        2 * flips
    );
    // Many flips have no effect, because only other tools read statistics and column indexes.
    assert!(unchanged < flips, "{unchanged} of {flips} flips changed nothing");
}

#[test]
fn a_flipped_bit_is_an_error_or_changes_nothing() {
    let (known, points) = story();
    let directory = tempfile::tempdir().expect("made");
    let files = PathBuf::from(&in_directory(directory.path())["file://".len()..]);
    let archive = opened(directory.path(), &files);
    let (copy, _) = write(&archive, DEFAULT_TARGET, &known, &points);
    let shared = copy.files.iter().filter(|file| file.shared).count();
    assert!(shared > 0 && shared < copy.files.len(), "{:#?}", copy.files);
    let expected = points.iter().map(|(id, runs)| (*id, flat(runs))).collect();
    flip_and_read("a flipped bit", &files, &known, &expected);
}

/// Bit flips are also detected in files of an earlier build, which have no block checksums.
#[test]
fn a_flipped_bit_in_a_file_without_checksums_is_an_error_or_changes_nothing() {
    let (known, points) = goldens::story();
    let directory = tempfile::tempdir().expect("made");
    let files = directory.path().join("files");
    goldens::unpack(&files);
    let expected = points.iter().map(|(id, runs)| (*id, flat(runs))).collect();
    flip_and_read("a flipped bit, no checksums", &files, &known, &expected);
}

/// Changes a segment to the form of an earlier build: renames the metadata entry of the block checksums, and updates
/// the checksums of the files.
fn without_checksums(files: &Path, copy: &ArchiveCopy) -> Arc<ArchiveCopy> {
    let hex = |bytes: &[u8]| {
        let sum = ring::digest::digest(&ring::digest::SHA256, bytes);
        sum.as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let mut copy = copy.clone();
    for file in &mut copy.files {
        let path = files.join(&file.key);
        let mut bytes = fs::read(&path).expect("it is there");
        let note = b"tideline.checksums";
        let at = bytes.windows(note.len()).rposition(|part| part == note);
        bytes[at.expect("it has the note")] = b'T';
        fs::write(&path, &bytes).expect("written");
        file.sha256 = hex(&bytes);
        // Shared files get the form of the earliest builds, which recorded no checksum of the footer.
        file.index_sha256 = match file.shared {
            true => String::new(),
            false => hex(&bytes[file.index_from as usize..]),
        };
    }
    Arc::new(copy)
}

/// A file without block checksums is read as a whole once, even by concurrent queries and across a restart. After that
/// its parts are verified like the parts of other files.
#[test]
fn a_file_without_checksums_is_read_whole_once() {
    let (known, points) = story();
    let directory = tempfile::tempdir().expect("made");
    let address = in_directory(directory.path());
    let files = PathBuf::from(&address["file://".len()..]);
    let open = || {
        Archive::open(ArchiveSettings {
            disk_cache: Some((directory.path().join("footers"), 16 << 20)),
            pages_bytes_max: 0,
            own_file_rows: 1_000,
            ..ArchiveSettings::new(directory.path().join("temporary"))
        })
        .expect("it opens")
    };
    let (copy, extents) = write(&open(), &address, &known, &points);
    let copy = without_checksums(&files, &copy);
    let archive = open();
    let got = |archive: &Archive| archive.target(&address).expect("known").traffic().bytes_got;
    let read_first = |archive: &Archive, file: u32| {
        let extent = extents
            .iter()
            .find(|(_, extent)| extent.file == file)
            .expect("it has rows")
            .1;
        let mut reader = archive.reader(&copy, Some(&[FieldId(3)]), 0).expect("it opens");
        reader.read(&extent, &|name: &str| known.id_of(name))
    };
    for (number, file) in (0..).zip(&copy.files) {
        let before = got(&archive);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| read_first(&archive, number).expect("it reads"));
            }
        });
        let first = got(&archive) - before;
        let before = got(&archive);
        read_first(&archive, number).expect("it reads");
        let again = got(&archive) - before;
        // Each of the four threads reads its rows, and may fetch the footer before it waits for the thread that reads
        // the whole file.
        let footers = 5 * (file.bytes - file.index_from).max(64 << 10);
        let most = file.bytes + 4 * again + footers;
        assert!(
            (file.bytes..=most).contains(&first),
            "{first} of {}, then {again}",
            file.bytes
        );
        assert!(again < file.bytes.max(64 << 10), "{again} of {}", file.bytes);
        let fresh = open();
        read_first(&fresh, number).expect("it reads");
        assert_eq!(got(&fresh), again, "proven before the restart");
    }
    let back = read(&archive, &copy, &extents, &known, 1 << 20);
    for (id, runs) in &points {
        assert_eq!(flat(runs), flat(&back[id]));
    }
    // The files were undamaged when they were read as a whole; later changes are detected as well.
    for (number, file) in (0..).zip(&copy.files) {
        let path = files.join(&file.key);
        let mut bytes = fs::read(&path).expect("it is there");
        bytes[4..file.index_from as usize]
            .iter_mut()
            .for_each(|byte| *byte ^= 1);
        fs::write(&path, bytes).expect("written");
        let error = read_first(&archive, number).expect_err("it was changed");
        assert!(
            error.to_string().contains(&file.key) && !error.is_retryable(),
            "{error}"
        );
    }
}
