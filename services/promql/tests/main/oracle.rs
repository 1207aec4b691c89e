//! Comparison with Prometheus by recorded results.
//!
//! `oracle/*.txt` hold Prometheus' results for random ranges and distributions.

use std::collections::BTreeSet;
use std::sync::Arc;

use tideline_histogram::Histogram;
use tideline_promql::Point;
use tideline_promql::histogram_functions::{
    Bucket, bucket_fraction, bucket_quantile, histogram_fraction, histogram_quantile, quantile, variance,
};
use tideline_promql::note::{HistogramOperation, Note};
use tideline_promql::range::{Extent, RangeFunction, Window};

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.starts_with('#'))
}

fn number(text: &str) -> f64 {
    text.parse().unwrap()
}

#[test]
fn ranges_give_what_prometheus_gives() {
    let mut count = 0;
    for line in lines(include_str!("../oracle/ranges.txt")) {
        let mut fields = line.split(';').map(str::trim);
        let (head, samples) = (fields.next().unwrap(), fields.next().unwrap());
        let (value, notes) = (fields.next().unwrap(), fields.next().unwrap_or_default());
        let (found, noted) = Range::of(samples).apply(head);
        assert_eq!(found, value, "{line}");
        let notes = notes
            .split(", ")
            .filter(|note| !note.is_empty())
            .map(str::to_owned);
        assert_eq!(noted, BTreeSet::from_iter(notes), "{line}");
        count += 1;
    }
    assert!(count > 300, "{count}");
}

#[derive(Default)]
struct Range {
    times: Vec<i64>,
    values: Vec<f64>,
    starts: Vec<i64>,
    histogram_times: Vec<i64>,
    histograms: Vec<Arc<Histogram>>,
    histogram_starts: Vec<i64>,
}

impl Range {
    fn of(samples: &str) -> Self {
        let mut range = Self::default();
        for sample in samples.split(", ") {
            let (stamp, value) = sample.split_once('=').unwrap();
            let (time, start) = stamp
                .split_once('@')
                .map_or((stamp, None), |(time, start)| (time, Some(start)));
            let (time, start) = (
                time.parse().unwrap(),
                start.map(|start| start.parse::<i64>().unwrap()),
            );
            if value.starts_with('{') {
                range.histogram_times.push(time);
                range.histograms.push(Arc::new(Histogram::parse(value).unwrap()));
                range.histogram_starts.extend(start);
            } else {
                range.times.push(time);
                range.values.push(number(value));
                range.starts.extend(start);
            }
        }
        range
    }

    fn apply(&self, head: &str) -> (String, BTreeSet<String>) {
        let words: Vec<_> = head.split(' ').collect();
        let [name, extent, at, end, width, first, second] = words.as_slice() else {
            panic!("{head}")
        };
        let window = Window {
            at: at.parse().unwrap(),
            end: end.parse().unwrap(),
            width: width.parse().unwrap(),
            extent: match *extent {
                "anchored" => Extent::Anchored,
                "smoothed" => Extent::Smoothed,
                _ => Extent::Plain,
            },
            times: &self.times,
            values: &self.values,
            starts: &self.starts,
            histogram_times: &self.histogram_times,
            histograms: &self.histograms,
            histogram_starts: &self.histogram_starts,
        };
        let (mut noted, function) = (BTreeSet::new(), RangeFunction::of(name).unwrap());
        let parameters = [number(first), number(second)];
        let result = function.apply(&window, parameters, &mut Vec::new(), &mut |note| {
            noted.insert(name_of(note));
        });
        let value = match result.unwrap() {
            None => "none".to_owned(),
            Some(Point::Float(value)) => tideline_histogram::Shortest(value + 0.0).to_string(),
            Some(Point::Histogram(histogram)) => histogram.notation(),
        };
        (value, noted)
    }
}

fn name_of(note: Note) -> String {
    let of = |operation| match operation {
        HistogramOperation::Add => 0,
        HistogramOperation::Sub => 1,
        HistogramOperation::Aggregation => 2,
    };
    match note {
        Note::InvalidQuantile(_) => "InvalidQuantile".to_owned(),
        Note::MismatchedCustomBuckets(operation) => format!("MismatchedCustomBuckets{}", of(operation)),
        Note::CounterResetCollision(operation) => format!("CounterResetCollision{}", of(operation)),
        other => format!("{other:?}"),
    }
}

#[test]
fn distributions_return_what_prometheus_returns() {
    let mut count = 0;
    for line in lines(include_str!("../oracle/distributions.txt")) {
        let fields: Vec<_> = line.split('|').map(str::trim).collect();
        let [quantity, distribution, parameters @ .., expected] = fields.as_slice() else {
            panic!("{line}")
        };
        let parameters = parameters
            .iter()
            .flat_map(|all| all.split(' '))
            .map(number)
            .collect::<Vec<_>>();
        let (found, noted) = evaluate(quantity, distribution, &parameters);
        let mut expected = expected.split(' ');
        let value = number(expected.next().unwrap());
        let is_same = found == value || (found.is_nan() && value.is_nan());
        assert!(is_same, "{line}\ngives {found}");
        assert_eq!(noted, expected.collect::<Vec<_>>().join(" "), "{line}");
        count += 1;
    }
    assert!(count > 100, "{count}");
}

fn evaluate(quantity: &str, distribution: &str, parameters: &[f64]) -> (f64, String) {
    let mut noted = String::new();
    let notes = &mut |note| {
        noted = match note {
            Note::ForcedMonotonicity {
                bucket_min,
                bucket_max,
                difference_max,
            } => [bucket_min, bucket_max, difference_max]
                .map(|bound| tideline_histogram::Shortest(bound).to_string())
                .join(" "),
            Note::FractionNans => "fracnan".to_owned(),
            other => panic!("{other:?}"),
        };
    };
    let buckets = || {
        let bucket = |text: &str| {
            let (upper, count) = text.split_once(':').unwrap();
            Bucket {
                upper: number(upper),
                count: number(count),
            }
        };
        distribution.split(' ').map(bucket).collect::<Vec<_>>()
    };
    let native = || Histogram::parse(distribution).unwrap();
    let found = match (quantity, parameters) {
        ("numbers", [phi]) => {
            let mut numbers: Vec<_> = distribution.split_whitespace().map(number).collect();
            quantile(*phi, &mut numbers)
        }
        ("bucket_quantile", [phi]) => bucket_quantile(*phi, &mut buckets(), notes),
        ("bucket_fraction", [lower, upper]) => bucket_fraction(*lower, *upper, &mut buckets()),
        ("quantile", [phi]) => histogram_quantile(*phi, &native(), notes),
        ("fraction", [lower, upper]) => histogram_fraction(*lower, *upper, &native(), notes),
        ("variance", []) => variance(&native()),
        other => panic!("{other:?}"),
    };
    (found, noted)
}
