//! Tests of the public interface of PromQL.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod bounds;
mod corpus;
mod distributions;
mod evaluate;
mod histogram_ranges;
mod likeness;
mod memory;
mod oracle;
mod parse;
mod print;
mod random;
mod ranges;
mod scripts;
