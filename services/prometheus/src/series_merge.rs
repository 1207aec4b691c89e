//! Merge of series that have several timelines: metrics with equal names and tags in several measurements.
//!
//! Such series are complete only when all their timelines are read, so their samples are held until then.

use hashbrown::HashMap;
use parking_lot::Mutex;
use tideline_engine::model::Ordinal;
use tideline_promql::source::SeriesData;
use tideline_promql::{Labels, Result};
use tideline_query::{QueryError, Watch};

use crate::failure;
use crate::held_bytes::HeldBytes;
use crate::names::Measurement;
use crate::samples::{Line, SampleBuffer};

/// Samples of series whose names occur in several measurements, held until all these measurements are read.
#[derive(Debug)]
pub(crate) struct SeriesMerge<'w> {
    watch: &'w Watch,
    series: Mutex<HashMap<Labels, Vec<Part<'w>>>>,
}

/// Samples of a series from one timeline.
#[derive(Debug)]
struct Part<'w> {
    ordinal: Ordinal,
    samples: SampleBuffer,
    _held: HeldBytes<'w>,
}

/// Returns a flag for each metric of each measurement: true if another measurement has a metric of the same name.
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

impl<'w> SeriesMerge<'w> {
    /// Creates an empty merge; held bytes count against the budget of `watch`.
    pub(crate) fn new(watch: &'w Watch) -> Self {
        let series = Mutex::default();
        Self { watch, series }
    }

    /// Adds the samples of a timeline. Returns an error if the budget or the memory account has no room for them.
    pub(crate) fn put(
        &self,
        labels: Labels,
        ordinal: Ordinal,
        samples: &SampleBuffer,
    ) -> std::result::Result<(), QueryError> {
        let mut held = HeldBytes::new(self.watch, "bytes of series shared by several measurements");
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

    /// Passes each series to `visit`.
    pub(crate) fn finish(self, visit: impl Fn(&Labels, SeriesData<'_>) -> Result<()>) -> Result<()> {
        for (labels, mut parts) in self.series.into_inner() {
            // For equal timestamps the timeline that was registered later wins.
            parts.sort_by_key(|part| part.ordinal);
            if let [part] = parts.as_mut_slice() {
                visit(&labels, SeriesData::Samples(part.samples.samples()))?;
                continue;
            }
            // The samples are held twice during the merge.
            let bytes = parts.iter().map(|part| part.samples.bytes()).sum();
            let mut held = HeldBytes::new(self.watch, "bytes of series shared by several measurements");
            held.set(bytes).map_err(|error| failure::of_query(&error))?;
            let mut merged = merge_buffers(parts.into_iter().map(|part| part.samples));
            visit(&labels, SeriesData::Samples(merged.samples()))?;
        }
        Ok(())
    }
}

/// Merges the samples of several buffers. For equal timestamps, the sample of the last buffer wins.
pub(crate) fn merge_buffers(parts: impl Iterator<Item = SampleBuffer>) -> SampleBuffer {
    let (numbers, histograms) = parts.map(|part| (part.numbers, part.histograms)).unzip();
    SampleBuffer::of(merge_lines(numbers), merge_lines(histograms))
}

/// Merges lines into one in ascending time order; for equal timestamps the last line wins.
fn merge_lines<T>(lines: Vec<Line<T>>) -> Line<T> {
    let mut all: Vec<(i64, T, i64)> = Vec::new();
    for line in lines {
        let starts = line.starts.into_iter().chain(std::iter::repeat(0));
        let each = line.times.into_iter().zip(line.values).zip(starts);
        all.extend(each.map(|((time, value), start)| (time, value, start)));
    }
    // The sort is stable: for equal timestamps later lines follow earlier ones and replace them.
    all.sort_by_key(|(time, ..)| *time);
    let mut merged = Line::default();
    all.into_iter()
        .for_each(|(time, value, start)| merged.push(time, value, start));
    merged
}
