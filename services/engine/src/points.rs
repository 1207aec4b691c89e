//! The vocabulary of reads: what callers select of a table's points, and the columns and summaries that a snapshot returns.
//!
//! The types are those of the store and of its chunks; services import them here, so that the engine is the only crate below them.

pub use tideline_chunk::{Bitmap, ColumnSummary, Number, Presence, Run, RunColumn, Sum, ValueSummary};
pub use tideline_series_store::manifest::Segment;
pub use tideline_series_store::scan::{Bucket, Grid, Part, Screen};
pub use tideline_series_store::{
    LatestField, LatestRow, Order, ReadCost, Seen, Selection, Snapshot, StoreError, SweepReader,
    UnsealedEstimate,
};
