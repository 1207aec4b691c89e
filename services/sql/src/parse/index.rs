//! Parser of `CREATE INDEX` and `DROP INDEX`.
//!
//! The columns of an index are written like the columns of a primary key, without types.

use sqlparser::tokenizer::Token;
use tideline_engine::model::{ColumnType, IndexCover, IndexScope, KeyColumnSpec, TierScope};

use super::cursor::Cursor;
use super::key::parts;
use super::table::computed_name;
use crate::error::{Result, SqlError};
use crate::statement::{CreateIndex, TableStatement};

/// Parses the rest of a statement that begins with `CREATE INDEX`, `CREATE LOCAL INDEX` or `CREATE GLOBAL INDEX`.
pub(super) fn create(cursor: &mut Cursor<'_>, scope: IndexScope) -> Result<TableStatement> {
    let if_not_exists = cursor.words(&["IF", "NOT", "EXISTS"]);
    let index = cursor.name("the name of the index")?;
    using(cursor)?;
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
    for position in computed {
        key[position].name = computed_name(&written[position], &key, &taken);
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
    let (mut allow_rising_key, mut tier) = (false, TierScope::All);
    if cursor.word("WITH") {
        let options = options(cursor)?;
        (allow_rising_key, tier) = (options.allow_rising_key, options.tier);
        if options.covers_all {
            covers = IndexCover::All;
        }
    }
    Ok(TableStatement::CreateIndex(CreateIndex {
        index,
        table,
        if_not_exists,
        key,
        covers,
        scope,
        allow_rising_key,
        tier,
    }))
}

/// Parses the kind of the index, which statements of Lindorm contain: `USING KV` is a secondary index.
fn using(cursor: &mut Cursor<'_>) -> Result<()> {
    if !cursor.word("USING") || cursor.word("KV") {
        return Ok(());
    }
    let advice = if cursor.is_word("SEARCH") {
        "create a search index by POST /v1/tables/{table}/search-indexes or by tideline rows search-index create"
    } else if cursor.is_word("COLUMNAR") {
        "aggregates read the rows or a secondary index that covers their columns; for other analyses, export the table as \
         Parquet"
    } else {
        return Err(cursor.expected("KV"));
    };
    Err(SqlError::refused(
        cursor.at(),
        format!("CREATE INDEX creates secondary indexes, USING KV; {advice}"),
    ))
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

/// Options of an index.
#[derive(Default)]
struct Options {
    covers_all: bool,
    allow_rising_key: bool,
    tier: TierScope,
}

/// Parses the options of an index.
fn options(cursor: &mut Cursor<'_>) -> Result<Options> {
    let mut options = Options::default();
    cursor.expect_token(&Token::LParen)?;
    loop {
        option(cursor, &mut options)?;
        if !cursor.token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_token(&Token::RParen)?;
    Ok(options)
}

fn option(cursor: &mut Cursor<'_>, options: &mut Options) -> Result<()> {
    let at = cursor.at();
    let name = match cursor.text() {
        Some(text) => text,
        None => cursor.name("the name of an option")?.text,
    };
    cursor.expect_token(&Token::Eq)?;
    let value_at = cursor.at();
    let value = match cursor.text() {
        Some(text) => text,
        None => cursor.name("the value of the option")?.text,
    };
    let value = value.to_ascii_uppercase();
    let wrong = |expected: &str| Err(SqlError::invalid(value_at, format!("{name} is {expected}")));
    match (name.to_ascii_uppercase().as_str(), value.as_str()) {
        ("INDEX_COVERED_TYPE", "COVERED_ALL_COLUMNS_IN_SCHEMA" | "COVERED_DYNAMIC_COLUMNS") => {
            options.covers_all = true;
        }
        ("INDEX_COVERED_TYPE", _) => {
            return wrong("'COVERED_ALL_COLUMNS_IN_SCHEMA' or 'COVERED_DYNAMIC_COLUMNS'");
        }
        ("ALLOW_RISING_KEY", "TRUE") => options.allow_rising_key = true,
        ("ALLOW_RISING_KEY", "FALSE") => options.allow_rising_key = false,
        ("ALLOW_RISING_KEY", _) => return wrong("TRUE or FALSE"),
        ("TIER", name) => {
            let mut scopes = TierScope::ALL.into_iter();
            match scopes.find(|scope| scope.name().eq_ignore_ascii_case(name)) {
                Some(scope) => options.tier = scope,
                None => return wrong("'all', 'hot' or 'cold'"),
            }
        }
        _ => {
            return Err(SqlError::refused(
                at,
                format!(
                    "the option {name:?} is not supported; an index has INDEX_COVERED_TYPE, ALLOW_RISING_KEY and \
                     TIER"
                ),
            ));
        }
    }
    Ok(())
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
