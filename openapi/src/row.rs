//! Rows of wide tables: writes, reads, scans and deletes.
//!
//! Values are kept as unparsed JSON, because only the table determines their types, and because numbers must not lose
//! digits.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::condition::{RowFilter, TimeSpan};
use crate::error::ErrorBody;
use crate::row_explain::CountInterval;
use crate::tier::RowTiers;
use crate::time::TimeInput;
use crate::unique;

/// Number of members for which memory is allocated before the first one is read. Typical rows have fewer, and then need one
/// allocation instead of three.
const TYPICAL_MEMBERS: usize = 12;
/// Bytes of text for which memory is allocated before the first member is read, for the same reason.
const TYPICAL_BYTES: usize = 256;

/// Members of a JSON object in their order: names and unparsed values. No name occurs twice.
///
/// All names and values are in one text, so that an object holds two allocations and not two for each member.
#[derive(Debug, Clone, Default)]
pub struct Members {
    /// Name and value of each member, one after the other.
    text: String,
    /// End of the name and end of the value of each member in the text.
    ends: Vec<(usize, usize)>,
}

impl Members {
    /// Returns true if there are no members.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the names and the JSON texts of the values, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut from = 0;
        self.ends.iter().map(move |(name, value)| {
            let member = (&self.text[from..*name], &self.text[*name..*value]);
            from = *value;
            member
        })
    }

    /// Returns the JSON text of the value of a member.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter()
            .find(|(other, _)| *other == name)
            .map(|(_, json)| json)
    }

    /// Appends a member. The caller has checked that no member has this name.
    pub fn push(&mut self, name: &str, value: &RawValue) {
        self.text.push_str(name);
        self.push_value(value);
    }

    /// Appends a value to the name at the end of the text.
    fn push_value(&mut self, value: &RawValue) {
        let name = self.text.len();
        self.text.push_str(value.get());
        self.ends.push((name, self.text.len()));
    }

    /// Returns a name that occurs twice. If there are few names, each is compared with all others, because that needs no
    /// allocation.
    fn repeated(&self) -> Option<&str> {
        const FEW: usize = 24;
        let mut names = self.iter().map(|(name, _)| name);
        if self.len() > FEW {
            let mut before = std::collections::HashSet::with_capacity(self.len());
            return names.find(|name| !before.insert(*name));
        }
        let is_before = |at: usize, name: &str| self.iter().take(at).any(|(other, _)| other == name);
        let mut numbered = names.enumerate();
        let found = numbered.find(|(at, name)| is_before(*at, name));
        found.map(|(_, name)| name)
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (name, json) in self.iter() {
            let value: &RawValue = serde_json::from_str(json).map_err(serde::ser::Error::custom)?;
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with the names and values of columns")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Members {
                    text: String::with_capacity(TYPICAL_BYTES),
                    ends: Vec::with_capacity(TYPICAL_MEMBERS),
                };
                while map.next_key_seed(Name(&mut members.text))?.is_some() {
                    members.push_value(&map.next_value::<Box<RawValue>>()?);
                }
                match members.repeated() {
                    None => Ok(members),
                    Some(name) => Err(serde::de::Error::custom(format_args!(
                        "the column {name:?} is given twice"
                    ))),
                }
            }
        }

        deserializer.deserialize_map(Object)
    }
}

/// Name of a member, which is appended to a text.
struct Name<'t>(&'t mut String);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a column")
    }

    fn visit_str<E>(self, name: &str) -> Result<(), E> {
        self.0.push_str(name);
        Ok(())
    }
}

/// Writes of rows.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"rows": [
    {"op": "put", "key": {"customer": "acme", "placed": "2026-11-20T12:00:00Z"}, "columns": {"total": "5.32"}},
    {"op": "update", "key": {"customer": "acme", "placed": "2026-11-20T12:01:00Z"}, "increment": {"items": 1}}
]}))]
pub struct RowsBody {
    /// Writes, applied in their order; at most 10,000.
    pub rows: Vec<RowWrite>,
    /// Rows and ranges that must be unchanged since they were read; at most 1,000 elements. The ranges have at most
    /// 10,000 rows in total. If one element has changed, nothing is written. All elements and all `rows` must belong
    /// to one partition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unchanged: Vec<RequiredRead>,
}

/// Row or range that must be unchanged since it was read: `key`, or `prefix` and `range` of a scan.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"key": {"customer": "acme", "placed": "2026-11-20T12:00:00Z"}, "revision": null}))]
pub struct RequiredRead {
    /// Key of a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, serde_json::Value>>)]
    pub key: Option<Members>,
    /// Values of the first key columns of the scan.
    #[serde(default, skip_serializing_if = "Members::is_empty")]
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub prefix: Members,
    /// Bounds of the scan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<KeyBounds>,
    /// Revision that the read returned; `null`, or no revision, if the row must not exist. A range needs its revision.
    pub revision: Option<String>,
}

/// Write of one row.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RowWrite {
    /// Operation.
    pub op: RowOperation,
    /// Values of all key columns. A generated column may be omitted in a `put`.
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub key: Members,
    /// Columns to set, by name. A value has the declared type of its column. In an undeclared column, text is
    /// `string`, an integer `i64` (above its range `u64`), another number `f64`, and a boolean `bool`. A value
    /// of any type can have the form `{"type": "binary", "value": "AAE=", "version": "2026-11-20T12:00:00Z"}`;
    /// `version` is optional, and a list of such objects sets several versions.
    #[serde(default, skip_serializing_if = "Members::is_empty")]
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub columns: Members,
    /// Columns to remove. Only for `update`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clear: Vec<String>,
    /// Numbers to add to integer columns; a missing column counts as 0. Only for `update`.
    #[serde(
        default,
        deserialize_with = "unique::map",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub increment: BTreeMap<String, i64>,
    /// Single versions to remove. Only for `update`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove_versions: Vec<ColumnVersion>,
    /// Condition; the row is written only if the condition is met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<RowCondition>,
    /// Row that the outcome contains. Default `none`.
    #[serde(rename = "return", default)]
    pub image: RowImage,
}

/// Operation on a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RowOperation {
    /// Replaces the row by the given columns. A row may consist of its key alone.
    Put,
    /// Changes the given columns; creates the row if it does not exist.
    Update,
    /// Removes the row.
    Delete,
}

/// Version of a column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ColumnVersion {
    /// Name of the column.
    pub column: String,
    /// Time of the version.
    pub version: TimeInput,
}

/// Condition on the current row. All given members must be met.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"exists": true, "where": {"column": "state", "equals": "open"}}))]
pub struct RowCondition {
    /// True if the row must exist, false if the row must not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exists: Option<bool>,
    /// Condition on the newest values of the columns and on the key columns. A row that does not exist has no columns.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<RowFilter>,
}

/// Row that an outcome contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RowImage {
    /// No row.
    #[default]
    None,
    /// The row before the write.
    Before,
    /// The row after the write.
    After,
}

/// Format of integers beyond ±2⁵³ in JSON. JavaScript rounds these numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RowIntegers {
    /// Exact numbers.
    #[default]
    Number,
    /// Text.
    Text,
}

/// Outcome of one row of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RowStatus {
    /// The row was written.
    Written,
    /// The condition of the write was not met.
    ConditionFailed,
    /// The row was not written because another row of its partition was not written. The server cuts an NDJSON body
    /// into entries; if an entry could not be stored, its rows and the rows of later entries are not written either.
    NotApplied,
    /// The write is not valid, or the resulting row would not be valid; `reason` describes why.
    Refused,
}

/// Outcome of the write of one row.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RowOutcome {
    /// Index of the row in the list, or of its line in an NDJSON body, from 0.
    pub index: u64,
    /// Outcome.
    pub status: RowStatus,
    /// Key, including a generated id. Omitted if the key could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, serde_json::Value>>)]
    pub key: Option<Box<RawValue>>,
    /// Row requested by `return`; after a failed condition the current row. Omitted if the row was not
    /// requested or does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Row>)]
    pub row: Option<Box<RawValue>>,
    /// Reason why the row was not written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True if the same write can succeed later. Omitted otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retryable: bool,
}

/// Numbers of rows by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RowCounts {
    /// Rows written.
    pub written: u64,
    /// Rows whose condition was not met.
    pub condition_failed: u64,
    /// Rows with the status `not_applied`.
    pub not_applied: u64,
    /// Rows that are not valid.
    pub refused: u64,
}

impl RowCounts {
    /// Counts an outcome.
    pub fn add(&mut self, status: RowStatus) {
        match status {
            RowStatus::Written => self.written += 1,
            RowStatus::ConditionFailed => self.condition_failed += 1,
            RowStatus::NotApplied => self.not_applied += 1,
            RowStatus::Refused => self.refused += 1,
        }
    }
}

/// Result of a write of rows.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(example = json!({
    "written": 1, "condition_failed": 0, "not_applied": 0, "refused": 0,
    "rows": [{"index": 0, "status": "written", "key": {"customer": "acme", "placed": "2026-11-20T12:00:00Z"}}],
    "repeated": false,
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct RowsReport {
    /// Numbers of rows by outcome.
    #[serde(flatten)]
    pub counts: RowCounts,
    /// Outcomes in the order of the request.
    pub rows: Vec<RowOutcome>,
    /// True if the outcomes are those of an earlier request with the same `Idempotency-Key`; this request then wrote
    /// nothing.
    pub repeated: bool,
    /// Position of the write. A search with this value as `at_least` finds the write. If `repeated` is true, a later
    /// position. Omitted if nothing was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// With `refresh=wait`: true if searches find the write. False if the search indexes did not include the write
    /// within 10 seconds, or at once if the memory for the wait is used up; searches find it later. Omitted without
    /// `refresh=wait`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub searchable: Option<bool>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Wait of a write for the search indexes of its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Refresh {
    /// The response is sent when searches find the write, at most 10 seconds later.
    Wait,
}

/// Error of a request that has written no row, with the outcome of each row.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct RowsNotWritten {
    /// Error.
    #[serde(flatten)]
    pub error: ErrorBody,
    /// Numbers of rows by outcome.
    #[serde(flatten)]
    pub counts: RowCounts,
    /// Outcomes in the order of the request.
    pub rows: Vec<RowOutcome>,
    /// True if the outcomes are those of an earlier request with the same `Idempotency-Key`.
    pub repeated: bool,
}

/// Last line of the response to a write in NDJSON.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct RowsEnd {
    /// Numbers of rows by outcome.
    #[serde(flatten)]
    pub counts: RowCounts,
    /// Position of the last entry that was written. Omitted if nothing was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// With `refresh=wait`: see the response to a write in JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub searchable: Option<bool>,
}

/// Last line of the response to an import of rows.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"written": 999, "condition_failed": 0, "not_applied": 0, "refused": 1, "omitted": 0, "stopped": null, "retryable": false, "position": "4711", "request_id": "01jd3k5w8v-000002a1"}))]
pub struct ImportEnd {
    /// Numbers of records by outcome.
    #[serde(flatten)]
    pub counts: RowCounts,
    /// Number of records that were not written and have no line, because the response lists at most 10,000 records and
    /// 3 MiB.
    pub omitted: u64,
    /// Error that ended the import before the end of the file; `null` if all records have an outcome. The records after
    /// the counted ones were not written.
    pub stopped: Option<String>,
    /// True if the import was stopped by an error that can be temporary, so that the same import can succeed later.
    pub retryable: bool,
    /// Position of the last entry that was written. A search with this value as `at_least` finds the imported rows.
    /// Omitted if nothing was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<String>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Row of a wide table.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(example = json!({"key": {"customer": "acme", "placed": "2026-11-20T12:00:00Z"}, "columns": {"total": "5.32"}}))]
pub struct Row {
    /// Values of the key columns.
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub key: Members,
    /// Columns. A value whose type does not follow from its column has the form `{"type": …, "value": …}`, as
    /// in a write. With `versions` or `version_range`, each column is a list of `{"type": …, "value": …,
    /// "version": …}`, newest first.
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub columns: Members,
    /// Revision of the row. Omitted unless `revisions` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// First column of the range that was not returned because of `column_limit`. Omitted if all were returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_column: Option<String>,
}

/// Rows to read by their keys: `keys` or `in`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"keys": [{"customer": "acme", "placed": "2026-11-20T12:00:00Z"}], "columns": ["total"]}))]
pub struct GetRows {
    /// Keys; at most 2,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<BTreeMap<String, serde_json::Value>>>)]
    pub keys: Option<Vec<Members>>,
    /// List of values of each key column. The keys are all combinations, at most 2,000, in the order of the lists: the
    /// last key column varies fastest. Repeated values of a list count once.
    #[serde(
        rename = "in",
        default,
        deserialize_with = "unique::optional_map",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<BTreeMap<String, Vec<serde_json::Value>>>)]
    pub lists: Option<BTreeMap<String, Vec<Box<RawValue>>>>,
    /// Columns to return: names, or prefixes that end with `*`. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// Maximum number of versions per column, newest first. Default: the newest value without its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<u32>,
    /// Time range of the versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_range: Option<TimeSpan>,
    /// Range of the names of the columns to return, in their order. Cannot be combined with `columns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column_range: Option<ColumnRange>,
    /// Maximum number of columns of a row, 1 to 10,000. A row with more columns has `next_column`, from which a
    /// `column_range` continues. Cannot be combined with `columns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column_limit: Option<u32>,
    /// True to return the revision of each row. A write can require that a row still has its revision. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub revisions: bool,
}

/// Range of column names, in the order of their bytes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"from": "reading_2026-11"}))]
pub struct ColumnRange {
    /// First name, inclusive. Default: no start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// First name after the range. Default: no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// Rows read by their keys.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(example = json!({"rows": [{"key": {"customer": "acme"}, "columns": {"total": "5.32"}}, null], "found": 1, "request_id": "01jd3k5w8v-000002a1"}))]
pub struct RowsFound {
    /// Rows in the order of the keys; `null` for a row that does not exist.
    pub rows: Vec<Option<Row>>,
    /// Number of rows that exist.
    pub found: u64,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Bounds of the first key column after the key columns in `prefix`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"column": "placed", "from": "2026-11-20T00:00:00Z", "to": "2026-11-21T00:00:00Z"}))]
pub struct KeyBounds {
    /// Name of the key column.
    pub column: String,
    /// Lower bound, included by default; missing = no lower bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub from: Option<Box<RawValue>>,
    /// True to exclude the value of `from`. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_exclusive: bool,
    /// Upper bound, excluded by default; missing = no upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub to: Option<Box<RawValue>>,
    /// True to include the value of `to`. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub to_inclusive: bool,
}

/// Direction of a scan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScanDirection {
    /// In the order of the key columns.
    #[default]
    Forward,
    /// In the opposite order.
    Backward,
}

/// Rows to scan in the order of their keys.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "prefix": {"customer": "acme"},
    "range": {"column": "placed", "from": "2026-11-20T00:00:00Z"},
    "where": {"column": "total", "gt": 5},
    "limit": 100
}))]
pub struct ScanRows {
    /// Name of a secondary index. `prefix` and `range` then apply to the key of the index, and rows are returned in the
    /// order of the index. Rows without a value in one of the index columns are not returned. Default: the primary key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// Values of the first key columns.
    #[serde(default, skip_serializing_if = "Members::is_empty")]
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub prefix: Members,
    /// Bounds of the first key column after the key columns in `prefix`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<KeyBounds>,
    /// Direction. Default `forward`.
    #[serde(default)]
    pub direction: ScanDirection,
    /// Maximum number of rows to return, 1 to 10,000. Default 100. In formats other than JSON, any number is allowed,
    /// and the default is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Columns to return: names, or prefixes that end with `*`. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<Vec<String>>,
    /// Maximum number of versions per column, newest first. Default: the newest value without its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<u32>,
    /// Time range of the versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_range: Option<TimeSpan>,
    /// Condition on the newest values of the columns and on the key columns.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<RowFilter>,
    /// Token `next` of the previous page. The other members, except `limit`, must be unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_token: Option<String>,
    /// Tiers of the parts that are read. Default `all`.
    #[serde(default, skip_serializing_if = "RowTiers::is_all")]
    pub tier: RowTiers,
    /// True to allow a scan of the whole table, without `prefix` and `range`. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_scan: bool,
    /// True to return the revision of each row, and the revision of the range if the page is a complete forward scan of
    /// the primary key within one partition. A write can require that rows and range still have these revisions.
    /// Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub revisions: bool,
}

/// Reason why a page ended before the end of the scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PageEnd {
    /// The page has the requested number of rows.
    Limit,
    /// The scan has read 100,000 rows and deletions for this page.
    Scanned,
    /// The rows of the page have reached 4 MiB.
    Bytes,
}

impl PageEnd {
    /// Returns the name in responses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Scanned => "scanned",
            Self::Bytes => "bytes",
        }
    }
}

/// Page of rows.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(example = json!({"rows": [{"key": {"customer": "acme"}, "columns": {"total": "5.32"}}], "scanned": 1, "returned": 1, "next": null, "request_id": "01jd3k5w8v-000002a1"}))]
pub struct RowsPage {
    /// Rows.
    pub rows: Vec<Row>,
    /// Number of rows and deletions that were read.
    pub scanned: u64,
    /// Number of rows in the page.
    pub returned: u64,
    /// Token of the next page; `null` at the end of the scan. It stays valid after a restart of the server.
    pub next: Option<String>,
    /// Reason why the page ended before the end of the scan. Omitted if the scan has ended.
    pub reason: Option<PageEnd>,
    /// Revision of the range, including rows that do not match `where`. Omitted unless `revisions` is set and the page
    /// is a complete forward scan of the primary key within one partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Last line of a scan in NDJSON.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ScanEnd {
    /// Number of rows and deletions that were read.
    pub scanned: u64,
    /// Number of rows in the response.
    pub returned: u64,
    /// Token of the next page; `null` at the end of the scan.
    pub next: Option<String>,
    /// Reason why the response ended before the end of the scan. Omitted if the scan has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<PageEnd>,
    /// Revision of the range, as in a page of rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

/// Rows to count.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"prefix": {"customer": "acme"}}))]
pub struct CountRows {
    /// Name of a secondary index. `prefix` and `range` then apply to the key of the index. Rows without a value in one
    /// of the index columns are not counted. Default: the primary key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// Values of the first key columns.
    #[serde(default, skip_serializing_if = "Members::is_empty")]
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub prefix: Members,
    /// Bounds of the first key column after the key columns in `prefix`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<KeyBounds>,
    /// Condition on the newest values of the columns and on the key columns.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<RowFilter>,
    /// Token `next` of the previous count. The other members must be unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_token: Option<String>,
    /// True to estimate the count: exact up to 200,000 rows read, from a sample beyond that. The response then has an
    /// `interval`. Cannot be combined with `page_token`. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimate: bool,
    /// Tiers of the parts that are read. Default `all`.
    #[serde(default, skip_serializing_if = "RowTiers::is_all")]
    pub tier: RowTiers,
    /// True to allow a count of the whole table, without `prefix` and `range`. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_scan: bool,
}

/// Number of rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"count": 42, "scanned": 42, "next": null, "request_id": "01jd3k5w8v-000002a1"}))]
pub struct RowsCounted {
    /// Number of rows that this request has found: exact unless there is an `interval`. If `next` is not `null`, more
    /// rows can follow.
    pub count: u64,
    /// Interval of an estimated count. Omitted if the count is exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<CountInterval>,
    /// Number of rows and deletions that were read.
    pub scanned: u64,
    /// Token to continue a count that ended after reading 1,000,000 rows and deletions; the total is the sum of the
    /// counts. `null` at the end.
    pub next: Option<String>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Rows to delete.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"prefix": {"customer": "acme"}}))]
pub struct DeleteRows {
    /// Values of the first key columns.
    #[serde(default, skip_serializing_if = "Members::is_empty")]
    #[schema(value_type = BTreeMap<String, serde_json::Value>)]
    pub prefix: Members,
    /// Bounds of the first key column after the key columns in `prefix`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<KeyBounds>,
    /// True to allow a delete of all rows of the table, without `prefix` and `range`. Default false.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_all: bool,
}

/// Result of a delete of rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"position": "4711", "request_id": "01jd3k5w8v-000002a1"}))]
pub struct RowsDeleted {
    /// Position of the delete. A search with this value as `at_least` does not find the deleted rows.
    pub position: String,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_digits_and_their_order() {
        let json = r#"{"op":"put","key":{"b":1.10,"a":18446744073709551615},"columns":{"x":{"y": 1}}}"#;
        let write: RowWrite = serde_json::from_str(json).expect("it is valid");
        let names: Vec<(&str, &str)> = write.key.iter().collect();
        assert_eq!(names, [("b", "1.10"), ("a", "18446744073709551615")]);
        assert_eq!(write.columns.get("x"), Some(r#"{"y": 1}"#));
        assert_eq!(write.columns.get("y"), None);
        let again = serde_json::to_string(&write).expect("JSON");
        assert!(again.starts_with(&json[..json.len() - 1]), "{again}");
    }

    #[test]
    fn unknown_and_repeated_members_are_refused() {
        for (json, said) in [
            (r#"{"op":"put","key":{"a":1,"a":2}}"#, "\"a\" is given twice"),
            (
                r#"{"op":"update","key":{},"increment":{"i":1,"i":2}}"#,
                "\"i\" is given twice",
            ),
            (r#"{"op":"put","key":{},"colums":{}}"#, "unknown field `colums`"),
            (r#"{"op":"insert","key":{}}"#, "unknown variant `insert`"),
            (
                r#"{"op":"put","key":{},"condition":{"exist":true}}"#,
                "unknown field `exist`",
            ),
        ] {
            let error = serde_json::from_str::<RowWrite>(json)
                .expect_err(json)
                .to_string();
            assert!(error.contains(said), "{json}: {error}");
        }
    }
}
