//! Native histograms: model, arithmetic, stored format.
//!
//! A native histogram is a single value that holds a whole distribution: the number of observations in each
//! of many buckets. The bucket bounds follow from a schema and need not be stored. The model is Prometheus'
//! native histogram with counts as doubles. Storage and protocols treat a histogram as opaque; PromQL
//! evaluates its content.
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
