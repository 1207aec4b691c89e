//! Sealing: a frozen head becomes segments.
//!
//! 1. Choose the windows that its points go to ([`crate::window::choose_tiers`]).
//! 2. For each table, walk its timelines in id order; merge what the head has of each, cut it at the windows,
//!    encode chunks.
//! 3. Load one segment a window.
//! 4. Make catalog, schema and request rows durable: they are about to lose the journal that carries them.
//! 5. Publish: one manifest edit adds the segments and moves the journal cursor, and in the same instant
//!    readers lose the head and gain the segments.
//! 6. Forget the journal.
//!
//! A failure before 5 leaves orphans, which the next start sweeps, and the same head is sealed again later. A
//! crash between 5 and 6 leaves a journal below the cursor, which replay skips.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tideline_chunk::{Chunk, Run, SequenceSpan};
use tideline_key_codec::chunk_bucket;
use tideline_model::{GroupId, Policy, SequenceNumber, SupervisedThread, TableId, Tier, TimelineId};

use crate::deletes::apply;
use crate::error::{Result, StoreError};
use crate::fail_points::around;
use crate::head::Head;
use crate::head::series::HeadPieces;
use crate::head::table::TableHead;
use crate::manifest::{Segment, TableCounts, WriteRank, WriteSpan, put_counts, put_cursor, put_segment};
use crate::merge::{Part, Priority, concat, merge, slice};
use crate::seal_reports::SealReport;
use crate::segment_writer::SegmentWriter;
use crate::shared::{SHARD, Shared, group_window};
use crate::window::{Window, choose_tiers, cold_boundary};

/// Name of the thread.
const THREAD: &str = "sealer";
/// How often the trusted time is stored while nothing else is: what passes between storing it and a crash looks like
/// a jump of the clock to the next start.
const TRUSTED_INTERVAL: Duration = Duration::from_secs(60);
/// Bytes of a segment, for the choice of its group: what comes from one head is loaded in a moment.
const SMALL: u64 = 0;
/// Tables whose counts are stored in one edit: their rows may have 64 KiB each.
const COUNTS_PER_EDIT: usize = 32;
/// Pause before a failed seal is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The handle of the sealer thread.
#[derive(Debug)]
pub(crate) struct Sealer {
    shared: Arc<Shared>,
    thread: SupervisedThread,
}

impl Sealer {
    pub(crate) fn start(shared: Arc<Shared>) -> Self {
        let worker = Arc::clone(&shared);
        let supervisor = &shared.settings.supervisor;
        // Callers that wait for a seal, the committer among them, must not wait for a thread that is gone.
        let waited_for = Arc::downgrade(&shared);
        supervisor.on_failure(move |_| {
            if let Some(shared) = waited_for.upgrade() {
                shared.notify_sealer();
            }
        });
        let thread = supervisor.spawn(THREAD, move || run(&worker));
        let thread = thread.expect("the system has a thread left at start");
        Self { shared, thread }
    }

    /// Makes the thread look for work.
    pub(crate) fn wake(&self) {
        self.shared.notify_sealer();
    }

    /// Waits until everything below `end` is sealed, or sealing fails.
    pub(crate) fn wait(&self, end: SequenceNumber) -> Result<()> {
        let mut progress = self.shared.sealing.lock();
        progress.error = None;
        while self
            .shared
            .state
            .read()
            .frozen
            .iter()
            .any(|head| head.first() < end)
        {
            self.shared.check_threads()?;
            if progress.stopping {
                return Err(StoreError::Closed);
            }
            if let Some(reason) = &progress.error {
                let kind = tideline_backend::ErrorKind::Unavailable;
                return Err(StoreError::Append {
                    kind,
                    reason: format!("seal failed: {reason}"),
                    retry_after: None,
                });
            }
            self.shared.sealing_changed.wait(&mut progress);
        }
        Ok(())
    }

    /// Ends the thread after the segment that it is working on. Repeatable.
    pub(crate) fn stop(&self) {
        self.shared.sealing.lock().stopping = true;
        self.wake();
        self.thread.join();
    }
}

impl Shared {
    /// Wakes the sealer, and whoever waits for it.
    pub(crate) fn notify_sealer(&self) {
        let _held_so_that_nobody_is_between_looking_and_waiting = self.sealing.lock();
        self.sealing_changed.notify_all();
    }
}

fn run(shared: &Shared) {
    let mut stored = Instant::now();
    loop {
        shared.settings.supervisor.round(THREAD);
        if stored.elapsed() >= TRUSTED_INTERVAL {
            stored = Instant::now();
            shared.store_trusted();
        }
        shared.reclaim_retired();
        let is_read_only = shared.check_not_read_only().is_err();
        if !is_read_only && let Err(error) = shared.forget_done_deletes() {
            tracing::warn!(%error, "rows of applied deletes could not be removed; it is tried again");
        }
        let settled = settle(shared);
        let oldest = shared.state.read().frozen.first().cloned();
        let oldest = oldest.filter(|_| !is_read_only);
        let failed =
            is_read_only || !settled || oldest.is_some_and(|head| seal_and_report(shared, &head).is_err());
        let mut progress = shared.sealing.lock();
        if progress.stopping {
            return;
        }
        let idle = shared.state.read().frozen.is_empty();
        if failed || idle {
            // A dropped table waits for its last reader; look again now and then.
            shared.sealing_changed.wait_for(&mut progress, RETRY_INTERVAL);
        }
    }
}

/// Finds out about an edit of open outcome, which may be that of the last seal; whether none is left.
fn settle(shared: &Shared) -> bool {
    let settled = shared.settle();
    if matches!(settled, Ok(true)) {
        let sealed_to = shared.state.read().manifest.cursor.sealed_to;
        if let Err(error) = shared.backend.forget(SHARD, shared.epoch, sealed_to) {
            tracing::warn!(%error, "the sealed journal could not be forgotten; the next seal does it");
        }
    }
    let mut progress = shared.sealing.lock();
    match &settled {
        Ok(true) => progress.error = None,
        Ok(false) => return true,
        Err(error) if !shared.state.read().frozen.is_empty() => progress.error = Some(error.to_string()),
        Err(_) => return false,
    }
    shared.sealing_changed.notify_all();
    settled.is_ok()
}

fn seal_and_report(shared: &Shared, head: &Arc<Head>) -> Result<()> {
    let sealed = seal(shared, head);
    let mut progress = shared.sealing.lock();
    match &sealed {
        Ok(()) => {
            progress.error = None;
        }
        Err(error) => {
            tracing::warn!(%error, "seal failed; it is tried again");
            progress.error = Some(error.to_string());
        }
    }
    shared.sealing_changed.notify_all();
    sealed
}

fn seal(shared: &Shared, head: &Arc<Head>) -> Result<()> {
    if shared.state.read().manifest.cursor.sealed_to >= head.end() {
        // An earlier try published it without learning so.
        shared
            .state
            .write()
            .frozen
            .retain(|frozen| !Arc::ptr_eq(frozen, head));
        return Ok(shared.backend.forget(SHARD, shared.epoch, head.end())?);
    }
    let (started, begun) = (shared.trusted_now().now.nanos(), Instant::now());
    let mut segments = Vec::new();
    for (table, points) in head.tables() {
        if shared.tables.read().by_id.contains_key(&table) {
            let loaded = around("seal", "load", || load_table(shared, table, &points, head.end()))?;
            segments.extend(loaded);
        }
    }
    around("seal", "save", || save_rows(shared, head))?;
    let counts = counts(shared)?;
    around("seal", "edit", || publish(shared, head, &segments, &counts))?;
    shared.counters.seals.fetch_add(1, Ordering::Relaxed);
    let report = SealReport::of(started, begun.elapsed(), &segments);
    shared.seal_reports.add(report);
    around("seal", "forget", || {
        Ok(shared.backend.forget(SHARD, shared.epoch, head.end())?)
    })?;
    tracing::info!(points = head.points(), segments = segments.len(), "sealed");
    Ok(())
}

/// Makes durable what the journal of a head carried beside points.
fn save_rows(shared: &Shared, head: &Head) -> Result<()> {
    shared.directory.save()?;
    let tables: Vec<_> = shared.tables.read().by_id.values().cloned().collect();
    for table in tables {
        table.schema().save(shared.backend.as_ref(), &shared.stamps)?;
    }
    shared.requests.save(shared.backend.as_ref(), &shared.stamps)?;
    shared.save_deletes(head.end())
}

/// Durable rows of the tables whose manifest row says otherwise: at most so many that the edit which publishes the
/// segments has room for them.
fn counts(shared: &Shared) -> Result<Vec<(TableId, TableCounts)>> {
    let manifest = Arc::clone(&shared.state.read().manifest);
    let tables: Vec<_> = shared.tables.read().by_id.values().cloned().collect();
    let counted = tables.iter().filter_map(|table| {
        let known = manifest.tables.get(&table.id())?.counts;
        let fields = table.schema().saved();
        let counts = TableCounts {
            timelines: shared.directory.saved(table.id())?,
            fields,
            next_field: known.map_or(0, |known| known.next_field).max(fields),
        };
        (known != Some(counts)).then_some((table.id(), counts))
    });
    let mut counted: Vec<_> = counted.collect();
    while counted.len() > COUNTS_PER_EDIT {
        let part = counted.split_off(counted.len() - COUNTS_PER_EDIT);
        shared.edit(|manifest| put_counts(manifest, &part))?;
    }
    Ok(counted)
}

fn publish(
    shared: &Shared,
    head: &Arc<Head>,
    segments: &[Segment],
    counts: &[(TableId, TableCounts)],
) -> Result<()> {
    shared.edit_and(
        |manifest| {
            // A table dropped since its segment was loaded leaves an orphan for the next sweep.
            let alive = segments
                .iter()
                .filter(|segment| manifest.tables.contains_key(&segment.table));
            let alive: Vec<&Segment> = alive.collect();
            manifest.cursor = shared.cursor(manifest.cursor, head.end());
            alive.iter().for_each(|segment| manifest.add((*segment).clone()));
            let counts = put_counts(manifest, counts);
            manifest.cursor.counted = true;
            let cursor = put_cursor(&manifest.cursor);
            let segments = alive.into_iter().map(put_segment);
            Ok(segments.chain(counts).chain([cursor]).collect())
        },
        |state| state.frozen.retain(|frozen| !Arc::ptr_eq(frozen, head)),
    )?;
    Ok(())
}

/// A segment in the making.
struct Draft {
    window: Window,
    tier: Tier,
    end: i64,
    writer: SegmentWriter,
}

fn load_table(
    shared: &Shared,
    table: TableId,
    points: &TableHead,
    end: SequenceNumber,
) -> Result<Vec<Segment>> {
    let state = shared.state.read().clone();
    let base = shared.settings.window_nanos;
    let occupied = occupied_windows(points, base)?;
    let policy = state.manifest.tables.get(&table).map(|row| &row.spec.policy);
    let cuts = cuts(policy, shared.trusted_now().now.nanos(), base);
    let occupied: Vec<Window> = occupied.into_iter().collect();
    let windows = choose_tiers(&occupied, base, &cuts, shared.settings.windows_per_seal_max);
    let cold_to = cuts.last().copied().unwrap_or(i64::MIN);
    let mut drafts: Vec<Draft> = windows
        .into_iter()
        .map(|window| Draft::new(window, base, cold_to))
        .collect();
    let deletes = state.deletes.of(table);
    for id in points.timelines() {
        let Some(pieces) = points.pieces(id) else { continue };
        let (mut run, sequences) = merged(id, &pieces)?;
        let masks = deletes.map_or(&[][..], |deletes| deletes.masks(id));
        if apply(&mut run, masks, end) {
            spread(id, &run, sequences, &mut drafts)?;
        }
    }
    let deletes_applied = deletes.map_or(end, |deletes| deletes.end().max(end));
    let mut places: Vec<(Tier, Window, GroupId)> = Vec::new();
    let mut segments = Vec::with_capacity(drafts.len());
    for mut draft in drafts.into_iter().filter(|draft| !draft.writer.is_empty()) {
        let Draft { window, tier, .. } = draft;
        let mut place = shared.place(&state.manifest, table, tier, window, SMALL);
        // Two new windows of one group in one seal share the group that the first of them made.
        let wide = group_window(tier, window);
        match places
            .iter()
            .find(|(of, around, _)| (*of, *around) == (tier, wide))
        {
            Some((.., group)) => place.group = *group,
            None => places.push((tier, wide, place.group)),
        }
        let bucket = chunk_bucket(TimelineId::MIN);
        shared
            .backend
            .load(place, bucket, &mut draft.writer.take_rows().map(Ok))?;
        let totals = draft.writer.totals();
        shared.count_loaded(&shared.counters.sealed_bytes, table, tier, totals.bytes);
        let written = WriteSpan::of(WriteRank {
            sequence: end.0 - 1,
            seal: place.segment.0,
        });
        segments.push(Segment::new(
            place,
            table,
            window,
            written,
            deletes_applied,
            totals,
        ));
    }
    Ok(segments)
}

/// The instants that no window of a seal spans, rising: before the last one all is old enough for the cold tier, before
/// others also for the archive, or hidden. So no segment keeps points in a tier because others of it are younger.
fn cuts(policy: Option<&Policy>, now: i64, base: i64) -> Vec<i64> {
    let Some((policy, hot_ttl)) = policy.and_then(|policy| Some((policy, policy.hot_ttl?))) else {
        return Vec::new();
    };
    let after = policy.archive.as_ref().map(|archive| archive.after);
    let ages = [Some(hot_ttl), after, policy.visible_age()];
    let ages = ages.into_iter().flatten().filter(|age| *age >= hot_ttl);
    let mut cuts: Vec<i64> = ages
        .map(|age| cold_boundary(now.saturating_sub(age), base))
        .collect();
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

/// The base windows that the points lie in.
fn occupied_windows(points: &TableHead, base: i64) -> Result<BTreeSet<Window>> {
    let mut occupied = BTreeSet::new();
    if let Some((first, last)) = points.span() {
        // Live points lie in one window or two: then there is no need to look at each timeline.
        let (first, last) = (Window::of(first, base, 0), Window::of(last, base, 0));
        if last.index - first.index <= 1 {
            occupied.extend([first, last]);
            return Ok(occupied);
        }
    }
    let mut latest = None;
    let mut add = |window: Window| {
        if latest.replace(window) != Some(window) {
            occupied.insert(window);
        }
    };
    let mut timestamps = Vec::new();
    points.each(|series| {
        for block in series.blocks() {
            let (first, last) = (Window::of(block.first, base, 0), Window::of(block.last, base, 0));
            if last.index - first.index <= 1 {
                add(first);
                add(last);
                continue;
            }
            let chunk = Chunk::open_trusted(&block.bytes)
                .map_err(|cause| StoreError::chunk(TimelineId::MIN, cause))?;
            timestamps.clear();
            chunk.timestamps().decode(0..chunk.rows(), &mut timestamps);
            timestamps.iter().for_each(|at| add(Window::of(*at, base, 0)));
        }
        series
            .open_timestamps()
            .for_each(|at| add(Window::of(at, base, 0)));
        Ok::<(), StoreError>(())
    })?;
    Ok(occupied)
}

/// Everything that the head has of a timeline, as one run.
pub(crate) fn merged(id: TimelineId, pieces: &HeadPieces) -> Result<(Run, SequenceSpan)> {
    let mut sequences: Option<SequenceSpan> = None;
    let mut runs = Vec::with_capacity(pieces.blocks.len() + 1);
    for block in &pieces.blocks {
        let chunk = Chunk::open_trusted(&block.bytes).map_err(|cause| StoreError::chunk(id, cause))?;
        runs.push(chunk.to_run().map_err(|cause| StoreError::chunk(id, cause))?);
        let span = chunk.sequences();
        let all = sequences.get_or_insert(span);
        all.lowest = all.lowest.min(span.lowest);
        all.highest = all.highest.max(span.highest);
    }
    if let Some(open) = &pieces.open {
        runs.push(open.clone());
        let all = sequences.get_or_insert(pieces.open_sequences);
        all.lowest = all.lowest.min(pieces.open_sequences.lowest);
        all.highest = all.highest.max(pieces.open_sequences.highest);
    }
    let span = sequences.unwrap_or(pieces.open_sequences);
    let apart = runs
        .windows(2)
        .all(|pair| pair[0].timestamps.last() < pair[1].timestamps.first());
    if apart {
        let mut runs = runs.into_iter();
        let mut whole = runs.next().unwrap_or_default();
        runs.for_each(|run| concat(&mut whole, &run));
        return Ok((whole, span));
    }
    let parts: Vec<Part<'_>> = (0u64..)
        .zip(&runs)
        .map(|(order, run)| Part {
            run,
            priority: Priority::All(order),
        })
        .collect();
    Ok((merge(&parts), span))
}

/// Cuts a run at the windows and adds the parts to their drafts.
fn spread(id: TimelineId, run: &Run, sequences: SequenceSpan, drafts: &mut [Draft]) -> Result<()> {
    let mut start = 0;
    while start < run.rows() {
        let at = drafts.partition_point(|draft| draft.end <= run.timestamps[start]);
        let draft = drafts.get_mut(at).expect("the chosen windows hold every point");
        let end = run.timestamps.partition_point(|timestamp| *timestamp < draft.end);
        draft.writer.add(id, &slice(run, start..end), sequences)?;
        start = end;
    }
    Ok(())
}

impl Draft {
    fn new(window: Window, base: i64, cold_to: i64) -> Self {
        let end = window.range(base).end;
        let tier = if end <= cold_to { Tier::Cold } else { Tier::Hot };
        Self {
            window,
            tier,
            end,
            writer: SegmentWriter::new(tier),
        }
    }
}
