//! A simulated fleet of machines: the same line protocol on every run with the same seed.
//!
//! The demo shows it beside real data, the benchmarks load it, and tests compare what they read back with what it
//! says it wrote. Its shape is that of the Time Series Benchmark Suite's `cpu-only` use case, which our peers
//! publish figures for: one measurement, ten tags, ten integer fields, all machines at one instant before the next
//! instant. The values are our own: no byte of it is the suite's.
//!
//! There is no dependency and no clock here, so nothing but this crate can change what a seed yields.
//!
//! | module | holds |
//! |---|---|
//! | [`fleet`] | [`Fleet`]: rows in order, as line protocol or as numbers |
//! | [`host`] | [`Host`]: the ten tags of a machine |
//! | [`remote_write`] | samples as a Prometheus sends them |
//! | [`random`] | [`Random`]: the generator behind a seed |

pub mod fleet;
pub mod host;
pub mod random;
pub mod remote_write;

pub use fleet::{FIELDS, Fleet, FleetSpec, Row};
pub use host::{Host, TAGS};
pub use random::Random;
