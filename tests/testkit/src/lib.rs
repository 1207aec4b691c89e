//! Rules and helpers that the tests of every crate share: seeds and case counts of random tests, sizes of slow tests,
//! missing prerequisites, bounded waits, Python packages, and nodes of Apache Cassandra.
//!
//! | variable | meaning |
//! |---|---|
//! | `TIDELINE_SEED` | replays random tests; without it each run draws a fresh seed |
//! | `TIDELINE_SLOW` | with `1`, tests run in their slow form |
//! | `TIDELINE_CORPORA` | folder of the test data that is not part of the repository |
//! | `TIDELINE_CASSANDRA` | node of Cassandra that tests share, instead of one that they start; see [`cassandra`] |
//! | `CI` | with `true`, a missing prerequisite fails its test |

pub mod cassandra;
mod missing;
pub mod python;
mod random;
mod size;
pub mod wait;

use std::hash::{BuildHasher as _, RandomState};

pub use missing::{corpus, is_ci, not_run, skip, workspace};
use proptest::test_runner::{Config, RngSeed};
pub use random::Random;
pub use size::{is_slow, rounds};

/// Factor by which the slow run multiplies the cases of property tests.
const SLOW_CASES: u32 = 8;

/// Returns the seed of a run: `TIDELINE_SEED` if set, else a fresh seed. Prints the seed, so that a failure shows it.
///
/// # Panics
///
/// Panics if the variable is not a number.
pub fn seed(test: &str) -> u64 {
    let seed = replayed_seed().unwrap_or_else(|| RandomState::new().hash_one(test) >> 1);
    println!("{test}: TIDELINE_SEED={seed}");
    seed
}

/// Returns the seeds of a test that runs several times: `count` consecutive numbers, beginning with [`seed`].
///
/// # Panics
///
/// Panics if `TIDELINE_SEED` is not a number.
pub fn seeds(test: &str, count: u64) -> impl Iterator<Item = u64> {
    let first = seed(test);
    (0..count).map(move |number| first.wrapping_add(number))
}

/// Returns the configuration of a property test with `cases` cases, 8 times as many in the slow run. The cases depend
/// on [`seed`], which is printed with the name of the test.
///
/// # Panics
///
/// Panics if `TIDELINE_SEED` is not a number, or if `TIDELINE_SLOW` has a value that [`is_slow`] does not accept.
pub fn proptest_config(cases: u32) -> Config {
    let thread = std::thread::current();
    Config {
        cases: if is_slow() { cases * SLOW_CASES } else { cases },
        rng_seed: RngSeed::Fixed(seed(thread.name().unwrap_or("property test"))),
        ..Config::default()
    }
}

fn replayed_seed() -> Option<u64> {
    let text = std::env::var("TIDELINE_SEED").ok()?;
    let seed = text.parse();
    Some(seed.unwrap_or_else(|_| panic!("TIDELINE_SEED={text} is not a number from 0 to {}", u64::MAX)))
}
