//! `CREATE INDEX`, `DROP INDEX` and `SHOW INDEX`.
//!
//! After its creation, an index is built by a job. Statements use the index once it is completely built.

use serde::Serialize;
use tideline_engine::model::wide::{IndexState, KeySource};
use tideline_engine::model::{ColumnType, IndexCover, IndexScope, IndexSpec};
use tideline_engine::{Engine, EngineError, ErrorKind, WideTable};

use super::{TableChange, row};
use crate::definition::key_column_text;
use crate::error::{Result, SqlError};
use crate::statement::{CreateIndex, Name};

/// Creates an index.
pub(super) fn create(engine: &Engine, create: CreateIndex) -> Result<TableChange> {
    let table = engine.wide_table(&create.table.text)?;
    let mut key = create.key;
    for column in &mut key {
        set_types(&table, &column.name, &mut column.source)
            .map_err(|reason| SqlError::invalid(create.index.at, reason))?;
    }
    let index = IndexSpec {
        id: 0,
        name: create.index.text,
        key,
        covers: create.covers,
        scope: create.scope,
        allow_rising_key: create.allow_rising_key,
        tier: create.tier,
        state: IndexState::Ready,
    };
    match engine.create_index(&create.table.text, index) {
        Ok(_) => Ok(TableChange::Created),
        Err(EngineError::IndexExists { .. }) if create.if_not_exists => Ok(TableChange::Exists),
        Err(error) => Err(error.into()),
    }
}

/// Sets the types of the columns of an index to the types in the table.
fn set_types(table: &WideTable, name: &str, source: &mut KeySource) -> std::result::Result<(), String> {
    let type_of = |name: &str| -> std::result::Result<ColumnType, String> {
        table.type_of(name).ok_or_else(|| match table.column_type(name) {
            Some(_) => format!(
                "column {name:?} is declared by a pattern, and the columns of an index are declared by their names; declare \
                 it by ALTER TABLE … ADD"
            ),
            None => match table.layout().computed_from(name) {
                Some(of) => format!(
                    "column {name:?} of the key is computed; name the columns from which it is computed: {}",
                    of.join(", ")
                ),
                None => format!("column {name:?} is neither declared nor part of the key; declare it first"),
            },
        })
    };
    match source {
        KeySource::Type(column_type) => *column_type = type_of(name)?,
        KeySource::Reverse(reverse) => reverse.of.column_type = type_of(&reverse.of.name)?,
        KeySource::Splice(splice) => {
            for part in &mut splice.columns {
                part.column_type = type_of(&part.name)?;
            }
        }
        KeySource::Generated(_) | KeySource::HashPrefix(_) | KeySource::Bucket(_) => {}
    }
    Ok(())
}

/// Drops an index.
pub(super) fn drop_index(
    engine: &Engine,
    index: &Name,
    table: &Name,
    if_exists: bool,
) -> Result<TableChange> {
    match engine.drop_index(&table.text, &index.text) {
        Ok(()) => Ok(TableChange::Dropped),
        Err(error) if if_exists && error.kind() == ErrorKind::NotFound => Ok(TableChange::Missing),
        Err(error) => Err(error.into()),
    }
}

/// Returns the indexes of a table.
pub(super) fn show(engine: &Engine, table: &Name) -> Result<Vec<String>> {
    let table = engine.table_of_rows(&table.text)?;
    let shown = |index: &IndexSpec| {
        row(&ShownIndex {
            index: &index.name,
            key: index.key.iter().map(key_column_text).collect(),
            includes: match &index.covers {
                IndexCover::All => None,
                IndexCover::Columns(names) => Some(names),
            },
            scope: match index.scope {
                IndexScope::Global => "global",
                IndexScope::Local => "local",
            },
            tier: index.tier.name(),
            status: match index.is_ready() {
                true => "ready",
                false => "building",
            },
        })
    };
    Ok(table.settings().indexes.iter().map(shown).collect())
}

/// Row of `SHOW INDEX`.
#[derive(Serialize)]
struct ShownIndex<'t> {
    index: &'t str,
    key: Vec<String>,
    /// Covered columns; `null` = all.
    includes: Option<&'t Vec<String>>,
    scope: &'static str,
    /// Tiers of the parts whose rows have entries.
    tier: &'static str,
    status: &'static str,
}
