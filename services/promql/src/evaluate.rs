//! The evaluator: executes a plan column by column, not step by step.
//!
//! A selector or a range function produces the column of a series as soon as the source passes the series; the
//! samples are not kept. All other operations work on columns: aggregations assign each series to its group once,
//! operators match series once and then process pairs of columns.
//!
//! | module | content |
//! |---|---|
//! | `result` | conversion to the query result |
//! | `budget` | limits on samples and memory |
//! | `grid` | evaluation timestamps |
//! | `column` | a series over a grid |
//! | `selector`, `range_call`, `window` | conversion of samples to columns |
//! | `subquery` | evaluation of subqueries, conversion of columns to samples |
//! | `call`, `labels_call`, `sort`, `histogram_call`, `info` | functions |
//! | `binary`, `matching`, `set` | operators |
//! | `merge` | merging of series with equal labels |
//! | `aggregate` | aggregations |

mod aggregate;
mod binary;
mod budget;
mod call;
mod column;
mod grid;
mod histogram_call;
mod info;
mod labels_call;
mod matching;
mod merge;
mod range_call;
mod result;
mod selector;
mod set;
mod sort;
mod subquery;
mod window;

use std::sync::{Mutex, PoisonError};

use tideline_pattern::PatternBudget;

use self::budget::{Budget, HeldBytes};
use self::column::Column;
use self::grid::Grid;
use crate::annotations::{Annotation, Annotations};
use crate::ast::{Expr, TextRange, ValueType};
use crate::error::{PromqlError, Result};
use crate::plan::{self, Kind, Node};
use crate::quote::quote;
use crate::source::Source;
use crate::value::QueryValue;

/// Maximum nesting depth of a plan that is evaluated on the caller's stack. Deeper plans run on a thread with
/// a larger stack.
const DEPTH_ON_STACK: usize = 24;

/// Stack bytes per nesting level of a plan: an upper bound of the frames of all functions that evaluate one
/// level.
const STACK_PER_LEVEL: usize = 32 << 10;

/// Parameters of a query: text, time range, step and lookback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryParameters<'a> {
    /// Text from which the expression was parsed. Annotations contain line and column in it.
    pub text: &'a str,
    /// First timestamp, in milliseconds since the epoch.
    pub start: i64,
    /// Last timestamp (inclusive), in milliseconds since the epoch.
    pub end: i64,
    /// Step in milliseconds. Zero means an instant query, which is evaluated at `start` only.
    pub step: i64,
    /// Lookback in milliseconds; values below 1 count as 1. `None` selects [`Settings::lookback_delta`].
    pub lookback_delta: Option<i64>,
}

/// Settings of the evaluator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Lookback in milliseconds: an instant vector uses a sample at a step only if the sample is younger than
    /// the lookback.
    pub lookback_delta: i64,
    /// Maximum number of samples that an evaluation holds at once; a histogram counts as several.
    /// Also the maximum number of steps.
    pub max_samples: usize,
    /// True if metric names are dropped at the end of an evaluation instead of by each function.
    pub delayed_name_removal: bool,
    /// True if an aggregation by the metric name keeps the name, even if a function marked it for removal at
    /// the end. VictoriaMetrics behaves this way; in Prometheus, groups that differ only in such a name result
    /// in an error. Has no effect without `delayed_name_removal`.
    pub keeps_grouped_names: bool,
    /// True if functions over counters use the start timestamps of samples. If false, `start_timestamp` returns no
    /// series.
    pub start_timestamps: bool,
    /// Step of subqueries without an explicit step, in milliseconds.
    pub default_subquery_step: i64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lookback_delta: 300_000,
            max_samples: 50_000_000,
            delayed_name_removal: false,
            keeps_grouped_names: false,
            start_timestamps: false,
            default_subquery_step: 60_000,
        }
    }
}

/// Result of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryResult {
    /// Value of the expression.
    pub value: QueryValue,
    /// Warnings, sorted.
    pub warnings: Vec<String>,
    /// Infos, sorted.
    pub infos: Vec<String>,
    /// Statistics of the evaluation.
    pub stats: Stats,
}

/// Statistics of an evaluation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    /// Number of samples processed; a sample in the windows of several steps is counted several times.
    pub samples_total: u64,
    /// Peak number of samples held at once.
    pub samples_peak: u64,
    /// `samples_total` per step, with the timestamp of the step in milliseconds.
    pub samples_per_step: Vec<(i64, u64)>,
}

/// Evaluates an expression over the series of a source.
///
/// The result does not depend on the order in which the source passes its series.
///
/// # Errors
///
/// Returns [`PromqlError::Invalid`] if the expression of a range query is neither a scalar nor an instant
/// vector, or if a duration cannot be resolved. Returns [`PromqlError::Execution`] if the expression cannot be
/// evaluated on the series, [`PromqlError::TooMany`] if a limit is exceeded, and the errors of the source.
///
/// # Examples
///
/// Instant query over a source of two series:
///
/// ```
/// use tideline_promql::source::{SeriesData, Visit};
/// use tideline_promql::{
///     Labels, Point, QueryParameters, QueryValue, Result, Samples, Select, Settings, Source, evaluate, parse,
/// };
///
/// /// Series `up` of two hosts, each with one sample at time 0.
/// struct Hosts;
///
/// impl Source for Hosts {
///     fn select(&self, select: &Select<'_>, visit: &Visit<'_>) -> Result<()> {
///         for (host, value) in [("web-1", 1.0), ("web-2", 0.0)] {
///             let labels = Labels::from_sorted([("__name__", "up"), ("host", host)]);
///             let samples = Samples { times: &[0], values: &[value], ..Samples::default() };
///             if select.matchers.iter().all(|matcher| matcher.matches(labels.get(&matcher.name).unwrap_or(""))) {
///                 visit(&labels, SeriesData::Samples(samples))?;
///             }
///         }
///         Ok(())
///     }
///     // …
///     # fn check(&self) -> Result<()> { Ok(()) }
/// }
///
/// let text = "up == 0";
/// let parameters = QueryParameters { text, start: 60_000, end: 60_000, step: 0, lookback_delta: None };
/// let result = evaluate(&Hosts, &parse(text)?, &parameters, &Settings::default())?;
/// let QueryValue::Vector(down) = result.value else { panic!("not a vector") };
/// assert_eq!(down.len(), 1);
/// assert_eq!(down[0].labels.get("host"), Some("web-2"));
/// assert_eq!(down[0].value, Point::Float(0.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn evaluate(
    source: &dyn Source,
    expr: &Expr,
    parameters: &QueryParameters<'_>,
    settings: &Settings,
) -> Result<QueryResult> {
    let is_instant = parameters.step == 0;
    let value_type = expr.value_type();
    if !is_instant && !matches!(value_type, ValueType::Vector | ValueType::Scalar) {
        return Err(PromqlError::Invalid(format!(
            "invalid expression type {} for range query, must be Scalar or instant Vector",
            quote(value_type.documented())
        )));
    }
    let end = if is_instant {
        parameters.start
    } else {
        parameters.end
    };
    let plan = plan::plan(expr, parameters.start, end, parameters.step)?;
    let shared = Shared {
        source,
        settings,
        lookback: parameters
            .lookback_delta
            .unwrap_or(settings.lookback_delta)
            .max(1),
        budget: Budget::new(source, settings.max_samples),
        patterns: Mutex::default(),
        annotations: Mutex::default(),
    };
    let grid = Grid::new(parameters.start, end, parameters.step, settings.max_samples)?;
    let run = || result::result_of(&shared, &plan.root, grid, parameters);
    if plan.depth <= DEPTH_ON_STACK {
        return run();
    }
    let stack = (plan.depth + DEPTH_ON_STACK) * STACK_PER_LEVEL;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("promql".to_owned())
            .stack_size(stack)
            .spawn_scoped(scope, run);
        match thread.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(error) => Err(PromqlError::Execution(format!(
                "no thread could be started for the evaluation: {error}"
            ))),
        }
    })
}

/// State shared by all parts of an evaluation.
struct Shared<'a> {
    source: &'a dyn Source,
    settings: &'a Settings,
    /// Lookback in milliseconds.
    lookback: i64,
    budget: Budget<'a>,
    /// Memory budget of the regular expressions in function calls.
    patterns: Mutex<PatternBudget>,
    annotations: Mutex<Annotations>,
}

/// Evaluation over one grid: the grid of the query, of a subquery, or of a step-invariant expression.
struct Scope<'a> {
    shared: &'a Shared<'a>,
    grid: Grid,
    /// Number of samples processed per step.
    samples: Mutex<Vec<u64>>,
    /// Memory reservation of `samples`.
    _held: HeldBytes<'a>,
}

/// Value of a node. The budget holds the cost of the value.
enum Value {
    Scalar(Scalar),
    Vector(Vec<Column>),
    Text(String),
}

/// Number per step.
#[derive(Debug, Clone)]
enum Scalar {
    Constant(f64),
    Steps(Vec<f64>),
}

impl Scalar {
    #[inline]
    fn at(&self, step: usize) -> f64 {
        match self {
            Self::Constant(value) => *value,
            Self::Steps(values) => values[step],
        }
    }

    fn map(self, function: impl Fn(f64) -> f64) -> Self {
        match self {
            Self::Constant(value) => Self::Constant(function(value)),
            Self::Steps(values) => Self::Steps(values.into_iter().map(function).collect()),
        }
    }
}

impl<'a> Scope<'a> {
    fn new(shared: &'a Shared<'a>, grid: Grid) -> Result<Self> {
        let held = shared.budget.bytes(grid.steps * size_of::<u64>())?;
        Ok(Self {
            shared,
            grid,
            samples: Mutex::new(vec![0; grid.steps]),
            _held: held,
        })
    }

    /// Evaluates a node that is not a range vector.
    fn value(&self, node: &Node<'_>) -> Result<Value> {
        self.check()?;
        match &node.kind {
            Kind::Number(value) => {
                self.budget().hold(self.grid.steps)?;
                Ok(Value::Scalar(Scalar::Constant(*value)))
            }
            Kind::Text(text) => Ok(Value::Text(text.value.clone())),
            Kind::Selector(selector) => Ok(Value::Vector(self.instant_vector(selector, node.at)?)),
            Kind::Negate(inner) => self.negated(inner),
            Kind::Binary(binary) => self.binary(binary, node.at),
            Kind::Call(call) => self.call(call, node.at),
            Kind::Aggregate(aggregate) => Ok(Value::Vector(self.aggregate(aggregate, node.at)?)),
            Kind::Invariant(inner) => self.invariant(inner),
            Kind::Range(_) | Kind::Subquery(_) => Err(PromqlError::Execution(
                "expected an instant vector, got a range vector".to_owned(),
            )),
        }
    }

    /// Evaluates an instant vector.
    fn vector(&self, node: &Node<'_>) -> Result<Vec<Column>> {
        match self.value(node)? {
            Value::Vector(columns) => Ok(columns),
            Value::Scalar(_) | Value::Text(_) => {
                Err(PromqlError::Execution("expected an instant vector".to_owned()))
            }
        }
    }

    /// Evaluates a scalar.
    fn scalar(&self, node: &Node<'_>) -> Result<Scalar> {
        match self.value(node)? {
            Value::Scalar(scalar) => Ok(scalar),
            Value::Vector(_) | Value::Text(_) => Err(PromqlError::Execution("expected a scalar".to_owned())),
        }
    }

    fn negated(&self, inner: &Node<'_>) -> Result<Value> {
        match self.value(inner)? {
            Value::Scalar(scalar) => Ok(Value::Scalar(scalar.map(|value| -value))),
            Value::Text(text) => Ok(Value::Text(text)),
            Value::Vector(mut columns) => {
                for column in &mut columns {
                    for value in &mut column.values {
                        if !column::is_absent(*value) {
                            *value = column::present(-*value);
                        }
                    }
                    for histogram in column.histograms.iter_mut().flatten() {
                        std::sync::Arc::make_mut(histogram).mul(-1.0);
                    }
                    self.drop_name(column);
                }
                self.merged_held(columns, false).map(Value::Vector)
            }
        }
    }

    /// Evaluates at the first step only and repeats the result.
    fn invariant(&self, inner: &Node<'_>) -> Result<Value> {
        if self.grid.steps <= 1 {
            return self.value(inner);
        }
        let scope = Scope::new(self.shared, self.grid.first_only())?;
        let value = scope.value(inner)?;
        let samples = scope.samples.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.count_at_all(samples.iter().sum());
        let repeated = self.grid.steps - 1;
        Ok(match value {
            Value::Vector(mut columns) => {
                for column in &mut columns {
                    self.budget().hold(column.cost() * repeated)?;
                    column.first = 0;
                    column.values.resize(self.grid.steps, column.values[0]);
                    if column.has_histograms() {
                        let histogram = column.histograms[0].clone();
                        column.histograms.resize(self.grid.steps, histogram);
                    }
                }
                Value::Vector(columns)
            }
            Value::Scalar(scalar) => {
                self.budget().hold(repeated)?;
                Value::Scalar(Scalar::Constant(scalar.at(0)))
            }
            Value::Text(text) => Value::Text(text),
        })
    }

    /// Drops the metric name now, or marks it for removal at the end.
    fn drop_name(&self, column: &mut Column) {
        column.drops_name = true;
        if !self.delays_names() {
            column.drop_name();
        }
    }

    fn delays_names(&self) -> bool {
        self.shared.settings.delayed_name_removal
    }

    /// Replaces `before` samples in the budget by `result` samples. `looked_at` is the number of input values of one
    /// step. The peak includes these values as well.
    fn exchange(&self, looked_at: usize, before: usize, result: usize) -> Result<()> {
        self.budget().hold(looked_at + result)?;
        self.budget().release(looked_at + before);
        Ok(())
    }

    fn budget(&self) -> &Budget<'a> {
        &self.shared.budget
    }

    fn check(&self) -> Result<()> {
        self.shared.source.check()
    }

    /// Checks for timeout and cancellation if `index` is a multiple of 64. One series takes little time, so a check for
    /// each series would be wasteful.
    fn check_now_and_then(&self, index: usize) -> Result<()> {
        match index % 64 {
            0 => self.check(),
            _ => Ok(()),
        }
    }

    /// Returns a flag per step: true if any of the series has a value there.
    fn steps_with_any<'c>(&self, columns: impl IntoIterator<Item = &'c Column>) -> Vec<bool> {
        let mut there = vec![false; self.grid.steps];
        for column in columns {
            for (step, _) in column.cells() {
                there[step] = true;
            }
        }
        there
    }

    fn annotate(&self, annotation: &Annotation<'_>, at: TextRange) {
        self.annotations(|annotations| annotations.add(annotation, at));
    }

    fn annotations(&self, change: impl FnOnce(&mut Annotations)) {
        change(
            &mut self
                .shared
                .annotations
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// Adds to the number of processed samples, per step.
    fn count(&self, samples: impl Iterator<Item = (usize, u64)>) {
        let mut counts = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        for (step, count) in samples {
            counts[step] += count;
        }
    }

    fn count_at_all(&self, count: u64) {
        self.count((0..self.grid.steps).map(|step| (step, count)));
    }
}

fn cost(columns: &[Column]) -> usize {
    columns.iter().map(Column::cost).sum()
}
