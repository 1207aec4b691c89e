//! Native histograms: what they are, their arithmetic, their stored bytes.
//!
//! A native histogram is one value that holds a whole distribution: how many observations fell into each of many buckets,
//! whose bounds follow from a schema and need not be written down. It is what Prometheus calls by that name, counts as doubles.
//! Neither storage nor protocols look inside; PromQL does.
#![doc = include_str!("../FORMAT.md")]

mod codec;
mod histogram;
mod spans;

pub use codec::{BUCKETS_MAX, CodecError};
pub use histogram::{Histogram, ResetHint, STALE_NAN_BITS, Span, is_stale};
pub use spans::LayoutError;
