//! Series of several timelines: measurements that spell one name, with equal tags.

use hashbrown::HashMap;
use parking_lot::Mutex;
use tideline_histogram::Histogram;
use tideline_model::Ordinal;
use tideline_promql::source::SeriesData;
use tideline_promql::{Labels, Result};
use tideline_query::Watch;

use crate::failure;
use crate::names::Measurement;
use crate::samples::{Line, SampleBuffer};

/// Samples of series whose names several measurements have, until all of these are read.
#[derive(Debug, Default)]
pub(crate) struct Unions(Mutex<HashMap<Labels, Vec<(Ordinal, SampleBuffer)>>>);

/// For each metric of each measurement, whether another measurement has one of its name.
pub(crate) fn shared_names(measurements: &[Measurement]) -> Vec<Vec<bool>> {
    let mut bearers: HashMap<&str, usize> = HashMap::new();
    if measurements.len() > 1 {
        for metric in measurements.iter().flat_map(|of| &of.metrics) {
            *bearers.entry(&metric.name).or_default() += 1;
        }
    }
    let is_shared = |name: &str| bearers.get(name).is_some_and(|bearers| *bearers > 1);
    let of_each = measurements.iter();
    of_each
        .map(|of| of.metrics.iter().map(|metric| is_shared(&metric.name)).collect())
        .collect()
}

impl Unions {
    /// Takes the samples of a timeline; fails where all would take more memory than is allowed.
    pub(crate) fn put(
        &self,
        labels: Labels,
        ordinal: Ordinal,
        samples: &SampleBuffer,
        watch: &Watch,
    ) -> Result<()> {
        let held = watch.hold(0, samples.bytes());
        held.map_err(|error| failure::of_query(&error))?;
        self.0
            .lock()
            .entry(labels)
            .or_default()
            .push((ordinal, samples.clone()));
        Ok(())
    }

    /// Hands out each series.
    pub(crate) fn finish(self, visit: impl Fn(&Labels, SeriesData<'_>) -> Result<()>) -> Result<()> {
        for (labels, mut parts) in self.0.into_inner() {
            // At one instant, what was registered later wins.
            parts.sort_by_key(|(ordinal, _)| *ordinal);
            let mut united = match parts.len() {
                1 => parts.remove(0).1,
                _ => united(parts.into_iter().map(|(_, part)| part).collect()),
            };
            visit(&labels, SeriesData::Samples(united.samples()))?;
        }
        Ok(())
    }
}

fn united(parts: Vec<SampleBuffer>) -> SampleBuffer {
    let (numbers, histograms): (Vec<Line<f64>>, Vec<Line<Histogram>>) = parts
        .into_iter()
        .map(|part| (part.numbers, part.histograms))
        .unzip();
    SampleBuffer {
        numbers: merged(numbers),
        histograms: merged(histograms),
    }
}

/// All by rising instants; at one instant the last line's.
fn merged<T>(lines: Vec<Line<T>>) -> Line<T> {
    let mut all: Vec<(i64, T, i64)> = Vec::new();
    for line in lines {
        let starts = line.starts.into_iter().chain(std::iter::repeat(0));
        let each = line.times.into_iter().zip(line.values).zip(starts);
        all.extend(each.map(|((time, value), start)| (time, value, start)));
    }
    // Stable: at one instant later lines stay behind earlier ones, and replace them.
    all.sort_by_key(|(time, ..)| *time);
    let mut merged = Line::default();
    all.into_iter()
        .for_each(|(time, value, start)| merged.push(time, value, start));
    merged
}
