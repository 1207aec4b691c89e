//! Tests of a second table model in addition to series.
//!
//! Both models use the same lists of tables and jobs, the same schedules and the same metrics.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tideline_model::time::NANOS_PER_SECOND;
use tideline_model::{JobKind, Policy, Schedule, TableId, TableModel, Tier};
use tideline_scheduler::{
    Amount, Job, JobCost, JobFilter, JobState, Maintenance, Outcome, PlanSettings, Planned, Run, Scheduler,
    SchedulerError, SegmentCounts, Served, Settings, Survey, TableState, Unplanned, WorkError,
};

use crate::fake::{FakeWork, START, day, in_state, nightly, old_days, only, sealed};

const TABLE: &str = "rounds";
const STEPS: u64 = 4;

type OnStep = Box<dyn FnMut(u64) + Send>;

/// Model whose only work is to count rounds.
struct Rounds {
    table: Mutex<TableState>,
    left: AtomicU64,
    done: AtomicU64,
    failures: AtomicU64,
    on_step: Mutex<Option<OnStep>>,
    unplanned: Mutex<Vec<Unplanned>>,
}

struct RoundsSurvey {
    tables: [TableState; 1],
    left: u64,
}

impl Rounds {
    fn new(left: u64) -> Arc<Self> {
        let table = TableState {
            id: TableId(7),
            name: TABLE.into(),
            created: START,
            policy_changed: START,
            schedules: Vec::new(),
            bytes_per_second: None,
        };
        Arc::new(Self {
            table: Mutex::new(table),
            left: AtomicU64::new(left),
            done: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            on_step: Mutex::new(None),
            unplanned: Mutex::default(),
        })
    }

    fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

impl Maintenance for Rounds {
    fn model(&self) -> TableModel {
        TableModel::Feed
    }

    fn survey(&self) -> Arc<dyn Survey> {
        Arc::new(RoundsSurvey {
            tables: [self.table.lock().clone()],
            left: self.left.load(Ordering::Relaxed),
        })
    }

    fn perform(&self, _work: &Planned, run: &mut Run<'_>) -> Result<Outcome, WorkError> {
        let mut cost = JobCost::default();
        for step in 1..=STEPS {
            cost.bytes_read += 10;
            if let Some(call) = self.on_step.lock().as_mut() {
                call(step);
            }
            if run.step(&cost) == ControlFlow::Break(()) {
                return Err(WorkError::GivenUp);
            }
        }
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.fetch_sub(1, Ordering::Relaxed);
            return Err(WorkError::Failed("out of breath".into()));
        }
        run.part_done(&cost);
        self.left.fetch_sub(1, Ordering::Relaxed);
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        Ok(Outcome::done(format!("round {done}")))
    }

    fn take_unplanned(&self) -> Vec<Unplanned> {
        std::mem::take(&mut self.unplanned.lock())
    }

    fn while_failing(&self, _kind: JobKind) -> Option<&'static str> {
        Some("the rounds are kept")
    }

    fn after_cancel(&self, work: &Planned, completed: &JobCost) -> &'static str {
        assert_eq!((work.kind, *completed), (JobKind::Fold, JobCost::default()));
        "half a round stays"
    }
}

impl Survey for RoundsSurvey {
    fn tables(&self) -> &[TableState] {
        &self.tables
    }

    fn segments(&self) -> SegmentCounts {
        SegmentCounts {
            published: self.left,
            retired: 0,
        }
    }

    fn plan(&self, served: &Served, _settings: &PlanSettings) -> Vec<Planned> {
        let [table] = &self.tables;
        let is_continuous = *table.schedule(JobKind::Fold) == Schedule::Continuous;
        let is_served = served.contains_key(&(table.id, JobKind::Fold));
        let work = Planned {
            at: (is_continuous || is_served).then_some(START),
            ..Planned::new(TableModel::Feed, JobKind::Fold, Some(table.id), "rounds are left")
        };
        (self.left > 0).then_some(work).into_iter().collect()
    }
}

fn scheduler(work: &Arc<FakeWork>, rounds: &Arc<Rounds>) -> Arc<Scheduler> {
    let models = work.models().with(Arc::clone(rounds) as _);
    work.scheduler_with(models, Settings::default())
}

fn of_table(scheduler: &Scheduler, table: &str) -> Vec<Job> {
    scheduler.jobs(&JobFilter {
        table: Some(table.to_owned()),
        ..JobFilter::default()
    })
}

#[test]
fn jobs_of_all_models_are_one_list_and_one_queue() {
    let work = FakeWork::new(Policy::default(), old_days(1));
    let rounds = Rounds::new(2);
    let scheduler = scheduler(&work, &rounds);
    assert_eq!(scheduler.run_due(), 4, "two rounds, a migration, the catalog");
    assert_eq!((rounds.done(), work.log().len()), (2, 2));
    let done = of_table(&scheduler, TABLE);
    let outcomes: Vec<_> = done.iter().filter_map(|job| job.outcome.as_deref()).collect();
    assert_eq!(outcomes, ["round 2", "round 1"]);
    assert!(
        done.iter()
            .all(|job| job.kind == JobKind::Fold && job.done.bytes == 10 * STEPS)
    );
    assert!(
        of_table(&scheduler, "default")
            .iter()
            .any(|job| job.kind == JobKind::Migrate)
    );
    let metrics = scheduler.metrics();
    assert_eq!(metrics.ended[&(JobKind::Fold, JobState::Done)], 2);
    assert_eq!(metrics.moved[&JobKind::Fold].bytes_read, 2 * 10 * STEPS);
    assert_eq!(metrics.moved[&JobKind::Migrate].bytes_read, 1_000);
    assert_eq!((metrics.segments, metrics.segments_retired), (1, 3));
    // Past jobs survive a restart.
    assert_eq!(of_table(&self::scheduler(&work, &rounds), TABLE), done);
}

#[test]
fn tables_of_all_models_are_found_by_name() {
    let work = FakeWork::new(Policy::default(), vec![day(1, Tier::Hot, 1)]);
    let rounds = Rounds::new(1);
    let scheduler = scheduler(&work, &rounds);
    let ids = scheduler.run(JobKind::Fold, Some(TABLE)).expect("a table");
    assert_eq!(ids.len(), 1);
    assert!(scheduler.job(ids[0]).is_some_and(|job| job.by_hand));
    assert_eq!(scheduler.run(JobKind::Migrate, Some(TABLE)), Ok(Vec::new()));
    let missing = Err(SchedulerError::NoSuchTable("unknown".into()));
    assert_eq!(scheduler.run(JobKind::Fold, Some("unknown")), missing);
    // Operations of series tables do not find tables of other models.
    let refused = scheduler.preview(TABLE, None).expect_err("no series");
    assert_eq!(refused, SchedulerError::NoSuchTable(TABLE.into()));
    scheduler.tick();
    assert_eq!(
        (rounds.done(), work.log()),
        (1, Vec::new()),
        "requested work comes first"
    );
}

#[test]
fn a_running_job_of_any_model_is_cancelled_and_rests() {
    let work = FakeWork::new(Policy::default(), Vec::new());
    let rounds = Rounds::new(1);
    let scheduler = scheduler(&work, &rounds);
    let weak = Arc::downgrade(&scheduler);
    *rounds.on_step.lock() = Some(Box::new(move |step| {
        let scheduler = weak.upgrade().expect("the test holds it");
        if step == 2 {
            let running = only(in_state(&scheduler, JobState::Running));
            assert_eq!((running.kind, running.done.bytes), (JobKind::Fold, 10));
            scheduler.cancel(running.id).expect("it runs");
        }
    }));
    scheduler.run_due();
    let job = only(
        of_table(&scheduler, TABLE)
            .into_iter()
            .filter(|job| job.state.is_final())
            .collect(),
    );
    assert_eq!((job.state, rounds.done()), (JobState::Cancelled, 0));
    assert_eq!(job.outcome.as_deref(), Some("cancelled; half a round stays"));
    *rounds.on_step.lock() = None;
    assert_eq!(scheduler.run_due(), 0, "it rests");
    work.advance(3_600 * NANOS_PER_SECOND);
    scheduler.run_due();
    assert_eq!(rounds.done(), 1);
    assert_eq!(
        scheduler.metrics().ended[&(JobKind::Fold, JobState::Cancelled)],
        1
    );
}

#[test]
fn unplanned_work_of_other_models_is_listed_while_a_request_waits_for_a_seal() {
    let work = FakeWork::new(Policy::default(), Vec::new());
    let rounds = Rounds::new(0);
    let scheduler = scheduler(&work, &rounds);
    let sealed = scheduler.seal(|| {
        work.seals.lock().push(sealed(100));
        rounds.unplanned.lock().push(Unplanned {
            kind: JobKind::Fold,
            table: None,
            tier: Tier::Hot,
            started: START,
            lasting: Duration::from_secs(1),
            span: None,
            amount: Amount::default(),
            cost: JobCost::default(),
            reason: "a round between rounds",
            outcome: "a round".into(),
        });
        let done = only(in_state(&scheduler, JobState::Done));
        assert_eq!(
            (done.kind, done.outcome.as_deref()),
            (JobKind::Fold, Some("a round"))
        );
        Ok::<(), String>(())
    });
    let points = sealed.map(|job| job.total.points);
    assert_eq!(points, Ok(100), "the seal of the store belongs to the request");
}

#[test]
fn a_failed_job_of_any_model_is_tried_again() {
    let work = FakeWork::new(Policy::default(), Vec::new());
    let rounds = Rounds::new(1);
    rounds.failures.store(1, Ordering::Relaxed);
    let scheduler = scheduler(&work, &rounds);
    scheduler.run_due();
    let failed = only(in_state(&scheduler, JobState::Failed));
    let error = failed.error.expect("an error");
    assert!(
        error.starts_with("out of breath; the rounds are kept, and it is tried again at 2027-01-21T00:00:05"),
        "{error}"
    );
    work.advance(5 * NANOS_PER_SECOND);
    scheduler.run_due();
    assert_eq!(rounds.done(), 1);
}

#[test]
fn kinds_of_any_table_are_paused_over_restarts() {
    let work = FakeWork::new(Policy::default(), Vec::new());
    let rounds = Rounds::new(1);
    let scheduler = scheduler(&work, &rounds);
    scheduler.pause_kind(JobKind::Fold, Some(TABLE)).expect("a table");
    let scheduler = self::scheduler(&work, &rounds);
    scheduler.run_due();
    assert_eq!((rounds.done(), scheduler.metrics().kinds_paused), (0, 1));
    let paused = only(in_state(&scheduler, JobState::Paused));
    scheduler.resume(paused.id).expect("it is paused");
    scheduler.run_due();
    assert_eq!((rounds.done(), scheduler.metrics().kinds_paused), (1, 0));
}

#[test]
fn schedules_of_any_model_are_served() {
    let work = FakeWork::new(Policy::default(), Vec::new());
    let rounds = Rounds::new(0);
    rounds.table.lock().schedules = vec![(JobKind::Fold, nightly())];
    let scheduler = scheduler(&work, &rounds);
    scheduler.run_due();
    // The scheduled time has passed without work, so it is served.
    rounds.left.store(1, Ordering::Relaxed);
    scheduler.run_due();
    assert_eq!(rounds.done(), 1);
    let row = work.rows.lock()[b"table-0000000007".as_slice()].clone();
    assert!(row.starts_with(br#"{"format":1,"served":{"fold":"#), "{row:?}");
    // The row is removed with the table.
    work.scheduler().run_due();
    assert!(!work.rows.lock().contains_key(b"table-0000000007".as_slice()));
}

#[test]
#[should_panic(expected = "the model series is registered twice")]
fn a_model_has_one_maintenance() {
    struct Second;
    impl Maintenance for Second {
        fn model(&self) -> TableModel {
            TableModel::Series
        }

        fn survey(&self) -> Arc<dyn Survey> {
            unreachable!("it is never registered")
        }

        fn perform(&self, _work: &Planned, _run: &mut Run<'_>) -> Result<Outcome, WorkError> {
            unreachable!("it is never registered")
        }
    }
    let work = FakeWork::new(Policy::default(), Vec::new());
    drop(work.models().with(Arc::new(Second)));
}
