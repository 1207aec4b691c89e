//! From a decoded batch to acknowledged points.
//!
//! 1. Before the body is decoded: answer a repeated idempotency key from memory; refuse it with another body.
//! 2. Drop rows outside the table's bounds of past and future or past its retention, and groups whose types contradict the schema;
//!    each becomes a reject with its line.
//! 3. Turn the rest into a delta ([`crate::line_order`] says when into several): timelines by id, new ones with
//!    their identity.
//! 4. Commit it: journal, sync, head; its timelines are visible from then on. Where timelines were removed meanwhile,
//!    step 3 says anew which identities the delta has to carry.
//! 5. Wake the indexer if there are new ones, and answer.

use std::sync::Arc;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use tideline_backend::{Health, VALUE_BYTES_MAX};
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
use crate::heat::Kind;
use crate::line_order::{ShapedGroup, in_line_order, keep_rows};
use crate::tables::Table;

/// Longest idempotency key, in bytes.
pub const REQUEST_KEY_BYTES_MAX: usize = 255;
/// Times that a write is committed anew because timelines were removed meanwhile.
const NAMED_AGAIN_MAX: usize = 64;
/// Rejects that a remembered outcome keeps word for word; the count is always exact.
const REMEMBERED_REJECTS_MAX: usize = 100;

/// Settings of one write.
#[derive(Debug, Default)]
pub struct WriteOptions<'e> {
    /// What the acknowledgement promises; `None` = the table's setting.
    pub durability: Option<Durability>,
    /// The request with an idempotency key: its outcome is remembered with its points.
    pub request: Option<RunningRequest<'e>>,
}

/// An idempotency key and the digest of the request that bears it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotentRequest {
    key: String,
    digest: u128,
}

impl IdempotentRequest {
    /// Digests a request: its decompressed body, and whatever else decides what the body says, such as its format.
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

/// The beginning of a request with an idempotency key.
#[derive(Debug)]
pub enum RequestStart<'e> {
    /// The key is new; its points are to be written.
    New(RunningRequest<'e>),
    /// The outcome of the earlier request with the key; nothing is to be written.
    Repeated(WriteOutcome),
}

/// The claim of a request on its idempotency key: until it is dropped, other requests with the key are refused.
#[derive(Debug)]
pub struct RunningRequest<'e> {
    engine: &'e Engine,
    table: TableId,
    key: [u8; 16],
    digest: u128,
}

impl Drop for RunningRequest<'_> {
    fn drop(&mut self) {
        let mut running = self.engine.running_requests.lock();
        running.remove(&(self.table, self.key));
    }
}

/// What became of a batch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WriteOutcome {
    /// Points stored.
    pub points: u64,
    /// Field values stored.
    pub values: u64,
    /// Lines rejected, in all.
    pub rejected: u64,
    /// Lines among them that may be stored when they are sent again later: their table takes only so many new
    /// timelines a minute, or the clock is in doubt.
    pub retryable: u64,
    /// The rejects, in line order; a remembered outcome keeps the first hundred.
    pub rejects: Vec<LineReject>,
    /// Whether this is the answer to an earlier request with the same key.
    pub repeated: bool,
}

/// The remembered form of an outcome.
#[derive(Debug, Serialize, Deserialize)]
struct Remembered {
    points: u64,
    values: u64,
    rejected: u64,
    #[serde(default)]
    retryable: u64,
    /// Line, wording and excerpt of each reject that is kept.
    rejects: Vec<(u32, String, String)>,
    /// Places of those among them that are retryable. Absent in outcomes of earlier builds.
    #[serde(default)]
    retryable_rejects: Option<Vec<usize>>,
    /// The digest of the request, in hexadecimal. Absent in outcomes of earlier builds, which any body repeats.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

impl Engine {
    /// Looks an idempotency key up, once, and claims it where it is new. A request begins before its body is decoded.
    ///
    /// # Errors
    ///
    /// [`EngineError::KeyReused`] where the earlier request was another one, [`EngineError::RequestRunning`] while it runs.
    pub fn begin_request(&self, table: &Table, request: &IdempotentRequest) -> Result<RequestStart<'_>> {
        let (id, key) = (table.points.id(), request_key(&request.key)?);
        let earlier = {
            let mut running = self.running_requests.lock();
            if running.contains(&(id, key)) {
                return Err(EngineError::RequestRunning);
            }
            // A claim is given up after its outcome is remembered, so under this lock there is one or the other.
            let earlier = self.store.request_outcome(&table.points, key);
            if earlier.is_none() {
                running.insert((id, key));
            }
            earlier
        };
        Ok(match earlier {
            Some(outcome) => RequestStart::Repeated(remembered(&outcome, request)?),
            None => RequestStart::New(RunningRequest {
                engine: self,
                table: id,
                key,
                digest: request.digest,
            }),
        })
    }

    /// Stores the good rows of a batch and reports what was wrong with the others.
    ///
    /// `Ok` means durable as asked. An error of kind `Unavailable` means unknown: sending the same batch again
    /// is safe where its points carry timestamps or the request a key. Blocks for a group commit.
    pub fn write(
        &self,
        table: &Table,
        batch: PointBatch,
        options: &WriteOptions<'_>,
    ) -> Result<WriteOutcome> {
        self.check_writable()?;
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
        // Where nothing is stored and the same may be stored later, the request is not done.
        if points == 0 && (options.request.is_none() || outcome.retryable > 0) {
            return Ok(outcome);
        }
        // Nor is it done where lines wait for the clock: the others bear a time, so they may be stored twice.
        let waits_for_clock = outcome.first_waiting_for(WaitsFor::Clock).is_some();
        let request = options.request.as_ref().filter(|_| !waits_for_clock);
        let mut request = request.map(|request| RequestRecord {
            key: request.key,
            outcome: outcome.remember(request.digest),
        });
        let durability = options.durability.unwrap_or(spec.durability);
        let mut parts = parts.into_iter().peekable();
        while let Some(groups) = parts.next() {
            // The outcome is remembered with the last part: before it, the request is not done.
            let request = if parts.peek().is_none() {
                request.take()
            } else {
                None
            };
            self.commit(table, groups, request, durability)?;
        }
        Ok(outcome)
    }

    /// Points before this instant are refused, since they have expired. None are while the clock is unsure: what a
    /// wrong one hides shows again, but what is refused is lost.
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
            .heat
            .note(self.clock.monotonic(), Kind::Write, weighted);
        if self.commit_named(table, delta, shapes, durability, generation)? {
            self.index.notify();
        }
        Ok(())
    }

    /// Commits a delta, in parts where it may be too large for an entry of the journal; whether it has introduced timelines.
    /// `generation` is from before they were named.
    pub(crate) fn commit_named(
        &self,
        table: &Table,
        delta: Delta,
        mut shapes: Vec<Arc<Shape>>,
        durability: Durability,
        mut generation: u64,
    ) -> Result<bool> {
        // Shared with the log for as long as it is written, and ours again where it is refused.
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
                        what: "one point with its names, in bytes as it is journalled,",
                        limit: VALUE_BYTES_MAX as u64,
                        actual: bytes as u64,
                    });
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::TimelinesRemoved.into())
    }

    /// Commits a delta as two.
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

    fn check_writable(&self) -> Result<()> {
        match self.store.health() {
            Health::DiskLow {
                free_bytes,
                watermark_bytes,
            } => Err(EngineError::DiskFull {
                free_bytes,
                watermark_bytes,
            }),
            _ => Ok(()),
        }
    }
}

impl WriteOutcome {
    /// The reason of the first reject that waits for this.
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
            retryable_rejects: Some(retryable.map(|(place, _)| place).collect()),
            digest: Some(format!("{digest:032x}")),
        };
        serde_json::to_vec(&remembered).expect("plain structures always serialise")
    }
}

/// The outcome that is remembered for a request.
fn remembered(outcome: &[u8], request: &IdempotentRequest) -> Result<WriteOutcome> {
    let stored: Remembered = serde_json::from_slice(outcome).map_err(|error| StoreError::StoredRow {
        what: "outcome of an earlier request",
        reason: error.to_string(),
    })?;
    let digest = format!("{:032x}", request.digest);
    if stored.digest.is_some_and(|stored| stored != digest) {
        return Err(EngineError::KeyReused(request.key.clone()));
    }
    let is_retryable = |place: usize| match &stored.retryable_rejects {
        Some(places) => places.contains(&place),
        // Sending one line too many again does no harm.
        None => stored.retryable > 0,
    };
    let rejects = stored.rejects.into_iter().enumerate();
    let rejects = rejects.map(|(place, (line, text, excerpt))| LineReject {
        line,
        reason: RejectReason::Remembered(Box::new(RememberedReject {
            text,
            is_retryable: is_retryable(place),
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
        return Err(EngineError::Invalid("an idempotency key is not empty".into()));
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

/// Counts the lines that may be stored later.
fn retryable(rejects: &[LineReject]) -> u64 {
    let retryable = rejects.iter().filter(|reject| reject.reason.is_retryable());
    retryable.count() as u64
}

/// The shape of a group, whose rows that contradict the schema become rejects; `None` where no row is left.
fn shape_of_good_rows(
    table: &Table,
    group: &mut PointGroup,
    rejects: &mut Vec<LineReject>,
) -> Result<Option<Arc<Shape>>> {
    let schema = table.points.schema();
    while group.rows() > 0 {
        match schema.shape(group.measurements.names(), &group.fields, &group.columns) {
            Ok(shape) => return Ok(Some(shape)),
            // Others may register types meanwhile, so what passes this may be refused once more.
            Err(StoreError::TypeConflict(_)) => reject_conflicts(schema, group, rejects),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// Takes the rows of measurements that contradict the schema out of a group.
fn reject_conflicts(schema: &TableSchema, group: &mut PointGroup, rejects: &mut Vec<LineReject>) {
    let mut reasons = vec![None; group.measurements.names().len()];
    for (place, error) in schema.conflicts(group.measurements.names(), &group.fields, &group.columns) {
        reasons[place] = Some(Arc::new(error));
    }
    let reason = |row: usize| reasons[group.measurements.place(row)].as_ref();
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

/// The shape of each group of a delta.
fn shapes_of(table: &Table, delta: &Delta) -> Result<Vec<Arc<Shape>>> {
    let schema = table.points.schema();
    let shape_of =
        |group: &DeltaGroup| schema.shape(group.measurements.names(), &group.fields, &group.columns);
    let shapes = delta.groups.iter().map(shape_of);
    Ok(shapes.collect::<std::result::Result<_, _>>()?)
}

/// Moves the groups into the delta: timelines by place in its list of ids, unannounced ones with their identity.
/// Returns how many rows each timeline has.
fn name_timelines(table: &Table, groups: Vec<PointGroup>, delta: &mut Delta) -> Vec<u32> {
    let reader = table.catalog.reader();
    let mut places = Places::default();
    let mut rows: Vec<u32> = Vec::new();
    for group in groups {
        let place = |ordinal: Ordinal| {
            let place = places.of(ordinal);
            if place as usize == rows.len() {
                if reader.needs_announcement(ordinal) {
                    delta.new_timelines.push(introduced(&reader, ordinal));
                }
                delta.timelines.push(reader.id(ordinal));
                rows.push(0);
            }
            rows[place as usize] += 1;
            place
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
            // In the memory that the ordinals have.
            timelines: timelines.into_iter().map(place).collect(),
            timestamps,
        });
    }
    rows
}

/// The place of each timeline of a delta. Ordinals are given in the order in which timelines first came, and senders keep
/// that order, so mostly each is higher than all before it: then it is new, and nothing is looked up.
#[derive(Debug, Default)]
struct Places {
    ordinals: Vec<Ordinal>,
    /// Of all of them, once one came out of order.
    by_ordinal: HashMap<Ordinal, u32>,
}

impl Places {
    /// The place of a timeline: the next one where it is new.
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

/// Says anew which timelines of a delta need their identity: some of them were removed since they were named.
fn introduce_again(table: &Table, delta: &mut Delta) {
    let reader = table.catalog.reader();
    let unannounced = delta.timelines.iter().filter_map(|id| reader.unannounced(*id));
    delta.new_timelines = unannounced.map(|ordinal| introduced(&reader, ordinal)).collect();
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
        let mut places = Places::default();
        let of: Vec<u32> = [3, 3, 5, 9, 9, 4, 5, 10, 3, 10, 9]
            .map(|ordinal| places.of(Ordinal(ordinal)))
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
