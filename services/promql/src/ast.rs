//! What an expression is made of.
//!
//! Times are milliseconds, as everywhere in PromQL. The tree says what was written, with the place of each node in the
//! text; what depends on the question (start, end, step) is worked out by the plan.

use crate::matcher::Matcher;

/// A place in the text of a query: bytes, half-open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TextRange {
    /// First byte.
    pub start: usize,
    /// Behind the last byte.
    pub end: usize,
}

/// What an expression evaluates to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ValueType {
    /// One number an instant.
    Scalar,
    /// Series with one sample an instant.
    Vector,
    /// Series with a range of samples.
    Matrix,
    /// A text.
    String,
}

/// An expression.
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
    /// `-expression`.
    Unary(Box<Unary>),
    /// `left operator right`.
    Binary(Box<Binary>),
    /// `function(arguments)`.
    Call(Call),
    /// `sum by (label) (expression)`.
    Aggregate(Box<Aggregate>),
}

/// A number.
#[derive(Debug, Clone, PartialEq)]
pub struct NumberLiteral {
    /// Its value; a duration is in seconds.
    pub value: f64,
    /// Whether it was written as a duration, such as `5m`.
    pub is_duration: bool,
    /// Where it stands.
    pub at: TextRange,
}

/// A text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StringLiteral {
    /// Its value, unquoted.
    pub value: String,
    /// Its bytes where they are not UTF-8; `value` has replacement characters in their place then.
    pub invalid: Option<Box<[u8]>>,
    /// Where it stands, with its quotes.
    pub at: TextRange,
}

/// Selects series.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorSelector {
    /// The metric name in front of the braces; it is also among the matchers. A quoted one inside them is only there.
    pub name: Option<String>,
    /// Conditions on labels, in the order of the text; that of `name` last.
    pub matchers: Vec<Matcher>,
    /// What shifts it in time.
    pub shift: Shift,
    /// How a range of it is bounded.
    pub bounds: Bounds,
    /// Whether it may match every series: the second argument of `info`.
    pub may_match_all: bool,
    /// Where it stands.
    pub at: TextRange,
}

/// How the samples at the ends of a range are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Bounds {
    /// Those inside the range.
    #[default]
    Plain,
    /// `anchored`: the last one before the range stands at its start.
    Anchored,
    /// `smoothed`: values at both ends are interpolated.
    Smoothed,
}

/// `offset` and `@`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Shift {
    /// Back in time; negative = forward. `None` = not written.
    pub offset: Option<DurationValue>,
    /// The instant that it is fixed to.
    pub at: Option<AtModifier>,
}

/// `@ instant`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtModifier {
    /// Milliseconds since the epoch.
    Instant(i64),
    /// `@ start()`.
    Start,
    /// `@ end()`.
    End,
}

/// A duration in a range, an offset or a step.
#[derive(Debug, Clone, PartialEq)]
pub enum DurationValue {
    /// Milliseconds.
    Fixed(i64),
    /// One that is computed, in seconds, when the question is known.
    Computed(Box<DurationExpr>),
}

/// Arithmetic of durations.
#[derive(Debug, Clone, PartialEq)]
pub enum DurationExpr {
    /// A number of seconds or a duration.
    Number(NumberLiteral),
    /// `step()`: the step of the question; zero for an instant.
    Step(TextRange),
    /// `range()`: the whole time of the question.
    Range(TextRange),
    /// `min_of(a, b)`.
    Min(Box<DurationExpr>, Box<DurationExpr>, TextRange),
    /// `max_of(a, b)`.
    Max(Box<DurationExpr>, Box<DurationExpr>, TextRange),
    /// `-a` if true, else `+a`, which means `a`; a literal has its sign itself.
    Sign(bool, Box<DurationExpr>, TextRange),
    /// `a operator b`: one of `+ - * / % ^`.
    Binary(BinaryOp, Box<DurationExpr>, Box<DurationExpr>),
    /// `(a)`.
    Paren(Box<DurationExpr>, TextRange),
}

/// `selector[range]`.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixSelector {
    /// What is selected, with its shift.
    pub selector: VectorSelector,
    /// How far back.
    pub range: DurationValue,
    /// Where it stands.
    pub at: TextRange,
}

/// `expression[range:step]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Subquery {
    /// What is evaluated.
    pub expr: Expr,
    /// How far back.
    pub range: DurationValue,
    /// How often; `None` = the default interval.
    pub step: Option<DurationValue>,
    /// What shifts it in time.
    pub shift: Shift,
    /// Where it stands.
    pub at: TextRange,
}

/// `(expression)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Paren {
    /// What is inside.
    pub expr: Expr,
    /// Where it stands, with its parentheses.
    pub at: TextRange,
}

/// `-expression` or `+expression`.
#[derive(Debug, Clone, PartialEq)]
pub struct Unary {
    /// Whether the sign is a minus.
    pub is_negative: bool,
    /// What it stands before.
    pub expr: Expr,
    /// Where it stands.
    pub at: TextRange,
}

/// An operator between two expressions.
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
    /// `</`: of a histogram, what lies below a bound.
    TrimUpper,
    /// `>/`: of a histogram, what lies above a bound.
    TrimLower,
}

/// `left operator right`.
#[derive(Debug, Clone, PartialEq)]
pub struct Binary {
    /// The operator.
    pub op: BinaryOp,
    /// Its left side.
    pub left: Expr,
    /// Its right side.
    pub right: Expr,
    /// Whether a comparison answers 0 or 1 instead of filtering: `bool`.
    pub return_bool: bool,
    /// How series of both sides are paired, if both are vectors.
    pub matching: Option<VectorMatching>,
}

/// How series of two vectors are paired.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VectorMatching {
    /// How many of one side may meet how many of the other.
    pub cardinality: Cardinality,
    /// The labels of `on` or `ignoring`.
    pub labels: Vec<String>,
    /// Whether `labels` are those that count (`on`), or those that do not.
    pub is_on: bool,
    /// Labels taken over from the side of one: of `group_left` and `group_right`.
    pub include: Vec<String>,
    /// What stands for a missing series of the left side.
    pub fill_left: Option<f64>,
    /// What stands for a missing series of the right side.
    pub fill_right: Option<f64>,
}

/// How many series of one side may meet how many of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cardinality {
    /// One to one.
    #[default]
    OneToOne,
    /// `group_left`.
    ManyToOne,
    /// `group_right`.
    OneToMany,
    /// Of the set operators.
    ManyToMany,
}

/// `function(arguments)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The function.
    pub function: &'static crate::function::FunctionSpec,
    /// Its arguments.
    pub arguments: Vec<Expr>,
    /// Where it stands.
    pub at: TextRange,
}

/// What an aggregation does with the samples of a group.
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
    /// What is done.
    pub op: AggregateOp,
    /// Over what.
    pub expr: Expr,
    /// The parameter, of those that take one.
    pub parameter: Option<Expr>,
    /// The labels of `by` or `without`.
    pub grouping: Vec<String>,
    /// Whether `grouping` are the labels that do not count.
    pub is_without: bool,
    /// Where it stands.
    pub at: TextRange,
}

impl ValueType {
    /// Its name in Prometheus' documentation and messages.
    pub fn documented(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Vector => "instant vector",
            Self::Matrix => "range vector",
            Self::String => "string",
        }
    }

    /// Its name in Prometheus' answers.
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
    /// How it is written.
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

    /// Whether it compares: filters, or answers 0 or 1.
    pub fn is_comparison(self) -> bool {
        matches!(
            self,
            Self::Equal | Self::NotEqual | Self::Less | Self::LessEqual | Self::Greater | Self::GreaterEqual
        )
    }

    /// Whether it is an operator of sets: `and`, `or`, `unless`.
    pub fn is_set(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Unless)
    }
}

impl AggregateOp {
    /// How it is written.
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

    /// Whether a parameter stands before what it is over.
    pub fn takes_parameter(self) -> bool {
        matches!(
            self,
            Self::TopK | Self::BottomK | Self::CountValues | Self::Quantile | Self::LimitK | Self::LimitRatio
        )
    }
}

impl Expr {
    /// What it evaluates to.
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

    /// Where it stands in the text.
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
