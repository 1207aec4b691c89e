//! The schedule of retries: growth, jitter, limits and the end.
//!
//! The times are injected, so no test waits. Random schedules are checked against the limits that the settings name.

use std::time::Duration;

use proptest::prelude::*;
use tideline_webhooks::Backoff;

const SCHEDULE: Backoff = Backoff {
    first: Duration::from_secs(4),
    cap: Duration::from_secs(60),
    attempts_max: 10,
    give_up_after: Duration::from_secs(3600),
};

#[test]
fn the_delay_doubles_up_to_the_cap() {
    for (failed, longest) in [(1, 4), (2, 8), (3, 16), (4, 32), (5, 60), (9, 60)] {
        let delay = |random| {
            SCHEDULE
                .next_delay(failed, Duration::ZERO, None, random)
                .expect("a delay")
        };
        let longest = Duration::from_secs(longest);
        assert_eq!(delay(0), Duration::from_secs(1));
        assert!(longest - delay(u64::MAX) < Duration::from_micros(1), "{failed}");
        let middle = Duration::from_secs(1) + (longest - Duration::from_secs(1)) / 2;
        assert_eq!(delay(1 << 63), middle);
    }
}

#[test]
fn the_schedule_ends_after_its_attempts_and_its_time() {
    let delay = |failed, elapsed| SCHEDULE.next_delay(failed, Duration::from_secs(elapsed), None, 0);
    assert!(delay(9, 0).is_some());
    assert_eq!(delay(10, 0), None);
    assert_eq!(delay(u32::MAX, 0), None);
    assert!(delay(1, 3599).is_some());
    assert_eq!(delay(1, 3600), None);
}

#[test]
fn the_delay_is_not_shorter_than_the_receiver_asked_for() {
    let delay =
        |retry_after| SCHEDULE.next_delay(1, Duration::ZERO, Some(Duration::from_secs(retry_after)), 0);
    assert_eq!(delay(0), Some(Duration::from_secs(1)));
    assert_eq!(delay(90), Some(Duration::from_secs(90)), "longer than the cap");
    assert_eq!(delay(3601), Some(Duration::from_secs(3600)), "the last attempt");
}

#[test]
fn the_last_attempt_is_at_the_end_of_the_time() {
    let delay = |elapsed, retry_after, random| {
        let retry_after = Some(Duration::from_millis(retry_after));
        SCHEDULE.next_delay(9, Duration::from_millis(elapsed), retry_after, random)
    };
    let left = |millis| Some(Duration::from_millis(millis));
    assert_eq!(
        delay(3_590_000, 120_000, 0),
        left(10_000),
        "the receiver asks for more"
    );
    assert_eq!(
        delay(3_590_000, 0, u64::MAX),
        left(10_000),
        "the random delay is longer"
    );
    assert_eq!(delay(3_599_000, 120_000, u64::MAX), left(1_000));
    assert_eq!(
        delay(3_599_001, 0, 0),
        None,
        "the previous attempt was the last one"
    );
    assert_eq!(delay(3_600_001, 0, 0), None);
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(2000))]

    #[test]
    fn every_delay_is_within_its_limits(
        first: u64,
        cap: u64,
        failed in 0_u32..200,
        random: u64,
        give_up_after: u64,
    ) {
        let schedule = Backoff {
            first: Duration::from_secs(first),
            cap: Duration::from_secs(cap),
            attempts_max: 100,
            give_up_after: Duration::from_secs(give_up_after),
        };
        match schedule.next_delay(failed, Duration::ZERO, None, random) {
            Some(delay) => {
                prop_assert!(failed < 100 && delay <= schedule.give_up_after);
                prop_assert!(delay >= Duration::from_secs(1) && delay <= schedule.cap.max(Duration::from_secs(1)));
            }
            None => prop_assert!(failed >= 100 || give_up_after < 1),
        }
    }
}
