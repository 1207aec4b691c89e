//! Tables: what a user sets about them.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use tideline_model::{Durability as ModelDurability, TableModel};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use crate::named::named;
use crate::policy::{Policy, PolicyChanges};
use crate::present::present;
use crate::statistics::TableStatistics;
use crate::time::DurationText;

/// A table.
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
    /// Its name.
    pub name: String,
    /// Shape of its keys and rows. Fixed when the table is created.
    #[schema(value_type = TableModelSchema)]
    pub model: TableModel,
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
    /// How its points age.
    pub policy: Policy,
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TableDetail {
    /// The table.
    #[serde(flatten)]
    pub table: TableView,
    /// What it holds.
    pub statistics: TableStatistics,
    /// Names the request in the log.
    pub request_id: String,
}

/// A new table. What is left away has its default.
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
    /// 1 to 64 characters of `a-z`, `0-9`, `_` and `-`.
    pub name: String,
    /// What is set about it.
    #[serde(flatten)]
    pub settings: TableSettings,
}

/// Changes of a table. What is left away stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"durability": "synced", "write_future": "1h", "policy": {"hot_ttl": "3d", "retention": "90d"}}))]
pub struct AlterTable {
    /// What is set anew.
    #[serde(flatten)]
    pub settings: TableSettings,
}

/// What a user sets about a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TableSettings {
    /// Shape of its keys and rows. Cannot be changed after the table is created. Default `series`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<TableModelSchema>)]
    pub model: Option<TableModel>,
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
    /// How its points age. Only the members that are named change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyChanges>,
}

/// Schema of [`TableModel`]: its names are those of the model.
pub struct TableModelSchema;

impl PartialSchema for TableModelSchema {
    fn schema() -> RefOr<Schema> {
        let description = "Shape of the keys and rows of a table: `series` holds points of timelines, `wide` rows with key columns, `feed` \
                           messages of timelines. A server refuses models that it does not serve.";
        named(description, TableModel::ALL.map(TableModel::name))
    }
}

impl ToSchema for TableModelSchema {
    fn name() -> Cow<'static, str> {
        "TableModel".into()
    }
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
                "policy.hot_ttl: \"soon\" is no age",
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
