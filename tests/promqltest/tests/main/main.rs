//! Tests of the script parser and the runner.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod runner;
mod scripts;
