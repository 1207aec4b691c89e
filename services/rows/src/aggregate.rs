//! Aggregates over rows: functions of the values of columns, by groups and time windows.
//!
//! The rows come from a scan of a range, from listed keys, or from a search index. They are read one by one, and each
//! row is added to its group. Memory therefore depends only on the number of groups and of distinct values. The result
//! does not depend on the order of the rows.
//!
//! | module | holds |
//! |---|---|
//! | `plan` | checks of a request: columns, keys and functions |
//! | `window` | time windows |
//! | `state` | state of one function in one group |
//! | `value` | comparison and canonical bytes of values |
//! | `output` | groups as JSON, lines of JSON, CSV, Arrow and Parquet |

mod output;
mod plan;
mod state;
mod value;
mod window;

use std::iter;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use tideline_engine::indexes::Index;
use tideline_engine::key_codec::layout::Ranges;
use tideline_engine::model::{ColumnType, TierScope};
use tideline_engine::rows::{CellValue, GroupSet, StoredRow};
use tideline_engine::runtime::Reservation;
use tideline_engine::{Engine, EngineError, WideTable};
use tideline_openapi::condition::RowFilter;
use tideline_openapi::row::GetRows;
use tideline_openapi::row_aggregate::{AggregateEnd, AggregateKey, AggregateMetric, AggregateRows};

pub use output::AggregateWriter;
pub use plan::{AGGREGATE_FUNCTIONS_MAX, AGGREGATE_KEYS_MAX, AGGREGATE_METRICS_MAX};
pub(crate) use window::bounds_of;
pub use window::window_of;

use crate::condition::RowMatcher;
use crate::error::{Result, RowsError};
use crate::index_filter::IndexFilter;
use crate::read::{NeededColumns, PageLimits, RangeTerms, Scan, ScanTerms, damaged, keys_of, tested_groups};
use crate::selection::Selection;
use plan::{Found, GroupKey, Metric};
use state::{Overflow, State};

/// Maximum number of groups of a request.
pub const AGGREGATE_GROUPS_MAX: u64 = 100_000;
/// Maximum memory of the groups of one request, in bytes.
pub const AGGREGATE_BYTES_MAX: u64 = 256 << 20;
/// Smallest amount of memory that is reserved in one step, in bytes.
const RESERVED_STEP: u64 = 1 << 20;
/// Estimated bytes of a group without its functions.
const GROUP_BYTES: u64 = 128;
/// Estimated bytes of the state of one function.
const STATE_BYTES: u64 = size_of::<State>() as u64;

/// Planned aggregation.
#[derive(Debug)]
pub struct Aggregation {
    rows: Rows,
    columns: Columns,
}

/// Columns whose values are read.
#[derive(Debug)]
struct Columns {
    keys: Vec<GroupKey>,
    metrics: Vec<Metric>,
    /// True if the values of key columns must be decoded.
    needs_key: bool,
}

impl Columns {
    fn new(table: &WideTable, by: &[AggregateKey], metrics: &[AggregateMetric]) -> Result<Self> {
        let mut columns = Self {
            keys: plan::keys_of(table, by)?,
            metrics: plan::metrics_of(table, metrics)?,
            needs_key: false,
        };
        let needs_key = columns.sources().any(plan::Source::is_key);
        columns.needs_key = needs_key;
        Ok(columns)
    }

    fn sources(&self) -> impl Iterator<Item = &plan::Source> {
        let of_keys = self.keys.iter().map(|key| &key.source);
        of_keys.chain(self.metrics.iter().map(|metric| &metric.source))
    }

    /// Returns the names of the columns that are not part of the key.
    fn stored(&self) -> Vec<String> {
        let stored = self.sources().filter(|source| !source.is_key());
        stored.map(|source| source.name.clone()).collect()
    }
}

/// Rows that are aggregated, selected by their stored keys.
#[derive(Debug, Clone, Copy)]
pub enum AggregatedRows<'a> {
    /// Rows with these keys.
    Keys(&'a [Vec<u8>]),
    /// Rows of these ranges of the primary key, or of an index. The ranges must not overlap.
    Ranges(&'a Ranges, Option<&'a Arc<Index>>),
}

/// Source of the rows.
#[derive(Debug)]
enum Rows {
    Scan(Box<Scan>),
    Keys(Vec<Vec<u8>>, Option<RowMatcher>),
    Search(IndexFilter),
}

/// Groups of an aggregation.
#[derive(Debug)]
pub struct Groups {
    /// Groups in the order of the values of their keys. Missing values come last.
    groups: Vec<Group>,
    /// Summary of the aggregation.
    pub end: AggregateEnd,
    _memory: Reservation,
}

#[derive(Debug)]
struct Group {
    /// Values of the keys of the group.
    key: Vec<Option<CellValue<'static>>>,
    rows: u64,
    /// States of all functions, metric by metric.
    states: Vec<State>,
}

impl Aggregation {
    /// Plans an aggregation.
    ///
    /// # Errors
    ///
    /// [`RowsError::Invalid`] if the request selects rows in more than one way or not at all, if a column is not
    /// declared, or if a function or window is not possible for the type of its column; [`RowsError::OverLimit`] for
    /// too many keys, metrics or functions; and the errors of [`Scan::new`], [`keys_of`] and [`Engine::search_index`].
    pub fn new(engine: &Engine, table: &WideTable, request: &AggregateRows) -> Result<Self> {
        let columns = Columns::new(table, &request.by, &request.metrics)?;
        let is_range = !request.prefix.is_empty() || request.range.is_some() || request.index.is_some();
        let rows = match (&request.keys, &request.search) {
            (Some(_), Some(_)) => Err(several_selections()),
            (Some(_), None) | (None, Some(_)) if is_range || request.allow_scan => Err(several_selections()),
            (Some(_), None) if !request.tier.is_all() => Err(RowsError::Invalid(
                "keys select single rows, whatever their tier; omit tier, or aggregate a range or a search"
                    .into(),
            )),
            (Some(listed), None) => {
                let listed = GetRows {
                    keys: Some(listed.clone()),
                    ..GetRows::default()
                };
                let filter = request.filter.as_ref();
                let matcher = filter.map(|filter| RowMatcher::new(engine, table, filter));
                Ok(Rows::Keys(keys_of(table, &listed)?, matcher.transpose()?))
            }
            (None, Some(search)) => Ok(Rows::Search(IndexFilter::new(
                engine,
                table,
                search.index.as_deref(),
                request.filter.as_ref(),
                search.at_least.as_deref(),
                request.tier,
            )?)),
            (None, None) => {
                let names = columns.stored();
                let selection = selection_of(engine, &names)?;
                let terms = scan_terms(request);
                Ok(Rows::Scan(Box::new(Scan::new(
                    engine, table, &terms, &selection,
                )?)))
            }
        }?;
        Ok(Self { rows, columns })
    }

    /// Plans an aggregation of given rows that match a condition.
    ///
    /// # Errors
    ///
    /// The errors of [`new`](Self::new) for columns and functions, and those of [`RowMatcher::new`].
    pub fn of_rows(
        engine: &Engine,
        table: &WideTable,
        rows: AggregatedRows<'_>,
        filter: Option<&RowFilter>,
        by: &[AggregateKey],
        metrics: &[AggregateMetric],
    ) -> Result<Self> {
        let columns = Columns::new(table, by, metrics)?;
        let rows = match rows {
            AggregatedRows::Keys(keys) => {
                let matcher = filter.map(|filter| RowMatcher::new(engine, table, filter));
                Rows::Keys(keys.to_vec(), matcher.transpose()?)
            }
            AggregatedRows::Ranges(ranges, index) => {
                let terms = RangeTerms {
                    index,
                    needed: NeededColumns::Named(&columns.stored()),
                    direction: Default::default(),
                    filter,
                    tier: TierScope::All,
                    page_token: None,
                    encoder_terms: &[],
                };
                Rows::Scan(Box::new(Scan::of_ranges(engine, table, ranges.clone(), &terms)?))
            }
        };
        Ok(Self { rows, columns })
    }

    /// Returns true if some rows are in parts in the cold tier or in the archive. Always false for a search, because
    /// its rows are not known yet.
    ///
    /// # Errors
    ///
    /// The errors of [`Scan::reaches_cold`] and [`Engine::has_cold_keys`].
    pub fn reaches_cold(&self, engine: &Engine, table: &WideTable) -> Result<bool> {
        match &self.rows {
            Rows::Scan(scan) => scan.reaches_cold(engine, table),
            Rows::Keys(keys, _) => Ok(engine.has_cold_keys(table, keys)?),
            Rows::Search(_) => Ok(false),
        }
    }

    /// Reads the rows and aggregates them.
    ///
    /// # Errors
    ///
    /// [`RowsError::Cancelled`] if `is_stopped` returns true, [`RowsError::OverLimit`] for more than
    /// [`AGGREGATE_GROUPS_MAX`] groups or [`AGGREGATE_BYTES_MAX`] of memory,
    /// [`Memory`](tideline_engine::EngineError::Memory) if the server has no memory left, and the errors of reading
    /// rows.
    pub fn run(
        self,
        engine: &Engine,
        table: &Arc<WideTable>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<(AggregateShape, Groups)> {
        let memory = engine.memory().reserve("aggregates of rows", 0);
        let Self { rows, columns } = self;
        let matcher = match &rows {
            // A scan records the columns that it reads itself.
            Rows::Scan(_) => None,
            Rows::Keys(_, matcher) => matcher.as_ref(),
            Rows::Search(filter) => filter.matcher(),
        };
        let (stored, tested) = (
            columns.stored(),
            matcher.map_or_else(Vec::new, RowMatcher::columns),
        );
        if !matches!(rows, Rows::Scan(_)) {
            let needed = stored.iter().chain(&tested).map(String::as_str);
            engine.note_column_reads(table, Some(needed));
        }
        let mut collector = Collector {
            keys: columns.keys,
            metrics: &columns.metrics,
            needs_key: columns.needs_key,
            column_groups: table
                .groups_of(stored.iter().map(String::as_str))
                .union(tested_groups(table, matcher, None)),
            numbers: HashMap::new(),
            groups: Vec::new(),
            rows: 0,
            other_types: 0,
            held: 0,
            memory: memory.map_err(EngineError::from)?,
            key: Vec::new(),
            scratch: Vec::new(),
        };
        if collector.keys.is_empty() {
            // Without keys, there is always one group, even if no row matches.
            collector.group_of(&[])?;
        }
        let mut end = AggregateEnd::default();
        match &rows {
            Rows::Scan(scan) => {
                let limits = PageLimits {
                    rows: None,
                    scanned: None,
                    bytes: None,
                };
                let page = scan.stored_page(engine, table, limits, is_stopped, &mut |row| {
                    collector.add(table, row)?;
                    Ok(0)
                })?;
                end.scanned = page.scanned;
            }
            Rows::Keys(keys, matcher) => {
                engine.admit_reads(table, keys.iter().map(Vec::as_slice))?;
                let mut seen = HashSet::with_capacity(keys.len());
                for key in keys.iter().filter(|key| seen.insert(key.as_slice())) {
                    end.scanned += collector.read(engine, table, key, matcher.as_ref(), is_stopped)?;
                }
            }
            Rows::Search(filter) => {
                let _memory = filter.begin(engine, table, iter::empty())?;
                let mut failure = None;
                engine.search_keys(table, filter.index(), filter.root(), is_stopped, &mut |key| {
                    match collector.read(engine, table, key, filter.matcher(), is_stopped) {
                        Ok(scanned) => {
                            end.scanned += scanned;
                            true
                        }
                        Err(error) => {
                            failure = Some(error);
                            false
                        }
                    }
                })?;
                if let Some(error) = failure {
                    return Err(error);
                }
                let (waiting, lag_ms) = filter.backlog(engine);
                (end.waiting, end.lag_ms) = (Some(waiting), Some(lag_ms));
                end.tier = filter.seen_tier();
                end.shards = filter.shards_read();
            }
        }
        if is_stopped() {
            return Err(RowsError::Cancelled);
        }
        let groups = collector.finish(end)?;
        let shape = AggregateShape::new(&groups.0, &columns.metrics);
        Ok((shape, groups.1))
    }
}

/// Names and types of the columns of a result.
#[derive(Debug)]
pub struct AggregateShape {
    /// Name and type of each key.
    keys: Vec<(String, ColumnType)>,
    /// Metrics: name of the column, and for each of its functions the name and the type of the result.
    metrics: Vec<(String, Vec<(String, ColumnType)>)>,
}

impl AggregateShape {
    fn new(keys: &[GroupKey], metrics: &[Metric]) -> Self {
        let metric_of = |metric: &Metric| {
            let functions = metric.functions.iter().map(|function| {
                let result = State::result_type(*function, metric.source.column_type);
                (function.to_string(), result)
            });
            (metric.source.name.clone(), functions.collect())
        };
        let key_of = |key: &GroupKey| (key.source.name.clone(), key.source.column_type);
        Self {
            keys: keys.iter().map(key_of).collect(),
            metrics: metrics.iter().map(metric_of).collect(),
        }
    }
}

/// Returns the parameters of the scan of an aggregate.
pub(crate) fn scan_terms(request: &AggregateRows) -> ScanTerms<'_> {
    ScanTerms {
        index: request.index.as_deref(),
        prefix: &request.prefix,
        range: request.range.as_ref(),
        direction: Default::default(),
        filter: request.filter.as_ref(),
        tier: request.tier,
        page_token: None,
        allow_scan: request.allow_scan,
    }
}

/// Returns the selection of the columns that an aggregate reads; it can be empty.
///
/// # Errors
///
/// The errors of [`Selection::new`].
pub(crate) fn selection_of(engine: &Engine, columns: &[String]) -> Result<Selection> {
    match columns.is_empty() {
        true => Ok(Selection::of_nothing()),
        false => Selection::new(Some(columns), None, None, Default::default(), engine.now()),
    }
}

fn several_selections() -> RowsError {
    RowsError::Invalid(
        "keys, search, and the members of a range (index, prefix, range, allow_scan) exclude each other"
            .into(),
    )
}

/// Groups while rows are read.
struct Collector<'a> {
    keys: Vec<GroupKey>,
    metrics: &'a [Metric],
    needs_key: bool,
    /// Column groups that are read for rows that are selected by their keys.
    column_groups: GroupSet,
    /// Positions of the groups in `groups`, by the canonical bytes of their keys.
    numbers: HashMap<Box<[u8]>, usize>,
    groups: Vec<(u64, Vec<State>)>,
    rows: u64,
    other_types: u64,
    /// Estimated memory of the groups, in bytes.
    held: u64,
    memory: Reservation,
    /// Canonical bytes of the group keys of the current row.
    key: Vec<u8>,
    scratch: Vec<u8>,
}

impl Collector<'_> {
    /// Reads a row and adds it if it exists and matches. Returns the number of rows read.
    fn read(
        &mut self,
        engine: &Engine,
        table: &WideTable,
        key: &[u8],
        matcher: Option<&RowMatcher>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<u64> {
        if is_stopped() {
            return Err(RowsError::Cancelled);
        }
        let Some(row) = engine.row_of_groups(table, key, self.column_groups)? else {
            return Ok(0);
        };
        if let Some(matcher) = matcher {
            let columns = row.columns().map_err(|reason| damaged(table, reason))?;
            if !matcher.matches(table.layout(), key, Some(&columns)) {
                return Ok(1);
            }
        }
        self.add(table, &row)?;
        Ok(1)
    }

    /// Adds a row to its group.
    fn add(&mut self, table: &WideTable, row: &StoredRow) -> Result<()> {
        let columns = row.columns().map_err(|reason| damaged(table, reason))?;
        let key = match self.needs_key {
            true => table
                .layout()
                .decode(&row.key)
                .map_err(|reason| damaged(table, reason))?,
            false => Vec::new(),
        };
        let mut group_key = std::mem::take(&mut self.key);
        group_key.clear();
        for by in &mut self.keys {
            let value = match by.source.value(&key, &columns) {
                Found::Value(value) => value,
                Found::Missing => {
                    group_key.push(0);
                    continue;
                }
                Found::OtherType | Found::Streamed => {
                    self.other_types += 1;
                    group_key.push(0);
                    continue;
                }
            };
            let value = match (&mut by.windows, value) {
                (Some(windows), CellValue::Timestamp(time)) => {
                    let start = windows.start(time.nanos())?;
                    CellValue::Timestamp(tideline_engine::model::Timestamp::from_nanos_clamped(start))
                }
                (_, value) => value,
            };
            group_key.push(1);
            self.scratch.clear();
            value::encode(&value, &mut self.scratch);
            group_key.extend_from_slice(&(self.scratch.len() as u32).to_le_bytes());
            group_key.extend_from_slice(&self.scratch);
        }
        let number = self.group_of(&group_key)?;
        self.key = group_key;
        self.rows += 1;
        let (rows, states) = &mut self.groups[number];
        *rows += 1;
        let mut grown = 0;
        let mut states = states.iter_mut();
        for metric in self.metrics {
            let states = states.by_ref().take(metric.functions.len());
            match metric.source.value(&key, &columns) {
                Found::Value(value) => {
                    for state in states {
                        grown += state.add(&value, &row.key, &mut self.scratch);
                    }
                }
                Found::Streamed => {
                    let mut is_skipped = false;
                    for state in states {
                        is_skipped |= !state.add_unread();
                    }
                    self.other_types += u64::from(is_skipped);
                }
                found => {
                    self.other_types += u64::from(matches!(found, Found::OtherType));
                    states.for_each(drop);
                }
            }
        }
        self.grow(grown)
    }

    /// Returns the position of the group with these canonical bytes. Creates the group if it does not exist.
    fn group_of(&mut self, key: &[u8]) -> Result<usize> {
        if let Some(number) = self.numbers.get(key) {
            return Ok(*number);
        }
        let number = self.groups.len();
        if number as u64 >= AGGREGATE_GROUPS_MAX {
            return Err(RowsError::OverLimit {
                message: format!(
                    "the rows have more than {AGGREGATE_GROUPS_MAX} groups; group by fewer columns or wider windows, or \
                     select fewer rows"
                ),
                limit: AGGREGATE_GROUPS_MAX,
                actual: number as u64 + 1,
            });
        }
        let states = self.metrics.iter().flat_map(|metric| {
            let of = |function: &tideline_query::Function| State::new(*function, metric.source.column_type);
            metric.functions.iter().filter_map(of)
        });
        let states: Vec<State> = states.collect();
        self.grow(GROUP_BYTES + 2 * key.len() as u64 + STATE_BYTES * states.len() as u64)?;
        self.numbers.insert(key.into(), number);
        self.groups.push((0, states));
        Ok(number)
    }

    /// Adds to the used memory, and reserves more memory if necessary.
    fn grow(&mut self, bytes: u64) -> Result<()> {
        self.held += bytes;
        if self.held > AGGREGATE_BYTES_MAX {
            return Err(RowsError::OverLimit {
                message: format!(
                    "the groups take more than {AGGREGATE_BYTES_MAX} bytes of memory; group by fewer columns, leave out \
                     count_distinct and mode, or select fewer rows"
                ),
                limit: AGGREGATE_BYTES_MAX,
                actual: self.held,
            });
        }
        if self.held > self.memory.bytes() {
            let more = (self.held - self.memory.bytes()).max(RESERVED_STEP);
            self.memory.grow(more).map_err(EngineError::from)?;
        }
        Ok(())
    }

    /// Returns the keys, and the groups in order. Returns an error if a result does not fit its type.
    fn finish(self, mut end: AggregateEnd) -> Result<(Vec<GroupKey>, Groups)> {
        let mut groups: Vec<Group> = Vec::with_capacity(self.groups.len());
        let mut by_number: Vec<Option<(u64, Vec<State>)>> = self.groups.into_iter().map(Some).collect();
        for (bytes, number) in self.numbers {
            if let Some((rows, states)) = by_number[number].take() {
                groups.push(Group {
                    key: decoded(&bytes, &self.keys),
                    rows,
                    states,
                });
            }
        }
        groups.sort_unstable_by(|one, other| {
            let mut pairs = one.key.iter().zip(&other.key);
            let differing = pairs.find_map(|pair| {
                let ordering = match pair {
                    (Some(one), Some(other)) => value::compare(one, other),
                    (one, other) => one.is_none().cmp(&other.is_none()),
                };
                ordering.is_ne().then_some(ordering)
            });
            differing.unwrap_or(std::cmp::Ordering::Equal)
        });
        let functions = self
            .metrics
            .iter()
            .flat_map(|metric| metric.functions.iter().map(move |function| (metric, function)));
        for (number, (metric, function)) in functions.clone().enumerate() {
            for group in &groups {
                let checked = group.states[number].check(metric.source.column_type);
                checked.map_err(|Overflow| output::overflow(&metric.source.name, function))?;
            }
        }
        let estimated = functions
            .enumerate()
            .filter(|(number, _)| groups.iter().any(|group| group.states[*number].is_estimate()));
        let estimated =
            estimated.map(|(_, (metric, function))| format!("{function}({})", metric.source.name));
        end.estimated = estimated.collect();
        (end.rows, end.other_types) = (self.rows, self.other_types);
        let groups = Groups {
            groups,
            end,
            _memory: self.memory,
        };
        Ok((self.keys, groups))
    }
}

/// Decodes the values of the group keys from their canonical bytes.
fn decoded(mut bytes: &[u8], keys: &[GroupKey]) -> Vec<Option<CellValue<'static>>> {
    let mut values = Vec::with_capacity(keys.len());
    for key in keys {
        let mut value = None;
        if let Some((presence, rest)) = bytes.split_first() {
            bytes = rest;
            if *presence == 1
                && let Some((length, rest)) = rest.split_first_chunk::<4>()
                && let Some((own, rest)) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)
            {
                value = value::decode(own, key.source.column_type);
                bytes = rest;
            }
        }
        values.push(value);
    }
    values
}
