//! Conversion of engine and query errors to the error types of Prometheus' API.

use std::io;

use tideline_engine::{EngineError, ErrorKind};
use tideline_promql::PromqlError;
use tideline_query::QueryError;

/// Name of the operation in these errors, as in Prometheus.
const DOING: &str = "expression evaluation";

/// Converts the error of a failed query.
pub(crate) fn of_query(error: &QueryError) -> PromqlError {
    match error {
        QueryError::Cancelled => PromqlError::Canceled(DOING),
        QueryError::TimedOut { .. } => PromqlError::Timeout(DOING),
        QueryError::OverBudget { .. } => PromqlError::TooMany(error.to_string()),
        other => of_kind(other.kind(), other.to_string()),
    }
}

/// Converts the error of a failed call of the engine.
pub(crate) fn of_engine(error: &EngineError) -> PromqlError {
    of_kind(error.kind(), error.to_string())
}

fn of_kind(kind: ErrorKind, message: String) -> PromqlError {
    match kind {
        ErrorKind::Invalid => PromqlError::Invalid(message),
        ErrorKind::OverLimit => PromqlError::TooMany(message),
        kind => PromqlError::Storage {
            message,
            is_overloaded: matches!(
                kind,
                ErrorKind::Overloaded | ErrorKind::RateLimited | ErrorKind::DiskFull | ErrorKind::Unavailable
            ),
        },
    }
}

/// Returns the error of a failed write to a client that has disconnected. This error is not sent to any client.
pub(crate) fn client_left(_: io::Error) -> PromqlError {
    PromqlError::Canceled("writing the response")
}
