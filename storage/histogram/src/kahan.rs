//! Sums that lose nothing to rounding: Kahan's summation with Neumaier's improvement.

/// A sum with what rounding took from it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct KahanSum {
    /// The sum as it comes out of plain additions.
    pub sum: f64,
    /// What has to be added to it.
    pub compensation: f64,
}

impl KahanSum {
    /// Adds a number.
    #[inline]
    pub fn add(&mut self, number: f64) {
        (self.sum, self.compensation) = add_compensated(number, self.sum, self.compensation);
    }

    /// The sum with what rounding took from it.
    #[inline]
    pub fn total(self) -> f64 {
        self.sum + self.compensation
    }
}

/// Adds a number to a sum and its compensation. Once the sum is infinite, there is nothing to compensate.
#[inline]
pub(crate) fn add_compensated(number: f64, sum: f64, compensation: f64) -> (f64, f64) {
    let total = sum + number;
    if total.is_infinite() {
        return (total, 0.0);
    }
    let lost = if sum.abs() >= number.abs() {
        (sum - total) + number
    } else {
        (number - total) + sum
    };
    (total, compensation + lost)
}
