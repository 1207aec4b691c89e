//! Time range that an expression reads, and the selectors of an expression. The time range determines whether the query
//! runs in the cold pool.
//!
//! The time range and the selectors are found by walking the syntax tree; nothing is evaluated.

use tideline_promql::Matcher;
use tideline_promql::ast::{AtModifier, Bounds, DurationValue, Expr, Shift, VectorSelector};

use crate::parameters::{TIME_MAX, TIME_MIN};

/// Returns the first and last timestamp that an expression reads when evaluated over `span`, in milliseconds; `None` if
/// the expression reads no samples. A range or an offset that must be computed first counts as unlimited.
pub(crate) fn read_range(expr: &Expr, span: (i64, i64), lookback: i64) -> Option<(i64, i64)> {
    let mut all: Option<(i64, i64)> = None;
    let walk = SelectorWalk {
        query_span: span,
        lookback,
    };
    walk.walk(expr, span, &mut |_, (start, end)| {
        let (first, last) = all.unwrap_or((start, end));
        all = Some((first.min(start), last.max(end)));
    });
    all
}

/// Returns the matchers of every selector of an expression.
pub(crate) fn selectors(expr: &Expr) -> Vec<Vec<Matcher>> {
    let mut found = Vec::new();
    let walk = SelectorWalk {
        query_span: (0, 0),
        lookback: 0,
    };
    walk.walk(expr, (0, 0), &mut |selector, _| {
        found.push(selector.matchers.clone());
    });
    found
}

/// Callback for a selector and the time range that it reads.
type Take<'a> = dyn FnMut(&VectorSelector, (i64, i64)) + 'a;

struct SelectorWalk {
    /// Start and end of the query.
    query_span: (i64, i64),
    lookback: i64,
}

impl SelectorWalk {
    fn walk(&self, expr: &Expr, span: (i64, i64), take: &mut Take<'_>) {
        match expr {
            Expr::Number(_) | Expr::String(_) => {}
            Expr::Vector(selector) => self.take(selector, 0, span, take),
            Expr::Matrix(matrix) => match matrix.range {
                DurationValue::Fixed(range) => self.take(&matrix.selector, range, span, take),
                DurationValue::Computed(_) => take(&matrix.selector, (TIME_MIN, TIME_MAX)),
            },
            Expr::Subquery(subquery) => {
                let (start, end) = self.shifted(&subquery.shift, span);
                let start = match subquery.range {
                    DurationValue::Fixed(range) => start.saturating_sub(range),
                    DurationValue::Computed(_) => TIME_MIN,
                };
                self.walk(&subquery.expr, (start, end), take);
            }
            Expr::Paren(paren) => self.walk(&paren.expr, span, take),
            Expr::Unary(unary) => self.walk(&unary.expr, span, take),
            Expr::Binary(binary) => {
                self.walk(&binary.left, span, take);
                self.walk(&binary.right, span, take);
            }
            Expr::Call(call) => call
                .arguments
                .iter()
                .for_each(|argument| self.walk(argument, span, take)),
            Expr::Aggregate(aggregate) => {
                let parameter = aggregate.parameter.iter();
                parameter.for_each(|parameter| self.walk(parameter, span, take));
                self.walk(&aggregate.expr, span, take);
            }
        }
    }

    fn take(&self, selector: &VectorSelector, range: i64, span: (i64, i64), take: &mut Take<'_>) {
        let (start, end) = self.shifted(&selector.shift, span);
        let before = match (range, selector.bounds) {
            (0, _) => self.lookback,
            (_, Bounds::Plain) => range,
            (_, Bounds::Anchored | Bounds::Smoothed) => range.saturating_add(self.lookback),
        };
        let after = match selector.bounds {
            Bounds::Smoothed => self.lookback,
            Bounds::Plain | Bounds::Anchored => 0,
        };
        take(
            selector,
            (start.saturating_sub(before), end.saturating_add(after)),
        );
    }

    /// Applies `offset` and `@` to a span.
    fn shifted(&self, shift: &Shift, span: (i64, i64)) -> (i64, i64) {
        let (start, end) = match shift.at {
            None => span,
            Some(AtModifier::Instant(at)) => (at, at),
            Some(AtModifier::Start) => (self.query_span.0, self.query_span.0),
            Some(AtModifier::End) => (self.query_span.1, self.query_span.1),
        };
        match shift.offset {
            None => (start, end),
            Some(DurationValue::Fixed(offset)) => (start.saturating_sub(offset), end.saturating_sub(offset)),
            Some(DurationValue::Computed(_)) => (TIME_MIN, TIME_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_offsets_and_fixed_instants_widen_what_is_read() {
        let minute = 60_000;
        let (start, end) = (100 * minute, 200 * minute);
        for (text, first, last) in [
            ("up", 95, 200),
            ("rate(up[10m])", 90, 200),
            ("rate(up[10m] offset 1h)", 30, 140),
            ("up offset -10m", 105, 210),
            ("up @ 60", -4, 1),
            ("sum(up @ start()) / up @ end()", 95, 200),
            ("max_over_time(rate(up[5m])[1h:1m])", 35, 200),
            ("topk(scalar(a[1m:1m] offset 50m), b) or c", 44, 200),
        ] {
            let Ok(expr) = tideline_promql::parse(text) else {
                continue;
            };
            let found = read_range(&expr, (start, end), 5 * minute);
            assert_eq!(found, Some((first * minute, last * minute)), "{text}");
        }
        let expr = tideline_promql::parse("1 + 1").expect("parses");
        assert_eq!(read_range(&expr, (start, end), minute), None);
    }

    #[test]
    fn every_selector_is_found() {
        let expr =
            tideline_promql::parse("sum(rate(a[5m])) / on() group_left b{c=\"d\"} + 1").expect("parses");
        let names: Vec<usize> = selectors(&expr).iter().map(Vec::len).collect();
        assert_eq!(names, [1, 2]);
    }
}
