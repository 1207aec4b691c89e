//! Expressions as JSON, in the format of Prometheus' `parse_query` endpoint. Prometheus' web interface draws
//! trees from this format.

use serde_json::{Value, json};

use crate::ast::{
    Aggregate, AtModifier, Binary, Bounds, Call, Cardinality, DurationExpr, DurationValue, Expr,
    MatrixSelector, Shift, Subquery, VectorMatching, VectorSelector,
};
use crate::function::Variadic;
use crate::matcher::Matcher;
use crate::number::plain;
use crate::print::sign;

/// Converts an expression to JSON.
pub fn to_json(expr: &Expr) -> Value {
    match expr {
        Expr::Number(number) => json!({ "type": "numberLiteral", "val": plain(number.value) }),
        Expr::String(string) => json!({ "type": "stringLiteral", "val": string.value }),
        Expr::Vector(selector) => vector(selector),
        Expr::Matrix(matrix) => matrix_selector(matrix),
        Expr::Subquery(subquery) => subquery_json(subquery),
        Expr::Paren(paren) => json!({ "type": "parenExpr", "expr": to_json(&paren.expr) }),
        Expr::Unary(unary) => {
            json!({ "type": "unaryExpr", "op": sign(unary).to_string(), "expr": to_json(&unary.expr) })
        }
        Expr::Binary(binary) => binary_json(binary),
        Expr::Call(call) => call_json(call),
        Expr::Aggregate(aggregate) => aggregate_json(aggregate),
    }
}

fn vector(selector: &VectorSelector) -> Value {
    let mut json = json!({
        "type": "vectorSelector",
        "name": selector.name.as_deref().unwrap_or_default(),
        "matchers": matchers(&selector.matchers),
        "anchored": selector.bounds == Bounds::Anchored,
        "smoothed": selector.bounds == Bounds::Smoothed,
    });
    add_shift(&mut json, &selector.shift);
    json
}

fn matrix_selector(matrix: &MatrixSelector) -> Value {
    let mut json = vector(&matrix.selector);
    json["type"] = json!("matrixSelector");
    add_duration(&mut json, "range", Some(&matrix.range));
    json
}

fn subquery_json(subquery: &Subquery) -> Value {
    let mut json = json!({ "type": "subquery", "expr": to_json(&subquery.expr) });
    add_duration(&mut json, "range", Some(&subquery.range));
    add_duration(&mut json, "step", subquery.step.as_ref());
    add_shift(&mut json, &subquery.shift);
    json
}

fn binary_json(binary: &Binary) -> Value {
    json!({
        "type": "binaryExpr",
        "op": binary.op.name(),
        "lhs": to_json(&binary.left),
        "rhs": to_json(&binary.right),
        "matching": binary.matching.as_ref().map(matching),
        "bool": binary.return_bool,
    })
}

fn matching(matching: &VectorMatching) -> Value {
    let cardinality = match matching.cardinality {
        Cardinality::OneToOne => "one-to-one",
        Cardinality::ManyToOne => "many-to-one",
        Cardinality::OneToMany => "one-to-many",
        Cardinality::ManyToMany => "many-to-many",
    };
    json!({
        "card": cardinality,
        "labels": matching.labels,
        "on": matching.is_on,
        "include": matching.include,
        "fillValues": { "lhs": matching.fill_left, "rhs": matching.fill_right },
    })
}

fn call_json(call: &Call) -> Value {
    let function = call.function;
    let types: Vec<_> = function
        .arguments
        .iter()
        .map(|argument| argument.name())
        .collect();
    let variadic = match function.variadic {
        Variadic::No => 0,
        Variadic::UpTo(times) => times as i64,
        Variadic::Repeated => -1,
    };
    let arguments: Vec<_> = call.arguments.iter().map(to_json).collect();
    json!({
        "type": "call",
        "func": {
            "name": function.name,
            "argTypes": types,
            "variadic": variadic,
            "returnType": function.returns.name(),
        },
        "args": arguments,
    })
}

fn aggregate_json(aggregate: &Aggregate) -> Value {
    json!({
        "type": "aggregation",
        "op": aggregate.op.name(),
        "expr": to_json(&aggregate.expr),
        "param": aggregate.parameter.as_ref().map(to_json),
        "grouping": aggregate.grouping,
        "without": aggregate.is_without,
    })
}

fn matchers(matchers: &[Matcher]) -> Value {
    let matcher = |matcher: &Matcher| {
        json!({
            "name": matcher.name,
            "value": matcher.value,
            "type": matcher.op.to_string(),
        })
    };
    matchers.iter().map(matcher).collect()
}

fn add_shift(json: &mut Value, shift: &Shift) {
    add_duration(json, "offset", shift.offset.as_ref());
    let (instant, edge) = match shift.at {
        None => (None, None),
        Some(AtModifier::Instant(at)) => (Some(at), None),
        Some(AtModifier::Start) => (None, Some("start")),
        Some(AtModifier::End) => (None, Some("end")),
    };
    json["timestamp"] = json!(instant);
    json["startOrEnd"] = json!(edge);
}

/// Adds two members. `{name}` holds the milliseconds of a fixed duration, otherwise 0. `{name}Expr` holds the
/// expression of a computed duration, otherwise null.
fn add_duration(json: &mut Value, name: &str, duration: Option<&DurationValue>) {
    let (milliseconds, expr) = match duration {
        None => (0, None),
        Some(DurationValue::Fixed(milliseconds)) => (*milliseconds, None),
        Some(DurationValue::Computed(expr)) => (0, Some(duration_json(expr, false))),
    };
    json[name] = json!(milliseconds);
    json[format!("{name}Expr")] = json!(expr);
}

fn duration_json(expr: &DurationExpr, is_wrapped: bool) -> Value {
    let node = |op: &str, left: Option<&DurationExpr>, right: Option<&DurationExpr>| {
        json!({
            "type": "durationExpr",
            "op": op,
            "lhs": left.map(|left| duration_json(left, false)),
            "rhs": right.map(|right| duration_json(right, false)),
            "wrapped": is_wrapped,
        })
    };
    match expr {
        // A parenthesized number is represented as a unary plus, because only operators have the member
        // `wrapped`.
        DurationExpr::Number(_) if is_wrapped => node("+", None, Some(expr)),
        DurationExpr::Number(number) => json!({
            "type": "numberLiteral",
            "val": plain(number.value),
            "duration": number.is_duration,
        }),
        DurationExpr::Step(_) => node("step", None, None),
        DurationExpr::Range(_) => node("range", None, None),
        DurationExpr::Min(left, right, _) => node("min_of", Some(left), Some(right)),
        DurationExpr::Max(left, right, _) => node("max_of", Some(left), Some(right)),
        DurationExpr::Sign(false, inner, _) if matches!(**inner, DurationExpr::Paren(..)) => {
            duration_json(inner, false)
        }
        DurationExpr::Sign(is_negative, inner, _) => {
            node(if *is_negative { "-" } else { "+" }, None, Some(inner))
        }
        DurationExpr::Binary(op, left, right) => node(op.name(), Some(left), Some(right)),
        DurationExpr::Paren(inner, _) => duration_json(inner, true),
    }
}
