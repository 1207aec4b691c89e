//! Detection of counter resets between two consecutive histograms of a series.
//!
//! A read sets the hint of each histogram from a comparison with its predecessor, so that the evaluation of a
//! query need not compare again.

use crate::buckets::side_slots;
use crate::custom::is_reset_of_mismatched;
use crate::histogram::{Histogram, ResetHint, Span, is_stale};
use crate::schema::exponential_bound;
use crate::spans::coarser_index;

impl Histogram {
    /// Returns true if a counter reset occurred between `previous` and this histogram. A hint
    /// [`ResetHint::Reset`] or [`ResetHint::NotReset`] of this histogram determines the result. With another
    /// hint, a reset is detected if the count, the zero count or a bucket count has decreased; the sum is
    /// ignored.
    ///
    /// A finer schema or a narrower zero bucket counts as a reset, because writers change to them only at a
    /// reset. A change between exponential and custom buckets also counts as a reset, and so does a wider zero
    /// bucket whose edge cuts a nonempty bucket of `previous`. In all other cases `previous` is compared at this
    /// histogram's schema and zero bucket, or on the custom bounds that both have. A gauge is treated like a
    /// counter.
    pub fn detect_reset(&self, previous: &Self) -> bool {
        match self.reset_hint {
            ResetHint::Reset => return true,
            ResetHint::NotReset => return false,
            ResetHint::Unknown | ResetHint::Gauge => {}
        }
        if self.count < previous.count {
            return true;
        }
        if self.uses_custom_buckets() {
            if !previous.uses_custom_buckets() {
                return true;
            }
            if self.custom_values != previous.custom_values {
                return is_reset_of_mismatched(self, previous);
            }
        }
        if self.schema > previous.schema || self.zero_threshold < previous.zero_threshold {
            return true;
        }
        let (zero_count, threshold) = previous.zero_count_up_to(self.zero_threshold, None);
        if threshold != self.zero_threshold || self.zero_count < zero_count.sum {
            return true;
        }
        self.is_less(
            (&self.positive_spans, &self.positive_buckets),
            (&previous.positive_spans, &previous.positive_buckets),
            previous.schema,
        ) || self.is_less(
            (&self.negative_spans, &self.negative_buckets),
            (&previous.negative_spans, &previous.negative_buckets),
            previous.schema,
        )
    }

    /// Returns the reset hint after comparison with the previous histogram of the series. The hint is
    /// [`ResetHint::NotReset`] if both have the same schema, bounds and zero threshold, [`Self::detect_reset`]
    /// returns false, and `previous` is not a gauge. A stale marker as `previous` is accepted only if this
    /// histogram is also a stale marker. Otherwise the hint is [`ResetHint::Unknown`], and readers must compare the
    /// histograms. The hints [`ResetHint::Gauge`] and [`ResetHint::Reset`] of the writer are kept.
    ///
    /// Reads of a series return histograms with this hint, so that a query compares each pair once and not in every
    /// range that contains the pair.
    pub fn reset_hint_after(&self, previous: Option<&Self>) -> ResetHint {
        if let ResetHint::Gauge | ResetHint::Reset = self.reset_hint {
            return self.reset_hint;
        }
        let is_continued = |previous: &Self| {
            let has_same_buckets = self.schema == previous.schema
                && self.zero_threshold == previous.zero_threshold
                && self.custom_values == previous.custom_values;
            has_same_buckets
                && previous.reset_hint != ResetHint::Gauge
                && (is_stale(self.sum) || !is_stale(previous.sum))
                && !self.detect_reset(previous)
        };
        match previous {
            Some(previous) if is_continued(previous) => ResetHint::NotReset,
            _ => ResetHint::Unknown,
        }
    }

    /// Returns true if a bucket count has decreased or a nonempty bucket is missing. Buckets within the zero
    /// bucket are ignored.
    fn is_less(&self, now: (&[Span], &[f64]), before: (&[Span], &[f64]), schema_before: i32) -> bool {
        let is_custom = self.uses_custom_buckets();
        // Each histogram is checked at its own schema, because a bucket of a coarser schema may extend beyond the zero
        // bucket.
        let is_within =
            |index: i32, schema: i32| !is_custom && exponential_bound(index, schema) <= self.zero_threshold;
        let first = now.0.first().map_or(0, |span| span.offset);
        if schema_before == self.schema && now.0 == before.0 && !is_within(first, self.schema) {
            return now.1.iter().zip(before.1).any(|(now, before)| now < before);
        }
        let now = side_slots(now.0, now.1).skip_while(|(index, _)| is_within(*index, self.schema));
        let before = side_slots(before.0, before.1).skip_while(|(index, _)| is_within(*index, schema_before));
        let down = if is_custom {
            0
        } else {
            schema_before.abs_diff(self.schema)
        };
        let mut now = now.peekable();
        for (index, count_before) in coarser(before, down) {
            while now.next_if(|(at, _)| *at < index).is_some() {}
            let is_less = match now.next_if(|(at, _)| *at == index) {
                Some((_, count)) => count < count_before,
                None => count_before != 0.0,
            };
            if is_less {
                return true;
            }
        }
        false
    }
}

/// Merges buckets to a schema that is `down` steps coarser.
fn coarser(slots: impl Iterator<Item = (i32, f64)>, down: u32) -> impl Iterator<Item = (i32, f64)> {
    let index_of = move |index: i32| {
        if down == 0 {
            index
        } else {
            coarser_index(index, down)
        }
    };
    let mut slots = slots
        .map(move |(index, count)| (index_of(index), count))
        .peekable();
    std::iter::from_fn(move || {
        let (index, mut count) = slots.next()?;
        while let Some((_, more)) = slots.next_if(|(next, _)| *next == index) {
            count += more;
        }
        Some((index, count))
    })
}
