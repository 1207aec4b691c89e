//! Tests of the log with a small model.

mod counters;
