//! Types of background jobs: surveys of the store, windows and write ranks used by plans, and segment moves.
//!
//! They are re-exported here, so that services above the engine do not depend on the store.

pub use tideline_series_store::{
    Evicted, Orphan, OrphanSearch, Rewrite, RewriteCause, RewriteCost, Rewritten, SealReport, StoreError,
    Survey, TableSurvey, Throttle, Unsealed, manifest, window,
};
