//! Tests of the planner, case by case.
//!
//! There are sections for migrate, fold and expire, one for purge, catalog and seal together, and one for previews.

use tideline_engine::model::{JobKind, Policy, Schedule, SegmentId, TableId, Tier, TimeRange, Timestamp};

use super::simulated::written;
use super::{BASE, DAY, HOUR, SETTINGS, START, facts, hour_of_doubt, segment, table, trusted, window};
use crate::maintenance::{Mode, Planned};
use crate::series::plan::catalog::CATALOG_EVERY;
use crate::series::plan::purge::PURGE_AFTER;
use crate::series::plan::{Facts, History, SegmentFacts, UnsealedBefore, plan, preview};

/// Returns the planned work of one kind.
fn plans(kind: JobKind, facts: &Facts, history: &History) -> Vec<Planned> {
    let all = plan(facts, history, &SETTINGS);
    all.into_iter().filter(|work| work.kind == kind).collect()
}

fn inputs(planned: &[Planned]) -> Vec<Vec<u64>> {
    let ids = |work: &Planned| work.inputs.iter().map(|id| id.0).collect();
    planned.iter().map(ids).collect()
}

fn of(policy: Policy, now: i64, segments: Vec<SegmentFacts>) -> Facts {
    facts(now, vec![table(policy, segments)])
}

fn cron(expression: &str) -> Schedule {
    Schedule::Cron {
        expression: expression.into(),
        time_zone: "UTC".into(),
    }
}

/// Returns eight hot segments of the first day, one for each window.
fn a_hot_day() -> Vec<SegmentFacts> {
    (0..8)
        .map(|at| segment(at + 1, Tier::Hot, window(0, at as i64 * BASE), at + 1, 100))
        .collect()
}

// --- migrate -------------------------------------------------------------------------------------------

#[test]
fn a_day_migrates_as_a_whole_and_not_before_all_of_it_is_old() {
    let young = of(Policy::default(), START + 8 * DAY - 1, a_hot_day());
    assert_eq!(plans(JobKind::Migrate, &young, &History::default()), []);
    let old = of(Policy::default(), START + 8 * DAY, a_hot_day());
    let planned = plans(JobKind::Migrate, &old, &History::default());
    assert_eq!(inputs(&planned), [[1, 2, 3, 4, 5, 6, 7, 8]]);
    let work = &planned[0];
    assert!(work.is_due(old.now()));
    assert_eq!((work.tier, work.slot), (Tier::Cold, Some(window(3, 0).into())));
    assert_eq!((work.range.start, work.range.end), (START, START + DAY));
    assert_eq!(
        (work.amount.windows, work.amount.bytes, work.amount.timelines),
        (8, 800, 10)
    );
    assert_eq!(
        work.reason,
        "8 hot segments are in a window that ended more than 7d ago"
    );
}

#[test]
fn a_wide_hot_window_is_cut_as_soon_as_a_day_of_it_is_old() {
    let wide = segment(1, Tier::Hot, window(6, 0), 1, 800);
    let span = wide.window.range(BASE);
    let at = |now| of(Policy::default(), now, vec![wide.clone()]);
    let first_day = span.start + DAY;
    assert_eq!(
        plans(
            JobKind::Migrate,
            &at(first_day + 7 * DAY - 1),
            &History::default()
        ),
        []
    );
    for days in 1..8 {
        let facts = at(span.start + days * DAY + 7 * DAY);
        let planned = plans(JobKind::Migrate, &facts, &History::default());
        assert_eq!(planned[0].slot, Some(wide.window.into()));
        assert_eq!(planned[0].mode, Mode::Cut(span.start + days * DAY));
        assert_eq!(
            planned[0].reason,
            "1 hot segments hold whole days that ended more than 7d ago"
        );
        let preview = preview(
            &facts,
            &facts.tables[0],
            None,
            &UnsealedBefore::default(),
            &History::default(),
            &SETTINGS,
        );
        assert_eq!(preview.migrates.points, 100 * days as u64, "estimated");
        assert_eq!(
            preview.migrating,
            [TimeRange::new(span.start, span.start + days * DAY)]
        );
    }
    let planned = plans(JobKind::Migrate, &at(span.end + 7 * DAY), &History::default());
    assert_eq!(planned[0].mode, Mode::Plain);
    assert_eq!(planned[0].slot, Some(wide.window.into()));
}

#[test]
fn a_wide_cold_window_is_cut_as_soon_as_a_day_of_it_is_old_enough_for_files() {
    let wide = segment(1, Tier::Cold, window(6, 0), 1, 800);
    let span = wide.window.range(BASE);
    let policy = Policy {
        archive: Some(tideline_engine::model::ArchivePolicy {
            target: "memory:///".into(),
            after: 20 * DAY,
            schedule: Schedule::Continuous,
            keep_cold: None,
            keep: None,
        }),
        ..Policy::default()
    };
    let at = |now| of(policy.clone(), now, vec![wide.clone()]);
    assert_eq!(
        plans(
            JobKind::Archive,
            &at(span.start + 21 * DAY - 1),
            &History::default()
        ),
        []
    );
    let facts = at(span.start + 23 * DAY);
    let planned = plans(JobKind::Archive, &facts, &History::default());
    assert_eq!(planned[0].mode, Mode::Cut(span.start + 3 * DAY));
    let preview = preview(
        &facts,
        &facts.tables[0],
        None,
        &UnsealedBefore::default(),
        &History::default(),
        &SETTINGS,
    );
    assert_eq!(
        preview.archives.expect("an archive").amount.points,
        300,
        "estimated"
    );
    let planned = plans(JobKind::Archive, &at(span.end + 20 * DAY), &History::default());
    assert_eq!(planned[0].mode, Mode::Plain);
}

#[test]
fn a_table_that_keeps_everything_hot_never_migrates() {
    let policy = Policy {
        hot_ttl: None,
        ..Policy::default()
    };
    assert_eq!(
        plans(
            JobKind::Migrate,
            &of(policy, START + 9_000 * DAY, a_hot_day()),
            &History::default()
        ),
        []
    );
}

#[test]
fn late_data_in_the_cold_tier_cuts_a_move_in_two() {
    let mut segments = a_hot_day();
    // A late segment, sealed between the fourth and the fifth. No move may include segments on both sides.
    let mut late = segment(9, Tier::Cold, window(3, 0), 4, 10);
    late.written = written(4, 4);
    late.written.oldest.seal = 9;
    late.written.newest.seal = 9;
    segments.push(late);
    let planned = plans(
        JobKind::Migrate,
        &of(Policy::default(), START + 8 * DAY, segments),
        &History::default(),
    );
    assert_eq!(inputs(&planned), [[1, 2, 3, 4], [5, 6, 7, 8]]);
}

#[test]
fn a_move_waits_for_its_schedule_and_a_missed_one_is_caught_up() {
    let policy = Policy {
        migrate: cron("0 3 * * *"),
        ..Policy::default()
    };
    let now = START + 8 * DAY + 5 * HOUR;
    let facts = of(policy, now, a_hot_day());
    let mut history = History::default();
    assert!(
        plans(JobKind::Migrate, &facts, &history)[0].is_due(now),
        "the table has never been served"
    );
    history.served.insert((TableId(1), JobKind::Migrate), now - HOUR);
    let waiting = plans(JobKind::Migrate, &facts, &history);
    assert_eq!(waiting[0].at, Some(START + 9 * DAY + 3 * HOUR));
    assert!(!waiting[0].is_due(now));
    history
        .served
        .insert((TableId(1), JobKind::Migrate), now - 3 * HOUR);
    assert!(
        plans(JobKind::Migrate, &facts, &history)[0].is_due(now),
        "this night was missed"
    );
    history
        .served
        .insert((TableId(1), JobKind::Migrate), now + 400 * DAY);
    assert!(
        plans(JobKind::Migrate, &facts, &history)[0].is_due(now),
        "a clock that was wrong holds nothing up"
    );
}

#[test]
fn a_schedule_that_cannot_be_kept_never_begins() {
    let policy = Policy {
        migrate: cron("whenever"),
        ..Policy::default()
    };
    let planned = plans(
        JobKind::Migrate,
        &of(policy, START + 8 * DAY, a_hot_day()),
        &History::default(),
    );
    assert_eq!(planned[0].at, None);
}

// --- fold ----------------------------------------------------------------------------------------------

/// Returns cold segments of one day with these sizes, in write order.
fn stack(sizes: &[u64]) -> Vec<SegmentFacts> {
    let sized = (1u64..).zip(sizes);
    sized
        .map(|(id, bytes)| segment(id, Tier::Cold, window(3, 0), id, *bytes))
        .collect()
}

#[test]
fn a_stack_is_lowered_where_it_costs_least() {
    let cases: [(&[u64], &[u64]); 8] = [
        // Four segments may stay.
        (&[100, 100, 100, 100], &[]),
        (&[100, 100, 100, 100, 100], &[1, 2, 3, 4, 5]),
        // Small late segments are folded among themselves, and the large one is left unchanged.
        (&[9_000, 10, 10, 10, 10], &[2, 3, 4, 5]),
        (&[9_000, 700, 10, 10, 10], &[3, 4, 5]),
        (&[10, 10, 10, 9_000, 700], &[1, 2, 3]),
        // No run would grow enough, so the stack may exceed its height.
        (&[16_000, 4_000, 1_000, 200, 40], &[]),
        // Once the late segments are as large as older segments, the older segments are folded too.
        (&[5_000, 2_000, 2_000, 1_000, 1_000], &[2, 3, 4, 5]),
        (&[2_000, 2_000, 2_000, 1_000, 1_000], &[1, 2, 3, 4, 5]),
    ];
    for (sizes, expected) in cases {
        let facts = of(Policy::default(), START + 100 * DAY, stack(sizes));
        let planned = inputs(&plans(JobKind::Fold, &facts, &History::default()));
        let expected: Vec<Vec<u64>> = if expected.is_empty() {
            Vec::new()
        } else {
            vec![expected.to_vec()]
        };
        assert_eq!(planned, expected, "{sizes:?}");
    }
}

#[test]
fn a_stack_that_is_far_too_high_is_folded_whatever_it_costs() {
    let sizes: Vec<u64> = (0..13).map(|at| 1 << (2 * (15 - at))).collect();
    let facts = of(Policy::default(), START + 100 * DAY, stack(&sizes));
    assert_eq!(
        inputs(&plans(JobKind::Fold, &facts, &History::default())),
        [[12, 13]]
    );
}

#[test]
fn narrow_late_windows_of_a_cold_day_are_folded_into_it() {
    let late = |at: u64| segment(at + 1, Tier::Cold, window(0, at as i64 * BASE), at + 1, 100);
    let facts = of(Policy::default(), START + 100 * DAY, (0..5).map(late).collect());
    let planned = plans(JobKind::Fold, &facts, &History::default());
    assert_eq!(inputs(&planned), [[1, 2, 3, 4, 5]]);
    assert_eq!(
        (planned[0].tier, planned[0].slot),
        (Tier::Cold, Some(window(3, 0).into()))
    );
}

#[test]
fn hot_stacks_may_be_higher_and_are_left_alone_before_they_migrate() {
    let hot = |count: u64| -> Vec<_> {
        (1..=count)
            .map(|id| segment(id, Tier::Hot, window(0, 0), id, 100))
            .collect()
    };
    let folds = |count, now| {
        plans(
            JobKind::Fold,
            &of(Policy::default(), now, hot(count)),
            &History::default(),
        )
        .len()
    };
    assert_eq!(folds(12, START + BASE), 0);
    assert_eq!(folds(13, START + BASE), 1);
    assert_eq!(
        folds(13, START + DAY + 7 * DAY - 7 * DAY / 8),
        0,
        "it migrates within a day"
    );
}

#[test]
fn what_lies_between_joins_the_fold_or_forbids_it() {
    let mut segments = stack(&[100, 100, 100, 100, 100]);
    let mut between = segment(6, Tier::Cold, window(2, 0), 3, 100);
    between.written = written(3, 3);
    between.written.oldest.seal = 6;
    between.written.newest.seal = 6;
    segments.push(between.clone());
    let facts = |segments| of(Policy::default(), START + 8 * DAY - 1, segments);
    let planned = inputs(&plans(
        JobKind::Fold,
        &facts(segments.clone()),
        &History::default(),
    ));
    assert_eq!(planned, [[1, 2, 3, 6, 4, 5]]);
    // A hot segment is in another tier, so it cannot join the fold.
    segments[5].tier = Tier::Hot;
    let planned = inputs(&plans(JobKind::Fold, &facts(segments), &History::default()));
    assert_eq!(planned, [[1, 2, 3]]);
}

#[test]
fn neighbors_are_joined_only_when_the_store_is_crowded() {
    let day = |at: u64| segment(at + 1, Tier::Cold, window(3, at as i64 * DAY), at + 1, 1_000);
    let now = START + 2_000 * DAY;
    let folds = |policy, days| {
        plans(
            JobKind::Fold,
            &of(policy, now, (0..days).map(day).collect()),
            &History::default(),
        )
    };
    assert_eq!(folds(Policy::default(), 600), []);
    let joined = folds(Policy::default(), 608);
    let saved: usize = joined.iter().map(|work| work.inputs.len() - 1).sum();
    assert!((8..16).contains(&saved), "{saved}");
    assert!(
        joined
            .iter()
            .all(|work| work.slot.is_some_and(|slot| slot.level == 6))
    );
    assert!(
        joined.iter().all(|work| work.range.start < START + 16 * DAY),
        "the oldest are joined"
    );
    // Points of a joined window would stay up to eight days too long.
    let short = Policy {
        retention: Some(30 * DAY),
        ..Policy::default()
    };
    let day = |at: u64| segment(at + 1, Tier::Cold, window(3, at as i64 * DAY), at + 1, 1_000);
    let recent = of(short, START + 20 * DAY, (0..605).map(day).collect());
    assert_eq!(plans(JobKind::Fold, &recent, &History::default()), []);
}

// --- expire --------------------------------------------------------------------------------------------

/// Returns two days of cold data with a retention of 30 days.
fn kept_for_thirty_days(now: i64) -> Facts {
    let policy = Policy {
        retention: Some(30 * DAY),
        ..Policy::default()
    };
    let day = |at: u64| segment(at + 1, Tier::Cold, window(3, at as i64 * DAY), at + 1, 100);
    of(policy, now, vec![day(0), day(1)])
}

#[test]
fn segments_are_dropped_a_while_after_their_last_point_was_hidden() {
    let hidden = START + DAY + 30 * DAY;
    for (now, dropped) in [
        (hidden, 0),
        (hidden + DAY - 1, 0),
        (hidden + DAY, 1),
        (hidden + 2 * DAY - 1, 1),
        (hidden + 2 * DAY, 2),
    ] {
        let planned = plans(JobKind::Expire, &kept_for_thirty_days(now), &History::default());
        assert_eq!(
            planned.iter().map(|work| work.inputs.len()).sum::<usize>(),
            dropped,
            "{}",
            now - hidden
        );
        assert!(planned.iter().all(|work| work.is_due(now)));
    }
}

#[test]
fn nothing_is_dropped_while_policy_or_clock_may_be_wrong() {
    let now = START + 100 * DAY;
    let dropped = |change: &dyn Fn(&mut Facts)| {
        let mut facts = kept_for_thirty_days(now);
        change(&mut facts);
        !plans(JobKind::Expire, &facts, &History::default()).is_empty()
    };
    assert!(dropped(&|_| {}));
    assert!(!dropped(&|facts| facts.tables[0].policy_changed = now - DAY + 1));
    assert!(dropped(&|facts| facts.tables[0].policy_changed = now - DAY));
    assert!(!dropped(&|facts| facts.clock.expire_now = None));
    assert!(!dropped(&|facts| facts.clock.doubt = Some(hour_of_doubt())));
    let settled = |at: i64| Some(Timestamp::from_nanos_clamped(at));
    assert!(!dropped(&|facts| facts.clock.settled = settled(now - DAY + 1)));
    assert!(dropped(&|facts| facts.clock.settled = settled(now - DAY)));
    // The newest stored point limits expiry.
    assert!(!dropped(
        &|facts| facts.clock.expire_now = Some(Timestamp::from_nanos_clamped(START + 5 * DAY))
    ));
    assert!(!dropped(&|facts| facts.tables[0].policy.retention = None));
    // The newest stored point does not prevent expiry under a policy that was changed after this point.
    assert!(dropped(&|facts| {
        facts.tables[0].policy_changed = now - DAY;
        facts.clock.expire_now = Some(Timestamp::from_nanos_clamped(now - 2 * DAY));
    }));
}

#[test]
fn hidden_segments_are_not_rewritten_any_more() {
    let mut facts = kept_for_thirty_days(START + 31 * DAY);
    facts.clock.expire_now = None;
    facts.tables[0].segments = a_hot_day();
    assert_eq!(plans(JobKind::Migrate, &facts, &History::default()), []);
    facts.clock = trusted(START + 30 * DAY);
    assert_eq!(plans(JobKind::Migrate, &facts, &History::default()).len(), 1);
}

// --- purge, catalog, seal ------------------------------------------------------------------------------

#[test]
fn deletes_wait_a_little_and_the_oldest_go_first() {
    let mut segments = stack(&[100, 100]);
    segments.iter_mut().for_each(|segment| segment.has_deletes = true);
    let now = START + 100 * DAY;
    let facts = of(Policy::default(), now, segments);
    let mut history = History::default();
    history.deletes_since.insert(SegmentId(1), now - 1);
    history.deletes_since.insert(SegmentId(2), now - PURGE_AFTER);
    let planned = plans(JobKind::Purge, &facts, &history);
    assert_eq!(inputs(&planned), [[2], [1]]);
    assert!(planned[0].is_due(now) && !planned[1].is_due(now));
}

#[test]
fn a_segment_with_deletes_that_migrates_is_not_purged_as_well() {
    let mut segments = a_hot_day();
    segments[3].has_deletes = true;
    let facts = of(Policy::default(), START + 8 * DAY, segments);
    assert_eq!(plans(JobKind::Purge, &facts, &History::default()), []);
    assert_eq!(plans(JobKind::Migrate, &facts, &History::default()).len(), 1);
}

#[test]
fn what_migrates_much_later_is_purged_meanwhile() {
    let mut segments = a_hot_day();
    segments[3].has_deletes = true;
    let policy = Policy {
        migrate: cron("0 3 * * *"),
        ..Policy::default()
    };
    let now = START + 9 * DAY + 2 * HOUR;
    let mut history = History::default();
    history
        .served
        .insert((TableId(1), JobKind::Migrate), START + 9 * DAY);
    let purges = |now| {
        plans(
            JobKind::Purge,
            &of(policy.clone(), now, segments.clone()),
            &history,
        )
        .len()
    };
    assert_eq!((purges(now - 1), purges(now)), (1, 0));
}

#[test]
fn segments_that_are_being_moved_are_left_alone() {
    let mut segments = a_hot_day();
    segments
        .iter_mut()
        .for_each(|segment| (segment.is_moving, segment.has_deletes) = (true, true));
    let facts = of(Policy::default(), START + 8 * DAY, segments);
    let planned = plan(&facts, &History::default(), &SETTINGS);
    assert!(planned.iter().all(|work| work.inputs.is_empty()));
}

#[test]
fn the_catalog_is_cleaned_now_and_then_and_never_by_a_doubtful_clock() {
    let now = START + 100 * DAY;
    let mut facts = of(Policy::default(), now, Vec::new());
    let mut history = History::default();
    assert!(plans(JobKind::CleanCatalog, &facts, &history)[0].is_due(now));
    history
        .served
        .insert((TableId(1), JobKind::CleanCatalog), now - 1);
    assert_eq!(
        plans(JobKind::CleanCatalog, &facts, &history)[0].at,
        Some(now - 1 + CATALOG_EVERY)
    );
    facts.clock.doubt = Some(hour_of_doubt());
    assert_eq!(plans(JobKind::CleanCatalog, &facts, &history)[0].at, None);
}

#[test]
fn a_seal_can_be_requested() {
    let planned = plans(
        JobKind::Seal,
        &of(Policy::default(), START, Vec::new()),
        &History::default(),
    );
    assert_eq!((planned.len(), planned[0].at), (1, None));
}

#[test]
fn urgent_work_is_in_front_and_waiting_work_at_the_end() {
    let policy = Policy {
        migrate: cron("0 3 1 1 *"),
        retention: Some(40 * DAY),
        ..Policy::default()
    };
    let now = START + 60 * DAY;
    let mut segments = stack(&[100; 6]);
    segments.extend((10..19).map(|id| segment(id, Tier::Hot, window(0, (40 + id as i64) * DAY), id, 100)));
    segments.extend((20..26).map(|id| segment(id, Tier::Cold, window(3, 30 * DAY), id, 100)));
    let mut history = History::default();
    history.served.insert((TableId(1), JobKind::Migrate), now - DAY);
    let order: Vec<JobKind> = plan(&of(policy, now, segments), &history, &SETTINGS)
        .iter()
        .map(|work| work.kind)
        .collect();
    assert_eq!(
        &order[..3],
        [JobKind::Expire, JobKind::Fold, JobKind::CleanCatalog]
    );
    assert_eq!(
        order[3..]
            .iter()
            .filter(|kind| **kind == JobKind::Migrate)
            .count(),
        3
    );
}

// --- preview -------------------------------------------------------------------------------------------

#[test]
fn a_preview_reports_what_would_be_moved_hidden_and_freed() {
    let mut segments = a_hot_day();
    segments.extend((10..20).map(|id| segment(id, Tier::Cold, window(3, -(id as i64) * DAY), 1, 1_000)));
    let now = START + 2 * DAY;
    let facts = of(Policy::default(), now, segments);
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

    let today = shown(None);
    assert_eq!(
        (today.migrates.segments, today.hides.points, today.drops.segments),
        (0, 0, 0)
    );
    assert_eq!(
        (today.visible_from, today.migrates_at, today.drops_at),
        (None, None, None)
    );

    let shorter = Policy {
        hot_ttl: Some(DAY),
        retention: Some(16 * DAY + DAY / 2),
        migrate: cron("0 3 * * *"),
        ..Policy::default()
    };
    let then = shown(Some(shorter));
    assert_eq!(
        (then.migrates.segments, then.migrates.windows, then.migrates.bytes),
        (8, 8, 800)
    );
    assert_eq!(then.migrating.len(), 1);
    assert_eq!(then.migrates_at, Some(now + 3 * HOUR));
    // Days -19 to -16 end before the boundary at day -14.5; day -15 is cut in the middle.
    assert_eq!(then.visible_from, Some(now - 16 * DAY - DAY / 2));
    assert_eq!((then.hides.segments, then.hides.points), (5, 4_500));
    assert_eq!((then.drops.segments, then.dropping.len()), (4, 4));
    assert_eq!(
        then.drops_at,
        Some(now + DAY),
        "a new policy can be taken back for a day"
    );
    assert_eq!(then.expiry_paused, None);
}

#[test]
fn a_preview_reports_why_nothing_is_freed() {
    let mut facts = kept_for_thirty_days(START + 100 * DAY);
    facts.clock.expire_now = None;
    facts.clock.doubt = Some(hour_of_doubt());
    let shown = preview(
        &facts,
        &facts.tables[0],
        None,
        &UnsealedBefore::default(),
        &History::default(),
        &SETTINGS,
    );
    assert_eq!((shown.drops.segments, shown.drops_at), (2, None));
    assert!(
        shown
            .expiry_paused
            .is_some_and(|reason| reason.contains("400d ahead"))
    );
}
