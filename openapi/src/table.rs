//! Tables and their settings.
//!
//! A request changes only the settings that it contains. For `write_past` and `write_future`, `null` removes
//! the limit.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tideline_model::{Durability as ModelDurability, SearchAnalyzer, TableModel};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use crate::feed::{FeedSettings, FeedView};
use crate::named::named;
use crate::policy::{Policy, PolicyChanges};
use crate::present::present;
use crate::statistics::TableStatistics;
use crate::time::DurationText;
use crate::wide::{WideChanges, WideSettings, WideView};

/// Table and its settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "name": "default",
    "model": "series",
    "created": "2026-11-20T12:00:00Z",
    "source_tags": ["host", "hostname", "instance", "machine", "device"],
    "durability": "synced",
    "write_past": null,
    "write_future": "365d",
    "policy": {
        "hot_ttl": "7d", "cold_ttl": null, "retention": "90d", "archive": null, "timeline_ttl": null,
        "migrate": "continuous", "expire": "continuous", "move_bytes_per_second": null, "timelines_per_minute": null
    }
}))]
pub struct TableView {
    /// Name.
    pub name: String,
    /// Model: shape of the keys and rows. Fixed when the table is created.
    #[schema(value_type = TableModelSchema)]
    pub model: TableModel,
    /// Creation time, RFC 3339.
    pub created: String,
    /// Source tags: the first of these tags that is present identifies the machine of a timeline. Fixed by the first
    /// write.
    pub source_tags: Vec<String>,
    /// Guarantee of an acknowledged write.
    pub durability: Durability,
    /// Maximum age of a written point; `null` = no limit.
    pub write_past: Option<DurationText>,
    /// Maximum time that a written point may be in the future; `null` = no limit.
    pub write_future: Option<DurationText>,
    /// Policy for aging points.
    pub policy: Policy,
    /// Analyzers of text attributes of timelines, by attribute key. Omitted if empty.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, serde_json::Value>, required = false)]
    pub attribute_analyzers: BTreeMap<String, SearchAnalyzer>,
    /// Key, columns and versions of the rows of a wide table, or of the messages of a feed table. Omitted for series tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wide: Option<WideView>,
    /// Settings of a feed table. Omitted for other models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed: Option<FeedView>,
}

/// All tables.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TableList {
    /// Tables, ordered by name.
    pub tables: Vec<TableView>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// One table with its statistics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TableDetail {
    /// Table.
    #[serde(flatten)]
    pub table: TableView,
    /// Statistics.
    pub statistics: TableStatistics,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Table to create. Missing settings have their defaults.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "name": "devices",
    "source_tags": ["device"],
    "durability": "buffered",
    "write_past": "30d",
    "policy": {
        "hot_ttl": "3d",
        "retention": "90d",
        "migrate": {"cron": "0 3 * * *", "time_zone": "Europe/Berlin"}
    }
}))]
pub struct CreateTable {
    /// Name: 1 to 64 characters of `a-z`, `0-9`, `_` and `-`.
    pub name: String,
    /// Key, columns and versions of the rows: required for the model `wide`, and refused for other models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wide: Option<WideSettings>,
    /// Settings of the messages, only for the model `feed`. Default: generated sequence numbers, no declared columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed: Option<FeedSettings>,
    /// Settings.
    #[serde(flatten)]
    pub settings: TableSettings,
}

/// Changes of a table. Missing settings stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"durability": "synced", "write_future": "1h", "policy": {"hot_ttl": "3d", "retention": "90d"}}))]
pub struct AlterTable {
    /// Changes of the settings of the rows of a wide table, or of the messages of a feed table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wide: Option<WideChanges>,
    /// Settings to change.
    #[serde(flatten)]
    pub settings: TableSettings,
}

/// Settings of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TableSettings {
    /// Model: shape of the keys and rows. Cannot be changed after the table is created. Default `series`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<TableModelSchema>)]
    pub model: Option<TableModel>,
    /// Source tags: the first of these tags that is present identifies the machine of a timeline. Cannot be changed
    /// after the first write. Default: `host`, `hostname`, `instance`, `machine`, `device`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_tags: Option<Vec<String>>,
    /// Guarantee of an acknowledged write. Default `synced`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// Maximum age of a written point; `null` = no limit, the default.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<DurationText>)]
    pub write_past: Option<Option<DurationText>>,
    /// Maximum time that a written point may be in the future; `null` = no limit. Default `365d`.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<DurationText>)]
    pub write_future: Option<Option<DurationText>>,
    /// Policy for aging points. Missing members stay unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyChanges>,
    /// Analyzers of text attributes of timelines, by attribute key, at most 64; they replace all existing ones. An
    /// analyzer states how `text` and `phrase` split the attribute and the searched text into words: `"words"`,
    /// `"cjk"`, `{"language": "english"}` or `{"ngram": 3}`, as in search indexes over rows. Attributes that are not
    /// listed have the analyzer `"words"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, serde_json::Value>>)]
    pub attribute_analyzers: Option<BTreeMap<String, SearchAnalyzer>>,
}

/// Schema of [`TableModel`], with the names that `tideline-model` defines.
pub struct TableModelSchema;

impl PartialSchema for TableModelSchema {
    fn schema() -> RefOr<Schema> {
        let description = "Shape of the keys and rows of a table: `series` for points of timelines, `wide` for rows with key columns, `feed` \
                           for messages of timelines.";
        named(description, TableModel::ALL.map(TableModel::name))
    }
}

impl ToSchema for TableModelSchema {
    fn name() -> Cow<'static, str> {
        "TableModel".into()
    }
}

/// Guarantee of an acknowledged write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The points are on stable storage.
    Synced,
    /// The points are in buffers of the operating system. They survive a killed process, but not always a power
    /// failure.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_refuses_what_it_does_not_know() {
        let create =
            |json: &str| serde_json::from_str::<CreateTable>(json).map_err(|error| error.to_string());
        let created =
            create(r#"{"name": "a", "write_past": null, "policy": {"hot_ttl": "1d"}}"#).expect("right");
        assert_eq!(created.settings.write_past, Some(None));
        assert_eq!(created.settings.write_future, None);
        for (json, said) in [
            (
                r#"{"name": "a", "durabilty": "synced"}"#,
                "unknown field `durabilty`",
            ),
            (r#"{"name": "a", "policy": {"hot": "1d"}}"#, "unknown field `hot`"),
            (
                r#"{"name": "a", "policy": {"hot_ttl": "soon"}}"#,
                "policy.hot_ttl: \"soon\" is not a valid age",
            ),
            (r#"{"name": "a", "write_past": "soon"}"#, "expected a duration"),
            (r#"{"durability": "synced"}"#, "missing field `name`"),
            (
                r#"{"name": "a", "model": "rows"}"#,
                "unknown variant `rows`, expected one of `series`, `wide`, `feed`",
            ),
        ] {
            let error = create(json).expect_err(json);
            assert!(error.contains(said), "{json}: {error}");
        }
        let renamed =
            serde_json::from_str::<AlterTable>(r#"{"name": "b"}"#).expect_err("a table keeps its name");
        assert!(renamed.to_string().contains("unknown field `name`"), "{renamed}");
    }
}
