//! Columns that the settings of a wide table declare: the columns of the key, columns by name, and patterns of names.
//!
//! A declared name has precedence over patterns. If several patterns match, the first one applies.

use hashbrown::HashMap;
use tideline_key_codec::layout::KeyLayout;
use tideline_model::{ColumnSpec, ColumnType, WideSpec};
use tideline_pattern::Glob;
use tideline_wide_table::ColumnName;

use crate::error::{EngineError, Result};

/// Compiled declarations of a table.
#[derive(Debug)]
pub(crate) struct DeclaredColumns {
    layout: KeyLayout,
    /// Number and type of each declared column. The number is 0 for columns that rows store by name.
    declared: HashMap<String, (u32, ColumnType)>,
    /// Names and types of the declared columns by number.
    names: HashMap<u32, (String, ColumnType)>,
    /// Patterns in declaration order.
    patterns: Vec<(Glob, ColumnType)>,
}

impl DeclaredColumns {
    pub(crate) fn new(wide: &WideSpec) -> Result<Self> {
        let layout = KeyLayout::new(&wide.key, wide.allow_rising_key);
        let (patterns, declared): (Vec<&ColumnSpec>, Vec<&ColumnSpec>) =
            wide.columns.iter().partition(|column| column.is_pattern());
        let names = declared
            .iter()
            .map(|column| (column.number, (column.name.clone(), column.column_type)));
        let numbers = declared
            .iter()
            .map(|column| (column.name.clone(), (column.number, column.column_type)));
        Ok(Self {
            layout: layout.map_err(|error| EngineError::Invalid(error.to_string()))?,
            names: names.collect(),
            declared: numbers.collect(),
            patterns: patterns
                .iter()
                .map(|column| (Glob::new(column.name.clone()), column.column_type))
                .collect(),
        })
    }

    /// Returns the layout of the key.
    pub(crate) fn layout(&self) -> &KeyLayout {
        &self.layout
    }

    /// Returns the type of a key column or of a column that is declared by name; `None` for other columns.
    pub(crate) fn type_of(&self, name: &str) -> Option<ColumnType> {
        let key = self.layout.logical().iter().find(|column| column.name == name);
        match key {
            Some(key) => Some(key.kind.column_type()),
            None => self.declared.get(name).map(|(_, column_type)| *column_type),
        }
    }

    /// Returns the type of a key column, or of a column that is declared by name or by a pattern; `None` for other
    /// columns.
    pub(crate) fn column_type(&self, name: &str) -> Option<ColumnType> {
        self.type_of(name).or_else(|| self.column(name).1)
    }

    /// Returns the stored name of a column and its declared type; the type of an undeclared column is `None`.
    pub(crate) fn column(&self, name: &str) -> (ColumnName<'static>, Option<ColumnType>) {
        match self.declared.get(name) {
            Some((0, column_type)) => {
                return (ColumnName::Named(name.to_owned().into()), Some(*column_type));
            }
            Some((number, column_type)) => return (ColumnName::Declared(*number), Some(*column_type)),
            None => {}
        }
        (
            ColumnName::Named(name.to_owned().into()),
            self.type_by_pattern(name),
        )
    }

    fn type_by_pattern(&self, name: &str) -> Option<ColumnType> {
        let mut patterns = self.patterns.iter();
        let pattern = patterns.find(|(pattern, _)| pattern.matches(name.as_bytes()));
        pattern.map(|(_, column_type)| *column_type)
    }

    /// Returns the names and numbers of the declared columns that rows store by number.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, u32)> {
        self.names
            .iter()
            .filter(|(number, _)| **number > 0)
            .map(|(number, (name, _))| (name.as_str(), *number))
    }

    /// Returns the name of a stored column; `None` for a declared column that was removed from the settings.
    pub(crate) fn name_of<'n>(&'n self, column: &'n ColumnName<'_>) -> Option<&'n str> {
        match column {
            ColumnName::Declared(number) => self.names.get(number).map(|(name, _)| name.as_str()),
            ColumnName::Named(name) => Some(name),
        }
    }

    /// Returns the name of a stored column and its declared type. `None` for a declared column that was removed from
    /// the settings.
    pub(crate) fn declaration_of<'n>(
        &'n self,
        column: &'n ColumnName<'_>,
    ) -> Option<(&'n str, Option<ColumnType>)> {
        match column {
            ColumnName::Declared(number) => {
                let (name, column_type) = self.names.get(number)?;
                Some((name, Some(*column_type)))
            }
            ColumnName::Named(name) => {
                let declared = self.declared.get(&**name).map(|(_, column_type)| *column_type);
                Some((name, declared.or_else(|| self.type_by_pattern(name))))
            }
        }
    }
}
