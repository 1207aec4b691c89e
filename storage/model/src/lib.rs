//! The nouns that every room of Tideline shares: identities, instants, values, identities of timelines,
//! decoded batches and table settings.
//!
//! There is no I/O here, no async and no knowledge of any protocol or engine. A type lives here when at least
//! two layers (storage, indexer, services) speak of it; everything else stays with the room that owns it.
//!
//! | module | holds |
//! |---|---|
//! | [`time`] | [`Timestamp`], [`TimeRange`], [`Precision`], durations, the [`Clock`] |
//! | [`id`] | [`TimelineId`], [`TableId`], [`FieldId`], [`Ordinal`], [`SequenceNumber`], [`SegmentId`], … |
//! | [`value`] | [`Value`], [`ValueType`] and the reserved type codes |
//! | [`geo`] | [`GeoPoint`] |
//! | [`identity`] | [`Identity`]: measurement and sorted tags, and its stored form |
//! | [`batch`] | [`PointBatch`]: what every decoder ends in, its columns, and [`SeriesResolver`] that it asks |
//! | [`compensated_sum`] | [`CompensatedSum`]: sums of doubles that keep what rounding loses |
//! | [`job`] | [`JobKind`]: kinds of background jobs |
//! | [`measurements`] | [`Measurements`]: the measurement of each row of a group |
//! | [`partition`] | [`Partition`], [`SegmentRef`], [`PartRef`], [`Space`], [`KeyRange`]: names of where a backend keeps rows |
//! | [`table`] | [`TableSpec`]: what a user sets about a table; [`TableModel`] |
//! | [`reject`] | [`RejectReason`]: why a line of a write is not stored |
//! | [`time_expression`] | [`TimeExpression`]: a time as people write it |

pub mod batch;
pub mod compensated_sum;
pub mod geo;
pub mod id;
pub mod identity;
pub mod job;
mod joined;
pub mod measurements;
pub mod partition;
pub mod reject;
pub mod table;
pub mod time;
pub mod time_expression;
pub mod value;

pub use batch::{BytesColumn, ColumnData, PointBatch, PointGroup, SeriesError, SeriesResolver};
pub use compensated_sum::CompensatedSum;
pub use geo::GeoPoint;
pub use id::{FieldId, GroupId, Ordinal, PartId, SegmentId, SequenceNumber, TableId, TimelineId};
pub use identity::Identity;
pub use job::JobKind;
pub use measurements::Measurements;
pub use partition::{KEY_BYTES_MAX, KeyRange, PartRef, Partition, SegmentRef, Space, Unit};
pub use reject::{LineReject, RejectReason, TypeConflict, WaitsFor};
pub use table::{ArchivePolicy, Durability, Policy, Schedule, TableModel, TableName, TableSpec, Tier};
pub use time::{Clock, ManualClock, Precision, SystemClock, TimeRange, Timestamp};
pub use time_expression::{TimeExpression, TimeExpressionError};
pub use value::{Value, ValueKind, ValueType};
