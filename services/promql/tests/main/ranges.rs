//! Tests of functions over ranges of floats, and of floats and histograms.
//!
//! The tests cover extrapolation, resets, start timestamps, and `anchored` and `smoothed` ranges.

use std::sync::Arc;

use tideline_histogram::Histogram;
use tideline_promql::Point;
use tideline_promql::note::Note;
use tideline_promql::range::{Extent, RangeFunction, Window, extend_floats, smooth_at};

/// Samples of a range. `end`, `width` and the arguments of the methods are in seconds.
#[derive(Default, Clone)]
pub(crate) struct Range {
    end: i64,
    width: i64,
    extent: Extent,
    times: Vec<i64>,
    values: Vec<f64>,
    starts: Vec<i64>,
    histogram_times: Vec<i64>,
    histograms: Vec<Arc<Histogram>>,
    histogram_starts: Vec<i64>,
}

impl Range {
    pub(crate) fn until(end: i64, width: i64) -> Self {
        Self {
            end,
            width,
            ..Self::default()
        }
    }

    pub(crate) fn extent(self, extent: Extent) -> Self {
        Self { extent, ..self }
    }

    pub(crate) fn floats(self, samples: &[(i64, f64)]) -> Self {
        let (times, values) = samples.iter().map(|(time, value)| (time * 1000, *value)).unzip();
        Self {
            times,
            values,
            ..self
        }
    }

    fn starts(self, starts: &[i64]) -> Self {
        Self {
            starts: starts.iter().map(|start| start * 1000).collect(),
            ..self
        }
    }

    pub(crate) fn histograms(self, samples: &[(i64, &str)]) -> Self {
        Self {
            histogram_times: samples.iter().map(|(time, _)| time * 1000).collect(),
            histograms: samples
                .iter()
                .map(|(_, text)| Arc::new(Histogram::parse(text).unwrap()))
                .collect(),
            ..self
        }
    }

    pub(crate) fn histogram_starts(self, starts: &[i64]) -> Self {
        Self {
            histogram_starts: starts.iter().map(|start| start * 1000).collect(),
            ..self
        }
    }

    pub(crate) fn window(&self) -> Window<'_> {
        Window {
            at: self.end * 1000,
            end: self.end * 1000,
            width: self.width * 1000,
            extent: self.extent,
            times: &self.times,
            values: &self.values,
            starts: &self.starts,
            histogram_times: &self.histogram_times,
            histograms: &self.histograms,
            histogram_starts: &self.histogram_starts,
        }
    }

    pub(crate) fn noted(&self, name: &str, parameters: [f64; 2]) -> (Option<Point>, Vec<Note>) {
        let function = RangeFunction::of(name).unwrap();
        let mut notes = Vec::new();
        let result = function.apply(&self.window(), parameters, &mut Vec::new(), &mut |note| {
            notes.push(note);
        });
        (result.unwrap(), notes)
    }

    /// Applies a function that must not add notes.
    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        self.number_of(name, [0.0; 2])
    }

    fn number_of(&self, name: &str, parameters: [f64; 2]) -> Option<f64> {
        match self.noted(name, parameters) {
            (None, notes) if notes.is_empty() => None,
            (Some(Point::Float(value)), notes) if notes.is_empty() => Some(value),
            other => panic!("{name} gives {other:?}"),
        }
    }

    /// Returns the notation of the resulting histogram, and the notes.
    pub(crate) fn histogram(&self, name: &str) -> (String, Vec<Note>) {
        match self.noted(name, [0.0; 2]) {
            (Some(Point::Histogram(histogram)), notes) => (histogram.notation(), notes),
            (None, notes) => ("nothing".to_owned(), notes),
            other => panic!("{name} gives {other:?}"),
        }
    }
}

#[test]
fn a_counter_is_extrapolated_to_the_ends_of_its_range() {
    // A sample every 10 s, the first 5 s after the start of the range, the last 5 s before its end.
    let full = Range::until(60, 60).floats(&[
        (5, 10.0),
        (15, 20.0),
        (25, 30.0),
        (35, 40.0),
        (45, 50.0),
        (55, 60.0),
    ]);
    assert_eq!(full.number("increase"), Some(60.0));
    assert_eq!(full.number("rate"), Some(1.0));
    assert_eq!(full.number("delta"), Some(60.0));
    // The series begins within the range: extrapolated by half an interval before its first sample.
    let young = Range::until(60, 60).floats(&[(35, 100.0), (45, 110.0), (55, 120.0)]);
    assert_eq!(young.number("increase"), Some(30.0));
    // A counter is not extrapolated below zero; a gauge is.
    let new = Range::until(60, 60).floats(&[(35, 2.0), (45, 12.0), (55, 22.0)]);
    assert_eq!(new.number("increase"), Some(20.0 * 27.0 / 20.0));
    assert_eq!(new.number("delta"), Some(30.0));
}

#[test]
fn what_a_counter_had_before_a_reset_is_counted() {
    let reset = Range::until(40, 40).floats(&[(10, 5.0), (20, 8.0), (30, 1.0), (40, 2.0)]);
    // The counter rises from 5 to 8 and, after the reset, from 0 to 2: 5 in 30 s, extrapolated to the 40 s of the
    // range.
    let increase = reset.number("increase").unwrap();
    assert!((increase - 20.0 / 3.0).abs() < 1e-12, "{increase}");
    assert_eq!(reset.number("resets"), Some(1.0));
    assert_eq!(reset.number("irate"), Some(0.1));
    assert_eq!(reset.number("idelta"), Some(1.0));
}

#[test]
fn one_sample_has_no_rate_unless_its_start_is_known() {
    let one = Range::until(40, 40).floats(&[(30, 6.0)]);
    assert_eq!(one.number("increase"), None);
    assert_eq!(one.number("irate"), None);
    assert_eq!(one.clone().starts(&[10]).number("increase"), Some(6.0));
    assert_eq!(one.clone().starts(&[0]).number("increase"), None);
    // The start of the range is excluded.
    let at_left_end = Range::until(40, 20).floats(&[(30, 6.0)]).starts(&[20]);
    assert_eq!(at_left_end.number("increase"), None);
}

#[test]
fn start_timestamps_show_resets_that_values_do_not() {
    let hidden = Range::until(30, 30).floats(&[(10, 5.0), (20, 7.0), (30, 9.0)]);
    assert_eq!(hidden.number("resets"), Some(0.0));
    let hidden = hidden.starts(&[-60, -60, 25]);
    assert_eq!(hidden.number("resets"), Some(1.0));
    assert_eq!(hidden.number("irate"), Some(0.9));
    // An increase of 11, extrapolated back to the time at which the counter was zero.
    assert_eq!(hidden.number("increase"), Some(16.0));
    // Deltas: each sample begins at the timestamp of the previous one.
    let parts = Range::until(30, 30)
        .floats(&[(10, 5.0), (20, 7.0), (30, 9.0)])
        .starts(&[-1, 10, 20]);
    assert_eq!(parts.number("resets"), Some(2.0));
    // Starts that equal the timestamp of the first sample do not show a reset.
    let unknown = Range::until(30, 30)
        .floats(&[(10, 5.0), (20, 7.0), (30, 9.0)])
        .starts(&[10, 10, 10]);
    assert_eq!(unknown.number("resets"), Some(0.0));
    // A start between the start and the timestamp of the previous sample overlaps and is noted.
    let odd = Range::until(30, 30)
        .floats(&[(10, 5.0), (20, 7.0)])
        .starts(&[-5, 8]);
    assert_eq!(odd.noted("rate", [0.0; 2]).1, [Note::StartTimeOverlap]);
}

#[test]
fn anchored_ranges_begin_with_what_was_last_seen() {
    let samples = [(-20, 1.0), (-5, 3.0), (10, 4.0), (20, 2.0), (30, 5.0)];
    let anchored = Range::until(40, 40).extent(Extent::Anchored).floats(&samples);
    assert_eq!(anchored.number("increase"), Some(6.0));
    assert_eq!(anchored.number("rate"), Some(0.15));
    assert_eq!(anchored.number("delta"), Some(2.0));
    assert_eq!(anchored.number("changes"), Some(3.0));
    assert_eq!(anchored.number("resets"), Some(1.0));
    // Without a sample in the range there is no result.
    let before = Range::until(40, 40)
        .extent(Extent::Anchored)
        .floats(&samples[..2]);
    assert_eq!((before.number("rate"), before.number("changes")), (None, None));
}

#[test]
fn smoothed_ranges_end_on_lines_between_samples() {
    let samples = [(-10, 0.0), (10, 20.0), (30, 40.0), (50, 60.0)];
    let smoothed = Range::until(40, 40).extent(Extent::Smoothed).floats(&samples);
    assert_eq!(smoothed.number("increase"), Some(40.0));
    assert_eq!(
        extend_floats(&smoothed.window()),
        [(0, 10.0), (10_000, 20.0), (30_000, 40.0), (40_000, 50.0)]
    );
    // A counter that was reset between two samples is interpolated from zero.
    let reset = Range::until(20, 20)
        .extent(Extent::Smoothed)
        .floats(&[(-10, 100.0), (10, 20.0), (30, 40.0)]);
    assert_eq!(reset.number("increase"), Some(20.0));
    assert_eq!(reset.number("delta"), Some(-30.0));
}

#[test]
fn between_samples_a_line_holds() {
    let at = |end: i64, samples: &[(i64, f64)]| {
        smooth_at(
            &Range::until(end, 0)
                .extent(Extent::Smoothed)
                .floats(samples)
                .window(),
            &mut |_| {},
        )
    };
    let samples = [(10, 1.0), (20, 3.0)];
    assert_eq!(at(15, &samples), Some(Point::Float(2.0)));
    assert_eq!(at(20, &samples), Some(Point::Float(3.0)));
    assert_eq!(at(25, &samples), Some(Point::Float(3.0)));
    assert_eq!(at(5, &samples), None);
}

#[test]
fn lines_through_numbers() {
    let line = Range::until(40, 40).floats(&[(10, 1.0), (20, 3.0), (30, 5.0), (40, 7.0)]);
    assert_eq!(line.number("deriv"), Some(0.2));
    let ahead = line.number_of("predict_linear", [50.0, 0.0]).unwrap();
    assert!((ahead - 17.0).abs() < 1e-12, "{ahead}");
    let flat = Range::until(40, 40).floats(&[(10, 4.0), (20, 4.0)]);
    assert_eq!(
        (flat.number("deriv"), flat.number_of("predict_linear", [9.0, 0.0])),
        (Some(0.0), Some(4.0))
    );
    assert_eq!(
        line.number_of("double_exponential_smoothing", [0.5, 0.5]),
        Some(7.0)
    );
    let refused = RangeFunction::DoubleExponentialSmoothing.apply(
        &line.window(),
        [1.0, 0.5],
        &mut Vec::new(),
        &mut |_| {},
    );
    let message = "invalid smoothing factor. Expected: 0 < sf < 1, got: 1.000000";
    assert_eq!(refused.unwrap_err().to_string(), message);
}

#[test]
fn what_ends_in_over_time() {
    let range = Range::until(40, 40).floats(&[(10, 2.0), (20, 5.0), (25, 1.0), (30, 5.0), (40, f64::NAN)]);
    let finite = Range::until(40, 40).floats(&[(10, 2.0), (20, 5.0), (25, 1.0), (30, 5.0), (40, 1.0)]);
    let cases = [
        ("min_over_time", 1.0),
        ("max_over_time", 5.0),
        ("count_over_time", 5.0),
        ("first_over_time", 2.0),
        ("present_over_time", 1.0),
        ("ts_of_first_over_time", 10.0),
        ("ts_of_last_over_time", 40.0),
        ("ts_of_min_over_time", 25.0),
        ("ts_of_max_over_time", 30.0),
        ("changes", 4.0),
    ];
    for (name, expected) in cases {
        assert_eq!(range.number(name), Some(expected), "{name}");
    }
    for (name, expected) in [
        ("sum_over_time", 14.0),
        ("avg_over_time", 2.8),
        ("last_over_time", 1.0),
        ("stdvar_over_time", 3.36),
        ("mad_over_time", 1.0),
        ("ts_of_min_over_time", 40.0),
    ] {
        let value = finite.number(name).unwrap();
        assert!((value - expected).abs() < 1e-12, "{name} gives {value}");
    }
    assert_eq!(finite.number_of("quantile_over_time", [0.25, 0.0]), Some(1.0));
    assert_eq!(finite.number_of("quantile_over_time", [0.9, 0.0]), Some(5.0));
    let (above, notes) = finite.noted("quantile_over_time", [1.5, 0.0]);
    assert_eq!(
        (above, notes),
        (
            Some(Point::Float(f64::INFINITY)),
            vec![Note::InvalidQuantile(1.5)]
        )
    );
    assert!(range.number("mad_over_time").unwrap().is_nan());
}

#[test]
fn sums_lose_nothing_and_averages_do_not_overflow() {
    let lossy = Range::until(40, 40).floats(&[(10, 5e100), (20, 1.0), (30, -5e100)]);
    assert_eq!(lossy.number("sum_over_time"), Some(1.0));
    assert_eq!(lossy.number("avg_over_time"), Some(1.0 / 3.0));
    let large = Range::until(40, 40).floats(&[(10, 9e307), (20, 9e307), (30, 9e307)]);
    assert_eq!(large.number("sum_over_time"), Some(f64::INFINITY));
    let average = large.number("avg_over_time").unwrap();
    assert!((average / 9e307 - 1.0).abs() < 1e-15, "{average}");
    let large = Range::until(40, 40).histograms(&[
        (10, "{{count:9e307 buckets:[9e307]}}"),
        (20, "{{count:9e307 buckets:[9e307]}}"),
    ]);
    assert_eq!(
        large.histogram("avg_over_time").0,
        "{{count:9e+307 buckets:[9e+307]}}"
    );
}

#[test]
fn of_two_kinds_of_samples_the_first_and_last_are_found() {
    let both = Range::until(40, 40)
        .floats(&[(10, 1.0), (30, 2.0)])
        .histograms(&[(20, "{{count:1 buckets:[1]}}")]);
    assert_eq!(both.number("first_over_time"), Some(1.0));
    assert_eq!(both.number("last_over_time"), Some(2.0));
    assert_eq!(both.number("changes"), Some(2.0));
    assert_eq!(both.number("resets"), Some(2.0));
    assert_eq!(both.number("count_over_time"), Some(3.0));
    let later = Range {
        histogram_times: vec![35_000],
        ..both.clone()
    };
    assert_eq!(later.histogram("last_over_time").0, "{{count:1 buckets:[1]}}");
    assert_eq!(later.number("ts_of_last_over_time"), Some(35.0));
}

/// Computes the increase by its definition, sample by sample.
fn increase_by_definition(range: &Range) -> f64 {
    let mut increase = 0.0;
    for pair in range.values.windows(2) {
        increase += if pair[1] < pair[0] {
            pair[1]
        } else {
            pair[1] - pair[0]
        };
    }
    increase
}

#[test]
fn at_the_very_ends_nothing_is_extrapolated() {
    let mut seed = tideline_testkit::seed("ranges").max(1);
    for _ in 0..500 {
        let mut random = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed >> 40
        };
        let samples: Vec<_> = (0..=20).map(|at| (at * 10, (random() % 1000) as f64)).collect();
        let range = Range::until(200, 200).floats(&samples);
        let expected = increase_by_definition(&range);
        let increase = range.number("increase").unwrap();
        assert!(
            (increase - expected).abs() < 1e-9 * expected,
            "{increase} is not {expected}: {:?}",
            range.values
        );
        let rate = range.number("rate").unwrap();
        assert!((rate - increase / 200.0).abs() < 1e-12 * rate, "{rate}");
    }
}
