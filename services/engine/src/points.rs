//! Types of reads: the selection of a table's points, and the columns and summaries that a snapshot returns.
//!
//! They are re-exported here, so that services depend on no crate below the engine.

pub use tideline_chunk::{Bitmap, ColumnSummary, Number, Presence, Run, RunColumn, Sum, ValueSummary};
pub use tideline_series_store::manifest::Segment;
pub use tideline_series_store::scan::{Bucket, Grid, Part, ZoneFilter};
pub use tideline_series_store::{
    LatestField, LatestRow, Order, ReadCost, ScanReader, Seen, Selection, Snapshot, StoreError,
    UnsealedEstimate,
};
