//! The store: its public API, grouped into tables, writes, moves, reads, watches and operation.
//!
//! The state itself is in `shared`. The methods here check their arguments and delegate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tideline_archive::{Archive, TimelineMetadata};
use tideline_backend::{Backend, Health, Usage};
use tideline_chunk::NewTimeline;
use tideline_log::TrustedNow;
use tideline_log::{Log, LogModel, LogThreads, ModelTag, RecentError, RecentPage, RequestKey, Stamps};
use tideline_model::{FieldId, SegmentId, SequenceNumber, TableId, TableName, TableSpec, TimelineId};
use tideline_runtime::ThreadFailure;

use crate::compaction::{Evicted, OrphanSearch, Orphans, OtherObjectsOf, Rewrite, Rewritten, Throttle};
use crate::error::{Result, StoreError};
use crate::latest::{LatestRow, Seen};
use crate::manifest::{put_cursor, put_table};
use crate::model::SeriesModel;
use crate::scan::{Snapshot, visible_from};
use crate::seal_reports::SealReport;
use crate::shared::Shared;
use crate::survey::Survey;
use crate::tables::Table;
use crate::unsealed::Unsealed;

/// Interface to the timeline catalog, which holds the identities of timelines. The store handles only their ids.
///
/// A directory with durable rows must also be a model of the log, passed to
/// [`Recovery::finish_beside`](crate::Recovery::finish_beside). The directory is then flushed before the store, because
/// the journal entries that carried its timelines are removed afterwards.
pub trait TimelineDirectory: Send + Sync {
    /// Adds a timeline that a replayed journal entry introduces. Adding the same timeline again is not an error.
    ///
    /// # Errors
    ///
    /// A message if the directory rejects the timeline; the start then fails with [`StoreError::Directory`].
    fn adopt(&self, table: TableId, timeline: &NewTimeline) -> std::result::Result<(), String>;

    /// Records that the identities of these timelines are now in the journal. Called before the write that
    /// introduces them is acknowledged.
    fn made_durable(&self, table: TableId, timelines: &[NewTimeline]);

    /// Removes timelines. Called in the order of the journal, both live and during replay. A later delta may
    /// introduce them again.
    fn removed(&self, table: TableId, ids: &[TimelineId]);

    /// Returns the number of timelines of a table that have a durable row; `None` if they are not counted.
    fn saved(&self, table: TableId) -> Option<u64> {
        let _of_no_table = table;
        None
    }

    /// Returns the metadata of the timelines of a table, for archive files; `None` if it is not available.
    fn metadata(&self, table: TableId) -> Option<Arc<dyn TimelineMetadata>> {
        let _of_no_table = table;
        None
    }
}

/// Embedded store of series points.
///
/// # Examples
///
/// ```
/// use std::sync::Arc;
///
/// use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
/// # use tideline_chunk::NewTimeline;
/// use tideline_model::{Clock, SystemClock, TableId, TableName, TableSpec, TimelineId};
/// use tideline_series_store::{Recovery, Settings, TimelineDirectory};
///
/// /// Directory of a store whose timelines have no names.
/// struct Unnamed;
///
/// impl TimelineDirectory for Unnamed {
///     // …
///     # fn adopt(&self, _: TableId, _: &NewTimeline) -> Result<(), String> { Ok(()) }
///     # fn made_durable(&self, _: TableId, _: &[NewTimeline]) {}
///     # fn removed(&self, _: TableId, _: &[TimelineId]) {}
/// }
///
/// let disk = MemoryDisk::new(Character::Embedded);
/// let open = || {
///     let backend = Arc::new(MemoryBackend::open(&disk));
///     let recovery = Recovery::begin(backend, Arc::new(SystemClock), Settings::default())?;
///     recovery.finish(Arc::new(Unnamed))
/// };
/// let (store, _) = open()?;
/// store.create_table(TableName::new("metrics")?, TableSpec::default())?;
/// store.close()?;
///
/// let (store, replayed) = open()?;
/// assert_eq!(store.table("metrics")?.name().as_str(), "metrics");
/// assert_eq!(replayed.points, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SeriesStore {
    shared: Arc<Shared>,
    threads: LogThreads,
}

/// Result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Sequence of the journal entry.
    pub sequence: SequenceNumber,
}

/// Sizes and counts for `/metrics` and table statistics.
#[derive(Debug, Clone, Default)]
pub struct StoreStats {
    /// Bytes of unsealed points in memory, including frozen heads.
    pub head_bytes: usize,
    /// Head size in bytes that triggers a seal, for the current number of timelines.
    pub head_budget_bytes: usize,
    /// Rows written to the heads, including overwritten and deleted ones.
    pub head_points: u64,
    /// Heads that are being sealed or wait to be sealed.
    pub frozen_heads: usize,
    /// Published segments.
    pub segments: usize,
    /// Points in published segments.
    pub segment_points: u64,
    /// Field values in published segments.
    pub segment_values: u64,
    /// Bytes of published segments: keys and chunks, or archive files.
    pub segment_bytes: u64,
    /// Bytes of segments written by seals since the start, per tier.
    pub sealed_bytes: [u64; 3],
    /// Bytes of segments written by rewrites since the start, per tier.
    pub rewritten_bytes: [u64; 3],
    /// Log entries of all models committed since the start.
    pub commits: u64,
    /// Journal appends since the start, including failed appends. Without failures, `commits / appends` is the average
    /// size of a group commit.
    pub appends: u64,
    /// Seals completed since the start.
    pub seals: u64,
    /// Error of the last seal; see [`SeriesStore::seal_error`].
    pub seal_error: Option<String>,
    /// Sizes reported by the backend.
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

    /// Returns the threads of the log. Other models commit their entries through them.
    pub fn threads(&self) -> &LogThreads {
        &self.threads
    }

    /// Returns the log to which the store writes.
    pub fn log(&self) -> &Arc<Log> {
        &self.shared.log
    }

    // --- tables ----------------------------------------------------------------------------------------

    /// Returns a table by name. While it is unknown whether the table was created, the error is retryable.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchTable`] if there is no such table; the errors of [`Log::check_lease`] and
    /// [`Log::settle_name`].
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

    /// Returns all tables, sorted by name.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        let mut all: Vec<_> = self.shared.tables.read().by_id.values().cloned().collect();
        all.sort_by(|a, b| a.name().cmp(b.name()));
        all
    }

    /// Creates a table.
    ///
    /// # Errors
    ///
    /// [`StoreError::TableExists`] if the name is in use; the errors of [`Log::edit`].
    pub fn create_table(&self, name: TableName, spec: TableSpec) -> Result<Arc<Table>> {
        self.shared.create_table(name, spec)
    }

    /// Changes the settings of a table. Source tags cannot be changed while the table has points.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchTable`] if there is no such table; [`StoreError::TableDropped`] if it is dropped
    /// concurrently; [`StoreError::SourceTagsFixed`] if the table has points and the source tags differ; the errors of
    /// [`Log::edit`].
    pub fn alter_table(&self, name: &str, spec: TableSpec) -> Result<Arc<Table>> {
        self.log().settle()?;
        let table = self.table(name)?;
        if table.spec().source_tags != spec.source_tags && self.has_points(table.id()) {
            return Err(StoreError::SourceTagsFixed(table.name().clone()));
        }
        // A policy change is stamped with the trusted time: a wrong time could keep hidden points forever, or free them
        // immediately.
        let mut row = table.row(spec, self.trusted_now().now.nanos());
        self.shared.edit_and(
            |manifest| {
                let stored = manifest.common.tables.get(&table.id());
                let stored = stored.ok_or(StoreError::TableDropped(table.id()))?;
                row = row
                    .clone()
                    .with_adopted(stored.adopted.clone())
                    .with_counts(stored.counts);
                let has_new = manifest.common.cursor.number_indexes(&mut row.spec);
                let mut changes = vec![put_table(&row)];
                if has_new {
                    changes.push(put_cursor(&manifest.common.cursor));
                }
                manifest.common.tables.insert(table.id(), row.clone());
                Ok(changes)
            },
            |_| {},
        )?;
        let policy_changes = table.spec().policy != row.spec.policy;
        table.set_spec(&row);
        if policy_changes {
            // Expired points may become visible again.
            table.latest().forget_all();
        }
        Ok(table)
    }

    /// Drops a table with all its points. The points become invisible immediately; their bytes are freed when the last
    /// reader is done.
    ///
    /// The caller removes catalog rows and index entries.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSuchTable`] if there is no such table; [`StoreError::DefaultTable`] for the default table; the
    /// errors of [`Log::edit`]. After a retryable error it may be unknown whether the table was dropped. Until the
    /// outcome is resolved, writes to the table fail with a retryable error.
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

    /// Returns true if a table has a segment, or a write in a head. Deleted points may count as well.
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

    /// Returns the outcome of an earlier request with this idempotency key; `None` if it is not recorded.
    pub fn request_outcome(&self, table: &Table, key: RequestKey) -> Option<Bytes> {
        self.log().request_outcome(table.id(), key)
    }

    /// Seals all writes that were committed before the call, and waits until their segments are published.
    ///
    /// # Errors
    ///
    /// [`StoreError::Backend`] if the backend is read-only or cannot cut the journal; [`StoreError::Log`] if the seal
    /// fails, the store is closed, or a thread has panicked. The points then stay in the journal and in memory. A
    /// failed seal is retried.
    pub fn seal(&self) -> Result<()> {
        Ok(self.threads.flush()?)
    }

    /// Removes and returns the reports of seals that have ended since the last call, oldest first; at most the last
    /// 200.
    pub fn take_seal_reports(&self) -> Vec<SealReport> {
        self.shared.seal_reports.take()
    }

    // --- moving ----------------------------------------------------------------------------------------

    /// Returns the archive that segments are moved to and read from, if one is configured.
    pub fn archive(&self) -> Option<&Arc<Archive>> {
        self.shared.settings.archive.as_ref()
    }

    /// Returns statistics for the move planner: all tables with their segments and deletes, and the trusted time.
    pub fn survey(&self) -> Survey {
        self.shared.survey()
    }

    /// Returns the survey. For each timestamp that `before` derives from the survey, also returns the counts of the
    /// unsealed points of a table before this timestamp. The survey and the counts are of the same heads. If there are
    /// points old enough to be counted, the call takes about half as long as a seal of the table.
    ///
    /// # Errors
    ///
    /// [`StoreError::Chunk`] if a block of a head is damaged.
    pub fn survey_unsealed<const COUNT: usize>(
        &self,
        table: TableId,
        before: impl FnOnce(&Survey) -> [i64; COUNT],
    ) -> Result<(Survey, [Unsealed; COUNT])> {
        self.shared.survey_unsealed(table, before)
    }

    /// Rewrites one or more segments into a new segment of a tier; see [`RewriteCause`](crate::RewriteCause). A cut
    /// produces several segments. Reads return the same points before, during and after the rewrite.
    ///
    /// Blocks until the rewrite is done. Memory use depends on the largest timeline, not on the number of timelines.
    /// After an error, the rewrite has either no effect or its full effect; repeating it is safe.
    ///
    /// # Errors
    ///
    /// [`StoreError::SegmentGone`], [`StoreError::Interleaved`], [`StoreError::NoCommonWindow`], [`StoreError::Cut`]
    /// or [`StoreError::NoCopy`] if the inputs cannot be rewritten this way; [`StoreError::NoArchive`],
    /// [`StoreError::NoTarget`] or [`StoreError::TableDropped`] if files cannot be written; [`StoreError::Chunk`] if a
    /// chunk of an input is damaged; [`StoreError::Cancelled`] if `throttle` cancels the rewrite; the errors of the
    /// backend, of the archive and of [`Log::edit`].
    pub fn rewrite(&self, rewrite: &Rewrite, throttle: &mut dyn Throttle) -> Result<Rewritten> {
        self.shared.rewrite(rewrite, throttle)
    }

    /// Drops whole segments with their points. Ignores unknown ids. Returns the number of dropped segments. The caller
    /// must ensure that all points of the segments have expired.
    ///
    /// # Errors
    ///
    /// [`StoreError::SegmentGone`] if a segment is being rewritten, evicted or dropped concurrently; the errors of the
    /// backend and of [`Log::edit`].
    pub fn drop_segments(&self, table: TableId, segments: &[SegmentId]) -> Result<u64> {
        self.shared.drop_segments(table, segments)
    }

    /// Stops all running and future requests to targets of the archive; operations that wait for them fail.
    pub fn stop_archive(&self) {
        if let Some(archive) = &self.shared.settings.archive {
            archive.stop();
        }
    }

    /// Evicts cold segments that have an archived copy: their points are then read from the files. If a file of a copy
    /// is missing or has a wrong size, the copy is discarded and the segment stays. Other segments are ignored.
    ///
    /// # Errors
    ///
    /// [`StoreError::SegmentGone`] if a segment is being rewritten, evicted or dropped concurrently;
    /// [`StoreError::NoArchive`] without an archive; [`StoreError::Archive`] if the target cannot be reached; the
    /// errors of the backend and of [`Log::edit`].
    pub fn evict(&self, table: TableId, segments: &[SegmentId]) -> Result<Evicted> {
        self.shared.evict(table, segments)
    }

    /// Removes files that a crash or a failed job has left at targets: files of this table and of dropped tables, if
    /// the files are at least a day old. Returns the number of removed files; `0` without an archive or while the clock
    /// is in doubt. Also retries pending removals of other files, which are not counted.
    ///
    /// # Errors
    ///
    /// [`StoreError::TableDropped`] if there is no such table; [`StoreError::OtherObjects`] if the objects of other
    /// models are not known; the errors of the backend; [`StoreError::Archive`] if a target fails. Files at the other
    /// targets are removed nevertheless.
    pub fn sweep_archive(&self, table: TableId) -> Result<u64> {
        self.shared.remove_files();
        self.shared.sweep_archive(table)
    }

    /// Writes the settings of a table to each folder with files of the table if the settings stored there differ.
    /// Returns the number of folders written or checked; a folder is checked once after a start and after each change.
    ///
    /// # Errors
    ///
    /// [`StoreError::TableDropped`] if there is no such table; [`StoreError::Archive`] if a target fails. The other
    /// targets are written nevertheless.
    pub fn write_settings(&self, table: TableId) -> Result<u64> {
        self.shared.write_settings(table)
    }

    /// Returns the hexadecimal digits that identify the objects of this database at shared targets. Generates and
    /// stores them if they are missing.
    ///
    /// # Errors
    ///
    /// [`StoreError::Archive`] if they cannot be generated; the errors of [`Log::edit`].
    pub fn archive_origin(&self) -> Result<String> {
        Ok(format!("{:016x}", self.shared.origin()?))
    }

    /// Sets the function that lists the objects that other models of the database use at targets. The function must be
    /// set before the first search or removal of unreferenced objects; each of these calls the function.
    pub fn set_other_objects(&self, objects: OtherObjectsOf) {
        // The engine calls this method once. A further call would have no effect.
        let _ = self.shared.other_objects.set(objects);
    }

    /// Searches a target for unreferenced objects. Changes nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoArchive`] without an archive; [`StoreError::OtherObjects`] if the objects of other models are
    /// not known; the errors of the target and of the backend.
    pub fn find_orphans(&self, search: &OrphanSearch) -> Result<Orphans> {
        self.shared.find_orphans(search)
    }

    /// Removes the objects that a search has found. Calls `step` with the number of objects removed so far, and
    /// stops when `step` returns false. Returns the number of removed objects and their bytes.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoArchive`] without an archive; [`StoreError::Archive`] if the target fails. Objects removed
    /// before the failure stay removed.
    pub fn remove_orphans(
        &self,
        target: &str,
        orphans: &Orphans,
        step: &mut dyn FnMut(u64) -> bool,
    ) -> Result<(u64, u64)> {
        self.shared.remove_orphans(target, orphans, step)
    }

    /// Records that an operator has confirmed the clock of the machine.
    pub fn confirm_clock(&self) {
        self.log().confirm_clock();
    }

    /// Returns the rows about jobs, as pairs of name and content.
    pub fn job_rows(&self) -> Vec<(Bytes, Bytes)> {
        let manifest = self.log().manifest();
        let rows = manifest.jobs.iter();
        rows.map(|(name, detail)| (name.clone(), detail.clone()))
            .collect()
    }

    /// Adds, changes and removes rows about jobs in one edit. The edit is durable on return.
    ///
    /// # Errors
    ///
    /// The errors of [`Log::edit_job_rows`]: the edit was not applied, or its outcome is unknown.
    pub fn edit_job_rows(&self, put: Vec<(Bytes, Bytes)>, remove: Vec<Bytes>) -> Result<()> {
        Ok(self.log().edit_job_rows(put, remove)?)
    }

    // --- reading ---------------------------------------------------------------------------------------

    /// Returns a snapshot of the current points.
    pub fn snapshot(&self) -> Snapshot {
        let now = self.trusted_now().now;
        Snapshot::new(Arc::clone(&self.shared), self.shared.state.read().clone(), now)
    }

    /// Returns the newest value of every field of a timeline, unless that value has expired.
    ///
    /// The values are read from memory. If the timeline has points from before the start, or its values were removed
    /// from memory, its newest chunks are read first. `expected` lists the fields of the measurement of the timeline;
    /// reading stops when all of them are found.
    ///
    /// # Errors
    ///
    /// The errors of the backend, of the archive and of the lease; [`StoreError::Chunk`] if a chunk is damaged.
    pub fn latest(&self, table: &Table, id: TimelineId, expected: &[FieldId]) -> Result<LatestRow> {
        let visible = self.follow_clock(table);
        loop {
            let generation = table.latest().generation();
            if let Some(mut known) = table.latest().known(id).filter(|known| known.complete) {
                known.row.retain(|field| field.timestamp >= visible);
                return Ok(known.row);
            }
            // A concurrent delete changes the generation. The values just read are then discarded and read again.
            let stored = self.snapshot().newest(table.id(), id, expected)?;
            table.latest().complete(id, stored, generation);
        }
    }

    /// Returns the time span of the points of each timeline; `None` for a timeline without visible points. If points
    /// have expired, the span may start before the oldest remaining point, but not before the oldest visible time.
    ///
    /// The spans are read from memory. For timelines that have points from before the start, or whose spans were
    /// removed from memory, the chunks are read first, in one scan; only their first and last timestamps are decoded.
    ///
    /// # Errors
    ///
    /// The errors of the backend, of the archive and of the lease; [`StoreError::Chunk`] if a chunk is damaged.
    pub fn seen(&self, table: &Table, ids: &[TimelineId]) -> Result<Vec<Option<Seen>>> {
        let visible = self.follow_clock(table);
        loop {
            let generation = table.latest().generation();
            // Each timeline is looked up once, because it may be removed from memory at any time.
            let known: Vec<_> = ids.iter().map(|id| table.latest().seen(*id)).collect();
            let unknown = ids.iter().zip(&known).filter(|(_, seen)| seen.is_none());
            let mut unknown: Vec<TimelineId> = unknown.map(|(id, _)| *id).collect();
            if unknown.is_empty() {
                let clipped = |seen: Seen| {
                    let first = seen.first.max(visible);
                    (seen.last >= visible).then_some(Seen { first, ..seen })
                };
                let seen = known.into_iter().map(|seen| seen.flatten().and_then(clipped));
                return Ok(seen.collect());
            }
            unknown.sort_unstable();
            unknown.dedup();
            let spans = self.snapshot().spans(table.id(), &unknown)?;
            let found = unknown.iter().zip(spans);
            found.for_each(|(id, span)| table.latest().widen(*id, span, generation));
        }
    }

    /// Returns one flag per timeline: true if it has a point that is visible or that expired less than `delay` ago. Ids
    /// must be increasing. Reads the chunks, but decodes only their first and last timestamps.
    ///
    /// # Errors
    ///
    /// The errors of [`seen`](Self::seen).
    pub fn have_points_within(
        &self,
        table: &Table,
        ids: &[TimelineId],
        delay: Duration,
    ) -> Result<Vec<bool>> {
        let spans = self.snapshot().before(delay).spans(table.id(), ids)?;
        Ok(spans.iter().map(Option::is_some).collect())
    }

    /// Returns the first visible timestamp of a table. If the clock has gone back, removes all latest values from
    /// memory, because they may lack points that are visible again.
    fn follow_clock(&self, table: &Table) -> i64 {
        let visible = self.visible_from(table);
        table.latest().follow(self.log().clock_regressions());
        visible
    }

    /// Returns the first timestamp at which points of a table are visible now; `i64::MIN` if nothing expires.
    pub fn visible_from(&self, table: &Table) -> i64 {
        visible_from(Some(&table.spec().policy), self.trusted_now().now)
    }

    /// Returns the trusted time, and whether expiry may use it.
    pub fn trusted_now(&self) -> TrustedNow {
        self.log().trusted_now()
    }

    // --- watching --------------------------------------------------------------------------------------

    /// Returns the journal sequence after the last committed entry.
    pub fn recent_end(&self) -> SequenceNumber {
        self.log().recent_end()
    }

    /// Returns the entries written to a table from a journal sequence on, including deletes, up to about `bytes_max`
    /// bytes.
    ///
    /// Entries of other models count toward the limit but are omitted, so a page may be empty although entries
    /// follow. Entries are read from memory, which holds the newest entries of all tables up to
    /// [`LogSettings::tail_bytes_max`](crate::LogSettings). All returned entries are in the journal and visible to
    /// queries; the replies to their writers may still be pending.
    ///
    /// # Errors
    ///
    /// The errors of [`Log::recent`].
    pub fn recent(
        &self,
        table: &Table,
        from: SequenceNumber,
        bytes_max: usize,
    ) -> std::result::Result<RecentPage, RecentError> {
        let mut part = self.log().recent(table.id(), from, bytes_max)?;
        part.entries
            .retain(|entry| ModelTag::of(&entry.encoded) == Some(ModelTag::SERIES));
        Ok(part)
    }

    /// Registers a callback for new entries. The committer calls it on its own thread, so it must not block.
    pub fn on_recent_entries(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.log().on_recent_entries(wake);
    }

    /// Calls all callbacks of watchers. Intended for changes to other state that watchers read.
    pub fn wake_watchers(&self) {
        self.log().wake_watchers();
    }

    // --- operation -------------------------------------------------------------------------------------

    /// Returns the backend, for rows of other components such as the catalog.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.shared.backend
    }

    /// Returns the generator of increasing stamps for rows that other components write to the backend.
    pub fn stamps(&self) -> &Stamps {
        self.log().stamps()
    }

    /// Returns the health of the backend.
    pub fn health(&self) -> Health {
        self.shared.backend.health()
    }

    /// Returns true if the backend is read-only because acknowledged data is missing.
    pub fn is_read_only(&self) -> bool {
        self.shared.check_not_read_only().is_err()
    }

    /// Returns the panic of a thread that the database depends on, if there was one. Writes are refused from then
    /// on.
    pub fn thread_failure(&self) -> Option<&ThreadFailure> {
        self.shared.settings.log.supervisor.failure()
    }

    /// Returns the error of the last seal or, while frozen heads wait, of the last attempt to resolve an edit. Returns
    /// `None` after a success, and after a caller has begun to wait for a seal.
    pub fn seal_error(&self) -> Option<String> {
        self.log().flush_error()
    }

    /// Returns sizes and counts.
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

    /// Stops accepting writes, completes the waiting writes, syncs and closes the backend. Unsealed points stay in
    /// the journal and are recovered at the next start.
    ///
    /// # Errors
    ///
    /// [`StoreError::Backend`] if the backend cannot be closed.
    pub fn close(&self) -> Result<()> {
        self.threads.stop();
        Ok(self.shared.backend.close()?)
    }
}

impl Drop for SeriesStore {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "failed to close the store");
        }
    }
}

fn loaded(counters: &[AtomicU64; 3]) -> [u64; 3] {
    counters.each_ref().map(|bytes| bytes.load(Ordering::Relaxed))
}
