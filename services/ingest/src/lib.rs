//! Write path of all protocols: finds the target, decodes the body, writes the points and returns the outcome.
//!
//! A service passes a [`WriteRequest`] and a decompressed body to [`write()`], and encodes the [`Outcome`] in its
//! protocol. The crate does not depend on HTTP: it has no status codes, headers or response bodies.
//!
//! | module | holds |
//! |---|---|
//! | [`write`](mod@write) | [`WriteRequest`], [`Outcome`], the pipeline |
//! | [`decoder`] | [`Decoder`]: body formats |
//! | [`target`] | [`Target`]: destination table of the points |
//! | [`database`] | mapping of InfluxDB databases to tables and tags |
//! | [`group`] | stale markers that end a group of pushed series |
//! | [`error`] | [`WriteError`] |

pub mod database;
pub mod decoder;
pub mod error;
pub mod group;
pub mod target;
pub mod write;

pub use decoder::Decoder;
pub use error::WriteError;
pub use target::Target;
pub use tideline_ingest_protocols as protocols;
pub use write::{DataPoints, Outcome, WriteRequest, write};
