//! Errors that fail a write as a whole. A bad line does not fail the write: it becomes a reject in the outcome.

use tideline_engine::EngineError;
use tideline_engine::model::SeriesError;
use tideline_ingest_protocols::IngestError;

/// Error of a whole write.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The engine refused the write or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The body is not valid in its format. Nothing was stored.
    #[error(transparent)]
    Body(#[from] IngestError),
    /// The database name cannot be the value of a tag. Nothing was stored.
    #[error("database name: {0}")]
    DatabaseName(SeriesError),
}
