//! Series of several timelines: measurements that spell one name, with equal tags.

use hashbrown::HashMap;
use parking_lot::Mutex;
use tideline_engine::model::Ordinal;
use tideline_promql::source::SeriesData;
use tideline_promql::{Labels, Result};
use tideline_query::{QueryError, Watch};

use crate::failure;
use crate::held::Held;
use crate::names::Measurement;
use crate::samples::{Line, SampleBuffer};

/// Samples of series whose names several measurements have, until all of these are read.
#[derive(Debug)]
pub(crate) struct Unions<'w> {
    watch: &'w Watch,
    series: Mutex<HashMap<Labels, Vec<Part<'w>>>>,
}

/// The samples that one timeline has of a series.
#[derive(Debug)]
struct Part<'w> {
    ordinal: Ordinal,
    samples: SampleBuffer,
    _held: Held<'w>,
}

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

impl<'w> Unions<'w> {
    /// None yet; what is held of them counts against the budget of a watch.
    pub(crate) fn new(watch: &'w Watch) -> Self {
        let series = Mutex::default();
        Self { watch, series }
    }

    /// Takes the samples of a timeline; fails where all would take more memory than is allowed.
    pub(crate) fn put(
        &self,
        labels: Labels,
        ordinal: Ordinal,
        samples: &SampleBuffer,
    ) -> std::result::Result<(), QueryError> {
        let mut held = Held::new(self.watch, "bytes of series that several measurements have");
        let samples = samples.clone();
        held.set(samples.bytes())?;
        let part = Part {
            ordinal,
            samples,
            _held: held,
        };
        self.series.lock().entry(labels).or_default().push(part);
        Ok(())
    }

    /// Hands out each series.
    pub(crate) fn finish(self, visit: impl Fn(&Labels, SeriesData<'_>) -> Result<()>) -> Result<()> {
        for (labels, mut parts) in self.series.into_inner() {
            // At one instant, what was registered later wins.
            parts.sort_by_key(|part| part.ordinal);
            if let [part] = parts.as_mut_slice() {
                visit(&labels, SeriesData::Samples(part.samples.samples()))?;
                continue;
            }
            // They are there twice while they are joined.
            let bytes = parts.iter().map(|part| part.samples.bytes()).sum();
            let mut held = Held::new(self.watch, "bytes of series that several measurements have");
            held.set(bytes).map_err(|error| failure::of_query(&error))?;
            let mut united = united(parts.into_iter().map(|part| part.samples));
            visit(&labels, SeriesData::Samples(united.samples()))?;
        }
        Ok(())
    }
}

/// All samples of some lines; at one instant those of the last.
pub(crate) fn united(parts: impl Iterator<Item = SampleBuffer>) -> SampleBuffer {
    let (numbers, histograms) = parts.map(|part| (part.numbers, part.histograms)).unzip();
    SampleBuffer::of(merged(numbers), merged(histograms))
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
