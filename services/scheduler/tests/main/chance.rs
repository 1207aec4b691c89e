//! Reproducible random numbers.

/// Random number generator xorshift64*. The same seed yields the same numbers, so a failure can be reproduced.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    /// Returns a number from 0 up to, but not including, `end`.
    pub(crate) fn below(&mut self, end: u64) -> i64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % end) as i64
    }
}
