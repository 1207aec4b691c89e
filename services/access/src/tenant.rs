//! Tenants: owners of tables, with budgets.
//!
//! A tenant has the tables with certain names and prefixes. A token that acts for the tenant reaches only these
//! tables, and its requests are charged to the budgets of the tenant. No table belongs to two tenants.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tideline_model::{TableName, Tier};
use tideline_runtime::MemoryAccount;

use crate::scope::{PATTERNS_MAX, Scope, TablePattern};

/// Longest name of a tenant, in bytes.
pub const TENANT_NAME_BYTES_MAX: usize = 64;
/// Period of a burst of points: the points that the budget allows in this period can be written at once. Agents
/// send the points of ten seconds in one request.
const POINTS_BURST: Duration = Duration::from_secs(10);
/// Period of a burst of new timelines.
const TIMELINES_BURST: Duration = Duration::from_secs(60);
/// Period of a burst of bytes that are read. A dashboard reads all its data at once, and then nothing for a while.
const READ_BURST: Duration = Duration::from_secs(10);
/// Divisor of a limit of the server: a tenant without a budget of its own may use one part of so many.
const PARTS: u64 = 10;

/// Tenant as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantRecord {
    /// Name, 1 to 64 letters, digits, dots, dashes and underscores.
    pub name: String,
    /// Tables of the tenant: names and prefixes; at least one.
    pub tables: Vec<TablePattern>,
    /// Table of requests that name no table; `None` if such requests are refused.
    #[serde(default)]
    pub default_table: Option<TableName>,
    /// Budgets.
    #[serde(default)]
    pub budgets: Budgets,
    /// Creation time, nanoseconds since the epoch.
    pub created: i64,
    /// Principal that created the tenant.
    #[serde(default)]
    pub created_by: String,
}

/// Limits of all requests for a tenant together. `None` is no limit, or for a number of objects a part of the limit of
/// the server ([`part_of`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budgets {
    /// Points, rows and messages written per second, averaged over ten seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub points_per_second: Option<u64>,
    /// New timelines in all tables per minute. All timelines of a minute may be created at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_timelines_per_minute: Option<u64>,
    /// Maximum number of concurrent requests that read. Watches do not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queries: Option<u64>,
    /// Timelines of all tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timelines: Option<u64>,
    /// Bytes in the hot tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hot_bytes: Option<u64>,
    /// Bytes in the cold tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_bytes: Option<u64>,
    /// Bytes of files in the archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archive_bytes: Option<u64>,
    /// Bytes of stored data read per second, averaged over ten seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_read_per_second: Option<u64>,
    /// Bytes of memory of all requests at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Number of tables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tables: Option<u64>,
    /// Number of change streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_streams: Option<u64>,
}

/// Data of a tenant, as last measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoredData {
    /// Timelines.
    pub timelines: u64,
    /// Bytes of the hot tier, the cold tier and the archive.
    pub tier_bytes: [u64; 3],
}

impl StoredData {
    /// Adds other data.
    pub fn add(&mut self, other: &Self) {
        self.timelines += other.timelines;
        for (sum, bytes) in self.tier_bytes.iter_mut().zip(other.tier_bytes) {
            *sum += bytes;
        }
    }
}

/// Tenant with its usage.
#[derive(Debug)]
pub struct Tenant {
    record: TenantRecord,
    /// Number that no other tenant of the process has.
    number: u32,
    used: Arc<Used>,
    /// False after the tenant has lost tables, or was removed.
    is_current: Arc<AtomicBool>,
}

/// Usage of the budgets of a tenant. It stays when the tenant is changed.
#[derive(Debug, Default)]
struct Used {
    owed_points: Mutex<Owed>,
    owed_timelines: Mutex<Owed>,
    owed_bytes: Mutex<Owed>,
    points: AtomicU64,
    bytes_read: AtomicU64,
    queries: AtomicU64,
    stored: Mutex<Stored>,
    /// Part of the memory account of the process; set when the tenant first has a budget of memory.
    memory: OnceLock<MemoryAccount>,
    refused_writes: AtomicU64,
    refused_timelines: AtomicU64,
    refused_queries: AtomicU64,
    refused_objects: AtomicU64,
}

/// Last measurement of the data.
#[derive(Debug, Clone, Copy, Default)]
struct Stored {
    data: StoredData,
    /// New timelines since the measurement.
    new_timelines: u64,
}

/// Number of used points, timelines or bytes, minus the number that the budget has allowed since.
#[derive(Debug, Clone, Copy, Default)]
struct Owed {
    number: f64,
    at: Duration,
}

impl Owed {
    /// Returns the number that is still owed at a later time, if the budget allows `rate` per second.
    fn after(self, now: Duration, rate: f64) -> f64 {
        let allowed = now.saturating_sub(self.at).as_secs_f64() * rate;
        (self.number - allowed).max(0.0)
    }

    /// Adds a used number, if the budget allows `rate` per second.
    fn charge(&mut self, number: u64, now: Duration, rate: f64) {
        *self = Self {
            number: self.after(now, rate) + number as f64,
            at: now.max(self.at),
        };
    }

    /// Returns the time until less than a burst is owed; `None` if less than a burst is owed now.
    fn over(&self, now: Duration, limit: u64, burst: Duration) -> Option<Duration> {
        let rate = limit as f64;
        let over = self.after(now, rate) / rate - burst.as_secs_f64();
        (over > 0.0).then(|| Duration::try_from_secs_f64(over).unwrap_or(Duration::MAX))
    }
}

/// Figures of a tenant since the start of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantFigures {
    /// Points, rows and messages of its writes, including rejected ones.
    pub points: u64,
    /// Bytes of stored data that were read.
    pub bytes_read: u64,
    /// Running requests that count as queries.
    pub queries: u64,
    /// Bytes of memory of the running requests; 0 without a budget of memory.
    pub memory_bytes: u64,
    /// Data as last measured.
    pub stored: StoredData,
    /// Writes refused by the budgets of points and of stored bytes.
    pub refused_writes: u64,
    /// New timelines refused by their budgets.
    pub refused_timelines: u64,
    /// Requests refused by the budgets of queries and of bytes read.
    pub refused_queries: u64,
    /// Requests refused by the budget of memory.
    pub refused_memory: u64,
    /// New tables and change streams refused by their budgets.
    pub refused_objects: u64,
}

/// Refusal of a request by a budget. The request was not executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverBudget {
    tenant: String,
    budget: Budget,
    /// The limit.
    pub limit: u64,
    /// Time after which a retry can succeed.
    pub retry_after: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Budget {
    Points,
    Queries,
    BytesRead,
    Stored(Tier, u64),
}

/// Refusal of a new table or change stream, because the tenant has as many as its budget allows. Repeating the request
/// does not help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooManyObjects {
    tenant: String,
    kind: ObjectKind,
    /// The limit.
    pub limit: u64,
    /// Number of objects that the tenant would have.
    pub actual: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ObjectKind {
    Tables,
    ChangeStreams,
}

/// Refusal of a new timeline by a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimelinesUsedUp {
    /// The budget of new timelines per minute, with the limit.
    PerMinute(u64),
    /// The budget of timelines, with the limit.
    InTotal(u64),
}

/// Running query of a tenant. Dropping it ends the query.
#[derive(Debug)]
pub struct RunningQuery(Arc<Used>);

/// Smallest budget of memory: a small query reserves a quarter of it.
const MEMORY_BYTES_MIN: u64 = 1 << 20;
/// Time after which a query that was refused because of other running queries can be repeated.
const QUERY_RETRY_AFTER: Duration = Duration::from_secs(1);
/// Time after which a write that was refused because of the stored bytes can be repeated. Data is removed as it ages.
const STORED_RETRY_AFTER: Duration = Duration::from_secs(60);

impl Budgets {
    /// Returns all budgets with their names.
    pub fn named(&self) -> [(&'static str, Option<u64>); 11] {
        [
            ("points_per_second", self.points_per_second),
            ("new_timelines_per_minute", self.new_timelines_per_minute),
            ("queries", self.queries),
            ("timelines", self.timelines),
            ("hot_bytes", self.hot_bytes),
            ("cold_bytes", self.cold_bytes),
            ("archive_bytes", self.archive_bytes),
            ("bytes_read_per_second", self.bytes_read_per_second),
            ("memory_bytes", self.memory_bytes),
            ("tables", self.tables),
            ("change_streams", self.change_streams),
        ]
    }

    /// Returns the largest number of tables, if the server allows `limit` tables.
    pub fn tables_max(&self, limit: u64) -> u64 {
        self.tables.unwrap_or_else(|| part_of(limit))
    }

    /// Returns the largest number of change streams, if the server allows `limit` streams.
    pub fn change_streams_max(&self, limit: u64) -> u64 {
        self.change_streams.unwrap_or_else(|| part_of(limit))
    }

    /// Returns the budget of the bytes of a tier.
    fn tier_bytes(&self, tier: Tier) -> Option<u64> {
        match tier {
            Tier::Hot => self.hot_bytes,
            Tier::Cold => self.cold_bytes,
            Tier::Archive => self.archive_bytes,
        }
    }
}

impl TenantRecord {
    /// Checks name, tables, default table and budgets.
    ///
    /// # Errors
    ///
    /// Returns the reason as a sentence for the creator of the tenant.
    pub fn check(&self) -> Result<(), String> {
        check_name(&self.name)?;
        // Clients remove these from paths. Stored scopes can have them, so only the name of a tenant is checked.
        if matches!(self.name.as_str(), "." | "..") {
            return Err("the name of a tenant is not `.` or `..`".to_owned());
        }
        if self.tables.is_empty() || self.tables.len() > PATTERNS_MAX {
            return Err(format!(
                "a tenant has 1 to {PATTERNS_MAX} names and prefixes of tables, this one has {}",
                self.tables.len()
            ));
        }
        if let Some(table) = &self.default_table
            && !self.has_table(table.as_str())
        {
            return Err(format!(
                "default_table: {table} is not one of the tables of the tenant"
            ));
        }
        if let Some(bytes) = self
            .budgets
            .memory_bytes
            .filter(|bytes| *bytes < MEMORY_BYTES_MIN)
        {
            return Err(format!(
                "memory_bytes: a budget of {bytes} bytes is too small for any query; the smallest is {MEMORY_BYTES_MIN}"
            ));
        }
        let mut budgets = self.budgets.named().into_iter();
        match budgets.find(|(_, limit)| *limit == Some(0)) {
            Some((name, _)) => Err(format!(
                "{name}: a budget is at least 1; to refuse all requests, revoke the tokens of the tenant"
            )),
            None => Ok(()),
        }
    }

    /// Returns true if the tenant has the table with this name.
    pub fn has_table(&self, table: &str) -> bool {
        self.tables.iter().any(|pattern| pattern.matches(table))
    }

    /// Returns a name or prefix of this tenant that can also match a table of the other tenant; `None` if no table can
    /// belong to both.
    pub fn overlap(&self, other: &Self) -> Option<&TablePattern> {
        let overlaps = |own: &&TablePattern| other.tables.iter().any(|pattern| own.overlaps(pattern));
        self.tables.iter().find(overlaps)
    }
}

/// Returns the part of a limit of the server that a tenant without a budget of its own may use: a tenth, at least 1.
pub fn part_of(limit: u64) -> u64 {
    (limit / PARTS).max(1)
}

/// Checks the name of a tenant.
///
/// # Errors
///
/// Returns the reason as a sentence.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match (1..=TENANT_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_allowed) {
        true => Ok(()),
        false => Err(format!(
            "the name of a tenant has 1 to {TENANT_NAME_BYTES_MAX} letters, digits, dots, dashes and underscores"
        )),
    }
}

impl Tenant {
    /// Creates a tenant that has used nothing.
    pub fn new(record: TenantRecord) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Self {
            record,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            used: Arc::default(),
            is_current: Arc::new(AtomicBool::new(true)),
        }
    }

    /// Returns the tenant with another record and the same usage. Ends this tenant if tables were removed from it.
    #[must_use]
    pub fn changed(&self, record: TenantRecord) -> Self {
        let is_kept = |pattern: &TablePattern| Scope::patterns_cover(&record.tables, &pattern.to_string());
        let keeps_tables = self.record.tables.iter().all(is_kept);
        if !keeps_tables {
            self.end();
        }
        Self {
            record,
            number: self.number,
            used: Arc::clone(&self.used),
            is_current: match keeps_tables {
                true => Arc::clone(&self.is_current),
                false => Arc::new(AtomicBool::new(true)),
            },
        }
    }

    /// Ends all principals that act for the tenant.
    pub fn end(&self) {
        self.is_current.store(false, Ordering::Relaxed);
    }

    /// Returns false after the tenant has lost tables, or was removed.
    pub(crate) fn is_current(&self) -> bool {
        self.is_current.load(Ordering::Relaxed)
    }

    /// Returns a number that identifies the tenant in this process. It stays when the tenant is changed.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the stored form.
    pub fn record(&self) -> &TenantRecord {
        &self.record
    }

    /// Returns true if a change stream with these names and prefixes of tables counts as a stream of the tenant: the
    /// tenant has all its tables. A stream of all tables (an empty list) belongs to no tenant.
    pub fn has_stream(&self, tables: &[String]) -> bool {
        !tables.is_empty() && tables.iter().all(|pattern| self.covers(pattern))
    }

    /// Returns true if the tenant has all tables with this name or prefix.
    pub(crate) fn covers(&self, pattern: &str) -> bool {
        Scope::patterns_cover(&self.record.tables, pattern)
    }

    /// Checks that the budgets of points and of stored bytes are not used up. A write is charged after it was decoded,
    /// so the last write can exceed the budget of points; later writes then wait for longer. A request that only
    /// removes data is allowed even if the budgets of stored bytes are used up.
    ///
    /// # Errors
    ///
    /// [`OverBudget`] if one of the budgets is used up.
    pub fn check_writes(&self, now: Duration, only_removes: bool) -> Result<(), OverBudget> {
        let refused = self.check_points(now).and_then(|()| match only_removes {
            true => Ok(()),
            false => self.check_stored(),
        });
        refused.inspect_err(|_| {
            self.used.refused_writes.fetch_add(1, Ordering::Relaxed);
        })
    }

    fn check_points(&self, now: Duration) -> Result<(), OverBudget> {
        let Some(limit) = self.record.budgets.points_per_second else {
            return Ok(());
        };
        match self.used.owed_points.lock().over(now, limit, POINTS_BURST) {
            None => Ok(()),
            Some(retry_after) => Err(self.over(Budget::Points, limit, retry_after)),
        }
    }

    fn check_stored(&self) -> Result<(), OverBudget> {
        let budgets = &self.record.budgets;
        for tier in Tier::ALL {
            let Some(limit) = budgets.tier_bytes(tier) else {
                continue;
            };
            let bytes = self.used.stored.lock().data.tier_bytes[tier as usize];
            if bytes >= limit {
                return Err(self.over(Budget::Stored(tier, bytes), limit, STORED_RETRY_AFTER));
            }
        }
        Ok(())
    }

    /// Checks that the budget of bytes read is not used up. A read is charged while it runs, so the last read can
    /// exceed the budget; later reads then wait for longer.
    ///
    /// # Errors
    ///
    /// [`OverBudget`] if the budget is used up.
    pub fn check_reads(&self, now: Duration) -> Result<(), OverBudget> {
        let Some(limit) = self.record.budgets.bytes_read_per_second else {
            return Ok(());
        };
        let over = self.used.owed_bytes.lock().over(now, limit, READ_BURST);
        let Some(retry_after) = over else { return Ok(()) };
        self.used.refused_queries.fetch_add(1, Ordering::Relaxed);
        Err(self.over(Budget::BytesRead, limit, retry_after))
    }

    /// Charges bytes of stored data that were read.
    pub fn charge_read(&self, bytes: u64, now: Duration) {
        self.used.bytes_read.fetch_add(bytes, Ordering::Relaxed);
        if let Some(limit) = self.record.budgets.bytes_read_per_second {
            self.used.owed_bytes.lock().charge(bytes, now, limit as f64);
        }
    }

    /// Charges written points, rows or messages.
    pub fn charge_points(&self, count: u64, now: Duration) {
        self.used.points.fetch_add(count, Ordering::Relaxed);
        let Some(limit) = self.record.budgets.points_per_second else {
            return;
        };
        self.used.owed_points.lock().charge(count, now, limit as f64);
    }

    /// Returns true if the tenant has a budget of timelines.
    pub fn limits_timelines(&self) -> bool {
        let budgets = &self.record.budgets;
        budgets.new_timelines_per_minute.is_some() || budgets.timelines.is_some()
    }

    /// Takes a new timeline from the budgets.
    ///
    /// # Errors
    ///
    /// Returns the budget that is used up.
    pub fn take_new_timeline(&self, now: Duration) -> Result<(), TimelinesUsedUp> {
        self.take_timeline(now).inspect_err(|_| {
            self.used.refused_timelines.fetch_add(1, Ordering::Relaxed);
        })
    }

    fn take_timeline(&self, now: Duration) -> Result<(), TimelinesUsedUp> {
        let budgets = &self.record.budgets;
        let mut stored = self.used.stored.lock();
        if let Some(limit) = budgets.timelines
            && stored.data.timelines + stored.new_timelines >= limit
        {
            return Err(TimelinesUsedUp::InTotal(limit));
        }
        if let Some(limit) = budgets.new_timelines_per_minute {
            let mut owed = self.used.owed_timelines.lock();
            let rate = limit as f64 / TIMELINES_BURST.as_secs_f64();
            if owed.after(now, rate) + 1.0 > limit as f64 {
                return Err(TimelinesUsedUp::PerMinute(limit));
            }
            owed.charge(1, now, rate);
        }
        stored.new_timelines += 1;
        Ok(())
    }

    /// Checks that the tenant may have `added` more tables than the `count` that it has, on a server that allows
    /// `limit` tables.
    ///
    /// # Errors
    ///
    /// [`TooManyObjects`] if the budget of tables has no room for them.
    pub fn check_tables(&self, count: u64, added: u64, limit: u64) -> Result<(), TooManyObjects> {
        let limit = self.record.budgets.tables_max(limit);
        self.check_objects(ObjectKind::Tables, count + added, limit)
    }

    /// Checks that the tenant may have one more change stream than the `count` that it has, on a server that allows
    /// `limit` streams.
    ///
    /// # Errors
    ///
    /// [`TooManyObjects`] if the budget of change streams has no room for it.
    pub fn check_change_streams(&self, count: u64, limit: u64) -> Result<(), TooManyObjects> {
        let limit = self.record.budgets.change_streams_max(limit);
        self.check_objects(ObjectKind::ChangeStreams, count + 1, limit)
    }

    fn check_objects(&self, kind: ObjectKind, actual: u64, limit: u64) -> Result<(), TooManyObjects> {
        if actual <= limit {
            return Ok(());
        }
        self.used.refused_objects.fetch_add(1, Ordering::Relaxed);
        Err(TooManyObjects {
            tenant: self.record.name.clone(),
            kind,
            limit,
            actual,
        })
    }

    /// Replaces the measured data. The next measurement counts the timelines that were added since this measurement
    /// began or that are not visible yet. The budget can be exceeded by these timelines, but no timeline counts
    /// twice.
    pub fn set_stored(&self, data: StoredData) {
        *self.used.stored.lock() = Stored {
            data,
            new_timelines: 0,
        };
    }

    /// Returns the memory account of the requests of the tenant, which is part of the account of the process; `None`
    /// without a budget of memory.
    pub fn memory(&self, process: &MemoryAccount) -> Option<&MemoryAccount> {
        let limit = self.record.budgets.memory_bytes?;
        let create = || process.part(&format!("the tenant {}", self.record.name), limit);
        let memory = self.used.memory.get_or_init(create);
        // The account can be older than the budget.
        memory.set_limit(limit);
        Some(memory)
    }

    /// Begins a query.
    ///
    /// # Errors
    ///
    /// [`OverBudget`] if as many queries run as the budget allows.
    pub fn begin_query(&self) -> Result<RunningQuery, OverBudget> {
        let limit = self.record.budgets.queries.unwrap_or(u64::MAX);
        let more = |running: u64| (running < limit).then(|| running + 1);
        let begun = self
            .used
            .queries
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        match begun {
            Ok(_) => Ok(RunningQuery(Arc::clone(&self.used))),
            Err(_) => {
                self.used.refused_queries.fetch_add(1, Ordering::Relaxed);
                Err(self.over(Budget::Queries, limit, QUERY_RETRY_AFTER))
            }
        }
    }

    /// Returns the figures since the start of the server.
    pub fn figures(&self) -> TenantFigures {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let memory = self.used.memory.get();
        TenantFigures {
            points: read(&self.used.points),
            bytes_read: read(&self.used.bytes_read),
            queries: read(&self.used.queries),
            memory_bytes: memory.map_or(0, MemoryAccount::used_bytes),
            stored: self.used.stored.lock().data,
            refused_writes: read(&self.used.refused_writes),
            refused_timelines: read(&self.used.refused_timelines),
            refused_queries: read(&self.used.refused_queries),
            refused_memory: memory.map_or(0, |memory| memory.refusals().values().sum()),
            refused_objects: read(&self.used.refused_objects),
        }
    }

    fn over(&self, budget: Budget, limit: u64, retry_after: Duration) -> OverBudget {
        OverBudget {
            tenant: self.record.name.clone(),
            budget,
            limit,
            retry_after,
        }
    }
}

impl Drop for RunningQuery {
    fn drop(&mut self) {
        self.0.queries.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tenant,
            budget,
            limit,
            ..
        } = self;
        match budget {
            Budget::Points => write!(
                f,
                "the tenant {tenant} writes more than its budget of {limit} points, rows and messages per second"
            ),
            Budget::BytesRead => write!(
                f,
                "the tenant {tenant} reads more than its budget of {limit} bytes of stored data per second"
            ),
            Budget::Stored(tier, bytes) => write!(
                f,
                "the tenant {tenant} has {bytes} bytes in the {} tier, and its budget is {limit}; it can write again when \
                 data was deleted or has expired",
                tier.name()
            ),
            Budget::Queries => write!(
                f,
                "{limit} queries of the tenant {tenant} are running, which is its budget"
            ),
        }
    }
}

impl std::error::Error for OverBudget {}

impl fmt::Display for TooManyObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tenant,
            kind,
            limit,
            actual,
        } = self;
        let (objects, budget, dropped) = match kind {
            ObjectKind::Tables => ("tables", "tables", "drop a table"),
            ObjectKind::ChangeStreams => ("change streams", "change_streams", "delete a change stream"),
        };
        write!(
            f,
            "the tenant {tenant} would have {actual} {objects}, and its budget `{budget}` is {limit}; {dropped}, or let an \
             admin raise the budget"
        )
    }
}

impl std::error::Error for TooManyObjects {}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(tables: &[&str]) -> TenantRecord {
        let tables = tables.iter().map(|text| (*text).to_owned().try_into());
        TenantRecord {
            name: "acme".to_owned(),
            tables: tables.collect::<Result<_, _>>().expect("valid"),
            default_table: None,
            budgets: Budgets::default(),
            created: 1,
            created_by: String::new(),
        }
    }

    #[test]
    fn the_stored_form_stays() {
        let json = r#"{"name":"acme","tables":["acme-*"],"default_table":"acme-metrics","budgets":{"points_per_second":1000},"created":1,"created_by":"configured token"}"#;
        let read: TenantRecord = serde_json::from_str(json).expect("reads");
        assert_eq!(read.check(), Ok(()));
        assert_eq!(serde_json::to_string(&read).expect("serializes"), json);
    }

    #[test]
    fn records_that_make_no_sense_are_refused() {
        let with = |change: fn(&mut TenantRecord)| {
            let mut tenant = record(&["acme-*"]);
            change(&mut tenant);
            tenant.check()
        };
        assert_eq!(with(|_| {}), Ok(()));
        assert!(with(|tenant| tenant.name = String::new()).is_err());
        for name in ["a b", ".", ".."] {
            let named = TenantRecord {
                name: name.to_owned(),
                ..record(&["acme-*"])
            };
            assert!(named.check().is_err(), "{name}");
        }
        assert!(with(|tenant| tenant.name = "a".repeat(65)).is_err());
        assert!(with(|tenant| tenant.tables.clear()).is_err());
        assert!(with(|tenant| tenant.default_table = TableName::new("other").ok()).is_err());
        assert!(with(|tenant| tenant.default_table = TableName::new("acme-1").ok()).is_ok());
        assert!(with(|tenant| tenant.budgets.queries = Some(0)).is_err());
        assert!(with(|tenant| tenant.budgets.cold_bytes = Some(0)).is_err());
        assert!(with(|tenant| tenant.budgets.tables = Some(0)).is_err());
        assert!(with(|tenant| tenant.budgets.memory_bytes = Some(1_000)).is_err());
    }

    #[test]
    fn tables_of_two_tenants_overlap() {
        for (one, other, overlaps) in [
            (&["acme-*"][..], &["globex-*"][..], false),
            (&["acme-*"], &["acme"], false),
            (&["acme-*"], &["acme-x"], true),
            (&["acme-*"], &["acme-x-*"], true),
            (&["x", "ac*"], &["y", "acme-*"], true),
            (&["x"], &["x"], true),
            (&["*"], &["x"], true),
        ] {
            let (one, other) = (record(one), record(other));
            assert_eq!(one.overlap(&other).is_some(), overlaps, "{one:?} {other:?}");
            assert_eq!(other.overlap(&one).is_some(), overlaps);
        }
    }

    #[test]
    fn points_over_the_budget_are_refused_until_it_has_grown_again() {
        let second = Duration::from_secs;
        let mut of_budget = record(&["acme-*"]);
        of_budget.budgets.points_per_second = Some(1_000);
        let tenant = Tenant::new(of_budget);
        // Ten seconds at once are allowed, every ten seconds.
        for round in 10..20 {
            tenant
                .check_writes(second(round * 10), false)
                .expect("within the budget");
            tenant.charge_points(10_000, second(round * 10));
        }
        tenant.check_writes(second(190), false).expect("a burst");
        tenant.charge_points(15_000, second(190));
        let over = tenant
            .check_writes(second(191), false)
            .expect_err("over the budget");
        assert_eq!((over.limit, over.retry_after), (1_000, second(14)));
        assert!(over.to_string().contains("1000 points"), "{over}");
        tenant.check_writes(second(205), false).expect("later");
        // A larger budget also applies to points that were written before the change.
        tenant.charge_points(1_000_000, second(205));
        let over = tenant
            .check_writes(second(210), false)
            .expect_err("over the budget");
        assert_eq!(over.retry_after, second(995));
        let mut larger = tenant.record().clone();
        larger.budgets.points_per_second = Some(50_000);
        let changed = tenant.changed(larger.clone());
        assert_eq!(
            changed
                .check_writes(second(210), false)
                .expect_err("still")
                .retry_after
                .as_secs(),
            5
        );
        changed.check_writes(second(216), false).expect("soon");
        larger.budgets.points_per_second = None;
        let changed = changed.changed(larger);
        changed.charge_points(1_000_000, second(216));
        changed.check_writes(second(216), false).expect("no budget");
        let figures = changed.figures();
        assert_eq!((figures.points, figures.refused_writes), (2_115_000, 3));
    }

    #[test]
    fn new_timelines_over_the_budget_are_refused() {
        let mut of_budget = record(&["acme-*"]);
        of_budget.budgets.new_timelines_per_minute = Some(30);
        let tenant = Tenant::new(of_budget);
        let taken = |second: u64| {
            let now = Duration::from_secs(second);
            (0..100).filter(|_| tenant.take_new_timeline(now).is_ok()).count()
        };
        assert_eq!(
            (taken(1_000), taken(1_000), taken(1_010), taken(1_100)),
            (30, 0, 5, 30)
        );
        assert_eq!(tenant.figures().refused_timelines, 400 - 65);
        let none = Tenant::new(record(&["acme-*"]));
        assert!(!none.limits_timelines() && none.take_new_timeline(TIMELINES_BURST).is_ok());
    }

    #[test]
    fn timelines_over_the_budget_in_total_are_refused() {
        let mut of_budget = record(&["acme-*"]);
        of_budget.budgets.timelines = Some(100);
        let tenant = Tenant::new(of_budget);
        let now = Duration::from_secs(1);
        let taken = || {
            (0..1_000)
                .filter(|_| tenant.take_new_timeline(now).is_ok())
                .count()
        };
        let measure = |timelines: u64| {
            let data = StoredData {
                timelines,
                ..StoredData::default()
            };
            tenant.set_stored(data);
        };
        measure(60);
        assert_eq!((taken(), taken()), (40, 0));
        assert_eq!(tenant.take_new_timeline(now), Err(TimelinesUsedUp::InTotal(100)));
        measure(100);
        assert_eq!(taken(), 0);
        measure(80);
        assert_eq!(taken(), 20);
    }

    #[test]
    fn reads_over_the_budget_are_refused_until_it_has_grown_again() {
        let mut of_budget = record(&["acme-*"]);
        of_budget.budgets.bytes_read_per_second = Some(1_000);
        let tenant = Tenant::new(of_budget);
        let second = Duration::from_secs;
        tenant.check_reads(second(1)).expect("within the budget");
        tenant.charge_read(14_000, second(1));
        let over = tenant.check_reads(second(2)).expect_err("over the budget");
        assert_eq!((over.limit, over.retry_after), (1_000, second(3)));
        tenant.check_reads(second(5)).expect("later");
        let figures = tenant.figures();
        assert_eq!((figures.bytes_read, figures.refused_queries), (14_000, 1));
        tenant
            .check_writes(second(2), false)
            .expect("reads do not delay writes");
    }

    #[test]
    fn writes_over_a_budget_of_stored_bytes_are_refused() {
        let mut of_budget = record(&["acme-*"]);
        of_budget.budgets.cold_bytes = Some(1_000);
        let tenant = Tenant::new(of_budget);
        let measure = |cold: u64| {
            let data = StoredData {
                timelines: 1,
                tier_bytes: [5_000, cold, 5_000],
            };
            tenant.set_stored(data);
            tenant.check_writes(Duration::ZERO, false)
        };
        measure(999).expect("within the budget");
        let over = measure(1_200).expect_err("over the budget");
        assert_eq!(over.limit, 1_000);
        assert!(over.to_string().contains("1200 bytes in the cold tier"), "{over}");
        tenant
            .check_writes(Duration::ZERO, true)
            .expect("removals make room");
        measure(0).expect("room again");
        assert_eq!(tenant.figures().refused_writes, 1);
    }

    #[test]
    fn the_memory_of_a_tenant_follows_its_budget() {
        let process = MemoryAccount::new(1_000);
        let mut of_budget = record(&["acme-*"]);
        let without = Tenant::new(of_budget.clone());
        assert!(without.memory(&process).is_none());
        of_budget.budgets.memory_bytes = Some(100);
        let tenant = without.changed(of_budget.clone());
        let memory = tenant.memory(&process).expect("a budget");
        let _held = memory.reserve("results", 80).expect("there is room");
        let full = memory.reserve("results", 30).expect_err("no room");
        assert_eq!(full.owner.as_deref(), Some("the tenant acme"));
        of_budget.budgets.memory_bytes = Some(200);
        let changed = tenant.changed(of_budget);
        let memory = changed.memory(&process).expect("a budget");
        let _more = memory.reserve("results", 30).expect("there is room");
        let figures = changed.figures();
        assert_eq!((figures.memory_bytes, figures.refused_memory), (110, 1));
    }

    #[test]
    fn objects_over_the_budget_are_refused() {
        let mut of_budget = record(&["acme-*", "acme"]);
        let tenant = Tenant::new(of_budget.clone());
        // Without a budget, a tenth of the limit of the server.
        assert_eq!(tenant.check_tables(99, 1, 1_000), Ok(()));
        assert!(tenant.check_tables(99, 2, 1_000).is_err());
        assert_eq!(tenant.check_change_streams(0, 5), Ok(()));
        let over = tenant.check_change_streams(1, 5).expect_err("over the budget");
        assert_eq!((over.limit, over.actual), (1, 2));
        of_budget.budgets.tables = Some(2);
        of_budget.budgets.change_streams = Some(20);
        let tenant = tenant.changed(of_budget);
        let over = tenant.check_tables(2, 1, 1_000).expect_err("over the budget");
        let message = over.to_string();
        assert!(message.contains("acme would have 3 tables"), "{message}");
        assert!(message.contains("its budget `tables` is 2"), "{message}");
        assert_eq!(tenant.check_change_streams(19, 5), Ok(()));
        assert_eq!(tenant.figures().refused_objects, 3);
        for (tables, is_own) in [
            (&["acme"][..], true),
            (&["acme", "acme-x*"], true),
            (&["acme", "globex"], false),
            (&["*"], false),
            (&[], false),
        ] {
            let tables: Vec<String> = tables.iter().map(|text| (*text).to_owned()).collect();
            assert_eq!(tenant.has_stream(&tables), is_own, "{tables:?}");
        }
    }

    #[test]
    fn queries_over_the_budget_are_refused_until_others_end() {
        let mut of_budget = record(&["acme-*"]);
        of_budget.budgets.queries = Some(2);
        let tenant = Tenant::new(of_budget);
        let first = tenant.begin_query().expect("a place");
        let _second = tenant.begin_query().expect("a place");
        let over = tenant.begin_query().expect_err("no place");
        assert_eq!((over.limit, over.retry_after), (2, QUERY_RETRY_AFTER));
        drop(first);
        let _third = tenant.begin_query().expect("a place");
        assert_eq!(
            (tenant.figures().queries, tenant.figures().refused_queries),
            (2, 1)
        );
    }
}
