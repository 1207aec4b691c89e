//! Table models that the engine serves.
//!
//! Tables of all models share one list, one form of settings and one scheduler. Requests for points and timelines
//! resolve their table with [`Engine::table`], which refuses tables of models other than series.

use tideline_model::{TableId, TableModel, TableName};

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::tables::Table;

/// Models that have a store in [`Engine`].
const SERVED: &[TableModel] = &[TableModel::Series, TableModel::Wide];

/// Refuses a table whose model has no store in this build.
pub(crate) fn check_served(table: &TableName, model: TableModel) -> Result<()> {
    match SERVED.contains(&model) {
        true => Ok(()),
        false => Err(EngineError::ModelNotServed {
            table: table.clone(),
            model,
            served: SERVED,
        }),
    }
}

impl Engine {
    /// Returns the models for which tables can be created.
    pub fn models(&self) -> &'static [TableModel] {
        SERVED
    }

    /// Returns a series table by name.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::OtherModel`] for a table of a model other than series, and a store error if the table
    /// does not exist.
    pub fn table(&self, name: &str) -> Result<Table> {
        let table = self.table_of_any_model(name)?;
        match table.spec().model {
            TableModel::Series => Ok(table),
            model => Err(EngineError::OtherModel {
                table: table.name().clone(),
                model,
                needed: TableModel::Series,
            }),
        }
    }

    /// Returns a table of any model by name; for settings, statistics and removal.
    ///
    /// # Errors
    ///
    /// Returns a store error if the table does not exist.
    pub fn table_of_any_model(&self, name: &str) -> Result<Table> {
        let points = self.store().table(name)?;
        Ok(self.joined(points))
    }

    /// Returns the tables of all models, sorted by name.
    pub fn tables(&self) -> Vec<Table> {
        let tables = self.store().tables().into_iter();
        tables.map(|points| self.joined(points)).collect()
    }

    /// Returns a table by its id; `None` if it was dropped.
    pub(crate) fn table_of(&self, id: TableId) -> Option<Table> {
        self.tables().into_iter().find(|table| table.points().id() == id)
    }

    /// Returns the series tables, sorted by name.
    pub fn series_tables(&self) -> Vec<Table> {
        let mut tables = self.tables();
        tables.retain(|table| table.spec().model == TableModel::Series);
        tables
    }
}
