//! Look-up of tables by name, restricted to a model.
//!
//! Tables of all models share one list, one form of settings and one scheduler. Requests for points resolve their table
//! with [`Engine::table`], requests for rows with [`Engine::wide_table`] and requests for messages with
//! [`Engine::feed_table`]; each refuses tables of other models.

use tideline_model::{TableId, TableModel};

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::tables::Table;

impl Engine {
    /// Returns a series table by name.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::OtherModel`] for a table of a model other than series, and a store error if the table
    /// does not exist.
    pub fn table(&self, name: &str) -> Result<Table> {
        self.table_with_model(name, TableModel::Series)
    }

    /// Returns a table by name, if it has the needed model.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::OtherModel`] for a table of another model, and a store error if the table does not exist.
    pub fn table_with_model(&self, name: &str, needed: TableModel) -> Result<Table> {
        let table = self.table_of_any_model(name)?;
        match table.spec().model {
            model if model == needed => Ok(table),
            model => Err(EngineError::OtherModel {
                table: table.name().clone(),
                model,
                needed,
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
