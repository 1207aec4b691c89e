//! The store itself: what its parts share, and what others may ask of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tideline_archive::{Archive, People};
use tideline_backend::{Backend, Health, Usage};
use tideline_chunk::NewTimeline;
use tideline_log::TrustedNow;
use tideline_log::{Log, LogModel, LogThreads, ModelTag, RequestKey, Stamps, TailError, TailPart};
use tideline_model::{FieldId, SegmentId, SequenceNumber, TableId, TableName, TableSpec, TimelineId};
use tideline_runtime::ThreadFailure;

use crate::error::{Result, StoreError};
use crate::latest::{LatestRow, Seen};
use crate::manifest::put_table;
use crate::model::SeriesModel;
use crate::rewrite::{Evicted, OrphanSearch, Orphans, Pace, Rewrite, Rewritten};
use crate::scan::{Snapshot, visible_from};
use crate::seal_reports::SealReport;
use crate::shared::Shared;
use crate::survey::Survey;
use crate::tables::Table;
use crate::unsealed::Unsealed;

/// Keeps what the store must not know: the identities behind timeline ids.
///
/// A directory whose rows outlive the process is a model of the log beside the store, given to
/// [`Recovery::finish_beside`](crate::Recovery::finish_beside). It is flushed before the store: the journal that carried its
/// timelines is about to go.
pub trait TimelineDirectory: Send + Sync {
    /// Takes in a timeline that a replayed journal entry introduces. The same one again is no error.
    fn adopt(&self, table: TableId, timeline: &NewTimeline) -> std::result::Result<(), String>;

    /// Takes note that the identities of these timelines are now in the journal. Called before the write that
    /// introduces them is answered.
    fn announced(&self, table: TableId, timelines: &[NewTimeline]);

    /// Takes note that timelines are removed: in the journal's order, live and when it is replayed. A later delta
    /// introduces them again, or they stay away.
    fn removed(&self, table: TableId, ids: &[TimelineId]);

    /// Timelines of a table that have a durable row; `None` where they are not counted.
    fn saved(&self, table: TableId) -> Option<u64> {
        let _of_no_table = table;
        None
    }

    /// Who the timelines of a table are, for files that others read; `None` where nobody knows.
    fn people(&self, table: TableId) -> Option<Arc<dyn People>> {
        let _of_no_table = table;
        None
    }
}

/// An embedded store of series points.
#[derive(Debug)]
pub struct SeriesStore {
    shared: Arc<Shared>,
    threads: LogThreads,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Its place in the journal.
    pub sequence: SequenceNumber,
}

/// Sizes and counts, for `/metrics` and table statistics.
#[derive(Debug, Clone, Default)]
pub struct StoreStats {
    /// Bytes of unsealed points in memory, frozen heads included.
    pub head_bytes: usize,
    /// Bytes at which the unsealed points are sealed, for as many timelines as they have now.
    pub head_budget_bytes: usize,
    /// Unsealed points in memory.
    pub head_points: u64,
    /// Heads waiting to be sealed or being sealed.
    pub frozen_heads: usize,
    /// Published segments.
    pub segments: usize,
    /// Points in them.
    pub segment_points: u64,
    /// Field values in them.
    pub segment_values: u64,
    /// Bytes of their keys and chunks.
    pub segment_bytes: u64,
    /// Bytes that seals have loaded since the start, hot and cold.
    pub sealed_bytes: [u64; 3],
    /// Bytes that rewrites have loaded since the start, hot and cold.
    pub rewritten_bytes: [u64; 3],
    /// Deltas committed since the start.
    pub commits: u64,
    /// Journal appends since the start: `commits` over this is the size of a group.
    pub appends: u64,
    /// Seals done since the start.
    pub seals: u64,
    /// Why the last seal failed, until one succeeds.
    pub seal_error: Option<String>,
    /// The backend's own sizes.
    pub usage: Usage,
}

impl SeriesStore {
    pub(crate) fn start(shared: Arc<Shared>, mut models: Vec<Arc<dyn LogModel>>) -> Self {
        models.push(Arc::new(SeriesModel(Arc::clone(&shared))));
        let threads = LogThreads::start(Arc::clone(&shared.log), models);
        Self { shared, threads }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The threads of the log: other models commit their entries with them.
    pub fn threads(&self) -> &LogThreads {
        &self.threads
    }

    /// The log that it writes to.
    pub fn log(&self) -> &Arc<Log> {
        &self.shared.log
    }

    // --- tables ----------------------------------------------------------------------------------------

    /// A table by name. Retryable where it is not known yet whether it was made.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchTable`]; those of [`Log::check_lease`]: without a lease nothing is served.
    pub fn table(&self, name: &str) -> Result<Arc<Table>> {
        self.log().check_lease()?;
        let missing = || StoreError::NoSuchTable(name.chars().take(80).collect());
        let name = TableName::new(name).map_err(|_| missing())?;
        if let Some(table) = self.shared.tables.read().named(&name) {
            return Ok(table);
        }
        self.log().settle_name(&name)?;
        self.shared.tables.read().named(&name).ok_or_else(missing)
    }

    /// All tables, by name.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        let mut all: Vec<_> = self.shared.tables.read().by_id.values().cloned().collect();
        all.sort_by(|a, b| a.name().cmp(b.name()));
        all
    }

    /// Makes a table.
    pub fn create_table(&self, name: TableName, spec: TableSpec) -> Result<Arc<Table>> {
        self.shared.create_table(name, spec)
    }

    /// Changes a table's settings. Source tags are fixed once the table has a point.
    pub fn alter_table(&self, name: &str, spec: TableSpec) -> Result<Arc<Table>> {
        self.log().settle()?;
        let table = self.table(name)?;
        if table.spec().source_tags != spec.source_tags && self.has_points(table.id()) {
            return Err(StoreError::SourceTagsFixed(table.name().clone()));
        }
        // By the trusted clock: a wrong one would keep hidden points for ever, or free them at once.
        let row = table.row(spec, self.trusted_now().now.nanos());
        self.shared.edit(|manifest| {
            let counts = manifest.common.tables.get(&table.id()).and_then(|row| row.counts);
            let row = row.clone().with_counts(counts);
            let change = put_table(&row);
            manifest.common.tables.insert(table.id(), row);
            vec![change]
        })?;
        let policy_changes = table.spec().policy != row.spec.policy;
        table.set_spec(&row);
        if policy_changes {
            // What had expired may be visible again.
            table.latest().forget_all();
        }
        Ok(table)
    }

    /// Drops a table with all its points: invisible at once, bytes freed when its last reader is done.
    ///
    /// Catalog rows and index entries are the caller's to remove.
    ///
    /// After a retryable error it may be dropped or not. Until that is known its writes are refused as retryable.
    pub fn drop_table(&self, name: &str) -> Result<TableId> {
        self.log().settle()?;
        let table = self.table(name)?;
        if name == TableName::DEFAULT {
            return Err(StoreError::DefaultTable(table.name().clone()));
        }
        self.shared.drop_table(&table)?;
        self.log().notify_flusher();
        Ok(table.id())
    }

    /// Whether a table has a point, or writes of it wait to be sealed.
    pub fn has_points(&self, table: TableId) -> bool {
        let state = self.shared.state.read();
        let in_heads = state
            .frozen
            .iter()
            .chain([&state.active])
            .any(|head| head.table(table).is_some());
        in_heads
            || state
                .manifest
                .segments
                .get(&table)
                .is_some_and(|segments| !segments.is_empty())
    }

    // --- writing ---------------------------------------------------------------------------------------

    /// The outcome of an earlier request with this idempotency key.
    pub fn request_outcome(&self, table: &Table, key: RequestKey) -> Option<Bytes> {
        self.log().request_outcome(table.id(), key)
    }

    /// Seals everything that was committed before the call, and waits for it.
    pub fn seal(&self) -> Result<()> {
        Ok(self.threads.flush()?)
    }

    /// Hands out the reports of seals that have ended since the last call, oldest first; at most the last 200.
    pub fn take_seal_reports(&self) -> Vec<SealReport> {
        self.shared.seal_reports.take()
    }

    // --- moving ----------------------------------------------------------------------------------------

    /// The archive that segments are moved to and read from, where there is one.
    pub fn archive(&self) -> Option<&Arc<Archive>> {
        self.shared.settings.archive.as_ref()
    }

    /// What there is to move: every table with its segments and deletes, and the time to go by.
    pub fn survey(&self) -> Survey {
        self.shared.survey()
    }

    /// The same, with the unsealed points of a table before each of the instants that `before` returns for it, all of one
    /// moment. It takes about half as long as a seal of the table where points are old enough to be counted.
    pub fn survey_unsealed<const COUNT: usize>(
        &self,
        table: TableId,
        before: impl FnOnce(&Survey) -> [i64; COUNT],
    ) -> Result<(Survey, [Unsealed; COUNT])> {
        self.shared.survey_unsealed(table, before)
    }

    /// Makes one segment of several, in one tier: fold, migrate or purge. Readers see the same points before, during
    /// and after it.
    ///
    /// Blocks for as long as it takes; memory is bounded whatever the inputs. After an error nothing has changed, or
    /// all has; doing it again is harmless.
    pub fn rewrite(&self, rewrite: &Rewrite, pace: &mut dyn Pace) -> Result<Rewritten> {
        self.shared.rewrite(rewrite, pace)
    }

    /// Drops whole segments with their points; how many there were. Whether their points have expired is the
    /// caller's to know.
    pub fn drop_segments(&self, table: TableId, segments: &[SegmentId]) -> Result<u64> {
        self.shared.drop_segments(table, segments)
    }

    /// Ends requests to targets of the archive, those under way and those that come: what waits for them fails.
    pub fn stop_archive(&self) {
        if let Some(archive) = &self.shared.settings.archive {
            archive.stop();
        }
    }

    /// Takes cold segments with a copy out of the cold tier: their files answer from then on. A copy of which something is
    /// missing is forgotten instead, and its segment stays.
    ///
    /// # Errors
    ///
    /// Where the target cannot be asked; what was done before stays done.
    pub fn evict(&self, table: TableId, segments: &[SegmentId]) -> Result<Evicted> {
        self.shared.evict(table, segments)
    }

    /// Removes files of a table, and of tables that are gone, that a crash or a failure has left at targets, once they
    /// are a day old; how many.
    pub fn sweep_archive(&self, table: TableId) -> Result<u64> {
        self.shared.remove_files();
        self.shared.sweep_archive(table)
    }

    /// Writes the settings of a table to all targets that hold files of it, where they have others; to how many folders.
    ///
    /// # Errors
    ///
    /// Where a target fails; the others have the settings.
    pub fn write_settings(&self, table: TableId) -> Result<u64> {
        self.shared.write_settings(table)
    }

    /// Searches a target for objects that nothing names. Nothing is changed.
    ///
    /// # Errors
    ///
    /// Where the target or the backend fails.
    pub fn find_orphans(&self, search: &OrphanSearch) -> Result<Orphans> {
        self.shared.find_orphans(search)
    }

    /// Removes what a search has found, for as long as `step` wants: it is called with the number of objects that are gone.
    /// How many objects and bytes were removed.
    ///
    /// # Errors
    ///
    /// Where the target fails; what was removed before is gone.
    pub fn remove_orphans(
        &self,
        target: &str,
        orphans: &Orphans,
        step: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(u64, u64)> {
        self.shared.remove_orphans(target, orphans, step)
    }

    /// An operator says that the machine's clock is right.
    pub fn confirm_clock(&self) {
        self.log().confirm_clock();
    }

    /// Rows about jobs, by name.
    pub fn job_rows(&self) -> Vec<(Bytes, Bytes)> {
        let manifest = self.log().manifest();
        let rows = manifest.jobs.iter();
        rows.map(|(name, detail)| (name.clone(), detail.clone()))
            .collect()
    }

    /// Adds, alters and removes rows about jobs, in one edit. Durable on return.
    pub fn edit_job_rows(&self, put: Vec<(Bytes, Bytes)>, remove: Vec<Bytes>) -> Result<()> {
        Ok(self.log().edit_job_rows(put, remove)?)
    }

    // --- reading ---------------------------------------------------------------------------------------

    /// The points of this moment.
    pub fn snapshot(&self) -> Snapshot {
        let now = self.trusted_now().now;
        Snapshot::new(Arc::clone(&self.shared), self.shared.state.read().clone(), now)
    }

    /// The newest value of every field of a timeline.
    ///
    /// From memory, but for a timeline that was last written before the start: then its newest chunks are read
    /// once. `expected` names the fields of its measurement: reading stops when all are found.
    pub fn latest(&self, table: &Table, id: TimelineId, expected: &[FieldId]) -> Result<LatestRow> {
        let visible = self.follow_clock(table);
        loop {
            let generation = table.latest().generation();
            if let Some(mut known) = table.latest().known(id).filter(|known| known.complete) {
                known.row.retain(|field| field.timestamp >= visible);
                return Ok(known.row);
            }
            // A delete may come between; then what was read is not taken, and it is read again.
            let stored = self.snapshot().newest(table.id(), id, expected)?;
            table.latest().complete(id, stored, generation);
        }
    }

    /// The span of each timeline's points; `None` where there is none. Where points have expired it may begin earlier
    /// than the oldest that is left, but never before what is visible.
    ///
    /// From memory, but for timelines that were last written before the start: their chunks' keys and headers are
    /// read once, in one sweep for all of them.
    pub fn seen(&self, table: &Table, ids: &[TimelineId]) -> Result<Vec<Option<Seen>>> {
        let known = |id: &TimelineId| table.latest().seen(*id);
        let visible = self.follow_clock(table);
        loop {
            let generation = table.latest().generation();
            let mut unknown: Vec<TimelineId> = ids.iter().filter(|id| known(id).is_none()).copied().collect();
            if unknown.is_empty() {
                let clipped = |seen: Seen| {
                    let first = seen.first.max(visible);
                    (seen.last >= visible).then_some(Seen { first, ..seen })
                };
                return Ok(ids
                    .iter()
                    .map(|id| known(id).flatten().and_then(clipped))
                    .collect());
            }
            unknown.sort_unstable();
            unknown.dedup();
            let spans = self.snapshot().spans(table.id(), &unknown)?;
            let found = unknown.iter().zip(spans);
            found.for_each(|(id, span)| table.latest().widen(*id, span, generation));
        }
    }

    /// The first instant at which points of a table are visible now; what was remembered of it by a later clock is
    /// forgotten.
    fn follow_clock(&self, table: &Table) -> i64 {
        let visible = self.visible_from(table);
        table.latest().follow(self.log().clock_turns());
        visible
    }

    /// The first instant at which points of a table are visible now; `i64::MIN` where nothing expires.
    pub fn visible_from(&self, table: &Table) -> i64 {
        visible_from(Some(&table.spec().policy), self.trusted_now().now)
    }

    /// What time it is, as far as it can be trusted, and whether expiry may go by it.
    pub fn trusted_now(&self) -> TrustedNow {
        self.log().trusted_now()
    }

    // --- watching --------------------------------------------------------------------------------------

    /// The place in the journal after everything that was committed so far.
    pub fn tail_end(&self) -> SequenceNumber {
        self.log().tail_end()
    }

    /// What was written to a table from a place in the journal on, deletes included: at least one entry where there is
    /// any, and at most about `bytes_max` of them.
    ///
    /// Entries of other models are left out. From memory, which holds the newest entries of all tables up to [`LogSettings::tail_bytes_max`](crate::LogSettings).
    /// What comes out has been acknowledged, and queries see it.
    pub fn tail(
        &self,
        table: &Table,
        from: SequenceNumber,
        bytes_max: usize,
    ) -> std::result::Result<TailPart, TailError> {
        let mut part = self.log().tail(table.id(), from, bytes_max)?;
        part.entries
            .retain(|entry| ModelTag::of(&entry.encoded) == Some(ModelTag::SERIES));
        Ok(part)
    }

    /// Has `wake` called whenever the tail has grown. It is called on the committer's thread and must not block.
    pub fn on_tail_change(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.log().on_tail_change(wake);
    }

    /// Calls everybody who waits for the tail, because something else has changed that they look at.
    pub fn wake_watchers(&self) {
        self.log().wake_watchers();
    }

    // --- operation -------------------------------------------------------------------------------------

    /// The backend, for the rows of others: catalog and the like.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.shared.backend
    }

    /// Rising stamps for such rows.
    pub fn stamps(&self) -> &Stamps {
        self.log().stamps()
    }

    /// Whether promises can be kept now.
    pub fn health(&self) -> Health {
        self.shared.backend.health()
    }

    /// Whether the backend keeps everything as it is, because something acknowledged is missing.
    pub fn is_read_only(&self) -> bool {
        self.shared.check_not_read_only().is_err()
    }

    /// The panic of a thread that the database depends upon; writes are refused from then on.
    pub fn thread_failure(&self) -> Option<&ThreadFailure> {
        self.shared.settings.log.supervisor.failure()
    }

    /// Why the last seal failed, until one succeeds.
    pub fn seal_error(&self) -> Option<String> {
        self.log().flush_error()
    }

    /// Sizes and counts.
    pub fn stats(&self) -> StoreStats {
        let state = self.shared.state.read().clone();
        let heads = || state.frozen.iter().chain([&state.active]);
        let segments = || {
            state
                .manifest
                .segments
                .values()
                .flat_map(|segments| segments.values())
        };
        let counts = self.log().counts();
        StoreStats {
            head_bytes: heads().map(|head| head.bytes()).sum(),
            head_budget_bytes: self.shared.settings.head.bytes(state.active.timelines()),
            head_points: heads().map(|head| head.points()).sum(),
            frozen_heads: state.frozen.len(),
            segments: segments().count(),
            segment_points: segments().map(|segment| segment.points).sum(),
            segment_values: segments().map(|segment| segment.values).sum(),
            segment_bytes: segments().map(|segment| segment.bytes).sum(),
            sealed_bytes: loaded(&self.shared.counters.sealed_bytes),
            rewritten_bytes: loaded(&self.shared.counters.rewritten_bytes),
            commits: counts.commits,
            appends: counts.appends,
            seals: self.shared.counters.seals.load(Ordering::Relaxed),
            seal_error: self.seal_error(),
            usage: self.shared.backend.usage(),
        }
    }

    /// Stops taking writes, answers those that wait, syncs and closes the backend. Unsealed points stay in the
    /// journal and are there again after the next start.
    pub fn close(&self) -> Result<()> {
        self.threads.stop();
        Ok(self.shared.backend.close()?)
    }
}

impl Drop for SeriesStore {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "closing the store failed");
        }
    }
}

fn loaded(counters: &[AtomicU64; 3]) -> [u64; 3] {
    counters.each_ref().map(|bytes| bytes.load(Ordering::Relaxed))
}
