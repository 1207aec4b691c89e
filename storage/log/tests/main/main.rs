//! Tests of the log with a small model, and of its owners.

mod counters;
mod owners;
