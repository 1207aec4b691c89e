//! One flipped bit in an archived file: a read, a fold, a purge and a restore return the written points, or an error
//! that contains the names of the file and the target. No rewrite stores wrong points with a new checksum.
//!
//! `TIDELINE_FLIPS` sets the number of flips. Only one bit is flipped at a time.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use tideline_archive::{Archive, ArchiveError, ArchiveSettings};
use tideline_backend::memory::{Character, MemoryDisk};
use tideline_chunk::Presence;
use tideline_model::{ColumnData, Tier, TimeRange, TimelineId, Value};
use tideline_series_store::manifest::Segment;
use tideline_series_store::{
    Delete, Order, Rewrite, RewriteCause, Selection, SeriesStore, Settings, StoreError, Table,
};

use crate::fixture::{Point, TestBackend, archived_table, timeline, tiny, write};
use crate::moves::all_steps;

/// Number of flipped bits in a CI run, and in a slow run.
const FLIPS: (usize, usize) = (60, 2_000);
const TIMELINES: u64 = 8;
const POINTS: i64 = 400;

/// All values that a read returns, as text, with timeline and timestamp.
type Found = Vec<(TimelineId, i64, String)>;

/// Store whose archive is in a folder.
struct Case {
    test_backend: TestBackend,
    target: String,
    folder: tempfile::TempDir,
}

impl Case {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("made");
        fs::create_dir(folder.path().join("files")).expect("made");
        let case = Self {
            test_backend: TestBackend::Memory(MemoryDisk::new(Character::Embedded)),
            target: format!("file://{}/files", folder.path().display()),
            folder,
        };
        let (store, table) = case.open();
        let mut spec = archived_table();
        spec.policy
            .archive
            .as_mut()
            .expect("it has one")
            .target
            .clone_from(&case.target);
        store.alter_table("default", spec).expect("a policy");
        let point = |at: i64, id: u64| -> Point {
            let fields = vec![
                ("varied", Value::Float((at as f64 + id as f64).sin())),
                ("few", Value::Float((at % 7) as f64 / 2.0)),
                ("count", Value::Signed(at * at)),
                ("text", Value::String(format!("text {}", at % 90).into())),
                ("ok", Value::Boolean(at % 3 == 0)),
            ];
            (timeline(id), at, fields)
        };
        let points: Vec<Point> = (0..POINTS)
            .flat_map(|at| (0..TIMELINES).map(move |id| point(at, id)))
            .collect();
        write(&store, &table, &points, &ids()).expect("a write");
        store.seal().expect("a seal");
        rewrite(&store, &table, Tier::Archive, RewriteCause::Archive).expect("a move");
        store.close().expect("closed");
        case
    }

    /// Opens the store with an archive whose caches are empty.
    fn open(&self) -> (SeriesStore, Arc<Table>) {
        let archive = Archive::open(ArchiveSettings {
            own_file_rows: 1_000,
            ..ArchiveSettings::new(self.folder.path().join("temporary"))
        });
        let settings = Settings {
            archive: Some(Arc::new(archive.expect("it opens"))),
            ..tiny()
        };
        let (store, _) = self.test_backend.open(&settings);
        let table = store.table("default").expect("it is there");
        (store, table)
    }
}

fn ids() -> Vec<TimelineId> {
    let mut ids: Vec<TimelineId> = (0..TIMELINES).map(timeline).collect();
    ids.sort_unstable();
    ids
}

fn segments(store: &SeriesStore) -> Vec<Arc<Segment>> {
    let survey = store.survey();
    let of_all = survey.tables.iter().flat_map(|table| &table.segments);
    of_all.map(|have| Arc::clone(&have.segment)).collect()
}

fn rewrite(store: &SeriesStore, table: &Table, tier: Tier, cause: RewriteCause) -> Result<(), StoreError> {
    let rewrite = Rewrite {
        table: table.id(),
        inputs: segments(store).iter().map(|segment| segment.id).collect(),
        tier,
        cause,
    };
    store.rewrite(&rewrite, &mut all_steps()).map(drop)
}

fn read(store: &SeriesStore, table: &Table) -> Result<Found, StoreError> {
    let (ids, snapshot) = (ids(), store.snapshot());
    let mut reader = snapshot.reader(Selection {
        table: table.id(),
        timelines: &ids,
        range: TimeRange::ALL,
        fields: None,
        order: Order::Ascending,
        tier: None,
    });
    let mut found = Found::new();
    for id in &ids {
        reader.timeline(*id, &mut |run| {
            for column in &run.columns {
                let present = |row: &usize| match &column.presence {
                    Presence::All => true,
                    Presence::Some(bitmap) => bitmap.get(*row),
                };
                for (at, row) in (0..run.rows()).filter(present).enumerate() {
                    let value = match &column.values {
                        ColumnData::Float(values) => format!("{:x}", values[at].to_bits()),
                        ColumnData::Signed(values) => values[at].to_string(),
                        ColumnData::Boolean(values) => values[at].to_string(),
                        ColumnData::String(values) => values.get(at).to_owned(),
                        other => panic!("{other:?} was never written"),
                    };
                    let text = format!("{} {value}", column.field);
                    found.push((*id, run.timestamps[row], text));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
    }
    found.sort();
    Ok(found)
}

fn check(case: &str, error: &StoreError, key: &str, target: &str) {
    let text = error.to_string();
    assert!(
        matches!(error, StoreError::Archive(ArchiveError::Damaged { .. })),
        "{case}: {text}"
    );
    assert!(!error.is_retryable(), "{case}: {text}");
    assert!(text.contains(key) && text.contains(target), "{case}: {text}");
}

#[test]
fn no_move_writes_what_a_flipped_bit_has_made() {
    let mut random = tideline_testkit::seed("flipped bits under moves");
    let mut below = |end: usize| {
        // SplitMix64 generator.
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    };
    let case = Case::new();
    let flips = tideline_testkit::rounds("TIDELINE_FLIPS", FLIPS.0, FLIPS.1);
    let mut noticed = 0;
    for nth in 0..flips {
        let (store, table) = case.open();
        let kind = ["read", "fold", "purge", "restore"][nth % 4];
        if kind == "purge" {
            let at = below(POINTS as usize) as i64;
            let delete = Delete {
                timelines: vec![timeline(below(TIMELINES as usize) as u64)],
                range: TimeRange::new(at, at + 1),
                removes_timelines: false,
            };
            store.delete(&table, delete).expect("a delete");
        }
        let expected = read(&store, &table).expect("it is sound");
        let archived = store
            .files_of(&segments(&store)[0])
            .expect("it reads")
            .expect("it is archived");
        store.close().expect("closed");
        let file = &archived.files[below(archived.files.len())];
        let path = Path::new(&case.target["file://".len()..]).join(&file.key);
        let whole = fs::read(&path).expect("it is there");
        // Not every flip is detected: the statistics between the last page and the footer are not read here.
        let bit = below(whole.len() * 8);
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &flipped).expect("written");
        let name = format!("{nth}: {kind}, bit {bit} of {}", file.key);
        let (store, table) = case.open();
        let outcome = match kind {
            "read" => read(&store, &table).map(drop),
            "fold" => rewrite(&store, &table, Tier::Archive, RewriteCause::Fold),
            "purge" => rewrite(&store, &table, Tier::Archive, RewriteCause::Purge),
            _ => rewrite(&store, &table, Tier::Cold, RewriteCause::Restore(i64::MAX)),
        };
        match (&outcome, read(&store, &table)) {
            (Ok(()), Ok(found)) => assert!(found == expected, "{name}: other points, and no error"),
            (Ok(()), Err(error)) => panic!("{name}: written, then {error}"),
            (Err(error), found) => {
                noticed += 1;
                check(&name, error, &file.key, &case.target);
                let error = found.expect_err("the file is still the only one");
                check(&name, &error, &file.key, &case.target);
            }
        }
        store.close().expect("closed");
        if path.exists() {
            fs::write(&path, &whole).expect("written");
        }
        let (store, table) = case.open();
        assert!(read(&store, &table).expect("it is sound") == expected, "{name}");
        if segments(&store)[0].tier != Tier::Archive {
            rewrite(&store, &table, Tier::Archive, RewriteCause::Archive).expect("a move");
        }
        store.close().expect("closed");
    }
    println!("{noticed} of {flips} flips were noticed");
    assert!(noticed > flips / 2, "{noticed} of {flips}");
}
