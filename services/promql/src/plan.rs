//! The plan of a query: the expression with its parameters resolved.
//!
//! Planning computes durations, resolves `@`, maps functions to implementations, and marks parts that have
//! the same value at every step.
//!
//! A plan borrows matchers and texts from the expression. Parentheses are removed; each node keeps its
//! position in the text for annotations.

mod build;
mod duration;
mod function;

use crate::ast::{AggregateOp, BinaryOp, Bounds, StringLiteral, TextRange, ValueType, VectorMatching};
use crate::matcher::Matcher;

pub(crate) use build::plan;
pub(crate) use function::Function;

/// Planned expression.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) root: Node<'a>,
    /// Nesting depth.
    pub(crate) depth: usize,
}

/// Node of a plan.
#[derive(Debug)]
pub(crate) struct Node<'a> {
    pub(crate) kind: Kind<'a>,
    pub(crate) value_type: ValueType,
    pub(crate) at: TextRange,
}

/// Operation of a node.
#[derive(Debug)]
pub(crate) enum Kind<'a> {
    Number(f64),
    Text(&'a StringLiteral),
    Selector(Selector<'a>),
    Range(RangeSelector<'a>),
    Subquery(Box<Subquery<'a>>),
    Negate(Box<Node<'a>>),
    Binary(Box<Binary<'a>>),
    Call(Call<'a>),
    Aggregate(Box<Aggregate<'a>>),
    /// Step-invariant expression: evaluated at the first step only.
    Invariant(Box<Node<'a>>),
}

/// Time shift of a selector or a subquery.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reference {
    /// Offset back in time, in milliseconds.
    pub(crate) offset: i64,
    /// Fixed timestamp of `@`, in milliseconds.
    pub(crate) fixed: Option<i64>,
}

impl Reference {
    /// Returns the shifted timestamp of a step. `time` is the step's timestamp.
    pub(crate) fn at(self, time: i64) -> i64 {
        self.fixed.unwrap_or(time).saturating_sub(self.offset)
    }
}

/// Selection of series.
#[derive(Debug)]
pub(crate) struct Selector<'a> {
    pub(crate) matchers: &'a [Matcher],
    pub(crate) reference: Reference,
    pub(crate) bounds: Bounds,
    /// True if only count and sum of histograms are used.
    pub(crate) skips_buckets: bool,
}

/// `selector[range]`.
#[derive(Debug)]
pub(crate) struct RangeSelector<'a> {
    pub(crate) selector: Selector<'a>,
    /// Width in milliseconds.
    pub(crate) width: i64,
}

/// `expression[range:step]`.
#[derive(Debug)]
pub(crate) struct Subquery<'a> {
    pub(crate) inner: Node<'a>,
    /// Width in milliseconds.
    pub(crate) width: i64,
    /// Step in milliseconds; `None` for the default.
    pub(crate) interval: Option<i64>,
    pub(crate) reference: Reference,
}

/// `left operator right`.
#[derive(Debug)]
pub(crate) struct Binary<'a> {
    pub(crate) op: BinaryOp,
    pub(crate) left: Node<'a>,
    pub(crate) right: Node<'a>,
    pub(crate) return_bool: bool,
    pub(crate) matching: Option<&'a VectorMatching>,
}

/// `function(arguments)`.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) function: Function,
    pub(crate) name: &'static str,
    pub(crate) arguments: Vec<Node<'a>>,
}

/// `sum by (label) (expression)`.
#[derive(Debug)]
pub(crate) struct Aggregate<'a> {
    pub(crate) op: AggregateOp,
    pub(crate) inner: Node<'a>,
    pub(crate) parameter: Option<Node<'a>>,
    pub(crate) grouping: &'a [String],
    pub(crate) is_without: bool,
}

impl Node<'_> {
    /// Returns the time shift of the first selector in the node; `None` without a selector. The innermost `@` applies.
    /// The offset of the selector and the offsets of the nodes around it, up to that `@`, are added.
    pub(crate) fn first_reference(&self) -> Option<Reference> {
        match &self.kind {
            Kind::Number(_) | Kind::Text(_) => None,
            Kind::Selector(selector) => Some(selector.reference),
            Kind::Range(range) => Some(range.selector.reference),
            Kind::Subquery(subquery) => subquery.inner.first_reference().map(|inner| match inner.fixed {
                Some(_) => inner,
                None => Reference {
                    offset: inner.offset.saturating_add(subquery.reference.offset),
                    fixed: subquery.reference.fixed,
                },
            }),
            Kind::Negate(inner) | Kind::Invariant(inner) => inner.first_reference(),
            Kind::Binary(binary) => binary
                .left
                .first_reference()
                .or_else(|| binary.right.first_reference()),
            Kind::Call(call) => call.arguments.iter().find_map(Self::first_reference),
            Kind::Aggregate(aggregate) => aggregate
                .inner
                .first_reference()
                .or_else(|| aggregate.parameter.as_ref().and_then(Self::first_reference)),
        }
    }
}
