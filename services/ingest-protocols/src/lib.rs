//! One pure decoder for each protocol that agents write points in.
//!
//! A decoder reads borrowed bytes and ends in a [`tideline_model::PointBatch`]. It does no I/O, waits for
//! nothing, asks no clock and knows neither storage nor HTTP: the caller passes the time to use where a point
//! has none, and a [`tideline_model::SeriesResolver`] that turns the raw bytes of a timeline's name into its
//! ordinal. Which status a reject becomes is the HTTP layer's business, and differs by protocol.
//!
//! | module | reads |
//! |---|---|
//! | [`line_protocol`] | InfluxDB line protocol, the hot path; also writes it |
//! | [`json`] | the native JSON body: `{"points":[…]}` or a bare array |
//! | [`ndjson`] | one native JSON point a line |
//! | [`influx_query`] | the few statements of InfluxQL that agents send before they write |
//! | [`prometheus`] | what Prometheus and its agents send: remote write |
//! | [`series_key`] | `measurement[,tag=value…]`, the form in which every decoder names a timeline |

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
