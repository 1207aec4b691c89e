//! Seals (flushes) a frozen head into segments.
//!
//! 1. For each table, choose the windows for the points ([`crate::window::choose_tiers`]).
//! 2. Iterate over the timelines of the table in id order, merge the blocks and open rows of each timeline, cut the run
//!    at window boundaries, and encode chunks.
//! 3. Write one segment per window.
//! 4. Write schema and delete rows, because the journal that carries them is about to be removed. The log syncs
//!    them.
//! 5. The log publishes the segments: one manifest edit adds them and advances the journal cursor. Once the edit is
//!    durable, readers switch from the head to the segments.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use tideline_backend::{ManifestChange, SegmentRef};
use tideline_chunk::{Chunk, Run, SequenceSpan};
use tideline_log::fail_points::around;
use tideline_log::{Flushed, Manifest, ModelError};
use tideline_model::{Durability, GroupId, Policy, SequenceNumber, TableId, Tier, TimelineId};

use crate::buckets::{bucket_bits, load_buckets};
use crate::deletes::apply;
use crate::error::{Result, StoreError};
use crate::head::Head;
use crate::head::series::HeadFragments;
use crate::head::table::TableHead;
use crate::manifest::{ManifestState, Segment, TableCounts, WriteRank, WriteSpan, put_segment};
use crate::merge::{Part, Priority, concat, merge, slice};
use crate::schema::WrittenRow;
use crate::seal_reports::SealReport;
use crate::segment_writer::SegmentWriter;
use crate::shared::{Shared, group_window};
use crate::tables::Table;
use crate::window::{Window, choose_tiers, cold_boundary};

/// Segment size used to choose the group. A segment from one head is always treated as small, because it is written
/// quickly.
const SMALL: u64 = 0;
/// Maximum number of tables whose counts are stored in one edit. The number is limited because a table row may take up
/// to 64 KiB.
const COUNTS_PER_EDIT: usize = 32;

/// Head that was written to segments which are not yet in the manifest.
pub(crate) struct Sealed {
    shared: Arc<Shared>,
    head: Arc<Head>,
    segments: Vec<Segment>,
    /// Written rows that are not durable yet. They are synced together with the rows of other models.
    written: WrittenRows,
    counts: Vec<(TableId, TableCounts)>,
    /// Manifest after the edit.
    draft: Option<ManifestState>,
    started: i64,
    begun: Instant,
}

/// Rows written for the content of the journal, except the points.
#[derive(Default)]
struct WrittenRows {
    schemas: Vec<(Arc<Table>, Vec<WrittenRow>)>,
    deletes: Vec<SequenceNumber>,
}

/// Writes the points of a frozen head to segments, and the other content of its journal to rows.
pub(crate) fn seal(shared: &Arc<Shared>, head: &Arc<Head>) -> Result<Sealed> {
    let (started, begun) = (shared.log.trusted_now().now.nanos(), Instant::now());
    let mut segments = Vec::new();
    for (table, points) in head.tables() {
        if shared.tables.read().by_id.contains_key(&table) {
            let loaded = around("seal", "load", || load_table(shared, table, &points, head.end()))?;
            segments.extend(loaded);
        }
    }
    let written = around("seal", "save", || write_rows(shared, head))?;
    Ok(Sealed {
        shared: Arc::clone(shared),
        head: Arc::clone(head),
        segments,
        written,
        counts: Vec::new(),
        draft: None,
        started,
        begun,
    })
}

impl Flushed for Sealed {
    fn synced(&mut self) -> std::result::Result<(), ModelError> {
        let WrittenRows { schemas, deletes } = std::mem::take(&mut self.written);
        for (table, rows) in &schemas {
            table.schema().synced(rows);
        }
        self.shared.deletes_synced(&deletes);
        self.counts = counts(&self.shared)?;
        Ok(())
    }

    fn edit(&mut self, manifest: &mut Manifest) -> std::result::Result<Vec<ManifestChange>, ModelError> {
        // The segment of a table that was dropped in the meantime stays behind as an orphan until the next start.
        let is_alive = |segment: &Segment| manifest.tables.contains_key(&segment.table);
        self.segments.retain(is_alive);
        let mut draft = ManifestState::clone(&self.shared.state.read().manifest);
        self.segments
            .iter()
            .for_each(|segment| draft.add(segment.clone()));
        let mut changes: Vec<ManifestChange> = self.segments.iter().map(put_segment).collect();
        changes.extend(manifest.put_counts(&self.counts));
        manifest.cursor.counted = true;
        self.draft = Some(draft);
        Ok(changes)
    }

    fn adds(&self) -> Vec<SegmentRef> {
        self.segments.iter().map(Segment::reference).collect()
    }

    fn follow(self: Box<Self>, manifest: &Arc<Manifest>) {
        let Self {
            shared,
            head,
            segments,
            draft,
            started,
            begun,
            ..
        } = *self;
        if let Some(draft) = draft {
            shared.publish(draft, manifest, |state| {
                state.frozen.retain(|frozen| !Arc::ptr_eq(frozen, &head));
            });
        }
        shared.counters.seals.fetch_add(1, Ordering::Relaxed);
        let report = SealReport::of(started, begun.elapsed(), &segments);
        shared.seal_reports.add(report);
        tracing::info!(points = head.points(), segments = segments.len(), "sealed");
    }
}

/// Writes rows for the content of the journal of a head, except the points.
fn write_rows(shared: &Shared, head: &Head) -> Result<WrittenRows> {
    let tables: Vec<_> = shared.tables.read().by_id.values().cloned().collect();
    let mut schemas = Vec::new();
    for table in tables {
        let (backend, stamps) = (shared.backend.as_ref(), shared.log.stamps());
        let rows = table.schema().write_rows(backend, stamps, Durability::Buffered)?;
        schemas.push((table, rows));
    }
    Ok(WrittenRows {
        schemas,
        deletes: shared.write_deletes(head.end())?,
    })
}

/// Returns the counts of durable rows for tables whose manifest row has other counts. The result has at most
/// [`COUNTS_PER_EDIT`] tables and becomes part of the edit that publishes the segments. The counts of further tables
/// are stored here in separate edits.
fn counts(shared: &Shared) -> Result<Vec<(TableId, TableCounts)>> {
    let manifest = Arc::clone(&shared.state.read().manifest);
    let tables: Vec<_> = shared.tables.read().by_id.values().cloned().collect();
    let counted = tables.iter().filter_map(|table| {
        let known = manifest.common.tables.get(&table.id())?.counts;
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
        shared.edit(|manifest| manifest.common.put_counts(&part))?;
    }
    Ok(counted)
}

/// Segment that is being written.
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
    let policy = state
        .manifest
        .common
        .tables
        .get(&table)
        .map(|row| &row.spec.policy);
    let cuts = cuts(policy, shared.log.trusted_now().now.nanos(), base);
    let occupied: Vec<Window> = occupied.into_iter().collect();
    let windows = choose_tiers(&occupied, base, &cuts, shared.settings.windows_per_seal_max);
    let cold_to = cuts.last().copied().unwrap_or(i64::MIN);
    let mut drafts: Vec<Draft> = windows
        .into_iter()
        .map(|window| Draft::new(window, base, cold_to))
        .collect();
    let deletes = state.deletes.of(table);
    for id in points.timelines() {
        let Some(fragments) = points.fragments(id) else {
            continue;
        };
        let (mut run, sequences) = merged(id, &fragments)?;
        let masks = deletes.map_or(&[][..], |deletes| deletes.masks(id));
        if apply(&mut run, masks, end) {
            spread(id, &run, sequences, &mut drafts)?;
        }
    }
    let deletes_applied = deletes.map_or(end, |deletes| deletes.end().max(end));
    let mut groups: Vec<(Tier, Window, GroupId)> = Vec::new();
    let mut segments = Vec::with_capacity(drafts.len());
    for mut draft in drafts.into_iter().filter(|draft| !draft.writer.is_empty()) {
        let Draft { window, tier, .. } = draft;
        let mut location = shared.choose_location(&state.manifest, table, tier, window, SMALL);
        // Several new windows of one group share the group that the first window has created.
        let wide = group_window(tier, window);
        match groups
            .iter()
            .find(|(of, around, _)| (*of, *around) == (tier, wide))
        {
            Some((.., group)) => location.group = *group,
            None => groups.push((tier, wide, location.group)),
        }
        let totals = draft.writer.totals();
        let bits = bucket_bits(totals.bytes, shared.settings.bucket_bytes);
        let mut rows = draft.writer.take_rows().map(Ok);
        load_buckets(shared.backend.as_ref(), location, bits, &mut rows)?;
        shared.count_loaded(&shared.counters.sealed_bytes, table, tier, totals.bytes);
        let written = WriteSpan::of(WriteRank {
            sequence: end.0 - 1,
            seal: location.segment.0,
        });
        let segment = Segment::new(location, table, window, written, deletes_applied, totals);
        segments.push(segment.in_buckets(bits));
    }
    Ok(segments)
}

/// Returns the timestamps (cuts), in increasing order, that no window of a seal may span; empty if the policy has no
/// `hot_ttl`. All points before the last cut are old enough for the cold tier; points before an earlier cut are also
/// old enough for the archive, or hidden. Therefore no old points stay in a tier only because their segment also has
/// newer points.
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

/// Returns base windows that together contain all points. Some of them may contain no point.
fn occupied_windows(points: &TableHead, base: i64) -> Result<BTreeSet<Window>> {
    let mut occupied = BTreeSet::new();
    if let Some((first, last)) = points.span() {
        // If the points span one or two windows, as live points do, the timelines need not be read.
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

/// Returns all points of a timeline in the head as one run, with the span of their sequences.
pub(crate) fn merged(id: TimelineId, fragments: &HeadFragments) -> Result<(Run, SequenceSpan)> {
    let mut sequences: Option<SequenceSpan> = None;
    let mut runs = Vec::with_capacity(fragments.blocks.len() + 1);
    for block in &fragments.blocks {
        let chunk = Chunk::open_trusted(&block.bytes).map_err(|cause| StoreError::chunk(id, cause))?;
        runs.push(chunk.to_run().map_err(|cause| StoreError::chunk(id, cause))?);
        let span = chunk.sequences();
        let all = sequences.get_or_insert(span);
        all.lowest = all.lowest.min(span.lowest);
        all.highest = all.highest.max(span.highest);
    }
    if let Some(open) = &fragments.open {
        runs.push(open.clone());
        let all = sequences.get_or_insert(fragments.open_sequences);
        all.lowest = all.lowest.min(fragments.open_sequences.lowest);
        all.highest = all.highest.max(fragments.open_sequences.highest);
    }
    let span = sequences.unwrap_or(fragments.open_sequences);
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

/// Cuts a run at window boundaries and adds the parts to their drafts.
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
