//! Tests of the script parser.
//!
//! The tests cover the notation of series, start timestamps, conversion of classic histograms, and
//! error positions.

use tideline_promql::Point;
use tideline_promql::histogram::{Histogram, STALE_NAN_BITS};
use tideline_promqltest::script::{Action, When};
use tideline_promqltest::{LoadedSample, LoadedSeries, Script};

/// Returns the series of a script that consists of one `load`.
fn loaded(text: &str) -> Vec<LoadedSeries> {
    let script = Script::parse(text).unwrap();
    let [command] = script.commands.as_slice() else {
        panic!("{script:?}");
    };
    let Action::Load(series) = &command.action else {
        panic!("{command:?}");
    };
    series.clone()
}

fn floats(series: &LoadedSeries) -> Vec<(i64, f64)> {
    let float = |sample: &LoadedSample| match &sample.value {
        Point::Float(value) => (sample.time, *value),
        Point::Histogram(histogram) => panic!("{histogram:?}"),
    };
    series.samples.iter().map(float).collect()
}

fn histograms(series: &LoadedSeries) -> Vec<Histogram> {
    let histogram = |sample: &LoadedSample| match &sample.value {
        Point::Float(value) => panic!("{value}"),
        Point::Histogram(histogram) => Histogram::clone(histogram),
    };
    series.samples.iter().map(histogram).collect()
}

#[test]
fn values_are_expanded() {
    let series = loaded("load 10s\n  a{b=\"c d\"} 1 2+3x2 _ 5x1 _x2 -1-1x1 Inf 1e-3\n  {\"e f\", g='}'} 0");
    assert_eq!(series[0].labels.to_string(), r#"{__name__="a", b="c d"}"#);
    let wanted = [
        (0, 1.0),
        (10_000, 2.0),
        (20_000, 5.0),
        (30_000, 8.0),
        (50_000, 5.0),
        (60_000, 5.0),
        (90_000, -1.0),
        (100_000, -2.0),
        (110_000, f64::INFINITY),
        (120_000, 0.001),
    ];
    assert_eq!(floats(&series[0]), wanted);
    assert_eq!(series[1].labels.to_string(), r#"{__name__="e f", g="}"}"#);
    let ended = loaded("load 1m\n a stale");
    assert_eq!(floats(&ended[0])[0].1.to_bits(), STALE_NAN_BITS);
}

#[test]
fn histograms_are_expanded() {
    let series = loaded("load 1m\n h {{count:1 sum:2 buckets:[1]}}+{{count:2 sum:1 buckets:[1 1]}}x2 {{}}x1");
    let found = histograms(&series[0]);
    assert_eq!(found.len(), 5);
    assert_eq!((found[2].count, found[2].sum), (5.0, 4.0));
    assert_eq!(found[2].positive_buckets, [3.0, 2.0]);
    assert_eq!(found[4].count, 0.0);
}

#[test]
fn start_times_are_relative_to_samples() {
    let series = loaded("load 1m\n a@st -1m _ -30s+10sx1\n a 1 2 3 4\n b 1");
    let starts: Vec<_> = series[0].samples.iter().map(|sample| sample.start).collect();
    assert_eq!(
        starts,
        [
            Some(-60_000),
            None,
            Some(120_000 - 30_000),
            Some(180_000 - 20_000)
        ]
    );
    assert_eq!(series[1].samples[0].start, None);
}

#[test]
fn classic_histograms_become_native_ones_beside_them() {
    let series = loaded(
        "load_with_nhcb 1m\n h_bucket{le=\"1\",x=\"y\"} 1\n h_bucket{le=\"+Inf\",x=\"y\"} 3\n h_sum{x=\"y\"} 9",
    );
    let native: Vec<_> = series
        .iter()
        .filter(|series| series.labels.metric_name() == Some("h"))
        .collect();
    assert_eq!((series.len(), native.len()), (4, 1));
    assert_eq!(native[0].labels.to_string(), r#"{__name__="h", x="y"}"#);
    let histogram = &histograms(native[0])[0];
    assert_eq!(
        (histogram.count, histogram.sum, histogram.schema),
        (3.0, 9.0, -53)
    );
    assert_eq!(histogram.custom_values, [1.0]);
}

#[test]
fn commands_are_found_between_comments_and_empty_lines() {
    let text = "# first\n\nclear\nload 1m\n  a 1\n\neval instant at 1m30s a  +  1\n  2\n\neval range from 0 to 1m step 10s a\n";
    let script = Script::parse(text).unwrap();
    let lines: Vec<_> = script.commands.iter().map(|command| command.line).collect();
    assert_eq!(lines, [3, 4, 7, 10]);
    let Action::Eval(eval) = &script.commands[2].action else {
        panic!();
    };
    assert_eq!(
        (eval.query.as_str(), eval.when),
        ("a  +  1", When::Instant(90_000))
    );
    let Action::Eval(eval) = &script.commands[3].action else {
        panic!();
    };
    let wanted = When::Range {
        start: 0,
        end: 60_000,
        step: 10_000,
    };
    assert_eq!(eval.when, wanted);
}

#[test]
fn faults_of_scripts_name_their_line() {
    let table = [
        ("nonsense", 1),
        ("load 1x\n a 1", 1),
        ("load 1m\n a 1\n b 1+x3", 3),
        ("load 1m\n a@st -1m\n", 2),
        ("load 1m\n a@st -1m\n b 1", 3),
        ("clear\n\neval instant at x a", 3),
        ("eval instant at 0 a\n expect nothing", 2),
        ("eval instant at 0 a\n a 1 2", 2),
        ("load 1m\n a{b=~\"c\"} 1", 2),
        ("load 1m\n a {{nonsense:1}}", 2),
    ];
    for (text, line) in table {
        let error = Script::parse(text).unwrap_err();
        assert_eq!(error.line, line, "{text}: {error}");
    }
}
