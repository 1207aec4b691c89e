//! Part of the diagnosis of a row: evaluates each test of a condition separately and explains why it does not pass.
//!
//! A condition tests the newest value of a column. A test does not pass if there is no value, if the value has a type
//! that cannot be compared, or if the value does not match.

use std::sync::Arc;

use tideline_engine::condition::operators::{Between, Compare, Equals, In, NotEquals};
use tideline_engine::condition::{Condition, Literal, Subject, Test, ValueRef};
use tideline_engine::model::ColumnType;
use tideline_engine::row_values::each_compared;
use tideline_engine::rows::{CellValue, Mutation, StoredRow};
use tideline_engine::{Engine, WideTable};
use tideline_openapi::condition::RowFilter;
use tideline_openapi::row::RowIntegers;
use tideline_openapi::row_why::{WhyCode, WhyFilter, WhyHidden, WhyTest};

use super::plain;
use crate::condition::{RowMatcher, convert_literal};
use crate::error::{Result, RowsError};
use crate::read::damaged;
use crate::value;

/// Maximum number of tests of a condition that is explained. Each test is compiled separately.
pub(super) const WHY_TESTS_MAX: usize = 100;

/// Name of the tested column, and the test.
pub(crate) type NamedTest<'c> = (&'c str, &'c Test);

/// Returns the tests of a condition, in their order.
pub(crate) fn tests(filter: &RowFilter) -> Result<Vec<NamedTest<'_>>> {
    let mut tests = Vec::new();
    collect(&filter.0, &mut tests);
    match tests.len() {
        ..=WHY_TESTS_MAX => Ok(tests),
        count => Err(RowsError::over(
            "number of tests",
            WHY_TESTS_MAX as u64,
            count as u64,
        )),
    }
}

fn collect<'c>(condition: &'c Condition, tests: &mut Vec<NamedTest<'c>>) {
    match condition {
        Condition::And(inner) | Condition::Or(inner) => inner.iter().for_each(|inner| collect(inner, tests)),
        Condition::Not(inner) => collect(inner, tests),
        Condition::Leaf {
            subject: Subject::Column(name),
            test,
        } => tests.push((name, test)),
        Condition::Leaf { .. } | Condition::All | Condition::Saved(_) => {}
    }
}

/// Evaluates a condition and each of its tests. If there is no row, evaluates no tests.
pub(super) fn evaluate(
    engine: &Engine,
    table: &Arc<WideTable>,
    key: &[u8],
    row: Option<&StoredRow>,
    (filter, tests): (&RowFilter, Vec<NamedTest<'_>>),
    is_stopped: &dyn Fn() -> bool,
) -> Result<WhyFilter> {
    let matcher = RowMatcher::new(engine, table, filter)?;
    let Some(row) = row else {
        return Ok(WhyFilter {
            matches: false,
            tests: Vec::new(),
        });
    };
    let row = row.columns().map_err(|reason| damaged(table, reason))?;
    let mut results = Vec::with_capacity(tests.len());
    for (column, test) in tests {
        if is_stopped() {
            return Err(RowsError::Cancelled);
        }
        let alone = RowFilter(Condition::leaf(Subject::Column(column.to_owned()), test.clone()));
        let passes = RowMatcher::new(engine, table, &alone)?.matches(table.layout(), key, Some(&row));
        results.push(WhyTest {
            test: serde_json::to_string(&alone).unwrap_or_default(),
            column: column.to_owned(),
            passes,
            hidden: match passes {
                true => None,
                false => Some(reason(table, key, &row, column, test)?),
            },
        });
    }
    Ok(WhyFilter {
        matches: matcher.matches(table.layout(), key, Some(&row)),
        tests: results,
    })
}

/// Returns the reason why a test does not pass.
fn reason(table: &WideTable, key: &[u8], row: &Mutation<'_>, column: &str, test: &Test) -> Result<WhyHidden> {
    let layout = table.layout();
    let (stored, declared) = table.column(column);
    let values = layout.decode(key).map_err(|error| damaged(table, error))?;
    let in_key = layout.logical_number(column).ok();
    let of_key = in_key.map(|number| value::cell_of(&values[number]));
    let newest = row.column(&stored).and_then(|column| column.newest());
    let Some(found) = of_key.as_ref().or(newest.map(|version| &version.value)) else {
        return Ok(plain(
            WhyCode::NoValue,
            format!(
                "the row has no value of {column:?}; a column without a value passes only `\"exists\": false`"
            ),
        ));
    };
    let declared = table.column_type(column).or(declared);
    Ok(of_value(found, declared, column, test))
}

fn of_value(found: &CellValue<'_>, declared: Option<ColumnType>, column: &str, test: &Test) -> WhyHidden {
    let column_type = found.column_type();
    if let CellValue::Large(large) = found
        && !large.is_cut
    {
        return plain(
            WhyCode::OtherType,
            format!(
                "the value of {column:?} is streamed, and streamed values are not compared; a condition can test only \
                 whether they exist"
            ),
        );
    }
    // For a declared column, no types are compared: a test with literals of another type has already been refused.
    let literals: Vec<Literal> = if declared.is_some() {
        Vec::new()
    } else {
        let converted = literals(test)
            .into_iter()
            .map(|literal| convert_literal(literal, None));
        converted.filter_map(std::result::Result::ok).collect()
    };
    let (mut is_opaque, mut is_comparable) = (false, literals.is_empty());
    each_compared(found, declared, &mut |value| {
        is_opaque |= value == ValueRef::Opaque;
        is_comparable |= literals.iter().any(|literal| are_comparable(literal, value));
        false
    });
    match (declared, is_opaque) {
        (Some(declared), true) if declared != column_type => plain(
            WhyCode::OtherType,
            format!(
                "the value of {column:?} is a {column_type}, written before the column was declared as {declared}, and is not \
                 compared; write it again as {declared}"
            ),
        ),
        _ if !is_comparable => plain(
            WhyCode::OtherType,
            format!(
                "the value of {column:?} is a {column_type}, and the test compares with a value of another type; declare the \
                 column, so that values and tests have one type"
            ),
        ),
        _ => {
            let mut json = Vec::new();
            value::write_plain(found, RowIntegers::Number, &mut json);
            let shown = value::shown(&String::from_utf8_lossy(&json));
            plain(
                WhyCode::NoMatch,
                format!("the newest value of {column:?} is {shown}, which does not pass"),
            )
        }
    }
}

/// Returns the literals with which a test compares values.
fn literals(test: &Test) -> Vec<&Literal> {
    use std::ops::Bound;
    match test {
        Test::Equals(Equals(value)) | Test::NotEquals(NotEquals(value)) => vec![value],
        Test::In(In(values)) => values.iter().collect(),
        Test::Between(Between(ends)) => ends.iter().collect(),
        Test::Compare(Compare { low, high }) => {
            let given = [low, high].into_iter().filter_map(|end| match end {
                Bound::Included(value) | Bound::Excluded(value) => Some(value),
                Bound::Unbounded => None,
            });
            given.collect()
        }
        _ => Vec::new(),
    }
}

/// Returns true if a converted literal can be compared with a value of an undeclared column: it has a form of the kind of
/// the value. Geo points and opaque values count as comparable with every literal.
fn are_comparable(literal: &Literal, value: ValueRef<'_>) -> bool {
    let (plain, forms) = match literal {
        Literal::Forms(forms) => (forms.plain.as_ref(), Some(forms)),
        literal => (Some(literal), None),
    };
    match value {
        ValueRef::Text(_) => matches!(plain, Some(Literal::Text(_))),
        ValueRef::Boolean(_) => matches!(plain, Some(Literal::Boolean(_))),
        ValueRef::Signed(_) | ValueRef::Unsigned(_) | ValueRef::Float(_) => {
            plain.is_some_and(|plain| !matches!(plain, Literal::Text(_) | Literal::Boolean(_)))
        }
        ValueRef::Time(_) => forms.is_some_and(|forms| forms.nanos.is_some()),
        ValueRef::Decimal(_) => forms.is_some_and(|forms| forms.decimal.is_some()),
        ValueRef::Bytes(_) => forms.is_some_and(|forms| forms.bytes.is_some()),
        ValueRef::Point(_) | ValueRef::Id(_) | ValueRef::Opaque => true,
    }
}
