//! Segments with more files than a manifest row holds, and jobs that fail after they have sent some files.
//!
//! A segment with that many files stores its file list separately; every kind of rewrite must handle this separate
//! list.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use tideline_archive::ArchiveCopy;
use tideline_backend::memory::{Character, EditFault, MemoryDisk};
use tideline_model::time::NANOS_PER_DAY;
use tideline_model::{ManualClock, SegmentId, Tier, TimeRange, TimelineId, Timestamp, Value};
use tideline_series_store::{
    Delete, Order, OrphanSearch, Rewrite, RewriteCause, RewriteCost, Rewritten, SeriesStore, Settings,
    StoreError, Table, Throttle,
};

use crate::fixture::{
    Point, Rows, TARGET, TestBackend, archive, archived_table, checked, read, timeline, write,
};
use crate::moves::all_steps;

const DAY: i64 = NANOS_PER_DAY;
/// Number of days. A manifest row cannot hold so many files.
const DAYS: i64 = 220;
/// Number of points per day for which a day gets its own file; see [`archive`].
const A_DAY: i64 = 50;

fn settings() -> Settings {
    Settings {
        window_nanos: DAY / 8,
        archive: Some(archive()),
        ..Settings::default()
    }
}

struct Filled {
    store: SeriesStore,
    table: Arc<Table>,
}

fn ids() -> Vec<TimelineId> {
    vec![timeline(1)]
}

impl Filled {
    /// Creates a store with one cold segment of many days.
    fn new(test_backend: &TestBackend, clock: &ManualClock) -> Self {
        let (store, _) = test_backend.open_at(&settings(), clock);
        let table = store.alter_table("default", archived_table()).expect("a policy");
        let point = |at: i64| -> Point {
            let time = at / A_DAY * DAY + at % A_DAY;
            (timeline(1), time, vec![("value", Value::Signed(at))])
        };
        let points: Vec<Point> = (0..DAYS * A_DAY).map(point).collect();
        write(&store, &table, &points, &ids()).expect("a write");
        store.seal().expect("a seal");
        let filled = Self { store, table };
        filled
            .rewrite(Tier::Cold, RewriteCause::Migrate)
            .expect("it moves");
        filled
    }

    fn again(self, test_backend: &TestBackend, clock: &ManualClock) -> Self {
        self.store.close().expect("a clean close");
        drop(self.store);
        let (store, _) = test_backend.open_at(&settings(), clock);
        let table = store.table("default").expect("it is there");
        Self { store, table }
    }

    fn ids(&self) -> Vec<SegmentId> {
        let survey = self.store.survey();
        let segments = survey.tables.iter().flat_map(|table| &table.segments);
        segments.map(|have| have.segment.id).collect()
    }

    fn rewrite_at(
        &self,
        tier: Tier,
        cause: RewriteCause,
        throttle: &mut dyn Throttle,
    ) -> Result<Rewritten, StoreError> {
        let rewrite = Rewrite {
            table: self.table.id(),
            inputs: self.ids(),
            tier,
            cause,
        };
        self.store.rewrite(&rewrite, throttle)
    }

    fn rewrite(&self, tier: Tier, cause: RewriteCause) -> Result<Rewritten, StoreError> {
        self.rewrite_at(tier, cause, &mut all_steps())
    }

    fn rows(&self) -> Rows {
        let all = TimeRange::ALL;
        read(&self.store, &self.table, &ids(), all, None, Order::Ascending).remove(0)
    }

    /// Returns the files of the only segment, or of its copy.
    fn files(&self) -> Arc<ArchiveCopy> {
        let survey = self.store.survey();
        let segments = survey.tables.iter().flat_map(|table| &table.segments);
        let mut parts = segments.flat_map(|have| have.segment.parts());
        let part = parts.find(|part| part.archive.is_some()).expect("it has files");
        let files = part.archive.as_ref().expect("it was found by them");
        assert!(files.whole().is_none(), "they are too many for a row");
        let copy = self
            .store
            .files_of(part)
            .expect("they read")
            .expect("there are some");
        assert_eq!(
            (files.count(), files.bytes()),
            (copy.files.len() as u64 + 1, copy.bytes())
        );
        copy
    }

    fn check(&self) {
        let checked = checked(&self.store);
        assert_eq!(checked.findings, [] as [String; 0]);
    }
}

fn is_there(files: &ArchiveCopy) -> bool {
    archive().missing(files).expect("memory answers").is_none()
}

/// Returns the names of the objects at the target that a store has written.
fn objects(origin: u64) -> BTreeSet<String> {
    let origin = format!("{origin:016x}");
    let all = archive().objects(TARGET).expect("memory answers").into_iter();
    all.filter(|object| object.origin == origin)
        .map(|object| object.key)
        .collect()
}

#[test]
fn a_segment_with_more_files_than_a_row_holds_takes_every_way() {
    for (name, test_backend) in TestBackend::all() {
        let clock = ManualClock::new(Timestamp::EPOCH);
        let filled = Filled::new(&test_backend, &clock);
        let expected = filled.rows();
        assert_eq!(expected.len() as i64, DAYS * A_DAY, "{name}");
        filled
            .rewrite(Tier::Archive, RewriteCause::Archive)
            .expect("it becomes files");
        let files = filled.files();
        assert!(files.files.len() > 100, "{name}: {} files", files.files.len());
        assert!(archive().verify(&files).expect("known").is_sound(), "{name}");
        assert_eq!(filled.rows(), expected, "{name}");
        filled.check();

        let filled = filled.again(&test_backend, &clock);
        assert_eq!(filled.files(), files, "{name}");
        assert_eq!(filled.rows(), expected, "{name}");
        clock.set(Timestamp::from_nanos_clamped(i64::MAX / 2));
        filled.store.confirm_clock();
        assert_eq!(
            filled.store.sweep_archive(filled.table.id()).expect("swept"),
            0,
            "{name}"
        );

        // Restores the segment into the cold tier while the files stay, and evicts it again.
        let until = RewriteCause::Restore(i64::MAX);
        filled.rewrite(Tier::Cold, until).expect("it comes back");
        assert_eq!(
            (filled.files(), filled.rows()),
            (Arc::clone(&files), expected.clone()),
            "{name}"
        );
        let filled = filled.again(&test_backend, &clock);
        filled.check();
        let evicted = filled
            .store
            .evict(filled.table.id(), &filled.ids())
            .expect("memory answers");
        assert_eq!((evicted.segments, evicted.stay), (1, 0), "{name}");
        assert_eq!(filled.rows(), expected, "{name}");

        // The rewritten segment has a new file list. The files in the previous list are removed.
        let delete = Delete {
            timelines: ids(),
            range: TimeRange::new(0, DAY),
            removes_timelines: false,
        };
        filled.store.delete(&filled.table, delete).expect("a delete");
        filled
            .rewrite(Tier::Archive, RewriteCause::Purge)
            .expect("it is written anew");
        let purged = filled.files();
        assert!(is_there(&purged) && !is_there(&files), "{name}");
        assert_eq!(filled.rows(), expected[A_DAY as usize..], "{name}");
        filled.check();

        // A store that has become another database refers to the same files.
        filled.store.become_another().expect("an edit");
        assert_eq!(filled.files().files, purged.files, "{name}");
        filled
            .rewrite(Tier::Cold, RewriteCause::Restore(0))
            .expect("it comes back");
        assert!(is_there(&purged), "{name}: they are another's");
    }
}

/// Throttle that cancels a rewrite as soon as a file of the store is at the target.
struct UntilSent<'a>(&'a SeriesStore);

impl Throttle for UntilSent<'_> {
    fn step(&mut self, _cost: &RewriteCost) -> ControlFlow<()> {
        match self.0.origin().is_some_and(|origin| !objects(origin).is_empty()) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

#[test]
fn a_job_that_fails_leaves_no_description_and_no_files() {
    let disk = MemoryDisk::new(Character::Distributed);
    let test_backend = TestBackend::Memory(Arc::clone(&disk));
    let clock = ManualClock::new(Timestamp::EPOCH);
    let filled = Filled::new(&test_backend, &clock);
    let expected = filled.rows();

    let given_up = filled.rewrite_at(
        Tier::Archive,
        RewriteCause::Archive,
        &mut UntilSent(&filled.store),
    );
    assert!(matches!(given_up, Err(StoreError::Cancelled)), "{given_up:?}");
    let origin = filled.store.origin().expect("it has sent files");
    assert_eq!(objects(origin), BTreeSet::new(), "it is given up in the middle");

    disk.fail_edit(EditFault::Lost);
    let failed = filled
        .rewrite(Tier::Archive, RewriteCause::Archive)
        .expect_err("the edit is lost");
    assert!(failed.is_retryable(), "{failed}");
    assert_eq!(objects(origin), BTreeSet::new(), "its edit did not land");
    assert_eq!(filled.rows(), expected);

    disk.fail_edit(EditFault::Applied);
    filled
        .rewrite(Tier::Archive, RewriteCause::Archive)
        .expect("its edit landed");
    let named: BTreeSet<String> = filled.files().keys().map(str::to_owned).collect();
    assert_eq!(objects(origin), named);
    assert_eq!(filled.rows(), expected);
    filled.check();
}

#[test]
fn what_failed_jobs_have_left_is_found_and_removed_and_nothing_else() {
    let test_backend = TestBackend::Memory(MemoryDisk::new(Character::Embedded));
    let clock = ManualClock::new(Timestamp::EPOCH);
    let filled = Filled::new(&test_backend, &clock);
    filled
        .rewrite(Tier::Archive, RewriteCause::Archive)
        .expect("it becomes files");
    let origin = filled.store.origin().expect("it has sent files");
    let own = objects(origin);
    let expected = filled.rows();
    // Objects of a job that failed at its edit: all of them exist, including the description.
    let left = crate::archived::leftovers(&archive(), &filled.store, &format!("{origin:016x}"), true);
    // Objects of another database: a complete segment, and files without a description.
    let other = "00000000000000aa";
    let theirs = crate::archived::leftovers(&archive(), &filled.store, other, true);
    let unfinished = crate::archived::leftovers(&archive(), &filled.store, other, false);

    let search = |origin: Option<&str>| OrphanSearch {
        target: TARGET.into(),
        origin: origin.map(str::to_owned),
    };
    let keys = |found: &tideline_series_store::Orphans| -> BTreeSet<String> {
        found
            .found
            .iter()
            .map(|orphan| orphan.object.key.clone())
            .collect()
    };
    let found = filled.store.find_orphans(&search(None)).expect("memory answers");
    assert_eq!(keys(&found), left);
    assert!(
        found.found[0].object.key.ends_with(".json"),
        "descriptions go first"
    );
    assert_eq!(found.named, own.len() as u64);
    assert_eq!(found.others[other], (theirs.len() + unfinished.len()) as u64);
    // Searching removes nothing.
    assert!(left.is_subset(&objects(origin)));
    let nothing = filled
        .store
        .remove_orphans(TARGET, &found, &mut |_| false)
        .expect("memory answers");
    assert_eq!((nothing, objects(origin).len()), ((0, 0), own.len() + left.len()));
    let removed = filled
        .store
        .remove_orphans(TARGET, &found, &mut |_| true)
        .expect("memory answers");
    assert_eq!(removed, (left.len() as u64, found.bytes()));
    assert_eq!(objects(origin), own);
    assert_eq!(filled.rows(), expected);
    assert!(archive().verify(&filled.files()).expect("known").is_sound());

    // Objects of the other database are found if no description lists them and they are at least a day old.
    let found = filled
        .store
        .find_orphans(&search(Some(other)))
        .expect("memory answers");
    assert_eq!(
        (keys(&found), found.young),
        (BTreeSet::new(), unfinished.len() as u64)
    );
    clock.set(Timestamp::from_nanos_clamped(i64::MAX / 2));
    filled.store.confirm_clock();
    let found = filled
        .store
        .find_orphans(&search(Some(other)))
        .expect("memory answers");
    assert_eq!((keys(&found), found.named), (unfinished, theirs.len() as u64));
    filled
        .store
        .remove_orphans(TARGET, &found, &mut |_| true)
        .expect("memory answers");
    let all = archive().objects(TARGET).expect("memory answers").into_iter();
    let of_other: BTreeSet<String> = all
        .filter(|object| object.origin == other)
        .map(|object| object.key)
        .collect();
    assert_eq!(of_other, theirs);
}
