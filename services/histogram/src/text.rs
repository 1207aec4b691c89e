//! Text of histograms and numbers in Prometheus' format.

use std::fmt;

use crate::buckets::{Bucket, BucketIndex, Slot};
use crate::histogram::Histogram;

/// Number displayed with the fewest digits that identify the double. A magnitude of at least a million, or
/// below a ten-thousandth but not zero, is displayed with an exponent, as by `%g` in C and Go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shortest(pub f64);

impl fmt::Display for Shortest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.0;
        if number.is_nan() {
            return out.write_str("NaN");
        }
        if number.is_infinite() {
            return out.write_str(if number > 0.0 { "+Inf" } else { "-Inf" });
        }
        if number == 0.0 || (1e-4..1e6).contains(&number.abs()) {
            return write!(out, "{number}");
        }
        let text = format!("{number:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        match exponent.strip_prefix('-') {
            Some(exponent) => write!(out, "{digits}e-{exponent:0>2}"),
            None => write!(out, "{digits}e+{exponent:0>2}"),
        }
    }
}

/// Writes `{count:…, sum:…, [lower,upper]:count, …}` without empty buckets. Unlike in [`Histogram::buckets`],
/// no bucket is cut at the zero bucket.
impl fmt::Display for Histogram {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{{count:{}, sum:{}",
            Shortest(self.count),
            Shortest(self.sum)
        )?;
        let zero = (self.zero_count != 0.0).then_some(Slot {
            index: BucketIndex::Zero,
            count: self.zero_count,
        });
        let slots = self
            .negative_slots()
            .rev()
            .chain(zero)
            .chain(self.positive_slots());
        for slot in slots.filter(|slot| slot.count != 0.0) {
            write!(out, ", {}", self.uncut_bucket(slot))?;
        }
        out.write_str("}")
    }
}

/// Writes `(lower,upper]:count`; a round bracket marks an excluded bound.
impl fmt::Display for Bucket {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = if self.lower_inclusive { '[' } else { '(' };
        let close = if self.upper_inclusive { ']' } else { ')' };
        let (lower, upper) = (Shortest(self.lower), Shortest(self.upper));
        write!(out, "{open}{lower},{upper}{close}:{}", Shortest(self.count))
    }
}
