//! Compiled settings of wide tables: the layout of the key and the declared columns.
//!
//! Settings are compiled once per change and shared by all requests.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use tideline_key_codec::layout::KeyLayout;
use tideline_key_codec::tuple::{KeyKind, KeyValue};
use tideline_model::time::format_duration;
use tideline_model::{
    ColumnGroupSpec, ColumnSpec, ColumnType, FeedSpec, IndexCover, PartsSpec, SequenceSource, TableModel,
    TableName, TableSpec, WideSpec, feed,
};
use tideline_wide_table::{ColumnName, GROUPS_MAX, GroupSet, Index};

use crate::declared_columns::DeclaredColumns;
use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::row_search::settings::check_searches;
use crate::schedule;
use crate::tables::Table;

/// Maximum number of declared columns and patterns of a table.
pub const COLUMNS_MAX: usize = 10_000;
/// Maximum length of a column name, in bytes.
pub const COLUMN_NAME_BYTES_MAX: usize = 255;
/// Maximum number of column names and name prefixes of a column group.
const GROUP_COLUMNS_MAX: usize = 1_000;
/// Memory in which a key is encoded, in bytes; longer keys need more.
const KEY_BYTES: usize = 64;
/// Maximum number of rate limits for reads and writes.
const LIMITS_MAX: usize = 8;
/// Maximum number of versions that a table keeps per column.
pub const VERSIONS_MAX: u32 = 1_000;

/// Wide table with its compiled settings.
#[derive(Debug)]
pub struct WideTable {
    table: Table,
    spec: Arc<TableSpec>,
    columns: DeclaredColumns,
    /// Secondary indexes, in the order of their creation.
    indexes: Vec<Arc<Index>>,
}

impl WideTable {
    fn new(table: Table, spec: Arc<TableSpec>) -> Result<Self> {
        let wide = settings_of(&spec)?;
        Ok(Self {
            columns: DeclaredColumns::new(wide)?,
            indexes: Index::all_of(wide).map_err(EngineError::Invalid)?,
            table,
            spec,
        })
    }

    /// Returns the table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Returns the settings of the rows.
    pub fn settings(&self) -> &WideSpec {
        // `new` fails without these settings.
        self.spec
            .wide
            .as_deref()
            .expect("a wide table has settings of rows")
    }

    /// Returns the settings of a feed table beyond those of its rows; the defaults for other tables.
    pub fn feed(&self) -> FeedSpec {
        self.spec.feed.unwrap_or_default()
    }

    /// Encodes the logical values of a key. Returns the stored key, and the length of the prefix that names its
    /// partition.
    ///
    /// # Errors
    ///
    /// [`EngineError::Invalid`] for values that the key cannot hold.
    pub fn encode_key(&self, values: &[KeyValue<'_>]) -> Result<(Bytes, usize)> {
        let layout = self.layout();
        let mut key = Vec::with_capacity(KEY_BYTES);
        let encoded = layout.encode(values, &mut key);
        encoded.map_err(|error| EngineError::Invalid(error.to_string()))?;
        let partition = layout.partition_len(&key);
        let partition = partition.map_err(|error| EngineError::Invalid(error.to_string()))?;
        Ok((Bytes::copy_from_slice(&key), partition))
    }

    /// Returns the layout of the key.
    pub fn layout(&self) -> &KeyLayout {
        self.columns.layout()
    }

    /// Returns the secondary indexes, in the order of their creation.
    pub fn indexes(&self) -> &[Arc<Index>] {
        &self.indexes
    }

    /// Returns the column groups for which `is_wanted` returns true.
    pub fn groups_where(&self, is_wanted: impl Fn(&ColumnGroupSpec) -> bool) -> GroupSet {
        let groups = self.settings().groups.iter().enumerate();
        let wanted = groups.filter(|(_, group)| is_wanted(group));
        wanted.fold(GroupSet::NONE, |set, (number, _)| set.with(number))
    }

    /// Returns the column groups that store some of these columns.
    pub fn groups_of<'n>(&self, columns: impl Iterator<Item = &'n str>) -> GroupSet {
        let groups = columns.filter_map(|column| self.settings().group_of(column));
        groups.fold(GroupSet::NONE, GroupSet::with)
    }

    /// Returns an index that can be read.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::NoSuchIndex`] for an unknown name, and [`EngineError::IndexNotReady`] while the index is
    /// being built.
    pub fn index(&self, name: &str) -> Result<&Arc<Index>> {
        let found = self.indexes.iter().find(|index| index.name() == name);
        let index = found.ok_or_else(|| self.no_such_index(name))?;
        match index.is_ready() {
            true => Ok(index),
            false => Err(EngineError::IndexNotReady {
                table: self.table.name().clone(),
                index: name.to_owned(),
            }),
        }
    }

    /// Returns the error for a name that no index has.
    pub fn no_such_index(&self, name: &str) -> EngineError {
        EngineError::NoSuchIndex {
            table: self.table.name().clone(),
            index: name.to_owned(),
            known: self.indexes.iter().map(|index| index.name().to_owned()).collect(),
        }
    }

    /// Returns the columns that the settings declare.
    pub(crate) fn declared(&self) -> &DeclaredColumns {
        &self.columns
    }

    /// Returns the type of a key column or of a declared column; `None` for other columns.
    pub fn type_of(&self, name: &str) -> Option<ColumnType> {
        self.columns.type_of(name)
    }

    /// Returns the type of a key column, or of a column that is declared by name or by a pattern; `None` for other
    /// columns.
    pub fn column_type(&self, name: &str) -> Option<ColumnType> {
        self.columns.column_type(name)
    }

    /// Returns the names and numbers of the declared columns that rows store by number, in no particular order.
    pub fn declared_names(&self) -> impl Iterator<Item = (&str, u32)> {
        self.columns.names()
    }

    /// Returns the stored name of a column and its declared type. The type is `None` if neither a name nor a pattern
    /// declares the column.
    pub fn column(&self, name: &str) -> (ColumnName<'static>, Option<ColumnType>) {
        self.columns.column(name)
    }

    /// Returns the name of a stored column; `None` for a declared column that was removed from the settings.
    pub fn name_of<'n>(&'n self, column: &'n ColumnName<'_>) -> Option<&'n str> {
        self.columns.name_of(column)
    }

    /// Returns the name of a stored column and its declared type. Returns `None` for a declared column that was
    /// removed from the settings. The type is `None` if neither a name nor a pattern declares the column.
    pub fn declaration_of<'n>(&'n self, column: &'n ColumnName<'_>) -> Option<(&'n str, Option<ColumnType>)> {
        self.columns.declaration_of(column)
    }
}

/// Checks the settings of a feed table that other tables of rows do not have.
fn check_feed(name: &TableName, spec: &TableSpec, before: Option<&WideSpec>) -> Result<()> {
    let refuse = |what: String| Err(EngineError::Invalid(format!("table {name}: {what}")));
    match (spec.model, spec.feed) {
        (TableModel::Feed, None) => {
            return refuse("a table of the model feed needs the setting `feed`".into());
        }
        (TableModel::Feed, Some(_)) => {}
        (_, None) => return Ok(()),
        (model, Some(_)) => {
            return refuse(format!(
                "the setting `feed` is for tables of the model feed, not {model}"
            ));
        }
    }
    let inboxes = spec.feed.and_then(|feed| feed.inboxes);
    if let Some(inboxes) = inboxes
        && inboxes.push_max > feed::PUSH_MAX
    {
        return Err(EngineError::OverLimit {
            what: "feed.inboxes.push_max",
            limit: u64::from(feed::PUSH_MAX),
            actual: u64::from(inboxes.push_max),
        });
    }
    if let Some(inboxes) = inboxes.filter(|inboxes| inboxes.fan_out_max > 0) {
        if inboxes.fan_out_max > feed::FAN_OUT_MAX {
            return Err(EngineError::OverLimit {
                what: "feed.inboxes.fan_out_max",
                limit: u64::from(feed::FAN_OUT_MAX),
                actual: u64::from(inboxes.fan_out_max),
            });
        }
        if inboxes.fan_out_max <= inboxes.push_max {
            return refuse(format!(
                "feed.inboxes.fan_out_max is {}; it must be above push_max, which is {}, or 0 for no job",
                inboxes.fan_out_max, inboxes.push_max
            ));
        }
    }
    let is_manual = spec
        .feed
        .is_some_and(|feed| feed.sequence == SequenceSource::Manual);
    if inboxes.is_some() && is_manual {
        return refuse("feed.inboxes requires generated sequence numbers".into());
    }
    let Some(wide) = spec.wide.as_deref() else {
        return Ok(());
    };
    if wide.max_versions != 1 {
        return refuse("max_versions is fixed: messages have one version".into());
    }
    let is_counter = |column: &&ColumnSpec| column.name.starts_with(feed::COUNTER_PREFIX);
    if let Some(counter) = wide.columns.iter().find(is_counter) {
        return refuse(format!(
            "column {:?}: names that begin with {} are reserved for counters",
            counter.name,
            feed::COUNTER_PREFIX
        ));
    }
    if wide.cells_expire() {
        return refuse("ttl_of is fixed: a message expires as a whole".into());
    }
    let Some(before) = before else { return Ok(()) };
    // A removed column that is declared again has another number, so stored messages would lose its values.
    let reserved = before.columns.iter();
    let is_reserved = |name: &str| spec.feed.is_some_and(|feed| feed.is_reserved(name));
    let mut reserved = reserved.filter(|column| is_reserved(&column.name));
    if let Some(removed) = reserved.find(|column| !wide.columns.contains(column)) {
        return refuse(format!(
            "column {:?} belongs to every message and cannot be removed",
            removed.name
        ));
    }
    // The server also writes reserved columns that an older table does not declare.
    let mut added = wide.columns.iter().filter(|column| is_reserved(&column.name));
    let is_known = |column: &ColumnSpec| before.columns.iter().any(|known| known.name == column.name);
    if let Some(added) = added.find(|column| !is_known(column)) {
        return refuse(format!(
            "column {:?} is set by the server; use another name",
            added.name
        ));
    }
    match wide.indexes.iter().any(|index| index.name == feed::ID_INDEX) {
        true => Ok(()),
        false => refuse(format!(
            "index {} finds message ids and cannot be dropped",
            feed::ID_INDEX
        )),
    }
}

/// Returns the settings of the rows of a table, or an error if they are missing.
fn settings_of(spec: &TableSpec) -> Result<&WideSpec> {
    let missing =
        || EngineError::Invalid("a table of the model wide needs the setting `wide` with its key".into());
    spec.wide.as_deref().ok_or_else(missing)
}

impl Engine {
    /// Returns a wide table by name.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::OtherModel`] for a table of a model other than wide, [`EngineError::UsersTable`] for the
    /// users of a feed table, and the errors of [`table_of_rows`](Self::table_of_rows).
    pub fn wide_table(&self, name: &str) -> Result<Arc<WideTable>> {
        let table = self.table_with_model(name, TableModel::Wide)?;
        self.check_rows_reachable(&table)?;
        match &table.spec().users_of {
            None => self.compiled(table),
            Some(owner) => Err(EngineError::UsersTable {
                table: table.name().clone(),
                owner: owner.clone(),
            }),
        }
    }

    /// Returns a feed table by name.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::OtherModel`] for a table of a model other than feed, and the errors of
    /// [`table_of_rows`](Self::table_of_rows).
    pub fn feed_table(&self, name: &str) -> Result<Arc<WideTable>> {
        self.compiled(self.table_with_model(name, TableModel::Feed)?)
    }

    /// Returns a table whose rows can be read: a wide table, or a feed table, whose messages are rows. The rows of a
    /// feed table must be written as messages.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::OtherModel`] for a series table, [`EngineError::Invalid`] for settings that cannot be
    /// compiled, and a store error if the table does not exist.
    pub fn table_of_rows(&self, name: &str) -> Result<Arc<WideTable>> {
        let table = self.table_of_any_model(name)?;
        self.check_rows_reachable(&table)?;
        self.with_rows(table)
    }

    /// Returns a table with rows by name without a check of the access.
    pub(crate) fn known_rows(&self, name: &str) -> Result<Arc<WideTable>> {
        self.with_rows(self.known_table(name)?)
    }

    fn with_rows(&self, table: Table) -> Result<Arc<WideTable>> {
        match table.spec().model {
            model if model.has_rows() => self.compiled(table),
            model => Err(EngineError::OtherModel {
                table: table.name().clone(),
                model,
                needed: TableModel::Wide,
            }),
        }
    }

    /// Returns the compiled settings of a table with rows.
    pub(crate) fn compiled(&self, table: Table) -> Result<Arc<WideTable>> {
        let spec = table.spec();
        let id = table.points().id();
        let mut compiled = self.row_tables.lock();
        if let Some(known) = compiled.get(&id).filter(|known| Arc::ptr_eq(&known.spec, &spec)) {
            return Ok(Arc::clone(known));
        }
        let table = Arc::new(WideTable::new(table, spec)?);
        compiled.insert(id, Arc::clone(&table));
        Ok(table)
    }

    /// Changes the settings of the rows of a table. The caller holds the guard of the settings.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`alter_table`](Self::alter_table).
    pub(crate) fn change_wide(&self, table: &WideTable, change: impl FnOnce(&mut WideSpec)) -> Result<()> {
        let mut spec = TableSpec::clone(&table.table().spec());
        if let Some(wide) = spec.wide.as_deref_mut() {
            change(wide);
        }
        self.alter_known(&self.known_table(table.table().name().as_str())?, spec)?;
        Ok(())
    }

    /// Checks the settings of a new or altered table, and numbers its declared columns. `before` holds the settings
    /// before the change; `None` for a new table.
    pub(crate) fn check_rows(
        &self,
        name: &TableName,
        spec: &mut TableSpec,
        before: Option<&WideSpec>,
    ) -> Result<()> {
        check_feed(name, spec, before)?;
        if !spec.model.has_rows() {
            return match spec.wide {
                None => Ok(()),
                Some(_) => Err(EngineError::Invalid(format!(
                    "table {name}: the setting `wide` is for tables of the model wide, not {}",
                    spec.model
                ))),
            };
        }
        settings_of(spec)?;
        let Some(wide) = spec.wide.as_deref_mut() else {
            return Ok(());
        };
        let refuse = |what: String| Err(EngineError::Invalid(what));
        KeyLayout::new(&wide.key, wide.allow_rising_key)
            .map_err(|error| EngineError::Invalid(error.to_string()))?;
        if before.is_some_and(|before| before.key != wide.key) {
            return refuse("the key of a table is fixed; create another table and copy the rows".into());
        }
        if !(1..=VERSIONS_MAX).contains(&wide.max_versions) {
            return match wide.max_versions {
                0 => refuse("max_versions is 0; it must be at least 1".into()),
                actual => Err(EngineError::OverLimit {
                    what: "max_versions",
                    limit: u64::from(VERSIONS_MAX),
                    actual: u64::from(actual),
                }),
            };
        }
        if wide.version_guard.is_some_and(|guard| guard <= 0) {
            return refuse("version_guard must be longer than 0s; omit it for no limit".into());
        }
        // The id of large values belongs to the table: it is assigned once, and is not taken over from other settings.
        wide.large_values = before.and_then(|before| before.large_values.or(wide.large_values.map(|_| 0)));
        wide.cut_values = before.is_some_and(|before| before.cut_values || wide.cut_values);
        wide.codecs = before.is_some_and(|before| before.codecs)
            || wide.columns.iter().any(|column| !column.compression.is_auto());
        check_ttl(wide, before)?;
        check_parts(wide, before)?;
        self.check_parts_archive(wide, before)?;
        if wide.columns.len() > COLUMNS_MAX {
            return Err(EngineError::OverLimit {
                what: "number of declared columns",
                limit: COLUMNS_MAX as u64,
                actual: wide.columns.len() as u64,
            });
        }
        check_columns(wide)?;
        check_covered(wide, before)?;
        check_groups(wide, before)?;
        check_limits(wide)?;
        number_columns(wide, before)?;
        check_searches(wide, before, self.settings.tables.search_indexes_max)?;
        self.check_indexes(wide)
    }
}

impl Engine {
    /// Checks the archive target of the parts of a table if it differs from the previous target. The target itself is
    /// not accessed.
    fn check_parts_archive(&self, wide: &WideSpec, before: Option<&WideSpec>) -> Result<()> {
        let target = |spec: &WideSpec| Some(spec.parts.as_ref()?.archive.as_ref()?.target.clone());
        let Some(named) = target(wide).filter(|_| before.and_then(target) != target(wide)) else {
            return Ok(());
        };
        self.allow_target(&named).map_err(|error| match error {
            EngineError::Forbidden(reason) => EngineError::Forbidden(format!("wide.parts.archive: {reason}")),
            error => EngineError::Invalid(format!("wide.parts.archive: {error}")),
        })
    }
}

/// Checks the time-to-live. While the table has indexes, also refuses a change to or from a time-to-live of cells: if
/// cells expire, an index entry expires with the oldest value in its key, otherwise with its row. A search index holds
/// the times of cells only if cells expire. The time-to-live itself can be removed and set again, because a table without
/// one keeps the unit.
fn check_ttl(wide: &WideSpec, before: Option<&WideSpec>) -> Result<()> {
    if wide.ttl.is_some_and(|ttl| ttl.after <= 0) {
        return Err(EngineError::Invalid(
            "ttl must be longer than 0s; omit it for no limit".into(),
        ));
    }
    let has_indexes = |spec: &WideSpec| !spec.indexes.is_empty() || !spec.search_indexes.is_empty();
    match before {
        Some(before) if has_indexes(before) && before.cells_expire() != wide.cells_expire() => {
            Err(EngineError::Invalid(
                "ttl_of cannot be changed to or from `cell` while the table has indexes; drop them, and create them \
                 again afterwards"
                    .into(),
            ))
        }
        _ => Ok(()),
    }
}

/// Checks the schedules of the parts that have changed. An unchanged schedule stays allowed even if its time zone was
/// removed from the database of time zones.
fn check_schedules(parts: &PartsSpec, before: Option<&PartsSpec>) -> Result<()> {
    let schedules = |parts: &PartsSpec| {
        let archive = parts.archive.as_ref().map(|archive| archive.schedule.clone());
        [Some(parts.migrate.clone()), Some(parts.expire.clone()), archive]
    };
    let before = before.map_or([None, None, None], schedules);
    let names = ["migrate", "expire", "archive.schedule"];
    for ((schedule, before), name) in schedules(parts).iter().zip(&before).zip(names) {
        let Some(schedule) = schedule.as_ref().filter(|_| schedule != before) else {
            continue;
        };
        schedule::check(schedule)
            .map_err(|reason| EngineError::Invalid(format!("parts.{name}: {reason}")))?;
    }
    Ok(())
}

/// Checks the settings of the parts. The column and the period of the division are fixed when the table is created.
fn check_parts(wide: &WideSpec, before: Option<&WideSpec>) -> Result<()> {
    let refuse = |what: String| Err(EngineError::Invalid(what));
    let fixed = |spec: &WideSpec| spec.parts.as_ref().map(|parts| (parts.by.clone(), parts.every));
    if before.is_some_and(|before| fixed(before) != fixed(wide)) {
        return refuse(
            "the division into parts is fixed when a table is created; create another table and copy the rows".into(),
        );
    }
    let Some(parts) = &wide.parts else {
        return Ok(());
    };
    for (name, age, otherwise) in [
        ("keep", parts.keep, "keep all parts"),
        ("hot", parts.hot, "keep all parts in the hot tier"),
        ("writable", parts.writable, "write to all parts"),
        (
            "archive.after",
            parts.archive.as_ref().map(|archive| archive.after),
            "archive nothing",
        ),
    ] {
        if age.is_some_and(|age| age <= 0) {
            return refuse(format!(
                "parts.{name} must be longer than 0s; omit it to {otherwise}"
            ));
        }
    }
    if parts.move_bytes_per_second == Some(0) {
        return refuse("parts.move_bytes_per_second must be at least 1; omit it for no limit".into());
    }
    check_schedules(parts, before.and_then(|before| before.parts.as_ref()))?;
    let after = parts.archive.as_ref().map(|archive| archive.after);
    for (name, age) in [
        ("hot", parts.hot),
        ("writable", parts.writable),
        ("archive.after", after),
    ] {
        if let (Some(age), Some(keep)) = (age, parts.keep)
            && age >= keep
        {
            return refuse(format!(
                "parts.{name} is {}, which is not below parts.keep, {}: parts are dropped before",
                format_duration(age),
                format_duration(keep)
            ));
        }
    }
    let layout = KeyLayout::new(&wide.key, true).map_err(|error| EngineError::Invalid(error.to_string()))?;
    if layout.time_column(&parts.by).is_some() {
        return Ok(());
    }
    let logical = layout.logical().iter();
    let times: Vec<&str> = logical
        .filter(|column| column.kind == KeyKind::Timestamp || column.is_generated)
        .map(|column| column.name.as_str())
        .collect();
    refuse(match times.is_empty() {
        true => format!(
            "parts.by {:?}: the key has no timestamp or generated column, which decides the part of a row",
            parts.by
        ),
        false => format!(
            "parts.by {:?} is neither a timestamp nor a generated column of the key; the key has {}",
            parts.by,
            times.join(", ")
        ),
    })
}

/// Checks the names of the declared columns and patterns.
fn check_columns(wide: &WideSpec) -> Result<()> {
    let refuse = |what: String| Err(EngineError::Invalid(what));
    let layout = KeyLayout::new(&wide.key, wide.allow_rising_key);
    let layout = layout.map_err(|error| EngineError::Invalid(error.to_string()))?;
    let mut names = hashbrown::HashSet::new();
    for column in &wide.columns {
        let name = column.name.as_str();
        if name.is_empty() || name.len() > COLUMN_NAME_BYTES_MAX {
            return refuse(format!(
                "column name {:?} has {} bytes; 1 to {COLUMN_NAME_BYTES_MAX} are allowed",
                name.chars().take(80).collect::<String>(),
                name.len()
            ));
        }
        if !names.insert(name) {
            return refuse(format!("column {name:?} is declared twice"));
        }
        if layout.logical().iter().any(|key| key.name == name) {
            return refuse(format!("column {name:?} has the name of a key column"));
        }
        check_compression(column)?;
    }
    Ok(())
}

/// Refuses the removal of a declared column that an index covers by its name: the entries hold the column by its number,
/// which no longer has a name afterwards.
fn check_covered(wide: &WideSpec, before: Option<&WideSpec>) -> Result<()> {
    let Some(before) = before else { return Ok(()) };
    for index in &wide.indexes {
        let IndexCover::Columns(covered) = &index.covers else {
            continue;
        };
        let is_declared = |spec: &WideSpec, name: &str| {
            let mut columns = spec.columns.iter();
            columns.any(|column| column.name == name && !column.is_pattern())
        };
        // An index that is created by the same change has no entries yet.
        let is_known = before.indexes.iter().any(|known| known.id == index.id);
        let mut removed = covered
            .iter()
            .filter(|name| is_known && is_declared(before, name) && !is_declared(wide, name));
        if let Some(name) = removed.next() {
            return Err(EngineError::Invalid(format!(
                "index {:?} covers column {name:?}; drop the index before the column is removed, and create it again \
                 afterwards",
                index.name
            )));
        }
    }
    Ok(())
}

/// Checks the rate limits for reads and writes.
fn check_limits(wide: &WideSpec) -> Result<()> {
    let refuse = |what: String| Err(EngineError::Invalid(what));
    if wide.limits.len() > LIMITS_MAX {
        return Err(EngineError::OverLimit {
            what: "number of limits in wide.limits",
            limit: LIMITS_MAX as u64,
            actual: wide.limits.len() as u64,
        });
    }
    for (number, limit) in wide.limits.iter().enumerate() {
        if limit.older_than.is_some_and(|age| age <= 0) {
            return refuse(
                "wide.limits: older_than must be longer than 0s; omit it to limit the whole table".into(),
            );
        }
        if limit.older_than.is_some() && wide.parts.is_none() {
            return refuse(
                "wide.limits: older_than needs a table that is divided into parts; omit it to limit the whole table".into(),
            );
        }
        if wide.limits[..number]
            .iter()
            .any(|other| other.older_than == limit.older_than)
        {
            return refuse(match limit.older_than {
                Some(age) => format!(
                    "wide.limits has two limits with older_than {}",
                    format_duration(age)
                ),
                None => "wide.limits has two limits without older_than".into(),
            });
        }
        let rates = [limit.reads_per_second, limit.writes_per_second];
        if rates == [None; 2] || rates.contains(&Some(0)) {
            return refuse(
                "wide.limits: give reads_per_second or writes_per_second, or both; each must be at least 1"
                    .into(),
            );
        }
    }
    Ok(())
}

/// Checks the compression of a declared column.
fn check_compression(column: &ColumnSpec) -> Result<()> {
    let (name, compression) = (&column.name, column.compression.name());
    if column.compression.is_auto() {
        return Ok(());
    }
    let has_contents = matches!(
        column.column_type,
        ColumnType::String | ColumnType::Binary | ColumnType::Json
    );
    if !has_contents {
        return Err(EngineError::Invalid(format!(
            "column {name:?} of type {} cannot have the compression {compression:?}, which is for string, binary and json; \
             omit it",
            column.column_type
        )));
    }
    if column.is_pattern() && column.prefix().is_none() {
        return Err(EngineError::Invalid(format!(
            "pattern {name:?} cannot have the compression {compression:?}; use a pattern in the form `x*`"
        )));
    }
    Ok(())
}

/// Checks the column groups, which are fixed when a table is created, and takes over their ids.
fn check_groups(wide: &mut WideSpec, before: Option<&WideSpec>) -> Result<()> {
    let refuse = |what: String| Err(EngineError::Invalid(what));
    for (number, group) in wide.groups.iter_mut().enumerate() {
        let known = before.and_then(|before| before.groups.get(number));
        group.id = known.map_or(0, |known| known.id);
    }
    if wide.groups.len() > GROUPS_MAX {
        return Err(EngineError::OverLimit {
            what: "number of column groups",
            limit: GROUPS_MAX as u64,
            actual: wide.groups.len() as u64,
        });
    }
    // Settings from an archive were never checked by this database.
    check_group_names(wide)?;
    if let Some(before) = before {
        if before.groups != wide.groups {
            return refuse(
                "the column groups of a table are fixed when it is created; create another table and copy the rows"
                    .into(),
            );
        }
        // Stored rows refer to a declared column by its number. Without the declaration, the group of the number is
        // unknown.
        let is_left = |column: &&ColumnSpec| wide.columns.iter().all(|kept| kept.name != column.name);
        let mut grouped = before.columns.iter().filter(|column| column.number > 0);
        return match grouped.find(|column| is_left(column) && before.group_of(&column.name).is_some()) {
            Some(column) => refuse(format!(
                "column {:?} is stored in a column group, so its declaration cannot be removed",
                column.name
            )),
            None => Ok(()),
        };
    }
    Ok(())
}

/// Checks the names of column groups, and of their columns.
fn check_group_names(wide: &WideSpec) -> Result<()> {
    let refuse = |what: String| Err(EngineError::Invalid(what));
    let layout = KeyLayout::new(&wide.key, wide.allow_rising_key);
    let layout = layout.map_err(|error| EngineError::Invalid(error.to_string()))?;
    let (mut names, mut columns) = (hashbrown::HashSet::new(), hashbrown::HashSet::new());
    for ColumnGroupSpec {
        name, columns: of, ..
    } in &wide.groups
    {
        if name.is_empty() || name.len() > COLUMN_NAME_BYTES_MAX {
            return refuse(format!(
                "the name of a column group has {} bytes; 1 to {COLUMN_NAME_BYTES_MAX} are allowed",
                name.len()
            ));
        }
        if !names.insert(name) {
            return refuse(format!("column group {name:?} is given twice"));
        }
        if of.is_empty() || of.len() > GROUP_COLUMNS_MAX {
            return refuse(format!(
                "column group {name:?} has {} columns; 1 to {GROUP_COLUMNS_MAX} are allowed",
                of.len()
            ));
        }
        for column in of {
            let start = column.strip_suffix('*').unwrap_or(column);
            if start.is_empty() || start.contains(['*', '?']) || column.len() > COLUMN_NAME_BYTES_MAX {
                return refuse(format!(
                    "column {column:?} of group {name:?}: give a name, or the beginning of names followed by `*`"
                ));
            }
            if layout.logical().iter().any(|key| key.name == *column) {
                return refuse(format!(
                    "column {column:?} of group {name:?} is a key column, which is stored with every group"
                ));
            }
            if !columns.insert(column) {
                return refuse(format!("column {column:?} is given twice in the column groups"));
            }
        }
    }
    Ok(())
}

/// Numbers the columns that are declared when the table is created, and refuses a changed type of a declared column.
/// Patterns and columns declared later get the number 0. Rows store these columns by name, because rows may already
/// hold values of the column when it is declared.
fn number_columns(wide: &mut WideSpec, before: Option<&WideSpec>) -> Result<()> {
    let known: HashMap<&str, &ColumnSpec> = before
        .into_iter()
        .flat_map(|before| &before.columns)
        .map(|column| (column.name.as_str(), column))
        .collect();
    wide.next_column = before.map_or(1, |before| before.next_column);
    for column in &mut wide.columns {
        column.number = match known.get(column.name.as_str()) {
            _ if column.is_pattern() => 0,
            Some(known) if known.column_type != column.column_type => {
                return Err(EngineError::Invalid(format!(
                    "column {:?} has the type {}, which cannot be changed to {}; declare another column",
                    column.name, known.column_type, column.column_type
                )));
            }
            Some(known) => known.number,
            None if before.is_some() => 0,
            None => {
                wide.next_column += 1;
                wide.next_column - 1
            }
        };
    }
    Ok(())
}
