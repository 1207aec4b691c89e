//! Tables: what a user sets about them, and what they hold.

use serde::{Deserialize, Serialize};
use tideline_model::Durability as ModelDurability;
use utoipa::ToSchema;

use crate::present::present;
use crate::time::DurationText;

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "name": "default",
    "created": "2026-11-20T12:00:00Z",
    "source_tags": ["host", "hostname", "instance", "machine", "device"],
    "durability": "synced",
    "write_past": null,
    "write_future": "365d"
}))]
pub struct TableView {
    /// Its name.
    pub name: String,
    /// When it was made, RFC 3339.
    pub created: String,
    /// Tags that name the machine, the first one present wins. Fixed at the table's first write.
    pub source_tags: Vec<String>,
    /// What the acknowledgement of a write promises.
    pub durability: Durability,
    /// How far before now a point may lie; `null` = any past.
    pub write_past: Option<DurationText>,
    /// How far after now a point may lie; `null` = any future.
    pub write_future: Option<DurationText>,
}

/// Every table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TableList {
    /// By name.
    pub tables: Vec<TableView>,
    /// Names the request in the log.
    pub request_id: String,
}

/// One table with what it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TableDetail {
    /// The table.
    #[serde(flatten)]
    pub table: TableView,
    /// What it holds.
    pub statistics: TableStatistics,
    /// Names the request in the log.
    pub request_id: String,
}

/// What a table holds. Sealed points only: the newest ones are counted for the whole store, in `/metrics`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "timelines": 36_000,
    "segments": 4,
    "sealed_points": 12_960_000,
    "sealed_values": 129_600_000,
    "sealed_bytes": 77_760_000,
    "sealed_from": "2026-11-20T12:00:00Z",
    "sealed_to": "2026-11-20T12:59:50Z"
}))]
pub struct TableStatistics {
    /// Timelines.
    pub timelines: u64,
    /// Published segments.
    pub segments: u64,
    /// Sealed points.
    pub sealed_points: u64,
    /// Field values in them.
    pub sealed_values: u64,
    /// Bytes of their chunks and keys.
    pub sealed_bytes: u64,
    /// Oldest sealed instant, RFC 3339.
    pub sealed_from: Option<String>,
    /// Newest sealed instant, RFC 3339.
    pub sealed_to: Option<String>,
}

/// A new table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "devices", "source_tags": ["device"], "durability": "buffered", "write_past": "30d"}))]
pub struct CreateTable {
    /// 1 to 64 characters of `a-z`, `0-9`, `_` and `-`.
    pub name: String,
    /// Tags that name the machine, the first one present wins. Cannot be changed after the first write. Default:
    /// `host`, `hostname`, `instance`, `machine`, `device`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_tags: Option<Vec<String>>,
    /// What the acknowledgement of a write promises. Default `synced`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// How far before now a point may lie; `null` = any past, the default.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<DurationText>)]
    pub write_past: Option<Option<DurationText>>,
    /// How far after now a point may lie; `null` = any future. Default `365d`.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<DurationText>)]
    pub write_future: Option<Option<DurationText>>,
}

impl CreateTable {
    /// The name, and the settings that are not defaults.
    pub fn into_parts(self) -> (String, TableSettings) {
        let settings = TableSettings {
            source_tags: self.source_tags,
            durability: self.durability,
            write_past: self.write_past,
            write_future: self.write_future,
        };
        (self.name, settings)
    }
}

/// Changes of a table's settings. What is left away stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"durability": "synced", "write_future": "1h"}))]
pub struct TableSettings {
    /// Tags that name the machine, the first one present wins. Cannot be changed after the first write. Default:
    /// `host`, `hostname`, `instance`, `machine`, `device`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_tags: Option<Vec<String>>,
    /// What the acknowledgement of a write promises. Default `synced`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// How far before now a point may lie; `null` = any past, the default.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<DurationText>)]
    pub write_past: Option<Option<DurationText>>,
    /// How far after now a point may lie; `null` = any future. Default `365d`.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<DurationText>)]
    pub write_future: Option<Option<DurationText>>,
}

/// What an acknowledgement promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The points are on stable storage.
    Synced,
    /// The points are with the operating system: a killed process loses nothing, a power cut may.
    Buffered,
}

impl From<Durability> for ModelDurability {
    fn from(durability: Durability) -> Self {
        match durability {
            Durability::Synced => Self::Synced,
            Durability::Buffered => Self::Buffered,
        }
    }
}

impl From<ModelDurability> for Durability {
    fn from(durability: ModelDurability) -> Self {
        match durability {
            ModelDurability::Synced => Self::Synced,
            ModelDurability::Buffered => Self::Buffered,
        }
    }
}
