//! What an answer says about itself: warnings and infos, in Prometheus' words.
//!
//! The same remark made many times is kept once; remarks that count are added up. The place in the query is written
//! behind the text when the answer is made, so that a remark of a thousand series is one line.

mod text;

use std::collections::BTreeMap;
use std::fmt;

use crate::ast::TextRange;
use crate::note::Note;
use crate::number::{general, general_rounded};

pub use text::Annotation;

/// Remarks, each once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Annotations(BTreeMap<String, Entry>);

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    is_info: bool,
    at: TextRange,
    detail: Detail,
}

/// What remarks of equal text add up to.
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
    /// Adds a remark on what stands at a place.
    pub fn add(&mut self, annotation: &Annotation<'_>, at: TextRange) {
        let detail = match *annotation {
            Annotation::StartTimeOverlap { .. } => Detail::Overlaps(1),
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
                count: 1,
            },
            _ => Detail::None,
        };
        let is_info = annotation.is_info();
        self.put(annotation.to_string(), Entry { is_info, at, detail });
    }

    /// Adds what a function noted on samples of a metric at an instant, in milliseconds.
    pub fn add_note(&mut self, note: Note, metric: &str, at: TextRange, time: i64) {
        let annotation = match note {
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
        };
        self.add(&annotation, at);
    }

    /// Adds all remarks of others.
    pub fn merge(&mut self, others: Self) {
        for (text, entry) in others.0 {
            self.put(text, entry);
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Warnings and infos, each sorted, with their places as `(line:column)` in the text of the query.
    pub fn texts(&self, query: &str) -> (Vec<String>, Vec<String>) {
        let (mut warnings, mut infos) = (Vec::new(), Vec::new());
        for (text, entry) in &self.0 {
            let place = place(query, entry.at.start);
            let list = if entry.is_info { &mut infos } else { &mut warnings };
            list.push(format!("{text}{} ({place})", entry.detail));
        }
        (warnings, infos)
    }

    /// The later of equal remarks has the place.
    fn put(&mut self, text: String, mut entry: Entry) {
        if let Some(before) = self.0.get(&text) {
            entry.detail.merge(&before.detail);
        }
        self.0.insert(text, entry);
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

/// `line:column` of a byte, both from 1; the column is in bytes.
fn place(query: &str, byte: usize) -> String {
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
    fn equal_remarks_are_one_and_have_their_place() {
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
        let mut others = Annotations::default();
        others.add(&overlap, at(0));
        others.add(&overlap, at(0));
        annotations.merge(others);
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
}
