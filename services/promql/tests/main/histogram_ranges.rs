//! Tests of functions over ranges of histograms.
//!
//! The tests cover rates, resets, incompatible histograms, different custom bounds, and `anchored` and `smoothed`
//! ranges.

use tideline_promql::Point;
use tideline_promql::note::{HistogramOperation, Note};
use tideline_promql::range::{Extent, smooth_at};

use super::ranges::Range;

#[test]
fn histograms_have_rates_as_numbers_have() {
    let rising = Range::until(30, 30).histograms(&[
        (10, "{{schema:0 count:4 sum:4 buckets:[1 3]}}"),
        (20, "{{schema:0 count:6 sum:8 buckets:[2 4]}}"),
        (30, "{{schema:0 count:10 sum:12 buckets:[4 6]}}"),
    ]);
    // The increase from 10 s to 30 s is extrapolated back to 0 s.
    let (increase, notes) = rising.histogram("increase");
    assert_eq!(
        increase,
        "{{count:9 sum:12 counter_reset_hint:gauge buckets:[4.5 4.5]}}"
    );
    assert!(notes.is_empty());
    assert_eq!(rising.number("resets"), Some(0.0));
    assert_eq!(rising.number("changes"), Some(2.0));
    let (irate, _) = rising.histogram("irate");
    assert_eq!(
        irate,
        "{{count:0.4 sum:0.4 counter_reset_hint:gauge buckets:[0.2 0.2]}}"
    );
    // `delta` expects gauges.
    assert_eq!(rising.histogram("delta").1, [Note::NativeHistogramNotGauge]);
    assert_eq!(rising.histogram("idelta").1, [Note::NativeHistogramNotGauge]);
}

#[test]
fn histograms_are_reset_too() {
    let reset = Range::until(20, 20).histograms(&[
        (0, "{{schema:0 count:4 sum:4 buckets:[1 3]}}"),
        (10, "{{schema:0 count:6 sum:8 buckets:[2 4]}}"),
        (20, "{{schema:0 count:3 sum:1 buckets:[2 1]}}"),
    ]);
    assert_eq!(
        reset.histogram("increase").0,
        "{{count:5 sum:5 counter_reset_hint:gauge buckets:[3 2]}}"
    );
    assert_eq!(reset.number("resets"), Some(1.0));
    // If a reset is detected at the second histogram, the first is ignored, regardless of its bounds.
    let other = Range::until(20, 20).histograms(&[
        (0, "{{schema:-53 count:4 custom_values:[1] buckets:[4]}}"),
        (10, "{{schema:0 count:6 sum:8 buckets:[2 4]}}"),
        (20, "{{schema:0 count:8 sum:9 buckets:[3 5]}}"),
    ]);
    assert_eq!(
        other.histogram("increase").0,
        "{{count:8 sum:9 counter_reset_hint:gauge buckets:[3 5]}}"
    );
    // A single histogram has an increase if its start is in the range.
    let one = Range::until(20, 20)
        .histograms(&[(10, "{{count:6 sum:8 buckets:[2 4]}}")])
        .histogram_starts(&[5]);
    assert_eq!(one.histogram("increase").0, "{{count:6 sum:8 buckets:[2 4]}}");
}

#[test]
fn histograms_that_do_not_go_together_have_no_rate() {
    let mixed = Range::until(20, 20).histograms(&[
        (0, "{{count:4 buckets:[4]}}"),
        (10, "{{schema:-53 count:6 custom_values:[1] buckets:[6]}}"),
        (20, "{{count:8 buckets:[8]}}"),
    ]);
    let nothing = ("nothing".to_owned(), vec![Note::MixedExponentialCustomHistograms]);
    for name in ["rate", "sum_over_time", "avg_over_time"] {
        assert_eq!(mixed.histogram(name), nothing);
    }
    let both = Range::until(20, 20)
        .floats(&[(5, 1.0), (6, 2.0)])
        .histograms(&[(10, "{{count:4 buckets:[4]}}")]);
    let nothing = ("nothing".to_owned(), vec![Note::MixedFloatsHistograms]);
    for name in [
        "rate",
        "increase",
        "delta",
        "irate",
        "idelta",
        "sum_over_time",
        "avg_over_time",
    ] {
        assert_eq!(both.histogram(name), nothing, "{name}");
    }
    for name in [
        "min_over_time",
        "stddev_over_time",
        "deriv",
        "ts_of_max_over_time",
    ] {
        assert_eq!(
            both.noted(name, [0.0; 2]).1,
            [Note::HistogramIgnoredInMixedRange],
            "{name}"
        );
    }
}

#[test]
fn different_bounds_are_reported() {
    let bounds = Range::until(20, 20).histograms(&[
        (
            10,
            "{{schema:-53 count:4 custom_values:[1 2] buckets:[1 1 2] counter_reset_hint:gauge}}",
        ),
        (
            20,
            "{{schema:-53 count:8 custom_values:[1 3] buckets:[2 2 4] counter_reset_hint:gauge}}",
        ),
    ]);
    let note = |operation| vec![Note::MismatchedCustomBuckets(operation)];
    let (delta, notes) = bounds.histogram("delta");
    assert_eq!(
        delta,
        "{{schema:-53 count:8 custom_values:[1] counter_reset_hint:gauge buckets:[2 6]}}"
    );
    assert_eq!(notes, note(HistogramOperation::Sub));
    let (sum, notes) = bounds.histogram("sum_over_time");
    assert_eq!(
        sum,
        "{{schema:-53 count:12 custom_values:[1] counter_reset_hint:gauge buckets:[3 9]}}"
    );
    assert_eq!(notes, note(HistogramOperation::Aggregation));
    assert_eq!(bounds.histogram("rate").1[0], Note::NativeHistogramNotCounter);
}

#[test]
fn anchored_and_smoothed_histograms() {
    let samples = [
        (-10, "{{count:2 sum:2 buckets:[2]}}"),
        (10, "{{count:6 sum:4 buckets:[6]}}"),
        (30, "{{count:4 sum:1 buckets:[4]}}"),
        (50, "{{count:8 sum:5 buckets:[8]}}"),
    ];
    let anchored = Range::until(40, 40)
        .extent(Extent::Anchored)
        .histograms(&samples[..3]);
    assert_eq!(
        anchored.histogram("increase").0,
        "{{count:8 sum:3 counter_reset_hint:gauge buckets:[8]}}"
    );
    let smoothed = Range::until(40, 40).extent(Extent::Smoothed).histograms(&samples);
    // The counter rises from 4 at 0 s to 6, is reset, and rises from 0 to 6 at 40 s.
    assert_eq!(
        smoothed.histogram("increase").0,
        "{{count:8 sum:4 counter_reset_hint:gauge buckets:[8]}}"
    );
    let at_end = smooth_at(&smoothed.window(), &mut |_| {});
    let Some(Point::Histogram(at_end)) = at_end else {
        panic!("{at_end:?}")
    };
    assert_eq!(at_end.notation(), "{{count:6 sum:3 buckets:[6]}}");
}
