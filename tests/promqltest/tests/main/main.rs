//! The runner on scripts of its own, and Prometheus' scripts on the engine.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod runner;
mod scripts;
