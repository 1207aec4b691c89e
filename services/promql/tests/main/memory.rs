//! In-memory source, and target for PromQL test scripts.
//!
//! Options change the order of series, precompute functions over time, and cancel queries.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use tideline_histogram::{Histogram, ResetHint, is_stale};
use tideline_promql::source::{NO_RESULT_BITS, OverTime, OverTimeFunction, SeriesData, Visit};
use tideline_promql::{
    Labels, Point, PromqlError, QueryParameters, Result, Samples, Select, Settings, Source, evaluate, parse,
};
use tideline_promqltest::{LoadedSeries, QueryResult, Target};

/// Series by labels.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) series: BTreeMap<Labels, Held>,
    /// True if each function drops metric names itself. Prometheus' scripts expect that names are dropped at the end of
    /// the evaluation.
    pub(crate) drops_names_early: bool,
    /// True if series are passed in reverse order, half of them by another thread.
    pub(crate) is_shuffled: bool,
    /// True if the source computes functions over time itself, for every second series.
    pub(crate) computes: bool,
    /// Number of series computed by the source.
    pub(crate) computed: AtomicUsize,
    /// Number of checks after which the query is canceled.
    pub(crate) checks_max: Option<usize>,
    pub(crate) checks: AtomicUsize,
}

/// Samples of a series.
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) times: Vec<i64>,
    pub(crate) values: Vec<f64>,
    pub(crate) starts: Vec<i64>,
    pub(crate) histogram_times: Vec<i64>,
    pub(crate) histograms: Vec<Histogram>,
    pub(crate) histogram_starts: Vec<i64>,
}

impl Held {
    fn push(&mut self, time: i64, start: i64, value: &Point) {
        match value {
            Point::Float(value) => {
                self.times.push(time);
                self.values.push(*value);
                self.starts.push(start);
            }
            Point::Histogram(histogram) => {
                let mut histogram = Histogram::clone(histogram);
                histogram.reset_hint = self.reset_hint(&histogram);
                self.histogram_times.push(time);
                self.histograms.push(histogram);
                self.histogram_starts.push(start);
            }
        }
    }

    /// Returns the reset hint of a histogram as Prometheus' storage sets it; unknown for the first histogram
    /// after a float.
    fn reset_hint(&self, histogram: &Histogram) -> ResetHint {
        let is_after_number = self.times.last() > self.histogram_times.last();
        histogram.reset_hint_after(self.histograms.last().filter(|_| !is_after_number))
    }

    fn samples(&self, select: &Select<'_>) -> Samples<'_> {
        let range = |times: &[i64]| {
            times.partition_point(|time| *time < select.start)
                ..times.partition_point(|time| *time <= select.end)
        };
        let (floats, histograms) = (range(&self.times), range(&self.histogram_times));
        let starts = |starts| if select.with_starts { starts } else { &[] as &[i64] };
        Samples {
            times: &self.times[floats.clone()],
            values: &self.values[floats.clone()],
            starts: starts(&self.starts[floats]),
            histogram_times: &self.histogram_times[histograms.clone()],
            histograms: &self.histograms[histograms.clone()],
            histogram_starts: starts(&self.histogram_starts[histograms]),
        }
    }
}

impl Source for Memory {
    fn select(&self, select: &Select<'_>, visit: &Visit<'_>) -> Result<()> {
        let mut found: Vec<_> = self
            .series
            .iter()
            .filter(|(labels, _)| {
                let mut matchers = select.matchers.iter();
                matchers.all(|matcher| matcher.matches(labels.get(&matcher.name).unwrap_or_default()))
            })
            .map(|(labels, held)| (labels, held.samples(select)))
            .filter(|(_, samples)| !samples.times.is_empty() || !samples.histogram_times.is_empty())
            .collect();
        let hand_out = |series: &[(&Labels, Samples<'_>)]| {
            series.iter().enumerate().try_for_each(|(at, (labels, samples))| {
                match select.over_time.filter(|_| self.computes && at % 2 == 0) {
                    Some(over_time) => {
                        self.computed.fetch_add(1, Ordering::Relaxed);
                        let (results, counts) = steps(samples, over_time);
                        let (results, counts) = (&results, &counts);
                        visit(labels, SeriesData::Steps { results, counts })
                    }
                    None => visit(labels, SeriesData::Samples(*samples)),
                }
            })
        };
        if !self.is_shuffled {
            return hand_out(&found);
        }
        found.reverse();
        let (first, second) = found.split_at(found.len() / 2);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| hand_out(second));
            hand_out(first).and(other.join().unwrap())
        })
    }

    fn check(&self) -> Result<()> {
        let checks = self.checks.fetch_add(1, Ordering::Relaxed);
        match self.checks_max {
            Some(max) if checks >= max => Err(PromqlError::Canceled("query execution")),
            _ => Ok(()),
        }
    }
}

/// Computes a function over time like a source with summaries.
fn steps(samples: &Samples<'_>, over_time: OverTime) -> (Vec<f64>, Vec<u64>) {
    let window = |step: usize| {
        let end = over_time.first + over_time.step * step as i64;
        let both = samples.times.iter().zip(samples.values);
        let inside = both
            .filter(|(time, value)| **time > end - over_time.width && **time <= end && !is_stale(**value));
        let values: Vec<f64> = inside.map(|(_, value)| *value).collect();
        let sum = values.iter().sum::<f64>();
        let result = match over_time.function {
            _ if values.is_empty() => f64::from_bits(NO_RESULT_BITS),
            OverTimeFunction::Sum => sum,
            OverTimeFunction::Avg => sum / values.len() as f64,
            OverTimeFunction::Min => values.iter().copied().fold(f64::INFINITY, f64::min),
            OverTimeFunction::Max => values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            OverTimeFunction::Count => values.len() as f64,
        };
        (result, values.len() as u64)
    };
    (0..over_time.steps).map(window).unzip()
}

/// Returns the settings of Prometheus' own tests.
pub(crate) fn settings() -> Settings {
    Settings {
        delayed_name_removal: true,
        start_timestamps: true,
        ..Settings::default()
    }
}

impl Memory {
    pub(crate) fn load_script(&mut self, text: &str) {
        let script = tideline_promqltest::Script::parse(text).unwrap();
        let report = tideline_promqltest::run(&script, self, tideline_promqltest::Options::default());
        assert_eq!(report.failures, []);
    }

    pub(crate) fn evaluate(
        &self,
        query: &str,
        times: (i64, i64, i64),
        settings: &Settings,
    ) -> Result<tideline_promql::QueryResult> {
        let expr = parse(query)?;
        let parameters = QueryParameters {
            text: query,
            start: times.0,
            end: times.1,
            step: times.2,
            lookback_delta: None,
        };
        evaluate(self, &expr, &parameters, settings)
    }

    fn answer(&self, query: &str, times: (i64, i64, i64)) -> std::result::Result<QueryResult, String> {
        let settings = Settings {
            delayed_name_removal: !self.drops_names_early,
            ..settings()
        };
        let answer = self
            .evaluate(query, times, &settings)
            .map_err(|error| error.to_string())?;
        Ok(QueryResult {
            value: answer.value,
            warnings: answer.warnings,
            infos: answer.infos,
        })
    }
}

impl Target for Memory {
    fn clear(&mut self) -> std::result::Result<(), String> {
        self.series.clear();
        Ok(())
    }

    fn load(&mut self, series: &[LoadedSeries]) -> std::result::Result<(), String> {
        for loaded in series {
            let held = self.series.entry(loaded.labels.clone()).or_default();
            for sample in &loaded.samples {
                held.push(sample.time, sample.start.unwrap_or(0), &sample.value);
            }
        }
        Ok(())
    }

    fn instant(&mut self, query: &str, time: i64) -> std::result::Result<QueryResult, String> {
        self.answer(query, (time, time, 0))
    }

    fn range(
        &mut self,
        query: &str,
        start: i64,
        end: i64,
        step: i64,
    ) -> std::result::Result<QueryResult, String> {
        self.answer(query, (start, end, step))
    }
}
