//! Tables: create, alter, drop, and what each holds.

use std::sync::Arc;

use hashbrown::HashSet;
use parking_lot::RwLockReadGuard;
use tideline_archive::ArchiveError;
use tideline_model::time::format_duration;
use tideline_model::{Policy, TableId, TableName, TableSpec, Tier};
use tideline_series_store::{HeadSurvey, SegmentSurvey, StoreError, TableSurvey};
use tideline_timeline_catalog::{Catalog, SavedSearches};

use crate::activity::Activity;
use crate::directory::Member;
use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::models::check_served;

/// A table, joined with its catalog. A handle stays valid when the table is dropped; its writes are refused.
#[derive(Debug, Clone)]
pub struct Table {
    pub(crate) points: Arc<tideline_series_store::Table>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) activity: Arc<Activity>,
}

/// What a table holds.
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
    /// Bytes of sealed chunks and their keys.
    pub sealed_bytes: u64,
    /// Oldest and newest sealed instant, nanoseconds since the epoch.
    pub sealed_span: Option<(i64, i64)>,
    /// What is not sealed yet.
    pub head: HeadSurvey,
    /// What is sealed and in the hot tier.
    pub hot: TierStats,
    /// What is sealed and in the cold tier.
    pub cold: TierStats,
    /// What is in files; their bytes, and not those of their places here.
    pub archive: TierStats,
    /// Bytes that seals and rewrites have loaded since the start: over what is kept of them, the write amplification.
    pub loaded_bytes: u64,
    /// Deletes that some segment still has to be cleared of.
    pub deletes_waiting: u64,
    /// Bytes of segments that some delete may hide points of: at most so many are rewritten to clear them.
    pub bytes_with_deletes: u64,
    /// Bytes of segments whose points have all expired: they are freed some time after.
    pub expired_bytes: u64,
}

/// What one tier of a table holds, deleted and expired points included while their bytes are there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierStats {
    /// Published segments.
    pub segments: u64,
    /// Windows that they lie in.
    pub windows: u64,
    /// Points.
    pub points: u64,
    /// Field values.
    pub values: u64,
    /// Bytes of chunks and their keys.
    pub bytes: u64,
    /// Oldest and newest instant, nanoseconds since the epoch.
    pub span: Option<(i64, i64)>,
}

impl Table {
    /// Its name.
    pub fn name(&self) -> &TableName {
        self.points.name()
    }

    /// What a user has set, as of now.
    pub fn spec(&self) -> Arc<TableSpec> {
        self.points.spec()
    }

    /// When it was made, nanoseconds since the epoch.
    pub fn created(&self) -> i64 {
        self.points.created()
    }

    /// The store's side: schema, and what reads of points need.
    pub fn points(&self) -> &Arc<tideline_series_store::Table> {
        &self.points
    }

    /// Conditions that people gave a name.
    pub fn searches(&self) -> &SavedSearches {
        self.catalog.searches()
    }

    /// The indexer's side: its timelines.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }
}

impl Engine {
    /// The table that exists from the first start.
    pub fn default_table(&self) -> Result<Table> {
        self.table(TableName::DEFAULT)
    }

    /// Makes a table.
    ///
    /// # Errors
    ///
    /// A model that is not served, a policy that contradicts itself, a name that is taken, [`EngineError::TooManyTables`].
    pub fn create_table(&self, name: TableName, spec: TableSpec) -> Result<Table> {
        check_served(&name, spec.model)?;
        check_policy(&spec.policy)?;
        self.check_archive(None, &spec.policy)?;
        self.forget_dropped_tables()?;
        let (limit, count) = (self.settings.tables.tables_max, self.store.tables().len());
        if count >= limit && self.store.table(name.as_str()).is_err() {
            return Err(EngineError::TooManyTables { limit, count });
        }
        Ok(self.joined(self.store.create_table(name, spec)?))
    }

    /// Changes the settings of a table of any model. The model is fixed, and source tags are by the first write.
    pub fn alter_table(&self, name: &str, spec: TableSpec) -> Result<Table> {
        let table = self.table_of_any_model(name)?;
        let model = table.spec().model;
        if model != spec.model {
            return Err(EngineError::ModelFixed {
                table: table.name().clone(),
                model,
                wanted: spec.model,
            });
        }
        check_policy(&spec.policy)?;
        self.check_archive(Some(&table.spec().policy), &spec.policy)?;
        if table.spec().source_tags != spec.source_tags {
            table.catalog.set_source_tags(spec.source_tags.clone())?;
        }
        Ok(self.joined(self.store.alter_table(name, spec)?))
    }

    /// Refuses a policy with a new target of the archive that may not be named. Nothing is asked of the target.
    ///
    /// # Errors
    ///
    /// As [`allow_target`](Self::allow_target).
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

    /// Checks that a request may name a target of the archive. Nothing is asked of the target.
    ///
    /// # Errors
    ///
    /// [`EngineError::Forbidden`] where the operator does not allow it, [`EngineError::Invalid`] where it is not a target.
    pub fn allow_target(&self, target: &str) -> Result<()> {
        let archive = self.settings.store.archive.as_ref();
        let archive = archive.ok_or_else(|| EngineError::Invalid("the archive is switched off".into()))?;
        archive.allow(target).map_err(|error| match error {
            ArchiveError::NotAllowed { .. } => EngineError::Forbidden(error.to_string()),
            error => EngineError::Invalid(error.to_string()),
        })
    }

    /// Tables whose policy names a target that is not allowed, each with the target and why: nothing is written there.
    pub fn tables_without_target(&self) -> Vec<(TableName, String)> {
        let Some(archive) = &self.settings.store.archive else {
            return Vec::new();
        };
        let refused = |table: Table| {
            let target = table.spec().policy.archive.as_ref()?.target.clone();
            let error = archive.check_allowed(&target).err()?;
            Some((table.name().clone(), error.to_string()))
        };
        self.tables().into_iter().filter_map(refused).collect()
    }

    /// Drops a table with its points, timelines and attributes. Invisible at once; bytes go soon after.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let dropped = self.store.drop_table(name);
        // Also after an error: it may be dropped all the same.
        if let Err(error) = self.forget_dropped_tables() {
            tracing::warn!(%error, "rows of a dropped table could not be removed; the scheduler tries it again");
        }
        dropped?;
        Ok(())
    }

    /// Removes the timelines of tables that the store has no more. After a failure it is done by the next call; the
    /// scheduler makes one whenever it plans.
    pub fn forget_dropped_tables(&self) -> Result<()> {
        let mut ids = self.catalogs.tables();
        if !ids.is_empty() {
            let kept: HashSet<TableId> = self.store.tables().iter().map(|table| table.id()).collect();
            ids.retain(|id| !kept.contains(id));
        }
        for id in ids {
            self.index.detach(id);
            let Some(member) = self.catalogs.remove(id) else {
                continue;
            };
            // An edit of timelines that runs now would leave rows behind; a later one finds no table.
            let no_edits = member.activity.writers.write();
            let stamps = self.store.stamps();
            let removed = Catalog::remove_all(self.store.backend().as_ref(), id, &mut || stamps.next());
            drop(no_edits);
            if let Err(error) = removed {
                self.catalogs.put_back(id, member);
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// What a table holds.
    pub fn table_stats(&self, table: &Table) -> TableStats {
        let survey = self.store.survey();
        let of_table = survey
            .tables
            .iter()
            .find(|other| other.table.id() == table.points.id());
        of_table.map_or_else(TableStats::default, |of_table| self.stats_of(table, of_table))
    }

    /// All tables, by name, with what they hold at one moment.
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

    /// Keeps the timelines of a table where they are until the guard is dropped, for whoever writes rows of theirs.
    pub(crate) fn keep_timelines<'t>(&self, table: &'t Table) -> Result<RwLockReadGuard<'t, ()>> {
        let guard = table.activity.writers.read();
        self.check_exists(table).map(|()| guard)
    }

    /// Refuses a table that was dropped since it was looked up.
    pub(crate) fn check_exists(&self, table: &Table) -> Result<()> {
        let id = table.points.id();
        match self.store.table(table.name().as_str())?.id() == id {
            true => Ok(()),
            false => Err(StoreError::TableDropped(id).into()),
        }
    }

    pub(crate) fn joined(&self, points: Arc<tideline_series_store::Table>) -> Table {
        let Member { catalog, activity } = self.member(&points);
        Table {
            points,
            catalog,
            activity,
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

/// Refuses a policy that cannot be meant, naming the field. Schedules are checked by whoever follows them.
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
            return refuse(format!("{field} is longer than 0s; leave it out for no limit"));
        }
    }
    if let Some(archive) = &policy.archive {
        if policy.cold_ttl.is_some() {
            return refuse("cold_ttl and archive exclude each other: points leave cold one way".into());
        }
        if policy.hot_ttl.is_none_or(|hot| archive.after <= hot) {
            return refuse("archive.after is longer than hot_ttl: points come from the cold tier".into());
        }
        if archive.keep_cold.is_some_and(|keep| keep < 0) {
            return refuse("archive.keep_cold is not below 0s; leave it out for none".into());
        }
        for (field, age) in [("retention", policy.retention), ("archive.keep", archive.keep)] {
            if age.is_some_and(|age| age <= archive.after) {
                return refuse(format!(
                    "{field} is longer than archive.after: nothing would ever be archived"
                ));
            }
        }
        if archive
            .keep
            .zip(policy.retention)
            .is_some_and(|(keep, retention)| keep > retention)
        {
            return refuse("archive.keep is at most retention: points are gone by then".into());
        }
    }
    match (policy.hot_ttl, policy.cold_ttl) {
        (None, Some(_)) => {
            return refuse(
                "cold_ttl needs a hot_ttl: without one, points never come to the cold tier".into(),
            );
        }
        (Some(hot), Some(cold)) if cold <= hot => {
            let (hot, cold) = (format_duration(hot), format_duration(cold));
            return refuse(format!("cold_ttl of {cold} is not longer than hot_ttl of {hot}"));
        }
        _ => {}
    }
    let rates = [
        ("move_bytes_per_second", policy.move_bytes_per_second),
        ("timelines_per_minute", policy.timelines_per_minute),
    ];
    for (field, rate) in rates {
        if rate == Some(0) {
            return refuse(format!("{field} is at least 1; leave it out for no limit"));
        }
    }
    Ok(())
}
