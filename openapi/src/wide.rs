//! Settings of wide tables: key columns with their modifiers, declared columns, versions.
//!
//! The types are separate from those of `tideline-model`, so that a misspelt member or a column with two modifiers is
//! refused, and so that numbers that the server assigns are not part of the API. The submodules hold key columns and the
//! schemas of enums.

mod key;
mod schemas;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tideline_model::{
    ColumnCompression, ColumnGroupSpec, ColumnSpec, ColumnType, GroupCompression, PartPeriod,
    PartsArchive as ArchiveSpec, PartsSpec, RowLimit, RowTtl, Schedule as ModelSchedule, TableSpec, TtlScope,
    WideSpec,
};
use utoipa::ToSchema;

use crate::policy::Schedule;
use crate::present::present;
use crate::time::DurationText;
use crate::unique;

pub use self::key::{
    KeyBucket, KeyColumn, KeyGenerated, KeyHashPrefix, KeyReverse, KeySplice, ReversedColumn, SplicedColumn,
};
pub use self::schemas::{
    ColumnCompressionSchema, ColumnTypeSchema, GroupCompressionSchema, KeyOrderSchema, PartPeriodSchema,
};

/// Settings of the rows of a new wide table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "key": [
        {"name": "customer", "type": "string"},
        {"name": "placed", "type": "timestamp", "order": "desc"}
    ],
    "columns": [{"name": "total", "type": "decimal"}]
}))]
pub struct WideSettings {
    /// Key columns in the order in which rows are sorted, 1 to 8. They cannot be changed.
    pub key: Vec<KeyColumn>,
    /// Declared columns. Other columns can be written too.
    #[serde(default)]
    pub columns: Vec<RowColumn>,
    /// Number of versions that are kept per column, 1 to 1,000. Default 1.
    #[serde(default = "one_version")]
    pub max_versions: u32,
    /// Maximum distance between now and a version timestamp set by a client; `null` = no limit. Default `1d`.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<DurationText>)]
    pub version_guard: Option<Option<DurationText>>,
    /// True to accept a first key column that rises with time, although all new rows then go to the end of the
    /// table. Default false.
    #[serde(default)]
    pub allow_rising_key: bool,
    /// Time after which data expires: it is hidden immediately, and its bytes are freed later. Default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<DurationText>,
    /// Unit in which data expires: whole rows or single versions. Default `row`.
    #[serde(default)]
    pub ttl_of: TtlOf,
    /// Division of the table into parts by time. `by` and `every` cannot be changed. Default: no division.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<PartsSettings>,
    /// Groups of columns that are stored apart from the other columns, at most 16. They cannot be changed. Default:
    /// none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<ColumnGroup>,
    /// Limits of the rates at which rows are read and written, at most 8: one for the table, and one per age of parts.
    /// Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<RowRateLimit>,
}

/// Limit of the rates at which rows are read and written. A row counts once per 4 KiB, rounded up, against the limit
/// of the table and against the limit of the highest age that its part has reached. A limit allows up to 5 s of its
/// rate at once; beyond that, new requests are refused with 429 `rate_limited` and `Retry-After`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"older_than": "30d", "reads_per_second": 500}))]
pub struct RowRateLimit {
    /// Minimum time between the end of a part and now; only for a table that is divided into parts. The limit applies to
    /// all parts of this age together. Default: the limit applies to the whole table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub older_than: Option<DurationText>,
    /// Maximum number of reads per second, at least 1. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads_per_second: Option<u64>,
    /// Maximum number of writes per second, at least 1. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes_per_second: Option<u64>,
}

impl RowRateLimit {
    /// Converts the limit to a [`RowLimit`].
    pub fn into_spec(self) -> RowLimit {
        RowLimit {
            older_than: self.older_than.map(|DurationText(nanos)| nanos),
            reads_per_second: self.reads_per_second,
            writes_per_second: self.writes_per_second,
        }
    }
}

impl From<&RowLimit> for RowRateLimit {
    fn from(limit: &RowLimit) -> Self {
        Self {
            older_than: limit.older_than.map(DurationText),
            reads_per_second: limit.reads_per_second,
            writes_per_second: limit.writes_per_second,
        }
    }
}

/// Group of columns that are stored apart from the other columns of their rows. A change of other columns does not
/// write the group, and a read of other columns does not read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "texts", "columns": ["description", "picture_*"]}))]
pub struct ColumnGroup {
    /// Name, unique within the table; at most 255 bytes.
    pub name: String,
    /// Names of the columns, 1 to 1,000. A name that ends with `*` matches all columns whose names begin with the
    /// text before the `*`. A column belongs to the first group that contains a matching name.
    pub columns: Vec<String>,
    /// Compression of the packed columns. Default `fast`.
    #[serde(default, skip_serializing_if = "is_fast")]
    #[schema(value_type = GroupCompressionSchema)]
    pub compression: GroupCompression,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by serde")]
fn is_fast(compression: &GroupCompression) -> bool {
    *compression == GroupCompression::Fast
}

impl ColumnGroup {
    /// Converts the group to a [`ColumnGroupSpec`], without its id.
    pub fn into_spec(self) -> ColumnGroupSpec {
        ColumnGroupSpec {
            id: 0,
            name: self.name,
            columns: self.columns,
            compression: self.compression,
        }
    }
}

impl From<&ColumnGroupSpec> for ColumnGroup {
    fn from(spec: &ColumnGroupSpec) -> Self {
        Self {
            name: spec.name.clone(),
            columns: spec.columns.clone(),
            compression: spec.compression,
        }
    }
}

/// Division of a wide table into parts by time. A read accesses only the parts that it needs, and a part is dropped as
/// a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"by": "placed", "every": "month", "keep": "365d"}))]
pub struct PartsSettings {
    /// Key column that determines the part of a row: of the type `timestamp`, or generated, because generated ids are times.
    pub by: String,
    /// Length of a part in UTC: `day`, `week` (from Monday) or `month`.
    #[schema(value_type = PartPeriodSchema)]
    pub every: PartPeriod,
    /// Minimum time for which a part is kept after its end. Older parts are hidden immediately and dropped later.
    /// Default: parts are kept until they are dropped on request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<DurationText>,
    /// Minimum time for which a part stays in the hot tier after its end. A job moves older parts to the cold tier,
    /// with their entries in secondary indexes. Default: parts stay in the hot tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot: Option<DurationText>,
    /// Minimum time for which rows of a part can be written after its end. Later writes and deletes are refused.
    /// Default: rows of every part can be written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writable: Option<DurationText>,
    /// Archive that old parts move into. Default: parts stay in their tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive: Option<PartsArchive>,
    /// Schedule of moves from the hot to the cold tier. Default `continuous`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrate: Option<Schedule>,
    /// Schedule for dropping hidden parts and for freeing the bytes of expired rows. Default `continuous`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire: Option<Schedule>,
    /// Maximum read rate of the jobs of this table, bytes per second, at least 1. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub move_bytes_per_second: Option<u64>,
}

/// Archive of the parts of a wide table: a job writes the rows of old parts to Parquet files on an object store. Reads
/// of the table include these rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"target": "default", "after": "90d"}))]
pub struct PartsArchive {
    /// Target: `default` for the target in the server's configuration, or an address that the configuration allows.
    pub target: String,
    /// Minimum time between the end of a part and its archiving. Rows of older parts can be written only after the part
    /// was restored.
    pub after: DurationText,
    /// Schedule of the moves into files. Default `continuous`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
}

/// Changes of the division into parts. Missing members stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PartsChanges {
    /// Minimum time for which a part is kept after its end; `null` = until it is dropped on request. If the time is
    /// extended, hidden parts that were not dropped yet are visible again.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<DurationText>)]
    pub keep: Option<Option<DurationText>>,
    /// Minimum time for which a part stays in the hot tier after its end; `null` = forever. Parts in the cold tier do
    /// not move back.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<DurationText>)]
    pub hot: Option<Option<DurationText>>,
    /// Minimum time for which rows of a part can be written after its end; `null` = always.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<DurationText>)]
    pub writable: Option<Option<DurationText>>,
    /// Archive that old parts move into; `null` = none. Parts in the archive stay there.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<PartsArchive>)]
    pub archive: Option<Option<PartsArchive>>,
    /// Schedule of moves from the hot to the cold tier; `null` = `continuous`.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Schedule>)]
    pub migrate: Option<Option<Schedule>>,
    /// Schedule for dropping hidden parts and for freeing the bytes of expired rows; `null` = `continuous`.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<Schedule>)]
    pub expire: Option<Option<Schedule>>,
    /// Maximum read rate of the jobs of this table, bytes per second, at least 1; `null` = no limit.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<u64>)]
    pub move_bytes_per_second: Option<Option<u64>>,
}

/// Unit in which data expires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TtlOf {
    /// Rows: a row expires with all its columns, counted from its last write.
    #[default]
    Row,
    /// Versions: each version of a column expires, counted from its timestamp. The row itself expires, counted from its
    /// last write.
    Cell,
}

const fn one_version() -> u32 {
    1
}

/// Changes of the settings of the rows of a wide table. Missing members stay unchanged. The key is fixed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"add_columns": [{"name": "note", "type": "string"}], "max_versions": 3}))]
pub struct WideChanges {
    /// Columns to declare. Existing values of a column with this name are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add_columns: Vec<RowColumn>,
    /// Names of declared columns and patterns to remove. Values of a column that was declared with the table are
    /// hidden permanently; values of a column that was declared later become values of an undeclared column.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove_columns: Vec<String>,
    /// Compression of declared columns, by name. It applies to rows that are packed and to large values that are written
    /// from now on.
    #[serde(
        default,
        deserialize_with = "unique::map",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    #[schema(value_type = BTreeMap<String, ColumnCompressionSchema>)]
    pub compression: BTreeMap<String, ColumnCompression>,
    /// Number of versions that are kept per column, 1 to 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_versions: Option<u32>,
    /// Maximum distance between now and a version timestamp set by a client; `null` = no limit.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<DurationText>)]
    pub version_guard: Option<Option<DurationText>>,
    /// Time after which data expires; `null` = never. If the time is extended, expired data that was not removed yet is
    /// visible again.
    #[serde(
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<DurationText>)]
    pub ttl: Option<Option<DurationText>>,
    /// Unit in which data expires: whole rows or single versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_of: Option<TtlOf>,
    /// Changes of the division into parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<PartsChanges>,
    /// Limits of the rates at which rows are read and written; they replace all limits of the table. `[]`: no limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Vec<RowRateLimit>>,
}

/// Settings of the rows of a wide table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WideView {
    /// Key columns in the order in which rows are sorted.
    pub key: Vec<KeyColumn>,
    /// Declared columns.
    pub columns: Vec<RowColumn>,
    /// Number of versions that are kept per column.
    pub max_versions: u32,
    /// Maximum distance between now and a version timestamp set by a client; `null` = no limit.
    pub version_guard: Option<DurationText>,
    /// True if a first key column that rises with time is accepted.
    pub allow_rising_key: bool,
    /// Time after which data expires; `null` = never.
    pub ttl: Option<DurationText>,
    /// Unit in which data expires: whole rows or single versions. A table without `ttl` keeps the unit of its last
    /// `ttl`, and a new `ttl` takes it over.
    pub ttl_of: TtlOf,
    /// Division into parts by time; missing if the table is not divided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parts: Option<PartsSettings>,
    /// Groups of columns that are stored apart; missing without groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<ColumnGroup>,
    /// Limits of the rates at which rows are read and written; missing without limits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<RowRateLimit>,
}

/// Declared column, or a pattern for several columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "total", "type": "decimal"}))]
pub struct RowColumn {
    /// Name, or a pattern in which `*` matches any characters and `?` one character. A name takes precedence over
    /// patterns. The first pattern that matches determines the type.
    pub name: String,
    /// Type of the values.
    #[serde(rename = "type")]
    #[schema(value_type = ColumnTypeSchema)]
    pub column_type: ColumnType,
    /// Compression of the texts, bytes or JSON documents of the column. Only for these types, and for a pattern only in
    /// the form `x*`. Default `auto`.
    #[serde(default, skip_serializing_if = "ColumnCompression::is_auto")]
    #[schema(value_type = ColumnCompressionSchema)]
    pub compression: ColumnCompression,
}

impl WideSettings {
    /// Converts the settings to a [`WideSpec`].
    ///
    /// # Errors
    ///
    /// Returns a message if a key column does not have exactly one of the members `type`, `generated`,
    /// `hash_prefix`, `bucket`, `reverse` and `splice`, or if `ttl_of` is set without `ttl`.
    pub fn into_spec(self) -> Result<WideSpec, String> {
        let key = self.key.into_iter().map(KeyColumn::into_spec);
        if self.ttl.is_none() && self.ttl_of != TtlOf::Row {
            return Err("wide.ttl_of: the table has no ttl; set it as well".to_owned());
        }
        Ok(WideSpec {
            key: key.collect::<Result<_, _>>()?,
            columns: self.columns.into_iter().map(RowColumn::into_spec).collect(),
            next_column: 1,
            max_versions: self.max_versions,
            version_guard: match self.version_guard {
                None => Some(tideline_model::time::NANOS_PER_DAY),
                Some(guard) => guard.map(|DurationText(nanos)| nanos),
            },
            allow_rising_key: self.allow_rising_key,
            indexes: Vec::new(),
            search_indexes: Vec::new(),
            large_values: None,
            cut_values: false,
            codecs: false,
            ttl_of: TtlScope::default(),
            limits: self.limits.into_iter().map(RowRateLimit::into_spec).collect(),
            groups: self.groups.into_iter().map(ColumnGroup::into_spec).collect(),
            ttl: self.ttl.map(|DurationText(after)| RowTtl {
                after,
                of: self.ttl_of.into(),
            }),
            parts: self.parts.map(|parts| PartsSpec {
                by: parts.by,
                every: parts.every,
                keep: parts.keep.map(|DurationText(nanos)| nanos),
                hot: parts.hot.map(|DurationText(nanos)| nanos),
                writable: parts.writable.map(|DurationText(nanos)| nanos),
                archive: parts.archive.map(PartsArchive::into_spec),
                migrate: schedule_of(parts.migrate),
                expire: schedule_of(parts.expire),
                move_bytes_per_second: parts.move_bytes_per_second,
                first: i32::MIN,
            }),
        })
    }
}

impl WideChanges {
    /// Applies the changes to a [`WideSpec`].
    ///
    /// # Errors
    ///
    /// Returns a message if a column to remove or to compress is not declared, if `ttl_of` is set without a
    /// `ttl`, or if parts are changed although the table is not divided.
    pub fn apply_to(self, spec: &mut WideSpec) -> Result<(), String> {
        for name in self.remove_columns {
            let count = spec.columns.len();
            spec.columns.retain(|column| column.name != name);
            if spec.columns.len() == count {
                return Err(format!("wide.remove_columns: column {name:?} is not declared"));
            }
        }
        spec.columns
            .extend(self.add_columns.into_iter().map(RowColumn::into_spec));
        for (name, compression) in self.compression {
            let column = spec.columns.iter_mut().find(|column| column.name == name);
            let column =
                column.ok_or_else(|| format!("wide.compression: column {name:?} is not declared"))?;
            column.compression = compression;
        }
        if let Some(limits) = self.limits {
            spec.limits = limits.into_iter().map(RowRateLimit::into_spec).collect();
        }
        if let Some(max_versions) = self.max_versions {
            spec.max_versions = max_versions;
        }
        if let Some(guard) = self.version_guard {
            spec.version_guard = guard.map(|DurationText(nanos)| nanos);
        }
        if let Some(ttl) = self.ttl {
            spec.set_ttl(ttl.map(|DurationText(after)| after));
        }
        match (self.ttl_of, &mut spec.ttl) {
            (Some(of), Some(ttl)) => ttl.of = of.into(),
            (Some(_), None) => return Err("wide.ttl_of: the table has no ttl; set it as well".to_owned()),
            (None, _) => {}
        }
        match (self.parts, &mut spec.parts) {
            (Some(changes), Some(parts)) => changes.apply_to(parts),
            (Some(_), None) => return Err(NOT_DIVIDED.to_owned()),
            (None, _) => {}
        }
        Ok(())
    }
}

/// Error message for changes of the parts of a table that is not divided.
const NOT_DIVIDED: &str = "wide.parts: the table is not divided into parts";

impl PartsChanges {
    /// Applies the changes to the settings of a table.
    ///
    /// # Errors
    ///
    /// Returns an error message if the table is not divided into parts.
    pub fn applied_to(self, spec: &mut TableSpec) -> Result<(), String> {
        let parts = spec.wide.as_deref_mut().and_then(|wide| wide.parts.as_mut());
        self.apply_to(parts.ok_or(NOT_DIVIDED)?);
        Ok(())
    }

    fn apply_to(self, parts: &mut PartsSpec) {
        for (change, setting) in [
            (self.keep, &mut parts.keep),
            (self.hot, &mut parts.hot),
            (self.writable, &mut parts.writable),
        ] {
            if let Some(change) = change {
                *setting = change.map(|DurationText(nanos)| nanos);
            }
        }
        if let Some(archive) = self.archive {
            parts.archive = archive.map(PartsArchive::into_spec);
        }
        if let Some(migrate) = self.migrate {
            parts.migrate = schedule_of(migrate);
        }
        if let Some(expire) = self.expire {
            parts.expire = schedule_of(expire);
        }
        if let Some(rate) = self.move_bytes_per_second {
            parts.move_bytes_per_second = rate;
        }
    }
}

/// Returns the schedule of a request; continuous if the request has none.
fn schedule_of(schedule: Option<Schedule>) -> ModelSchedule {
    schedule.map(ModelSchedule::from).unwrap_or_default()
}

/// Returns a schedule for a response; `None` if it is continuous.
fn shown(schedule: &ModelSchedule) -> Option<Schedule> {
    (!schedule.is_continuous()).then(|| Schedule::from(schedule))
}

impl PartsArchive {
    fn into_spec(self) -> ArchiveSpec {
        ArchiveSpec {
            target: self.target,
            after: self.after.0,
            schedule: schedule_of(self.schedule),
        }
    }
}

impl From<&ArchiveSpec> for PartsArchive {
    fn from(archive: &ArchiveSpec) -> Self {
        Self {
            target: archive.target.clone(),
            after: DurationText(archive.after),
            schedule: shown(&archive.schedule),
        }
    }
}

impl From<&WideSpec> for WideView {
    fn from(spec: &WideSpec) -> Self {
        Self {
            key: spec.key.iter().map(KeyColumn::from).collect(),
            columns: spec.columns.iter().map(RowColumn::from).collect(),
            max_versions: spec.max_versions,
            version_guard: spec.version_guard.map(DurationText),
            allow_rising_key: spec.allow_rising_key,
            ttl: spec.ttl.map(|ttl| DurationText(ttl.after)),
            ttl_of: spec.ttl_scope().into(),
            parts: spec.parts.as_ref().map(PartsSettings::from),
            groups: spec.groups.iter().map(ColumnGroup::from).collect(),
            limits: spec.limits.iter().map(RowRateLimit::from).collect(),
        }
    }
}

impl From<&PartsSpec> for PartsSettings {
    fn from(parts: &PartsSpec) -> Self {
        Self {
            by: parts.by.clone(),
            every: parts.every,
            keep: parts.keep.map(DurationText),
            hot: parts.hot.map(DurationText),
            writable: parts.writable.map(DurationText),
            archive: parts.archive.as_ref().map(PartsArchive::from),
            migrate: shown(&parts.migrate),
            expire: shown(&parts.expire),
            move_bytes_per_second: parts.move_bytes_per_second,
        }
    }
}

impl From<TtlOf> for TtlScope {
    fn from(of: TtlOf) -> Self {
        match of {
            TtlOf::Row => Self::Row,
            TtlOf::Cell => Self::Cell,
        }
    }
}

impl From<TtlScope> for TtlOf {
    fn from(of: TtlScope) -> Self {
        match of {
            TtlScope::Row => Self::Row,
            TtlScope::Cell => Self::Cell,
        }
    }
}

impl RowColumn {
    fn into_spec(self) -> ColumnSpec {
        ColumnSpec {
            name: self.name,
            column_type: self.column_type,
            number: 0,
            compression: self.compression,
        }
    }
}

impl From<&ColumnSpec> for RowColumn {
    fn from(spec: &ColumnSpec) -> Self {
        Self {
            name: spec.name.clone(),
            column_type: spec.column_type,
            compression: spec.compression,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(json: &str) -> Result<WideSpec, String> {
        let settings: WideSettings = serde_json::from_str(json).map_err(|error| error.to_string())?;
        settings.into_spec()
    }

    #[test]
    fn settings_are_shown_as_they_were_given() {
        let json = r#"{"key":[
            {"name":"spread","bucket":{"of":["a"],"count":4}},
            {"name":"a","type":"u64","order":"desc"},
            {"name":"h","hash_prefix":{"of":["b"],"hex":2}},
            {"name":"r","reverse":{"of":{"name":"b","type":"string"}}},
            {"name":"s","splice":{"columns":[{"name":"c","type":"i64","pad":4},{"name":"d","type":"string"}],"delimiter":","}},
            {"name":"id","generated":{}}],
            "columns":[{"name":"n*","type":"decimal"}],"max_versions":2,"version_guard":null,"allow_rising_key":true,
            "ttl":"30d","ttl_of":"cell"}"#;
        let spec = settings(json).expect("it is valid");
        let shown = serde_json::to_value(WideView::from(&spec)).expect("plain data");
        let given: serde_json::Value = serde_json::from_str(json).expect("JSON");
        assert_eq!(shown, given);
    }

    #[test]
    fn a_column_has_one_source_and_no_unknown_members() {
        for (json, said) in [
            (
                r#"{"key":[{"name":"a","type":"u64","generated":{}}]}"#,
                "exactly one of type, generated",
            ),
            (r#"{"key":[{"name":"a"}]}"#, "exactly one of"),
            (r#"{"key":[{"name":"a","tpye":"u64"}]}"#, "unknown field `tpye`"),
            (
                r#"{"key":[{"name":"a","bucket":{"of":["b"],"cuont":4}}]}"#,
                "unknown field `cuont`",
            ),
            (
                r#"{"key":[{"name":"a","splice":{"columns":[],"delimiter":""}}]}"#,
                "expected one character, found the text \"\"",
            ),
            (
                r#"{"key":[{"name":"a","splice":{"columns":[],"delimiter":"ab"}}]}"#,
                "expected one character, found the text \"ab\"",
            ),
            (r#"{"key":[],"next_column":4}"#, "unknown field `next_column`"),
            (
                r#"{"key":[],"columns":[{"name":"a","type":"u64","number":3}]}"#,
                "unknown field `number`",
            ),
        ] {
            let error = settings(json).expect_err(json);
            assert!(error.contains(said), "{json}: {error}");
        }
    }

    #[test]
    fn a_column_to_remove_is_declared() {
        let mut spec =
            settings(r#"{"key":[{"name":"a","type":"u64"}],"columns":[{"name":"b","type":"i64"}]}"#)
                .expect("it is valid");
        let changes = |json: &str| serde_json::from_str::<WideChanges>(json).expect(json);
        let unknown = changes(r#"{"remove_columns":["c"]}"#).apply_to(&mut spec);
        assert!(unknown.expect_err("not declared").contains("\"c\""));
        let unknown = changes(r#"{"compression":{"c":"zstd"}}"#).apply_to(&mut spec);
        assert!(unknown.expect_err("not declared").contains("\"c\""));
        let changed = changes(
            r#"{"compression":{"c":"lz4"},"remove_columns":["b"],"add_columns":[{"name":"c","type":"json"}],"version_guard":"1h"}"#,
        );
        changed.apply_to(&mut spec).expect("valid");
        assert_eq!(spec.columns.len(), 1);
        assert_eq!(spec.columns[0].compression, ColumnCompression::Lz4);
        assert_eq!(spec.version_guard, Some(3_600_000_000_000));
    }
}
