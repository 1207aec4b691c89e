//! Chance that a seed replays.

use tideline_model::{Clock, SystemClock};

/// xorshift64*, so that a seed replays a failure.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    /// A number from 0 on, below `end`.
    pub(crate) fn below(&mut self, end: u64) -> i64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % end) as i64
    }
}

/// `TIDELINE_SEED`, or one drawn from the clock. Printed, so that a failure can be run again.
pub(crate) fn seed(test: &str) -> u64 {
    let drawn = || SystemClock.now().nanos().unsigned_abs();
    let seed = number("TIDELINE_SEED").unwrap_or_else(drawn).max(1);
    println!("{test}: TIDELINE_SEED={seed}");
    seed
}

/// An environment variable that is a number.
pub(crate) fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
