//! Addition and subtraction of histograms.
//!
//! 1. Both operands must be exponential, or both must have custom bounds.
//! 2. Exponential operands are converted to a common zero bucket and to the coarser of their schemas; custom
//!    bounds are reduced to those that both have.
//! 3. Counts of equal bucket indices are added; other buckets are inserted in order.

use std::borrow::Cow;

use tideline_model::CompensatedSum;

use crate::buckets::side_slots;
use crate::custom::add_mismatched;
use crate::histogram::{Histogram, ResetHint, Span};
use crate::schema::exponential_bound;
use crate::spans::SpansBuilder;
use crate::validate::HistogramError;

/// Conditions of an addition or subtraction that the caller may report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// True if one operand has the hint [`ResetHint::Reset`] and the other [`ResetHint::NotReset`]. The
    /// result then has [`ResetHint::Unknown`].
    pub counter_reset_collision: bool,
    /// True if the custom bounds differed. The result has only the bounds that both operands have.
    pub bounds_reconciled: bool,
}

/// Addition or subtraction of the other histogram's counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    Plus,
    Minus,
}

impl Sign {
    pub(crate) fn of(self, number: f64) -> f64 {
        match self {
            Self::Plus => number,
            Self::Minus => -number,
        }
    }
}

/// Adds a number to a sum that is held with its compensation as two separate fields.
#[inline]
pub(crate) fn add_compensated(number: f64, sum: f64, compensation: f64) -> (f64, f64) {
    let mut sum = CompensatedSum { sum, compensation };
    sum.add(number);
    (sum.sum, sum.compensation)
}

impl Histogram {
    /// Adds another histogram. Empty buckets may remain; [`Self::compact`] removes them.
    ///
    /// # Errors
    ///
    /// Returns [`HistogramError::IncompatibleSchema`] if only one of the two has custom bounds.
    pub fn add(&mut self, other: &Self) -> Result<Outcome, HistogramError> {
        self.combine(other, Sign::Plus)
    }

    /// Subtracts another histogram. The reset hint is combined as in [`Self::add`]; for PromQL's `-`, the
    /// caller sets it to [`ResetHint::Gauge`].
    ///
    /// # Errors
    ///
    /// Returns [`HistogramError::IncompatibleSchema`] if only one of the two has custom bounds.
    pub fn sub(&mut self, other: &Self) -> Result<Outcome, HistogramError> {
        self.combine(other, Sign::Minus)
    }

    /// Adds another histogram like [`Self::add`] and collects the rounding errors in `compensation`, which
    /// the first call creates.
    ///
    /// The total of many additions is `sum.add(&compensation)`.
    ///
    /// # Errors
    ///
    /// Returns [`HistogramError::IncompatibleSchema`] if only one of the two has custom bounds.
    pub fn kahan_add(
        &mut self,
        other: &Self,
        compensation: &mut Option<Self>,
    ) -> Result<Outcome, HistogramError> {
        self.check_compatible(other)?;
        let compensation = compensation.get_or_insert_with(|| self.empty_compensation());
        let mut outcome = Outcome {
            counter_reset_collision: self.adjust_reset_hint(other),
            ..Outcome::default()
        };
        if !self.uses_custom_buckets() {
            let (count, lost) = self.reconcile_zero_buckets(other, Some(&mut *compensation));
            let zero = add_compensated(count, self.zero_count, compensation.zero_count);
            (self.zero_count, compensation.zero_count) = add_compensated(lost, zero.0, zero.1);
        }
        (self.count, compensation.count) = add_compensated(other.count, self.count, compensation.count);
        (self.sum, compensation.sum) = add_compensated(other.sum, self.sum, compensation.sum);
        if self.has_other_bounds(other) {
            outcome.bounds_reconciled = true;
            add_mismatched(self, other, Sign::Plus, Some(compensation));
            return Ok(outcome);
        }
        self.reduce_compensated(compensation, other.schema);
        let (other, other_lost) = other.at_layout_compensated(self);
        self.add_sides(&other, other_lost.as_ref(), Some(&mut *compensation), Sign::Plus);
        compensation.take_layout_of(self);
        Ok(outcome)
    }

    fn combine(&mut self, other: &Self, sign: Sign) -> Result<Outcome, HistogramError> {
        self.check_compatible(other)?;
        let mut outcome = Outcome {
            counter_reset_collision: self.adjust_reset_hint(other),
            ..Outcome::default()
        };
        if !self.uses_custom_buckets() {
            let (count, _) = self.reconcile_zero_buckets(other, None);
            self.zero_count += sign.of(count);
        }
        self.count += sign.of(other.count);
        self.sum += sign.of(other.sum);
        if self.has_other_bounds(other) {
            outcome.bounds_reconciled = true;
            add_mismatched(self, other, sign, None);
            return Ok(outcome);
        }
        self.reduce_resolution(other.schema);
        let other = other.at_layout(self);
        self.add_sides(&other, None, None, sign);
        Ok(outcome)
    }

    /// Adds or subtracts the buckets and compensations of another histogram of the same schema, on both sides.
    fn add_sides(&mut self, other: &Self, lost: Option<&Self>, compensation: Option<&mut Self>, sign: Sign) {
        let threshold = self.threshold();
        let (positive, negative) = compensation
            .map(|lost| (&mut lost.positive_buckets, &mut lost.negative_buckets))
            .unzip();
        let mut positive = SideMut {
            spans: &mut self.positive_spans,
            buckets: &mut self.positive_buckets,
            compensation: positive,
        };
        let lost_counts = lost.map(|lost| lost.positive_buckets.as_slice());
        let (spans, buckets) = (&other.positive_spans, &other.positive_buckets);
        positive.add(spans, buckets, lost_counts, sign, threshold);
        let mut negative = SideMut {
            spans: &mut self.negative_spans,
            buckets: &mut self.negative_buckets,
            compensation: negative,
        };
        let lost_counts = lost.map(|lost| lost.negative_buckets.as_slice());
        let (spans, buckets) = (&other.negative_spans, &other.negative_buckets);
        negative.add(spans, buckets, lost_counts, sign, threshold);
    }

    fn check_compatible(&self, other: &Self) -> Result<(), HistogramError> {
        match self.uses_custom_buckets() == other.uses_custom_buckets() {
            true => Ok(()),
            false => Err(HistogramError::IncompatibleSchema),
        }
    }

    fn has_other_bounds(&self, other: &Self) -> bool {
        self.uses_custom_buckets() && self.custom_values != other.custom_values
    }

    /// Returns the histogram reduced to the schema of `sum`, without its buckets within the zero bucket of `sum`.
    /// If its schema is not finer than that of `sum`, the histogram is borrowed unchanged.
    fn at_layout(&self, sum: &Self) -> Cow<'_, Self> {
        if self.schema <= sum.schema {
            return Cow::Borrowed(self);
        }
        let mut coarser = self.without_buckets_within(sum.zero_threshold);
        coarser.reduce_resolution(sum.schema);
        Cow::Owned(coarser)
    }

    /// Converts like [`Self::at_layout`] and returns the rounding errors of the conversion as well.
    fn at_layout_compensated(&self, sum: &Self) -> (Cow<'_, Self>, Option<Self>) {
        if self.schema <= sum.schema {
            return (Cow::Borrowed(self), None);
        }
        let (mut coarser, mut compensation) = (
            self.without_buckets_within(sum.zero_threshold),
            self.empty_compensation(),
        );
        coarser.reduce_compensated(&mut compensation, sum.schema);
        (Cow::Owned(coarser), Some(compensation))
    }

    /// Clones the histogram and sets all buckets within the zero bucket of this threshold to 0. The counts of these
    /// buckets are already in the zero bucket. In a coarser schema, these counts could become part of a bucket that
    /// extends beyond the zero bucket, and be counted twice.
    fn without_buckets_within(&self, zero_threshold: f64) -> Self {
        let mut copy = self.clone();
        let is_within = |(index, _): &(i32, f64)| exponential_bound(*index, self.schema) <= zero_threshold;
        let sides = [
            (&self.positive_spans, &mut copy.positive_buckets),
            (&self.negative_spans, &mut copy.negative_buckets),
        ];
        for (spans, buckets) in sides {
            let within = side_slots(spans, buckets).take_while(is_within).count();
            buckets[..within].fill(0.0);
        }
        copy
    }

    /// Returns schema and zero threshold; `None` for custom bounds. Buckets of the other histogram within the
    /// threshold are already counted in the zero bucket.
    fn threshold(&self) -> Option<(i32, f64)> {
        (!self.uses_custom_buckets()).then_some((self.schema, self.zero_threshold))
    }

    /// Creates an empty histogram of the same layout, which collects the rounding error of each bucket.
    fn empty_compensation(&self) -> Self {
        Self {
            reset_hint: self.reset_hint,
            schema: self.schema,
            zero_threshold: self.zero_threshold,
            custom_values: self.custom_values.clone(),
            positive_spans: self.positive_spans.clone(),
            negative_spans: self.negative_spans.clone(),
            positive_buckets: vec![0.0; self.positive_buckets.len()],
            negative_buckets: vec![0.0; self.negative_buckets.len()],
            ..Self::default()
        }
    }

    fn take_layout_of(&mut self, sum: &Self) {
        self.schema = sum.schema;
        self.zero_threshold = sum.zero_threshold;
        self.positive_spans.clone_from(&sum.positive_spans);
        self.negative_spans.clone_from(&sum.negative_spans);
    }

    /// Combines the reset hints of both operands. Returns true if they contradict each other.
    fn adjust_reset_hint(&mut self, other: &Self) -> bool {
        let (own, others) = (self.reset_hint, other.reset_hint);
        self.reset_hint = match (own, others) {
            _ if own == others => own,
            (ResetHint::Gauge, _) | (_, ResetHint::Gauge) => ResetHint::Gauge,
            _ => ResetHint::Unknown,
        };
        matches!(
            (own, others),
            (ResetHint::Reset, ResetHint::NotReset) | (ResetHint::NotReset, ResetHint::Reset)
        )
    }
}

/// Mutable buckets of one side, the target of an addition.
struct SideMut<'a> {
    spans: &'a mut Vec<Span>,
    buckets: &'a mut Vec<f64>,
    compensation: Option<&'a mut Vec<f64>>,
}

impl SideMut<'_> {
    /// Adds or subtracts the buckets of the same side of another histogram, except those within the zero bucket.
    fn add(
        &mut self,
        spans: &[Span],
        buckets: &[f64],
        lost: Option<&[f64]>,
        sign: Sign,
        threshold: Option<(i32, f64)>,
    ) {
        let in_zero = |index: i32| {
            threshold.is_some_and(|(schema, threshold)| exponential_bound(index, schema) <= threshold)
        };
        let left_out = side_slots(spans, buckets)
            .take_while(|(index, _)| in_zero(*index))
            .count();
        let numbers = |at: usize| Number {
            count: sign.of(buckets[at]),
            lost: lost.map_or(0.0, |lost| sign.of(lost[at])),
        };
        if self.spans.as_slice() == spans {
            for at in left_out..buckets.len() {
                self.add_at(at, numbers(at));
            }
        } else if left_out < buckets.len() {
            let others = side_slots(spans, buckets).enumerate().skip(left_out);
            self.put_between(others.map(|(at, (index, _))| (index, numbers(at))));
        }
    }

    fn add_at(&mut self, at: usize, number: Number) {
        let Some(compensation) = &mut self.compensation else {
            self.buckets[at] += number.count;
            return;
        };
        let mut sum = add_compensated(number.count, self.buckets[at], compensation[at]);
        if number.lost != 0.0 {
            sum = add_compensated(number.lost, sum.0, sum.1);
        }
        (self.buckets[at], compensation[at]) = sum;
    }

    /// Merges buckets of another layout: builds the union of the indices and adds the counts.
    fn put_between(&mut self, others: impl Iterator<Item = (i32, Number)>) {
        let old = Vec::from_iter(side_slots(self.spans, self.buckets));
        let old_lost = self
            .compensation
            .as_mut()
            .map(|lost| std::mem::take(*lost))
            .unwrap_or_default();
        let mut builder = SpansBuilder::default();
        self.buckets.clear();
        let mut own = old.iter().enumerate().peekable();
        let mut others = others.peekable();
        loop {
            let index = match (own.peek(), others.peek()) {
                (Some((_, (own, _))), Some((other, _))) => *own.min(other),
                (Some((_, (own, _))), None) => *own,
                (None, Some((other, _))) => *other,
                (None, None) => break,
            };
            builder.push(index);
            let at = self.buckets.len();
            let added = others
                .next_if(|(other, _)| *other == index)
                .map(|(_, number)| number);
            match (own.next_if(|(_, (own, _))| *own == index), added) {
                (Some((from, (_, count))), added) => {
                    self.push(*count, old_lost.get(from).copied().unwrap_or(0.0));
                    if let Some(number) = added {
                        self.add_at(at, number);
                    }
                }
                (None, Some(number)) => self.push(number.count, number.lost),
                (None, None) => {}
            }
        }
        *self.spans = builder.build();
    }

    fn push(&mut self, count: f64, lost: f64) {
        self.buckets.push(count);
        if let Some(compensation) = &mut self.compensation {
            compensation.push(lost);
        }
    }
}

/// Count with its rounding error.
#[derive(Clone, Copy)]
struct Number {
    count: f64,
    lost: f64,
}
