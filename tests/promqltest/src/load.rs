//! Series to load: values at regular steps, their start timestamps, conversion of classic histograms to
//! native histograms.
//!
//! Lines are read one by one. A line with start timestamps (`metric@st`) applies to the next line.

use std::collections::BTreeMap;
use std::sync::Arc;

use tideline_promql::histogram::ClassicHistogram;
use tideline_promql::labels::METRIC_NAME;
use tideline_promql::{Labels, Point, parse_duration};

use crate::series::{self, Value};

/// Series with the samples to add to it.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedSeries {
    /// Labels of the series.
    pub labels: Labels,
    /// Samples by rising timestamp.
    pub samples: Vec<LoadedSample>,
}

/// Sample to add.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedSample {
    /// Timestamp in milliseconds.
    pub time: i64,
    /// Start timestamp in milliseconds; `None` if unknown.
    pub start: Option<i64>,
    /// Value; a float may be a stale marker.
    pub value: Point,
}

/// Builder of the series in a `load` command.
pub(crate) struct Loading {
    /// Distance between two values in milliseconds.
    step: i64,
    series: BTreeMap<Labels, Vec<LoadedSample>>,
    /// Labels and start timestamps for the next line; the timestamps are relative to the samples.
    starts: Option<(Labels, Vec<Option<i64>>)>,
}

impl Loading {
    pub(crate) fn new(step: i64) -> Self {
        Self {
            step,
            series: BTreeMap::new(),
            starts: None,
        }
    }

    pub(crate) fn add(&mut self, line: &str) -> Result<(), String> {
        let (head, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        if let Some(metric) = head.strip_suffix("@st") {
            if self.starts.is_some() {
                return Err("start times (@st) without samples on the next line".to_owned());
            }
            self.starts = Some((series::labels(metric)?, start_offsets(rest)?));
            return Ok(());
        }
        let (labels, values) = series::parse(line)?;
        let starts = match self.starts.take() {
            None => vec![None; values.len()],
            Some((of, starts)) if of == labels && starts.len() == values.len() => starts,
            Some(_) => return Err("start times (@st) do not match the series on the next line".to_owned()),
        };
        let samples = values.into_iter().zip(starts).enumerate();
        let samples = samples.filter_map(|(at, (value, start))| {
            let time = at as i64 * self.step;
            let value = match value {
                Value::Omitted => return None,
                Value::Float(value) => Point::Float(value),
                Value::Histogram { histogram, .. } => Point::Histogram(histogram),
            };
            Some(LoadedSample {
                time,
                start: start.map(|start| time + start),
                value,
            })
        });
        let samples = samples.collect();
        self.series.insert(labels, samples);
        Ok(())
    }

    pub(crate) fn finish(mut self, with_histograms: bool) -> Result<Vec<LoadedSeries>, String> {
        if self.starts.is_some() {
            return Err("start times (@st) without samples on the next line".to_owned());
        }
        if with_histograms {
            let converted = converted(&self.series)?;
            self.series.extend(converted);
        }
        let series = self.series.into_iter();
        Ok(series
            .map(|(labels, samples)| LoadedSeries { labels, samples })
            .collect())
    }
}

/// Converts the classic histograms among the series to native histograms with custom bounds.
fn converted(
    series: &BTreeMap<Labels, Vec<LoadedSample>>,
) -> Result<BTreeMap<Labels, Vec<LoadedSample>>, String> {
    let mut classic: BTreeMap<Labels, BTreeMap<i64, ClassicHistogram>> = BTreeMap::new();
    for (labels, samples) in series {
        let name = labels.metric_name().unwrap_or_default();
        let Some((base, part)) = name.rsplit_once('_') else {
            continue;
        };
        let upper = labels.get("le").and_then(|bound| bound.parse::<f64>().ok());
        let is_part = match part {
            "bucket" => upper.is_some_and(|upper| !upper.is_nan()),
            "count" | "sum" => true,
            _ => false,
        };
        if !is_part {
            continue;
        }
        let mut builder = labels.to_builder();
        builder.set(METRIC_NAME, base).remove("le");
        let histograms = classic.entry(builder.build()).or_default();
        for sample in samples {
            let Point::Float(value) = sample.value else {
                continue;
            };
            let histogram = histograms.entry(sample.time).or_default();
            match (part, upper) {
                ("bucket", Some(upper)) => histogram.set_bucket(upper, value),
                ("count", _) => histogram.set_count(value),
                _ => histogram.set_sum(value),
            }
        }
    }
    let native = |(labels, histograms): (Labels, BTreeMap<i64, ClassicHistogram>)| {
        let samples = histograms.into_iter().map(|(time, classic)| {
            let histogram = classic
                .to_histogram()
                .map_err(|error| format!("{labels}: {error}"))?;
            Ok(LoadedSample {
                time,
                start: None,
                value: Point::Histogram(Arc::new(histogram)),
            })
        });
        let samples = samples.collect::<Result<_, String>>()?;
        Ok((labels.clone(), samples))
    };
    classic.into_iter().map(native).collect()
}

/// Parses start timestamps relative to samples, in milliseconds: `-1m`, `0sx5`, `-30s-1mx3`, `_`, `_x2`.
fn start_offsets(text: &str) -> Result<Vec<Option<i64>>, String> {
    let mut offsets = Vec::new();
    for item in text.split_whitespace() {
        expand(item, &mut offsets).ok_or_else(|| format!("{item} is not a start time"))?;
    }
    Ok(offsets)
}

fn expand(item: &str, offsets: &mut Vec<Option<i64>>) -> Option<()> {
    if let Some(rest) = item.strip_prefix('_') {
        let count = if rest.is_empty() {
            1
        } else {
            rest.strip_prefix('x')?.parse().ok()?
        };
        offsets.extend(std::iter::repeat_n(None, count));
        return Some(());
    }
    let (first, rest) = signed_duration(item)?;
    if rest.is_empty() {
        offsets.push(Some(first));
        return Some(());
    }
    let (step, rest) = if rest.starts_with('x') {
        (0, rest)
    } else {
        signed_duration(rest)?
    };
    let count: i64 = rest.strip_prefix('x')?.parse().ok()?;
    offsets.extend((0..=count).map(|at| Some(first + at * step)));
    Some(())
}

/// Parses a signed duration at the start of a text. Returns milliseconds and the rest of the text.
fn signed_duration(text: &str) -> Option<(i64, &str)> {
    let unsigned = text.trim_start_matches(['+', '-']);
    let is_negative = text.starts_with('-');
    let digits = unsigned
        .find(|at: char| !at.is_ascii_digit())
        .unwrap_or(unsigned.len());
    let unit = unsigned[digits..]
        .find(|at: char| !at.is_ascii_alphabetic() || at == 'x')
        .unwrap_or(unsigned.len() - digits);
    let (duration, rest) = unsigned.split_at(digits + unit);
    let milliseconds = parse_duration(duration).ok()?;
    Some((if is_negative { -milliseconds } else { milliseconds }, rest))
}
