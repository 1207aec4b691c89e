//! Tests of the moves into files that the planner chooses.
//!
//! They cover late points, schedules, previews, retention, purges and the search for orphans.

use tideline_engine::model::{ArchivePolicy, JobKind, Policy, Schedule, Tier};

use super::{DAY, SETTINGS, START, facts, segment, table, window};
use crate::maintenance::Planned;
use crate::series::plan::{Facts, History, SegmentFacts, UnsealedBefore, plan, preview};

fn policy(schedule: Schedule) -> Policy {
    Policy {
        archive: Some(ArchivePolicy {
            target: "default".into(),
            after: 30 * DAY,
            schedule,
            keep_cold: None,
            keep: None,
        }),
        ..Policy::default()
    }
}

fn at(now: i64, segments: Vec<SegmentFacts>) -> Facts {
    facts(now, vec![table(policy(Schedule::Continuous), segments)])
}

fn plans(kind: JobKind, facts: &Facts) -> Vec<Planned> {
    let all = plan(facts, &History::default(), &SETTINGS);
    all.into_iter().filter(|work| work.kind == kind).collect()
}

fn inputs(planned: &[Planned]) -> Vec<Vec<u64>> {
    let ids = |work: &Planned| work.inputs.iter().map(|id| id.0).collect();
    planned.iter().map(ids).collect()
}

#[test]
fn a_cold_day_is_archived_when_all_of_it_is_old_enough() {
    let days = vec![
        segment(1, Tier::Cold, window(3, 0), 1, 100),
        segment(2, Tier::Cold, window(3, DAY), 2, 100),
        segment(3, Tier::Hot, window(0, 0), 3, 100),
    ];
    assert_eq!(
        plans(JobKind::Archive, &at(START + 31 * DAY - 1, days.clone())),
        []
    );
    let facts = at(START + 31 * DAY, days);
    let planned = plans(JobKind::Archive, &facts);
    assert_eq!(inputs(&planned), [[1]]);
    assert!(planned[0].is_due(facts.now()));
    assert_eq!(
        (planned[0].tier, planned[0].slot),
        (Tier::Archive, Some(window(3, 0).into()))
    );
    assert_eq!(
        (planned[0].range.start, planned[0].range.end),
        (START, START + DAY)
    );
}

#[test]
fn late_points_go_into_the_next_files_with_what_is_there() {
    let old = segment(1, Tier::Archive, window(3, 0), 1, 100);
    let later = segment(2, Tier::Archive, window(3, DAY), 2, 100);
    let late = segment(3, Tier::Cold, window(3, 0), 3, 13);
    let facts = at(START + 90 * DAY, vec![old.clone(), later.clone(), late]);
    assert_eq!(inputs(&plans(JobKind::Archive, &facts)), [[1, 3]]);
    // Without late points, archived segments are not rewritten.
    assert_eq!(
        plans(JobKind::Archive, &at(START + 90 * DAY, vec![old, later])),
        []
    );
}

#[test]
fn few_late_points_wait_for_more_or_for_a_week() {
    let now = START + 90 * DAY;
    let plan_at = |now: i64, late: u64, archived: Option<i64>| {
        let mut old = segment(1, Tier::Archive, window(3, 0), 1, 100);
        old.archived = archived;
        let late = segment(2, Tier::Cold, window(3, 0), 2, late);
        let facts = at(now, vec![old, late]);
        let planned = plans(JobKind::Archive, &facts);
        assert_eq!(inputs(&planned), [[1, 2]], "it can be requested");
        (planned[0].at, planned[0].is_due(now), planned[0].reason.clone())
    };
    let (at, is_due, reason) = plan_at(now, 12, Some(now - DAY));
    assert_eq!((at, is_due), (Some(now + 6 * DAY), false));
    assert!(
        reason.contains("12 late points wait until they reach 1/8 of the 100 archived points"),
        "{reason}"
    );
    assert!(plan_at(now, 13, Some(now - DAY)).1, "one in eight is enough");
    assert!(plan_at(now, 1, Some(now - 7 * DAY)).1, "a week is enough");
    assert!(plan_at(now, 1, None).1, "files without a time");
    assert!(plan_at(now, 1, Some(now + DAY)).1, "the clock went back");
}

#[test]
fn narrow_late_windows_lie_in_the_wide_one_that_was_archived() {
    let wide = segment(1, Tier::Archive, window(6, 0), 1, 100);
    let inside = wide.window.range(super::BASE).start - START + 3 * DAY;
    let late = segment(2, Tier::Cold, window(3, inside), 2, 10);
    let facts = at(START + 90 * DAY, vec![wide.clone(), late]);
    let planned = plans(JobKind::Archive, &facts);
    assert_eq!(inputs(&planned), [[1, 2]]);
    assert_eq!(planned[0].slot, Some(wide.window.into()));
}

#[test]
fn a_preview_reports_what_would_be_archived_and_when() {
    let mut hot = segment(4, Tier::Hot, window(3, 2 * DAY), 4, 1_000);
    hot.window = window(0, 2 * DAY);
    let days = vec![
        segment(1, Tier::Cold, window(3, 0), 1, 100),
        segment(2, Tier::Cold, window(3, DAY), 2, 10),
        segment(3, Tier::Archive, window(3, 4 * DAY), 3, 100),
        hot,
        segment(5, Tier::Cold, window(3, 80 * DAY), 5, 1),
    ];
    let now = START + 90 * DAY;
    let facts = facts(now, vec![table(Policy::default(), days)]);
    let shown = |policy| {
        preview(
            &facts,
            &facts.tables[0],
            policy,
            &UnsealedBefore::default(),
            &History::default(),
            &SETTINGS,
        )
    };
    assert_eq!(shown(None).archives, None, "it has no archive");
    let then = shown(Some(policy(Schedule::Continuous))).archives.expect("one");
    assert_eq!(
        (then.amount.segments, then.amount.points, then.at),
        (3, 1_110, Some(now)),
        "the hot day has to become cold first, and is young in no tier"
    );
    let day = |days: i64| window(3, days * DAY).range(super::BASE);
    assert_eq!(then.windows, [day(0), day(1), day(2)]);
    let yearly = Schedule::Cron {
        expression: "0 0 1 1 *".into(),
        time_zone: "UTC".into(),
    };
    let later = shown(Some(policy(yearly))).archives.expect("one");
    assert_eq!((later.amount.segments, later.at > Some(now)), (3, true));
    let mut longer = policy(Schedule::Continuous);
    longer.archive.as_mut().expect("it has one").after = 365 * DAY;
    let nothing = shown(Some(longer)).archives.expect("one");
    assert_eq!((nothing.amount, nothing.at), (Default::default(), None));
}

#[test]
fn what_is_kept_for_less_expires_everywhere() {
    let mut facts = at(
        START + 90 * DAY,
        vec![
            segment(1, Tier::Archive, window(3, 0), 1, 100),
            segment(2, Tier::Cold, window(3, 28 * DAY), 2, 100),
            segment(3, Tier::Archive, window(3, 29 * DAY), 3, 100),
        ],
    );
    assert_eq!(plans(JobKind::Expire, &facts), []);
    let policy = &mut facts.tables[0].policy;
    policy.archive.as_mut().expect("it has one").keep = Some(60 * DAY);
    // A hidden day is kept for one more day, the purge delay.
    assert_eq!(inputs(&plans(JobKind::Expire, &facts)), [[1, 2]]);
    facts.tables[0].policy.retention = Some(59 * DAY);
    assert_eq!(inputs(&plans(JobKind::Expire, &facts)), [[1, 2, 3]]);
}

#[test]
fn a_move_into_files_waits_for_its_schedule() {
    let schedule = Schedule::Cron {
        expression: "0 0 1 1 *".into(),
        time_zone: "UTC".into(),
    };
    let day = vec![segment(1, Tier::Cold, window(3, 0), 1, 100)];
    let facts = facts(START + 40 * DAY, vec![table(policy(schedule), day)]);
    // The scheduled time of this year was served before the day was old enough.
    let mut history = History::default();
    history
        .served
        .insert((facts.tables[0].id, JobKind::Archive), START);
    let due = |history: &History| {
        let all = plan(&facts, history, &SETTINGS);
        let mut moves = all.iter().filter(|work| work.kind == JobKind::Archive);
        moves.next().map(|work| work.is_due(facts.now()))
    };
    assert_eq!(
        (due(&history), due(&History::default())),
        (Some(false), Some(true))
    );
}

#[test]
fn deletes_in_files_are_purged_and_orphans_searched_once_a_day() {
    let mut old = segment(1, Tier::Archive, window(3, 0), 1, 100);
    old.has_deletes = true;
    let facts = at(START + 90 * DAY, vec![old]);
    let purges = plans(JobKind::Purge, &facts);
    assert_eq!((inputs(&purges), purges[0].tier), (vec![vec![1]], Tier::Archive));
    let table = facts.tables[0].id;
    let due = |served: Option<i64>| {
        let mut history = History::default();
        history
            .served
            .extend(served.map(|at| ((table, JobKind::SweepArchive), at)));
        let all = plan(&facts, &history, &SETTINGS);
        let mut sweeps = all.iter().filter(|work| work.kind == JobKind::SweepArchive);
        sweeps.next().is_some_and(|work| work.is_due(facts.now()))
    };
    assert!(due(None) && due(Some(facts.now() - DAY)));
    assert!(!due(Some(facts.now() - DAY + 1)));
    let without = super::facts(START, vec![super::table(Policy::default(), Vec::new())]);
    assert_eq!(plans(JobKind::SweepArchive, &without), []);
}
