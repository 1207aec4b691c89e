//! Explanations of reads: access path, ranges, estimated rows, and advice on the key.
//!
//! A read is planned in the same way for its explanation and for its execution. An explanation therefore refuses every
//! request that the read would refuse. Exceptions are scans of the whole table, and reads of an index that lacks
//! entries of some tiers: the result reports them. Sizes are averages over the first rows of the result.
//!
//! | module | holds |
//! |---|---|
//! | `search` | searches, facets and aggregates through a search index |

mod search;

use std::sync::Arc;

use tideline_engine::key_codec::layout::{ColumnOrigin, KeyLayout, Ranges};
use tideline_engine::key_codec::tuple::{ColumnOrder, KeyKind, KeyValue};
use tideline_engine::rows::RowPath;
use tideline_engine::{Engine, WideTable};
use tideline_openapi::row::{GetRows, KeyBounds, Members};
use tideline_openapi::row_aggregate::AggregateRows;
use tideline_openapi::row_explain::{
    AccessPath, CountInterval, ExplainRows, ExplainedKeyColumn, ExplainedParts, RowsExplained,
};

use self::search::{explain_facets, explain_search};
use crate::aggregate::{Aggregation, scan_terms, selection_of};
use crate::error::{Result, RowsError};
use crate::estimate::{Estimate, EstimateEffort};
use crate::read::{PageLimits, Scan, ScanTerms, keys_of};
use crate::selection::Selection;

/// Maximum number of rows whose sizes are measured.
const MEASURED_ROWS: u64 = 200;
/// Average length of keys, in bytes, above which shorter keys are advised.
const KEY_BYTES_ADVISED: f64 = 1_024.0;
/// Average length of keys, in bytes, up to which no advice is given on the share of the key in a row.
const KEY_BYTES_SMALL: f64 = 64.0;
/// Share of the key in a row above which shorter keys are advised.
const KEY_SHARE_ADVISED: f64 = 0.5;
/// Number of buckets above which fewer buckets are advised.
const BUCKETS_ADVISED: u16 = 64;

/// Total sizes of the measured rows.
#[derive(Debug, Default)]
struct Sizes {
    rows: u64,
    key_bytes: u64,
    row_bytes: u64,
    /// True if a key contains a text that looks like a JSON object or list.
    has_json: bool,
}

/// Explains a read. The request id in the result is empty.
///
/// # Errors
///
/// [`RowsError::Invalid`] unless the request has exactly one read, [`RowsError::OverLimit`] for a search with too many
/// tests, [`RowsError::Cancelled`] if `is_stopped` returns true, and the errors of this read.
pub fn explain(
    engine: &Engine,
    table: &Arc<WideTable>,
    request: &ExplainRows,
    is_stopped: &dyn Fn() -> bool,
) -> Result<RowsExplained> {
    let ExplainRows {
        get,
        scan,
        count,
        search,
        facets,
        aggregate,
    } = request;
    match (get, scan, count, search, facets, aggregate) {
        (Some(get), None, None, None, None, None) => explain_get(engine, table, get, is_stopped),
        (None, Some(scan), None, None, None, None) => {
            let terms = ScanTerms {
                index: scan.index.as_deref(),
                prefix: &scan.prefix,
                range: scan.range.as_ref(),
                direction: scan.direction,
                filter: scan.filter.as_ref(),
                tier: scan.tier,
                page_token: None,
                allow_scan: scan.allow_scan,
            };
            let columns = scan.columns.as_deref();
            let integers = Default::default();
            let selection =
                Selection::new(columns, scan.versions, scan.version_range, integers, engine.now())?
                    .with_revisions(scan.revisions);
            explain_scan(engine, table, terms, &selection, is_stopped)
        }
        (None, None, Some(count), None, None, None) => {
            let terms = ScanTerms {
                index: count.index.as_deref(),
                prefix: &count.prefix,
                range: count.range.as_ref(),
                direction: Default::default(),
                filter: count.filter.as_ref(),
                tier: count.tier,
                page_token: None,
                allow_scan: count.allow_scan,
            };
            explain_scan(engine, table, terms, &Selection::of_nothing(), is_stopped)
        }
        (None, None, None, Some(search), None, None) => explain_search(engine, table, search, is_stopped),
        (None, None, None, None, Some(facets), None) => explain_facets(engine, table, facets, is_stopped),
        (None, None, None, None, None, Some(aggregate)) => {
            explain_aggregate(engine, table, aggregate, is_stopped)
        }
        _ => Err(RowsError::Invalid(
            "give exactly one of get, scan, count, search, facets and aggregate".into(),
        )),
    }
}

/// Explains an aggregate like the read that finds its rows.
fn explain_aggregate(
    engine: &Engine,
    table: &Arc<WideTable>,
    request: &AggregateRows,
    is_stopped: &dyn Fn() -> bool,
) -> Result<RowsExplained> {
    let is_range = request.keys.is_none() && request.search.is_none();
    // An aggregate that needs `allow_scan` is explained, too.
    let allowed = AggregateRows {
        allow_scan: request.allow_scan || is_range,
        ..request.clone()
    };
    Aggregation::new(engine, table, &allowed)?;
    if let Some(search) = &request.search {
        return search::explain_aggregate(engine, table, (request, search), is_stopped);
    }
    let mut explained = match &request.keys {
        Some(keys) => {
            let get = GetRows {
                keys: Some(keys.clone()),
                ..GetRows::default()
            };
            explain_get(engine, table, &get, is_stopped)
        }
        None => {
            let keys = request.by.iter().map(|key| &key.column);
            let columns = keys.chain(request.metrics.iter().map(|metric| &metric.column));
            let columns = columns.filter(|name| !table.layout().has_column(name));
            let columns: Vec<String> = columns.cloned().collect();
            let selection = selection_of(engine, &columns)?;
            explain_scan(engine, table, scan_terms(request), &selection, is_stopped)
        }
    }?;
    explained.is_ordered = false;
    Ok(explained)
}

fn explain_get(
    engine: &Engine,
    table: &Arc<WideTable>,
    request: &GetRows,
    is_stopped: &dyn Fn() -> bool,
) -> Result<RowsExplained> {
    let keys = keys_of(table, request)?;
    let mut sizes = Sizes::default();
    let mut found = 0;
    for key in &keys {
        if is_stopped() {
            return Err(RowsError::Cancelled);
        }
        if let Some(row) = engine.row(table, key)? {
            found += 1;
            sizes.add(table, &row);
        }
    }
    let bounds = match (&request.keys, &request.lists) {
        (_, Some(lists)) => {
            let columns = table.layout().logical().iter();
            let lists = columns.filter_map(|column| Some((&column.name, lists.get(&column.name)?)));
            lists
                .map(|(name, list)| format!("{name} in a list of {}", list.len()))
                .collect()
        }
        _ => vec![format!("{} whole keys", keys.len())],
    };
    let estimate = Estimate {
        count: found,
        low: found,
        high: found,
        scanned: found,
        is_exact: true,
    };
    let mut explained = explained(table, table.layout(), AccessPath::Keys, bounds, &sizes, estimate);
    explained.keys = Some(keys.len() as u64);
    explained.is_ordered = false;
    Ok(explained)
}

fn explain_scan(
    engine: &Engine,
    table: &Arc<WideTable>,
    terms: ScanTerms<'_>,
    selection: &Selection,
    is_stopped: &dyn Fn() -> bool,
) -> Result<RowsExplained> {
    let is_allowed = terms.allow_scan;
    let terms = ScanTerms {
        allow_scan: true,
        ..terms
    };
    let read = Scan::new(engine, table, &terms, selection)?;
    // The sizes are those of whole rows.
    let scan = Scan::new(engine, table, &terms, &Selection::default())?;
    let is_bounded = terms.range.is_some_and(|it| it.from.is_some() || it.to.is_some());
    let is_table_scan = terms.prefix.is_empty() && !is_bounded;
    let access = match (scan.ranges.ranges.is_empty(), is_table_scan, is_bounded) {
        (true, ..) => AccessPath::Nothing,
        (_, true, _) => AccessPath::TableScan,
        (_, _, true) => AccessPath::Range,
        (_, _, false) => AccessPath::Prefix,
    };
    let refusal = scan.check_tiers(engine).err();
    let (estimate, sizes) = match refusal {
        None => measured(engine, table, &scan, is_stopped)?,
        Some(_) => (Estimate::NOTHING, Sizes::default()),
    };
    let layout = scan.path.layout(table);
    let bounds = bounds_text(layout, terms.prefix, terms.range);
    let mut explained = explained(table, layout, access, bounds, &sizes, estimate);
    if let RowPath::Index { index, is_covered } = &read.path {
        explained.index = Some(index.name().to_owned());
        explained.is_covered = Some(*is_covered);
        explained.index_tier = (!index.tier().is_all()).then(|| index.tier().into());
    }
    explained.ranges = scan.ranges.ranges.len() as u64;
    explained.is_table_scan = is_table_scan;
    explained.is_allowed = refusal.is_none() && (is_allowed || !is_table_scan);
    explained
        .advice
        .extend(refusal.map(|refusal| refusal.to_string()));
    explained.is_ordered = scan.ranges.is_ordered;
    if let Some(matcher) = &scan.matcher {
        explained.filter_columns = matcher.columns();
    }
    explained.parts = explained_parts(engine, table, &scan)?;
    advise_scan(layout, &scan.ranges, &mut explained);
    if let Some((parts, spec)) = explained.parts.as_ref().zip(table.settings().parts.as_ref())
        && parts.read == parts.of
        && parts.of > 1
    {
        explained.advice.push(format!(
            "the read looks into all {} parts; limit {:?} by the range or the condition, so that it reads the parts of that \
             time",
            parts.of, spec.by
        ));
    }
    Ok(explained)
}

/// Returns the estimated number of rows of a scan, and the total sizes of its first rows.
fn measured(
    engine: &Engine,
    table: &Arc<WideTable>,
    scan: &Scan,
    is_stopped: &dyn Fn() -> bool,
) -> Result<(Estimate, Sizes)> {
    let estimate = scan.estimate(engine, table, EstimateEffort::EXPLAIN, is_stopped)?;
    let mut sizes = Sizes::default();
    let limits = PageLimits {
        rows: Some(MEASURED_ROWS),
        scanned: Some(10 * MEASURED_ROWS),
        bytes: None,
    };
    scan.stored_page(engine, table, limits, is_stopped, &mut |row| {
        sizes.add(table, row);
        Ok(0)
    })?;
    Ok((estimate, sizes))
}

/// Returns the parts that a scan reads; `None` for a table that is not divided.
fn explained_parts(engine: &Engine, table: &WideTable, scan: &Scan) -> Result<Option<ExplainedParts>> {
    let read = engine.parts_of_scan(table, &scan.path, &scan.ranges, &scan.parts)?;
    let Some(read) = read else { return Ok(None) };
    let visible = engine
        .table_parts(table)?
        .into_iter()
        .filter(|part| part.is_visible);
    Ok(Some(ExplainedParts {
        read: read.len() as u64,
        of: visible.count() as u64,
        first: read.first().cloned(),
        last: read.last().cloned(),
    }))
}

/// Returns an explanation with the members that all kinds of reads have.
fn explained(
    table: &WideTable,
    layout: &KeyLayout,
    access: AccessPath,
    bounds: Vec<String>,
    sizes: &Sizes,
    estimate: Estimate,
) -> RowsExplained {
    let average = |bytes: u64| match sizes.rows {
        0 => 0.0,
        rows => (bytes as f64 * 10.0 / rows as f64).round() / 10.0,
    };
    let columns = layout.stored().iter();
    let key = columns.map(|column| ExplainedKeyColumn {
        name: column.name().to_owned(),
        stored: origin_name(column.origin()).to_owned(),
        order: match column.order() {
            ColumnOrder::Ascending => "asc",
            ColumnOrder::Descending => "desc",
        }
        .to_owned(),
    });
    RowsExplained {
        access,
        keys: None,
        ranges: 0,
        buckets: layout.buckets(),
        index: None,
        is_covered: None,
        index_tier: None,
        parts: None,
        search: None,
        bounds,
        filter_columns: Vec::new(),
        is_table_scan: false,
        is_allowed: true,
        is_ordered: true,
        estimated_rows: estimate.count,
        interval: (!estimate.is_exact).then_some(CountInterval {
            low: estimate.low,
            high: estimate.high,
        }),
        key: key.collect(),
        key_bytes: average(sizes.key_bytes),
        row_bytes: average(sizes.row_bytes),
        advice: advise_key(table, sizes),
        request_id: String::new(),
    }
}

const fn origin_name(origin: ColumnOrigin) -> &'static str {
    match origin {
        ColumnOrigin::Logical => "column",
        ColumnOrigin::HashPrefix => "hash_prefix",
        ColumnOrigin::Bucket => "bucket",
        ColumnOrigin::Reverse => "reverse",
        ColumnOrigin::Splice => "splice",
    }
}

impl Sizes {
    fn add(&mut self, table: &WideTable, row: &tideline_engine::rows::StoredRow) {
        self.rows += 1;
        self.key_bytes += row.key.len() as u64;
        self.row_bytes += row.bytes() as u64;
        let values = table.layout().decode(&row.key).unwrap_or_default();
        self.has_json |= values.iter().any(|value| match value {
            KeyValue::String(text) => {
                (text.starts_with('{') && text.ends_with('}'))
                    || (text.starts_with('[') && text.ends_with(']'))
            }
            _ => false,
        });
    }
}

/// Returns the restrictions of the key columns as texts, in the order of the key.
fn bounds_text(layout: &KeyLayout, prefix: &Members, range: Option<&KeyBounds>) -> Vec<String> {
    let mut bounds = Vec::new();
    for column in layout.logical() {
        let value = prefix.get(&column.name);
        bounds.extend(value.map(|value| format!("{} = {value}", column.name)));
        let Some(range) = range.filter(|range| range.column == column.name) else {
            continue;
        };
        let name = &column.name;
        if let Some(from) = &range.from {
            let operator = if range.from_exclusive { ">" } else { ">=" };
            bounds.push(format!("{name} {operator} {from}"));
        }
        if let Some(to) = &range.to {
            let operator = if range.to_inclusive { "<=" } else { "<" };
            bounds.push(format!("{name} {operator} {to}"));
        }
    }
    bounds
}

/// Returns advice on the key of a table.
fn advise_key(table: &WideTable, sizes: &Sizes) -> Vec<String> {
    let layout = table.layout();
    let mut advice = Vec::new();
    let rows = sizes.rows.max(1) as f64;
    let (key, row) = (sizes.key_bytes as f64 / rows, sizes.row_bytes as f64 / rows);
    if key > KEY_BYTES_ADVISED {
        advice.push(format!(
            "keys have {key:.0} bytes on average; keep them below 1 KiB, for example with a hash of long texts, because \
             each comparison reads them"
        ));
    } else if key > KEY_BYTES_SMALL && key > row * KEY_SHARE_ADVISED {
        advice.push(format!(
            "the key is {:.0} % of a row ({key:.0} of {row:.0} bytes); move texts that do not identify the row into columns",
            key / row * 100.0
        ));
    }
    if sizes.has_json {
        advice.push(
            "a key contains JSON; give each member that identifies the row a key column of its own, so that prefixes \
             and ranges apply to it"
                .into(),
        );
    }
    let partition = layout.partition_columns();
    if let [only] = partition
        && layout.logical()[*only].kind == KeyKind::Boolean
    {
        advice.push(format!(
            "the partition column {:?} has two values, so all rows belong to two partitions; begin the key with a \
             column of more values",
            layout.logical()[*only].name
        ));
    }
    if let Some(buckets) = layout.buckets().filter(|buckets| *buckets > BUCKETS_ADVISED) {
        advice.push(format!(
            "the key has {buckets} buckets, and each ordered scan reads all of them; {BUCKETS_ADVISED} or fewer spread \
             load as well"
        ));
    }
    if table.settings().allow_rising_key {
        advice.push(
            "the setting allow_rising_key is on; if the first key column rises with time, all writes go to the end of \
             the table"
                .into(),
        );
    }
    advice
}

/// Adds advice on a scan.
fn advise_scan(layout: &KeyLayout, ranges: &Ranges, explained: &mut RowsExplained) {
    let first = &layout.logical()[0].name;
    if explained.is_table_scan {
        let instead = match explained.filter_columns.is_empty() {
            true => String::new(),
            false => format!(
                "; the condition on {} is tested on every row",
                explained.filter_columns.join(", ")
            ),
        };
        explained.advice.push(format!(
            "the read has no value and no bounds of the first key column {first:?}, so it reads the whole table{instead}"
        ));
    }
    let restricted = |name: &String| {
        let begins = |bound: &String| bound.starts_with(&format!("{name} "));
        explained.bounds.iter().any(begins)
    };
    let in_key = explained.filter_columns.iter();
    let in_key: Vec<&String> = in_key
        .filter(|name| layout.has_column(name) && !restricted(name))
        .collect();
    let hint = in_key.first().map(|name| {
        format!(
            "the condition tests the key column {name:?} in each row; use it in prefix or range if the key columns before \
             it are known"
        )
    });
    explained.advice.extend(hint);
    if ranges.ranges.len() > usize::from(BUCKETS_ADVISED) {
        explained.advice.push(format!(
            "the read merges {} ranges; with values of the hashed columns in prefix it reads one",
            ranges.ranges.len()
        ));
    }
}
