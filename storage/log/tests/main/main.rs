//! The log with a small model in the place of points.

mod counters;
