//! `SELECT` and `EXPLAIN`.
//!
//! Rows are passed to the caller one by one, either the rows of one page or all rows. A page token is the token of the
//! scan with a number in front: the rows that `LIMIT` still allows (empty without `LIMIT`), or for `COUNT(*)` the count
//! so far.

use std::collections::VecDeque;

use serde::Serialize;
use tideline_engine::Engine;
use tideline_engine::model::TierScope;
use tideline_engine::rows::StoredRow;
use tideline_openapi::row::{PageEnd, RowIntegers, ScanDirection};
use tideline_rows::aggregate::{AggregatedRows, Aggregation};
use tideline_rows::condition::RowMatcher;
use tideline_rows::read::{NeededColumns, PAGE_BYTES_MAX, PAGE_SCANNED_MAX, RangeTerms};
use tideline_rows::value::{write_plain, write_text};
use tideline_rows::{PageLimits, RowEncoder, RowsError, Scan};

use crate::definition::key_column_text;
use crate::error::{Position, Result, SqlError};
use crate::plan::{AccessPath, FoundKey, GroupResult, ReadPlan, SelectResult};
use crate::projection::Projection;
use crate::statement::quoted;

/// Maximum number of rows of a page. Results with rows by whole keys, and results with groups, are not divided into
/// pages.
pub const PAGE_ROWS: u64 = 1_000;

/// Part of the result to return.
#[derive(Debug, Clone, Copy)]
pub enum Extent<'t> {
    /// One page. Holds the token of the previous page; `None` for the first page.
    Page(Option<&'t str>),
    /// All rows.
    All,
}

/// Row counts of a returned page or result, and the token of the next page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct End {
    /// Number of rows that were read, including deleted rows.
    pub scanned: u64,
    /// Number of rows that were returned.
    pub returned: u64,
    /// Token of the next page; `None` at the end.
    pub next: Option<String>,
    /// Reason why the page ended before the end of the result; `None` at the end.
    pub reason: Option<PageEnd>,
}

/// Function that receives each row as JSON.
pub type TakeRow<'t> = dyn FnMut(&[u8]) -> tideline_rows::Result<()> + 't;

/// Executes a plan, and passes the rows of the result to `take`.
///
/// # Errors
///
/// [`RowsError::Cancelled`] if `is_stopped` returns true, [`SqlError::Invalid`] for a token of another statement, the
/// errors of the engine, and the errors of `take`.
pub fn select(
    engine: &Engine,
    plan: &ReadPlan,
    extent: Extent<'_>,
    integers: RowIntegers,
    is_stopped: &dyn Fn() -> bool,
    take: &mut TakeRow<'_>,
) -> Result<End> {
    let (number, inner) = match extent {
        Extent::Page(Some(token)) => split_token(token)?,
        _ => (None, None),
    };
    let reader = Reader {
        engine,
        plan,
        is_stopped,
    };
    match &plan.result {
        SelectResult::Rows(projection) => {
            let projection = projection.clone().with_integers(integers);
            let limit = number.or(plan.limit);
            reader.rows(&projection, limit, inner, matches!(extent, Extent::All), take)
        }
        SelectResult::Count(label) => {
            let end = reader.count(number.unwrap_or(0), inner, matches!(extent, Extent::All))?;
            let row = serde_json::json!({label.as_str(): end.0});
            take(row.to_string().as_bytes())?;
            Ok(end.1)
        }
        SelectResult::Groups(_) if inner.is_some() => Err(other_statement()),
        SelectResult::Groups(groups) => reader.groups(groups, integers, take),
    }
}

struct Reader<'r> {
    engine: &'r Engine,
    plan: &'r ReadPlan,
    is_stopped: &'r dyn Fn() -> bool,
}

impl Reader<'_> {
    fn rows(
        &self,
        projection: &Projection,
        limit: Option<u64>,
        token: Option<&str>,
        is_all: bool,
        take: &mut TakeRow<'_>,
    ) -> Result<End> {
        let (AccessPath::Ranges(ranges) | AccessPath::Table(ranges)) = &self.plan.path else {
            if token.is_some() {
                return Err(other_statement());
            }
            return self.by_keys(limit, projection.needed(), &mut |row| {
                let mut json = Vec::new();
                let columns = row.columns().map_err(|reason| self.damaged(&reason))?;
                projection.write_row(&self.plan.table, &row.key, &columns, None, &mut json)?;
                take(&json)
            });
        };
        let terms = projection.terms();
        let scan = Scan::of_ranges(
            self.engine,
            &self.plan.table,
            ranges.clone(),
            &RangeTerms {
                index: self.plan.access.index(),
                needed: projection.needed(),
                direction: self.plan.direction,
                filter: self.plan.filter.as_ref(),
                tier: TierScope::All,
                page_token: token,
                encoder_terms: &terms,
            },
        )?;
        let limits = PageLimits {
            rows: match is_all {
                true => limit,
                false => Some(limit.unwrap_or(u64::MAX).min(PAGE_ROWS)),
            },
            scanned: (!is_all).then_some(PAGE_SCANNED_MAX),
            bytes: (!is_all).then_some(PAGE_BYTES_MAX),
        };
        let page = scan.page(
            self.engine,
            &self.plan.table,
            projection,
            limits,
            self.is_stopped,
            take,
        )?;
        let left = limit.map(|limit| limit.saturating_sub(page.returned));
        let next = page.next.filter(|_| left != Some(0));
        Ok(End {
            scanned: page.scanned,
            returned: page.returned,
            reason: page.reason.filter(|_| next.is_some()),
            next: next.map(|token| join_token(left, &token)),
        })
    }

    /// Counts rows. `from` is the count of the previous pages. Returns the count so far, and the end of the page.
    fn count(&self, from: u64, token: Option<&str>, is_all: bool) -> Result<(u64, End)> {
        let (AccessPath::Ranges(ranges) | AccessPath::Table(ranges)) = &self.plan.path else {
            if token.is_some() {
                return Err(other_statement());
            }
            let mut count = 0;
            let end = self.by_keys(None, NeededColumns::Named(&[]), &mut |_| {
                count += 1;
                Ok(())
            })?;
            return Ok((count, End { returned: 1, ..end }));
        };
        let mut count = from;
        let mut scanned = 0;
        let mut token = token.map(str::to_owned);
        loop {
            let scan = Scan::of_ranges(
                self.engine,
                &self.plan.table,
                ranges.clone(),
                &RangeTerms {
                    index: self.plan.access.index(),
                    needed: NeededColumns::Named(&[]),
                    direction: ScanDirection::Forward,
                    filter: self.plan.filter.as_ref(),
                    tier: TierScope::All,
                    page_token: token.as_deref(),
                    encoder_terms: b"count",
                },
            )?;
            let counted = scan.count(self.engine, &self.plan.table, self.is_stopped)?;
            count += counted.count;
            scanned += counted.scanned;
            token = counted.next;
            if token.is_none() || !is_all {
                break;
            }
        }
        let end = End {
            scanned,
            returned: 1,
            reason: token.as_ref().map(|_| PageEnd::Scanned),
            next: token.map(|token| join_token(Some(count), &token)),
        };
        Ok((count, end))
    }

    /// Aggregates all rows, and passes the groups to `take`. Groups have no pages.
    fn groups(&self, result: &GroupResult, integers: RowIntegers, take: &mut TakeRow<'_>) -> Result<End> {
        let stored: Vec<Vec<u8>>;
        let rows = match &self.plan.path {
            AccessPath::Keys(keys) => {
                stored = keys.iter().map(|key| key.stored.clone()).collect();
                AggregatedRows::Keys(&stored)
            }
            AccessPath::Ranges(ranges) | AccessPath::Table(ranges) => {
                AggregatedRows::Ranges(ranges, self.plan.access.index())
            }
        };
        let (engine, table) = (self.engine, &self.plan.table);
        let filter = self.plan.filter.as_ref();
        let aggregation = Aggregation::of_rows(engine, table, rows, filter, &result.by, &result.metrics)?;
        let (shape, groups) = aggregation.run(engine, table, self.is_stopped)?;
        let limit = usize::try_from(self.plan.limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let mut end = End {
            scanned: groups.end.scanned,
            ..End::default()
        };
        let mut json = Vec::new();
        for values in groups.values(&shape).take(limit) {
            let values = values?;
            json.clear();
            for (label, position) in &result.columns {
                json.push(if json.is_empty() { b'{' } else { b',' });
                write_text(label, &mut json);
                json.push(b':');
                match values.get(*position) {
                    Some(Some(value)) => write_plain(value, integers, &mut json),
                    _ => json.extend_from_slice(b"null"),
                }
            }
            json.push(b'}');
            take(&json)?;
            end.returned += 1;
        }
        Ok(end)
    }

    /// Reads the needed columns of rows by their keys, and passes the rows that match the filter to `take`. Columns
    /// that are not needed may be missing.
    fn by_keys(
        &self,
        limit: Option<u64>,
        needed: NeededColumns<'_>,
        take: &mut dyn FnMut(&StoredRow) -> tideline_rows::Result<()>,
    ) -> Result<End> {
        let AccessPath::Keys(keys) = &self.plan.path else {
            return Ok(End::default());
        };
        let filter = self.plan.filter.as_ref();
        let matcher = filter
            .map(|filter| RowMatcher::new(self.engine, &self.plan.table, filter))
            .transpose()?;
        let table = &self.plan.table;
        needed.note(self.engine, table, matcher.as_ref());
        let groups = needed.groups(table, matcher.as_ref());
        self.engine
            .admit_reads(table, keys.iter().map(|key| &key.stored[..]))?;
        let mut end = End::default();
        let mut rest: VecDeque<&FoundKey> = keys.iter().collect();
        while limit.is_none_or(|limit| end.returned < limit) {
            let key = match self.plan.direction {
                ScanDirection::Forward => rest.pop_front(),
                ScanDirection::Backward => rest.pop_back(),
            };
            let Some(key) = key else { break };
            if (self.is_stopped)() {
                return Err(RowsError::Cancelled.into());
            }
            end.scanned += 1;
            let Some(row) = self.engine.row_of_groups(table, &key.stored, groups)? else {
                continue;
            };
            if let Some(matcher) = &matcher {
                let columns = row.columns().map_err(|reason| self.damaged(&reason))?;
                if !matcher.matches(table.layout(), &row.key, Some(&columns)) {
                    continue;
                }
            }
            take(&row)?;
            end.returned += 1;
        }
        Ok(end)
    }

    fn damaged(&self, reason: &dyn std::fmt::Display) -> RowsError {
        RowsError::Damaged {
            table: self.plan.table.table().name().to_string(),
            reason: reason.to_string(),
        }
    }
}

fn join_token(number: Option<u64>, token: &str) -> String {
    match number {
        Some(number) => format!("{number}.{token}"),
        None => format!(".{token}"),
    }
}

fn split_token(token: &str) -> Result<(Option<u64>, Option<&str>)> {
    let (number, inner) = token.split_once('.').ok_or_else(other_statement)?;
    let number = match number {
        "" => None,
        number => Some(number.parse().map_err(|_| other_statement())?),
    };
    Ok((number, Some(inner)))
}

fn other_statement() -> SqlError {
    SqlError::invalid(
        Position::default(),
        "page_token is damaged or belongs to another statement; send it with the same statement and parameters",
    )
}

/// Row of the result of `EXPLAIN`: the plan of a `SELECT`.
#[derive(Debug, Serialize)]
struct Explanation {
    /// `keys`, `ranges` or `table`.
    access: &'static str,
    /// Index whose key is read.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<String>,
    /// Number of keys to read.
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<u64>,
    /// Number of ranges to read. Their rows are merged in key order.
    #[serde(skip_serializing_if = "Option::is_none")]
    ranges: Option<u64>,
    /// Number of buckets of the key that is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    buckets: Option<u16>,
    /// Conditions that select keys or ranges.
    conditions: Vec<String>,
    /// Conditions that are tested on each row read.
    filter: Vec<String>,
    /// Stored columns of the key that is used.
    key: Vec<String>,
    /// Order of the result.
    order: Vec<String>,
    /// `forward` or `backward`.
    direction: ScanDirection,
    /// Maximum number of rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
}

/// Returns the stored columns of the key that a plan uses.
fn key_text(plan: &ReadPlan) -> Vec<String> {
    let rows = plan.table.settings();
    let index = plan.access.index();
    let index = index.and_then(|index| rows.indexes.iter().find(|spec| spec.name == index.name()));
    let key = index.map_or(&rows.key, |index| &index.key);
    key.iter().map(key_column_text).collect()
}

/// Returns a description of a plan as a JSON object.
pub fn explain(plan: &ReadPlan) -> String {
    let texts =
        |predicates: Vec<&crate::statement::Predicate>| predicates.iter().map(ToString::to_string).collect();
    let (access, keys, ranges) = match &plan.path {
        AccessPath::Keys(keys) => ("keys", Some(keys.len() as u64), None),
        AccessPath::Ranges(ranges) => ("ranges", None, Some(ranges.ranges.len() as u64)),
        AccessPath::Table(ranges) => ("table", None, Some(ranges.ranges.len() as u64)),
    };
    let order = plan
        .order
        .iter()
        .map(|(name, is_descending)| match is_descending {
            true => format!("{} DESC", quoted(name)),
            false => quoted(name),
        });
    super::table::row(&Explanation {
        access,
        index: plan.access.index().map(|index| index.name().to_owned()),
        keys,
        ranges,
        buckets: plan.access.layout(&plan.table).buckets(),
        conditions: texts(plan.access.decided()),
        filter: texts(plan.access.filter()),
        key: key_text(plan),
        order: match plan.result {
            SelectResult::Groups(_) => Vec::new(),
            _ => order.collect(),
        },
        direction: plan.direction,
        limit: plan.limit,
    })
}
