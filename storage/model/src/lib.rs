//! Data types shared by all layers of Tideline: ids, timestamps, values, timeline identities, decoded batches and table
//! settings.
//!
//! This crate has no I/O, no async code, and no dependency on any protocol or storage engine. It holds only types that
//! at least two layers (storage, indexer, services) use; all other types stay in the crate that owns them.
//!
//! | module | holds |
//! |---|---|
//! | [`time`] | [`Timestamp`], [`TimeRange`], [`Precision`], durations, the [`Clock`] |
//! | [`id`] | [`TimelineId`], [`TableId`], [`FieldId`], [`Ordinal`], [`SequenceNumber`], [`SegmentId`], … |
//! | [`value`] | [`Value`], [`ValueType`] and the reserved type codes |
//! | [`geo`] | [`GeoPoint`] |
//! | [`identity`] | [`Identity`]: measurement and sorted tags, and its stored form |
//! | [`batch`] | [`PointBatch`]: columnar result of every write decoder; [`SeriesResolver`]: timeline lookup |
//! | [`compensated_sum`] | [`CompensatedSum`]: sum of doubles with compensated rounding errors |
//! | [`job`] | [`JobKind`]: kinds of background jobs |
//! | [`measurements`] | [`Measurements`]: measurement of each row of a group |
//! | [`log_linear`] | [`LogLinearHistogram`]: number of doubles per bucket, for percentiles |
//! | `joined` | columns of values of variable length in one buffer |
//! | [`model_tag`] | [`ModelTag`]: first bytes of a journal entry; they identify its data model |
//! | [`parts`] | [`PartsSpec`], [`TierScope`]: division of a wide table into parts by time, and their tiers |
//! | [`partition`] | [`Partition`], [`SegmentRef`], [`PartRef`], [`Space`], [`KeyRange`]: addresses of backend rows |
//! | [`table`] | [`TableSpec`]: user settings of a table; [`TableName`], [`TableModel`], [`Tier`], [`Policy`], … |
//! | [`role`] | [`Role`]: roles of tokens |
//! | [`reject`] | [`RejectReason`]: reason why a line of a write is not stored |
//! | [`time_expression`] | [`TimeExpression`]: absolute or relative time in user input |
//! | [`wide`] | [`WideSpec`]: settings of a wide table, such as key, columns, versions, indexes and time-to-live |
//! | [`feed`] | settings of a feed table |
//!
//! # Examples
//!
//! The current time is read from a [`Clock`] that is passed as an argument. Tests use a [`ManualClock`]:
//!
//! ```
//! use tideline_model::{Clock, ManualClock, Timestamp};
//!
//! let clock = ManualClock::new(Timestamp::EPOCH);
//! clock.advance(90_000_000_000);
//! assert_eq!(clock.now().to_rfc3339(), "1970-01-01T00:01:30Z");
//! ```

pub mod batch;
pub mod compensated_sum;
pub mod feed;
pub mod geo;
pub mod id;
pub mod identity;
pub mod job;
mod joined;
pub mod log_linear;
pub mod measurements;
pub mod model_tag;
pub mod partition;
pub mod parts;
pub mod reject;
pub mod role;
pub mod table;
pub mod time;
pub mod time_expression;
pub mod value;
pub mod wide;

pub use batch::{BytesColumn, ColumnData, PointBatch, PointGroup, SeriesError, SeriesResolver};
pub use compensated_sum::CompensatedSum;
pub use feed::{FeedSpec, InboxEntries, InboxSpec, SequenceSource};
pub use geo::GeoPoint;
pub use id::{FieldId, GroupId, Ordinal, PartId, SegmentId, SequenceNumber, TableId, TimelineId};
pub use identity::Identity;
pub use job::JobKind;
pub use log_linear::LogLinearHistogram;
pub use measurements::Measurements;
pub use model_tag::ModelTag;
pub use partition::{KEY_BYTES_MAX, KeyRange, PartRef, Partition, SegmentRef, Space, Unit};
pub use parts::{PartPeriod, PartsArchive, PartsSpec, TierScope};
pub use reject::{LineReject, RejectReason, TypeConflict, WaitsFor};
pub use role::Role;
pub use table::{ArchivePolicy, Durability, Policy, Schedule, TableModel, TableName, TableSpec, Tier};
pub use time::{Clock, ManualClock, Precision, SystemClock, TimeRange, Timestamp};
pub use time_expression::{TimeExpression, TimeExpressionError};
pub use value::{Value, ValueKind, ValueType};
pub use wide::{
    ColumnCompression, ColumnGroupSpec, ColumnSpec, ColumnType, GroupCompression, IndexCover, IndexScope,
    IndexSpec, IndexState, KeyColumnSpec, KeyOrder, KeySource, LIMIT_UNIT_BYTES, RowLimit, RowTtl,
    SearchAnalyzer, SearchColumnSpec, SearchForm, SearchIndexSpec, SearchLanguage, TtlScope, WideSpec,
};
