//! Function table: names, argument types and result types.
//!
//! The table is used by the parser and the type checks. `plan::function` maps names to implementations.

use Variadic::{No, Repeated, UpTo};

use crate::ast::ValueType;
use crate::ast::ValueType::{Matrix, Scalar, String, Vector};

/// Signature of a function.
#[derive(Debug, PartialEq, Eq)]
pub struct FunctionSpec {
    /// Name in queries; case-sensitive.
    pub name: &'static str,
    /// Types of the arguments, in order.
    pub arguments: &'static [ValueType],
    /// Number of times that the last argument may occur.
    pub variadic: Variadic,
    /// Type of the result.
    pub returns: ValueType,
    /// True if Prometheus marks the function as experimental.
    pub is_experimental: bool,
}

/// Number of times that the last argument of a function may occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variadic {
    /// Exactly once, if the function has arguments.
    No,
    /// Zero to this number of times.
    UpTo(usize),
    /// Zero or more times.
    Repeated,
}

/// Looks up a function by its case-sensitive name; `None` if no function has this name.
pub fn find(name: &str) -> Option<&'static FunctionSpec> {
    let at = FUNCTIONS.binary_search_by(|function| function.name.cmp(name));
    at.ok().map(|at| &FUNCTIONS[at])
}

const fn stable(
    name: &'static str,
    arguments: &'static [ValueType],
    variadic: Variadic,
    returns: ValueType,
) -> FunctionSpec {
    FunctionSpec {
        name,
        arguments,
        variadic,
        returns,
        is_experimental: false,
    }
}

const fn experimental(
    name: &'static str,
    arguments: &'static [ValueType],
    variadic: Variadic,
    returns: ValueType,
) -> FunctionSpec {
    FunctionSpec {
        name,
        arguments,
        variadic,
        returns,
        is_experimental: true,
    }
}

/// All functions, sorted by name.
#[rustfmt::skip]
pub static FUNCTIONS: [FunctionSpec; 90] = [
    stable("abs", &[Vector], No, Vector),
    stable("absent", &[Vector], No, Vector),
    stable("absent_over_time", &[Matrix], No, Vector),
    stable("acos", &[Vector], No, Vector),
    stable("acosh", &[Vector], No, Vector),
    stable("asin", &[Vector], No, Vector),
    stable("asinh", &[Vector], No, Vector),
    stable("atan", &[Vector], No, Vector),
    stable("atanh", &[Vector], No, Vector),
    stable("avg_over_time", &[Matrix], No, Vector),
    stable("ceil", &[Vector], No, Vector),
    stable("changes", &[Matrix], No, Vector),
    stable("clamp", &[Vector, Scalar, Scalar], No, Vector),
    stable("clamp_max", &[Vector, Scalar], No, Vector),
    stable("clamp_min", &[Vector, Scalar], No, Vector),
    stable("cos", &[Vector], No, Vector),
    stable("cosh", &[Vector], No, Vector),
    stable("count_over_time", &[Matrix], No, Vector),
    stable("day_of_month", &[Vector], UpTo(1), Vector),
    stable("day_of_week", &[Vector], UpTo(1), Vector),
    stable("day_of_year", &[Vector], UpTo(1), Vector),
    stable("days_in_month", &[Vector], UpTo(1), Vector),
    stable("deg", &[Vector], No, Vector),
    stable("delta", &[Matrix], No, Vector),
    stable("deriv", &[Matrix], No, Vector),
    experimental("double_exponential_smoothing", &[Matrix, Scalar, Scalar], No, Vector),
    experimental("end", &[], No, Scalar),
    stable("exp", &[Vector], No, Vector),
    stable("first_over_time", &[Matrix], No, Vector),
    stable("floor", &[Vector], No, Vector),
    stable("histogram_avg", &[Vector], No, Vector),
    stable("histogram_count", &[Vector], No, Vector),
    stable("histogram_fraction", &[Scalar, Scalar, Vector], No, Vector),
    stable("histogram_quantile", &[Scalar, Vector], No, Vector),
    experimental("histogram_quantiles", &[Vector, String, Scalar, Scalar], UpTo(9), Vector),
    stable("histogram_stddev", &[Vector], No, Vector),
    stable("histogram_stdvar", &[Vector], No, Vector),
    stable("histogram_sum", &[Vector], No, Vector),
    stable("hour", &[Vector], UpTo(1), Vector),
    stable("idelta", &[Matrix], No, Vector),
    stable("increase", &[Matrix], No, Vector),
    experimental("info", &[Vector, Vector], UpTo(1), Vector),
    stable("irate", &[Matrix], No, Vector),
    stable("label_join", &[Vector, String, String, String], Repeated, Vector),
    stable("label_replace", &[Vector, String, String, String, String], No, Vector),
    stable("last_over_time", &[Matrix], No, Vector),
    stable("ln", &[Vector], No, Vector),
    stable("log10", &[Vector], No, Vector),
    stable("log2", &[Vector], No, Vector),
    experimental("mad_over_time", &[Matrix], No, Vector),
    experimental("max_of", &[Scalar, Scalar], No, Scalar),
    stable("max_over_time", &[Matrix], No, Vector),
    experimental("min_of", &[Scalar, Scalar], No, Scalar),
    stable("min_over_time", &[Matrix], No, Vector),
    stable("minute", &[Vector], UpTo(1), Vector),
    stable("month", &[Vector], UpTo(1), Vector),
    stable("pi", &[], No, Scalar),
    stable("predict_linear", &[Matrix, Scalar], No, Vector),
    stable("present_over_time", &[Matrix], No, Vector),
    stable("quantile_over_time", &[Scalar, Matrix], No, Vector),
    stable("rad", &[Vector], No, Vector),
    experimental("range", &[], No, Scalar),
    stable("rate", &[Matrix], No, Vector),
    stable("resets", &[Matrix], No, Vector),
    stable("round", &[Vector, Scalar], UpTo(1), Vector),
    stable("scalar", &[Vector], No, Scalar),
    stable("sgn", &[Vector], No, Vector),
    stable("sin", &[Vector], No, Vector),
    stable("sinh", &[Vector], No, Vector),
    stable("sort", &[Vector], No, Vector),
    experimental("sort_by_label", &[Vector, String], Repeated, Vector),
    experimental("sort_by_label_desc", &[Vector, String], Repeated, Vector),
    stable("sort_desc", &[Vector], No, Vector),
    stable("sqrt", &[Vector], No, Vector),
    experimental("start", &[], No, Scalar),
    experimental("start_timestamp", &[Vector], No, Vector),
    stable("stddev_over_time", &[Matrix], No, Vector),
    stable("stdvar_over_time", &[Matrix], No, Vector),
    experimental("step", &[], No, Scalar),
    stable("sum_over_time", &[Matrix], No, Vector),
    stable("tan", &[Vector], No, Vector),
    stable("tanh", &[Vector], No, Vector),
    stable("time", &[], No, Scalar),
    stable("timestamp", &[Vector], No, Vector),
    experimental("ts_of_first_over_time", &[Matrix], No, Vector),
    experimental("ts_of_last_over_time", &[Matrix], No, Vector),
    experimental("ts_of_max_over_time", &[Matrix], No, Vector),
    experimental("ts_of_min_over_time", &[Matrix], No, Vector),
    stable("vector", &[Scalar], No, Vector),
    stable("year", &[Vector], UpTo(1), Vector),
];
