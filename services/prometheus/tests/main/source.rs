//! Tests of the samples of series that the evaluator receives.
//!
//! The tests cover types, shared milliseconds, histograms with reset hints, series of several timelines, errors, and
//! exemplars.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tideline_histogram::ResetHint::{NotReset, Unknown};
use tideline_histogram::{Histogram, STALE_NAN_BITS};
use tideline_model::Value;
use tideline_prometheus::SeriesView;
use tideline_promql::source::{Select, SeriesData, Source};
use tideline_promql::{Matcher, PromqlError, Result};
use tideline_query::{Budget, Cancel};

use crate::support::{World, eq, float, re};

/// Samples of a series: timestamp, text of the value, start timestamp.
pub(crate) type Kept = Vec<(i64, String, i64)>;

fn shown(value: f64) -> String {
    match value.to_bits() {
        STALE_NAN_BITS => "stale".into(),
        _ => value.to_string(),
    }
}

pub(crate) fn keep(data: SeriesData<'_>) -> Kept {
    let SeriesData::Samples(samples) = data else {
        panic!("samples were asked for");
    };
    let start = |starts: &[i64], at: usize| starts.get(at).copied().unwrap_or(-1);
    let numbers = samples.times.iter().zip(samples.values).enumerate();
    let numbers = numbers.map(|(at, (time, value))| (*time, shown(*value), start(samples.starts, at)));
    let histograms = samples.histogram_times.iter().zip(samples.histograms).enumerate();
    let histograms =
        histograms.map(|(at, (time, value))| (*time, value.notation(), start(samples.histogram_starts, at)));
    let mut all: Kept = numbers.chain(histograms).collect();
    all.sort();
    all
}

/// Returns the samples of a selection, by the text of the labels.
pub(crate) fn select(
    world: &World,
    matchers: &[Matcher],
    (start, end): (i64, i64),
) -> BTreeMap<String, Kept> {
    let kept = Mutex::new(BTreeMap::new());
    let view = world.view();
    let select = Select {
        matchers,
        start,
        end,
        over_time: None,
        with_starts: true,
    };
    let visit = |labels: &tideline_promql::Labels, data: SeriesData<'_>| {
        let before = kept.lock().insert(labels.to_string(), keep(data));
        assert!(before.is_none(), "{labels} came twice");
        Ok(())
    };
    view.source().select(&select, &visit).expect("selected");
    kept.into_inner()
}

fn samples(kept: &Kept) -> Vec<(i64, &str)> {
    kept.iter()
        .map(|(time, value, _)| (*time, value.as_str()))
        .collect()
}

fn histogram(text: &str) -> Value {
    let mut stored = Vec::new();
    Histogram::parse(text).expect("a histogram").to_bytes(&mut stored);
    Value::Histogram(stored.into())
}

#[test]
fn numbers_of_all_kinds_come_as_doubles_wherever_they_are_stored() {
    let world = World::with(&[
        ("m,host=a", 1_000, float(1.5)),
        ("m,host=a", 2_000, float(f64::from_bits(STALE_NAN_BITS))),
        ("m,host=b", 1_500, vec![("value", Value::Signed(-3))]),
        (
            "cpu,host=a",
            1_000,
            vec![("on", Value::Boolean(true)), ("note", Value::String("x".into()))],
        ),
        ("cpu,host=a", 2_000, vec![("busy", Value::Unsigned(7))]),
    ]);
    for is_sealed in [false, true] {
        if is_sealed {
            world.engine.seal().expect("sealed");
        }
        let found = select(&world, &[eq("__name__", "m")], (1_000, 2_000));
        assert_eq!(found.len(), 2);
        let of_a = &found[r#"{__name__="m", host="a"}"#];
        assert_eq!(samples(of_a), [(1_000, "1.5"), (2_000, "stale")]);
        assert_eq!(samples(&found[r#"{__name__="m", host="b"}"#]), [(1_500, "-3")]);
        // The range includes both ends.
        let found = select(&world, &[eq("__name__", "m")], (1_001, 1_999));
        assert_eq!(found.keys().collect::<Vec<_>>(), [r#"{__name__="m", host="b"}"#]);
        assert_eq!(select(&world, &[eq("__name__", "m")], (2_001, 9_000)).len(), 0);
        assert_eq!(select(&world, &[eq("__name__", "m")], (9, 3)).len(), 0);
        // A metric without samples in the range yields no series, even if its timeline has other samples.
        let found = select(&world, &[re("__name__", "cpu_.*")], (0, 1_500));
        assert_eq!(
            samples(&found[r#"{__name__="cpu_on", host="a"}"#]),
            [(1_000, "1")]
        );
        assert_eq!(found.len(), 1);
        let found = select(&world, &[eq("host", "a")], (0, 5_000));
        assert_eq!(found.len(), 3);
        assert_eq!(
            samples(&found[r#"{__name__="cpu_busy", host="a"}"#]),
            [(2_000, "7")]
        );
    }
}

#[test]
fn histograms_and_starts_stand_beside_numbers_and_give_way_to_them() {
    let (small, large) = (
        "{{count:1 sum:2 buckets:[1]}}",
        "{{schema:1 count:3 sum:5 buckets:[1 2]}}",
    );
    let world = World::with(&[
        (
            "rpc,job=x",
            1_000,
            vec![("histogram", histogram(small)), ("_start", Value::Signed(500))],
        ),
        ("rpc,job=x", 2_000, vec![("histogram", histogram(large))]),
        (
            "rpc,job=x",
            3_000,
            vec![("value", Value::Float(4.0)), ("_start", Value::Signed(2_500))],
        ),
        (
            "rpc,job=x",
            4_000,
            vec![("value", Value::Float(5.0)), ("histogram", histogram(small))],
        ),
        // A field `histogram` that holds numbers has another metric name: `old_histogram`.
        ("old,job=x", 1_000, vec![("histogram", Value::Float(9.0))]),
    ]);
    for is_sealed in [false, true] {
        if is_sealed {
            world.engine.seal().expect("sealed");
        }
        let found = select(&world, &[eq("__name__", "rpc")], (0, 9_000));
        let rpc: Vec<(i64, &str, i64)> = found[r#"{__name__="rpc", job="x"}"#]
            .iter()
            .map(|(time, value, start)| (*time, value.as_str(), *start))
            .collect();
        assert_eq!(
            rpc,
            [
                (1_000, small, 500),
                (2_000, large, 0),
                (3_000, "4", 2_500),
                (4_000, "5", 0)
            ]
        );
        let old = select(&world, &[eq("__name__", "old_histogram")], (0, 9_000));
        assert_eq!(
            samples(&old[r#"{__name__="old_histogram", job="x"}"#]),
            [(1_000, "9")]
        );
        assert_eq!(select(&world, &[eq("__name__", "old")], (0, 9_000)).len(), 0);
    }
}

#[test]
fn measurements_that_spell_one_name_are_one_series() {
    let world = World::with(&[
        ("cpu_usage_user,host=a", 1_000, float(1.0)),
        ("cpu_usage_user,host=a", 3_000, float(3.0)),
        ("cpu_usage,host=a", 3_000, vec![("user", Value::Float(30.0))]),
        ("cpu_usage,host=b", 3_000, vec![("user", Value::Float(31.0))]),
        ("cpu,host=a", 2_000, vec![("usage_user", Value::Float(200.0))]),
        ("cpu,host=a", 3_000, vec![("usage_user", Value::Float(300.0))]),
    ]);
    let found = select(&world, &[eq("__name__", "cpu_usage_user")], (0, 9_000));
    assert_eq!(found.len(), 2);
    // For equal timestamps the timeline that was registered last wins.
    let of_a = &found[r#"{__name__="cpu_usage_user", host="a"}"#];
    assert_eq!(samples(of_a), [(1_000, "1"), (2_000, "200"), (3_000, "300")]);
    assert_eq!(
        samples(&found[r#"{__name__="cpu_usage_user", host="b"}"#]),
        [(3_000, "31")]
    );
}

#[test]
fn of_several_points_in_a_millisecond_the_last_counts() {
    let world = World::new();
    world.write_nanos(&[
        ("m", 5_000_001, 1.0),
        ("m", 5_900_000, 2.0),
        ("m", 6_000_000, 3.0),
        ("m", -1, 4.0),
    ]);
    let found = select(&world, &[eq("__name__", "m")], (-1, 5));
    assert_eq!(samples(&found[r#"{__name__="m"}"#]), [(-1, "4"), (5, "2")]);
}

#[test]
fn budgets_failures_and_clients_that_leave_end_a_selection() {
    let world = World::with(&[("m,host=a", 1_000, float(1.0)), ("m,host=a", 2_000, float(1.0))]);
    let matchers = [eq("__name__", "m")];
    let select = Select {
        matchers: &matchers,
        start: 0,
        end: 9_000,
        over_time: None,
        with_starts: false,
    };
    let ask = |budget: Budget, cancel: &Cancel, visit: &(dyn Fn() -> Result<()> + Sync)| {
        let view = SeriesView::new(&world.querier, &world.table, budget, cancel);
        view.source().select(&select, &|_, _| visit())
    };
    let (budget, none) = (Budget::default(), Cancel::new());
    assert_eq!(ask(budget, &none, &|| Ok(())), Ok(()));
    let failed = ask(budget, &none, &|| Err(PromqlError::Execution("no".into())));
    assert_eq!(failed, Err(PromqlError::Execution("no".into())));
    let tight = Budget {
        points_max: 1,
        ..budget
    };
    assert!(matches!(
        ask(tight, &none, &|| Ok(())),
        Err(PromqlError::TooMany(_))
    ));
    let late = Budget {
        time_max: std::time::Duration::ZERO,
        ..budget
    };
    assert!(matches!(
        ask(late, &none, &|| Ok(())),
        Err(PromqlError::Timeout(_))
    ));
    let cancel = Cancel::new();
    cancel.cancel();
    assert!(matches!(
        ask(budget, &cancel, &|| Ok(())),
        Err(PromqlError::Canceled(_))
    ));
}

#[test]
fn exemplars_are_of_the_series_named_as_its_measurement() {
    let exemplar = |text: &str| vec![("_exemplar", Value::String(text.into()))];
    let world = World::with(&[
        ("rpc,job=x", 1_000, float(1.0)),
        (
            "rpc,job=x",
            1_200,
            exemplar(r#"{"labels":{"trace_id":"abc"},"value":0.5}"#),
        ),
        ("rpc,job=x", 3_000, exemplar(r#"{"value":"+Inf"}"#)),
        ("rpc,job=x", 3_100, exemplar("nonsense")),
        ("rpc,job=y", 1_300, float(1.0)),
        ("rpc,job=y", 1_300, exemplar(r#"{"labels":{},"value":2.5}"#)),
        ("rpc,job=y", 1_300, vec![("other", Value::Float(1.0))]),
    ]);
    let of = |matchers: &[Matcher], range| -> Vec<String> {
        let found = world
            .view()
            .exemplars(&[matchers.to_vec(), matchers.to_vec()], range)
            .expect("found");
        let each = found.into_iter().flat_map(|series| {
            let labels = series.labels;
            let each = series.exemplars.into_iter();
            each.map(move |one| format!("{labels} {} {} {}", one.labels, one.value, one.time))
        });
        each.collect()
    };
    let all = of(&[re("__name__", "rpc.*")], (0, 9_000));
    assert_eq!(
        all,
        [
            r#"{__name__="rpc", job="x"} {trace_id="abc"} 0.5 1200"#,
            r#"{__name__="rpc", job="x"} {} inf 3000"#,
            r#"{__name__="rpc", job="y"} {} 2.5 1300"#,
        ]
    );
    assert_eq!(
        of(&[eq("__name__", "rpc"), eq("job", "x")], (1_200, 2_999)),
        all[..1]
    );
    assert_eq!(of(&[eq("__name__", "rpc_other")], (0, 9_000)), [""; 0]);
    assert_eq!(of(&[eq("__name__", "rpc")], (9_000, 0)), [""; 0]);
}

#[test]
fn histograms_have_reset_hints_from_the_one_before() {
    let of = |count: u64| {
        let text = format!("{{{{count:{count} sum:1 buckets:[{count}]}}}}");
        vec![("histogram", histogram(&text))]
    };
    let world = World::with(&[
        ("h", 1_000, of(3)),
        ("h", 2_000, of(4)),
        ("h", 3_000, of(2)),
        ("h", 4_000, of(2)),
        ("h", 5_000, float(1.0)),
        ("h", 6_000, of(9)),
    ]);
    let hints = Mutex::new(Vec::new());
    let view = world.view();
    let matchers = [eq("__name__", "h")];
    let select = Select {
        matchers: &matchers,
        start: 0,
        end: 9_000,
        over_time: None,
        with_starts: false,
    };
    let visit = |_: &tideline_promql::Labels, data: SeriesData<'_>| {
        if let SeriesData::Samples(samples) = data {
            let each = samples.histograms.iter().map(|histogram| histogram.reset_hint);
            hints.lock().extend(each);
        }
        Ok(())
    };
    view.source().select(&select, &visit).expect("selected");
    assert_eq!(
        hints.into_inner(),
        [Unknown, NotReset, Unknown, NotReset, Unknown]
    );
}
