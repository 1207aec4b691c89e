//! Pretty printer with Prometheus' layout: expressions longer than a line are split, level by level.

use crate::ast::{Expr, Subquery};
use crate::print::{Head, Operator, Suffix, sign};

/// Maximum line length; longer expressions are split.
const LINE_MAX: usize = 100;

/// Formats an expression on several lines if needed, indented by two spaces per level.
///
/// # Examples
///
/// ```
/// use tideline_promql::{parse, pretty};
///
/// let short = parse("sum(up)by(job)")?;
/// assert_eq!(pretty(&short), "sum by (job) (up)");
///
/// let name = "requests_total_of_a_service_with_a_long_name";
/// let (left, right) = (format!("sum(rate({name}[5m]))"), format!("sum(rate({name}[1h]))"));
/// let long = parse(&format!("{left} / {right}"))?;
/// assert_eq!(pretty(&long), format!("  {left}\n/\n  {right}"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn pretty(expr: &Expr) -> String {
    let mut out = String::new();
    push(&mut out, expr, 0);
    out
}

fn push(out: &mut String, expr: &Expr, level: usize) {
    let line = expr.to_string();
    let is_long = line.len() > LINE_MAX;
    match expr {
        Expr::Subquery(subquery) => push_subquery(out, subquery, level, &line),
        Expr::Unary(unary) => {
            let mut operand = String::new();
            push(&mut operand, &unary.expr, level);
            indent(out, level);
            out.push(sign(unary));
            out.push_str(operand.trim());
        }
        Expr::Binary(binary) if is_long => {
            push(out, &binary.left, level + 1);
            out.push('\n');
            indent(out, level);
            out.push_str(&Operator(binary).to_string());
            out.push('\n');
            push(out, &binary.right, level + 1);
        }
        Expr::Aggregate(aggregate) if is_long => {
            let inner = aggregate.parameter.iter().chain([&aggregate.expr]);
            push_opened(out, &Head(aggregate).to_string(), inner, level);
        }
        Expr::Call(call) if is_long => push_opened(out, call.function.name, call.arguments.iter(), level),
        Expr::Paren(paren) if is_long => push_opened(out, "", [&paren.expr].into_iter(), level),
        _ => {
            indent(out, level);
            out.push_str(&line);
        }
    }
}

/// Writes a head with an opening parenthesis, then each inner expression on its own lines.
fn push_opened<'a>(out: &mut String, head: &str, inner: impl Iterator<Item = &'a Expr>, level: usize) {
    indent(out, level);
    out.push_str(head);
    out.push('(');
    for (at, expr) in inner.enumerate() {
        out.push_str(if at == 0 { "\n" } else { ",\n" });
        push(out, expr, level + 1);
    }
    out.push('\n');
    indent(out, level);
    out.push(')');
}

/// Writes a subquery. A short one is not indented, as in Prometheus.
fn push_subquery(out: &mut String, subquery: &Subquery, level: usize, line: &str) {
    if line.len() <= LINE_MAX {
        out.push_str(line);
        return;
    }
    push(out, &subquery.expr, level);
    out.push_str(&Suffix(subquery).to_string());
}

fn indent(out: &mut String, level: usize) {
    out.extend(std::iter::repeat_n("  ", level));
}
