//! Failures of a write as a whole. A bad line is not a failure: it becomes a reject of the outcome.

use tideline_engine::EngineError;
use tideline_engine::model::SeriesError;
use tideline_ingest_protocols::IngestError;

/// A write that failed as a whole.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The engine refused it or failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The body is not of its format. Nothing was stored.
    #[error(transparent)]
    Body(#[from] IngestError),
    /// No tag can hold the name of the database. Nothing was stored.
    #[error("database name: {0}")]
    DatabaseName(SeriesError),
}
