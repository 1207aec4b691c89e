//! Tables: creation, settings, removal and statistics.
//!
//! A [`Table`] joins the points of a table in the store with its timelines in the catalog.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashSet;
use parking_lot::{MutexGuard, RwLockReadGuard};
use tideline_archive::ArchiveError;
use tideline_model::time::format_duration;
use tideline_model::{Policy, TableId, TableName, TableSpec, Tier, WideSpec};
use tideline_series_store::{HeadSurvey, SegmentSurvey, StoreError, TableSurvey};
use tideline_timeline_catalog::{Catalog, MetricKind, SavedSearches};

use crate::activity::Activity;
use crate::attribute_analyzers::check_attribute_analyzers;
use crate::directory::TableState;
use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::restriction::Restriction;
use crate::system_table::{check_not_system, is_reserved};

/// Table joined with its catalog. After the table is dropped, a handle stays valid but refuses writes. If the principal
/// of a handle may use only some timelines, the handle shows only these timelines.
#[derive(Debug, Clone)]
pub struct Table {
    pub(crate) points: Arc<tideline_series_store::Table>,
    /// All timelines. Requests see timelines only through [`reader`](Self::reader).
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) activity: Arc<Activity>,
    /// Restriction to some of the timelines; `None` without one.
    pub(crate) restriction: Option<Restriction>,
}

/// Statistics of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableStats {
    /// Visible timelines.
    pub timelines: u64,
    /// Published segments.
    pub segments: u64,
    /// Sealed points.
    pub sealed_points: u64,
    /// Sealed field values.
    pub sealed_values: u64,
    /// Bytes of sealed chunks and their keys, and sizes of archive files.
    pub sealed_bytes: u64,
    /// Timestamps of the oldest and newest sealed point, nanoseconds since the epoch.
    pub sealed_span: Option<(i64, i64)>,
    /// Unsealed points.
    pub head: HeadSurvey,
    /// Sealed points in the hot tier.
    pub hot: TierStats,
    /// Sealed points in the cold tier.
    pub cold: TierStats,
    /// Points in archive files. The bytes are the sizes of the files, without the index that this database keeps.
    pub archive: TierStats,
    /// Bytes that seals and rewrites have written since the start. Their ratio to the sealed bytes is the write
    /// amplification.
    pub loaded_bytes: u64,
    /// Deletes that are not yet applied to all segments.
    pub deletes_waiting: u64,
    /// Bytes of segments with points that a delete may hide: an upper limit of the bytes rewritten to apply deletes.
    pub bytes_with_deletes: u64,
    /// Bytes of segments whose points have all expired. They are freed some time later.
    pub expired_bytes: u64,
}

/// Statistics of one tier of a table. Deleted and expired points count until their bytes are freed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierStats {
    /// Published segments.
    pub segments: u64,
    /// Windows that have a segment.
    pub windows: u64,
    /// Points.
    pub points: u64,
    /// Field values.
    pub values: u64,
    /// Bytes of chunks and their keys.
    pub bytes: u64,
    /// Timestamps of the oldest and newest point, nanoseconds since the epoch.
    pub span: Option<(i64, i64)>,
}

impl Table {
    /// Returns the name of the table.
    pub fn name(&self) -> &TableName {
        self.points.name()
    }

    /// Returns the current settings.
    pub fn spec(&self) -> Arc<TableSpec> {
        self.points.spec()
    }

    /// Returns the creation time of the table, in nanoseconds since the epoch.
    pub fn created(&self) -> i64 {
        self.points.created()
    }

    /// Returns the table of the store: its schema and access to its points.
    pub fn points(&self) -> &Arc<tideline_series_store::Table> {
        &self.points
    }

    /// Returns the number of timelines that were registered, visible or not, and the bytes of memory of their
    /// identities.
    pub fn identity_bytes(&self) -> (u64, u64) {
        self.catalog.identity_bytes()
    }

    /// Returns true if the table stores the same type, help and unit of a metric.
    pub fn knows_metadata(&self, name: &str, kind: MetricKind, help: &str, unit: &str) -> bool {
        self.catalog.metadata().knows(name, kind, help, unit)
    }

    /// Returns the saved searches.
    pub fn searches(&self) -> &SavedSearches {
        self.catalog.searches()
    }
}

impl Engine {
    /// Returns the table for requests that name no table: the default table of the tenant of this handle, or the
    /// default table of the server if the tenant has no such setting or there is no tenant. The default table of the
    /// server exists from the first start.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::OtherModel`] if its model is not series, [`EngineError::Denied`] if the principal of this
    /// handle may not use it, or a store error if it does not exist or cannot be read.
    pub fn default_table(&self) -> Result<Table> {
        let of_principal = self
            .access
            .as_ref()
            .map(|access| access.principal().default_table());
        self.table(of_principal.unwrap_or(TableName::DEFAULT))
    }

    /// Creates a table.
    ///
    /// # Errors
    ///
    /// - [`EngineError::Invalid`] or [`EngineError::OverLimit`] for contradictory settings.
    /// - [`EngineError::Forbidden`] for an archive target that is not allowed.
    /// - [`EngineError::TooManyTables`] at the limit, and [`EngineError::TooManyObjects`] at the budget of the tenant of
    ///   this handle.
    /// - [`EngineError::Denied`] if the principal of this handle may not create the table.
    /// - A catalog or store error, for example if the name is in use.
    pub fn create_table(&self, name: TableName, spec: TableSpec) -> Result<Table> {
        self.check_creates(&name, spec.model)?;
        check_not_reserved(&name)?;
        self.create_unchecked(name, spec)
    }

    /// Creates a table without a check of the access.
    pub(crate) fn create_unchecked(&self, name: TableName, spec: TableSpec) -> Result<Table> {
        self.create_with(name, spec, None)
    }

    /// Creates a wide table for rows of an archive. Its columns keep the numbers under which the archived rows store
    /// them. The caller has checked the target of the archive.
    ///
    /// # Errors
    ///
    /// The errors of [`create_table`](Self::create_table).
    pub(crate) fn create_attached_table(&self, name: TableName, spec: TableSpec) -> Result<Table> {
        self.check_creates(&name, spec.model)?;
        check_not_reserved(&name)?;
        let known = spec.wide.clone();
        self.create_with(name, spec, known.as_deref())
    }

    /// Creates a table. `known` holds the settings of rows that exist already; `None` without rows.
    fn create_with(&self, name: TableName, mut spec: TableSpec, known: Option<&WideSpec>) -> Result<Table> {
        self.check_rows(&name, &mut spec, known)?;
        check_policy(&spec.policy)?;
        check_attribute_analyzers(&spec)?;
        self.check_archive(None, &spec.policy)?;
        self.forget_known_tables()?;
        let _list = self.table_list.lock();
        self.check_table_budget(&name, &spec)?;
        let is_noted = !spec.is_system;
        if is_noted {
            // The drop of an earlier table of this name is reported before the changes of the new table.
            self.note_changed_tables()?;
        }
        self.create_users(&name, &spec)?;
        let table = self.add_table(name, spec)?;
        if is_noted {
            self.try_to_note_tables();
        }
        if known.is_none() {
            // No message of a new table waits for inboxes, and no join was interrupted.
            self.complete_fan_outs(table.points().id());
        }
        Ok(table)
    }

    /// Checks that the budget of the tenant of this handle allows a new table, and its table of users if it has one. The
    /// caller holds the lock of the list of tables.
    fn check_table_budget(&self, name: &TableName, spec: &TableSpec) -> Result<()> {
        let Some(tenant) = self.tenant().filter(|_| !spec.is_system) else {
            return Ok(());
        };
        // If the name is in use, the creation fails for this reason.
        if self.store.table(name.as_str()).is_ok() {
            return Ok(());
        }
        let has_users = spec.feed.is_some_and(|feed| feed.inboxes.is_some());
        let owners = self.table_owners();
        // A table of users that an interrupted creation has left is replaced.
        let is_counted = |owner: &&TableName| *owner != name && tenant.record().has_table(owner.as_str());
        let count = owners.iter().filter(is_counted).count();
        let limit = self.settings.tables.tables_max as u64;
        Ok(tenant.check_tables(count as u64, 1 + u64::from(has_users), limit)?)
    }

    /// Returns the name of each table, except the tables of the server, without a check of the access. For a table of
    /// users, returns the name of its feed table. The budget of tables of a tenant counts these tables.
    pub fn table_owners(&self) -> Vec<TableName> {
        let owner = |table: Arc<tideline_series_store::Table>| {
            let spec = table.spec();
            let owner = spec.users_of.as_ref().unwrap_or_else(|| table.name());
            (!spec.is_system).then(|| owner.clone())
        };
        self.store.tables().into_iter().filter_map(owner).collect()
    }

    /// Returns the maximum number of tables.
    pub fn tables_max(&self) -> usize {
        self.settings.tables.tables_max
    }

    /// Adds a table with checked settings to the list of tables. The caller holds the lock of the list.
    pub(crate) fn add_table(&self, name: TableName, spec: TableSpec) -> Result<Table> {
        let limit = self.settings.tables.tables_max;
        let tables = self.store.tables().into_iter();
        let count = tables.filter(|table| !table.spec().is_system).count();
        if count >= limit && !spec.is_system && self.store.table(name.as_str()).is_err() {
            return Err(EngineError::TooManyTables { limit, count });
        }
        Ok(self.joined(self.store.create_table(name, spec)?))
    }

    /// Prevents other changes of table settings until the guard is dropped. A caller that reads settings, changes them
    /// and calls [`alter_table`](Self::alter_table) must hold the guard; otherwise it overwrites concurrent changes.
    pub fn lock_settings(&self) -> MutexGuard<'_, ()> {
        self.altering.lock()
    }

    /// Changes the settings of a table of any model. The model is fixed; source tags are fixed by the first write.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::ModelFixed`] for another model. Returns [`EngineError::Invalid`],
    /// [`EngineError::OverLimit`] or [`EngineError::Forbidden`] for settings that are not allowed, and a catalog or
    /// store error if source tags are fixed or the table does not exist. Returns [`EngineError::Denied`] if the
    /// principal of this handle may not change the table, and [`EngineError::UsersTable`] for the users of a feed table.
    pub fn alter_table(&self, name: &str, spec: TableSpec) -> Result<Table> {
        let table = self.table_of_any_model(name)?;
        self.check_definable(&table)?;
        self.alter_known(&table, spec)
    }

    /// Checks that a request may change the settings, indexes and parts of a table. The server itself depends on the
    /// definition of its own tables and of the users of a feed table.
    pub(crate) fn check_definable(&self, table: &Table) -> Result<()> {
        let spec = table.spec();
        self.check_operates(table.name().as_str(), spec.model)?;
        check_not_system(table)?;
        match &spec.users_of {
            None => Ok(()),
            Some(owner) => Err(EngineError::UsersTable {
                table: table.name().clone(),
                owner: owner.clone(),
            }),
        }
    }

    /// Changes the settings of a table without a check of the access. Writes also change settings, for example when
    /// they contain the first large value.
    pub(crate) fn alter_known(&self, table: &Table, mut spec: TableSpec) -> Result<Table> {
        let model = table.spec().model;
        if model != spec.model {
            return Err(EngineError::ModelFixed {
                table: table.name().clone(),
                model,
                wanted: spec.model,
            });
        }
        self.check_rows(table.name(), &mut spec, table.spec().wide.as_deref())?;
        check_policy(&spec.policy)?;
        check_attribute_analyzers(&spec)?;
        self.check_archive(Some(&table.spec().policy), &spec.policy)?;
        if table.spec().source_tags != spec.source_tags {
            table.catalog.set_source_tags(spec.source_tags.clone())?;
        }
        let archive = |spec: &TableSpec| {
            let archive = spec.wide.as_ref()?.parts.as_ref()?.archive.as_ref()?;
            Some((archive.target.clone(), archive.after))
        };
        let is_other_archive = archive(&table.spec()) != archive(&spec);
        let altered = self.joined(self.store.alter_table(table.name().as_str(), spec)?);
        if is_other_archive {
            // Opens the parts that were closed for the previous archive. Parts that are still due are closed again when
            // they are archived.
            self.rows.open_closed_parts(altered.points().id())?;
        }
        let analyzers = &altered.spec().attribute_analyzers;
        if **altered.catalog.reader().analyzers() != *analyzers {
            altered.catalog.set_analyzers(analyzers.clone());
            self.index.notify();
        }
        Ok(altered)
    }

    /// Checks the archive target of a policy if it differs from the target of the previous policy. The target itself is
    /// not accessed.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`allow_target`](Self::allow_target), with the setting named in their text.
    pub fn check_archive(&self, before: Option<&Policy>, policy: &Policy) -> Result<()> {
        let target = |policy: &Policy| policy.archive.as_ref().map(|archive| archive.target.clone());
        let Some(named) = target(policy).filter(|_| before.and_then(target) != target(policy)) else {
            return Ok(());
        };
        self.allow_target(&named).map_err(|error| match error {
            EngineError::Forbidden(reason) => EngineError::Forbidden(format!("policy.archive: {reason}")),
            error => EngineError::Invalid(format!("policy.archive: {error}")),
        })
    }

    /// Checks that a request may use an archive target. The target itself is not accessed.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::Forbidden`] if the operator does not allow the target, and [`EngineError::Invalid`] if
    /// it is not a valid target or the archive is switched off.
    pub fn allow_target(&self, target: &str) -> Result<()> {
        let archive = self.settings.store.archive.as_ref();
        let archive = archive.ok_or_else(|| EngineError::Invalid("the archive is switched off".into()))?;
        archive.allow(target).map_err(|error| match error {
            ArchiveError::NotAllowed { .. } => EngineError::Forbidden(error.to_string()),
            error => EngineError::Invalid(error.to_string()),
        })
    }

    /// Returns the tables whose policy has an archive target that is not allowed, with the reason. These tables are not
    /// archived. The list is empty if the archive is switched off.
    pub fn tables_without_target(&self) -> Vec<(TableName, String)> {
        let Some(archive) = &self.settings.store.archive else {
            return Vec::new();
        };
        let refused = |table: Table| {
            let target = table.spec().policy.archive.as_ref()?.target.clone();
            let error = archive.check_allowed(&target).err()?;
            Some((table.name().clone(), error.to_string()))
        };
        self.known_tables().into_iter().filter_map(refused).collect()
    }

    /// Drops a table with its points, timelines and attributes. They are invisible on return; the bytes are freed
    /// soon after.
    ///
    /// # Errors
    ///
    /// Returns a store error if the table does not exist, is the default table or cannot be dropped. After a
    /// retryable error the table may have been dropped.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        if self.access.is_some() {
            let table = self.table_of_any_model(name)?;
            self.check_operates(name, table.spec().model)?;
        }
        let dropped = {
            let _list = self.table_list.lock();
            let users = self.check_droppable(name)?;
            // The drop of a table can be reported only if the table was noted. A failure does not prevent the drop,
            // which frees space on a full disk.
            self.try_to_note_tables();
            let dropped = match (self.store.drop_table(name), users) {
                // If this fails, the next creation of the feed table replaces the users that are left.
                (Ok(_), Some(users)) => self.store.drop_table(users.as_str()),
                (dropped, _) => dropped,
            };
            self.try_to_note_tables();
            dropped
        };
        // Runs even after an error, because the table may have been dropped nevertheless.
        if let Err(error) = self.forget_known_tables() {
            tracing::warn!(%error, "failed to remove the rows of a dropped table; the scheduler retries it");
        }
        self.follow_searches();
        // Watches of the table end.
        self.store.wake_watchers();
        dropped?;
        Ok(())
    }

    /// Notes the tables that were created or dropped. After a failure, the next creation or drop repeats it. The caller
    /// holds the lock of the list of tables.
    fn try_to_note_tables(&self) {
        if let Err(error) = self.note_changed_tables() {
            tracing::warn!(%error, "failed to note the tables for change streams; it is repeated before the next creation or drop");
        }
    }

    /// Removes the timelines, saved searches and metadata of metrics of dropped tables. After a failure the next call
    /// repeats the removal. The scheduler calls this function whenever it plans.
    ///
    /// The first call after a start also removes rows of tables that were dropped before, because the process may have
    /// ended before it removed them.
    ///
    /// # Errors
    ///
    /// Returns a catalog error if rows cannot be found or removed.
    pub fn forget_dropped_tables(&self) -> Result<()> {
        self.forget_known_tables()?;
        if self.may_have_dropped_rows.load(Ordering::Relaxed) {
            self.remove_dropped_rows()?;
            self.may_have_dropped_rows.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Removes the stored rows of tables that do not exist and have no catalog.
    fn remove_dropped_rows(&self) -> Result<()> {
        let backend = self.store.backend().as_ref();
        // The list of tables is read after the rows. A table is in the list before its first row is written, and ids are
        // never reused, so a table with rows that is not in the list was dropped.
        let mut dropped = Catalog::stored_tables(backend)?;
        for table in self.store.tables() {
            dropped.remove(&table.id());
        }
        // The other tables that have catalogs are removed with their catalogs.
        dropped.retain(|id| self.catalogs.get(*id).is_none());
        let stamps = self.store.stamps();
        for id in dropped {
            Catalog::remove_all(backend, id, self.catalogs.change_log(), &mut || stamps.next())?;
            tracing::info!(table = %id, "removed the rows that a dropped table has left");
        }
        Ok(())
    }

    /// Removes the dropped tables that have a catalog in memory.
    fn forget_known_tables(&self) -> Result<()> {
        let mut ids = self.catalogs.tables();
        if !ids.is_empty() {
            let kept: HashSet<TableId> = self.store.tables().iter().map(|table| table.id()).collect();
            ids.retain(|id| !kept.contains(id));
        }
        for id in ids {
            self.index.detach(id);
            let Some(table_state) = self.catalogs.remove(id) else {
                continue;
            };
            // Waits for running edits of timelines, which could leave rows behind. Later edits fail because the table
            // does not exist.
            let no_edits = table_state.activity.writers.write();
            let stamps = self.store.stamps();
            let backend = self.store.backend().as_ref();
            let removed = table_state.catalog.drop_rows(backend, &mut || stamps.next());
            drop(no_edits);
            if let Err(error) = removed {
                self.catalogs.put_back(id, table_state);
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Returns the statistics of a table; all zero if it was dropped. For a table that is restricted to some timelines,
    /// returns only their number.
    pub fn table_stats(&self, table: &Table) -> TableStats {
        if table.restriction.is_some() {
            return TableStats {
                timelines: table.reader().visible().len(),
                ..TableStats::default()
            };
        }
        let survey = self.store.survey();
        let of_table = survey
            .tables
            .iter()
            .find(|other| other.table.id() == table.points.id());
        of_table.map_or_else(TableStats::default, |of_table| self.stats_of(table, of_table))
    }

    /// Returns all tables, sorted by name, with their statistics at one point in time.
    pub fn all_table_stats(&self) -> Vec<(Table, TableStats)> {
        let survey = self.store.survey();
        let joined = survey.tables.iter().map(|of_table| {
            let table = self.joined(Arc::clone(&of_table.table));
            let stats = self.stats_of(&table, of_table);
            (table, stats)
        });
        let mut all: Vec<(Table, TableStats)> = joined.collect();
        all.sort_by(|(a, _), (b, _)| a.name().cmp(b.name()));
        all
    }

    fn stats_of(&self, table: &Table, survey: &TableSurvey) -> TableStats {
        let visible_from = self.store.visible_from(&table.points);
        let bytes_of = |which: &dyn Fn(&SegmentSurvey) -> bool| -> u64 {
            let segments = survey.segments.iter().filter(|segment| which(segment));
            segments.map(|segment| segment.segment.bytes).sum()
        };
        let (hot, cold) = (tier_stats(survey, Tier::Hot), tier_stats(survey, Tier::Cold));
        let archive = tier_stats(survey, Tier::Archive);
        let span = joined_span(joined_span(hot.span, cold.span), archive.span);
        TableStats {
            timelines: table.catalog.len(),
            segments: hot.segments + cold.segments + archive.segments,
            sealed_points: hot.points + cold.points + archive.points,
            sealed_values: hot.values + cold.values + archive.values,
            sealed_bytes: hot.bytes + cold.bytes + archive.bytes,
            sealed_span: span,
            head: survey.head,
            hot,
            cold,
            archive,
            loaded_bytes: survey.loaded_bytes,
            deletes_waiting: survey.deletes as u64,
            bytes_with_deletes: bytes_of(&|segment| segment.has_deletes),
            expired_bytes: bytes_of(&|segment| segment.segment.last < visible_from),
        }
    }

    /// Prevents the removal of timelines of a table until the guard is dropped. Fails if the table was dropped. Code
    /// that writes catalog rows of timelines must hold the guard.
    pub(crate) fn keep_timelines<'t>(&self, table: &'t Table) -> Result<RwLockReadGuard<'t, ()>> {
        let guard = table.activity.writers.read();
        self.check_exists(table).map(|()| guard)
    }

    /// Refuses a table that was dropped after its handle was obtained.
    ///
    /// # Errors
    ///
    /// Returns a store error if the table was dropped, even if another table has its name now.
    pub fn check_exists(&self, table: &Table) -> Result<()> {
        let id = table.points.id();
        match self.store.table(table.name().as_str())?.id() == id {
            true => Ok(()),
            false => Err(StoreError::TableDropped(id).into()),
        }
    }

    pub(crate) fn joined(&self, points: Arc<tideline_series_store::Table>) -> Table {
        let TableState { catalog, activity } = self.table_state(&points);
        Table {
            points,
            catalog,
            activity,
            restriction: None,
        }
    }
}

fn tier_stats(survey: &TableSurvey, tier: Tier) -> TierStats {
    let mut stats = TierStats::default();
    let mut windows = HashSet::new();
    let segments = survey.segments.iter().map(|surveyed| &surveyed.segment);
    for segment in segments.filter(|segment| segment.tier == tier) {
        windows.insert((segment.window.level, segment.window.index));
        stats.segments += 1;
        stats.points += segment.points;
        stats.values += segment.values;
        stats.bytes += segment.bytes;
        stats.span = joined_span(stats.span, Some((segment.first, segment.last)));
    }
    stats.windows = windows.len() as u64;
    stats
}

fn joined_span(one: Option<(i64, i64)>, other: Option<(i64, i64)>) -> Option<(i64, i64)> {
    match (one, other) {
        (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
        (one, other) => one.or(other),
    }
}

/// Refuses a contradictory policy; the error contains the name of the field. The scheduler checks the schedules.
fn check_policy(policy: &Policy) -> Result<()> {
    let refuse = |what: String| Err(EngineError::Invalid(what));
    let ages = [
        ("hot_ttl", policy.hot_ttl),
        ("cold_ttl", policy.cold_ttl),
        ("retention", policy.retention),
        ("timeline_ttl", policy.timeline_ttl),
    ];
    for (field, age) in ages {
        if age.is_some_and(|age| age <= 0) {
            return refuse(format!("{field} must be longer than 0s; omit it for no limit"));
        }
    }
    if let Some(archive) = &policy.archive {
        if policy.cold_ttl.is_some() {
            return refuse("cold_ttl and archive are mutually exclusive; set only one of them".into());
        }
        if policy.hot_ttl.is_none_or(|hot| archive.after <= hot) {
            return refuse("archive.after must exceed hot_ttl: only cold points are archived".into());
        }
        if archive.keep_cold.is_some_and(|keep| keep < 0) {
            return refuse("archive.keep_cold must not be below 0s; omit it to keep none".into());
        }
        for (field, age) in [("retention", policy.retention), ("archive.keep", archive.keep)] {
            if age.is_some_and(|age| age <= archive.after) {
                return refuse(format!(
                    "{field} must be longer than archive.after; otherwise nothing is ever archived"
                ));
            }
        }
        if archive
            .keep
            .zip(policy.retention)
            .is_some_and(|(keep, retention)| keep > retention)
        {
            return refuse("archive.keep must not exceed retention: points are gone after it".into());
        }
    }
    match (policy.hot_ttl, policy.cold_ttl) {
        (None, Some(_)) => {
            return refuse(
                "cold_ttl requires hot_ttl: without hot_ttl, no point ever reaches the cold tier".into(),
            );
        }
        (Some(hot), Some(cold)) if cold <= hot => {
            let (hot, cold) = (format_duration(hot), format_duration(cold));
            return refuse(format!("cold_ttl of {cold} is not longer than hot_ttl of {hot}"));
        }
        _ => {}
    }
    let rates = [
        ("move_bytes_per_second", policy.move_bytes_per_second, "no limit"),
        (
            "timelines_per_minute",
            policy.timelines_per_minute,
            "the limit of the server",
        ),
    ];
    for (field, rate, default) in rates {
        if rate == Some(0) {
            return refuse(format!("{field} must be at least 1; omit it for {default}"));
        }
    }
    Ok(())
}

/// Refuses the names of tables that the server creates itself.
fn check_not_reserved(name: &TableName) -> Result<()> {
    match is_reserved(name.as_str()) {
        true => Err(EngineError::SystemTable(name.clone())),
        false => Ok(()),
    }
}
