//! Points that are in the cold tier and in files at the same time: reads, rewrites, eviction and freed space.
//!
//! Each test runs on every backend, with one table and one cold segment.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tideline_archive::ArchiveCopy;
use tideline_model::{SegmentId, Tier, TimeRange, TimelineId, Value};
use tideline_series_store::manifest::Segment;
use tideline_series_store::{
    Delete, Evicted, Order, Rewrite, RewriteCause, RewriteCost, Rewritten, SeriesStore, StoreError, Table,
    Throttle,
};

use crate::fixture::{
    Point, Rows, TestBackend, archive, archived_table, checked, read, timeline, tiny, write,
};

const TIMELINES: u64 = 5;
const POINTS: i64 = 200;
/// Maximum time for freeing a segment on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

struct Unhurried;

impl Throttle for Unhurried {
    fn step(&mut self, _cost: &RewriteCost) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Store with one table and one cold segment.
struct Kept {
    store: SeriesStore,
    table: Arc<Table>,
}

impl Kept {
    fn new(test_backend: &TestBackend) -> Self {
        let (store, _) = test_backend.open(&tiny());
        let table = store.alter_table("default", archived_table()).expect("a policy");
        let kept = Self { store, table };
        kept.write(0..POINTS);
        kept.rewrite(Tier::Cold, RewriteCause::Migrate).expect("it moves");
        kept
    }

    fn write(&self, range: std::ops::Range<i64>) {
        let point = |at: i64, id: u64| -> Point { (timeline(id), at, vec![("value", Value::Signed(at))]) };
        let points: Vec<Point> = range
            .flat_map(|at| (0..TIMELINES).map(move |id| point(at, id)))
            .collect();
        write(&self.store, &self.table, &points, &ids()).expect("a write");
        self.store.seal().expect("a seal");
    }

    fn again(self, test_backend: &TestBackend) -> Self {
        self.store.close().expect("a clean close");
        let (store, _) = test_backend.open(&tiny());
        let table = store.table("default").expect("it is there");
        Self { store, table }
    }

    fn delete(&self, range: TimeRange) {
        let delete = Delete {
            timelines: vec![timeline(1)],
            range,
            removes_timelines: false,
        };
        self.store.delete(&self.table, delete).expect("a delete");
    }

    fn rewrite(&self, tier: Tier, cause: RewriteCause) -> Result<Rewritten, StoreError> {
        let rewrite = Rewrite {
            table: self.table.id(),
            inputs: self.segments().iter().map(|segment| segment.id).collect(),
            tier,
            cause,
        };
        self.store.rewrite(&rewrite, &mut Unhurried)
    }

    fn copy(&self) -> Result<Rewritten, StoreError> {
        self.rewrite(Tier::Archive, RewriteCause::Copy)
    }

    fn restore(&self, until: i64) -> Arc<Segment> {
        let restored = self.rewrite(Tier::Cold, RewriteCause::Restore(until));
        restored
            .expect("it comes back")
            .outputs
            .pop()
            .expect("it has points")
    }

    fn evict(&self) -> Evicted {
        let all: Vec<SegmentId> = self.segments().iter().map(|segment| segment.id).collect();
        self.store
            .evict(self.table.id(), &all)
            .expect("the target answers")
    }

    fn segments(&self) -> Vec<Arc<Segment>> {
        let survey = self.store.survey();
        let of_table = survey
            .tables
            .iter()
            .filter(|table| table.table.id() == self.table.id());
        of_table
            .flat_map(|table| table.segments.iter().map(|have| Arc::clone(&have.segment)))
            .collect()
    }

    fn only(&self) -> Arc<Segment> {
        let mut all = self.segments();
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    fn rows(&self) -> Vec<Rows> {
        read(
            &self.store,
            &self.table,
            &ids(),
            TimeRange::ALL,
            None,
            Order::Ascending,
        )
    }

    fn held(&self) -> usize {
        self.store
            .backend()
            .segments(tideline_log::SHARD)
            .expect("they can be listed")
            .len()
    }

    /// Waits until the backend holds `count` segments, because a thread of the log may be freeing one at the moment.
    fn wait_until_held(&self, count: usize) {
        let begun = Instant::now();
        while self.held() != count {
            assert!(begun.elapsed() < PATIENCE, "{} segments are held", self.held());
            std::thread::yield_now();
        }
    }
}

fn ids() -> Vec<TimelineId> {
    let mut ids: Vec<TimelineId> = (0..TIMELINES).map(timeline).collect();
    ids.sort_unstable();
    ids
}

fn files(segment: &Segment) -> Arc<ArchiveCopy> {
    let archived = segment
        .parts()
        .find_map(|part| part.archive.as_ref()?.whole().cloned());
    archived.expect("it has files")
}

fn is_there(files: &ArchiveCopy) -> bool {
    archive().missing(files).expect("memory answers").is_none()
}

#[test]
fn a_copy_is_not_read_until_it_replaces_its_segment() {
    for (name, test_backend) in TestBackend::all() {
        let kept = Kept::new(&test_backend);
        let before = (kept.only(), kept.rows());
        kept.copy().expect("it is one clean cold segment");
        let copied = kept.only();
        assert_eq!((copied.id, copied.tier), (before.0.id, Tier::Cold), "{name}");
        assert_eq!((kept.rows(), kept.held()), (before.1.clone(), 2), "{name}");
        // A start must not treat a copy, which has no readers, as an orphan of a crash.
        let kept = kept.again(&test_backend);
        assert_eq!((kept.only(), kept.held()), (copied.clone(), 2), "{name}");
        assert!(checked(&kept.store).findings.is_empty());
        let evicted = kept.evict();
        assert_eq!(
            (evicted.segments, evicted.bytes, evicted.stay),
            (1, copied.bytes, 0),
            "{name}"
        );
        let (left, copy) = (kept.only(), copied.copy.as_ref().expect("it had one"));
        assert_eq!(
            (left.id, left.tier, &left.archive),
            (copy.id, Tier::Archive, &copy.archive),
            "{name}"
        );
        kept.wait_until_held(1);
        assert_eq!(kept.rows(), before.1, "{name}");
        assert_eq!(kept.evict(), Evicted::default(), "{name}: nothing is left to do");
        let kept = kept.again(&test_backend);
        assert_eq!((kept.rows(), kept.held()), (before.1, 1), "{name}");
        kept.store.close().expect("a clean close");
    }
}

#[test]
fn a_copy_goes_with_the_points_that_it_was_made_of() {
    for (name, test_backend) in TestBackend::all() {
        let kept = Kept::new(&test_backend);
        kept.copy().expect("it is one clean cold segment");
        let old = files(&kept.only());
        kept.delete(TimeRange::new(0, 50));
        let after_delete = kept.rows();
        assert!(
            matches!(kept.copy(), Err(StoreError::NoCopy(_))),
            "{name}: it has deleted points"
        );
        // A purged segment differs from its copy.
        kept.rewrite(Tier::Cold, RewriteCause::Purge).expect("a purge");
        assert_eq!((kept.only().copy.as_ref(), kept.held()), (None, 1), "{name}");
        assert!(!is_there(&old), "{name}: its files are gone too");
        kept.copy().expect("it is clean again");
        // A fold with late points removes the copy.
        let old = files(&kept.only());
        kept.write(POINTS..POINTS + 10);
        assert!(
            matches!(kept.copy(), Err(StoreError::NoCopy(_))),
            "{name}: they are two"
        );
        let late = kept.rows();
        kept.rewrite(Tier::Cold, RewriteCause::Fold).expect("a fold");
        assert!(kept.only().copy.is_none() && !is_there(&old), "{name}");
        assert_eq!(kept.rows(), late, "{name}");
        assert_ne!(late, after_delete, "{name}");
        kept.copy().expect("it is one again");
        // A purge that only records that nothing was deleted keeps the copy.
        kept.delete(TimeRange::new(5_000, 6_000));
        kept.rewrite(Tier::Cold, RewriteCause::Purge).expect("a purge");
        assert!(kept.only().copy.is_some(), "{name}");
        // A delete of a timeline that is not in the segment removes nothing from it.
        let stranger = Delete {
            timelines: vec![timeline(99)],
            range: TimeRange::ALL,
            removes_timelines: false,
        };
        kept.store.delete(&kept.table, stranger).expect("a delete");
        kept.copy().expect("none of its points are deleted");
        assert_eq!(kept.held(), 2, "{name}: the copy before is gone");
        // A drop frees the segment and its files.
        let old = files(&kept.only());
        let all: Vec<SegmentId> = kept.segments().iter().map(|segment| segment.id).collect();
        kept.store
            .drop_segments(kept.table.id(), &all)
            .expect("they expire");
        assert_eq!((kept.held(), is_there(&old)), (0, false), "{name}");
        kept.store.close().expect("a clean close");
    }
}

#[test]
fn a_delete_holds_in_whichever_takes_the_place_of_the_other() {
    for (name, test_backend) in TestBackend::all() {
        let kept = Kept::new(&test_backend);
        kept.copy().expect("it is one clean cold segment");
        kept.delete(TimeRange::new(0, 50));
        let expected = kept.rows();
        assert_eq!(kept.evict().segments, 1, "{name}");
        assert_eq!(kept.rows(), expected, "{name}: evicted before it was purged");
        // Files with deleted points are not a copy of the restored segment.
        let restored = kept.restore(9);
        assert_eq!(
            (restored.copy.as_ref(), restored.stays_until),
            (None, Some(9)),
            "{name}"
        );
        assert_eq!(
            (kept.evict(), kept.rows()),
            (Evicted::default(), expected.clone()),
            "{name}"
        );
        kept.copy().expect("it is clean now");
        kept.evict();
        assert_eq!(kept.rows(), expected, "{name}");
        kept.store.close().expect("a clean close");
    }
}

#[test]
fn what_comes_back_keeps_its_files() {
    for (name, test_backend) in TestBackend::all() {
        let kept = Kept::new(&test_backend);
        let expected = kept.rows();
        kept.rewrite(Tier::Archive, RewriteCause::Archive)
            .expect("it moves");
        let archived = kept.only();
        let restored = kept.restore(7);
        assert_eq!(restored.tier, Tier::Cold, "{name}");
        assert_eq!(restored.copy.as_deref(), Some(archived.as_ref()), "{name}");
        assert_eq!(kept.restore(12).stays_until, Some(12), "{name}: asked for again");
        assert_eq!(kept.restore(3).stays_until, Some(12), "{name}: for no less");
        let kept = kept.again(&test_backend);
        assert_eq!((kept.rows(), kept.held()), (expected.clone(), 2), "{name}");
        kept.write(POINTS..POINTS + 1);
        kept.rewrite(Tier::Cold, RewriteCause::Fold).expect("a fold");
        assert_eq!(
            kept.only().stays_until,
            Some(12),
            "{name}: late points stay with it"
        );
        kept.store.close().expect("a clean close");
    }
}

#[test]
fn points_stay_where_files_of_theirs_are_missing() {
    for (name, test_backend) in TestBackend::all() {
        let kept = Kept::new(&test_backend);
        let expected = kept.rows();
        kept.copy().expect("it is one clean cold segment");
        archive().remove(&files(&kept.only())).expect("memory forgets");
        let evicted = kept.evict();
        assert_eq!((evicted.segments, evicted.stay), (0, 1), "{name}");
        let left = kept.only();
        assert_eq!((left.tier, left.copy.as_ref()), (Tier::Cold, None), "{name}");
        assert_eq!((kept.rows(), kept.held()), (expected, 1), "{name}");
        kept.copy().expect("it is archived again");
        kept.store
            .drop_table("default")
            .expect_err("the default table stays");
        kept.store.close().expect("a clean close");
    }
}
