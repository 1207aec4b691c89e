//! Native histograms: model, arithmetic, stored format.
//!
//! A native histogram is a single value that holds a whole distribution: the number of observations in each
//! of many buckets. The bucket bounds follow from a schema and need not be stored. The model is Prometheus'
//! native histogram with counts as doubles. Storage and protocols treat a histogram as opaque; PromQL
//! evaluates its content.
//!
//! # Examples
//!
//! ```
//! use tideline_histogram::Histogram;
//!
//! let mut total = Histogram::parse("{{count:3 sum:5 buckets:[1 2]}}")?;
//! let more = Histogram::parse("{{count:1 sum:1 buckets:[1]}}")?;
//! total.add(&more)?;
//! assert_eq!(total.notation(), "{{count:4 sum:6 buckets:[2 2]}}");
//!
//! let mut stored = Vec::new();
//! total.to_bytes(&mut stored);
//! assert_eq!(Histogram::from_bytes(&stored)?, total);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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

pub use buckets::{Bucket, BucketIndex, Interpolation, Slot};
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
