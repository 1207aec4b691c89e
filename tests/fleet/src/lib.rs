//! Simulated fleet of hosts: the same seed yields the same line protocol on every run.
//!
//! The demo shows the fleet together with real data, benchmarks load its rows, and tests compare query results
//! with these rows. The rows have the shape of the `cpu-only` use case of the Time Series Benchmark Suite: one
//! measurement, ten tags, ten integer fields, and the rows of all hosts at one timestamp before the next timestamp.
//! Other databases publish figures for this shape. The values are our own; no data of the suite is copied.
//!
//! The crate uses no clock and no random number library, so that only a change of this crate can change the
//! data of a seed.
//!
//! | module | holds |
//! |---|---|
//! | [`fleet`] | [`Fleet`]: rows in order, as line protocol or as numbers |
//! | [`host`] | [`Host`]: the ten tags of a host |
//! | [`remote_write`] | Prometheus remote write requests as a sender encodes them |
//! | [`otlp`] | OTLP metrics requests as a sender encodes them |
//! | [`random`] | [`Random`]: the seeded random number generator |

pub mod fleet;
pub mod host;
pub mod otlp;
pub mod random;
pub mod remote_write;

pub use fleet::{FIELDS, Fleet, FleetSpec, Row};
pub use host::{Host, TAGS};
pub use random::Random;
