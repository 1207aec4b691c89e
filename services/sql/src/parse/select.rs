//! Parser of `SELECT`.
//!
//! Clauses that need more than one access path are refused with an error that contains their name.

use sqlparser::ast::{Expr, Spanned};
use sqlparser::tokenizer::Token;

use super::condition::condition;
use super::cursor::Cursor;
use super::group::{self, Item};
use super::value::{literal, refused};
use crate::error::{Position, Result, SqlError};
use crate::statement::{Name, OrderItem, Predicate, Select, SelectColumns};

/// Maximum number of result columns.
const COLUMNS_MAX: usize = 1_000;

/// Parses the rest of a statement that begins with `SELECT`.
pub(super) fn select(cursor: &mut Cursor<'_>) -> Result<Select> {
    if cursor.is_word("DISTINCT") {
        return Err(SqlError::refused(
            cursor.at(),
            "DISTINCT is not evaluated; rows are distinct by their keys. Remove repeated values in the application",
        ));
    }
    let columns = columns(cursor)?;
    cursor.expect_word("FROM")?;
    if cursor.is_token(&Token::LParen) {
        return Err(SqlError::refused(
            cursor.at(),
            "subqueries are not evaluated; run the inner SELECT first, and pass its result as parameters",
        ));
    }
    let table = cursor.name("the name of a table")?;
    refuse_joins(cursor)?;
    refuse_alias(cursor)?;
    let condition = where_clause(cursor)?;
    let columns = match columns {
        Some(items) => group::grouped(cursor, items)?,
        None if cursor.is_word("GROUP") => {
            return Err(SqlError::invalid(
                cursor.at(),
                "SELECT * has no groups; list the columns of GROUP BY and functions",
            ));
        }
        None => SelectColumns::All,
    };
    refuse_combinations(cursor)?;
    let order_at = cursor.at();
    let order = order(cursor)?;
    let limit = limit(cursor)?;
    if let SelectColumns::Groups(_) = columns
        && !order.is_empty()
    {
        return Err(SqlError::refused(
            order_at,
            "groups are returned in the order of the values of GROUP BY; omit ORDER BY",
        ));
    }
    if let SelectColumns::Count(_) = columns
        && (limit.is_some() || !order.is_empty())
    {
        return Err(SqlError::refused(
            order_at,
            "COUNT(*) gives one row; omit ORDER BY and LIMIT",
        ));
    }
    Ok(Select {
        table,
        columns,
        condition,
        order,
        order_at,
        limit,
        allow_scan: cursor.allow_scan,
    })
}

/// Parses `WHERE`, if the statement has it.
pub(super) fn where_clause(cursor: &mut Cursor<'_>) -> Result<Option<Predicate>> {
    match cursor.word("WHERE") {
        true => condition(cursor).map(Some),
        false => Ok(None),
    }
}

/// Parses the result columns; `None` for `*`.
fn columns(cursor: &mut Cursor<'_>) -> Result<Option<Vec<(Item, String, Position)>>> {
    if cursor.token(&Token::Mul) {
        return Ok(None);
    }
    let mut listed: Vec<(Item, String, Position)> = Vec::new();
    loop {
        let at = cursor.at();
        let expression = cursor.expression()?;
        let item = group::item(cursor, &expression, at)?;
        let label = alias(cursor)?.unwrap_or_else(|| item.label(&expression));
        if listed.iter().any(|(_, other, _)| *other == label) {
            return Err(SqlError::invalid(
                at,
                format!("two result columns have the name {label:?}; add AS"),
            ));
        }
        listed.push((item, label, at));
        if listed.len() > COLUMNS_MAX {
            return Err(SqlError::over(
                "number of result columns",
                COLUMNS_MAX as u64,
                listed.len() as u64,
            ));
        }
        if !cursor.token(&Token::Comma) {
            return Ok(Some(listed));
        }
    }
}

/// Parses the name of a result column, with or without `AS`; `None` if the column has no other name.
fn alias(cursor: &mut Cursor<'_>) -> Result<Option<String>> {
    match cursor.word("AS") || cursor.is_name() {
        true => Ok(Some(cursor.name("the name of the result column")?.text)),
        false => Ok(None),
    }
}

fn refuse_joins(cursor: &Cursor<'_>) -> Result<()> {
    const JOINS: [&str; 7] = ["JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL"];
    if JOINS.iter().any(|word| cursor.is_word(word)) || cursor.is_token(&Token::Comma) {
        return Err(SqlError::refused(
            cursor.at(),
            "JOIN is not evaluated: a statement reads one table. Read one table first, and pass the keys of the other \
             as parameters of IN; or store the columns in one row",
        ));
    }
    Ok(())
}

/// Refuses another name of the table.
fn refuse_alias(cursor: &Cursor<'_>) -> Result<()> {
    const CLAUSES: [&str; 12] = [
        "WHERE",
        "GROUP",
        "HAVING",
        "UNION",
        "INTERSECT",
        "EXCEPT",
        "WINDOW",
        "QUALIFY",
        "ORDER",
        "LIMIT",
        "OFFSET",
        "FETCH",
    ];
    let is_alias = cursor.is_word("AS") || cursor.is_name();
    match is_alias && !CLAUSES.iter().any(|word| cursor.is_word(word)) {
        false => Ok(()),
        true => Err(SqlError::refused(
            cursor.at(),
            format!(
                "{} after the name of the table would be an alias of the table, which is not supported: a statement reads \
                 one table, and its columns are written without a table; omit it",
                cursor.found()
            ),
        )),
    }
}

fn refuse_combinations(cursor: &Cursor<'_>) -> Result<()> {
    let (word, advice) = match () {
        () if cursor.is_word("HAVING") => (
            "HAVING",
            "use WHERE for conditions on rows, and test groups in the application",
        ),
        () if cursor.is_word("UNION") || cursor.is_word("INTERSECT") || cursor.is_word("EXCEPT") => (
            "a combination of several SELECT",
            "send each SELECT in a separate request",
        ),
        () if cursor.is_word("WINDOW") || cursor.is_word("QUALIFY") => {
            ("WINDOW", "compute it in the application")
        }
        () => return Ok(()),
    };
    Err(SqlError::refused(
        cursor.at(),
        format!("{word} is not evaluated; {advice}"),
    ))
}

fn order(cursor: &mut Cursor<'_>) -> Result<Vec<OrderItem>> {
    if !cursor.words(&["ORDER", "BY"]) {
        return Ok(Vec::new());
    }
    let mut items = Vec::new();
    loop {
        let at = cursor.at();
        let column = match cursor.expression()? {
            Expr::Identifier(name) => Name { text: name.value, at },
            other => return Err(refused(&other)),
        };
        let is_descending = cursor.word("DESC") || {
            cursor.word("ASC");
            false
        };
        if cursor.is_word("NULLS") {
            return Err(SqlError::refused(
                cursor.at(),
                "key columns have no NULL; omit NULLS FIRST or LAST",
            ));
        }
        items.push(OrderItem {
            column,
            is_descending,
        });
        if !cursor.token(&Token::Comma) {
            return Ok(items);
        }
    }
}

fn limit(cursor: &mut Cursor<'_>) -> Result<Option<u64>> {
    let limit = match cursor.word("LIMIT") {
        false => None,
        true => {
            let expression = cursor.expression()?;
            let value = literal(cursor, &expression)?;
            let rows = value.to_u64().filter(|rows| *rows > 0);
            Some(rows.ok_or_else(|| {
                SqlError::invalid(
                    Position::from(expression.span()),
                    "LIMIT needs a whole number of at least 1",
                )
            })?)
        }
    };
    if cursor.is_word("OFFSET") || cursor.is_token(&Token::Comma) {
        return Err(SqlError::refused(
            cursor.at(),
            "OFFSET is not evaluated, because it reads and drops rows; continue with `next` of the page before as \
             `page_token`, or with a condition on the key",
        ));
    }
    if cursor.is_word("FETCH") {
        return Err(SqlError::refused(
            cursor.at(),
            "FETCH is not evaluated; use LIMIT",
        ));
    }
    Ok(limit)
}
