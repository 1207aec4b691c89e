//! Fake database with segments but without points, and a clock set by the test.
//!
//! The database records all work, so that tests can check the order of work.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tideline_backend::SegmentRef;
use tideline_engine::time::{StoredClock, TrustedClock, TrustedNow};
use tideline_model::time::{NANOS_PER_DAY, NANOS_PER_SECOND};
use tideline_model::{
    Clock, GroupId, ManualClock, Policy, Schedule, SegmentId, SequenceNumber, TableId, TableModel, Tier,
    TimeRange, Timestamp,
};
use tideline_scheduler::series::plan::{Facts, SegmentFacts, TableFacts};
use tideline_scheduler::{
    Database, Job, JobFilter, JobState, Models, Scheduler, SeriesWork, Settings, WorkError,
};
use tideline_series_store::manifest::{Segment, SegmentTotals, WriteRank, WriteSpan};
use tideline_series_store::window::Window;
use tideline_series_store::{
    Evicted, Rewrite, RewriteCause, RewriteCost, Rewritten, SealReport, Throttle, Unsealed,
};

pub(crate) const HOUR: i64 = 3_600 * NANOS_PER_SECOND;
pub(crate) const DAY: i64 = NANOS_PER_DAY;
const BASE: i64 = 3 * HOUR;
/// The first midnight of 2027.
pub(crate) const START: i64 = 1_798_761_600 * NANOS_PER_SECOND;
/// Bytes of each segment.
pub(crate) const SEGMENT_BYTES: u64 = 1_000;
/// Number of steps in which a rewrite reads its inputs.
const STEPS: u64 = 10;

/// Clock that advances with every monotonic reading, if a test sets `passes`.
#[derive(Debug)]
pub(crate) struct FakeClock {
    pub(crate) hand: ManualClock,
    pub(crate) passes: AtomicI64,
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        self.hand.now()
    }

    fn monotonic(&self) -> Duration {
        self.hand.advance(self.passes.load(Ordering::Relaxed));
        self.hand.monotonic()
    }
}

type OnStep = Box<dyn FnMut(u64) + Send>;
type OnGivenUp = Box<dyn FnMut() + Send>;

pub(crate) struct FakeWork {
    pub(crate) clock: Arc<FakeClock>,
    pub(crate) tables: Mutex<Vec<TableFacts>>,
    pub(crate) rows: Mutex<BTreeMap<Bytes, Bytes>>,
    pub(crate) trusted: Mutex<TrustedClock>,
    /// Errors that the next calls return instead of working.
    pub(crate) failures: Mutex<Vec<WorkError>>,
    /// Called at each step of a rewrite, with the number of the step.
    pub(crate) on_step: Mutex<Option<OnStep>>,
    /// Called after the step that ended a rewrite, before the rewrite returns.
    on_given_up: Mutex<Option<OnGivenUp>>,
    /// Descriptions of the completed work.
    pub(crate) log: Mutex<Vec<String>>,
    pub(crate) catalog_finds: Mutex<u64>,
    /// Seal reports that [`SeriesWork::take_seal_reports`] has not returned yet.
    pub(crate) seals: Mutex<Vec<SealReport>>,
}

impl FakeWork {
    pub(crate) fn new(policy: Policy, segments: Vec<SegmentFacts>) -> Arc<Self> {
        let hand = ManualClock::new(Timestamp::from_nanos_clamped(START + 20 * DAY));
        let clock = FakeClock {
            hand: hand.clone(),
            passes: AtomicI64::new(0),
        };
        let mut trusted = TrustedClock::new(
            StoredClock::default(),
            Timestamp::MIN,
            hand.now(),
            hand.monotonic(),
        );
        trusted.note_stored(START + 10_000 * DAY);
        Arc::new(Self {
            clock: Arc::new(clock),
            tables: Mutex::new(vec![table(1, "default", policy, segments)]),
            rows: Mutex::default(),
            trusted: Mutex::new(trusted),
            failures: Mutex::default(),
            on_step: Mutex::default(),
            on_given_up: Mutex::default(),
            log: Mutex::default(),
            catalog_finds: Mutex::default(),
            seals: Mutex::default(),
        })
    }

    pub(crate) fn scheduler(self: &Arc<Self>) -> Arc<Scheduler> {
        self.scheduler_with(self.models(), Settings::default())
    }

    pub(crate) fn scheduler_with(self: &Arc<Self>, models: Models, settings: Settings) -> Arc<Scheduler> {
        Arc::new(Scheduler::without_thread(Arc::clone(self) as _, models, settings))
    }

    /// Returns a registry with series tables only.
    pub(crate) fn models(self: &Arc<Self>) -> Models {
        Models::new(Arc::clone(self) as _)
    }

    pub(crate) fn advance(&self, nanos: i64) {
        self.clock.hand.advance(nanos);
    }

    pub(crate) fn now(&self) -> i64 {
        self.clock.hand.now().nanos()
    }

    /// Returns the descriptions of the work completed since the last call.
    pub(crate) fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock())
    }

    pub(crate) fn fail_next(&self, errors: impl IntoIterator<Item = WorkError>) {
        self.failures.lock().extend(errors);
    }

    pub(crate) fn on_step(&self, call: impl FnMut(u64) + Send + 'static) {
        *self.on_step.lock() = Some(Box::new(call));
    }

    pub(crate) fn on_given_up(&self, call: impl FnMut() + Send + 'static) {
        *self.on_given_up.lock() = Some(Box::new(call));
    }

    fn next_failure(&self) -> Result<(), WorkError> {
        let mut failures = self.failures.lock();
        if failures.is_empty() {
            Ok(())
        } else {
            Err(failures.remove(0))
        }
    }

    fn replace(&self, rewrite: &Rewrite) -> Result<Segment, WorkError> {
        let mut tables = self.tables.lock();
        let table = tables.iter_mut().find(|table| table.id == rewrite.table);
        let segments = &mut table
            .ok_or_else(|| WorkError::Overtaken("no table".into()))?
            .segments;
        let (inputs, rest): (Vec<_>, Vec<_>) = std::mem::take(segments)
            .into_iter()
            .partition(|segment| rewrite.inputs.contains(&segment.id));
        *segments = rest;
        let mut output = inputs
            .first()
            .cloned()
            .ok_or_else(|| WorkError::Overtaken("gone".into()))?;
        for input in &inputs {
            output.written = output.written.union(input.written);
            output.first = output.first.min(input.first);
            output.last = output.last.max(input.last);
        }
        output.id = SegmentId(1_000 + inputs[0].id.0);
        output.tier = rewrite.tier;
        output.has_deletes = false;
        if rewrite.tier == Tier::Cold {
            output.window = Window::of(output.first, BASE, 3);
        }
        if let RewriteCause::Copy = rewrite.cause {
            (output.id, output.tier, output.is_copied) = (inputs[0].id, Tier::Cold, true);
        }
        if output.tier == Tier::Archive || output.is_copied {
            output.archived = Some(self.now());
        }
        if let RewriteCause::Restore(until) = rewrite.cause {
            (output.stays_until, output.is_copied) = (Some(until), true);
        }
        let location = SegmentRef {
            segment: output.id,
            group: GroupId(1),
            tier: output.tier.kept_in(),
        };
        let made = Segment::new(
            location,
            rewrite.table,
            output.window,
            output.written,
            SequenceNumber(0),
            SegmentTotals::default(),
        );
        segments.push(output);
        Ok(made)
    }
}

impl Database for FakeWork {
    fn models(&self) -> &[TableModel] {
        &[TableModel::Series]
    }

    fn trusted_now(&self) -> TrustedNow {
        let mut trusted = self.trusted.lock();
        trusted.observe(self.clock.hand.now(), self.clock.hand.monotonic())
    }

    fn job_rows(&self) -> Vec<(Bytes, Bytes)> {
        self.rows.lock().clone().into_iter().collect()
    }

    fn edit_job_rows(&self, put: Vec<(Bytes, Bytes)>, remove: Vec<Bytes>) -> Result<(), WorkError> {
        let mut rows = self.rows.lock();
        remove.iter().for_each(|name| {
            rows.remove(name);
        });
        rows.extend(put);
        Ok(())
    }

    fn confirm_clock(&self) {
        let (wall, monotonic) = (self.clock.hand.now(), self.clock.hand.monotonic());
        self.trusted.lock().confirm(wall, monotonic);
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock) as _
    }
}

impl SeriesWork for FakeWork {
    fn facts(&self) -> Facts {
        Facts {
            clock: self.trusted_now(),
            window_nanos: BASE,
            frozen_heads: 0,
            retired_segments: 3,
            tables: self.tables.lock().clone(),
        }
    }

    fn facts_and_unsealed(
        &self,
        _table: TableId,
        _before: &dyn Fn(&Facts) -> [i64; 4],
    ) -> Result<(Facts, [Unsealed; 4]), WorkError> {
        Ok((self.facts(), [Unsealed::default(); 4]))
    }

    fn rewrite(&self, rewrite: &Rewrite, throttle: &mut dyn Throttle) -> Result<Rewritten, WorkError> {
        self.next_failure()?;
        let mut cost = RewriteCost::default();
        for step in 1..=STEPS {
            let bytes = rewrite.inputs.len() as u64 * SEGMENT_BYTES / STEPS;
            cost.bytes_read += bytes;
            cost.points_read += bytes;
            cost.points_written += bytes;
            cost.bytes_written += bytes / 2;
            if let Some(call) = self.on_step.lock().as_mut() {
                call(step);
            }
            if throttle.step(&cost).is_break() {
                if let Some(call) = self.on_given_up.lock().as_mut() {
                    call();
                }
                return Err(WorkError::GivenUp);
            }
        }
        let inputs: Vec<u64> = rewrite.inputs.iter().map(|id| id.0).collect();
        let output = self.replace(rewrite)?;
        self.log.lock().push(format!("{:?} {inputs:?}", rewrite.cause));
        Ok(Rewritten {
            outputs: vec![Arc::new(output)],
            cost,
        })
    }

    fn evict(&self, table: TableId, segments: &[SegmentId]) -> Result<Evicted, WorkError> {
        self.next_failure()?;
        let mut tables = self.tables.lock();
        let found = tables.iter_mut().find(|found| found.id == table);
        let all = &mut found.expect("the table").segments;
        let mut evicted = Evicted::default();
        for segment in all.iter_mut().filter(|segment| segments.contains(&segment.id)) {
            evicted.segments += 1;
            evicted.bytes += segment.bytes;
            (segment.tier, segment.is_copied) = (Tier::Archive, false);
        }
        let ids: Vec<u64> = segments.iter().map(|id| id.0).collect();
        self.log.lock().push(format!("Evict {ids:?}"));
        Ok(evicted)
    }

    fn drop_segments(&self, table: TableId, segments: &[SegmentId]) -> Result<u64, WorkError> {
        self.next_failure()?;
        let mut tables = self.tables.lock();
        let found = tables
            .iter_mut()
            .find(|found| found.id == table)
            .expect("the table");
        found.segments.retain(|segment| !segments.contains(&segment.id));
        let ids: Vec<u64> = segments.iter().map(|id| id.0).collect();
        self.log.lock().push(format!("Drop {ids:?}"));
        Ok(ids.len() as u64)
    }

    fn seal(&self) -> Result<(), WorkError> {
        self.next_failure()?;
        self.log.lock().push("Seal".into());
        self.seals.lock().push(sealed(500));
        Ok(())
    }

    fn take_seal_reports(&self) -> Vec<SealReport> {
        std::mem::take(&mut self.seals.lock())
    }

    fn sweep_archive(&self, _table: TableId) -> Result<u64, WorkError> {
        Ok(0)
    }

    fn write_settings(&self, _table: TableId) -> Result<u64, WorkError> {
        Ok(0)
    }

    fn clean_catalog(&self, _table: TableId) -> Result<u64, WorkError> {
        self.log.lock().push("Catalog".into());
        Ok(*self.catalog_finds.lock())
    }
}

/// Returns the report of a seal of this number of points.
pub(crate) fn sealed(points: u64) -> SealReport {
    SealReport {
        started: START + 20 * DAY,
        duration: Duration::from_secs(1),
        segments: 1,
        windows: 1,
        timelines: 5,
        points,
        values: points,
        bytes: 2 * points,
        range: Some(TimeRange::new(START, START + HOUR)),
    }
}

pub(crate) fn table(id: u32, name: &str, policy: Policy, segments: Vec<SegmentFacts>) -> TableFacts {
    TableFacts {
        id: TableId(id),
        name: name.into(),
        policy,
        policy_changed: START - 100 * DAY,
        created: START - 100 * DAY,
        segments,
        has_unwritten_settings: false,
    }
}

/// Creates a segment that fills the day that begins `days` days after [`START`].
pub(crate) fn day(id: u64, tier: Tier, days: i64) -> SegmentFacts {
    let window = Window::of(START + days * DAY, BASE, 3);
    let range = window.range(BASE);
    let rank = WriteRank {
        sequence: id,
        seal: id,
    };
    SegmentFacts {
        id: SegmentId(id),
        tier,
        window,
        first: range.start,
        last: range.end - 1,
        timelines: 5,
        points: SEGMENT_BYTES,
        values: SEGMENT_BYTES,
        bytes: SEGMENT_BYTES,
        written: WriteSpan::of(rank),
        archived: None,
        is_copied: false,
        stays_until: None,
        has_deletes: false,
        is_moving: false,
    }
}

/// Creates hot days that are old enough to migrate, one segment each.
pub(crate) fn old_days(count: u64) -> Vec<SegmentFacts> {
    (1..=count).map(|id| day(id, Tier::Hot, id as i64)).collect()
}

pub(crate) fn nightly() -> Schedule {
    Schedule::Cron {
        expression: "0 3 * * *".into(),
        time_zone: "UTC".into(),
    }
}

pub(crate) fn in_state(scheduler: &Scheduler, state: JobState) -> Vec<Job> {
    scheduler.jobs(&JobFilter {
        state: Some(state),
        ..JobFilter::default()
    })
}

/// Returns the only element.
pub(crate) fn only<T: std::fmt::Debug>(jobs: Vec<T>) -> T {
    assert_eq!(jobs.len(), 1, "{jobs:#?}");
    jobs.into_iter().next().expect("one")
}
