//! Annotations of a query result: warnings and infos with Prometheus' texts.
//!
//! Annotations with equal texts are kept once. For overlapping start times and forced monotonicity, the number of
//! occurrences is kept too. The position in the query is appended only when the texts are built, so a thousand series
//! with the same problem produce one line.

mod text;

use std::collections::BTreeMap;
use std::fmt;

use crate::ast::TextRange;
use crate::note::Note;
use crate::number::{general, general_rounded};

pub use text::Annotation;

/// Maximum number of different warnings, and of different infos. A response shows far fewer, but an evaluation over
/// millions of steps may produce a different annotation at each step.
const KEPT_MAX: usize = 1_000;

/// Deduplicated annotations. At most 1,000 warnings and 1,000 infos are kept: the first in sorted order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Annotations {
    warnings: Remarks,
    infos: Remarks,
}

/// Warnings or infos by text.
#[derive(Debug, Clone, Default, PartialEq)]
struct Remarks {
    kept: BTreeMap<String, Entry>,
    /// True if annotations were omitted.
    omits: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    at: TextRange,
    detail: Detail,
}

/// Accumulated data of annotations with equal text.
#[derive(Debug, Clone, PartialEq)]
enum Detail {
    None,
    Overlaps(u64),
    Monotonicity {
        times: (i64, i64),
        buckets: (f64, f64),
        difference_max: f64,
        count: u64,
    },
}

impl Annotations {
    /// Adds an annotation on the expression at a position.
    pub fn add(&mut self, annotation: &Annotation<'_>, at: TextRange) {
        self.add_times(annotation, 1, at);
    }

    /// Adds an annotation that occurred `times` times.
    fn add_times(&mut self, annotation: &Annotation<'_>, times: u64, at: TextRange) {
        let detail = match *annotation {
            Annotation::StartTimeOverlap { .. } => Detail::Overlaps(times),
            Annotation::ForcedMonotonicity {
                time,
                bucket_min,
                bucket_max,
                difference_max,
                ..
            } => Detail::Monotonicity {
                times: (time, time),
                buckets: (bucket_min, bucket_max),
                difference_max,
                count: times,
            },
            _ => Detail::None,
        };
        let remarks = match annotation.is_info() {
            true => &mut self.infos,
            false => &mut self.warnings,
        };
        remarks.put(annotation.to_string(), Entry { at, detail });
    }

    /// Adds a function's note on samples of a metric at a timestamp in milliseconds.
    pub fn add_note(&mut self, note: Note, metric: &str, at: TextRange, time: i64) {
        self.add(&of_note(note, metric, time), at);
    }

    /// Adds a function's note that occurred `times` times on samples of a metric.
    pub(crate) fn add_note_times(&mut self, note: Note, times: u64, metric: &str, at: TextRange) {
        self.add_times(&of_note(note, metric, 0), times, at);
    }

    /// Returns the sorted texts of warnings and of infos. Each ends with its position in the query as
    /// `(line:column)`. If a list omits annotations, its last text reports the omission, without a
    /// position.
    pub fn texts(&self, query: &str) -> (Vec<String>, Vec<String>) {
        (
            self.warnings.texts(query, "warning"),
            self.infos.texts(query, "info"),
        )
    }
}

impl Remarks {
    /// Inserts an annotation. If the text exists, the details are merged and the new position
    /// replaces the old one.
    fn put(&mut self, text: String, mut entry: Entry) {
        if let Some(before) = self.kept.get_mut(&text) {
            entry.detail.merge(&before.detail);
            *before = entry;
            return;
        }
        self.kept.insert(text, entry);
        if self.kept.len() > KEPT_MAX {
            self.kept.pop_last();
            self.omits = true;
        }
    }

    fn texts(&self, query: &str, kind: &str) -> Vec<String> {
        let mut texts = Vec::with_capacity(self.kept.len() + 1);
        for (text, entry) in &self.kept {
            let position = position(query, entry.at.start);
            texts.push(format!("{text}{} ({position})", entry.detail));
        }
        if self.omits {
            texts.push(format!(
                "more than {KEPT_MAX} {kind} annotations: all others are omitted"
            ));
        }
        texts
    }
}

/// Converts a note on samples of a metric at a timestamp in milliseconds.
fn of_note(note: Note, metric: &str, time: i64) -> Annotation<'_> {
    match note {
        Note::MixedFloatsHistograms => Annotation::MixedFloatsHistograms { metric },
        Note::MixedExponentialCustomHistograms => Annotation::MixedExponentialCustomHistograms { metric },
        Note::NativeHistogramNotCounter => Annotation::NativeHistogramNotCounter { metric },
        Note::NativeHistogramNotGauge => Annotation::NativeHistogramNotGauge { metric },
        Note::StartTimeOverlap => Annotation::StartTimeOverlap { metric },
        Note::HistogramIgnoredInMixedRange => Annotation::HistogramIgnoredInMixedRange { metric },
        Note::InvalidQuantile(quantile) => Annotation::InvalidQuantile(quantile),
        Note::MismatchedCustomBuckets(operation) => Annotation::MismatchedCustomBuckets(operation),
        Note::CounterResetCollision(operation) => Annotation::CounterResetCollision(operation),
        Note::QuantileNanResult => Annotation::QuantileNanResult { metric },
        Note::QuantileNanSkew => Annotation::QuantileNanSkew { metric },
        Note::FractionNans => Annotation::FractionNans { metric },
        Note::ForcedMonotonicity {
            bucket_min,
            bucket_max,
            difference_max,
        } => Annotation::ForcedMonotonicity {
            metric,
            time,
            bucket_min,
            bucket_max,
            difference_max,
        },
    }
}

impl Detail {
    fn merge(&mut self, other: &Self) {
        match (self, other) {
            (Self::Overlaps(count), Self::Overlaps(others)) => *count += others,
            (
                Self::Monotonicity {
                    times,
                    buckets,
                    difference_max,
                    count,
                },
                Self::Monotonicity {
                    times: other_times,
                    buckets: other_buckets,
                    difference_max: other_difference_max,
                    count: others,
                },
            ) => {
                *times = (times.0.min(other_times.0), times.1.max(other_times.1));
                *buckets = (buckets.0.min(other_buckets.0), buckets.1.max(other_buckets.1));
                *difference_max = difference_max.max(*other_difference_max);
                *count += others;
            }
            _ => {}
        }
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None | Self::Overlaps(0 | 1) => Ok(()),
            Self::Overlaps(count) => write!(out, " ({count} occurrences)"),
            Self::Monotonicity {
                times,
                buckets,
                difference_max,
                count,
            } => write!(
                out,
                ", from buckets {} to {}, with a max diff of {}, over {count} samples from {} to {}",
                general(buckets.0),
                general(buckets.1),
                general_rounded(*difference_max, 2),
                crate::calendar::rfc3339(times.0.div_euclid(1000)),
                crate::calendar::rfc3339(times.1.div_euclid(1000)),
            ),
        }
    }
}

/// Formats a byte position as `line:column`, both from 1; the column is counted in bytes. Returns
/// `invalid position` for a position beyond the end of the query.
fn position(query: &str, byte: usize) -> String {
    let Some(before) = query.as_bytes().get(..byte) else {
        return "invalid position".to_owned();
    };
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let line_start = before
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    format!("{line}:{}", byte - line_start + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: usize) -> TextRange {
        TextRange {
            start,
            end: start + 1,
        }
    }

    #[test]
    fn equal_remarks_are_one_and_have_their_position() {
        let mut annotations = Annotations::default();
        for _ in 0..3 {
            annotations.add(&Annotation::PossibleNonCounter { metric: "up" }, at(5));
        }
        annotations.add(&Annotation::InvalidQuantile(1e6), at(8));
        let (warnings, infos) = annotations.texts("rate(\n  up)");
        assert_eq!(
            warnings,
            ["PromQL warning: quantile value should be between 0 and 1, got 1e+06 (2:3)"]
        );
        assert_eq!(
            infos,
            [
                "PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: \"up\" (1:6)"
            ]
        );
    }

    #[test]
    fn remarks_that_count_are_added_up() {
        let mut annotations = Annotations::default();
        let overlap = Annotation::StartTimeOverlap { metric: "m" };
        annotations.add(&overlap, at(0));
        assert!(annotations.texts("m").0[0].ends_with("for metric \"m\" (1:1)"));
        annotations.add_note_times(Note::StartTimeOverlap, 2, "m", at(0));
        assert!(annotations.texts("m").0[0].ends_with("for metric \"m\" (3 occurrences) (1:1)"));
        for (time, difference_max) in [(60_000, 0.25), (0, 0.123)] {
            let note = Note::ForcedMonotonicity {
                bucket_min: 0.1,
                bucket_max: 5.0,
                difference_max,
            };
            annotations.add_note(note, "", at(0), time);
        }
        assert_eq!(
            annotations.texts("m").1[0],
            "PromQL info: input to histogram_quantile needed to be fixed for monotonicity (see \
             https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile), from buckets 0.1 to 5, \
             with a max diff of 0.25, over 2 samples from 1970-01-01T00:00:00Z to 1970-01-01T00:01:00Z (1:1)"
        );
    }

    #[test]
    fn no_more_remarks_are_kept_than_anybody_reads() {
        let numbers = || (0..5_000).map(|number| format!("m{number:04}"));
        let texts = |metrics: &mut dyn Iterator<Item = String>| {
            let mut annotations = Annotations::default();
            for metric in metrics {
                annotations.add(&Annotation::PossibleNonCounter { metric: &metric }, at(0));
                annotations.add(&Annotation::InvalidQuantile(2.0), at(0));
            }
            annotations.texts("m")
        };
        let (warnings, infos) = texts(&mut numbers());
        assert_eq!(warnings.len(), 1);
        assert_eq!(infos.len(), 1_001);
        assert!(infos[999].contains("m0999"), "{}", infos[999]);
        assert_eq!(
            infos[1_000],
            "more than 1000 info annotations: all others are omitted"
        );
        assert_eq!(texts(&mut numbers().rev()), (warnings, infos));
    }
}
