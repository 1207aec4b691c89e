//! Speculative requests: repetitions of reads that a node has not answered within the usual time.
//!
//! Such a read is also sent to the next node of the partition, and the first response is used. So a node that pauses,
//! or whose connection is silent, does not delay a read until its timeout. Only reads without conditions are sent
//! twice, because they change nothing and need no agreement of the nodes.
//!
//! The usual time is estimated like the retransmission timeout of TCP (RFC 6298): the mean of the recent times plus
//! four times their mean deviation. So speculative requests are rare, and stay rare while all nodes are slow. Each
//! request is timed separately. The time of a read that was sent twice includes the delay; if such times were used, the
//! delay would grow without bound.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use scylla::errors::{RequestAttemptError, RequestError};
use scylla::observability::history::{AttemptId, HistoryListener, RequestId, SpeculativeId};
use scylla::policies::retry::RetryDecision;
use scylla::policies::speculative_execution::{Context, SpeculativeExecutionPolicy};

/// Shortest time before a second request. It covers short pauses of the garbage collection of a node.
const DELAY_MIN: Duration = Duration::from_millis(20);
/// Time before a second request while no read has been answered.
const DELAY_FIRST: Duration = Duration::from_millis(500);
/// Share of a new time in the mean, and in the mean deviation.
const GAINS: (f64, f64) = (1.0 / 8.0, 1.0 / 4.0);
/// Number of mean deviations that are added to the mean.
const DEVIATIONS: f64 = 4.0;

/// Policy and counter of speculative requests, and the times of the requests.
#[derive(Debug)]
pub(crate) struct Speculation {
    /// Origin of the times in [`AttemptId`]s.
    begun: Instant,
    /// Mean and mean deviation of the times of recent requests, in seconds. `None` before the first answer.
    times: Mutex<Option<(f64, f64)>>,
    sent: AtomicU64,
}

impl Speculation {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            times: Mutex::default(),
            sent: AtomicU64::new(0),
        }
    }

    /// Returns the microseconds since [`begun`](Self::begun).
    fn now(&self) -> usize {
        usize::try_from(self.begun.elapsed().as_micros()).unwrap_or(usize::MAX)
    }

    /// Adds the time of an answered request to the estimate.
    fn answered(&self, time: Duration) {
        let time = time.as_secs_f64();
        let mut times = self.times.lock();
        *times = Some(times.map_or((time, time / 2.0), |(mean, deviation)| {
            let (of_mean, of_deviation) = GAINS;
            let off = (time - mean).abs();
            (
                mean + of_mean * (time - mean),
                deviation + of_deviation * (off - deviation),
            )
        }));
    }

    /// Returns the number of speculative requests that were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns the time after which a read is sent a second time.
    fn delay(&self) -> Duration {
        let times = *self.times.lock();
        times.map_or(DELAY_FIRST, |(mean, deviation)| {
            Duration::from_secs_f64(mean + DEVIATIONS * deviation).max(DELAY_MIN)
        })
    }
}

impl SpeculativeExecutionPolicy for Speculation {
    fn max_retry_count(&self, _: &Context) -> usize {
        1
    }

    fn retry_interval(&self, _: &Context) -> Duration {
        self.delay()
    }
}

/// Measures the time of each request; the id of a request is the time at which it was sent. Counts a speculative
/// request only when it is sent, because a cluster of one node has no second node.
impl HistoryListener for Speculation {
    fn log_request_start(&self) -> RequestId {
        RequestId(0)
    }

    fn log_request_success(&self, _: RequestId) {}

    fn log_request_error(&self, _: RequestId, _: &RequestError) {}

    fn log_new_speculative_fiber(&self, _: RequestId) -> SpeculativeId {
        SpeculativeId(0)
    }

    fn log_attempt_start(&self, _: RequestId, second: Option<SpeculativeId>, _: SocketAddr) -> AttemptId {
        if second.is_some() {
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
        AttemptId(self.now())
    }

    fn log_attempt_success(&self, AttemptId(sent): AttemptId) {
        let micros = self.now().saturating_sub(sent);
        self.answered(Duration::from_micros(micros as u64));
    }

    fn log_attempt_error(&self, _: AttemptId, _: &RequestAttemptError, _: &RetryDecision) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(times: impl IntoIterator<Item = u64>) -> Duration {
        let speculation = Speculation::new();
        for millis in times {
            speculation.answered(Duration::from_millis(millis));
        }
        speculation.delay()
    }

    #[test]
    fn a_second_request_is_sent_after_the_usual_time() {
        assert_eq!(after([]), DELAY_FIRST);
        assert_eq!(after([1; 100]), DELAY_MIN);
        let usual = after([40; 100]).as_secs_f64();
        assert!((0.040..0.042).contains(&usual), "{usual}");
        let varied = after([20, 60].repeat(50)).as_secs_f64();
        assert!((0.100..0.160).contains(&varied), "{varied}");
    }

    #[test]
    fn requests_without_an_answer_do_not_lengthen_the_time() {
        let speculation = Speculation::new();
        let node = SocketAddr::from(([127, 0, 0, 1], 9042));
        for _ in 0..100 {
            speculation.log_attempt_start(RequestId(0), None, node);
            let second = speculation.log_attempt_start(RequestId(0), Some(SpeculativeId(0)), node);
            speculation.log_attempt_success(second);
        }
        assert_eq!((speculation.sent(), speculation.delay()), (100, DELAY_MIN));
    }

    #[test]
    fn one_slow_read_has_little_effect() {
        let slow = after([2; 50].into_iter().chain([100]).chain([2; 20]));
        assert!(slow < Duration::from_millis(40), "{slow:?}");
        let always = after([2; 50].into_iter().chain([100; 30]));
        assert!(always > Duration::from_millis(95), "{always:?}");
    }
}
