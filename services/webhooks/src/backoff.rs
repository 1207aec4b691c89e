//! Delays between the attempts of a delivery.
//!
//! The schedule is a pure function: the caller stores the number of attempts and passes in time and randomness.

use std::time::Duration;

/// Minimum delay between two attempts.
const DELAY_MIN: Duration = Duration::from_secs(1);

/// Schedule of retries: exponential growth with full jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Maximum delay after the first failed attempt. Doubles with each further failure.
    pub first: Duration,
    /// Upper limit of the maximum delay. At least 1 s applies.
    pub cap: Duration,
    /// Maximum number of attempts, including the first.
    pub attempts_max: u32,
    /// Time since the first attempt after which no attempt starts. The last attempt is made at its end, unless the
    /// previous one was less than 1 s before.
    pub give_up_after: Duration,
}

impl Default for Backoff {
    /// Returns the schedule with delays of up to 5 s after the first failure and up to 10 min later, for 3 days and at
    /// most 2,000 attempts.
    fn default() -> Self {
        Self {
            first: Duration::from_secs(5),
            cap: Duration::from_secs(600),
            attempts_max: 2000,
            give_up_after: Duration::from_secs(3 * 24 * 3600),
        }
    }
}

impl Backoff {
    /// Returns the delay until the next attempt, or `None` to give up.
    ///
    /// - `failed` is the number of attempts that have failed, at least 1.
    /// - `elapsed` is the time since the first attempt.
    /// - `retry_after` is the delay that the receiver requested. The result is not shorter, except for the last attempt.
    /// - `random` is uniformly distributed over all values of its type.
    ///
    /// Without `retry_after`, the delay is uniformly distributed from 1 s to the maximum: `first` × 2^(`failed` − 1),
    /// at most `cap`, at least 1 s. A delay that ends after `give_up_after` is shortened to the remaining time.
    pub fn next_delay(
        &self,
        failed: u32,
        elapsed: Duration,
        retry_after: Option<Duration>,
        random: u64,
    ) -> Option<Duration> {
        let remaining = self.give_up_after.checked_sub(elapsed)?;
        if failed >= self.attempts_max || remaining < DELAY_MIN {
            return None;
        }
        let factor = 1_u32.checked_shl(failed.saturating_sub(1)).unwrap_or(u32::MAX);
        let longest = self.first.saturating_mul(factor).min(self.cap).max(DELAY_MIN);
        let delay = DELAY_MIN + scaled(longest - DELAY_MIN, random);
        let delay = delay.max(retry_after.unwrap_or(Duration::ZERO));
        // The receiver may work again at the end of the time.
        Some(delay.min(remaining))
    }
}

/// Returns `duration` × `random` / 2^64.
fn scaled(duration: Duration, random: u64) -> Duration {
    // Without overflow: a duration has fewer than 2^94 nanoseconds, so both parts of the product fit into 128 bits.
    let nanos = duration.as_nanos();
    let high = (nanos >> 64) * u128::from(random);
    let low = ((nanos & u128::from(u64::MAX)) * u128::from(random)) >> 64;
    let scaled = high + low;
    let seconds = u64::try_from(scaled / 1_000_000_000).unwrap_or(u64::MAX);
    Duration::new(seconds, (scaled % 1_000_000_000) as u32)
}
