//! Evaluates a plan: column by column, not step by step.
//!
//! What comes out of a selector or a function over ranges is one column a series, made while the
//! source hands the series out; samples are kept nowhere. Everything above works on columns: groups are found once a
//! series, operators pair series once and then run over two columns.
//!
//! | module | holds |
//! |---|---|
//! | `answer` | from the result to what is answered |
//! | `budget` | how many samples are held |
//! | `grid` | the instants |
//! | `column` | series over a grid |
//! | `selector`, `range_call`, `window`, `subquery` | from samples to columns |
//! | `call`, `labels_call`, `sort`, `histogram_call`, `info` | functions |
//! | `binary`, `matching`, `set` | operators |
//! | `merge` | series whose labels have become equal |
//! | `aggregate` | aggregations |

mod aggregate;
mod answer;
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

/// Plans nested deeper than this are evaluated on a thread with a stack to match.
const DEPTH_ON_STACK: usize = 24;

/// Stack for one level of a plan, in bytes: more than any of the functions takes that call each other for one.
const STACK_PER_LEVEL: usize = 32 << 10;

/// When an expression is to be evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question<'a> {
    /// The text that the expression was parsed from: annotations say line and column.
    pub text: &'a str,
    /// The first instant, in milliseconds since the epoch.
    pub start: i64,
    /// The last instant, in milliseconds since the epoch, inclusive.
    pub end: i64,
    /// From one instant to the next, in milliseconds; zero = only `start`, and the answer is a vector.
    pub step: i64,
    /// Instead of that of the settings, in milliseconds.
    pub lookback_delta: Option<i64>,
}

/// How expressions are evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How old a sample may be that stands for an instant, in milliseconds.
    pub lookback_delta: i64,
    /// How many samples an evaluation may hold at once; a histogram counts as several.
    pub max_samples: usize,
    /// Whether metric names are dropped at the end of an evaluation, not by each function.
    pub delayed_name_removal: bool,
    /// Whether an aggregation by the metric name keeps it, also of series whose names were to be dropped at the end. So
    /// VictoriaMetrics does it; in Prometheus groups that differ by name alone meet in an error. Asks for
    /// `delayed_name_removal`: without it there is no name left to group by.
    pub keeps_grouped_names: bool,
    /// Whether samples' start times are used by the functions over counters.
    pub start_timestamps: bool,
    /// The step of subqueries that have none, in milliseconds.
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

/// The answer to a question.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The result.
    pub value: QueryValue,
    /// What may be wrong with it, sorted.
    pub warnings: Vec<String>,
    /// What there is to say about it, sorted.
    pub infos: Vec<String>,
    /// What it took.
    pub stats: Stats,
}

/// What an evaluation took.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    /// Samples that were looked at; one that is in the windows of several steps counts several times.
    pub samples_total: u64,
    /// How many were held at once.
    pub samples_peak: u64,
    /// `samples_total` by steps, with their instants in milliseconds.
    pub samples_per_step: Vec<(i64, u64)>,
}

/// Evaluates an expression over the series of a source.
///
/// Fails with [`PromqlError::Invalid`] if expression and question do not go together, with [`PromqlError::Execution`]
/// if the series do not, with [`PromqlError::TooMany`] if more samples would be held than may, and with what the source
/// fails with. The result does not depend on the order in which the source hands out series.
pub fn evaluate(
    source: &dyn Source,
    expr: &Expr,
    question: &Question<'_>,
    settings: &Settings,
) -> Result<Answer> {
    let is_instant = question.step == 0;
    let value_type = expr.value_type();
    if !is_instant && !matches!(value_type, ValueType::Vector | ValueType::Scalar) {
        return Err(PromqlError::Invalid(format!(
            "invalid expression type {} for range query, must be Scalar or instant Vector",
            quote(value_type.documented())
        )));
    }
    let end = if is_instant { question.start } else { question.end };
    let plan = plan::plan(expr, question.start, end, question.step)?;
    let shared = Shared {
        source,
        settings,
        lookback: question.lookback_delta.unwrap_or(settings.lookback_delta).max(1),
        budget: Budget::new(source, settings.max_samples),
        patterns: Mutex::default(),
        annotations: Mutex::default(),
    };
    let grid = Grid::new(question.start, end, question.step, settings.max_samples)?;
    let run = || answer::answer(&shared, &plan.root, grid, question);
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
            Ok(Ok(answer)) => answer,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(error) => Err(PromqlError::Execution(format!(
                "no thread could be started for the evaluation: {error}"
            ))),
        }
    })
}

/// What all parts of an evaluation share.
struct Shared<'a> {
    source: &'a dyn Source,
    settings: &'a Settings,
    /// In milliseconds.
    lookback: i64,
    budget: Budget<'a>,
    /// Regular expressions of functions.
    patterns: Mutex<PatternBudget>,
    annotations: Mutex<Annotations>,
}

/// The evaluation over one grid: the question's, a subquery's, or that of what does not vary.
struct Scope<'a> {
    shared: &'a Shared<'a>,
    grid: Grid,
    /// Samples looked at by steps.
    samples: Mutex<Vec<u64>>,
    /// The bytes of `samples`.
    _held: HeldBytes<'a>,
}

/// What a node evaluates to. The budget holds its cost.
enum Value {
    Scalar(Scalar),
    Vector(Vec<Column>),
    Text(String),
}

/// A number for each step.
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

    /// Evaluates a node that is no range.
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
                "a range vector stands where an instant vector should".to_owned(),
            )),
        }
    }

    /// Evaluates a node that is a vector.
    fn vector(&self, node: &Node<'_>) -> Result<Vec<Column>> {
        match self.value(node)? {
            Value::Vector(columns) => Ok(columns),
            Value::Scalar(_) | Value::Text(_) => {
                Err(PromqlError::Execution("expected an instant vector".to_owned()))
            }
        }
    }

    /// Evaluates a node that is a scalar.
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

    /// Drops a metric name now, or says that it is to be dropped at the end.
    fn drop_name(&self, column: &mut Column) {
        column.drops_name = true;
        if !self.delays_names() {
            column.drop_name();
        }
    }

    fn delays_names(&self) -> bool {
        self.shared.settings.delayed_name_removal
    }

    /// The budget holds results instead of what they are made of; while they are made, also the values of a step that
    /// are looked at.
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

    /// Checks once for many series: each takes little time.
    fn check_now_and_then(&self, place: usize) -> Result<()> {
        match place % 64 {
            0 => self.check(),
            _ => Ok(()),
        }
    }

    /// At which steps any of the series has a value.
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

    /// Adds to the samples looked at, step by step.
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
