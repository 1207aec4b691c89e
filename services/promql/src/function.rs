//! The functions by name, with what they take and return.

use crate::ast::ValueType;

/// What is known of a function before it is evaluated.
#[derive(Debug, PartialEq, Eq)]
pub struct FunctionSpec {
    /// Its name.
    pub name: &'static str,
    /// The types of its arguments, in order.
    pub arguments: &'static [ValueType],
    /// How the last argument may be left out or repeated.
    pub variadic: Variadic,
    /// What it returns.
    pub returns: ValueType,
    /// Whether Prometheus calls it experimental.
    pub is_experimental: bool,
}

/// How arguments at the end may be left out or repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variadic {
    /// Neither.
    No,
    /// So many at the end may be left out.
    Optional(usize),
    /// The last may be left out or repeated.
    Repeated,
}
