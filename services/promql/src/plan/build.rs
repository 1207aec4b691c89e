//! Construction of plans from expressions.
//!
//! One pass over the tree resolves durations and functions, and determines which parts are step-invariant and which
//! selectors do not need histogram buckets.

use super::duration::Spans;
use super::{
    Aggregate, Binary, Call, Function, Kind, Node, Plan, RangeSelector, Reference, Selector, Subquery,
};
use crate::ast::{self, AtModifier, BinaryOp, Expr, Shift, ValueType, VectorSelector};
use crate::error::{PromqlError, Result};
use crate::parse::DEPTH_MAX;
use crate::quote::quote;

/// Plans an expression for steps from `start` to `end`, in milliseconds; `step` is zero for an instant query.
pub(crate) fn plan(expr: &Expr, start: i64, end: i64, step: i64) -> Result<Plan<'_>> {
    let mut planner = Planner {
        start,
        end,
        spans: Spans {
            step,
            range: end.saturating_sub(start),
        },
        depth: 0,
        depth_max: 0,
    };
    let (root, fate) = planner.node(expr, Buckets::default())?;
    Ok(Plan {
        root: fate.wrapped(root),
        depth: planner.depth_max,
    })
}

struct Planner {
    start: i64,
    end: i64,
    spans: Spans,
    depth: usize,
    depth_max: usize,
}

/// Step invariance of a node.
#[derive(Debug, Clone, Copy)]
struct Fate {
    is_invariant: bool,
    /// True if evaluating the node only once saves work.
    is_worth_it: bool,
}

impl Fate {
    fn of(is_invariant: bool) -> Self {
        Self {
            is_invariant,
            is_worth_it: is_invariant,
        }
    }

    fn wrapped(self, node: Node<'_>) -> Node<'_> {
        if !self.is_worth_it {
            return node;
        }
        Node {
            at: node.at,
            value_type: node.value_type,
            kind: Kind::Invariant(Box::new(node)),
        }
    }
}

/// Use of histogram buckets by the enclosing nodes.
#[derive(Debug, Clone, Copy, Default)]
struct Buckets {
    /// True if an enclosing node uses only count or sum.
    are_dropped: bool,
    /// True if an enclosing node needs buckets. Also true within a subquery, which changes the sequence of samples:
    /// resets must then be detected again, by the buckets.
    are_needed: bool,
}

impl Planner {
    fn node<'a>(&mut self, expr: &'a Expr, buckets: Buckets) -> Result<(Node<'a>, Fate)> {
        self.depth += 1;
        self.depth_max = self.depth_max.max(self.depth);
        if self.depth > DEPTH_MAX {
            // The parser enforces the same limit, but an expression may have been constructed otherwise.
            let message = format!("the expression is nested deeper than {DEPTH_MAX} levels");
            return Err(PromqlError::Invalid(message));
        }
        let planned = self.inner_node(expr, buckets);
        self.depth -= 1;
        planned
    }

    fn inner_node<'a>(&mut self, expr: &'a Expr, buckets: Buckets) -> Result<(Node<'a>, Fate)> {
        let constant = Fate {
            is_invariant: true,
            is_worth_it: false,
        };
        let (kind, value_type, fate) = match expr {
            Expr::Number(number) => (Kind::Number(number.value), ValueType::Scalar, constant),
            Expr::String(string) => (Kind::Text(string), ValueType::String, constant),
            Expr::Paren(paren) => return self.node(&paren.expr, buckets),
            Expr::Vector(selector) => {
                let selector = self.selector(selector, buckets)?;
                let fate = Fate::of(selector.reference.fixed.is_some());
                (Kind::Selector(selector), ValueType::Vector, fate)
            }
            Expr::Matrix(matrix) => {
                let selector = self.selector(&matrix.selector, buckets)?;
                // A range is never wrapped: functions handle invariant ranges themselves, and a range at the root keeps
                // the timestamps of its samples.
                let fate = Fate {
                    is_invariant: selector.reference.fixed.is_some(),
                    is_worth_it: false,
                };
                let width = self.spans.length(&matrix.range)?;
                (
                    Kind::Range(RangeSelector { selector, width }),
                    ValueType::Matrix,
                    fate,
                )
            }
            Expr::Subquery(subquery) => self.subquery(subquery)?,
            Expr::Unary(unary) => {
                let (inner, fate) = self.node(&unary.expr, buckets)?;
                if !unary.is_negative {
                    return Ok((inner, fate));
                }
                let value_type = inner.value_type;
                // The negation of a literal is a literal.
                match inner.kind {
                    Kind::Number(value) => (Kind::Number(-value), value_type, fate),
                    _ => (Kind::Negate(Box::new(inner)), value_type, fate),
                }
            }
            Expr::Binary(binary) => self.binary(binary, buckets)?,
            Expr::Call(call) => self.call(call, buckets)?,
            Expr::Aggregate(aggregate) => self.aggregate(aggregate, buckets)?,
        };
        let at = expr.at();
        Ok((Node { kind, value_type, at }, fate))
    }

    fn selector<'a>(&self, selector: &'a VectorSelector, buckets: Buckets) -> Result<Selector<'a>> {
        Ok(Selector {
            matchers: &selector.matchers,
            reference: self.reference(&selector.shift)?,
            bounds: selector.bounds,
            skips_buckets: buckets.are_dropped && !buckets.are_needed,
        })
    }

    fn reference(&self, shift: &Shift) -> Result<Reference> {
        Ok(Reference {
            offset: shift
                .offset
                .as_ref()
                .map_or(Ok(0), |offset| self.spans.offset(offset))?,
            fixed: shift.at.map(|at| match at {
                AtModifier::Instant(time) => time,
                AtModifier::Start => self.start,
                AtModifier::End => self.end,
            }),
        })
    }

    fn subquery<'a>(&mut self, subquery: &'a ast::Subquery) -> Result<(Kind<'a>, ValueType, Fate)> {
        let buckets = Buckets {
            are_dropped: false,
            are_needed: true,
        };
        let (inner, fate) = self.node(&subquery.expr, buckets)?;
        // An invariant inner expression, even a number, is evaluated only once for all steps of the subquery.
        let fate = Fate::of(fate.is_invariant);
        let reference = self.reference(&subquery.shift)?;
        let planned = Subquery {
            inner: match inner.value_type {
                ValueType::Matrix | ValueType::String => inner,
                _ => fate.wrapped(inner),
            },
            width: self.spans.length(&subquery.range)?,
            interval: subquery
                .step
                .as_ref()
                .map(|step| self.spans.length(step))
                .transpose()?
                .filter(|interval| *interval != 0),
            reference,
        };
        let fate = Fate {
            is_invariant: reference.fixed.is_some(),
            is_worth_it: false,
        };
        Ok((Kind::Subquery(Box::new(planned)), ValueType::Matrix, fate))
    }

    fn binary<'a>(
        &mut self,
        binary: &'a ast::Binary,
        buckets: Buckets,
    ) -> Result<(Kind<'a>, ValueType, Fate)> {
        let trims = matches!(binary.op, BinaryOp::TrimUpper | BinaryOp::TrimLower);
        let buckets = Buckets {
            are_needed: buckets.are_needed || trims,
            ..buckets
        };
        let (left, left_fate) = self.node(&binary.left, buckets)?;
        let (right, right_fate) = self.node(&binary.right, buckets)?;
        let value_type = match (left.value_type, right.value_type) {
            (ValueType::Scalar, ValueType::Scalar) => ValueType::Scalar,
            _ => ValueType::Vector,
        };
        let is_invariant = left_fate.is_invariant && right_fate.is_invariant;
        let (left, right) = if is_invariant {
            (left, right)
        } else {
            (left_fate.wrapped(left), right_fate.wrapped(right))
        };
        let planned = Binary {
            op: binary.op,
            left,
            right,
            return_bool: binary.return_bool,
            matching: binary.matching.as_ref(),
        };
        Ok((
            Kind::Binary(Box::new(planned)),
            value_type,
            Fate::of(is_invariant),
        ))
    }

    fn call<'a>(&mut self, call: &'a ast::Call, buckets: Buckets) -> Result<(Kind<'a>, ValueType, Fate)> {
        let name = call.function.name;
        if let Some(number) = self.number_of_query(name) {
            let fate = Fate {
                is_invariant: true,
                is_worth_it: false,
            };
            return Ok((Kind::Number(number), ValueType::Scalar, fate));
        }
        let function = Function::of(name)
            .ok_or_else(|| PromqlError::Execution(format!("unknown function with name {}", quote(name))))?;
        let buckets = Buckets {
            are_dropped: buckets.are_dropped
                || matches!(name, "histogram_count" | "histogram_sum" | "histogram_avg"),
            are_needed: buckets.are_needed
                || matches!(
                    function,
                    Function::HistogramQuantile | Function::HistogramQuantiles | Function::HistogramFraction
                ),
        };
        let mut arguments = Vec::with_capacity(call.arguments.len());
        for argument in &call.arguments {
            arguments.push(self.node(argument, buckets)?);
        }
        // The timestamp of a sample selected at a fixed time is invariant; the timestamp of a computed value is
        // not.
        let is_timestamp_of_selector = matches!(function, Function::Timestamp)
            && arguments
                .iter()
                .all(|(node, _)| matches!(node.kind, Kind::Selector(_)));
        let is_invariant = (!function.depends_on_step() || is_timestamp_of_selector)
            && arguments.iter().all(|(_, fate)| fate.is_invariant);
        // The second argument of `info` is not evaluated; it only selects series.
        let is_said = |at: usize| at == 1 && matches!(function, Function::Info);
        let arguments = arguments.into_iter().enumerate();
        let arguments = arguments.map(|(at, (node, fate))| match is_invariant || is_said(at) {
            true => node,
            false => fate.wrapped(node),
        });
        let planned = Call {
            function,
            name,
            arguments: arguments.collect(),
        };
        Ok((Kind::Call(planned), call.function.returns, Fate::of(is_invariant)))
    }

    /// Returns the result, in seconds, of a function that depends only on the query's parameters;
    /// `None` for other functions.
    fn number_of_query(&self, name: &str) -> Option<f64> {
        let milliseconds = match name {
            "start" => self.start,
            "end" => self.end,
            "range" => self.spans.range,
            "step" if self.start == self.end => 0,
            "step" => self.spans.step,
            _ => return None,
        };
        Some(milliseconds as f64 / 1000.0)
    }

    fn aggregate<'a>(
        &mut self,
        aggregate: &'a ast::Aggregate,
        buckets: Buckets,
    ) -> Result<(Kind<'a>, ValueType, Fate)> {
        let (inner, inner_fate) = self.node(&aggregate.expr, buckets)?;
        let parameter = match &aggregate.parameter {
            Some(parameter) => Some(self.node(parameter, buckets)?),
            None => None,
        };
        // Unlike in Prometheus, an aggregation is not invariant if its parameter varies.
        let is_invariant =
            inner_fate.is_invariant && parameter.as_ref().is_none_or(|(_, fate)| fate.is_invariant);
        let (inner, parameter) = if is_invariant {
            (inner, parameter.map(|(node, _)| node))
        } else {
            (
                inner_fate.wrapped(inner),
                parameter.map(|(node, fate)| fate.wrapped(node)),
            )
        };
        let planned = Aggregate {
            op: aggregate.op,
            inner,
            parameter,
            grouping: &aggregate.grouping,
            is_without: aggregate.is_without,
        };
        Ok((
            Kind::Aggregate(Box::new(planned)),
            ValueType::Vector,
            Fate::of(is_invariant),
        ))
    }
}
