//! The one way in for points, whatever protocol they come by: target → decode → write → outcome.
//!
//! A service passes a [`WriteRequest`] and a decompressed body to [`write()`], and words the [`Outcome`] in its protocol.
//! Nothing here depends on HTTP: no status, header or JSON of an answer.
//!
//! | module | holds |
//! |---|---|
//! | [`write`](mod@write) | [`WriteRequest`], [`Outcome`], the pipeline |
//! | [`decoder`] | [`Decoder`]: the formats of bodies |
//! | [`target`] | [`Target`]: the table that points go to |
//! | [`database`] | the tag that stands for a database of an InfluxDB client |
//! | [`group`] | the end of a group of pushed series |
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
pub use write::{Outcome, WriteRequest, write};
