//! Settings of search indexes over rows: their checks, and the forms of the indexed columns.
//!
//! The form of a column in the index follows from its declared type and from the form in the settings.

use hashbrown::HashSet;
use tideline_key_codec::layout::KeyLayout;
use tideline_model::{ColumnType, SearchAnalyzer, SearchColumnSpec, SearchForm, SearchIndexSpec, WideSpec};
use tideline_search_index::rows::{RowColumn, RowForm, SHARDS_MAX};

use crate::attribute_analyzers::check_analyzer;
use crate::declared_columns::DeclaredColumns;
use crate::error::{EngineError, Result};
use crate::indexes::{INDEX_NAME_BYTES_MAX, check_tier};

/// Maximum number of columns of a search index.
const SEARCH_COLUMNS_MAX: usize = 1_000;

/// Checks the search indexes of new or altered settings. `before` holds the settings before the change; `None` for a
/// new table.
pub(crate) fn check_searches(wide: &WideSpec, before: Option<&WideSpec>, indexes_max: usize) -> Result<()> {
    let names: HashSet<&str> = wide
        .search_indexes
        .iter()
        .map(|index| index.name.as_str())
        .collect();
    if names.len() > indexes_max {
        return Err(EngineError::OverLimit {
            what: "number of search indexes",
            limit: indexes_max as u64,
            actual: names.len() as u64,
        });
    }
    let known = DeclaredColumns::new(wide)?;
    let known_before = before.map(DeclaredColumns::new).transpose()?;
    for index in &wide.search_indexes {
        if let Some(before) = &known_before {
            check_none_removed(index, before, &known)?;
        }
        if index.name.is_empty() || index.name.len() > INDEX_NAME_BYTES_MAX {
            return Err(EngineError::Invalid(format!(
                "the name of a search index has {} bytes; 1 to {INDEX_NAME_BYTES_MAX} are allowed",
                index.name.len()
            )));
        }
        check_tier("search index", &index.name, index.tier, wide)?;
        if index.columns.is_empty() {
            return Err(EngineError::Invalid(format!(
                "search index {:?} has no columns; list at least one",
                index.name
            )));
        }
        if index.columns.len() > SEARCH_COLUMNS_MAX {
            return Err(EngineError::OverLimit {
                what: "number of columns of a search index",
                limit: SEARCH_COLUMNS_MAX as u64,
                actual: index.columns.len() as u64,
            });
        }
        check_shards(known.layout(), index)?;
        columns_of(&known, &index.columns)
            .map_err(|error| EngineError::Invalid(format!("search index {:?}: {error}", index.name)))?;
        let mut listed = HashSet::new();
        for column in &index.columns {
            check_analyzer_of(column)?;
            if !listed.insert((&column.column, column.form)) {
                return Err(EngineError::Invalid(format!(
                    "search index {:?} lists the column {:?} twice as {}",
                    index.name,
                    column.column,
                    column.form.name()
                )));
            }
        }
    }
    Ok(())
}

/// Refuses the removal of a declared column that a search index has.
fn check_none_removed(
    index: &SearchIndexSpec,
    before: &DeclaredColumns,
    known: &DeclaredColumns,
) -> Result<()> {
    let mut columns = index.columns.iter().map(|column| &column.column);
    let is_removed = |name: &&String| known.column_type(name).is_none() && before.column_type(name).is_some();
    match columns.find(is_removed) {
        None => Ok(()),
        Some(name) => Err(EngineError::Invalid(format!(
            "search index {:?} has the column {name:?}; before the column is removed, drop the index, or replace it by an \
             index without the column",
            index.name
        ))),
    }
}

/// Checks the number of shards and the routing columns.
fn check_shards(layout: &KeyLayout, index: &SearchIndexSpec) -> Result<()> {
    let refuse = |reason: String| {
        Err(EngineError::Invalid(format!(
            "search index {:?}: {reason}",
            index.name
        )))
    };
    if index.shards == 0 {
        return refuse("shards is 0; it must be at least 1".to_owned());
    }
    if usize::from(index.shards) > SHARDS_MAX {
        return Err(EngineError::OverLimit {
            what: "number of shards of a search index",
            limit: SHARDS_MAX as u64,
            actual: index.shards.into(),
        });
    }
    match (index.shards, &index.routing[..]) {
        (1, []) => return Ok(()),
        (1, _) => {
            return refuse("routing needs shards: set `shards` to at least 2, or omit `routing`".to_owned());
        }
        (_, []) => return refuse("it has several shards; name columns of the key in `routing`".to_owned()),
        _ => {}
    }
    let mut listed = HashSet::new();
    for name in &index.routing {
        if layout.logical_number(name).is_err() {
            let known = layout.logical().iter().map(|column| column.name.as_str());
            return refuse(format!(
                "the routing column {name:?} is not a column of the key, so a row could change its shard; the key has {}",
                known.collect::<Vec<_>>().join(", ")
            ));
        }
        if !listed.insert(name) {
            return refuse(format!("routing lists the column {name:?} twice"));
        }
        let mut columns = index.columns.iter();
        if !columns.any(|column| column.column == *name && column.form != SearchForm::Text) {
            return refuse(format!(
                "the routing column {name:?} is not indexed, so no search could name its value; add it to `columns` as \
                 keyword, number, time or bool, or name other columns in `routing`"
            ));
        }
    }
    Ok(())
}

/// Completes the settings of a new index: the columns of the partition route its rows if it does not name others.
pub(super) fn with_routing(layout: &KeyLayout, index: SearchIndexSpec) -> SearchIndexSpec {
    if index.shards < 2 || !index.routing.is_empty() {
        return index;
    }
    let columns = layout.partition_columns().iter();
    SearchIndexSpec {
        routing: columns
            .map(|number| layout.logical()[*number].name.clone())
            .collect(),
        ..index
    }
}

/// Refuses a new index with a pattern instead of the name of a column.
///
/// # Errors
///
/// Returns [`EngineError::Invalid`] for a name with `*` or `?`.
pub(super) fn check_names(index: &SearchIndexSpec) -> Result<()> {
    let mut names = index.columns.iter().map(|column| &column.column);
    match names.find(|name| name.contains(['*', '?'])) {
        None => Ok(()),
        Some(name) => Err(EngineError::Invalid(format!(
            "search index {:?}: column {name:?} is a pattern; name one column, such as one that matches the \
             pattern",
            index.name
        ))),
    }
}

/// Checks the analyzer of a column.
fn check_analyzer_of(column: &SearchColumnSpec) -> Result<()> {
    match (column.form, column.analyzer) {
        (SearchForm::Text, analyzer) => check_analyzer("column", &column.column, analyzer),
        (_, SearchAnalyzer::Words) => Ok(()),
        _ => Err(EngineError::Invalid(format!(
            "column {:?}: only a column indexed as text has an analyzer",
            column.column
        ))),
    }
}

/// Returns the indexed columns with the forms that follow from their types.
///
/// # Errors
///
/// Returns [`EngineError::Invalid`] for a column without a declared type, or with a type that cannot have the form in
/// the settings.
pub(super) fn columns_of(known: &DeclaredColumns, columns: &[SearchColumnSpec]) -> Result<Vec<RowColumn>> {
    let mut compiled = Vec::with_capacity(columns.len());
    for column in columns {
        let name = &column.column;
        let Some(declared) = known.column_type(name) else {
            let reason = match known.layout().computed_from(name) {
                Some(of) => format!(
                    "column {name:?} of the key is computed, so it cannot be indexed; index the columns from which it \
                     is computed: {}",
                    of.join(", ")
                ),
                None => format!(
                    "column {name:?} is neither declared nor part of the key; declare it with its type first"
                ),
            };
            return Err(EngineError::Invalid(reason));
        };
        let form = form_of(declared, column).ok_or_else(|| {
            EngineError::Invalid(format!(
                "column {name:?} has the type {declared}, which cannot be indexed as {}; possible are {}",
                column.form.name(),
                forms_of(declared)
            ))
        })?;
        compiled.push(RowColumn {
            name: name.clone(),
            form,
        });
    }
    Ok(compiled)
}

/// Returns the form of the values of a type in the index; `None` if the type cannot have the form in the settings.
fn form_of(declared: ColumnType, column: &SearchColumnSpec) -> Option<RowForm> {
    use ColumnType as Type;
    Some(match (column.form, declared) {
        (SearchForm::Keyword, Type::String | Type::Decimal | Type::Binary | Type::Json) => RowForm::Keyword,
        (SearchForm::Text, Type::String | Type::Json) => RowForm::Text(column.analyzer),
        (SearchForm::Number, Type::I64) | (SearchForm::Time, Type::Timestamp) => RowForm::Signed,
        (SearchForm::Number, Type::U64) => RowForm::Unsigned,
        (SearchForm::Number, Type::F64 | Type::Decimal | Type::Json) => RowForm::Float,
        (SearchForm::Bool, Type::Bool | Type::Json) => RowForm::Boolean,
        (SearchForm::Geo, Type::Json) => RowForm::Geo,
        _ => return None,
    })
}

fn forms_of(declared: ColumnType) -> String {
    let forms = SearchForm::ALL.into_iter().filter(|form| {
        let column = SearchColumnSpec {
            column: String::new(),
            form: *form,
            analyzer: SearchAnalyzer::default(),
        };
        form_of(declared, &column).is_some()
    });
    forms.map(SearchForm::name).collect::<Vec<_>>().join(", ")
}
