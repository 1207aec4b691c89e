//! Whether a counter began anew between two histograms.

use crate::buckets::side_slots;
use crate::custom::is_reset_of_mismatched;
use crate::histogram::{Histogram, ResetHint, Span, is_stale};
use crate::schema::exponential_bound;
use crate::spans::coarser_index;

impl Histogram {
    /// Whether a counter was reset after the previous histogram: it says so, or anything but the sum of
    /// observations is less than it was.
    ///
    /// A finer schema or a narrower zero bucket come with a reset only. The previous histogram is looked at
    /// as if it had this one's schema and zero bucket. A gauge is looked at as if it were a counter.
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

    /// What is known of a reset once the histogram is compared with the one before in its series: none, if it
    /// has the same schema, bounds and zero bucket and nothing is less; else nothing, for who asks has to
    /// look at more. A gauge stays one, and a reset that the writer knows of stays known.
    ///
    /// A store hands out histograms so: a reset within a series is found once, not in every range that the
    /// sample is in.
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

    /// Whether a bucket holds less than it did, or a bucket that held something is gone. Buckets within the
    /// zero bucket are not looked at.
    fn is_less(&self, now: (&[Span], &[f64]), before: (&[Span], &[f64]), schema_before: i32) -> bool {
        let is_custom = self.uses_custom_buckets();
        // Looked at in the schema of each: in a coarser one, a bucket may reach above the zero bucket.
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

/// The buckets so many schemas down.
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
