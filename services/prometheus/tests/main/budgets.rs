//! Tests of the memory limits of selections, exemplars and lists, and of the limit of a list of series. The memory of
//! samples and windows must be released after a selection.
//!
//! Most requests run twice: with a budget that is too small, and with a sufficient one.

use parking_lot::Mutex;
use tideline_model::Value;
use tideline_prometheus::SeriesView;
use tideline_promql::source::{OverTime, OverTimeFunction, Select, SeriesData, Source};
use tideline_promql::{Labels, Matcher, PromqlError, Result};
use tideline_query::{Budget, Cancel};

use crate::support::{Fields, MILLI, World, eq, float};

fn view(world: &World, held_bytes_max: u64) -> SeriesView<'_> {
    let budget = Budget {
        held_bytes_max,
        ..Budget::default()
    };
    SeriesView::new(&world.querier, &world.table, budget, &Cancel::new())
}

fn select(view: &SeriesView<'_>, matchers: &[Matcher]) -> Result<()> {
    let select = Select {
        matchers,
        start: 0,
        end: 10_000_000,
        over_time: None,
        with_starts: false,
    };
    view.source().select(&select, &|_, _| Ok(()))
}

fn refused(outcome: Result<()>, what: &str) {
    let Err(PromqlError::TooMany(message)) = outcome else {
        panic!("{outcome:?}");
    };
    assert!(message.contains(what), "{message}");
}

#[test]
fn samples_that_are_gathered_count_and_are_given_back() {
    let world = World::new();
    let points = |key: &'static str| (0..4_000).map(move |at| (key, at * MILLI, at as f64));
    // The two writes after the loop go to the same series.
    for key in ["m,host=a", "m,host=b"] {
        world.write_nanos(&points(key).collect::<Vec<_>>());
    }
    let each = (0..4_000).map(|at| ("m_busy,host=a".to_owned(), at * MILLI, float(1.5)));
    world.write_at(&each.collect::<Vec<_>>());
    let each = (0..4_000).map(|at| -> (String, i64, Fields) {
        (
            "m,host=a".to_owned(),
            at * MILLI,
            vec![("busy", Value::Float(2.5))],
        )
    });
    world.write_at(&each.collect::<Vec<_>>());
    refused(
        select(&view(&world, 30_000), &[eq("__name__", "m")]),
        "bytes of samples gathered",
    );
    let view_of_all = view(&world, 1 << 20);
    for _ in 0..20 {
        select(&view_of_all, &[eq("__name__", "m")]).expect("selected");
        select(&view_of_all, &[eq("__name__", "m_busy")]).expect("selected");
    }
    // There is room for the samples being read, but not for the samples that wait to be merged.
    refused(
        select(&view(&world, 200_000), &[eq("__name__", "m_busy")]),
        "bytes of series shared by several measurements",
    );
}

#[test]
fn histograms_count_as_large_as_they_are() {
    let world = World::new();
    let buckets = "1 ".repeat(300);
    let text = format!(
        "{{{{schema:3 count:300 sum:5 buckets:[{}]}}}}",
        buckets.trim_end()
    );
    let histogram = tideline_histogram::Histogram::parse(&text).expect("a histogram");
    let mut stored = Vec::new();
    histogram.to_bytes(&mut stored);
    let stored = Value::Histogram(stored.into());
    let each = (0..200).map(|at| ("lag".to_owned(), at * MILLI, vec![("histogram", stored.clone())]));
    world.write_at(&each.collect::<Vec<_>>());
    // 200 histograms of 300 buckets of eight bytes.
    refused(
        select(&view(&world, 450_000), &[eq("__name__", "lag")]),
        "samples",
    );
    select(&view(&world, 900_000), &[eq("__name__", "lag")]).expect("selected");
}

#[test]
fn exemplars_and_lists_count() {
    let world = World::new();
    let text = r#"{"labels":{"trace_id":"0123456789abcdef"},"value":1}"#;
    let fields = || {
        vec![
            ("value", Value::Float(1.0)),
            ("_exemplar", Value::String(text.into())),
        ]
    };
    let each = (0..1_000).map(|at| (format!("m,host=h{at:04}"), at * MILLI, fields()));
    world.write_at(&each.collect::<Vec<_>>());
    let all = [vec![eq("__name__", "m")]];
    let found = world.view().exemplars(&all, (0, 10_000)).expect("found");
    assert_eq!(found.len(), 1_000);
    let refusal = view(&world, 20_000).exemplars(&all, (0, 10_000));
    refused(refusal.map(|_| ()), "bytes of exemplars");
    let refusal = view(&world, 20_000).series(&all, None, None);
    refused(refusal.map(|_| ()), "bytes of a list");
    let refusal = view(&world, 20_000).label_values("host", &all, None, None);
    refused(refusal.map(|_| ()), "bytes of a list");
}

#[test]
fn a_list_of_series_with_a_limit_stops_there() {
    let world = World::new();
    let each = (0..5_000).map(|at| (format!("m,host=h{at:04}"), 5 * MILLI, float(1.0)));
    world.write_at(&each.collect::<Vec<_>>());
    let budget = Budget {
        timelines_max: 100,
        held_bytes_max: 20_000,
        ..Budget::default()
    };
    let view = SeriesView::new(&world.querier, &world.table, budget, &Cancel::new());
    let all = [vec![eq("__name__", "m")]];
    for range in [None, Some((0, 10))] {
        let listed = view.series(&all, range, Some(120)).expect("listed");
        assert_eq!((listed.items.len(), listed.is_cut), (120, true));
        let refusal = view.series(&all, range, None).map(|_| ());
        refused(refusal, "timelines selected");
    }
    let listed = view.series(&all, Some((6, 10)), Some(120)).expect("listed");
    assert_eq!((listed.items.len(), listed.is_cut), (0, false));
}

#[test]
fn windows_count_and_too_many_are_left_to_the_evaluator() {
    let world = World::new();
    world.write_nanos(&[("m,host=a", 5 * MILLI, 1.0)]);
    let account = world.engine.memory().clone();
    let before = account.used_bytes();
    let view = world.view();
    // Returns true if the source computed the windows, and the bytes held at that time.
    let selected = |steps: usize| {
        let matchers = [eq("__name__", "m")];
        let select = Select {
            matchers: &matchers,
            start: 1,
            end: 10 * steps as i64,
            over_time: Some(OverTime {
                function: OverTimeFunction::Sum,
                first: 10,
                step: 10,
                steps,
                width: 10,
            }),
            with_starts: false,
        };
        let seen = Mutex::new(Vec::new());
        let visit = |_: &Labels, data: SeriesData<'_>| -> Result<()> {
            let is_computed = matches!(data, SeriesData::Steps { .. });
            seen.lock()
                .push((is_computed, account.used_bytes().saturating_sub(before)));
            Ok(())
        };
        view.source().select(&select, &visit).expect("selected");
        let seen = seen.into_inner();
        assert_eq!(seen.len(), 1);
        seen[0]
    };
    // A window takes 40 bytes.
    let (is_computed, held) = selected(200_000);
    assert!(is_computed && held >= 200_000 * 40, "{is_computed} {held}");
    let (is_computed, held) = selected(1_000_000);
    assert!(!is_computed && held < 200_000 * 40, "{is_computed} {held}");
}
