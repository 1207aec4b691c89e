//! Static checks of an expression: types, argument counts, vector matching. The messages equal those of
//! Prometheus.
//!
//! The checks also complete the vector matching, which depends on the types of both operands: set operators
//! match many to many, and only operations between vectors keep a matching.

use crate::ast::{
    Aggregate, AggregateOp, Binary, Call, Cardinality, Expr, Subquery, TextRange, Unary, ValueType,
    VectorMatching, VectorSelector,
};
use crate::error::ParseError;
use crate::function::Variadic;
use crate::labels::METRIC_NAME;
use crate::lex::is_space;
use crate::quote::quote;

/// Checks an expression that was parsed from `text`, and completes its vector matching.
pub(crate) fn check(expr: &mut Expr, text: &str) -> Result<(), ParseError> {
    Checker { text }.check(expr).map(drop)
}

struct Checker<'a> {
    text: &'a str,
}

impl Checker<'_> {
    fn check(&self, expr: &mut Expr) -> Result<ValueType, ParseError> {
        let value_type = expr.value_type();
        match expr {
            Expr::Number(_) | Expr::String(_) => {}
            Expr::Vector(selector) => self.selector(selector)?,
            Expr::Matrix(matrix) => self.selector(&matrix.selector)?,
            Expr::Subquery(subquery) => self.subquery(subquery)?,
            Expr::Paren(paren) => {
                self.check(&mut paren.expr)?;
            }
            Expr::Unary(unary) => self.unary(unary)?,
            Expr::Binary(binary) => self.binary(binary)?,
            Expr::Call(call) => self.call(call)?,
            Expr::Aggregate(aggregate) => self.aggregate(aggregate)?,
        }
        Ok(value_type)
    }

    fn fault<T>(&self, at: TextRange, message: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError::new(self.text, at, message))
    }

    fn expect(&self, expr: &mut Expr, wanted: ValueType, context: &str) -> Result<(), ParseError> {
        let got = self.check(expr)?;
        if got == wanted {
            return Ok(());
        }
        let (wanted, got) = (wanted.documented(), got.documented());
        self.fault(
            expr.at(),
            format!("expected type {wanted} in {context}, got {got}"),
        )
    }

    fn selector(&self, selector: &VectorSelector) -> Result<(), ParseError> {
        let matchers = &selector.matchers;
        let Some(name) = &selector.name else {
            let is_bounded = selector.may_match_all || matchers.iter().any(|matcher| !matcher.matches(""));
            if is_bounded {
                return Ok(());
            }
            let message = "vector selector must contain at least one non-empty matcher";
            return self.fault(selector.at, message);
        };
        let others = &matchers[..matchers.len() - 1];
        match others.iter().find(|matcher| matcher.name == METRIC_NAME) {
            None => Ok(()),
            Some(matcher) => {
                let (name, other) = (quote(name), quote(&matcher.value));
                let message = format!("metric name must not be set twice: {name} or {other}");
                self.fault(selector.at, message)
            }
        }
    }

    fn subquery(&self, subquery: &mut Subquery) -> Result<(), ParseError> {
        let got = self.check(&mut subquery.expr)?;
        if got == ValueType::Vector {
            return Ok(());
        }
        let got = got.name();
        let message = format!("subquery is only allowed on instant vector, got {got} instead");
        self.fault(subquery.at, message)
    }

    fn unary(&self, unary: &mut Unary) -> Result<(), ParseError> {
        let got = self.check(&mut unary.expr)?;
        if is_of_numbers(got) {
            return Ok(());
        }
        let got = quote(got.documented());
        let message = format!(
            "unary expression only allowed on expressions of type scalar or instant vector, got {got}"
        );
        self.fault(unary.at, message)
    }

    fn aggregate(&self, aggregate: &mut Aggregate) -> Result<(), ParseError> {
        self.expect(&mut aggregate.expr, ValueType::Vector, "aggregation expression")?;
        let Some(parameter) = &mut aggregate.parameter else {
            return Ok(());
        };
        let wanted = match aggregate.op {
            AggregateOp::CountValues => ValueType::String,
            _ => ValueType::Scalar,
        };
        self.expect(parameter, wanted, "aggregation parameter")
    }

    fn call(&self, call: &mut Call) -> Result<(), ParseError> {
        self.argument_count(call)?;
        let name = quote(call.function.name);
        let types = call.function.arguments;
        if call.function.name == "info"
            && let Some(labels) = call.arguments.get_mut(1)
        {
            self.info_labels(call.at, labels)?;
        }
        for (at, argument) in call.arguments.iter_mut().enumerate() {
            let wanted = types.get(at).or(types.last()).copied();
            let got = self.check(argument)?;
            if let Some(wanted) = wanted.filter(|wanted| *wanted != got) {
                let (wanted, got) = (wanted.documented(), got.documented());
                let message = format!("expected type {wanted} in call to function {name}, got {got}");
                return self.fault(argument.at(), message);
            }
        }
        Ok(())
    }

    fn argument_count(&self, call: &Call) -> Result<(), ParseError> {
        let (got, all) = (call.arguments.len(), call.function.arguments.len());
        let name = quote(call.function.name);
        let (min, max) = match call.function.variadic {
            Variadic::No if got == all => return Ok(()),
            Variadic::No => {
                let message = format!("expected {all} argument(s) in call to {name}, got {got}");
                return self.fault(call.at, message);
            }
            Variadic::UpTo(times) => (all - 1, all - 1 + times),
            Variadic::Repeated => (all - 1, usize::MAX),
        };
        let (bound, limit) = if got < min {
            ("at least", min)
        } else if got > max {
            ("at most", max)
        } else {
            return Ok(());
        };
        let message = format!("expected {bound} {limit} argument(s) in call to {name}, got {got}");
        self.fault(call.at, message)
    }

    /// Checks that the second argument of `info` is a selector without a metric name before its braces, and marks it
    /// as one that may match all series.
    fn info_labels(&self, call: TextRange, labels: &mut Expr) -> Result<(), ParseError> {
        let got = labels.value_type();
        if got != ValueType::Vector {
            let (wanted, got) = (ValueType::Vector.documented(), got.documented());
            let message = format!("expected type {wanted} in call to function \"info\", got {got}");
            return self.fault(call, message);
        }
        match labels {
            Expr::Vector(selector) if selector.name.is_some() => {
                let message = "expected label selectors only, got vector selector instead";
                self.fault(selector.at, message)
            }
            Expr::Vector(selector) => {
                selector.may_match_all = true;
                Ok(())
            }
            other => self.fault(other.at(), "expected label selectors only"),
        }
    }

    fn binary(&self, binary: &mut Binary) -> Result<(), ParseError> {
        let left = self.check(&mut binary.left)?;
        let right = self.check(&mut binary.right)?;
        let both = [left, right];
        let op = binary.op;
        if binary.return_bool && !op.is_comparison() {
            let message = "bool modifier can only be used on comparison operators";
            return self.fault(self.operator(binary), message);
        }
        if op.is_comparison() && !binary.return_bool && both == [ValueType::Scalar; 2] {
            let message = "comparisons between scalars must use BOOL modifier";
            return self.fault(self.operator(binary), message);
        }
        self.labels_of_both_clauses(binary)?;
        for (side, got) in [(&binary.left, left), (&binary.right, right)] {
            if !is_of_numbers(got) {
                let message = "binary expression must contain only scalar and instant vector types";
                return self.fault(side.at(), message);
            }
        }
        let at = TextRange {
            start: binary.left.at().start,
            end: binary.right.at().end,
        };
        if both == [ValueType::Vector; 2] {
            if let Some(matching) = binary.matching.as_mut().filter(|_| op.is_set()) {
                self.set_matching(matching, op.name(), at)?;
            }
            return Ok(());
        }
        self.no_matching(binary.matching.take(), at)?;
        if op.is_set() {
            let op = quote(op.name());
            let message = format!("set operator {op} not allowed in binary scalar expression");
            return self.fault(at, message);
        }
        Ok(())
    }

    fn labels_of_both_clauses(&self, binary: &Binary) -> Result<(), ParseError> {
        let Some(matching) = binary.matching.as_ref().filter(|matching| matching.is_on) else {
            return Ok(());
        };
        match matching
            .labels
            .iter()
            .find(|label| matching.include.contains(label))
        {
            None => Ok(()),
            Some(label) => {
                let label = quote(label);
                let message = format!("label {label} must not occur in ON and GROUP clause at once");
                self.fault(self.operator(binary), message)
            }
        }
    }

    fn set_matching(&self, matching: &mut VectorMatching, op: &str, at: TextRange) -> Result<(), ParseError> {
        if matching.cardinality != Cardinality::OneToOne {
            let message = format!("no grouping allowed for {} operation", quote(op));
            return self.fault(at, message);
        }
        matching.cardinality = Cardinality::ManyToMany;
        if has_fill(matching) {
            return self.fault(at, "filling in missing series not allowed for set operators");
        }
        Ok(())
    }

    /// Returns an error if a matching has labels or fill values although its operands are not both vectors.
    fn no_matching(&self, matching: Option<VectorMatching>, at: TextRange) -> Result<(), ParseError> {
        let matching = matching.unwrap_or_default();
        if !matching.labels.is_empty() {
            return self.fault(at, "vector matching only allowed between instant vectors");
        }
        if has_fill(&matching) {
            let message = "filling in missing series only allowed between instant vectors";
            return self.fault(at, message);
        }
        Ok(())
    }

    /// Returns the range from the operator (without the spaces before it) to the start of the right
    /// operand.
    fn operator(&self, binary: &Binary) -> TextRange {
        let TextRange { end: left, .. } = binary.left.at();
        let TextRange { start: right, .. } = binary.right.at();
        let between = self.text.get(left..right).unwrap_or_default();
        let start = left + between.len() - between.trim_start_matches(is_space).len();
        TextRange { start, end: right }
    }
}

fn is_of_numbers(value_type: ValueType) -> bool {
    matches!(value_type, ValueType::Scalar | ValueType::Vector)
}

fn has_fill(matching: &VectorMatching) -> bool {
    matching.fill_left.is_some() || matching.fill_right.is_some()
}
