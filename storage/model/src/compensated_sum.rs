//! Sums of doubles that keep what rounding loses.
//!
//! Each addition of doubles loses at most half a unit in the last place, and what it loses is a double again
//! (Dekker, 1971; Knuth, TAOCP vol. 2, 4.2.2). [`CompensatedSum`] adds up these losses beside the sum: Kahan's summation
//! in Neumaier's form (1974). PromQL, aggregates and the summaries in chunks all use it, so an aggregate answered from
//! summaries agrees with one over samples, and PromQL's sums are those of Prometheus, bit for bit.

/// A sum of doubles and the losses of its additions.
///
/// The fields are public since formats store both, and means scale both.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CompensatedSum {
    /// The result of plain additions.
    pub sum: f64,
    /// Rounding error to add to it.
    pub compensation: f64,
}

/// Sums that [`CompensatedSum::in_lanes`] computes at once: an addition waits for the one before, and four doubles fill
/// two SSE2 registers.
pub const LANES: usize = 4;

impl CompensatedSum {
    /// Starts at a value.
    #[inline]
    pub const fn new(value: f64) -> Self {
        Self {
            sum: value,
            compensation: 0.0,
        }
    }

    /// Adds a number. Once the sum is infinite, there is nothing to compensate.
    #[inline]
    pub fn add(&mut self, number: f64) {
        let total = self.sum + number;
        if total.is_infinite() {
            *self = Self::new(total);
            return;
        }
        let lost = if self.sum.abs() >= number.abs() {
            (self.sum - total) + number
        } else {
            (number - total) + self.sum
        };
        self.sum = total;
        self.compensation += lost;
    }

    /// Adds another sum. The loss of adding the losses is not kept: it is far below the last place of a result.
    #[inline]
    pub fn merge(&mut self, other: Self) {
        self.add(other.sum);
        self.compensation += other.compensation;
    }

    /// Returns the sum with its losses, rounded once.
    #[inline]
    pub fn total(self) -> f64 {
        self.sum + self.compensation
    }

    /// Returns the same sum with [`Self::total`] as `sum` and the loss of that rounding as `compensation`.
    #[inline]
    pub fn normalized(self) -> Self {
        let mut normalized = Self::new(self.sum);
        normalized.add(self.compensation);
        normalized
    }

    /// Adds every fourth number up, four sums at once, and returns the sums and up to three numbers left over.
    ///
    /// The sums are those of [`Self::add`] bit for bit while all are finite; infinite and NaN sums may have a NaN as
    /// compensation. Takes about three quarters of the time of [`Self::add`].
    pub fn in_lanes(numbers: &[f64]) -> ([Self; LANES], &[f64]) {
        let mut lanes = [Self::default(); LANES];
        let (fours, rest) = numbers.as_chunks::<LANES>();
        for four in fours {
            for (lane, number) in lanes.iter_mut().zip(four) {
                lane.add_without_branch(*number);
            }
        }
        (lanes, rest)
    }

    /// Knuth's form of [`Self::add`]: more additions, no comparison, so that lanes become vectors.
    #[inline]
    fn add_without_branch(&mut self, number: f64) {
        let total = self.sum + number;
        let part = total - self.sum;
        self.compensation += (self.sum - (total - part)) + (number - part);
        self.sum = total;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sum_of(numbers: &[f64]) -> CompensatedSum {
        let mut sum = CompensatedSum::default();
        numbers.iter().for_each(|number| sum.add(*number));
        sum
    }

    fn bits(sum: CompensatedSum) -> (u64, u64) {
        (sum.sum.to_bits(), sum.compensation.to_bits())
    }

    #[test]
    fn numbers_that_cancel_leave_what_is_small() {
        assert_eq!(sum_of(&[1e100, 1.0, -1e100, 1e-3]).total(), 1.001);
        assert_eq!(sum_of(&[0.1; 10]).total(), 1.0);
        let mut left = sum_of(&[1e100, 1.0]);
        left.merge(sum_of(&[-1e100, 2.0]));
        assert_eq!(left.total(), 3.0);
        assert_eq!(sum_of(&[1.0, 1e-17]).normalized(), sum_of(&[1.0, 1e-17]));
        let lopsided = CompensatedSum {
            sum: 1.0,
            compensation: 8.0,
        };
        assert_eq!(lopsided.normalized(), CompensatedSum::new(9.0));
    }

    #[test]
    fn infinite_sums_have_no_compensation() {
        assert_eq!(
            sum_of(&[1.0, f64::INFINITY, 2.0]),
            CompensatedSum::new(f64::INFINITY)
        );
        assert_eq!(sum_of(&[f64::MAX, f64::MAX]).total(), f64::INFINITY);
        assert!(sum_of(&[f64::INFINITY, f64::NEG_INFINITY]).total().is_nan());
        assert!(sum_of(&[1.0, f64::NAN]).total().is_nan());
    }

    /// Zeros of either sign, subnormal, near and far magnitudes; sums of a few thousand are finite.
    fn number() -> impl Strategy<Value = f64> {
        let any_finite = any::<f64>().prop_filter("finite", |number| number.abs() < 1e300);
        prop_oneof![
            any_finite,
            -1e3..1e3,
            -1e17..1e17,
            Just(0.0),
            Just(-0.0),
            Just(f64::MIN_POSITIVE / 8.0)
        ]
    }

    proptest! {
        #![proptest_config(tideline_testkit::proptest_config(256))]

        #[test]
        fn lanes_are_sums_of_every_fourth_number(numbers in prop::collection::vec(number(), 0..60)) {
            let (lanes, rest) = CompensatedSum::in_lanes(&numbers);
            prop_assert_eq!(rest, &numbers[numbers.len() / LANES * LANES..]);
            for (at, lane) in lanes.into_iter().enumerate() {
                let own = numbers.as_chunks::<LANES>().0.iter().map(|four| four[at]);
                prop_assert_eq!(bits(lane), bits(sum_of(&own.collect::<Vec<_>>())));
            }
        }

        #[test]
        fn whole_numbers_add_up_exactly(numbers in prop::collection::vec((-1i64 << 53..1 << 53, 0..20u32), 1..400)) {
            let exact: i128 = numbers.iter().map(|(number, shift)| i128::from(*number) << shift).sum();
            let doubles: Vec<f64> = numbers.iter().map(|(number, shift)| *number as f64 * f64::from(1 << shift)).collect();
            prop_assert_eq!(sum_of(&doubles).total(), exact as f64);
        }
    }
}
