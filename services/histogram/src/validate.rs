//! Validity rules of histograms, checked before storing: Prometheus' rules and size limits.
//!
//! The messages use Prometheus' wording where Prometheus has the same rule.

use std::fmt;

use thiserror::Error;

use crate::codec::BUCKETS_MAX;
use crate::histogram::Histogram;
use crate::schema::{
    CUSTOM_BUCKETS_SCHEMA, SCHEMA_MAX, SCHEMA_MAX_RESERVED, SCHEMA_MIN, SCHEMA_MIN_RESERVED,
};
use crate::spans::{LayoutError, check_layout};

/// Reason why a histogram is invalid, or why two cannot be combined.
#[derive(Debug, Clone, PartialEq, Error)]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum HistogramError {
    #[error(
        "{observed} observations found in buckets, but the Count field is {count}: histogram's observation count \
         should be at least the number of observations found in the buckets"
    )]
    CountNotBigEnough { observed: u64, count: u64 },
    #[error(
        "{observed} observations found in buckets, but the Count field is {count}: histogram's observation count \
         should equal the number of observations found in the buckets (in absence of NaN)"
    )]
    CountMismatch { observed: u64, count: u64 },
    #[error("observation count is {0}: histogram's observation count is negative")]
    NegativeCount(f64),
    #[error(
        "{side}: bucket number {number} has observation count of {count}: histogram has a bucket whose observation \
         count is negative"
    )]
    NegativeBucketCount { side: Side, number: usize, count: f64 },
    #[error(
        "zero bucket has observation count of {0}: histogram has a bucket whose observation count is negative"
    )]
    NegativeZeroCount(f64),
    #[error("{side}: bucket number {number}: the sum of its deltas exceeds 64 bits")]
    CountTooLarge { side: Side, number: usize },
    #[error("{side}: {error}")]
    Layout { side: Side, error: LayoutError },
    #[error("{side}: {found} buckets, more than {BUCKETS_MAX}")]
    TooManyBuckets { side: Side, found: usize },
    #[error(
        "only {bounds} custom bounds defined which is insufficient to cover total span length of {needed}: histogram \
         custom bounds are too few"
    )]
    CustomBucketsMismatch { bounds: usize, needed: i64 },
    #[error(
        "previous bound is {before} and current is {bound}: histogram custom bounds must be in strictly increasing \
         order"
    )]
    CustomBucketsInvalid { before: f64, bound: f64 },
    #[error("last +Inf bound must not be explicitly defined: histogram custom bounds must be finite")]
    CustomBucketsInfinite,
    #[error("histogram custom bounds must not be NaN")]
    CustomBucketsNan,
    #[error("histogram has {0} custom bounds, more than {BUCKETS_MAX}")]
    TooManyCustomBounds(usize),
    #[error("cannot apply this operation on histograms with a mix of exponential and custom bucket schemas")]
    IncompatibleSchema,
    #[error("custom buckets: must have zero count of 0")]
    CustomBucketsZeroCount,
    #[error("custom buckets: must have zero threshold of 0")]
    CustomBucketsZeroThreshold,
    #[error("custom buckets: must not have negative spans")]
    CustomBucketsNegativeSpans,
    #[error("custom buckets: must not have negative buckets")]
    CustomBucketsNegativeBuckets,
    #[error("histogram with exponential schema must not have custom bounds")]
    ExponentialSchemaCustomBounds,
    #[error(
        "histogram has an invalid schema, which must be between {SCHEMA_MIN} and {SCHEMA_MAX} for exponential buckets, \
         or {CUSTOM_BUCKETS_SCHEMA} for custom buckets, got schema {0}"
    )]
    InvalidSchema(i32),
    #[error(
        "histogram has an unknown schema, which must be between {SCHEMA_MIN_RESERVED} and {SCHEMA_MAX_RESERVED} for \
         exponential buckets, or {CUSTOM_BUCKETS_SCHEMA} for custom buckets, got schema {0}"
    )]
    UnknownSchema(i32),
}

/// Side of zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Positive buckets.
    Positive,
    /// Negative buckets.
    Negative,
}

impl fmt::Display for Side {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Positive => "positive side",
            Self::Negative => "negative side",
        })
    }
}

impl Histogram {
    /// Checks the rules for stored histograms: a supported schema, spans that fit the buckets, no negative
    /// counts, and valid custom bounds.
    ///
    /// The count is not compared with the sum of the buckets, because rounding can make them differ.
    ///
    /// # Errors
    ///
    /// Returns the error of the first broken rule.
    pub fn validate(&self) -> Result<(), HistogramError> {
        self.validate_layout()?;
        if self.zero_count < 0.0 {
            return Err(HistogramError::NegativeZeroCount(self.zero_count));
        }
        if self.count < 0.0 {
            return Err(HistogramError::NegativeCount(self.count));
        }
        check_counts(Side::Negative, &self.negative_buckets)?;
        check_counts(Side::Positive, &self.positive_buckets)
    }

    /// Converts the histogram to the form in which it is stored: reduces a schema finer than 8 to 8, then
    /// applies [`Self::validate`].
    ///
    /// # Errors
    ///
    /// Returns [`HistogramError::UnknownSchema`] for a schema outside the reserved range, and the errors of
    /// [`Self::validate`].
    pub fn checked(mut self) -> Result<Self, HistogramError> {
        let is_reserved = (SCHEMA_MIN_RESERVED..=SCHEMA_MAX_RESERVED).contains(&self.schema);
        if !is_reserved && !self.uses_custom_buckets() {
            return Err(HistogramError::UnknownSchema(self.schema));
        }
        if self.schema > SCHEMA_MAX {
            check_side(Side::Positive, &self.positive_spans, self.positive_buckets.len())?;
            check_side(Side::Negative, &self.negative_spans, self.negative_buckets.len())?;
            self.reduce_resolution(SCHEMA_MAX);
        }
        self.validate()?;
        Ok(self)
    }

    fn validate_layout(&self) -> Result<(), HistogramError> {
        check_side(Side::Positive, &self.positive_spans, self.positive_buckets.len())?;
        match self.schema {
            CUSTOM_BUCKETS_SCHEMA => self.validate_custom(),
            SCHEMA_MIN..=SCHEMA_MAX if !self.custom_values.is_empty() => {
                Err(HistogramError::ExponentialSchemaCustomBounds)
            }
            SCHEMA_MIN..=SCHEMA_MAX => {
                check_side(Side::Negative, &self.negative_spans, self.negative_buckets.len())
            }
            invalid => Err(HistogramError::InvalidSchema(invalid)),
        }
    }

    fn validate_custom(&self) -> Result<(), HistogramError> {
        check_custom_values(&self.custom_values)?;
        if let Some(span) = self.positive_spans.first().filter(|span| span.offset < 0) {
            let error = LayoutError::NegativeOffset {
                number: 1,
                offset: span.offset,
            };
            return Err(HistogramError::Layout {
                side: Side::Positive,
                error,
            });
        }
        let spans = self.positive_spans.iter();
        let needed = spans
            .map(|span| i64::from(span.offset) + i64::from(span.length))
            .sum();
        let bounds = self.custom_values.len();
        if bounds as i64 + 1 < needed {
            return Err(HistogramError::CustomBucketsMismatch { bounds, needed });
        }
        if self.zero_count != 0.0 {
            return Err(HistogramError::CustomBucketsZeroCount);
        }
        if self.zero_threshold != 0.0 {
            return Err(HistogramError::CustomBucketsZeroThreshold);
        }
        if !self.negative_spans.is_empty() {
            return Err(HistogramError::CustomBucketsNegativeSpans);
        }
        if !self.negative_buckets.is_empty() {
            return Err(HistogramError::CustomBucketsNegativeBuckets);
        }
        Ok(())
    }
}

fn check_side(side: Side, spans: &[crate::Span], buckets: usize) -> Result<(), HistogramError> {
    if buckets.max(spans.len()) > BUCKETS_MAX {
        return Err(HistogramError::TooManyBuckets {
            side,
            found: buckets.max(spans.len()),
        });
    }
    check_layout(spans, buckets).map_err(|error| HistogramError::Layout { side, error })
}

fn check_counts(side: Side, buckets: &[f64]) -> Result<(), HistogramError> {
    match buckets.iter().position(|count| *count < 0.0) {
        Some(at) => Err(HistogramError::NegativeBucketCount {
            side,
            number: at + 1,
            count: buckets[at],
        }),
        None => Ok(()),
    }
}

fn check_custom_values(values: &[f64]) -> Result<(), HistogramError> {
    if values.len() > BUCKETS_MAX {
        return Err(HistogramError::TooManyCustomBounds(values.len()));
    }
    if values.iter().any(|value| value.is_nan()) {
        return Err(HistogramError::CustomBucketsNan);
    }
    if let Some(pair) = values.windows(2).find(|pair| pair[1] <= pair[0]) {
        return Err(HistogramError::CustomBucketsInvalid {
            before: pair[0],
            bound: pair[1],
        });
    }
    match values.last() {
        Some(last) if *last == f64::INFINITY => Err(HistogramError::CustomBucketsInfinite),
        _ => Ok(()),
    }
}
