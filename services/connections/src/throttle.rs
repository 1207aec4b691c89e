//! Throttle: byte rate limit shared by many senders, first come, first served.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// Longest idle time that is credited. After an idle time, a burst may exceed the configured rate by about the bytes
/// that the rate allows in this duration.
const BURST: Duration = Duration::from_millis(100);

/// Limit of bytes per second over all callers, first come, first served.
#[derive(Debug)]
pub struct Throttle {
    bytes_per_second: u64,
    /// Time at which all admitted bytes have been sent at the configured rate.
    free_at: Mutex<Option<Instant>>,
}

impl Throttle {
    /// Creates a throttle of `bytes_per_second`, at least 1.
    pub fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1),
            free_at: Mutex::new(None),
        }
    }

    /// Waits until `bytes` may be sent.
    pub async fn take(&self, bytes: usize) {
        let begin = self.begin(bytes, Instant::now());
        sleep_until(begin).await;
    }

    /// Returns the time at which `bytes` requested at `now` may be sent, and reserves them.
    fn begin(&self, bytes: usize, now: Instant) -> Instant {
        let nanos = bytes as u128 * 1_000_000_000 / u128::from(self.bytes_per_second);
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let mut free_at = self.free_at.lock();
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let begin = free_at.map_or(earliest, |free_at| free_at.max(earliest));
        *free_at = Some(begin + takes);
        begin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_sent_at_the_rate_first_come_first_served() {
        let (throttle, now) = (Throttle::new(1_000), Instant::now());
        let waits: Vec<Duration> = (0..4)
            .map(|_| throttle.begin(100, now).saturating_duration_since(now))
            .collect();
        let millis: Vec<u128> = waits.iter().map(Duration::as_millis).collect();
        assert_eq!(
            millis,
            [0, 0, 100, 200],
            "a burst of a tenth of a second, then one after the other"
        );
        let later = now + Duration::from_secs(10);
        assert!(
            throttle.begin(100, later) <= later,
            "silence does not add up beyond the burst"
        );
        assert!(throttle.begin(100, later) <= later);
        assert!(throttle.begin(100, later) > later);
    }
}
