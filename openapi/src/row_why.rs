//! Diagnosis of one key: all stored data of the key, and the rules that hide data from reads.
//!
//! Rules have a code, which is stable across versions, and an explanation in words, which may change.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::condition::RowFilter;
use crate::row::Members;

/// Key to explain.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"key": {"customer": "acme", "placed": "2026-11-20T12:00:00Z"}, "where": {"column": "total", "gt": 5}}))]
pub struct WhyRow {
    /// Whole key of the row.
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub key: Members,
    /// Names of the columns whose versions are listed; a name that ends with `*` is a prefix. Default: all columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// Condition of a read that does not return the row. Each of its tests is evaluated on the row.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<RowFilter>,
}

/// Rule that hides data from reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhyCode {
    /// No data is stored for the key: the row was never written, or it has been removed.
    NotStored,
    /// A later write deleted the row.
    Deleted,
    /// A later delete of a range included the row.
    RangeDeleted,
    /// A later `put` replaced the whole row.
    Replaced,
    /// A later write removed all versions of the column.
    Cleared,
    /// A later write stored a value with the same version.
    SameVersion,
    /// The table keeps a limited number of versions per column, and that many versions are newer.
    MaxVersions,
    /// The table has a newer copy of the row, which the next packing merges.
    NewerCopy,
    /// The time-to-live has passed.
    Expired,
    /// The part of the table that contains the row has exceeded the age `keep`.
    PartHidden,
    /// The part of the table that contained the row was dropped.
    PartDropped,
    /// The column was declared when the row was written, and its declaration was removed.
    ColumnRemoved,
    /// The row has no value of the column.
    NoValue,
    /// The stored value has another type than the declaration, the index or the condition requires, or is streamed.
    OtherType,
    /// The value does not pass the test.
    NoMatch,
    /// The index has not reached the row yet: it is being built, or follows the writes with a delay.
    IndexBehind,
    /// The index does not serve reads: it is being opened, or has failed and is built again.
    IndexNotReady,
    /// The index does not cover the tier of the row.
    OtherTier,
    /// The index cannot hold the value, because it is too long.
    TooLong,
    /// The row was changed while it was explained; repeat the request.
    ChangedMeanwhile,
}

/// Reason why reads do not return stored data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"code": "expired", "since": "2026-11-20T12:00:00Z", "by": null, "reason": "the row expired 30d after its last write"}))]
pub struct WhyHidden {
    /// The rule.
    pub code: WhyCode,
    /// Timestamp of the write that hides the data, or time when the data expired; `null` if the time is not stored.
    pub since: Option<String>,
    /// Index in `layers`, from 0, of the layer that hides the data; `null` if a setting of the table hides it.
    pub by: Option<usize>,
    /// The rule in words.
    pub reason: String,
}

/// Location of stored data of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = WhyPlace)]
pub enum WhyLocation {
    /// The row buffer in memory, before its flush.
    Buffer,
    /// A row that is stored on its own.
    Single,
    /// A row in a block with its neighbors.
    Packed,
    /// A row in a file of the archive.
    Archive,
}

/// Write or stored row of a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhyChange {
    /// `put`, `update` or `delete`. A stored row is a `put`; several writes of a row in memory may be merged into one.
    pub effect: String,
    /// Time of the write; `null` for the marker of a deleted row.
    pub time: Option<String>,
    /// Number of columns in the change.
    pub columns: usize,
    /// Size in bytes, without the key.
    pub bytes: usize,
    /// Reason why reads return nothing of the change; `null` if it contributes to the row.
    pub hidden: Option<WhyHidden>,
}

/// Layer that stores data of the key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhyLayer {
    /// Location.
    pub place: WhyLocation,
    /// Generation of the row buffer: 0 receives the writes, higher ones wait for their flush. Omitted for stored rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<usize>,
    /// Position of the last change in the journal. Omitted for stored rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// True if the layer contains a delete of a range that includes the key. The changes of the layer are later than
    /// this delete. Omitted if false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deletes_range: bool,
    /// Number of fragments in which a large row is stored. Omitted for other rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragments: Option<usize>,
    /// Column group whose stored columns the layer holds. Omitted for the other columns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Writes of the key, oldest first.
    pub changes: Vec<WhyChange>,
}

/// Stored version of a column.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WhyVersion {
    /// Time of the version.
    pub version: String,
    /// True if the version is later than now, so that writes without an explicit version do not replace it. Omitted if
    /// false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_in_future: bool,
    /// Type of the value.
    #[serde(rename = "type")]
    pub value_type: String,
    /// The value.
    #[schema(value_type = serde_json::Value)]
    pub value: Box<RawValue>,
    /// Index in `layers`, from 0, of the layer that stores the version.
    pub layer: usize,
    /// Time when the version expires or has expired. Omitted unless versions expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Reason why reads do not return the version; `null` if they do. Without `versions`, reads return only the newest
    /// version.
    pub hidden: Option<WhyHidden>,
}

/// Column with its stored versions.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct WhyColumn {
    /// Name; for a column whose declaration was removed, its number after `#`.
    pub name: String,
    /// Declared type; `null` for an undeclared column.
    pub declared: Option<String>,
    /// Remark on the type of the newest value: `other_type`, with its effect. Omitted without a remark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<WhyHidden>,
    /// Versions, newest first.
    pub versions: Vec<WhyVersion>,
}

/// Part of the table that the key belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"name": "2026-11", "start": "2026-11-01T00:00:00Z", "end": "2026-12-01T00:00:00Z", "state": "visible"}))]
pub struct WhyPart {
    /// Name.
    pub name: String,
    /// Start of the part, inclusive.
    pub start: String,
    /// End of the part, exclusive.
    pub end: String,
    /// `visible`, `hidden` (the part has exceeded the age `keep`) or `dropped`.
    pub state: String,
}

/// Entry of the row in a secondary index, or its document in a search index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"name": "by_state", "kind": "secondary", "holds_row": false, "hidden": {
    "code": "no_value", "since": null, "by": null, "reason": "the row has no value of \"state\""}, "columns": []}))]
pub struct WhyIndex {
    /// Name.
    pub name: String,
    /// `secondary` or `search`.
    pub kind: String,
    /// True if a read through the index finds the current state of the row.
    pub holds_row: bool,
    /// Reason why such a read does not find the row; `null` if it does.
    pub hidden: Option<WhyHidden>,
    /// Columns whose values the search index does not hold, and the reasons.
    pub columns: Vec<WhyIndexColumn>,
}

/// Column whose value a search index does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhyIndexColumn {
    /// Name.
    pub name: String,
    /// Form in the index.
    pub form: String,
    /// Reason.
    pub hidden: WhyHidden,
}

/// Test of a condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"test": "total > 5", "column": "total", "passes": false, "hidden": {
    "code": "no_value", "since": null, "by": null, "reason": "the row has no value of \"total\""}}))]
pub struct WhyTest {
    /// The test in words.
    pub test: String,
    /// Tested column.
    pub column: String,
    /// True if the newest value passes.
    pub passes: bool,
    /// Reason why the value does not pass; `null` if it passes.
    pub hidden: Option<WhyHidden>,
}

/// Condition, evaluated on the row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhyFilter {
    /// True if the row matches.
    pub matches: bool,
    /// Tests of the tree in their order, each evaluated alone.
    pub tests: Vec<WhyTest>,
}

/// All stored data of a key.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "key": {"customer": "acme", "placed": "2026-11-20T12:00:00Z"}, "visible": true, "hidden": null,
    "now": "2026-11-20T12:10:00Z", "written": "2026-11-20T12:00:01Z", "max_versions": 1,
    "layers": [{"place": "buffer", "generation": 0, "position": "7", "changes": [
        {"effect": "put", "time": "2026-11-20T12:00:01Z", "columns": 1, "bytes": 24, "hidden": null}]}],
    "columns": [{"name": "total", "declared": "decimal", "versions": [{"version": "2026-11-20T12:00:01Z",
        "type": "decimal", "value": "5.32", "layer": 0, "hidden": null}]}],
    "columns_total": 1, "versions_total": 1, "indexes": [], "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct RowWhy {
    /// The key.
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub key: Box<RawValue>,
    /// True if reads by the key return the row.
    pub visible: bool,
    /// Reason why reads by the key do not return the row; `null` if they do.
    pub hidden: Option<WhyHidden>,
    /// Time of the explanation.
    pub now: String,
    /// Time of the last write of the row, from which its age is measured; `null` if the row does not exist.
    pub written: Option<String>,
    /// Time when the row expires or has expired. Omitted if rows do not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Number of versions that the table keeps per column.
    pub max_versions: usize,
    /// Part of the table. Omitted if the table is not divided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<WhyPart>,
    /// Layers that store data of the key, newest first. A flush removes data that can never be read again.
    pub layers: Vec<WhyLayer>,
    /// Columns by name: at most 1,000 columns and 10,000 versions. Use `columns` to select other columns.
    pub columns: Vec<WhyColumn>,
    /// Number of columns that the request selects.
    pub columns_total: usize,
    /// Number of stored versions of the selected columns.
    pub versions_total: usize,
    /// Secondary and search indexes of the table.
    pub indexes: Vec<WhyIndex>,
    /// The condition of the request. Omitted without a condition.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<WhyFilter>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}
