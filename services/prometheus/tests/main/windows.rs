//! Tests of windows that the source computes itself.
//!
//! The results are compared with windows computed from samples. For cold points, the tests also check the number of
//! points read.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tideline_histogram::STALE_NAN_BITS;
use tideline_model::Value;
use tideline_prometheus::SeriesView;
use tideline_promql::Result;
use tideline_promql::source::{NO_RESULT_BITS, OverTime, OverTimeFunction, Select, SeriesData, Source};
use tideline_query::{Budget, Cancel};

use crate::source::{Kept, keep, select};
use crate::support::{Fields, Point, World, re};

/// Writes seven hosts with two fields each. Some points are late, some values are missing, and types are mixed;
/// `with_odd` adds values that require evaluation from samples.
fn wild(with_odd: bool) -> World {
    let world = World::new();
    let mut seed = tideline_testkit::seed("windows");
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) % below
    };
    for round in 0..6 {
        let mut points: Vec<(String, i64, Fields)> = Vec::new();
        for step in 0..200i64 {
            for host in 0..7 {
                let time = (round * 200 + step) * 10_000 - random(3) as i64 * 40_000;
                let mut fields = vec![("f", Value::Float(random(100_000) as f64 / 7.0 - 5_000.0))];
                if random(3) > 0 {
                    let whole = random(u64::MAX >> 40) as i64 - 5_000;
                    fields.push((
                        "i",
                        if host == 3 {
                            Value::Unsigned(1 << 50)
                        } else {
                            Value::Signed(whole)
                        },
                    ));
                }
                if with_odd && host == 5 && random(40) == 0 {
                    let odd = [f64::NAN, f64::INFINITY, f64::from_bits(STALE_NAN_BITS), f64::MAX];
                    fields[0].1 = Value::Float(odd[random(4) as usize]);
                }
                points.push((format!("w,host=h{host}"), time, fields));
            }
        }
        let points: Vec<Point<'_>> = points
            .iter()
            .map(|(key, time, fields)| (key.as_str(), *time, fields.clone()))
            .collect();
        world.write(&points);
        if round % 2 == 0 {
            world.engine.seal().expect("sealed");
        }
    }
    world
}

/// Computes the result of each window from samples; `None` for an empty window.
fn naive(kept: &Kept, over_time: &OverTime) -> Vec<Option<f64>> {
    let window = |at: usize| {
        let end = over_time.first + at as i64 * over_time.step;
        let inside = kept
            .iter()
            .filter(|(time, ..)| *time > end - over_time.width && *time <= end);
        let values: Vec<f64> = inside
            .map(|(_, value, _)| value.parse().expect("a number"))
            .collect();
        if values.is_empty() {
            return None;
        }
        let sum = values.iter().sum::<f64>();
        Some(match over_time.function {
            OverTimeFunction::Sum => sum,
            OverTimeFunction::Avg => sum / values.len() as f64,
            OverTimeFunction::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
            OverTimeFunction::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            OverTimeFunction::Count => values.len() as f64,
        })
    };
    (0..over_time.steps).map(window).collect()
}

/// Returns the windows of the source: its results, or results computed from its samples. Also
/// returns the number of series whose results the source computed.
fn windows(world: &World, over_time: &OverTime) -> (BTreeMap<String, Vec<Option<f64>>>, usize) {
    let view = world.view();
    windows_of(&view, over_time)
}

fn windows_of(view: &SeriesView<'_>, over_time: &OverTime) -> (BTreeMap<String, Vec<Option<f64>>>, usize) {
    let (kept, told) = (Mutex::new(BTreeMap::new()), Mutex::new(0));
    let matchers = [re("__name__", "w_[fi]")];
    let last = over_time.first + (over_time.steps as i64 - 1) * over_time.step;
    let select = Select {
        matchers: &matchers,
        start: over_time.first - over_time.width + 1,
        end: last,
        over_time: Some(*over_time),
        with_starts: false,
    };
    let visit = |labels: &tideline_promql::Labels, data: SeriesData<'_>| -> Result<()> {
        let results = match data {
            SeriesData::Steps { results, counts } => {
                *told.lock() += 1;
                for (result, count) in results.iter().zip(counts) {
                    assert_eq!(*count == 0, result.to_bits() == NO_RESULT_BITS);
                    if over_time.function == OverTimeFunction::Count && *count > 0 {
                        assert_eq!(*result, *count as f64);
                    }
                }
                let result = |result: &f64| (result.to_bits() != NO_RESULT_BITS).then_some(*result);
                results.iter().map(result).collect()
            }
            data => {
                let finite = |value: &str| value != "stale" && value.parse::<f64>().is_ok_and(f64::is_finite);
                let mut samples = keep(data);
                samples.retain(|(_, value, _)| finite(value));
                naive(&samples, over_time)
            }
        };
        kept.lock().insert(labels.to_string(), results);
        Ok(())
    };
    view.source().select(&select, &visit).expect("selected");
    (kept.into_inner(), told.into_inner())
}

#[test]
fn windows_are_what_samples_come_to() {
    let functions = [
        OverTimeFunction::Sum,
        OverTimeFunction::Avg,
        OverTimeFunction::Min,
        OverTimeFunction::Max,
        OverTimeFunction::Count,
    ];
    for with_odd in [false, true] {
        let world = wild(with_odd);
        let all = select(&world, &[re("__name__", "w_[fi]")], (-100_000, 20_000_000));
        assert_eq!(all.len(), 14);
        for (at, function) in functions.into_iter().enumerate() {
            let width = [600_000, 599_999, 10_000, 3_600_000, 250_000][at];
            let over_time = OverTime {
                function,
                first: 600_000 * at as i64,
                step: [600_000, 700_000, 10_000, 3_600_000, 777_777][at],
                steps: [13, 20, 900, 4, 1][at],
                width,
            };
            let (found, told) = windows(&world, &over_time);
            // Without unusual values all windows are computed without samples.
            let is_all = if with_odd { told >= 12 } else { told == 14 };
            assert!(is_all, "{function:?} {told}");
            for (labels, results) in &found {
                if with_odd && labels.contains("h5") {
                    continue;
                }
                let expected = naive(&all[labels], &over_time);
                assert_eq!(results.len(), expected.len());
                for (result, expected) in results.iter().zip(expected) {
                    let close = |(a, b): (f64, f64)| (a - b).abs() <= 1e-12 * (a.abs() + b.abs() + 1e5);
                    assert_eq!(result.is_some(), expected.is_some(), "{function:?} {labels}");
                    assert!(
                        result.zip(expected).is_none_or(close),
                        "{function:?} {result:?} {expected:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn summaries_stand_for_samples_where_they_are_exact() {
    summaries(4);
}

#[test]
fn instants_between_milliseconds_are_computed_from_samples() {
    summaries(5);
}

fn summaries(hosts: i64) {
    let world = World::new();
    // The first timestamp of each hour is at a window boundary. The values are doubles and integers. At the
    // boundaries, one host has values that are too large to be subtracted from sums. One value is NaN. With five
    // hosts, one host has timestamps between milliseconds.
    for hour in 0..12i64 {
        let mut points: Vec<(String, i64, Fields)> = Vec::new();
        for step in 0..360 {
            let time = hour * 3_600_000 + step * 10_000;
            for host in 0..hosts {
                let wave = ((step * 37 + host * 11 + hour * 5) % 1_009) as f64 / 8.0 - 40.0;
                let wave = if host == 3 && step == 77 && hour == 3 {
                    f64::NAN
                } else {
                    wave
                };
                let wave = if host == 2 && step == 0 { 1e18 } else { wave };
                let fields = vec![
                    ("f", Value::Float(wave)),
                    ("i", Value::Signed(step * 3 - hour * 100)),
                ];
                let nanos = time * 1_000_000 + if host == 4 { 1_234 } else { 0 };
                points.push((format!("w,host=h{host}"), nanos, fields));
            }
        }
        world.write_at(&points);
    }
    world.seal_and_move();
    let all = select(&world, &[re("__name__", "w_[fi]")], (0, 12 * 3_600_000));
    let all_points = hosts as u64 * 12 * 360;
    for (function, is_cheap) in [
        (OverTimeFunction::Avg, true),
        (OverTimeFunction::Sum, true),
        (OverTimeFunction::Count, true),
        (OverTimeFunction::Max, false),
    ] {
        for (first, step, steps) in [
            (3_600_000, 3_600_000, 12),
            (7_200_000, 7_200_000, 6),
            (39_600_000, 1, 1),
        ] {
            let width = if steps == 1 { 36_000_000 } else { step };
            let over_time = OverTime {
                function,
                first,
                step,
                steps,
                width,
            };
            let cancel = Cancel::new();
            let view = SeriesView::new(&world.querier, &world.table, Budget::default(), &cancel);
            let (found, _) = windows_of(&view, &over_time);
            assert_eq!(found.len(), 2 * hosts as usize);
            for (labels, results) in found.iter().filter(|(labels, _)| !labels.contains("h3")) {
                let expected = naive(&all[labels], &over_time);
                for (result, expected) in results.iter().zip(expected) {
                    let close = |(a, b): (f64, f64)| (a - b).abs() <= 1e-12 * (a.abs() + b.abs() + 1.0);
                    assert_eq!(result.is_some(), expected.is_some(), "{labels} {over_time:?}");
                    let both = result.zip(expected);
                    assert!(both.is_none_or(close), "{labels} {both:?} {over_time:?}");
                }
            }
            // Two of four hosts must be read in full.
            let read = cancel.progress().points;
            let is_little = read < all_points * 4 / 5;
            if hosts == 4 {
                assert_eq!(is_little, is_cheap, "{read} of {all_points}, {over_time:?}");
            }
        }
    }
}
