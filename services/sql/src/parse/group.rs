//! Parser of result columns with functions, and of `GROUP BY`.
//!
//! The functions are the same as in `rows/aggregate`. `TIME_WINDOW('1d', column)` groups times into windows; its
//! optional third argument is a time zone.

use sqlparser::ast::{
    DuplicateTreatment, Expr, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Spanned,
    Value,
};
use sqlparser::tokenizer::Token;
use tideline_openapi::query::WindowWidth;
use tideline_openapi::row_aggregate::AggregateFunction;

use super::cursor::Cursor;
use super::value::{literal, refused};
use crate::error::{Position, Result, SqlError};
use crate::literal::LiteralValue;
use crate::statement::{GroupColumn, GroupItem, Grouping, Name, SelectColumns};

/// Result column.
#[derive(Debug)]
pub(super) enum Item {
    Column(Name),
    /// `COUNT(*)` or `COUNT(1)`.
    Rows,
    Function(String, AggregateFunction),
    Window(GroupItem),
}

impl Item {
    /// Returns the name that the result column has without `AS`.
    pub(super) fn label(&self, expression: &Expr) -> String {
        match self {
            Self::Column(name) => name.text.clone(),
            Self::Rows => "count".to_owned(),
            Self::Function(..) => expression.to_string().to_lowercase(),
            Self::Window(window) => window.column.clone(),
        }
    }
}

/// Parses a result column.
pub(super) fn item(cursor: &Cursor<'_>, expression: &Expr, at: Position) -> Result<Item> {
    if let Expr::Identifier(name) = expression {
        let text = name.value.clone();
        return Ok(Item::Column(Name { text, at }));
    }
    let Some((name, list)) = call(expression) else {
        return Err(refused(expression));
    };
    if name == "time_window" {
        return window(cursor, list, at).map(Item::Window);
    }
    let is_distinct = match list.duplicate_treatment {
        None | Some(DuplicateTreatment::All) => false,
        Some(DuplicateTreatment::Distinct) => true,
    };
    // `COUNT(1)` is the same as `COUNT(*)`, because a constant is never NULL.
    let is_constant = |argument: &FunctionArg| match expression_of(argument) {
        Some(Expr::Value(value)) => !matches!(value.value, Value::Null | Value::Placeholder(_)),
        _ => matches!(argument, FunctionArg::Unnamed(FunctionArgExpr::Wildcard)),
    };
    if name == "count" && matches!(&list.args[..], [argument] if is_constant(argument)) {
        return match is_distinct {
            true => Err(refused(expression)),
            false => Ok(Item::Rows),
        };
    }
    let function = match (name.as_str(), is_distinct) {
        ("count", true) => AggregateFunction::CountDistinct,
        ("count", false) => AggregateFunction::Count,
        ("sum", false) => AggregateFunction::Sum,
        ("avg", false) => AggregateFunction::Mean,
        ("stddev_pop", false) => AggregateFunction::Stddev,
        ("min", false) => AggregateFunction::Min,
        ("max", false) => AggregateFunction::Max,
        ("spread", false) => AggregateFunction::Spread,
        ("mode", false) => AggregateFunction::Mode,
        ("first", false) => AggregateFunction::First,
        ("last", false) => AggregateFunction::Last,
        ("percentile", false) => {
            let percent = list.args.get(1).and_then(expression_of);
            let wrong = || SqlError::invalid(at, "PERCENTILE needs a column and a number from 0 to 100");
            let percent = literal(
                cursor,
                percent.filter(|_| list.args.len() == 2).ok_or_else(wrong)?,
            )?;
            let LiteralValue::Number(percent) = percent.value else {
                return Err(wrong());
            };
            AggregateFunction::Percentile(percent.parse().map_err(|_| wrong())?)
        }
        _ => return Err(refused(expression)),
    };
    let has_one = list.args.len() == 1 || matches!(function, AggregateFunction::Percentile(_));
    match list.args.first().and_then(expression_of) {
        Some(Expr::Identifier(column)) if has_one => Ok(Item::Function(column.value.clone(), function)),
        _ => Err(SqlError::refused(
            at,
            format!(
                "{} needs one column; expressions are not evaluated",
                name.to_uppercase()
            ),
        )),
    }
}

/// Parses the arguments of `TIME_WINDOW`.
fn window(cursor: &Cursor<'_>, list: &FunctionArgumentList, at: Position) -> Result<GroupItem> {
    let wrong = |reason: &str| SqlError::invalid(at, format!("TIME_WINDOW: {reason}"));
    let text = |argument: &FunctionArg, what: &str| {
        let expression = expression_of(argument).ok_or_else(|| wrong(what))?;
        match literal(cursor, expression)?.value {
            LiteralValue::Text(text) => Ok(text),
            _ => Err(wrong(what)),
        }
    };
    let (width, column, zone) = match &list.args[..] {
        [width, column] => (width, column, None),
        [width, column, zone] => (width, column, Some(zone)),
        _ => {
            return Err(wrong(
                "expected a width, a column and an optional time zone, such as TIME_WINDOW('1d', placed, 'Europe/Berlin')",
            ));
        }
    };
    let width = text(width, "the width is a text such as '1h', '1d' or '1mo'")?;
    let width =
        WindowWidth::try_from(width).map_err(|_| wrong("the width is a text such as '1h', '1d' or '1mo'"))?;
    let zone = zone.map(|zone| text(zone, "the time zone is a text such as 'Europe/Berlin'"));
    match expression_of(column) {
        Some(Expr::Identifier(column)) => Ok(GroupItem {
            column: column.value.clone(),
            window: Some((width, zone.transpose()?)),
        }),
        _ => Err(wrong("the second argument is a column")),
    }
}

/// Parses `GROUP BY`, if the statement has it, and returns the result columns.
pub(super) fn grouped(
    cursor: &mut Cursor<'_>,
    items: Vec<(Item, String, Position)>,
) -> Result<SelectColumns> {
    let is_grouped = cursor.words(&["GROUP", "BY"]);
    let has_functions = items.iter().any(|(item, ..)| !matches!(item, Item::Column(_)));
    if !is_grouped && !has_functions {
        let listed = items.into_iter().filter_map(|(item, label, _)| match item {
            Item::Column(name) => Some((name, label)),
            _ => None,
        });
        return Ok(SelectColumns::Listed(listed.collect()));
    }
    if let ([(Item::Rows, label, _)], false) = (items.as_slice(), is_grouped) {
        return Ok(SelectColumns::Count(label.clone()));
    }
    let keys = match is_grouped {
        true => keys(cursor, &items)?,
        false => Vec::new(),
    };
    let mut columns = Vec::with_capacity(items.len());
    for (item, label, at) in items {
        let key = match item {
            Item::Rows => {
                columns.push((GroupColumn::Rows, label));
                continue;
            }
            Item::Function(column, function) => {
                columns.push((GroupColumn::Function(column, function), label));
                continue;
            }
            Item::Column(name) => GroupItem {
                column: name.text,
                window: None,
            },
            Item::Window(window) => window,
        };
        let number = keys.iter().position(|known| *known == key).ok_or_else(|| {
            SqlError::invalid(
                at,
                format!("{label:?} is neither in GROUP BY nor an argument of a function; add it to GROUP BY"),
            )
        })?;
        columns.push((GroupColumn::Key(number), label));
    }
    Ok(SelectColumns::Groups(Grouping { keys, columns }))
}

/// Parses the keys of `GROUP BY`: columns, windows, or names of result columns that are windows.
fn keys(cursor: &mut Cursor<'_>, items: &[(Item, String, Position)]) -> Result<Vec<GroupItem>> {
    let mut keys = Vec::new();
    loop {
        let at = cursor.at();
        let expression = cursor.expression()?;
        let key = match item(cursor, &expression, at)? {
            Item::Window(window) => window,
            Item::Column(name) => {
                let named = items.iter().find_map(|(item, label, _)| match item {
                    Item::Window(window) if *label == name.text => Some(window.clone()),
                    _ => None,
                });
                named.unwrap_or(GroupItem {
                    column: name.text,
                    window: None,
                })
            }
            Item::Rows | Item::Function(..) => {
                return Err(SqlError::invalid(
                    Position::from(expression.span()),
                    "GROUP BY lists columns and windows; a function of a group cannot be its key",
                ));
            }
        };
        keys.push(key);
        if !cursor.token(&Token::Comma) {
            return Ok(keys);
        }
    }
}

/// Returns the name, in lower case, and the arguments of a function call; `None` if the call has other clauses.
fn call(expression: &Expr) -> Option<(String, &FunctionArgumentList)> {
    let Expr::Function(function) = expression else {
        return None;
    };
    let is_plain = function.filter.is_none() && function.over.is_none() && function.within_group.is_empty();
    match &function.args {
        FunctionArguments::List(list) if is_plain && list.clauses.is_empty() => {
            Some((function.name.to_string().to_lowercase(), list))
        }
        _ => None,
    }
}

fn expression_of(argument: &FunctionArg) -> Option<&Expr> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expression)) => Some(expression),
        _ => None,
    }
}
