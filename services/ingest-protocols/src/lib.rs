//! Decoders of the ingest protocols, without side effects.
//!
//! A decoder reads borrowed bytes and returns a [`tideline_model::PointBatch`]. It does no I/O, does not block, reads
//! no clock, and does not depend on storage or HTTP. The caller passes the timestamp for points without one, and a
//! [`tideline_model::SeriesResolver`] that maps the raw key of a timeline to its ordinal. The HTTP layer maps rejects
//! to status codes, which differ by protocol.
//!
//! | module | reads |
//! |---|---|
//! | [`line_protocol`] | InfluxDB line protocol, the hot path; also writes it |
//! | [`json`] | the native JSON body: `{"points":[…]}` or a bare array |
//! | [`ndjson`] | native JSON with one point per line |
//! | [`influx_query`] | the few InfluxQL statements that agents send before they write |
//! | [`prometheus`] | formats of Prometheus and its agents, such as remote write |
//! | [`series_key`] | `measurement[,tag=value…]`, the raw key by which decoders identify a timeline |

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
