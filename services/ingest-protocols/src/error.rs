//! Errors of a whole request and of the line-protocol writer.
//!
//! A bad line or element is not an error: it becomes a [`tideline_model::LineReject`], and valid lines and elements are
//! kept.

use tideline_model::SeriesError;

/// Error of an operation that produced no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IngestError {
    /// The body is not one JSON document or not a valid request of its format.
    #[error("invalid JSON at line {line}, column {column}: {reason}")]
    Json {
        /// Line of the body, starting at 1.
        line: usize,
        /// Column in bytes, starting at 1; 0 if the body ends before the first byte of the line.
        column: usize,
        /// Description of the error.
        reason: String,
    },
    /// The body is not a valid Protocol Buffers message of the expected type.
    #[error("invalid {message}: {reason}")]
    Protobuf {
        /// Full name of the message type.
        message: &'static str,
        /// Description of the error.
        reason: &'static str,
    },
    /// The measurement or a tag cannot be written in line protocol.
    #[error("{0}")]
    Series(#[from] SeriesError),
    /// A point without fields cannot be written.
    #[error("missing fields")]
    MissingFields,
    /// A field name is empty, ends in a backslash or contains a control character.
    #[error("invalid field name {0:?}")]
    FieldName(String),
    /// Line protocol cannot represent NaN and infinities.
    #[error("field {0:?} is not a finite number")]
    NotFinite(String),
    /// Line protocol cannot represent histograms.
    #[error("field {0:?} is a histogram; line protocol does not support histograms")]
    Histogram(String),
}
