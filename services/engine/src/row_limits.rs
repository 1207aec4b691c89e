//! Limits of the rates at which the rows of a table, or of its older parts, are read and written.
//!
//! Each limit has one bucket for reads and one for writes. A bucket holds the time until which its rate is used up. A
//! row that is read or written moves this time by its cost divided by the rate. A limit allows up to [`AHEAD`] of its
//! rate at once, so that short bursts pass. Beyond that, new requests are refused.
//!
//! A request that has begun to read under a limit is not refused in the middle: it waits between two rows until its own
//! reads are within the rate ([`PacedReads`]), for at most [`WAIT_MAX`] in total. A limit under which the request has
//! not read yet still refuses it. Therefore gets and searches check all of their keys before the first row
//! ([`Engine::admit_reads`]).

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tideline_model::time::format_duration;
use tideline_model::{KeyRange, LIMIT_UNIT_BYTES, RowLimit, TableId};
use tideline_wide_table::{Action, CellValue, Column, PartNumbers, RowWrite, StoredRow};

use crate::activity::Activity;
use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::row_load::RowAccess;
use crate::wide_table::WideTable;

/// Time for which the rate of a bucket may be used ahead.
const AHEAD: Duration = Duration::from_secs(5);
/// Maximum time for which a request waits in total.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Time between two checks of a request that waits.
const WAIT_STEP: Duration = Duration::from_millis(20);
/// Number of buckets above which the buckets of removed limits are dropped.
const BUCKETS_MAX: usize = 32;

thread_local! {
    /// Reads of the request that runs on this thread.
    static PACE: RefCell<Option<Pace>> = const { RefCell::new(None) };
}

/// Reads of a request that waits between two rows.
#[derive(Debug, Default)]
struct Pace {
    /// Latest time at which the rates are available again after the reads of this request. Later reads of other
    /// requests do not change it. `None` before the first row of the request.
    free_at: Option<Duration>,
    /// Limits under which the request has begun to read: table and age.
    begun: BTreeSet<(TableId, Option<i64>)>,
    /// Number of steps that the request has waited.
    waits: u128,
    /// Activity of the table whose rate was used last.
    activity: Option<Arc<Activity>>,
    /// True if no limit refuses or delays the work on this thread.
    is_unlimited: bool,
    /// True if the request has waited for too long, so that its next read is refused.
    is_over: bool,
}

/// Guard of a request on this thread: its reads wait for the rate limits instead of being refused.
#[derive(Debug)]
pub struct PacedReads(());

impl PacedReads {
    /// Begins a request on this thread.
    pub fn begin() -> Self {
        PACE.set(Some(Pace::default()));
        Self(())
    }

    /// Begins work on this thread that no limit refuses or delays, for example a job. It counts against the limits.
    pub fn unlimited() -> Self {
        PACE.set(Some(Pace {
            is_unlimited: true,
            ..Pace::default()
        }));
        Self(())
    }
}

impl Drop for PacedReads {
    fn drop(&mut self) {
        PACE.set(None);
    }
}

/// Buckets of the limits of one table, and counts since the start.
#[derive(Debug, Default)]
pub(crate) struct RowRates {
    /// Monotonic time until which a rate is used up, by the age of the limit and the access.
    used_until: Mutex<BTreeMap<(Option<i64>, RowAccess), Duration>>,
    refusals: AtomicU64,
    waited_ms: AtomicU64,
}

/// Refusals and waits for the limits of a table since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowLimitCounts {
    /// Number of refused reads and writes.
    pub refusals: u64,
    /// Time that reads have waited.
    pub waited: Duration,
}

impl Engine {
    /// Returns the refusals and waits for the limits of a table since the start.
    pub fn row_limit_counts(&self, table: &crate::tables::Table) -> RowLimitCounts {
        let rates = &table.activity.row_rates;
        RowLimitCounts {
            refusals: rates.refusals.load(Ordering::Relaxed),
            waited: Duration::from_millis(rates.waited_ms.load(Ordering::Relaxed)),
        }
    }

    /// Waits until the rates allow the rows that the request on this thread has read, for at most 10 s in total. After
    /// that, the next read is refused. Calls `is_stopped` every 20 milliseconds, and ends early if it returns true.
    pub fn wait_for_row_rate(&self, is_stopped: &dyn Fn() -> bool) {
        // No event ends the wait early: only time passes, and the request may be cancelled.
        let (never, silence) = (Condvar::new(), Mutex::new(()));
        while PACE.with_borrow_mut(|pace| self.has_to_wait(pace.as_mut())) && !is_stopped() {
            never.wait_for(&mut silence.lock(), WAIT_STEP);
        }
    }

    fn has_to_wait(&self, pace: Option<&mut Pace>) -> bool {
        let Some(pace) = pace else { return false };
        let Some(free_at) = pace.free_at else { return false };
        if pace.is_over || pace.is_unlimited || free_at.saturating_sub(self.clock.monotonic()) <= AHEAD {
            return false;
        }
        pace.is_over = pace.waits >= WAIT_MAX.as_millis() / WAIT_STEP.as_millis();
        if !pace.is_over {
            pace.waits += 1;
            if let Some(activity) = &pace.activity {
                let waited = WAIT_STEP.as_millis() as u64;
                activity.row_rates.waited_ms.fetch_add(waited, Ordering::Relaxed);
            }
        }
        !pace.is_over
    }

    /// Checks the limits of all rows that a request is about to read, so that the request is refused before it reads a
    /// row.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::RateLimited`] if the rate of a limit that applies to one of the keys is used up.
    pub fn admit_reads<'k>(&self, table: &WideTable, keys: impl Iterator<Item = &'k [u8]>) -> Result<()> {
        self.admit_rows(table, RowAccess::Read, keys)
    }

    /// Returns an error if the rate of a limit that applies to one of the keys is used up.
    pub(crate) fn admit_rows<'k>(
        &self,
        table: &WideTable,
        access: RowAccess,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<()> {
        let limits = &table.settings().limits;
        if limits.is_empty() {
            return Ok(());
        }
        let ages = self.ages(table);
        for key in keys {
            for limit in self.limits_of(table, &ages, key)? {
                self.admit(table, access, limit)?;
            }
        }
        Ok(())
    }

    /// Returns an error if a rate is used up: of a limit that applies to the table, or of a limit that applies to a
    /// part that a range of keys can reach. `parts` are the numbers of the parts that are accessed.
    pub(crate) fn admit_range(
        &self,
        table: &WideTable,
        access: RowAccess,
        range: &KeyRange,
        parts: &PartNumbers,
    ) -> Result<()> {
        let limits = &table.settings().limits;
        if limits.is_empty() {
            return Ok(());
        }
        let id = table.table().points().id();
        // The parts below the bound of an older limit belong to that limit.
        let mut from = i32::MIN;
        for (bound, limit) in self.ages(table) {
            let reached = from.max(*parts.start())..=bound.saturating_sub(1).min(*parts.end());
            from = bound;
            if !reached.is_empty() && self.rows.reaches_parts(id, range, &reached)? {
                self.admit(table, access, limit)?;
            }
        }
        limits
            .iter()
            .filter(|limit| limit.older_than.is_none())
            .try_for_each(|limit| self.admit(table, access, limit))
    }

    fn admit(&self, table: &WideTable, access: RowAccess, limit: &RowLimit) -> Result<()> {
        let Some(rate) = rate_of(limit, access) else {
            return Ok(());
        };
        let rates = &table.table().activity.row_rates;
        let used = rates.used_until.lock().get(&(limit.older_than, access)).copied();
        let ahead = used.unwrap_or_default().saturating_sub(self.clock.monotonic());
        let is_running = PACE.with_borrow_mut(|pace| {
            let Some(pace) = pace else { return false };
            let of_request = (table.table().points().id(), limit.older_than);
            if access == RowAccess::Read && ahead <= AHEAD {
                pace.begun.insert(of_request);
            }
            let has_begun = access == RowAccess::Read && pace.begun.contains(&of_request);
            has_begun && !pace.is_over || pace.is_unlimited
        });
        if ahead <= AHEAD || is_running {
            return Ok(());
        }
        rates.refusals.fetch_add(1, Ordering::Relaxed);
        Err(EngineError::RateLimited {
            table: table.table().name().clone(),
            what: match access {
                RowAccess::Read => "reads",
                RowAccess::Write => "writes",
            },
            of: match limit.older_than {
                Some(age) => format!("parts that ended {} ago or earlier", format_duration(age)),
                None => "the table".to_owned(),
            },
            rate,
            retry_after: ahead - AHEAD,
        })
    }

    /// Charges a row that was read to the limits that apply to the row. A row that does not exist has 0 bytes.
    pub(crate) fn charge_read(&self, table: &WideTable, key: &[u8], bytes: usize) -> Result<()> {
        self.charge_tenant_read(bytes as u64);
        self.charge(table, RowAccess::Read, std::iter::once((key, bytes)))
    }

    /// Charges the contents of large values of a row to the tenant of this handle. `bytes` is the size of the row
    /// without them, which is charged already.
    pub(crate) fn charge_contents(&self, bytes: usize, whole: Option<&StoredRow>) {
        let contents = whole.map_or(0, |row| row.bytes().saturating_sub(bytes));
        if contents > 0 {
            self.charge_tenant_read(contents as u64);
        }
    }

    /// Charges rows that were read to the limits that apply to the rows.
    pub(crate) fn charge_reads(&self, table: &WideTable, rows: &[StoredRow]) -> Result<()> {
        self.charge_tenant_read(rows.iter().map(|row| row.bytes() as u64).sum());
        let rows = rows.iter().map(|row| (&row.key[..], row.bytes()));
        self.charge(table, RowAccess::Read, rows)
    }

    /// Charges rows that are written to the limits that apply to the rows.
    pub(crate) fn charge_writes(&self, table: &WideTable, writes: &[RowWrite<'_>]) -> Result<()> {
        let writes = writes.iter().map(|write| (&write.key[..], bytes_of(write)));
        self.charge(table, RowAccess::Write, writes)
    }

    /// Charges rows, given by their keys and sizes, to the limits that apply to the rows.
    pub(crate) fn charge<'k>(
        &self,
        table: &WideTable,
        access: RowAccess,
        rows: impl Iterator<Item = (&'k [u8], usize)>,
    ) -> Result<()> {
        let limits = &table.settings().limits;
        if limits.is_empty() {
            return Ok(());
        }
        let ages = self.ages(table);
        let mut costs: BTreeMap<Option<i64>, (u64, u64)> = BTreeMap::new();
        for (key, bytes) in rows {
            for limit in self.limits_of(table, &ages, key)? {
                if let Some(rate) = rate_of(limit, access) {
                    let cost = (bytes as u64).div_ceil(LIMIT_UNIT_BYTES).max(1);
                    costs.entry(limit.older_than).or_insert((rate, 0)).1 += cost;
                }
            }
        }
        let now = self.clock.monotonic();
        let mut last = Duration::ZERO;
        let mut used_until = table.table().activity.row_rates.used_until.lock();
        for (age, (rate, cost)) in costs {
            let used = used_until.entry((age, access)).or_default();
            *used = (*used).max(now) + Duration::from_secs_f64(cost as f64 / rate as f64);
            last = last.max(*used);
        }
        if used_until.len() > BUCKETS_MAX {
            used_until.retain(|(age, _), _| limits.iter().any(|limit| limit.older_than == *age));
        }
        drop(used_until);
        if access == RowAccess::Read {
            PACE.with_borrow_mut(|pace| {
                if let Some(pace) = pace {
                    pace.free_at = Some(pace.free_at.unwrap_or_default().max(last));
                    pace.activity = Some(Arc::clone(&table.table().activity));
                }
            });
        }
        Ok(())
    }

    /// Returns the limits of older parts, oldest first, each with the number of the first part that is too new for it.
    fn ages<'t>(&self, table: &'t WideTable) -> Vec<(i32, &'t RowLimit)> {
        let settings = table.settings();
        let Some(parts) = &settings.parts else {
            return Vec::new();
        };
        let now = self.now().nanos();
        let aged = settings.limits.iter();
        let aged = aged.filter_map(|limit| {
            Some((
                parts.first_within(limit.older_than, now),
                limit,
                limit.older_than?,
            ))
        });
        let mut aged: Vec<(i32, &RowLimit, i64)> = aged.collect();
        aged.sort_by_key(|(_, _, age)| std::cmp::Reverse(*age));
        aged.into_iter().map(|(bound, limit, _)| (bound, limit)).collect()
    }

    /// Returns the limits that apply to a key: the limit of the table, and the limit of the highest age that its part
    /// has reached.
    fn limits_of<'t>(
        &self,
        table: &'t WideTable,
        ages: &[(i32, &'t RowLimit)],
        key: &[u8],
    ) -> Result<impl Iterator<Item = &'t RowLimit>> {
        let mut aged = None;
        if !ages.is_empty() {
            let number = self.rows.part_number(table.table().points().id(), key)?;
            let found = ages.iter().find(|(bound, _)| number < *bound);
            aged = found.map(|(_, limit)| *limit);
        }
        let of_table = table.settings().limits.iter();
        Ok(of_table.filter(|limit| limit.older_than.is_none()).chain(aged))
    }
}

fn rate_of(limit: &RowLimit, access: RowAccess) -> Option<u64> {
    match access {
        RowAccess::Read => limit.reads_per_second,
        RowAccess::Write => limit.writes_per_second,
    }
}

/// Returns the size of a write: its key and the values of its columns.
fn bytes_of(write: &RowWrite<'_>) -> usize {
    let of_columns = match &write.action {
        Action::Put(columns) | Action::Create(columns) => bytes_of_columns(columns),
        Action::Update(update) => bytes_of_columns(&update.columns),
        Action::Delete => 0,
    };
    write.key.len().saturating_add(of_columns)
}

fn bytes_of_columns(columns: &[Column<'_>]) -> usize {
    let versions = columns.iter().flat_map(|column| &column.versions);
    let values = versions.map(|version| match &version.value {
        CellValue::String(text) | CellValue::Json(text) => text.len(),
        CellValue::Binary(bytes) => bytes.len(),
        CellValue::Large(value) => usize::try_from(value.bytes).unwrap_or(usize::MAX),
        _ => 8,
    });
    values.fold(0, usize::saturating_add)
}
