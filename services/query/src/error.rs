//! What can go wrong with a query, sorted by what a caller does next.

use std::time::Duration;

use tideline_engine::model::ValueType;
use tideline_engine::moves::StoreError;
use tideline_engine::runtime::MemoryFull;
use tideline_engine::{EngineError, ErrorKind};

use crate::function::Function;

/// The result of a query.
pub type Result<T> = std::result::Result<T, QueryError>;

/// A query that was refused, failed or stopped.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// Selecting timelines or reading points failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The question cannot be right.
    #[error("{0}")]
    Invalid(String),
    /// No row of the table ever had this field.
    #[error(
        "field {field:?} does not exist in table {table:?}{}",
        suggested(did_you_mean)
    )]
    NoSuchField {
        /// The field asked for.
        field: String,
        /// The table.
        table: String,
        /// Fields that it has, the most alike first.
        did_you_mean: Vec<String>,
    },
    /// A function was asked of values that it does not suit.
    #[error("{function} cannot be computed from field {field:?} of {measurement:?}: its values are of type {}", value_type.name())]
    WrongType {
        /// What was asked.
        function: Function,
        /// The measurement.
        measurement: String,
        /// The field.
        field: String,
        /// What it holds.
        value_type: ValueType,
    },
    /// A part of the budget is used up.
    #[error("{what}: {actual} is over the limit of {limit}; narrow the query")]
    OverBudget {
        /// Of what there is too much.
        what: &'static str,
        /// The limit.
        limit: u64,
        /// How much it is or would be; where reading was stopped, how much it was then.
        actual: u64,
    },
    /// The memory account of the process has no room for what the query holds.
    #[error(transparent)]
    Memory(#[from] MemoryFull),
    /// The query ran for as long as it may.
    #[error("the query was stopped after {} ms, its limit; narrow it", limit.as_millis())]
    TimedOut {
        /// The limit.
        limit: Duration,
        /// How long it had run.
        elapsed: Duration,
    },
    /// Too many queries of cold points at once. Nothing was done; ask again later.
    #[error("{running} queries of cold points run and {waiting} wait for their turn; ask again later")]
    Overloaded {
        /// How many run.
        running: usize,
        /// How many wait.
        waiting: usize,
    },
    /// A page token that this service did not write.
    #[error("the page token is damaged")]
    DamagedToken,
    /// A page token of another query.
    #[error("the page token belongs to another query")]
    ForeignToken,
    /// The one who asked has left.
    #[error("the query was cancelled")]
    Cancelled,
}

impl QueryError {
    /// What the caller does next. Nobody waits for the answer of a cancelled query; its kind says so little.
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

    /// The limit that was passed, and by what; milliseconds where it is time.
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

/// What the message of a name that does not exist ends with.
fn suggested(names: &[String]) -> String {
    match names {
        [] => String::new(),
        names => format!("; did you mean {}?", names.join(" or ")),
    }
}
