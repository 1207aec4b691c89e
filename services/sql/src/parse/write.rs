//! Parser of `UPSERT`, `INSERT`, `UPDATE` and `DELETE`.
//!
//! `INSERT` is the same as `UPSERT`, as in Lindorm: an existing row is changed. `ON DUPLICATE KEY ERROR` and `ON
//! DUPLICATE KEY IGNORE` leave an existing row unchanged.

use sqlparser::ast::{BinaryOperator, Expr, Spanned};
use sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use super::select::where_clause;
use super::value::literal;
use super::{ROWS_MAX, condition};
use crate::error::{Position, Result, SqlError};
use crate::literal::Literal;
use crate::statement::{Change, Delete, Name, OnDuplicate, Update, Upsert};

/// Maximum number of columns of a written row.
const COLUMNS_MAX: usize = 10_000;

/// Parses the rest of a statement that begins with `UPSERT` or `INSERT`.
pub(super) fn upsert(cursor: &mut Cursor<'_>) -> Result<Upsert> {
    cursor.expect_word("INTO")?;
    let table = cursor.name("the name of a table")?;
    if !cursor.is_token(&Token::LParen) {
        return Err(cursor.expected("the columns in parentheses"));
    }
    let columns = names(cursor)?;
    if cursor.is_word("SELECT") {
        return Err(SqlError::refused(
            cursor.at(),
            "rows are not copied by a statement; read them by SELECT, and write them by UPSERT … VALUES",
        ));
    }
    cursor.expect_word("VALUES")?;
    let mut rows = Vec::new();
    loop {
        rows.push(row(cursor, columns.len())?);
        if rows.len() > ROWS_MAX {
            return Err(SqlError::over(
                "number of rows",
                ROWS_MAX as u64,
                rows.len() as u64,
            ));
        }
        if !cursor.token(&Token::Comma) {
            break;
        }
    }
    let on_duplicate = on_duplicate(cursor)?;
    Ok(Upsert {
        table,
        columns,
        rows,
        on_duplicate,
    })
}

fn on_duplicate(cursor: &mut Cursor<'_>) -> Result<OnDuplicate> {
    if !cursor.words(&["ON", "DUPLICATE", "KEY"]) {
        return Ok(OnDuplicate::Update);
    }
    if cursor.word("IGNORE") {
        return Ok(OnDuplicate::Ignore);
    }
    if cursor.word("ERROR") {
        return Ok(OnDuplicate::Error);
    }
    if cursor.is_word("UPDATE") {
        return Err(SqlError::refused(
            cursor.at(),
            "ON DUPLICATE KEY UPDATE is not evaluated; send UPSERT without it, or ON DUPLICATE KEY IGNORE and then an \
             UPDATE",
        ));
    }
    Err(cursor.expected("IGNORE or ERROR"))
}

/// Parses a list of names in parentheses.
fn names(cursor: &mut Cursor<'_>) -> Result<Vec<Name>> {
    cursor.expect_token(&Token::LParen)?;
    let mut names: Vec<Name> = Vec::new();
    let mut known = std::collections::HashSet::new();
    loop {
        let name = cursor.name("the name of a column")?;
        if !known.insert(name.text.clone()) {
            return Err(SqlError::invalid(
                name.at,
                format!("column {:?} is given twice", name.text),
            ));
        }
        names.push(name);
        if names.len() > COLUMNS_MAX {
            return Err(SqlError::over(
                "number of columns",
                COLUMNS_MAX as u64,
                names.len() as u64,
            ));
        }
        if !cursor.token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_token(&Token::RParen)?;
    Ok(names)
}

/// Parses the values of a row.
fn row(cursor: &mut Cursor<'_>, count: usize) -> Result<Vec<Literal>> {
    let at = cursor.at();
    cursor.expect_token(&Token::LParen)?;
    let mut values = Vec::with_capacity(count);
    loop {
        let expression = cursor.expression()?;
        values.push(literal(cursor, &expression)?);
        if !cursor.token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_token(&Token::RParen)?;
    match values.len() == count {
        true => Ok(values),
        false => Err(SqlError::invalid(
            at,
            format!("the row has {} values for {count} columns", values.len()),
        )),
    }
}

/// Parses the rest of a statement that begins with `UPDATE`.
pub(super) fn update(cursor: &mut Cursor<'_>) -> Result<Update> {
    let table = cursor.name("the name of a table")?;
    cursor.expect_word("SET")?;
    let mut changes: Vec<(Name, Change)> = Vec::new();
    loop {
        let column = cursor.name("the name of a column")?;
        if changes.iter().any(|(other, _)| other.text == column.text) {
            return Err(SqlError::invalid(
                column.at,
                format!("column {:?} is changed twice", column.text),
            ));
        }
        if changes.len() >= COLUMNS_MAX {
            return Err(SqlError::over(
                "number of columns",
                COLUMNS_MAX as u64,
                COLUMNS_MAX as u64 + 1,
            ));
        }
        cursor.expect_token(&Token::Eq)?;
        let expression = cursor.expression()?;
        let change = change(cursor, &column, &expression)?;
        changes.push((column, change));
        if !cursor.token(&Token::Comma) {
            break;
        }
    }
    if !cursor.word("WHERE") {
        return Err(SqlError::refused(
            cursor.at(),
            "UPDATE changes rows by their keys; add WHERE with a value of each key column",
        ));
    }
    let condition = condition::condition(cursor)?;
    Ok(Update {
        table,
        changes,
        condition,
    })
}

/// Converts the new value of a column: a value, or the same column plus or minus a number.
fn change(cursor: &Cursor<'_>, column: &Name, expression: &Expr) -> Result<Change> {
    let Expr::BinaryOp { left, op, right } = expression else {
        return literal(cursor, expression).map(Change::Set);
    };
    let is_column =
        |expression: &Expr| matches!(expression, Expr::Identifier(name) if name.value == column.text);
    let (value, is_minus) = match op {
        BinaryOperator::Plus if is_column(left) => (right, false),
        BinaryOperator::Plus if is_column(right) => (left, false),
        BinaryOperator::Minus if is_column(left) => (right, true),
        _ => {
            return Err(SqlError::refused(
                expression.span(),
                format!(
                    "the new value of {0} is an expression; set a value, or add a number to it, as {0} = {0} + 1",
                    column.text
                ),
            ));
        }
    };
    let number = literal(cursor, value)?.to_i64();
    let number = number.and_then(|number| {
        if is_minus {
            number.checked_neg()
        } else {
            Some(number)
        }
    });
    let missing = || {
        let at = Position::from(value.span());
        SqlError::invalid(at, "the number to add is a whole number of 64 bits")
    };
    number.map(Change::Add).ok_or_else(missing)
}

/// Parses the rest of a statement that begins with `DELETE`.
pub(super) fn delete(cursor: &mut Cursor<'_>) -> Result<Delete> {
    cursor.expect_word("FROM")?;
    let table = cursor.name("the name of a table")?;
    let condition = where_clause(cursor)?;
    Ok(Delete {
        table,
        condition,
        allow_scan: cursor.allow_scan,
    })
}
