//! Counts of rows by values of a search index, with metrics of each group.
//!
//! The index returns counts by its internal codes. This module checks requests, and converts the codes to values of the
//! types of the table.

use std::collections::BTreeMap;
use std::num::FpCategory;

use serde_json::{Value, json};
use tideline_engine::condition::ValueRef;
use tideline_engine::model::{ColumnType, GeoPoint, Timestamp};
use tideline_engine::row_search::{
    RowFacetKey, RowFacetQuery, RowFacets, RowForm, RowMetric, RowSums, RowWindows, SortValue,
};
use tideline_engine::row_values::decimal_of_text;
use tideline_engine::{Engine, WideTable};
use tideline_openapi::facet::FacetOrder;
use tideline_openapi::query::WindowWidth;
use tideline_openapi::row_search::{
    FacetRows, Metrics, RowFacetGroup, RowFacetKey as FacetKey, RowFacetList, RowFunction,
};
use tideline_query::{Window, WindowSpec};

use crate::aggregate::{bounds_of, window_of};
use crate::error::{Result, RowsError};
use crate::index_filter::{GEO_FORMS, IndexFilter, NUMBER_FORMS, VALUE_FORMS};

/// Default for the maximum number of groups in each list.
const GROUPS_DEFAULT: usize = 10;
/// Maximum number of columns with metrics, and maximum number of functions of one column.
const METRICS_MAX: usize = 16;
/// Maximum number of rings.
const RINGS_MAX: usize = 100;

/// Planned request for counts.
#[derive(Debug)]
pub struct Facets {
    filter: IndexFilter,
    keys: Vec<Key>,
    metrics: Vec<Metric>,
    limit: usize,
    is_by_value: bool,
}

/// Key of the groups, with the type of its values.
#[derive(Debug)]
struct Key {
    by: RowFacetKey,
    /// Position of the column in the index.
    column: usize,
    form: RowForm,
    declared: Option<ColumnType>,
}

/// Functions of a column.
#[derive(Debug)]
struct Metric {
    column: String,
    number: usize,
    form: RowForm,
    is_time: bool,
    functions: Vec<RowFunction>,
}

impl Facets {
    /// Plans a request for counts.
    ///
    /// # Errors
    ///
    /// [`RowsError::Invalid`] if a column is not in the index in a form that supports its use, and
    /// [`RowsError::OverLimit`] for too many keys, metrics or groups; and the errors of
    /// [`RowMatcher::for_index`](crate::condition::RowMatcher::for_index) and [`Engine::search_index`].
    pub fn new(engine: &Engine, table: &WideTable, request: &FacetRows) -> Result<Self> {
        let filter = IndexFilter::new(
            engine,
            table,
            request.index.as_deref(),
            request.filter.as_ref(),
            request.at_least.as_deref(),
            request.tier,
        )?;
        if request.metrics.len() > METRICS_MAX {
            return Err(RowsError::over(
                "number of metrics",
                METRICS_MAX as u64,
                request.metrics.len() as u64,
            ));
        }
        let keys = request.by.iter().map(|key| key_of(&filter, table, key));
        let metrics = request
            .metrics
            .iter()
            .map(|metric| metric_of(&filter, table, metric));
        Ok(Self {
            keys: keys.collect::<Result<_>>()?,
            metrics: metrics.collect::<Result<_>>()?,
            limit: request.limit.unwrap_or(GROUPS_DEFAULT),
            is_by_value: request.order == FacetOrder::Value,
            filter,
        })
    }

    /// Returns the index, with the condition.
    pub(crate) fn filter(&self) -> &IndexFilter {
        &self.filter
    }

    /// Iterates over the columns of the keys, as their positions in the index.
    pub(crate) fn key_columns(&self) -> impl Iterator<Item = usize> {
        self.keys.iter().map(|key| key.column)
    }

    /// Iterates over the columns with metrics, as their positions in the index.
    pub(crate) fn metric_columns(&self) -> impl Iterator<Item = usize> {
        self.metrics.iter().map(|metric| metric.number)
    }

    /// Counts the rows. The request id in the result is empty.
    ///
    /// # Errors
    ///
    /// [`RowsError::Cancelled`] if `is_stopped` returns true, [`RowsError::Engine`] with
    /// [`SearchBehind`](tideline_engine::EngineError::SearchBehind) if the index does not reach the requested position
    /// in time, and the errors of [`Engine::facet_rows`].
    pub fn count(
        &self,
        engine: &Engine,
        table: &WideTable,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<RowFacetList> {
        let read = self.key_columns().chain(self.metric_columns());
        let _memory = self.filter.begin(engine, table, read)?;
        let by: Vec<RowFacetKey> = self.keys.iter().map(|key| key.by.clone()).collect();
        let metrics = self.metrics.iter().map(|metric| RowMetric {
            column: metric.number,
            has_percentiles: metric
                .functions
                .iter()
                .any(|function| matches!(function, RowFunction::Percentile(_))),
        });
        let metrics: Vec<RowMetric> = metrics.collect();
        let query = RowFacetQuery {
            root: self.filter.root(),
            by: &by,
            metrics: &metrics,
            limit: self.limit,
            is_by_value: self.is_by_value,
            is_stopped,
        };
        let facets = engine.facet_rows(table, self.filter.index(), &query)?;
        if is_stopped() {
            return Err(RowsError::Cancelled);
        }
        let (waiting, lag_ms) = self.filter.backlog(engine);
        Ok(RowFacetList {
            rows: facets.rows,
            metrics: self.metrics_of(&facets.metrics),
            distinct: facets.distinct,
            groups: self.groups(facets.groups, 0),
            waiting,
            lag_ms,
            tier: self.filter.seen_tier(),
            shards: self.filter.shards_read(),
            request_id: String::new(),
        })
    }

    fn groups(&self, groups: Vec<(SortValue, RowFacets)>, level: usize) -> Vec<RowFacetGroup> {
        let Some(key) = self.keys.get(level) else {
            return Vec::new();
        };
        let has_inner = level + 1 < self.keys.len();
        let groups = groups.into_iter().map(|(value, facets)| RowFacetGroup {
            value: key.shown(&value),
            rows: facets.rows,
            metrics: self.metrics_of(&facets.metrics),
            distinct: has_inner.then_some(facets.distinct),
            groups: has_inner.then(|| self.groups(facets.groups, level + 1)),
        });
        groups.collect()
    }

    fn metrics_of(&self, sums: &[RowSums]) -> Metrics {
        let mut all = Metrics::new();
        for (metric, sums) in self.metrics.iter().zip(sums) {
            let values: BTreeMap<String, Value> = metric
                .functions
                .iter()
                .map(|function| (name_of(*function), metric.value(*function, sums)))
                .collect();
            all.entry(metric.column.clone()).or_default().extend(values);
        }
        all
    }
}

impl Key {
    fn shown(&self, value: &SortValue) -> Value {
        match (value, &self.by) {
            (SortValue::Missing, _) => Value::Null,
            (SortValue::Text(text), _) => {
                let text = String::from_utf8_lossy(text).into_owned();
                match self.declared {
                    Some(ColumnType::Decimal) => {
                        decimal_of_text(&text).map_or(json!(text), |number| json!(number.to_string()))
                    }
                    Some(ColumnType::Binary) => {
                        crate::value::base64_of_hex(&text).map_or(json!(text), Value::from)
                    }
                    _ => json!(text),
                }
            }
            (SortValue::Bits(ring), RowFacetKey::Rings(_, _, radii)) => radii
                .get(*ring as usize)
                .map_or(json!("beyond"), |radius| json!(radius)),
            (SortValue::Bits(cell), RowFacetKey::Grid(_, size)) => {
                // Removes rounding errors of the multiplication.
                let rounded = |degrees: f64| (degrees * 1e9).round() / 1e9;
                json!({
                    "lat": rounded((cell >> 32) as f64 * size - 90.0),
                    "lon": rounded(f64::from(*cell as u32) * size - 180.0),
                })
            }
            (SortValue::Bits(bits), _) => {
                shown(self.form, *bits, self.declared == Some(ColumnType::Timestamp))
            }
        }
    }
}

impl Metric {
    fn value(&self, function: RowFunction, sums: &RowSums) -> Value {
        let bits = |bits: Option<u64>| bits.map_or(Value::Null, |bits| shown(self.form, bits, self.is_time));
        let mean = sums.sum / sums.count as f64;
        match function {
            RowFunction::Count => json!(sums.count),
            RowFunction::Sum => double(sums.sum),
            RowFunction::Mean if sums.count == 0 => Value::Null,
            RowFunction::Mean if self.is_time => json!(time(mean as i64)),
            RowFunction::Mean => double(mean),
            RowFunction::Min => bits(sums.min),
            RowFunction::Max => bits(sums.max),
            RowFunction::Percentile(percent) => sums.percentile(percent).map_or(Value::Null, double),
        }
    }
}

/// Returns the name of a function in a result.
fn name_of(function: RowFunction) -> String {
    match function {
        RowFunction::Count => "count".to_owned(),
        RowFunction::Sum => "sum".to_owned(),
        RowFunction::Mean => "mean".to_owned(),
        RowFunction::Min => "min".to_owned(),
        RowFunction::Max => "max".to_owned(),
        RowFunction::Percentile(percent) => format!("percentile_{percent}"),
    }
}

fn shown(form: RowForm, bits: u64, is_time: bool) -> Value {
    match form.decoded(bits) {
        ValueRef::Signed(nanos) if is_time => json!(time(nanos)),
        ValueRef::Signed(number) => json!(number),
        ValueRef::Unsigned(number) => json!(number),
        ValueRef::Float(number) => double(number),
        ValueRef::Boolean(value) => json!(value),
        _ => Value::Null,
    }
}

/// Returns a double in its JSON form. JSON has no numbers for doubles that are not finite; they have the texts that rows
/// have.
fn double(number: f64) -> Value {
    match number.classify() {
        FpCategory::Nan => json!("NaN"),
        FpCategory::Infinite if number > 0.0 => json!("Infinity"),
        FpCategory::Infinite => json!("-Infinity"),
        _ => json!(number),
    }
}

fn time(nanos: i64) -> String {
    Timestamp::from_nanos_clamped(nanos).to_rfc3339()
}

fn key_of(filter: &IndexFilter, table: &WideTable, key: &FacetKey) -> Result<Key> {
    let members = [key.interval.is_some(), key.near.is_some(), key.grid.is_some()];
    if members.iter().filter(|is_given| **is_given).count() > 1 {
        return Err(RowsError::Invalid(format!(
            "by: column {:?} has several of interval, near and grid; give one",
            key.column
        )));
    }
    if key.near.is_some() == key.meters.is_empty() {
        return Err(RowsError::Invalid(format!(
            "by: column {:?} needs both near and meters for rings",
            key.column
        )));
    }
    let is_geo = key.near.is_some() || key.grid.is_some();
    let possible = match (is_geo, &key.interval) {
        (true, _) => GEO_FORMS,
        (false, Some(_)) => NUMBER_FORMS,
        (false, None) => VALUE_FORMS,
    };
    let (column, form) = filter.column(table, ("by", &key.column), key.form, possible)?;
    let declared = table.column_type(&key.column);
    if key.zone.is_some() && (key.interval.is_none() || declared != Some(ColumnType::Timestamp)) {
        return Err(RowsError::Invalid(format!(
            "by: column {:?} has a zone, which applies only to intervals of times",
            key.column
        )));
    }
    let by = match (&key.interval, key.near, key.grid) {
        (Some(width), ..) if declared == Some(ColumnType::Timestamp) => time_interval(key, column, width)?,
        (Some(width), ..) => interval(&key.column, column, form, width)?,
        (_, Some(center), _) => {
            if key.meters.len() > RINGS_MAX {
                return Err(RowsError::over(
                    "number of rings",
                    RINGS_MAX as u64,
                    key.meters.len() as u64,
                ));
            }
            if !key.meters.is_sorted_by(|one, other| one < other)
                || !key.meters.iter().all(|meters| *meters >= 0.0)
            {
                return Err(RowsError::Invalid(
                    "by: meters must be distinct radii of 0 or more, in increasing order".into(),
                ));
            }
            let center = GeoPoint::new(center.lat, center.lon).ok_or_else(|| {
                RowsError::Invalid("by: near needs a lat within ±90 and a lon within ±180 degrees".into())
            })?;
            RowFacetKey::Rings(column, center, key.meters.clone())
        }
        (_, _, Some(size)) => {
            if !(0.0001..=90.0).contains(&size) {
                return Err(RowsError::Invalid(format!(
                    "by: grid of {size} degrees; 0.0001 to 90 are possible"
                )));
            }
            RowFacetKey::Grid(column, size)
        }
        (None, None, None) => RowFacetKey::Value(column),
    };
    Ok(Key {
        by,
        column,
        form,
        declared,
    })
}

/// Returns the key for intervals of times: of a fixed width, or of days, weeks, months or years of a time zone.
fn time_interval(key: &FacetKey, column: usize, width: &Value) -> Result<RowFacetKey> {
    let invalid = || {
        RowsError::Invalid(format!(
            "by: the interval of column {:?} must be a duration above zero such as \"15m\", or a number of days, weeks, \
             months or years such as \"1d\", \"1w\", \"1mo\" or \"1y\", not {width}",
            key.column
        ))
    };
    let width = serde_json::from_value::<WindowWidth>(width.clone()).map_err(|_| invalid())?;
    match width {
        WindowWidth::Fixed(nanos) if nanos <= 0 => return Err(invalid()),
        WindowWidth::Calendar(0, _) => return Err(invalid()),
        WindowWidth::Fixed(_) if key.zone.is_some() => {
            return Err(RowsError::Invalid(format!(
                "by: column {:?} has a zone, which applies only to intervals of days, weeks, months or years",
                key.column
            )));
        }
        _ => {}
    }
    let window = window_of(width, key.zone.as_deref(), None)?;
    if let Window::Fixed(WindowSpec { width, offset: 0 }) = window {
        return Ok(RowFacetKey::Interval(column, width));
    }
    bounds_of(window, 0)?;
    let bounds = move |time| bounds_of(window, time).unwrap_or((time, time));
    Ok(RowFacetKey::Windows(column, RowWindows::new(bounds)))
}

fn interval(name: &str, column: usize, form: RowForm, width: &Value) -> Result<RowFacetKey> {
    let invalid = |expected: &str| {
        RowsError::Invalid(format!(
            "by: the interval of column {name:?} must be {expected}, not {width}"
        ))
    };
    if form == RowForm::Float {
        let width = width.as_f64().filter(|width| *width > 0.0 && width.is_finite());
        return Ok(RowFacetKey::FloatInterval(
            column,
            width.ok_or_else(|| invalid("a number above 0"))?,
        ));
    }
    let width = width.as_i64().filter(|width| *width > 0);
    Ok(RowFacetKey::Interval(
        column,
        width.ok_or_else(|| invalid("an integer above 0"))?,
    ))
}

fn metric_of(
    filter: &IndexFilter,
    table: &WideTable,
    metric: &tideline_openapi::row_search::RowMetric,
) -> Result<Metric> {
    let (number, form) = filter.column(table, ("metrics", &metric.column), None, NUMBER_FORMS)?;
    let declared = table.column_type(&metric.column);
    let is_time = declared == Some(ColumnType::Timestamp);
    if metric.functions.is_empty() || metric.functions.len() > METRICS_MAX {
        return Err(RowsError::Invalid(format!(
            "metrics: column {:?} has {} functions; 1 to {METRICS_MAX} are possible",
            metric.column,
            metric.functions.len()
        )));
    }
    for function in &metric.functions {
        match function {
            RowFunction::Percentile(percent) if !(0.0..=100.0).contains(percent) => {
                return Err(RowsError::Invalid(format!(
                    "metrics: percentile {percent}; 0 to 100 are possible"
                )));
            }
            RowFunction::Sum | RowFunction::Percentile(_) if is_time => {
                return Err(RowsError::Invalid(format!(
                    "metrics: column {:?} has times, which have no {}",
                    metric.column,
                    name_of(*function)
                )));
            }
            _ => {}
        }
    }
    Ok(Metric {
        column: metric.column.clone(),
        number,
        form,
        is_time,
        functions: metric.functions.clone(),
    })
}
