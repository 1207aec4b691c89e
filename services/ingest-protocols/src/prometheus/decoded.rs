//! What a body of samples held, and how many of each kind.

use tideline_model::PointBatch;

use super::metadata::MetricMetadata;

/// What is written at one instant of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SampleKind {
    /// A number.
    Sample,
    /// A native histogram.
    Histogram,
    /// An exemplar.
    Exemplar,
}

/// How many of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SampleCounts {
    /// Numbers.
    pub samples: u64,
    /// Native histograms.
    pub histograms: u64,
    /// Exemplars.
    pub exemplars: u64,
}

impl SampleCounts {
    pub(super) fn of(&mut self, kind: SampleKind) -> &mut u64 {
        match kind {
            SampleKind::Sample => &mut self.samples,
            SampleKind::Histogram => &mut self.histograms,
            SampleKind::Exemplar => &mut self.exemplars,
        }
    }
}

/// What a body held.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DecodedSamples {
    /// The rows and rejects. The line of a row counts everything in the body: samples, histograms and exemplars.
    pub batch: PointBatch,
    /// What is said about metrics, each name once.
    pub metadata: Vec<MetricMetadata>,
    /// How many rows of each kind the batch has.
    pub counts: SampleCounts,
    /// Where runs of one kind begin, as the line of their first row.
    pub(super) kinds: Vec<(u32, SampleKind)>,
}

/// A batch of a format without samples.
impl From<PointBatch> for DecodedSamples {
    fn from(batch: PointBatch) -> Self {
        Self {
            batch,
            ..Self::default()
        }
    }
}

impl DecodedSamples {
    /// Of what kind a row is, by its line.
    pub fn kind_of(&self, line: u32) -> SampleKind {
        let after = self.kinds.partition_point(|(first, _)| *first <= line);
        after
            .checked_sub(1)
            .map_or(SampleKind::Sample, |run| self.kinds[run].1)
    }

    /// How many of each kind are stored, where of the rows of the batch those of `refused` lines were not.
    pub fn stored(&self, refused: impl IntoIterator<Item = u32>) -> SampleCounts {
        let mut counts = self.counts;
        for line in refused {
            let count = counts.of(self.kind_of(line));
            *count = count.saturating_sub(1);
        }
        counts
    }
}
