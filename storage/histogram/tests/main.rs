//! The histogram's tests: one binary.

mod bytes;
mod rules;
