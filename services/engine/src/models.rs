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
use tideline_model::{TableId, TableModel, TableName};

use crate::engine::Engine;
use crate::error::{EngineError, ErrorKind, Result};
use crate::tables::Table;

/// Maximum number of characters of a name of a request that an error contains.
const NAME_CHARS_MAX: usize = 80;

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
    /// it exists. If the table does not exist, returns a store error, or [`EngineError::NoUsableTable`] to a principal
    /// that may use only some models. The latter error is also that of a table of another model.
    pub fn table_of_any_model(&self, name: &str) -> Result<Table> {
        let found = self.known_table(name);
        let Some(access) = &self.access else {
            return found;
        };
        let no_usable_table = || EngineError::NoUsableTable(name.chars().take(NAME_CHARS_MAX).collect());
        match found {
            Ok(table) if is_usable(access, &table) => Ok(restricted(access, table)),
            Ok(table) => {
                let owner = table.spec().users_of.clone();
                let has_owner = access.check_table(owner.as_ref().map_or(name, TableName::as_str));
                // A scope with the feed table alone does not include a table of this name that does not exist.
                Err(match has_owner.and_then(|()| access.check_table(name)) {
                    Ok(()) => no_usable_table(),
                    // The same error as for a table that does not exist.
                    Err(_) => access.denied(name).into(),
                })
            }
            Err(error) => {
                access.check_table(name)?;
                Err(match error.kind() {
                    ErrorKind::NotFound if !self.has_all_models() => no_usable_table(),
                    _ => error,
                })
            }
        }
    }

    /// Returns the feed table to which a table of users belongs; `None` for all other names. Checks no access.
    pub fn owner_of_users(&self, name: &str) -> Option<TableName> {
        let table = self.store().table(name).ok()?;
        table.spec().users_of.clone()
    }

    /// Returns the tables of all models that the principal of this handle may use, sorted by name, without those of the
    /// server. A handle of the server itself returns all.
    pub fn tables(&self) -> Vec<Table> {
        let tables = self.known_tables();
        let Some(access) = &self.access else {
            return tables;
        };
        let users = tables.into_iter().filter(|table| !table.spec().is_system);
        let allowed = users.filter(|table| is_usable(access, table));
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

    /// Checks that the tenant of the principal of this handle may read. A write that returns stored rows reads too.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::OverBudget`] if the budget of bytes read is used up.
    pub fn check_tenant_reads(&self) -> Result<()> {
        match self.tenant() {
            Some(tenant) => Ok(tenant.check_reads(self.clock.monotonic())?),
            None => Ok(()),
        }
    }

    /// Returns the tenant for which the requests of this handle act.
    pub(crate) fn tenant(&self) -> Option<&Tenant> {
        let access = self.access.as_ref()?;
        access.principal().tenant().map(|tenant| &**tenant)
    }

    /// Checks that the principal of this handle may change tables, and in particular an existing table of this name. The
    /// users of a feed table belong to that table.
    pub(crate) fn check_operates(&self, name: &str, model: TableModel) -> Result<()> {
        let Some(access) = &self.access else {
            return Ok(());
        };
        let access = access.with_action(Action::Operate)?;
        match self.owner_of_users(name) {
            Some(owner) if access.allows(owner.as_str(), TableModel::Feed) => Ok(()),
            Some(_) => Err(access.denied(name).into()),
            None => Ok(access.check(name, model)?),
        }
    }

    /// Checks that the principal of this handle may create a table of this name.
    pub(crate) fn check_creates(&self, name: &TableName, model: TableModel) -> Result<()> {
        if let Some(access) = &self.access {
            access.with_action(Action::Operate)?.check(name.as_str(), model)?;
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
        is_usable(access, &table).then(|| restricted(access, table))
    }

    /// Returns true if the principal of this handle may use tables of all models.
    pub fn has_all_models(&self) -> bool {
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

/// Returns true if a principal may use a table. The users of a feed table belong to that table.
fn is_usable(access: &Access, table: &Table) -> bool {
    let spec = table.spec();
    match &spec.users_of {
        Some(owner) => access.allows(owner.as_str(), TableModel::Feed),
        None => access.allows(table.name().as_str(), spec.model),
    }
}
