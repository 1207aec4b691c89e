//! The vocabulary of background jobs: surveys of the store, windows and ranks that plans are made of, and the moves themselves.
//!
//! The types are those of the store; services import them here, so that the engine is the only crate below them.

pub use tideline_series_store::{
    Evicted, Orphan, OrphanSearch, Pace, Rewrite, RewriteCause, RewriteCost, Rewritten, SealReport,
    StoreError, Survey, TableSurvey, Unsealed, manifest, window,
};
