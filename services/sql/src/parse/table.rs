//! Parser of statements on tables: `CREATE`, `ALTER`, `DROP`, `SHOW`.
//!
//! Key columns are declared with their types, like all other columns.

use sqlparser::tokenizer::Token;
use tideline_engine::model::{
    ColumnCompression, ColumnSpec, ColumnType, IndexScope, KeyColumnSpec, PartsArchive, PartsSpec, RowTtl,
    Schedule, TtlScope, WideSpec,
};

use super::cursor::Cursor;
use super::index;
use super::key::{KeyPart, parts};
use super::settings::settings;
use crate::Position;
use crate::definition::type_of;
use crate::error::{Result, SqlError};
use crate::statement::{
    AlterTable, CreateTable, Name, ShowStatement, TTL_OF_NEEDS_TTL, TableOptions, TableStatement,
};

/// Maximum number of columns of a statement.
const COLUMNS_MAX: usize = tideline_engine::wide_table::COLUMNS_MAX;

/// Parses the rest of a statement that begins with `CREATE`.
pub(super) fn create(cursor: &mut Cursor<'_>) -> Result<TableStatement> {
    if cursor.is_word("UNIQUE") || cursor.is_word("SEARCH") {
        return Err(SqlError::refused(
            cursor.at(),
            "unique indexes and search indexes are not supported; an index is created by CREATE INDEX, and the primary \
             key is unique",
        ));
    }
    if cursor.words(&["LOCAL", "INDEX"]) {
        return index::create(cursor, IndexScope::Local);
    }
    if cursor.words(&["GLOBAL", "INDEX"]) || cursor.word("INDEX") {
        return index::create(cursor, IndexScope::Global);
    }
    if !cursor.word("TABLE") {
        return Err(cursor.expected("TABLE or INDEX"));
    }
    let if_not_exists = cursor.words(&["IF", "NOT", "EXISTS"]);
    let table = cursor.name("the name of the table")?;
    cursor.expect_token(&Token::LParen)?;
    let mut columns: Vec<Declared> = Vec::new();
    let mut required: Vec<Name> = Vec::new();
    let mut key: Vec<KeyPart> = Vec::new();
    loop {
        // `CONSTRAINT name PRIMARY KEY (…)`; the name has no effect. A column may have the name `CONSTRAINT`.
        if cursor.is_word("CONSTRAINT")
            && cursor.is_word_at(2, "PRIMARY")
            && cursor.is_word_at(3, "KEY")
            && cursor.is_token_at(4, &Token::LParen)
        {
            cursor.expect_word("CONSTRAINT")?;
            cursor.name("the name of the constraint")?;
        }
        if cursor.words(&["PRIMARY", "KEY"]) {
            if !key.is_empty() {
                return Err(SqlError::invalid(cursor.at(), "the table has two primary keys"));
            }
            key = parts(cursor)?;
        } else {
            let column = column(cursor)?;
            let name = &column.name;
            if columns.iter().any(|other| other.name.text == name.text) {
                return Err(SqlError::invalid(
                    name.at,
                    format!("column {:?} is declared twice", name.text),
                ));
            }
            if constraint(cursor, name, &mut required)? {
                key.push(KeyPart::plain(name.clone()));
            }
            columns.push(column);
        }
        if columns.len() > COLUMNS_MAX {
            return Err(SqlError::over(
                "number of columns",
                COLUMNS_MAX as u64,
                columns.len() as u64,
            ));
        }
        if !cursor.token(&Token::Comma) {
            break;
        }
    }
    cursor.expect_token(&Token::RParen)?;
    if key.is_empty() {
        return Err(SqlError::invalid(
            table.at,
            "the table has no primary key; add PRIMARY KEY (column, …) after the columns",
        ));
    }
    let options = match cursor.word("WITH") {
        true => settings(cursor)?,
        false => TableOptions::default(),
    };
    let rows = to_spec(columns, &required, &key, &options)?;
    Ok(TableStatement::Create(CreateTable {
        table,
        if_not_exists,
        rows,
        durability: options.durability,
    }))
}

/// Column with its type and compression.
struct Declared {
    name: Name,
    column_type: ColumnType,
    compression: ColumnCompression,
}

impl Declared {
    fn into_spec(self) -> ColumnSpec {
        ColumnSpec {
            name: self.name.text,
            column_type: self.column_type,
            number: 0,
            compression: self.compression,
        }
    }
}

fn column(cursor: &mut Cursor<'_>) -> Result<Declared> {
    let name = cursor.name("the name of a column or PRIMARY KEY")?;
    let at = cursor.at();
    let data_type = cursor.data_type()?;
    let column_type = type_of(&data_type)
        .map_err(|reason| SqlError::invalid(at, format!("column {:?}: {reason}", name.text)))?;
    let compression = match cursor.word("COMPRESSION") {
        true => compression(cursor)?,
        false => ColumnCompression::Auto,
    };
    Ok(Declared {
        name,
        column_type,
        compression,
    })
}

/// Parses the name of a compression, as a word or a text.
fn compression(cursor: &mut Cursor<'_>) -> Result<ColumnCompression> {
    let at = cursor.at();
    let name = match cursor.text() {
        Some(text) => text,
        None => cursor.name("the name of a compression")?.text,
    };
    ColumnCompression::named(&name.to_ascii_lowercase()).ok_or_else(|| {
        let known = ColumnCompression::ALL.map(ColumnCompression::name).join(", ");
        SqlError::invalid(at, format!("compression {name:?} is unknown; use one of {known}"))
    })
}

/// Parses the constraints of a column. Returns true if the column is the primary key.
fn constraint(cursor: &mut Cursor<'_>, name: &Name, required: &mut Vec<Name>) -> Result<bool> {
    let mut is_key = false;
    loop {
        if cursor.words(&["NOT", "NULL"]) {
            required.push(name.clone());
        } else if cursor.words(&["PRIMARY", "KEY"]) {
            is_key = true;
        } else if cursor.is_token(&Token::Comma) || cursor.is_token(&Token::RParen) {
            return Ok(is_key);
        } else {
            return Err(SqlError::refused(
                cursor.at(),
                format!(
                    "column {:?}: {} is not supported; a column has a name and a type, and key columns may have NOT NULL",
                    name.text,
                    cursor.found()
                ),
            ));
        }
    }
}

/// Returns the name of a computed column: the name after `AS`, or the name of its function. If the name of the function
/// is taken, a number is appended.
pub(super) fn computed_name(part: &KeyPart, key: &[KeyColumnSpec], taken: &[String]) -> String {
    if let Some(alias) = &part.alias {
        return alias.text.clone();
    }
    let function = part.modifier.clone().unwrap_or_default();
    let is_used =
        |name: &str| taken.iter().any(|other| other == name) || key.iter().any(|column| column.name == name);
    let mut numbered = (2_usize..).map(|number| format!("{function}_{number}"));
    match is_used(&function) {
        true => numbered.find(|name| !is_used(name)).unwrap_or_default(),
        false => function,
    }
}

/// Returns the settings of the rows of a new table.
fn to_spec(
    mut columns: Vec<Declared>,
    required: &[Name],
    parts: &[KeyPart],
    options: &TableOptions,
) -> Result<WideSpec> {
    let mut taken = Vec::new();
    let mut key: Vec<KeyColumnSpec> = Vec::with_capacity(parts.len());
    let mut computed = Vec::new();
    for part in parts {
        let mut declared = |name: &Name| {
            let position = columns.iter().position(|column| column.name.text == name.text);
            let Some(position) = position else {
                let reason = match taken.contains(&name.text) {
                    true => "is in the primary key twice",
                    false => "of the primary key is not declared; declare it with its type",
                };
                return Err(SqlError::invalid(
                    name.at,
                    format!("column {:?} {reason}", name.text),
                ));
            };
            let column = columns.remove(position);
            if !column.compression.is_auto() {
                return Err(SqlError::refused(
                    name.at,
                    format!(
                        "column {:?} is in the primary key, so it cannot have a compression",
                        name.text
                    ),
                ));
            }
            taken.push(column.name.text);
            Ok(column.column_type)
        };
        let (source, name) = part.to_spec(&mut declared)?;
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
        key[position].name = computed_name(&parts[position], &key, &taken);
    }
    if let Some(name) = required.iter().find(|name| !taken.contains(&name.text)) {
        return Err(SqlError::refused(
            name.at,
            format!(
                "column {:?}: NOT NULL is supported for key columns only; omit it",
                name.text
            ),
        ));
    }
    Ok(WideSpec {
        key,
        columns: columns.into_iter().map(Declared::into_spec).collect(),
        next_column: 1,
        max_versions: options.max_versions.unwrap_or(1),
        version_guard: options
            .version_guard
            .unwrap_or(Some(tideline_engine::model::time::NANOS_PER_DAY)),
        allow_rising_key: options.allow_rising_key.unwrap_or(false),
        indexes: Vec::new(),
        search_indexes: Vec::new(),
        large_values: None,
        cut_values: false,
        codecs: false,
        ttl_of: TtlScope::default(),
        limits: options.limits.clone().unwrap_or_default(),
        groups: options.groups.clone().unwrap_or_default(),
        ttl: ttl_of(options)?,
        parts: parts_of(options)?,
    })
}

/// Returns the time-to-live of a new table; `None` if the options set none.
fn ttl_of(options: &TableOptions) -> Result<Option<RowTtl>> {
    match (options.ttl.flatten(), options.ttl_of) {
        (None, Some((_, at))) => Err(SqlError::refused(at, TTL_OF_NEEDS_TTL)),
        (None, None) => Ok(None),
        (Some(after), of) => Ok(Some(RowTtl {
            after,
            of: of.map(|(of, _)| of).unwrap_or_default(),
        })),
    }
}

/// Returns the division of a new table into parts; `None` if it is not divided.
fn parts_of(options: &TableOptions) -> Result<Option<PartsSpec>> {
    let Some(at) = options.parts_at else {
        return Ok(None);
    };
    match (&options.parts_by, options.parts_every) {
        (Some(by), Some(every)) => {
            let mut parts = PartsSpec {
                by: by.clone(),
                every,
                keep: options.parts_keep.flatten(),
                hot: options.parts_hot.flatten(),
                writable: options.parts_writable.flatten(),
                archive: archive_of(options, at)?,
                migrate: Schedule::Continuous,
                expire: Schedule::Continuous,
                move_bytes_per_second: None,
                first: i32::MIN,
            };
            let applied = options.apply_jobs(&mut parts);
            applied.map_err(|reason| SqlError::refused(at, reason))?;
            Ok(Some(parts))
        }
        _ => Err(SqlError::refused(
            at,
            "a table that is divided into parts needs both PARTS_BY and PARTS_EVERY",
        )),
    }
}

/// Returns the archive of the parts from the settings; `None` if the settings contain no archive.
fn archive_of(options: &TableOptions, at: Position) -> Result<Option<PartsArchive>> {
    match (
        options.parts_archive.clone().flatten(),
        options.parts_archive_after,
    ) {
        (Some(target), Some(after)) => Ok(Some(PartsArchive {
            target,
            after,
            schedule: Schedule::Continuous,
        })),
        (None, None) => Ok(None),
        _ => Err(SqlError::refused(
            at,
            "an archive of parts needs both PARTS_ARCHIVE and PARTS_ARCHIVE_AFTER",
        )),
    }
}

/// Parses the rest of a statement that begins with `ALTER`.
pub(super) fn alter(cursor: &mut Cursor<'_>) -> Result<TableStatement> {
    cursor.expect_word("TABLE")?;
    let table = cursor.name("the name of a table")?;
    let mut altered = AlterTable {
        table,
        added: Vec::new(),
        dropped: Vec::new(),
        compressions: Vec::new(),
        settings: TableOptions::default(),
    };
    loop {
        if cursor.word("ADD") {
            cursor.word("COLUMN");
            let if_not_exists = cursor.words(&["IF", "NOT", "EXISTS"]);
            let column = column(cursor)?;
            altered.added.push((column.into_spec(), if_not_exists));
        } else if cursor.word("DROP") {
            cursor.word("COLUMN");
            let if_exists = cursor.words(&["IF", "EXISTS"]);
            altered
                .dropped
                .push((cursor.name("the name of a column")?, if_exists));
        } else if cursor.word("ALTER") {
            cursor.word("COLUMN");
            let name = cursor.name("the name of a column")?;
            cursor.expect_word("SET")?;
            cursor.expect_word("COMPRESSION")?;
            cursor.token(&Token::Eq);
            altered.compressions.push((name, compression(cursor)?));
        } else if cursor.word("SET") {
            let at = cursor.at();
            altered.settings = settings(cursor)?;
            if altered.settings.allow_rising_key.is_some() {
                return Err(SqlError::refused(
                    at,
                    "ALLOW_RISING_KEY is fixed when the table is created",
                ));
            }
            if altered.settings.groups.is_some() {
                return Err(SqlError::refused(
                    at,
                    "GROUPS are fixed when the table is created",
                ));
            }
            return Ok(TableStatement::Alter(altered));
        } else {
            return Err(cursor.expected("ADD COLUMN, DROP COLUMN, ALTER COLUMN or SET"));
        }
        if altered.added.len() + altered.dropped.len() + altered.compressions.len() > COLUMNS_MAX {
            return Err(SqlError::over(
                "number of columns",
                COLUMNS_MAX as u64,
                COLUMNS_MAX as u64 + 1,
            ));
        }
        if !cursor.token(&Token::Comma) {
            return Ok(TableStatement::Alter(altered));
        }
    }
}

/// Parses the rest of a statement that begins with `DROP`.
pub(super) fn drop_statement(cursor: &mut Cursor<'_>) -> Result<TableStatement> {
    if cursor.word("INDEX") {
        return index::drop_index(cursor);
    }
    if !cursor.word("TABLE") {
        return Err(cursor.expected("TABLE or INDEX"));
    }
    let if_exists = cursor.words(&["IF", "EXISTS"]);
    let table = cursor.name("the name of a table")?;
    Ok(TableStatement::Drop { table, if_exists })
}

/// Parses the rest of a statement that begins with `SHOW`.
pub(super) fn show(cursor: &mut Cursor<'_>) -> Result<ShowStatement> {
    if cursor.word("TABLES") {
        return Ok(ShowStatement::Tables);
    }
    if cursor.words(&["CREATE", "TABLE"]) {
        return cursor.name("the name of a table").map(ShowStatement::CreateTable);
    }
    if cursor.word("INDEX") || cursor.word("INDEXES") {
        if !cursor.word("FROM") {
            cursor.expect_word("ON")?;
        }
        return cursor.name("the name of a table").map(ShowStatement::Indexes);
    }
    if cursor.is_word("ESTIMATED") {
        return Err(SqlError::refused(
            cursor.at(),
            "SHOW ESTIMATED ROWS is not supported; estimate a number of rows by POST /v1/tables/{table}/rows/count with \
             `estimate`, or by tideline rows count --estimate",
        ));
    }
    Err(cursor.expected("TABLES, CREATE TABLE or INDEX FROM"))
}
