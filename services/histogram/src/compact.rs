//! Removal of empty buckets and joining of spans.

use crate::buckets::side_slots;
use crate::histogram::{Histogram, Span};
use crate::spans::SpansBuilder;

impl Histogram {
    /// Removes empty buckets. Gaps of at most `empty_max` empty buckets between nonempty ones are kept, or
    /// filled in, so that both neighbors stay in one span.
    ///
    /// The usual value is 0. Memory grows with the gaps that are filled.
    pub fn compact(&mut self, empty_max: usize) {
        self.compact_with(empty_max, None);
    }

    /// Compacts like [`Self::compact`] and applies the same layout to the compensation. A bucket is empty
    /// only if its compensation is also 0.
    pub(crate) fn compact_with(&mut self, empty_max: usize, compensation: Option<&mut Self>) {
        let (positive, negative) = match compensation {
            Some(lost) => (Some(&mut lost.positive_buckets), Some(&mut lost.negative_buckets)),
            None => (None, None),
        };
        compact_side(
            &mut self.positive_spans,
            &mut self.positive_buckets,
            positive,
            empty_max,
        );
        compact_side(
            &mut self.negative_spans,
            &mut self.negative_buckets,
            negative,
            empty_max,
        );
    }
}

fn compact_side(
    spans: &mut Vec<Span>,
    buckets: &mut Vec<f64>,
    lost: Option<&mut Vec<f64>>,
    empty_max: usize,
) {
    let is_compact = buckets.iter().all(|count| *count != 0.0)
        && spans.iter().all(|span| span.length > 0)
        && spans.iter().skip(1).all(|span| span.offset as usize > empty_max);
    if is_compact {
        return;
    }
    let mut builder = SpansBuilder::default();
    let mut kept: Vec<(f64, f64)> = Vec::with_capacity(buckets.len());
    let mut before = None;
    for (at, (index, count)) in side_slots(spans, buckets).enumerate() {
        let lost = lost.as_ref().map_or(0.0, |lost| lost[at]);
        if count == 0.0 && lost == 0.0 {
            continue;
        }
        let gap = before.map_or(0..0, |before| before + 1..index);
        if gap.len() <= empty_max {
            kept.resize(kept.len() + gap.len(), (0.0, 0.0));
            gap.for_each(|index| builder.push(index));
        }
        builder.push(index);
        kept.push((count, lost));
        before = Some(index);
    }
    *spans = builder.build();
    buckets.clear();
    buckets.extend(kept.iter().map(|(count, _)| *count));
    if let Some(lost) = lost {
        lost.clear();
        lost.extend(kept.iter().map(|(_, lost)| *lost));
    }
}
