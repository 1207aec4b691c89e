//! Errors of queries, classified by the reaction that they require of the caller.
//!
//! [`QueryError::kind`] maps each error to the kinds that all interfaces share. If a limit was exceeded, the message
//! names the limit and, except for the time limit, the actual value.

use std::time::Duration;

use tideline_engine::model::ValueType;
use tideline_engine::moves::StoreError;
use tideline_engine::runtime::MemoryFull;
use tideline_engine::{EngineError, ErrorKind};

use crate::function::Function;

/// Result of a query operation.
pub type Result<T> = std::result::Result<T, QueryError>;

/// Query that was refused, failed or was stopped.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// Selecting timelines or reading points failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Invalid query.
    #[error("{0}")]
    Invalid(String),
    /// No row of the table has ever had this field.
    #[error(
        "field {field:?} does not exist in table {table:?}{}",
        suggested(did_you_mean)
    )]
    NoSuchField {
        /// Requested field.
        field: String,
        /// Name of the table.
        table: String,
        /// Fields of the table with similar names, the most similar first.
        did_you_mean: Vec<String>,
    },
    /// A function does not support the values of its field.
    #[error("{function} cannot be computed from field {field:?} of {measurement:?}: its values are of type {}", value_type.name())]
    WrongType {
        /// Requested function.
        function: Function,
        /// Name of the measurement.
        measurement: String,
        /// Name of the field.
        field: String,
        /// Type of its values.
        value_type: ValueType,
    },
    /// A limit of the budget was exceeded.
    #[error("{what}: {actual} is over the limit of {limit}; narrow the query")]
    OverBudget {
        /// Quantity that exceeded its limit.
        what: &'static str,
        /// Maximum of the quantity.
        limit: u64,
        /// Actual or required amount; if reading was stopped, the amount at that time.
        actual: u64,
    },
    /// The memory account of the process has too little free memory for the data that the query holds.
    #[error(transparent)]
    Memory(#[from] MemoryFull),
    /// The query reached its time limit.
    #[error("the query was stopped at its time limit of {} ms; narrow it", limit.as_millis())]
    TimedOut {
        /// Time limit of the query.
        limit: Duration,
        /// Time since the start of the query.
        elapsed: Duration,
    },
    /// Too many concurrent queries of cold points. Nothing was done; the query can be retried later.
    #[error("too many queries of cold points and rows: {running} running, {waiting} waiting; retry later")]
    Overloaded {
        /// Number of running queries.
        running: usize,
        /// Number of waiting queries.
        waiting: usize,
    },
    /// A page token that this service did not issue.
    #[error("the page token is damaged")]
    DamagedToken,
    /// A page token of another query.
    #[error("the page token belongs to another query")]
    ForeignToken,
    /// The query was cancelled: its client has disconnected, its cancellation was requested, or its token was revoked.
    #[error("the query was cancelled by a request, or because its token was revoked")]
    Cancelled,
}

impl QueryError {
    /// Returns the kind, which determines the reaction of the caller. A cancelled query is reported as unavailable,
    /// since there is no complete result.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Engine(error) => error.kind(),
            Self::Invalid(_)
            | Self::NoSuchField { .. }
            | Self::WrongType { .. }
            | Self::DamagedToken
            | Self::ForeignToken => ErrorKind::Invalid,
            Self::Overloaded { .. } => ErrorKind::Overloaded,
            Self::Memory(full) => match full.is_retryable() {
                true => ErrorKind::Overloaded,
                false => ErrorKind::OverLimit,
            },
            Self::OverBudget { .. } | Self::TimedOut { .. } => ErrorKind::OverLimit,
            Self::Cancelled => ErrorKind::Unavailable,
        }
    }

    /// Returns the exceeded limit and the actual amount, in milliseconds for time limits; `None` for errors
    /// without a limit.
    pub fn limit(&self) -> Option<(u64, u64)> {
        let millis = |time: &Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        match self {
            Self::Engine(error) => error.limit(),
            Self::OverBudget { limit, actual, .. } => Some((*limit, *actual)),
            Self::Memory(full) => Some((full.limit_bytes, full.held_bytes)),
            Self::TimedOut { limit, elapsed } => Some((millis(limit), millis(elapsed))),
            _ => None,
        }
    }
}

impl From<StoreError> for QueryError {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}

/// Returns the suggestion that ends the message for a name that does not exist.
fn suggested(names: &[String]) -> String {
    match names {
        [] => String::new(),
        names => format!("; did you mean {}?", names.join(" or ")),
    }
}
