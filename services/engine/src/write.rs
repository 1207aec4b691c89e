//! Path of a write from a decoded batch to acknowledged points.
//!
//! 1. Before the body is decoded: a repeated idempotency key returns the stored outcome. A request with a used key but
//!    another body is refused.
//! 2. Rows outside the table's bounds of past and future, past its retention or with types that contradict the schema
//!    are dropped. Each dropped row becomes a reject with its line.
//! 3. The remaining rows become one delta or several (see [`crate::line_order`]). A delta refers to timelines by id and
//!    contains the identities of new timelines.
//! 4. The delta is committed: journal, sync, head (memtable). Its timelines are visible from then on. If timelines were
//!    removed meanwhile, the new timelines of the delta are determined again.
//! 5. The indexer is notified of new timelines, and the outcome is returned.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use tideline_backend::{BackendError, Health, VALUE_BYTES_MAX};
use tideline_chunk::{Delta, DeltaGroup, NewTimeline, RequestRecord};
use tideline_model::reject::RememberedReject;
use tideline_model::{
    Durability, LineReject, Ordinal, PointBatch, PointGroup, RejectReason, TableId, WaitsFor,
};
use tideline_series_store::{Shape, StoreError, TableSchema};
use tideline_timeline_catalog::CatalogReader;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::bounds::Bounds;
use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::hot_ranges::AccessKind;
use crate::line_order::{ShapedGroup, in_line_order, keep_rows};
use crate::tables::Table;

/// Longest idempotency key, in bytes.
pub const REQUEST_KEY_BYTES_MAX: usize = 255;
/// Maximum number of attempts to commit a write while timelines are removed.
const NAMED_AGAIN_MAX: usize = 64;
/// Maximum number of rejects that a stored outcome keeps verbatim. The count of all rejects is always exact.
const REMEMBERED_REJECTS_MAX: usize = 100;
/// Pause before a retry of a write that is refused because the cluster is not durable enough.
const REFUSED_RETRY: Duration = Duration::from_secs(5);

/// Settings of one write.
#[derive(Debug, Default)]
pub struct WriteOptions<'e> {
    /// Durability that the acknowledgement guarantees; `None` = the table's setting.
    pub durability: Option<Durability>,
    /// Request with an idempotency key. Its outcome is stored with its points.
    pub request: Option<RunningRequest<'e>>,
}

/// Idempotency key with the digest of its request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotentRequest {
    key: String,
    digest: u128,
}

impl IdempotentRequest {
    /// Computes the digest of a request: its decompressed body and all `terms` that determine its meaning, such as
    /// the format.
    pub fn new(key: String, body: &[u8], terms: &[&[u8]]) -> Self {
        let mut hasher = Xxh3::new();
        for part in terms.iter().chain([&body]) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self {
            key,
            digest: hasher.digest128(),
        }
    }
}

impl IdempotentRequest {
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Returns the digest in hexadecimal.
    pub(crate) fn digest_text(&self) -> String {
        format!("{:032x}", self.digest)
    }
}

/// Result of starting a request with an idempotency key.
#[derive(Debug)]
pub enum RequestStart<'e> {
    /// The key is new; the points are to be written.
    New(RunningRequest<'e>),
    /// Stored outcome: the key was used before by the same request. Nothing is to be written.
    Repeated(WriteOutcome),
}

/// Claim of a running request on its idempotency key. Until it is dropped, other requests with the key are refused.
#[derive(Debug)]
pub struct RunningRequest<'e> {
    engine: &'e Engine,
    table: TableId,
    key: [u8; 16],
    digest: u128,
}

impl RunningRequest<'_> {
    pub(crate) fn key(&self) -> [u8; 16] {
        self.key
    }

    /// Returns the digest in hexadecimal.
    pub(crate) fn digest_text(&self) -> String {
        format!("{:032x}", self.digest)
    }
}

impl Drop for RunningRequest<'_> {
    fn drop(&mut self) {
        let mut running = self.engine.running_requests.lock();
        running.remove(&(self.table, self.key));
    }
}

/// Outcome of a write.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WriteOutcome {
    /// Points stored.
    pub points: u64,
    /// Field values stored.
    pub values: u64,
    /// Number of all rejected lines.
    pub rejected: u64,
    /// Rejected lines that may be stored when they are sent again later: the table limits new timelines per minute,
    /// or the clock is in doubt.
    pub retryable: u64,
    /// Rejects in line order; a stored outcome keeps the first 100.
    pub rejects: Vec<LineReject>,
    /// True if this is the outcome of an earlier request with the same key.
    pub repeated: bool,
}

/// Stored form of an outcome.
#[derive(Debug, Serialize, Deserialize)]
struct Remembered {
    points: u64,
    values: u64,
    rejected: u64,
    #[serde(default)]
    retryable: u64,
    /// Line, message and excerpt of each reject that is kept.
    rejects: Vec<(u32, String, String)>,
    /// Indexes of the retryable entries of `rejects`. Absent in outcomes of earlier builds.
    #[serde(default)]
    retryable_rejects: Option<Vec<usize>>,
    /// Digest of the request in hexadecimal. Absent in outcomes of earlier builds, which match any body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

impl Engine {
    /// Looks up an idempotency key, and claims it if it is new. Called once per request, before its body is decoded.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::KeyReused`] if the earlier request differs, [`EngineError::RequestRunning`] while it
    /// runs, [`EngineError::Invalid`] if the key is empty, and [`EngineError::OverLimit`] if it is too long. Returns a
    /// store error if the stored outcome is damaged.
    pub fn begin_request(&self, table: &Table, request: &IdempotentRequest) -> Result<RequestStart<'_>> {
        let (running, earlier) = self.claim(table, request)?;
        Ok(match earlier {
            Some(outcome) => RequestStart::Repeated(remembered(&outcome, request)?),
            None => RequestStart::New(running),
        })
    }

    /// Claims an idempotency key. Returns the stored outcome of an earlier request with the key, if there is one.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`begin_request`](Self::begin_request), except for a reused key.
    pub(crate) fn claim(
        &self,
        table: &Table,
        request: &IdempotentRequest,
    ) -> Result<(RunningRequest<'_>, Option<Bytes>)> {
        let id = table.points.id();
        // Tokens with different restrictions have separate idempotency keys.
        let key = match table.condition() {
            None => request_key(&request.key)?,
            Some(condition) => {
                let restricted = [&request_key(&request.key)?[..], condition.as_json().as_bytes()];
                xxh3_128(&restricted.concat()).to_be_bytes()
            }
        };
        let earlier = {
            let mut running = self.running_requests.lock();
            if running.contains(&(id, key)) {
                return Err(EngineError::RequestRunning);
            }
            // A claim is released after its outcome is stored: under this lock, either the claim or the outcome is
            // visible.
            let earlier = self.store.request_outcome(&table.points, key);
            running.insert((id, key));
            earlier
        };
        let running = RunningRequest {
            engine: self,
            table: id,
            key,
            digest: request.digest,
        };
        Ok((running, earlier))
    }

    /// Stores the valid rows of a batch and reports the rejected lines. Blocks until the group commit ends.
    ///
    /// `Ok` guarantees the requested durability.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::DiskFull`] below the watermark of free space, [`EngineError::OverLimit`] for a point
    /// that is too large, and otherwise a store error. After an error of kind `Unavailable` the outcome is unknown.
    /// Repeating the batch is safe if its points have timestamps or the request has a key.
    pub fn write(
        &self,
        table: &Table,
        batch: PointBatch,
        options: &WriteOptions<'_>,
    ) -> Result<WriteOutcome> {
        self.check_writable()?;
        self.charge_tenant(batch.groups.iter().map(|group| group.rows()).sum());
        let spec = table.spec();
        let mut rejects = batch.rejects;
        let bounds = Bounds::new(&spec, self.write_clock(), self.refused_before(table));
        let mut groups = Vec::with_capacity(batch.groups.len());
        for mut group in batch.groups {
            bounds.reject_outside(&mut group, &mut rejects);
            if let Some(shape) = shape_of_good_rows(table, &mut group, &mut rejects)? {
                groups.push((group, shape));
            }
        }
        let taken = groups
            .iter()
            .map(|(group, _)| (group.rows() as u64, group.columns.len() as u64));
        let (points, values) = taken.fold((0, 0), |sum, (rows, fields)| {
            (sum.0 + rows, sum.1 + rows * fields)
        });
        let parts = in_line_order(groups, &mut rejects);
        rejects.sort_by_key(|reject| reject.line);
        let outcome = WriteOutcome {
            points,
            values,
            rejected: rejects.len() as u64,
            retryable: retryable(&rejects),
            rejects,
            repeated: false,
        };
        let waits_for_token = has_lines_of_others(&outcome);
        // Without points, only the outcome of a request is left to commit. If some of its lines may be stored later, or
        // with another token, the request is not completed and its outcome is not stored.
        if points == 0 && (options.request.is_none() || outcome.retryable > 0 || waits_for_token) {
            return Ok(outcome);
        }
        // A request with lines that wait for the clock, or for another token, is not completed either. Its other lines
        // have timestamps and are safe to repeat.
        let waits_for_clock = outcome.first_waiting_for(WaitsFor::Clock).is_some();
        let is_completed = !waits_for_clock && !waits_for_token;
        let request = options.request.as_ref().filter(|_| is_completed);
        let mut request = request.map(|request| RequestRecord {
            key: request.key,
            outcome: outcome.remember(request.digest),
        });
        let durability = options.durability.unwrap_or(spec.durability);
        let mut parts = parts.into_iter().peekable();
        while let Some(groups) = parts.next() {
            // The outcome is stored with the last part, because only this part completes the request.
            let request = if parts.peek().is_none() {
                request.take()
            } else {
                None
            };
            self.commit(table, groups, request, durability)?;
        }
        table.activity.written.fetch_add(points, Ordering::Relaxed);
        Ok(outcome)
    }

    /// Returns the timestamp before which points are refused, because they have expired. Returns the minimum while the
    /// clock is in doubt, and during the purge delay after a clock in doubt was accepted because it was steady. Points
    /// that a wrong clock hides become visible again, but refused points are lost.
    fn refused_before(&self, table: &Table) -> i64 {
        match self.store.trusted_now().is_unsure(self.settings.purge_delay) {
            true => i64::MIN,
            false => self.store.visible_from(&table.points),
        }
    }

    fn commit(
        &self,
        table: &Table,
        groups: Vec<ShapedGroup>,
        request: Option<RequestRecord>,
        durability: Durability,
    ) -> Result<()> {
        let _timelines_stay = table.activity.writers.read();
        let generation = table.points.timeline_generation();
        let mut delta = Delta {
            table: table.points.id(),
            request,
            groups: Vec::with_capacity(groups.len()),
            ..Delta::default()
        };
        let (groups, shapes): (Vec<_>, Vec<_>) = groups.into_iter().unzip();
        let rows = name_timelines(table, groups, &mut delta);
        let weighted = delta.timelines.iter().copied().zip(rows.iter().copied());
        table
            .activity
            .hot_ranges
            .note(self.clock.monotonic(), AccessKind::Write, weighted);
        if self.commit_named(table, delta, shapes, durability, generation)? {
            self.index.notify();
        }
        Ok(())
    }

    /// Commits a delta, split if it may be too large for a journal entry. Returns true if it introduced timelines.
    /// `generation` must be read before the timelines of the delta are looked up.
    pub(crate) fn commit_named(
        &self,
        table: &Table,
        delta: Delta,
        mut shapes: Vec<Arc<Shape>>,
        durability: Durability,
        mut generation: u64,
    ) -> Result<bool> {
        // The log shares the delta during the commit. If the commit is refused, this is the only reference again.
        let mut delta = Arc::new(delta);
        for _ in 0..NAMED_AGAIN_MAX {
            if delta.can_split() && !delta.fits_into(VALUE_BYTES_MAX) {
                let delta = Arc::unwrap_or_clone(delta);
                return self.commit_halves(table, delta, &shapes, durability, generation);
            }
            let introduces = !delta.new_timelines.is_empty();
            let committed = self
                .store
                .commit(&table.points, &delta, shapes, durability, generation);
            match committed {
                Ok(_) => return Ok(introduces),
                Err(StoreError::TimelinesRemoved) => {
                    generation = table.points.timeline_generation();
                    introduce_again(table, Arc::make_mut(&mut delta));
                    shapes = shapes_of(table, &delta)?;
                }
                Err(StoreError::DeltaTooLarge { bytes }) => {
                    return Err(EngineError::OverLimit {
                        what: "journal entry of a single point (bytes)",
                        limit: VALUE_BYTES_MAX as u64,
                        actual: bytes as u64,
                    });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::TimelinesRemoved.into())
    }

    /// Commits a delta in two halves.
    fn commit_halves(
        &self,
        table: &Table,
        delta: Delta,
        shapes: &[Arc<Shape>],
        durability: Durability,
        generation: u64,
    ) -> Result<bool> {
        let (first, second) = delta.split();
        let (of_first, of_second) = (first.groups.len(), shapes.len() - second.groups.len());
        let shapes_first = shapes[..of_first].to_vec();
        let introduces = self.commit_named(table, first, shapes_first, durability, generation)?;
        let shapes_second = shapes[of_second..].to_vec();
        Ok(self.commit_named(table, second, shapes_second, durability, generation)? || introduces)
    }

    /// Returns an error while the disk is nearly full, so that no writes that take space are accepted, and while writes
    /// to a cluster would be less durable than the settings demand.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::DiskFull`] below the watermark of free space; a store error of the kind
    /// [`Unavailable`](crate::ErrorKind::Unavailable) while a cluster is not durable enough.
    pub fn check_writable(&self) -> Result<()> {
        match self.store.health() {
            Health::DiskLow {
                free_bytes,
                watermark_bytes,
            } => Err(EngineError::DiskFull {
                free_bytes,
                watermark_bytes,
            }),
            Health::WritesRefused { reason } => Err(BackendError::Unavailable {
                reason: format!("writes are refused: {reason}"),
                retry_after: REFUSED_RETRY,
            }
            .into()),
            _ => Ok(()),
        }
    }
}

impl WriteOutcome {
    /// Returns the reason of the first reject that waits for `what`.
    pub fn first_waiting_for(&self, what: WaitsFor) -> Option<&RejectReason> {
        let mut reasons = self.rejects.iter().map(|reject| &reject.reason);
        reasons.find(|reason| reason.waits_for() == Some(what))
    }

    fn remember(&self, digest: u128) -> Vec<u8> {
        let kept = || self.rejects.iter().take(REMEMBERED_REJECTS_MAX);
        let retryable = kept()
            .enumerate()
            .filter(|(_, reject)| reject.reason.is_retryable());
        let remembered = Remembered {
            points: self.points,
            values: self.values,
            rejected: self.rejected,
            retryable: self.retryable,
            rejects: kept()
                .map(|reject| (reject.line, reject.reason.to_string(), reject.excerpt.clone()))
                .collect(),
            retryable_rejects: Some(retryable.map(|(index, _)| index).collect()),
            digest: Some(format!("{digest:032x}")),
        };
        serde_json::to_vec(&remembered).expect("plain structures always serialise")
    }
}

/// Decodes the stored outcome of a request and checks that the request is the same.
fn remembered(outcome: &[u8], request: &IdempotentRequest) -> Result<WriteOutcome> {
    let stored: Remembered = serde_json::from_slice(outcome).map_err(|error| StoreError::StoredRow {
        what: "outcome of an earlier request",
        reason: error.to_string(),
    })?;
    let digest = format!("{:032x}", request.digest);
    if stored.digest.is_some_and(|stored| stored != digest) {
        return Err(EngineError::KeyReused(request.key.clone()));
    }
    let is_retryable = |index: usize| match &stored.retryable_rejects {
        Some(indexes) => indexes.contains(&index),
        // Outcomes of earlier builds do not mark the retryable lines. If one reject may be retryable, all are marked:
        // sending a line again does no harm.
        None => stored.retryable > 0,
    };
    let rejects = stored.rejects.into_iter().enumerate();
    let rejects = rejects.map(|(index, (line, text, excerpt))| LineReject {
        line,
        reason: RejectReason::Remembered(Box::new(RememberedReject {
            text,
            is_retryable: is_retryable(index),
        })),
        excerpt,
    });
    Ok(WriteOutcome {
        points: stored.points,
        values: stored.values,
        rejected: stored.rejected,
        retryable: stored.retryable,
        rejects: rejects.collect(),
        repeated: true,
    })
}

fn request_key(key: &str) -> Result<[u8; 16]> {
    if key.is_empty() {
        return Err(EngineError::Invalid(
            "an idempotency key must not be empty".into(),
        ));
    }
    if key.len() > REQUEST_KEY_BYTES_MAX {
        let (limit, actual) = (REQUEST_KEY_BYTES_MAX as u64, key.len() as u64);
        return Err(EngineError::OverLimit {
            what: "idempotency key",
            limit,
            actual,
        });
    }
    Ok(xxh3_128(key.as_bytes()).to_be_bytes())
}

/// Returns true if lines were rejected because of the restriction of the token.
fn has_lines_of_others(outcome: &WriteOutcome) -> bool {
    let mut rejects = outcome.rejects.iter();
    rejects.any(|reject| matches!(reject.reason, RejectReason::OutsideOfToken(_)))
}

/// Counts the lines that may be stored later.
fn retryable(rejects: &[LineReject]) -> u64 {
    let retryable = rejects.iter().filter(|reject| reject.reason.is_retryable());
    retryable.count() as u64
}

/// Returns the shape of a group after rejecting rows that contradict the schema; `None` if no row is left.
fn shape_of_good_rows(
    table: &Table,
    group: &mut PointGroup,
    rejects: &mut Vec<LineReject>,
) -> Result<Option<Arc<Shape>>> {
    let schema = table.points.schema();
    while group.rows() > 0 {
        match schema.shape(group.measurements.names(), &group.fields, &group.columns) {
            Ok(shape) => return Ok(Some(shape)),
            // Concurrent writes may register types, so the remaining rows can conflict again.
            Err(StoreError::TypeConflict(_)) => reject_conflicts(schema, group, rejects),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// Rejects the rows of each measurement for which the field types of the group contradict the schema.
fn reject_conflicts(schema: &TableSchema, group: &mut PointGroup, rejects: &mut Vec<LineReject>) {
    let mut reasons = vec![None; group.measurements.names().len()];
    for (index, error) in schema.conflicts(group.measurements.names(), &group.fields, &group.columns) {
        reasons[index] = Some(Arc::new(error));
    }
    let reason = |row: usize| reasons[group.measurements.name_index(row)].as_ref();
    let keep: Vec<bool> = (0..group.rows()).map(|row| reason(row).is_none()).collect();
    rejects.extend((0..group.rows()).filter_map(|row| {
        Some(LineReject {
            line: group.lines[row],
            reason: RejectReason::TypeConflict(Arc::clone(reason(row)?)),
            excerpt: group.measurements.of(row).chars().take(80).collect(),
        })
    }));
    keep_rows(group, &keep);
}

/// Returns the shape of each group of a delta.
fn shapes_of(table: &Table, delta: &Delta) -> Result<Vec<Arc<Shape>>> {
    let schema = table.points.schema();
    let shape_of =
        |group: &DeltaGroup| schema.shape(group.measurements.names(), &group.fields, &group.columns);
    let shapes = delta.groups.iter().map(shape_of);
    Ok(shapes.collect::<std::result::Result<_, _>>()?)
}

/// Moves the groups into the delta and replaces ordinals by indexes in its list of timelines. Adds the identities of
/// timelines that are not in the journal yet. Returns the number of rows of each timeline.
fn name_timelines(table: &Table, groups: Vec<PointGroup>, delta: &mut Delta) -> Vec<u32> {
    let reader = table.catalog.reader();
    let mut indexes = TimelineIndexes::default();
    let mut rows: Vec<u32> = Vec::new();
    for group in groups {
        let index = |ordinal: Ordinal| {
            let index = indexes.of(ordinal);
            if index as usize == rows.len() {
                if reader.needs_identity(ordinal) {
                    delta.new_timelines.push(introduced(&reader, ordinal));
                }
                delta.timelines.push(reader.id(ordinal));
                rows.push(0);
            }
            rows[index as usize] += 1;
            index
        };
        let PointGroup {
            timelines,
            measurements,
            fields,
            columns,
            timestamps,
            ..
        } = group;
        delta.groups.push(DeltaGroup {
            measurements,
            fields,
            columns,
            // Reuses the memory of the ordinals.
            timelines: timelines.into_iter().map(index).collect(),
            timestamps,
        });
    }
    rows
}

/// Index of each timeline in a delta. Ordinals are assigned in order of first appearance, and senders keep that
/// order. Therefore most ordinals are higher than all previous ones; such an ordinal is new and needs no look-up.
#[derive(Debug, Default)]
struct TimelineIndexes {
    ordinals: Vec<Ordinal>,
    /// Index of each ordinal; empty until an ordinal arrives that is lower than the previous one.
    by_ordinal: HashMap<Ordinal, u32>,
}

impl TimelineIndexes {
    /// Returns the index of a timeline. A new timeline gets the next free index.
    fn of(&mut self, ordinal: Ordinal) -> u32 {
        let next = u32::try_from(self.ordinals.len()).expect("rows of a request are bounded by its body");
        if self.by_ordinal.is_empty() {
            let last = self.ordinals.last();
            if last == Some(&ordinal) {
                return next - 1;
            }
            if last.is_none_or(|last| *last < ordinal) {
                self.ordinals.push(ordinal);
                return next;
            }
            self.by_ordinal = self.ordinals.iter().copied().zip(0..).collect();
        }
        *self.by_ordinal.entry(ordinal).or_insert_with(|| {
            self.ordinals.push(ordinal);
            next
        })
    }
}

/// Determines again which timelines of a delta need their identity, because some were removed after they were looked
/// up.
fn introduce_again(table: &Table, delta: &mut Delta) {
    let reader = table.catalog.reader();
    let not_durable = delta.timelines.iter().filter_map(|id| reader.not_durable(*id));
    delta.new_timelines = not_durable.map(|ordinal| introduced(&reader, ordinal)).collect();
}

pub(crate) fn introduced(reader: &CatalogReader<'_>, ordinal: Ordinal) -> NewTimeline {
    let mut identity = Vec::new();
    reader.encode_identity(ordinal, &mut identity);
    NewTimeline {
        id: reader.id(ordinal),
        ordinal,
        identity,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_has_one_place_in_whatever_order_they_come() {
        let mut indexes = TimelineIndexes::default();
        let of: Vec<u32> = [3, 3, 5, 9, 9, 4, 5, 10, 3, 10, 9]
            .map(|ordinal| indexes.of(Ordinal(ordinal)))
            .to_vec();
        assert_eq!(of, [0, 0, 1, 2, 2, 3, 1, 4, 0, 4, 2]);
    }

    #[test]
    fn outcomes_of_earlier_builds_lose_no_line_that_may_be_stored_later() {
        let request = IdempotentRequest::new("k".into(), b"", &[]);
        let retryable = |more: &str| {
            let stored = format!(
                r#"{{"points":1,"values":1,"rejected":2,"retryable":1,"rejects":[[1,"a","x"],[2,"b","y"]]{more}}}"#
            );
            let outcome = remembered(stored.as_bytes(), &request).expect("it is read");
            let rejects = outcome.rejects.iter();
            rejects
                .map(|reject| reject.reason.is_retryable())
                .collect::<Vec<_>>()
        };
        assert_eq!(retryable(""), [true, true]);
        assert_eq!(retryable(r#","retryable_rejects":[1]"#), [false, true]);
    }
}
