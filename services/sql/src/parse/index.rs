//! Parser of `CREATE INDEX` and `DROP INDEX`.
//!
//! The columns of an index are written like those of a primary key, without types.

use sqlparser::tokenizer::Token;
use tideline_engine::model::{ColumnType, IndexCover, IndexScope, KeyColumnSpec};

use super::cursor::Cursor;
use super::key::parts;
use super::table::computed_name;
use crate::error::{Result, SqlError};
use crate::statement::{CreateIndex, TableStatement};

/// Parses the rest of a statement that begins with `CREATE INDEX`, `CREATE LOCAL INDEX` or `CREATE GLOBAL INDEX`.
pub(super) fn create(cursor: &mut Cursor<'_>, scope: IndexScope) -> Result<TableStatement> {
    let if_not_exists = cursor.words(&["IF", "NOT", "EXISTS"]);
    let index = cursor.name("the name of the index")?;
    cursor.expect_word("ON")?;
    let table = cursor.name("the name of the table")?;
    let written = parts(cursor)?;
    let mut taken = Vec::new();
    let mut key: Vec<KeyColumnSpec> = Vec::with_capacity(written.len());
    let mut computed = Vec::new();
    for part in &written {
        // The parser does not read the table, so the types are set when the statement is executed.
        let (source, name) = part.to_spec(&mut |name| {
            taken.push(name.text.clone());
            Ok(ColumnType::I64)
        })?;
        if name.is_none() {
            computed.push(key.len());
        }
        key.push(KeyColumnSpec {
            name: name.unwrap_or_default(),
            source,
            order: part.order,
        });
    }
    for place in computed {
        key[place].name = computed_name(&written[place], &key, &taken);
    }
    let mut covers = IndexCover::default();
    if cursor.word("INCLUDE") {
        covers = match cursor.word("ALL") {
            true => IndexCover::All,
            false => IndexCover::Columns(names(cursor)?),
        };
    }
    // `ASYNC` and `SYNC` are accepted because statements of Lindorm contain them. They have no effect: entries are
    // always written together with their rows.
    if !cursor.word("ASYNC") {
        cursor.word("SYNC");
    }
    if cursor.word("WITH") {
        options(cursor)?;
        covers = IndexCover::All;
    }
    Ok(TableStatement::CreateIndex(CreateIndex {
        index,
        table,
        if_not_exists,
        key,
        covers,
        scope,
    }))
}

/// Parses names in parentheses.
fn names(cursor: &mut Cursor<'_>) -> Result<Vec<String>> {
    cursor.expect_token(&Token::LParen)?;
    let mut names = Vec::new();
    loop {
        names.push(cursor.name("the name of a column")?.text);
        if !cursor.token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_token(&Token::RParen)?;
    Ok(names)
}

/// Parses the only option of an index, `INDEX_COVERED_TYPE`. Both of its values cover all columns.
fn options(cursor: &mut Cursor<'_>) -> Result<()> {
    cursor.expect_token(&Token::LParen)?;
    let at = cursor.at();
    let name = match cursor.text() {
        Some(text) => text,
        None => cursor.name("the name of an option")?.text,
    };
    if !name.eq_ignore_ascii_case("INDEX_COVERED_TYPE") {
        return Err(SqlError::refused(
            at,
            format!("the option {name:?} is not supported; an index has INDEX_COVERED_TYPE"),
        ));
    }
    cursor.expect_token(&Token::Eq)?;
    let at = cursor.at();
    let value = cursor.text().ok_or_else(|| cursor.expected("a text"))?;
    let is_known = ["COVERED_ALL_COLUMNS_IN_SCHEMA", "COVERED_DYNAMIC_COLUMNS"]
        .iter()
        .any(|known| value.eq_ignore_ascii_case(known));
    if !is_known {
        return Err(SqlError::invalid(
            at,
            "INDEX_COVERED_TYPE is 'COVERED_ALL_COLUMNS_IN_SCHEMA' or 'COVERED_DYNAMIC_COLUMNS'",
        ));
    }
    cursor.expect_token(&Token::RParen)
}

/// Parses the rest of a statement that begins with `DROP INDEX`.
pub(super) fn drop_index(cursor: &mut Cursor<'_>) -> Result<TableStatement> {
    let if_exists = cursor.words(&["IF", "EXISTS"]);
    let index = cursor.name("the name of an index")?;
    cursor.expect_word("ON")?;
    let table = cursor.name("the name of the table")?;
    Ok(TableStatement::DropIndex {
        index,
        table,
        if_exists,
    })
}
