//! The expression tree.
//!
//! Timestamps and fixed durations are in milliseconds. Number literals that are written as durations, and duration
//! expressions, are in seconds. The tree represents the query as written, with the position of each node in the
//! text. The plan resolves everything that depends on start, end and step of the query.

use crate::matcher::Matcher;

/// Byte range in the text of a query, half-open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TextRange {
    /// First byte.
    pub start: usize,
    /// End (exclusive).
    pub end: usize,
}

/// Type of the value of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// One number per step.
    Scalar,
    /// Series with at most one sample per step.
    Vector,
    /// Series with a range of samples per step.
    Matrix,
    /// String.
    String,
}

/// Expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// `42`, `0x2a`, `5m`, `Inf`.
    Number(NumberLiteral),
    /// `"text"`.
    String(StringLiteral),
    /// `metric{label="value"}`.
    Vector(VectorSelector),
    /// `metric[5m]`.
    Matrix(MatrixSelector),
    /// `expression[1h:5m]`.
    Subquery(Box<Subquery>),
    /// `(expression)`.
    Paren(Box<Paren>),
    /// Expression with a sign: `-expression` or `+expression`.
    Unary(Box<Unary>),
    /// `left operator right`.
    Binary(Box<Binary>),
    /// `function(arguments)`.
    Call(Call),
    /// `sum by (label) (expression)`.
    Aggregate(Box<Aggregate>),
}

/// Number literal.
#[derive(Debug, Clone, PartialEq)]
pub struct NumberLiteral {
    /// Value; a duration is in seconds.
    pub value: f64,
    /// True if written as a duration, such as `5m`.
    pub is_duration: bool,
    /// Position in the query.
    pub at: TextRange,
}

/// String literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StringLiteral {
    /// Value without quotes and escapes.
    pub value: String,
    /// Raw bytes, if they are not UTF-8; `value` then contains replacement characters.
    pub invalid: Option<Box<[u8]>>,
    /// Position in the query, including the quotes.
    pub at: TextRange,
}

/// Selection of series.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorSelector {
    /// Metric name before the braces. `matchers` contains it as well. A quoted name within the braces is in
    /// `matchers` only.
    pub name: Option<String>,
    /// Label matchers in the order of the text; the matcher of `name` is last.
    pub matchers: Vec<Matcher>,
    /// Time shift.
    pub shift: Shift,
    /// Treatment of the samples at the ends of a range.
    pub bounds: Bounds,
    /// True if the selector may match every series, as in the second argument of `info`.
    pub may_match_all: bool,
    /// Position in the query.
    pub at: TextRange,
}

/// Treatment of the samples at the ends of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bounds {
    /// Only samples within the range.
    #[default]
    Plain,
    /// `anchored`: the last sample before the range supplies the value at the start of the range.
    Anchored,
    /// `smoothed`: the values at both ends are interpolated.
    Smoothed,
}

/// Modifiers `offset` and `@`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Shift {
    /// Offset back in time; a negative offset moves forward. `None` if not written.
    pub offset: Option<DurationValue>,
    /// Fixed evaluation timestamp; `None` if not written.
    pub at: Option<AtModifier>,
}

/// Argument of the modifier `@`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtModifier {
    /// Timestamp in milliseconds since the epoch.
    Instant(i64),
    /// `@ start()`.
    Start,
    /// `@ end()`.
    End,
}

/// Duration of a range, an offset or a step.
#[derive(Debug, Clone, PartialEq)]
pub enum DurationValue {
    /// Duration in milliseconds.
    Fixed(i64),
    /// Duration expression in seconds; the plan computes it from the query's parameters.
    Computed(Box<DurationExpr>),
}

/// Duration expression.
#[derive(Debug, Clone, PartialEq)]
pub enum DurationExpr {
    /// Number of seconds, or a duration.
    Number(NumberLiteral),
    /// `step()`: the step of the query; zero for an instant query.
    Step(TextRange),
    /// `range()`: the time from start to end of the query.
    Range(TextRange),
    /// `min_of(a, b)`.
    Min(Box<DurationExpr>, Box<DurationExpr>, TextRange),
    /// `max_of(a, b)`.
    Max(Box<DurationExpr>, Box<DurationExpr>, TextRange),
    /// `-a` if true, otherwise `+a`, which equals `a`. The sign of a literal is part of the literal.
    Sign(bool, Box<DurationExpr>, TextRange),
    /// `a operator b`: one of `+ - * / % ^`.
    Binary(BinaryOp, Box<DurationExpr>, Box<DurationExpr>),
    /// `(a)`.
    Paren(Box<DurationExpr>, TextRange),
}

/// `selector[range]`.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixSelector {
    /// Selector of the series, with its time shift.
    pub selector: VectorSelector,
    /// Width of the range.
    pub range: DurationValue,
    /// Position in the query.
    pub at: TextRange,
}

/// `expression[range:step]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Subquery {
    /// Inner expression.
    pub expr: Expr,
    /// Width of the range.
    pub range: DurationValue,
    /// Evaluation interval; `None` selects the default interval.
    pub step: Option<DurationValue>,
    /// Time shift.
    pub shift: Shift,
    /// Position in the query.
    pub at: TextRange,
}

/// `(expression)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Paren {
    /// Inner expression.
    pub expr: Expr,
    /// Position in the query, including the parentheses.
    pub at: TextRange,
}

/// `-expression` or `+expression`.
#[derive(Debug, Clone, PartialEq)]
pub struct Unary {
    /// True for a minus sign.
    pub is_negative: bool,
    /// Operand.
    pub expr: Expr,
    /// Position in the query.
    pub at: TextRange,
}

/// Binary operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the operator of its name")]
pub enum BinaryOp {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Power,
    Atan2,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    And,
    Or,
    Unless,
    /// `</`: removes a histogram's observations above a bound.
    TrimUpper,
    /// `>/`: removes a histogram's observations below a bound.
    TrimLower,
}

/// `left operator right`.
#[derive(Debug, Clone, PartialEq)]
pub struct Binary {
    /// Operator.
    pub op: BinaryOp,
    /// Left operand.
    pub left: Expr,
    /// Right operand.
    pub right: Expr,
    /// True for the modifier `bool`: a comparison returns 0 or 1 instead of filtering.
    pub return_bool: bool,
    /// Vector matching, if both operands are vectors.
    pub matching: Option<VectorMatching>,
}

/// Rules for matching the series of two vectors.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VectorMatching {
    /// Number of series on each side that may have equal matching labels.
    pub cardinality: Cardinality,
    /// Labels of `on` or `ignoring`.
    pub labels: Vec<String>,
    /// True for `on`: series match by exactly `labels`. False for `ignoring`: series match by all labels except
    /// `labels` and the metric name.
    pub is_on: bool,
    /// Labels of `group_left` or `group_right`, copied from the "one" side.
    pub include: Vec<String>,
    /// Value of missing series of the left side; `None` if they are not filled in.
    pub fill_left: Option<f64>,
    /// Value of missing series of the right side; `None` if they are not filled in.
    pub fill_right: Option<f64>,
}

/// Number of series on each side that may have equal matching labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cardinality {
    /// One to one.
    #[default]
    OneToOne,
    /// `group_left`: several on the left side, one on the right side.
    ManyToOne,
    /// `group_right`: one on the left side, several on the right side.
    OneToMany,
    /// Many to many: the set operators.
    ManyToMany,
}

/// `function(arguments)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Called function: its signature in the function table.
    pub function: &'static crate::function::FunctionSpec,
    /// Arguments in the order of the text.
    pub arguments: Vec<Expr>,
    /// Position in the query.
    pub at: TextRange,
}

/// Aggregation operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "each is the aggregation of its name")]
pub enum AggregateOp {
    Sum,
    Avg,
    Min,
    Max,
    Count,
    Group,
    Stddev,
    Stdvar,
    TopK,
    BottomK,
    CountValues,
    Quantile,
    LimitK,
    LimitRatio,
}

/// `sum by (label) (expression)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregate {
    /// Operator.
    pub op: AggregateOp,
    /// Aggregated expression.
    pub expr: Expr,
    /// Parameter, for operators that take one.
    pub parameter: Option<Expr>,
    /// Labels of `by` or `without`.
    pub grouping: Vec<String>,
    /// True for `without`: `grouping` lists the labels to ignore.
    pub is_without: bool,
    /// Position in the query.
    pub at: TextRange,
}

impl ValueType {
    /// Returns the name used in Prometheus' documentation and messages.
    pub fn documented(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Vector => "instant vector",
            Self::Matrix => "range vector",
            Self::String => "string",
        }
    }

    /// Returns the name used in the responses of Prometheus' API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Vector => "vector",
            Self::Matrix => "matrix",
            Self::String => "string",
        }
    }
}

impl BinaryOp {
    /// Returns the operator as written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Modulo => "%",
            Self::Power => "^",
            Self::Atan2 => "atan2",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
            Self::And => "and",
            Self::Or => "or",
            Self::Unless => "unless",
            Self::TrimUpper => "</",
            Self::TrimLower => ">/",
        }
    }

    /// Returns true for comparison operators, which filter or return 0 or 1.
    pub fn is_comparison(self) -> bool {
        matches!(
            self,
            Self::Equal | Self::NotEqual | Self::Less | Self::LessEqual | Self::Greater | Self::GreaterEqual
        )
    }

    /// Returns true for the set operators `and`, `or` and `unless`.
    pub fn is_set(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Unless)
    }
}

impl AggregateOp {
    /// Returns the operator as written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
            Self::Count => "count",
            Self::Group => "group",
            Self::Stddev => "stddev",
            Self::Stdvar => "stdvar",
            Self::TopK => "topk",
            Self::BottomK => "bottomk",
            Self::CountValues => "count_values",
            Self::Quantile => "quantile",
            Self::LimitK => "limitk",
            Self::LimitRatio => "limit_ratio",
        }
    }

    /// Returns true if the operator takes a parameter before its expression.
    pub fn takes_parameter(self) -> bool {
        matches!(
            self,
            Self::TopK | Self::BottomK | Self::CountValues | Self::Quantile | Self::LimitK | Self::LimitRatio
        )
    }
}

impl Expr {
    /// Returns the type of the value.
    pub fn value_type(&self) -> ValueType {
        match self {
            Self::Number(_) => ValueType::Scalar,
            Self::String(_) => ValueType::String,
            Self::Vector(_) | Self::Aggregate(_) => ValueType::Vector,
            Self::Matrix(_) | Self::Subquery(_) => ValueType::Matrix,
            Self::Paren(paren) => paren.expr.value_type(),
            Self::Unary(unary) => unary.expr.value_type(),
            Self::Binary(binary) => match (binary.left.value_type(), binary.right.value_type()) {
                (ValueType::Scalar, ValueType::Scalar) => ValueType::Scalar,
                _ => ValueType::Vector,
            },
            Self::Call(call) => call.function.returns,
        }
    }

    /// Returns the position in the query.
    pub fn at(&self) -> TextRange {
        match self {
            Self::Number(number) => number.at,
            Self::String(string) => string.at,
            Self::Vector(selector) => selector.at,
            Self::Matrix(matrix) => matrix.at,
            Self::Subquery(subquery) => subquery.at,
            Self::Paren(paren) => paren.at,
            Self::Unary(unary) => unary.at,
            Self::Binary(binary) => TextRange {
                start: binary.left.at().start,
                end: binary.right.at().end,
            },
            Self::Call(call) => call.at,
            Self::Aggregate(aggregate) => aggregate.at,
        }
    }
}
