//! Step-invariant form of a query: with `@`, its result does not depend on the evaluation timestamp.

use tideline_promql::ast::{AtModifier, Expr, Shift};

/// Functions whose result may depend on the evaluation timestamp or on the query's time range.
const LOOKING_AT_TIME: [&str; 15] = [
    "day_of_month",
    "day_of_week",
    "day_of_year",
    "days_in_month",
    "end",
    "hour",
    "minute",
    "month",
    "predict_linear",
    "range",
    "start",
    "step",
    "time",
    "timestamp",
    "year",
];

/// Fixes the selectors and subqueries of a query to a timestamp. Does not change selectors and subqueries whose `@`
/// already has a number or that are inside a subquery. Returns the query and the timestamps at which to evaluate it.
/// Returns `None` if the query is invalid or its result may still depend on the evaluation timestamp.
pub(crate) fn fixed(query: &str, time: i64) -> Option<(String, Vec<i64>)> {
    let mut expr = tideline_promql::parse(query).ok()?;
    if !fix(&mut expr, time) {
        return None;
    }
    let instants = if time == 0 {
        vec![-1000, 0, 1000]
    } else {
        vec![-10 * time, 0, time / 5, time, 10 * time]
    };
    Some((expr.to_string(), instants))
}

/// Fixes selectors and subqueries. Returns false if a function of [`LOOKING_AT_TIME`] is called
/// outside subqueries.
fn fix(expr: &mut Expr, time: i64) -> bool {
    match expr {
        Expr::Number(_) | Expr::String(_) => true,
        Expr::Vector(selector) => fix_shift(&mut selector.shift, time),
        Expr::Matrix(matrix) => fix_shift(&mut matrix.selector.shift, time),
        // The modifier of a subquery also fixes its inner expression.
        Expr::Subquery(subquery) => fix_shift(&mut subquery.shift, time),
        Expr::Paren(paren) => fix(&mut paren.expr, time),
        Expr::Unary(unary) => fix(&mut unary.expr, time),
        Expr::Binary(binary) => fix(&mut binary.left, time) && fix(&mut binary.right, time),
        Expr::Call(call) => {
            let mut arguments = call.arguments.iter_mut();
            !LOOKING_AT_TIME.contains(&call.function.name) && arguments.all(|argument| fix(argument, time))
        }
        Expr::Aggregate(aggregate) => {
            let mut parameter = aggregate.parameter.iter_mut();
            parameter.all(|parameter| fix(parameter, time)) && fix(&mut aggregate.expr, time)
        }
    }
}

fn fix_shift(shift: &mut Shift, time: i64) -> bool {
    if !matches!(shift.at, Some(AtModifier::Instant(_))) {
        shift.at = Some(AtModifier::Instant(time));
    }
    true
}
