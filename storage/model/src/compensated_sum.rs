//! Sum of doubles with compensated rounding errors.
//!
//! Each addition of doubles loses at most half a unit in the last place, and the loss is itself a double (Dekker, 1971;
//! Knuth, TAOCP vol. 2, 4.2.2). [`CompensatedSum`] adds up these losses separately: Kahan summation in Neumaier's form
//! (1974). PromQL, aggregates and chunk summaries all use this type. Therefore an aggregate computed from summaries
//! agrees with the aggregate computed from samples, and PromQL sums equal those of Prometheus bit for bit.

/// Sum of doubles and the accumulated rounding error of its additions.
///
/// The fields are public because storage formats store both and the computation of a mean scales both.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CompensatedSum {
    /// Result of the plain additions.
    pub sum: f64,
    /// Rounding error to add to `sum`.
    pub compensation: f64,
}

/// Number of sums that [`CompensatedSum::sum_in_parallel`] computes in parallel. Each addition to a sum depends on the
/// previous addition, so several sums are computed at once. Four doubles fill two SSE2 registers.
pub const LANES: usize = 4;

impl CompensatedSum {
    /// Creates a sum with an initial value.
    #[inline]
    pub const fn new(value: f64) -> Self {
        Self {
            sum: value,
            compensation: 0.0,
        }
    }

    /// Adds a number. If the sum becomes infinite, its compensation becomes 0.
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

    /// Adds another sum. The rounding error of adding the two compensations is dropped: it is far below the last place
    /// of the result.
    #[inline]
    pub fn merge(&mut self, other: Self) {
        self.add(other.sum);
        self.compensation += other.compensation;
    }

    /// Returns the sum including its compensation, rounded once.
    #[inline]
    pub fn total(self) -> f64 {
        self.sum + self.compensation
    }

    /// Returns an equal sum with [`Self::total`] as `sum` and the error of that rounding as `compensation`.
    #[inline]
    pub fn normalized(self) -> Self {
        let mut normalized = Self::new(self.sum);
        normalized.add(self.compensation);
        normalized
    }

    /// Computes four sums in parallel, each over every fourth number. Returns the sums and the remaining numbers, at
    /// most three.
    ///
    /// The sums equal those of [`Self::add`] bit for bit while all sums are finite. Infinite and NaN sums may have a
    /// NaN as compensation. Takes about three quarters of the time of [`Self::add`].
    pub fn sum_in_parallel(numbers: &[f64]) -> ([Self; LANES], &[f64]) {
        let mut lanes = [Self::default(); LANES];
        let (fours, rest) = numbers.as_chunks::<LANES>();
        for four in fours {
            for (lane, number) in lanes.iter_mut().zip(four) {
                lane.add_without_branch(*number);
            }
        }
        (lanes, rest)
    }

    /// Adds a number by Knuth's method: more additions than [`Self::add`] but no comparison, so that the compiler can
    /// vectorize it.
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

    /// Generates zeros of both signs, a subnormal number, and numbers of similar and of very different magnitudes. Sums
    /// of a few thousand of these numbers are finite.
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
            let (lanes, rest) = CompensatedSum::sum_in_parallel(&numbers);
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
