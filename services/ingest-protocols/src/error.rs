//! What can be wrong with a whole request, or with a call to a writer.
//!
//! A bad line or element is no error: it becomes a [`tideline_model::LineReject`] beside the good ones.

use tideline_model::SeriesError;

/// An operation that gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IngestError {
    /// The body is not one JSON document, or its outermost form is not that of a write.
    #[error("invalid JSON at line {line}, column {column}: {reason}")]
    Json {
        /// The line of the body; the first is 1.
        line: usize,
        /// The column in bytes; the first is 1.
        column: usize,
        /// What was expected or found.
        reason: String,
    },
    /// The body is not the Protocol Buffers message that it ought to be.
    #[error("invalid {message}: {reason}")]
    Protobuf {
        /// The full name of the message.
        message: &'static str,
        /// In what way.
        reason: &'static str,
    },
    /// The names of a point cannot be written in line protocol.
    #[error("{0}")]
    Series(#[from] SeriesError),
    /// A point without a field cannot be written.
    #[error("missing fields")]
    MissingFields,
    /// A field name is empty, ends in a backslash or holds a control character.
    #[error("invalid field name {0:?}")]
    FieldName(String),
    /// Line protocol has no form for NaN and infinities.
    #[error("field {0:?} is not a finite number")]
    NotFinite(String),
    /// Line protocol has no form for histograms.
    #[error("field {0:?} is a histogram, which line protocol has no form for")]
    Histogram(String),
}
