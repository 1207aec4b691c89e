//! Schemas of the enums of settings.
//!
//! The enums are those of `tideline-model`, which does not depend on OpenAPI. The schemas list the names that it defines.

use std::borrow::Cow;

use tideline_model::{ColumnCompression, ColumnType, GroupCompression, PartPeriod};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use crate::named::named;

/// Schema of [`ColumnCompression`].
pub struct ColumnCompressionSchema;

impl PartialSchema for ColumnCompressionSchema {
    fn schema() -> RefOr<Schema> {
        named(
            "Compression of the values of a column in packed rows and large values: `auto` together with the other columns of a \
             row; `none` as they are; `lz4`, which is decompressed fast; `zstd` with a dictionary of the frequent phrases of the \
             column, which takes the fewest bytes and more CPU time when rows are packed.",
            ColumnCompression::ALL.map(ColumnCompression::name),
        )
    }
}

impl ToSchema for ColumnCompressionSchema {
    fn name() -> Cow<'static, str> {
        "ColumnCompression".into()
    }
}

/// Schema of [`ColumnType`], with the names that `tideline-model` defines.
pub struct ColumnTypeSchema;

impl PartialSchema for ColumnTypeSchema {
    fn schema() -> RefOr<Schema> {
        let description = "Type of a column. In JSON: `string` text; `i64`, `u64` number or text; `f64` number; `bool` true or \
                           false; `binary` base64 text; `decimal` exact number of 128 bits, text or number; `json` any \
                           value; `timestamp` RFC 3339 text or integer nanoseconds.";
        named(description, ColumnType::ALL.map(ColumnType::name))
    }
}

impl ToSchema for ColumnTypeSchema {
    fn name() -> Cow<'static, str> {
        "ColumnType".into()
    }
}

/// Schema of [`GroupCompression`].
pub struct GroupCompressionSchema;

impl PartialSchema for GroupCompressionSchema {
    fn schema() -> RefOr<Schema> {
        named(
            "Compression of the packed columns of a group: `fast` as for other columns, or `dense` in blocks of 64 KiB with fewer \
             bytes, for more CPU time of flushes and of reads of single rows.",
            GroupCompression::ALL.map(GroupCompression::name),
        )
    }
}

impl ToSchema for GroupCompressionSchema {
    fn name() -> Cow<'static, str> {
        "GroupCompression".into()
    }
}

/// Schema of [`PartPeriod`].
pub struct PartPeriodSchema;

impl PartialSchema for PartPeriodSchema {
    fn schema() -> RefOr<Schema> {
        named("Length of a part, in UTC.", PartPeriod::ALL.map(PartPeriod::name))
    }
}

impl ToSchema for PartPeriodSchema {
    fn name() -> Cow<'static, str> {
        "PartPeriod".into()
    }
}

/// Schema of [`KeyOrder`](tideline_model::KeyOrder).
pub struct KeyOrderSchema;

impl PartialSchema for KeyOrderSchema {
    fn schema() -> RefOr<Schema> {
        named(
            "Order of a key column in a forward scan: smallest or largest value first.",
            ["asc", "desc"],
        )
    }
}

impl ToSchema for KeyOrderSchema {
    fn name() -> Cow<'static, str> {
        "KeyOrder".into()
    }
}
