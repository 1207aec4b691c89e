//! `CREATE`, `ALTER TABLE`, `DROP`, `SHOW` and `DESCRIBE`.
//!
//! `ALTER TABLE` reads all settings of a table, changes them and stores them. It holds the settings lock, so that other
//! changes of settings wait.

mod index;

use serde::Serialize;
use tideline_engine::model::wide::KeyOrder;
use tideline_engine::model::{PartsArchive, TableModel, TableName, TableSpec};
use tideline_engine::{Engine, ErrorKind};

use crate::definition::{create_table, key_columns, type_name};
use crate::error::{Result, SqlError};
use crate::statement::{
    AlterTable, CreateTable, Name, ShowStatement, TTL_OF_NEEDS_TTL, TableOptions, TableStatement,
};

/// Result of a statement on a table or index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableChange {
    /// The table or index was created.
    Created,
    /// A table or index with this name already exists; nothing was changed.
    Exists,
    /// The table was altered.
    Altered,
    /// The table or index was dropped.
    Dropped,
    /// No table or index with this name exists; nothing was changed.
    Missing,
}

/// Receives the settings of a table directly before a change: those before it, which are `None` for a new table, and
/// those after it. The change can still fail.
pub type Note<'n> = &'n dyn Fn(Option<&TableSpec>, &TableSpec);

/// Executes a statement that changes tables or indexes. Calls `note` if the statement creates or alters a table.
///
/// # Errors
///
/// The errors of [`TableName::new`], [`Engine::create_table`], [`Engine::alter_table`], [`Engine::drop_table`],
/// [`Engine::create_index`] and [`Engine::drop_index`]; [`SqlError::Invalid`] if a column to drop or a column of an
/// index is not declared, or if a column to add is; [`SqlError::Refused`] for the drop of a key column and for a change of
/// the division into parts.
pub fn change(engine: &Engine, statement: TableStatement, note: Note<'_>) -> Result<TableChange> {
    match statement {
        TableStatement::Create(statement) => create(engine, statement, note),
        TableStatement::Alter(statement) => alter(engine, statement, note),
        TableStatement::Drop { table, if_exists } => drop_table(engine, &table, if_exists),
        TableStatement::CreateIndex(statement) => index::create(engine, statement),
        TableStatement::DropIndex {
            index,
            table,
            if_exists,
        } => index::drop_index(engine, &index, &table, if_exists),
    }
}

/// Executes a statement that shows tables, columns or indexes. Returns the rows as JSON objects.
///
/// # Errors
///
/// The errors of [`Engine::wide_table`].
pub fn show(engine: &Engine, statement: &ShowStatement) -> Result<Vec<String>> {
    match statement {
        ShowStatement::Tables => Ok(show_tables(engine)),
        ShowStatement::Columns(table) => describe(engine, table),
        ShowStatement::CreateTable(table) => show_create_table(engine, table),
        ShowStatement::Indexes(table) => index::show(engine, table),
    }
}

fn create(engine: &Engine, create: CreateTable, note: Note<'_>) -> Result<TableChange> {
    let name = TableName::new(&create.table.text)
        .map_err(|error| SqlError::invalid(create.table.at, error.to_string()))?;
    let mut spec = TableSpec {
        model: TableModel::Wide,
        wide: Some(Box::new(create.rows)),
        ..TableSpec::default()
    };
    if let Some(durability) = create.durability {
        spec.durability = durability;
    }
    if create.if_not_exists && exists(engine, &create.table.text) {
        return Ok(TableChange::Exists);
    }
    note(None, &spec);
    match engine.create_table(name, spec) {
        Ok(_) => Ok(TableChange::Created),
        // Another request may have created the table in the meantime.
        Err(error)
            if create.if_not_exists
                && error.kind() == ErrorKind::Conflict
                && exists(engine, &create.table.text) =>
        {
            Ok(TableChange::Exists)
        }
        Err(error) => Err(error.into()),
    }
}

fn exists(engine: &Engine, name: &str) -> bool {
    engine.table_of_any_model(name).is_ok()
}

fn alter(engine: &Engine, alter: AlterTable, note: Note<'_>) -> Result<TableChange> {
    let _alone = engine.lock_settings();
    let table = engine.wide_table(&alter.table.text)?;
    let before = table.table().spec();
    let mut spec = TableSpec::clone(&before);
    if let Some(rows) = spec.wide.as_deref_mut() {
        for (name, if_exists) in alter.dropped {
            if table.layout().has_column(&name.text) {
                return Err(SqlError::refused(
                    name.at,
                    format!(
                        "column {:?} is a key column, which cannot be dropped; copy the rows into a table with another \
                         key by tideline rows rekey",
                        name.text
                    ),
                ));
            }
            let count = rows.columns.len();
            rows.columns.retain(|column| column.name != name.text);
            if rows.columns.len() == count && !if_exists {
                return Err(SqlError::invalid(
                    name.at,
                    format!("column {:?} is not declared, so it cannot be dropped", name.text),
                ));
            }
        }
        for (column, if_not_exists) in alter.added {
            let known = rows.columns.iter().find(|known| known.name == column.name);
            let is_same = known.is_some_and(|known| known.column_type == column.column_type);
            if if_not_exists && is_same {
                continue;
            }
            if let Some(known) = known {
                return Err(SqlError::invalid(
                    alter.table.at,
                    format!(
                        "column {:?} is already declared as {}",
                        column.name,
                        type_name(known.column_type)
                    ),
                ));
            }
            rows.columns.push(column);
        }
        for (name, compression) in alter.compressions {
            let column = rows.columns.iter_mut().find(|column| column.name == name.text);
            let column = column.ok_or_else(|| {
                SqlError::invalid(
                    name.at,
                    format!("column {:?} is not declared, so it has no compression", name.text),
                )
            })?;
            column.compression = compression;
        }
        if let Some(versions) = alter.settings.max_versions {
            rows.max_versions = versions;
        }
        if let Some(limits) = alter.settings.limits.clone() {
            rows.limits = limits;
        }
        if let Some(guard) = alter.settings.version_guard {
            rows.version_guard = guard;
        }
        if let Some(ttl) = alter.settings.ttl {
            rows.set_ttl(ttl);
        }
        if let Some((of, at)) = alter.settings.ttl_of {
            let ttl = rows.ttl.as_mut();
            ttl.ok_or_else(|| SqlError::refused(at, TTL_OF_NEEDS_TTL))?.of = of;
        }
    }
    alter_parts(&mut spec, &alter.settings)?;
    if let Some(durability) = alter.settings.durability {
        spec.durability = durability;
    }
    note(Some(&before), &spec);
    engine.alter_table(&alter.table.text, spec)?;
    Ok(TableChange::Altered)
}

/// Changes the ages, the archive, the schedules and the rate of the parts. Refuses to change the division itself, which
/// is fixed.
fn alter_parts(spec: &mut TableSpec, settings: &TableOptions) -> Result<()> {
    let Some(at) = settings.parts_at else {
        return Ok(());
    };
    let refuse = |reason: &str| Err(SqlError::refused(at, reason));
    if settings.parts_by.is_some() || settings.parts_every.is_some() {
        return refuse(
            "the division into parts is fixed when a table is created; only PARTS_KEEP, PARTS_HOT, PARTS_WRITABLE, \
             PARTS_ARCHIVE, PARTS_ARCHIVE_AFTER, PARTS_MIGRATE_SCHEDULE, PARTS_EXPIRE_SCHEDULE, PARTS_ARCHIVE_SCHEDULE, \
             PARTS_MOVE_RATE and PARTS_JOBS can be changed",
        );
    }
    let Some(parts) = spec.wide.as_mut().and_then(|wide| wide.parts.as_mut()) else {
        return refuse("the table is not divided into parts");
    };
    for (change, setting) in [
        (settings.parts_keep, &mut parts.keep),
        (settings.parts_hot, &mut parts.hot),
        (settings.parts_writable, &mut parts.writable),
    ] {
        if let Some(change) = change {
            *setting = change;
        }
    }
    let kept = parts.archive.take();
    let (target, after) = (settings.parts_archive.clone(), settings.parts_archive_after);
    parts.archive = match (target, after, kept) {
        (Some(None), None, _) | (None, None, None) => None,
        (Some(Some(target)), Some(after), kept) => Some(PartsArchive {
            target,
            after,
            schedule: kept.map(|kept| kept.schedule).unwrap_or_default(),
        }),
        (Some(Some(target)), None, Some(kept)) => Some(PartsArchive { target, ..kept }),
        (None, Some(after), Some(kept)) => Some(PartsArchive { after, ..kept }),
        (None, None, kept) => kept,
        _ => return refuse("an archive of parts needs both PARTS_ARCHIVE and PARTS_ARCHIVE_AFTER"),
    };
    settings
        .apply_jobs(parts)
        .map_err(|reason| SqlError::refused(at, reason))
}

/// Drops a table. Tables of other models are refused.
fn drop_table(engine: &Engine, table: &Name, if_exists: bool) -> Result<TableChange> {
    match engine.wide_table(&table.text) {
        Ok(_) => {}
        Err(error) if if_exists && error.kind() == ErrorKind::NotFound => return Ok(TableChange::Missing),
        Err(error) => return Err(error.into()),
    }
    engine.drop_table(&table.text)?;
    Ok(TableChange::Dropped)
}

/// Returns the wide tables, sorted by name.
fn show_tables(engine: &Engine) -> Vec<String> {
    let tables = engine.tables();
    let mut names: Vec<String> = tables
        .iter()
        .filter(|table| table.spec().model.has_rows())
        .map(|table| table.name().to_string())
        .collect();
    names.sort();
    names.into_iter().map(|table| row(&Shown { table })).collect()
}

/// Returns the columns of a table, key columns first.
fn describe(engine: &Engine, table: &Name) -> Result<Vec<String>> {
    let table = engine.table_of_rows(&table.text)?;
    let rows = table.settings();
    let key = key_columns(rows).into_iter().zip(1_u64..);
    let key = key.map(|((name, column_type, order), position)| ShownColumn {
        column: name,
        column_type: type_name(column_type),
        key: Some(position),
        order: Some(if order == KeyOrder::Descending {
            "DESC"
        } else {
            "ASC"
        }),
    });
    let others = rows.columns.iter().map(|column| ShownColumn {
        column: &column.name,
        column_type: type_name(column.column_type),
        key: None,
        order: None,
    });
    Ok(key.chain(others).map(|column| row(&column)).collect())
}

/// Returns the statement that creates a table.
fn show_create_table(engine: &Engine, table: &Name) -> Result<Vec<String>> {
    let found = engine.wide_table(&table.text)?;
    let statement = create_table(&table.text, &found.table().spec(), found.settings());
    Ok(vec![row(&ShownStatement {
        table: &table.text,
        statement: &statement,
    })])
}

/// Row of `SHOW TABLES`.
#[derive(Serialize)]
struct Shown {
    table: String,
}

/// Row of `DESCRIBE`.
#[derive(Serialize)]
struct ShownColumn<'t> {
    column: &'t str,
    #[serde(rename = "type")]
    column_type: &'static str,
    /// Position in the key, starting at 1; `None` for other columns.
    key: Option<u64>,
    /// Order in the key; `None` for other columns.
    order: Option<&'static str>,
}

/// Row of `SHOW CREATE TABLE`.
#[derive(Serialize)]
struct ShownStatement<'t> {
    table: &'t str,
    statement: &'t str,
}

/// Returns a row as a JSON object, with the members in the order of the fields.
pub(super) fn row(row: &impl Serialize) -> String {
    serde_json::to_string(row).unwrap_or_default()
}
