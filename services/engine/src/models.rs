//! Table models that the engine serves.
//!
//! Tables of all models have one list, one set of settings and one place for their jobs. Requests for points and timelines
//! resolve their table by [`Engine::table`], which refuses tables of other models.

use tideline_model::{TableModel, TableName};

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::tables::Table;

/// Models whose tables have a store in [`Engine`].
const SERVED: &[TableModel] = &[TableModel::Series];

/// Refuses a table of a model that has no store here.
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
    /// Models of which tables can be created here.
    pub fn models(&self) -> &'static [TableModel] {
        SERVED
    }

    /// A series table by name.
    ///
    /// # Errors
    ///
    /// [`EngineError::OtherModel`] for a table of another model.
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

    /// A table by name, whatever its model: for its settings, its statistics and its removal.
    pub fn table_of_any_model(&self, name: &str) -> Result<Table> {
        let points = self.store().table(name)?;
        Ok(self.joined(points))
    }

    /// Tables of all models, by name.
    pub fn tables(&self) -> Vec<Table> {
        let tables = self.store().tables().into_iter();
        tables.map(|points| self.joined(points)).collect()
    }

    /// Series tables, by name.
    pub fn series_tables(&self) -> Vec<Table> {
        let mut tables = self.tables();
        tables.retain(|table| table.spec().model == TableModel::Series);
        tables
    }
}
