//! Native histograms: what they are, their arithmetic, their stored bytes.
//!
//! A native histogram is one value that holds a whole distribution: how many observations fell into each of
//! many buckets, whose bounds follow from a schema and need not be written down. It is what Prometheus calls
//! by that name, counts as doubles. Neither storage nor protocols look inside; PromQL does.
#![doc = include_str!("../FORMAT.md")]

mod buckets;
mod classic;
mod codec;
mod compact;
mod custom;
mod histogram;
mod integer;
pub mod logarithm;
mod merge;
mod notation;
mod reset;
mod resolution;
mod scale;
mod schema;
mod spans;
mod text;
mod trim;
mod validate;
mod zero;

pub use buckets::{Bucket, Interpolation, Place, Slot};
pub use classic::{ClassicError, ClassicHistogram};
pub use codec::{BUCKETS_MAX, CodecError};
pub use histogram::{Histogram, ResetHint, STALE_NAN_BITS, Span, is_stale};
pub use integer::IntegerHistogram;
pub use merge::Outcome;
pub use notation::NotationError;
pub use schema::{CUSTOM_BUCKETS_SCHEMA, SCHEMA_MAX, SCHEMA_MAX_RESERVED, SCHEMA_MIN, SCHEMA_MIN_RESERVED};
pub use spans::LayoutError;
pub use text::Shortest;
pub use validate::{HistogramError, Side};
