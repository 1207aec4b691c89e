//! Look-up of tables by name, restricted to a model and to the access of the handle.
//!
//! Tables of all models share one list, one form of settings and one scheduler. Requests for points resolve their table
//! with [`Engine::table`], requests for rows with [`Engine::wide_table`] and requests for messages with
//! [`Engine::feed_table`]; each refuses tables of other models.
//!
//! A handle with an access refuses tables that its principal may not use, and restricts tables to the timelines that
//! the principal may use. Functions of the engine that look up tables for their own work, such as the users of a feed
//! table, call `known_table` and its siblings, which check nothing.

use tideline_access::{Access, Action, Tenant};
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
    /// Returns [`EngineError::Denied`] if the principal of this handle may not use a table of this name, whether or not
    /// it exists, and a store error if the table does not exist.
    pub fn table_of_any_model(&self, name: &str) -> Result<Table> {
        let found = self.known_table(name);
        let Some(access) = &self.access else {
            return found;
        };
        match &found {
            Ok(table) => check(access, table)?,
            Err(_) => access.check_table(name)?,
        }
        found.map(|table| restricted(access, table))
    }

    /// Returns the tables of all models that the principal of this handle may use, sorted by name, without those of the
    /// server. A handle of the server itself returns all.
    pub fn tables(&self) -> Vec<Table> {
        let tables = self.known_tables();
        let Some(access) = &self.access else {
            return tables;
        };
        let users = tables.into_iter().filter(|table| !table.spec().is_system);
        let allowed = users.filter(|table| check(access, table).is_ok());
        allowed.map(|table| restricted(access, table)).collect()
    }

    /// Checks that the principal of this handle may read, regardless of the action of the handle. A write that returns
    /// the previous row needs both actions.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::Denied`] if no role of the principal allows it.
    pub fn check_reads(&self) -> Result<()> {
        if let Some(access) = &self.access {
            access.with_action(Action::Read)?;
        }
        Ok(())
    }

    /// Charges the tenant of the principal of this handle for written points, rows or messages.
    pub(crate) fn charge_tenant(&self, count: usize) {
        if let Some(tenant) = self.tenant() {
            tenant.charge_points(count as u64, self.clock.monotonic());
        }
    }

    /// Charges the tenant of the principal of this handle for the stored bytes that were read.
    pub fn charge_tenant_read(&self, bytes: u64) {
        if let Some(tenant) = self.tenant() {
            tenant.charge_read(bytes, self.clock.monotonic());
        }
    }

    /// Returns the tenant for which the requests of this handle act.
    pub(crate) fn tenant(&self) -> Option<&Tenant> {
        let access = self.access.as_ref()?;
        access.principal().tenant().map(|tenant| &**tenant)
    }

    /// Checks that the principal of this handle may change tables, and in particular the table of this name.
    pub(crate) fn check_operates(&self, table: &str, model: TableModel) -> Result<()> {
        if let Some(access) = &self.access {
            access.with_action(Action::Operate)?.check(table, model)?;
        }
        Ok(())
    }

    /// Returns a table by name without a check of the access.
    pub(crate) fn known_table(&self, name: &str) -> Result<Table> {
        let points = self.store().table(name)?;
        Ok(self.joined(points))
    }

    /// Returns all tables, sorted by name, without a check of the access.
    pub(crate) fn known_tables(&self) -> Vec<Table> {
        let tables = self.store().tables().into_iter();
        tables.map(|points| self.joined(points)).collect()
    }

    /// Returns a table by its id, without a check of the access; `None` if it was dropped.
    pub(crate) fn table_of(&self, id: TableId) -> Option<Table> {
        let tables = self.known_tables();
        tables.into_iter().find(|table| table.points().id() == id)
    }

    /// Returns a table by its id like [`tables`](Self::tables); `None` if it was dropped, belongs to the server, or the
    /// principal of this handle may not use it.
    pub(crate) fn usable_table_of(&self, id: TableId) -> Option<Table> {
        let table = self.table_of(id).filter(|table| !table.spec().is_system)?;
        let Some(access) = &self.access else {
            return Some(table);
        };
        check(access, &table).ok()?;
        Some(restricted(access, table))
    }

    /// Returns true if the principal of this handle may use tables of all models.
    pub(crate) fn has_all_models(&self) -> bool {
        let access = self.access.as_ref();
        access.is_none_or(|access| access.principal().scope().models().is_empty())
    }

    /// Returns true if the principal of this handle may know a dropped table.
    pub(crate) fn may_know(&self, table: &str, model: TableModel) -> bool {
        let access = self.access.as_ref();
        access.is_none_or(|access| access.allows(table, model))
    }

    /// Returns the series tables, sorted by name.
    pub fn series_tables(&self) -> Vec<Table> {
        let mut tables = self.tables();
        tables.retain(|table| table.spec().model == TableModel::Series);
        tables
    }
}

/// Restricts a table to the timelines that the principal may use.
fn restricted(access: &Access, table: Table) -> Table {
    match access.condition() {
        None => table,
        Some(condition) => table.restricted(condition),
    }
}

/// Checks that a principal may use a table. The users of a feed table belong to that table.
fn check(access: &Access, table: &Table) -> Result<()> {
    let spec = table.spec();
    let name = table.name().as_str();
    let is_allowed = match &spec.users_of {
        Some(owner) => access.allows(owner.as_str(), TableModel::Feed),
        None => access.allows(name, spec.model),
    };
    match is_allowed {
        true => Ok(()),
        // The same error as for a table that does not exist.
        false => Err(access.denied(name).into()),
    }
}
