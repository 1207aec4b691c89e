//! Decoders of the ingest protocols, without side effects.
//!
//! A decoder of points reads borrowed bytes and returns a [`tideline_model::PointBatch`]. Decoders of Prometheus
//! formats return it as part of [`prometheus::DecodedSamples`]. A decoder does no I/O, does not block, reads no clock,
//! and does not depend on storage or HTTP. The caller passes the timestamp for points without one, and a
//! [`tideline_model::SeriesResolver`] that maps the raw key of a timeline to its ordinal. The HTTP layer maps rejects
//! to status codes, which differ by protocol.
//!
//! | module | reads |
//! |---|---|
//! | [`line_protocol`] | InfluxDB line protocol (the hot path); also contains its encoder |
//! | [`json`] | the native JSON body: `{"points":[…]}` or a bare array |
//! | [`ndjson`] | native JSON with one point per line |
//! | [`influx_query`] | the few InfluxQL statements that agents send before they write |
//! | [`prometheus`] | formats of Prometheus and its agents, such as remote write |
//! | [`series_key`] | `measurement[,tag=value…]`, the raw key by which decoders identify a timeline |
//!
//! The decoders share `options` (options and size limits), `grouping` (rows of the same shape), `number` (decimal numbers
//! and timestamps), `reject` (rejects and their limit) and `error`.
//!
//! # Examples
//!
//! ```
//! use std::collections::HashMap;
//!
//! use tideline_ingest_protocols::{DecodeOptions, line_protocol};
//! use tideline_model::{ColumnData, Ordinal, RejectReason, SeriesResolver, Timestamp};
//!
//! /// Resolver that numbers keys in the order of their first occurrence.
//! #[derive(Default)]
//! struct Numbers(HashMap<Vec<u8>, Ordinal>);
//!
//! impl SeriesResolver for Numbers {
//!     fn resolve(&mut self, key: &[u8]) -> Result<Ordinal, RejectReason> {
//!         let next = Ordinal(self.0.len() as u32);
//!         Ok(*self.0.entry(key.to_vec()).or_insert(next))
//!     }
//! }
//!
//! let body = b"cpu,host=web-1 usage=0.5 1000\ncpu,host=web-2 usage=0.25 1000\ncpu usage=";
//! let options = DecodeOptions::new(Timestamp::EPOCH);
//! let batch = line_protocol::decode(body, options, &mut Numbers::default());
//! assert_eq!(batch.groups.len(), 1, "both rows have the same shape");
//! assert_eq!(batch.groups[0].timelines, [Ordinal(0), Ordinal(1)]);
//! assert_eq!(batch.groups[0].columns, [ColumnData::Float(vec![0.5, 0.25])]);
//! assert_eq!(batch.rejects[0].line, 3);
//! ```

mod error;
mod grouping;
pub mod influx_query;
pub mod json;
pub mod line_protocol;
pub mod ndjson;
mod number;
mod options;
pub mod prometheus;
mod reject;
pub mod series_key;

pub use error::IngestError;
pub use options::{DecodeOptions, Limits};
