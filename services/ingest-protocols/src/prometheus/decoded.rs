//! Result of decoding a body of samples, with counts by kind.

use tideline_model::PointBatch;

use super::metadata::MetricMetadata;

/// Kind of a stored row of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SampleKind {
    /// Float sample.
    Sample,
    /// Native histogram.
    Histogram,
    /// Exemplar.
    Exemplar,
    /// Float sample of `target_info`, which the decoder adds to the samples of the body.
    Target,
}

/// Number of rows of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SampleCounts {
    /// Number of float samples, including those of `target_info`.
    pub samples: u64,
    /// Number of native histograms.
    pub histograms: u64,
    /// Number of exemplars.
    pub exemplars: u64,
}

impl SampleCounts {
    pub(super) fn of(&mut self, kind: SampleKind) -> &mut u64 {
        match kind {
            SampleKind::Sample | SampleKind::Target => &mut self.samples,
            SampleKind::Histogram => &mut self.histograms,
            SampleKind::Exemplar => &mut self.exemplars,
        }
    }
}

/// Result of decoding a body.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DecodedSamples {
    /// Rows and rejects. The `line` of a row is its position among all samples, histograms, exemplars and rejects of
    /// the body, starting at 1. In OTLP, all samples and histograms of a data point share one line.
    pub batch: PointBatch,
    /// Metadata of metrics, one entry per name.
    pub metadata: Vec<MetricMetadata>,
    /// Number of rows of each kind in the batch.
    pub counts: SampleCounts,
    /// Runs of rows of one kind: the line of the first row, and the kind.
    pub(super) kinds: Vec<(u32, SampleKind)>,
    /// Number of data points of an OTLP body; 0 for other formats.
    pub points: u64,
    /// Number of rejected data points that no reject lists individually: one reject applies to all points of a metric,
    /// or the points were not read because a limit was reached.
    pub(super) unlisted_points: u64,
}

/// Conversion of a batch whose format has no Prometheus samples; all counts are zero.
impl From<PointBatch> for DecodedSamples {
    fn from(batch: PointBatch) -> Self {
        Self {
            batch,
            ..Self::default()
        }
    }
}

impl DecodedSamples {
    /// Returns the kind of the row or reject with this line.
    pub fn kind_of(&self, line: u32) -> SampleKind {
        let after = self.kinds.partition_point(|(first, _)| *first <= line);
        after
            .checked_sub(1)
            .map_or(SampleKind::Sample, |run| self.kinds[run].1)
    }

    /// Returns the number of rejected data points of an OTLP body, given the lines of all rejects in rising order.
    pub fn rejected_points(&self, lines: impl IntoIterator<Item = u32>) -> u64 {
        let (mut count, mut last) = (self.unlisted_points, None);
        for line in lines {
            let is_point = matches!(self.kind_of(line), SampleKind::Sample | SampleKind::Histogram);
            count += u64::from(is_point && last.replace(line) != Some(line));
        }
        count.min(self.points)
    }

    /// Returns the number of stored rows of each kind, given the `refused` lines of rows that the table rejected.
    pub fn stored(&self, refused: impl IntoIterator<Item = u32>) -> SampleCounts {
        let mut counts = self.counts;
        for line in refused {
            let count = counts.of(self.kind_of(line));
            *count = count.saturating_sub(1);
        }
        counts
    }
}
