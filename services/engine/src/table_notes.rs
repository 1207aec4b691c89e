//! Notes of the existing tables, from which change streams report drops.
//!
//! While changes are kept, each table has two state rows: one with its name and id, and one of another owner that also
//! has its model. They are deleted after the drop of their table and before another table can get the name, so their
//! deletions in the journal separate the changes of the two tables. A deletion that a crash or an error has prevented
//! is made up at the next start, or before the next table is created.
//!
//! A reader gets the drops from the rows of one owner: from those with the models if its principal may use only some
//! models, otherwise from the others, which earlier builds have written too. Earlier builds ignore the rows with the
//! models.

use std::collections::BTreeSet;

use bytes::Bytes;
use tideline_key_codec::tuple::KeyValue;
use tideline_model::TableModel;
use tideline_series_store::StoreError;
use tideline_wide_table::{Effect, EntryChange, Mutation, changes_of};

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::state_table::{STATE_ROWS_MAX, STATE_TABLE, StateRow};

/// Owner of the state rows whose part is the id of the table.
const OWNER: &str = "tables";
/// Owner of the state rows whose part is the id and the model of the table.
const OWNER_WITH_MODELS: &str = "table-models";

impl Engine {
    /// Notes all tables, so that their drops are reported as changes from now on. Changes must be kept already.
    /// Repeating the call changes nothing.
    ///
    /// # Errors
    ///
    /// The errors of [`put_state`](Self::put_state) and [`state_rows`](Self::state_rows).
    pub fn note_tables(&self) -> Result<()> {
        // Creates the table of the notes. Its creation takes the lock of the list of tables.
        self.put_state(OWNER, &[])?;
        let _list = self.table_list.lock();
        self.note_changed_tables()
    }

    /// Notes the tables that were created or dropped since the last call, if changes are kept. The caller holds the lock
    /// of the list of tables.
    pub(crate) fn note_changed_tables(&self) -> Result<()> {
        if self.system_table(STATE_TABLE)?.is_none() || self.kept_changes()?.from.is_none() {
            return Ok(());
        }
        let (mut present, mut with_models) = (BTreeSet::new(), BTreeSet::new());
        for table in self.store.tables() {
            let spec = table.spec();
            // A table of users is dropped with its feed table.
            if !spec.is_system && spec.users_of.is_none() {
                let (name, id) = (table.name().to_string(), table.id());
                with_models.insert((name.clone(), format!("{id} {}", spec.model)));
                present.insert((name, id.to_string()));
            }
        }
        self.note(OWNER, &present)?;
        self.note(OWNER_WITH_MODELS, &with_models)
    }

    /// Makes the state rows of an owner equal to `present`: the names and parts.
    fn note(&self, owner: &str, present: &BTreeSet<(String, String)>) -> Result<()> {
        let noted = self.state_rows(owner)?.into_iter();
        let noted: BTreeSet<(String, String)> = noted.map(|row| (row.name, row.part)).collect();
        let row = |(name, part): &(String, String), value: Option<&str>| StateRow {
            name: name.clone(),
            part: part.clone(),
            value: value.map(str::to_owned),
        };
        let mut rows: Vec<StateRow> = noted.difference(present).map(|note| row(note, None)).collect();
        rows.extend(present.difference(&noted).map(|note| row(note, Some("table"))));
        for rows in rows.chunks(STATE_ROWS_MAX) {
            self.put_state(owner, rows)?;
        }
        Ok(())
    }

    /// Returns the names of the tables whose drop a journal entry of a wide table notes; `None` in place of each table
    /// that the principal of this handle may not use.
    ///
    /// # Errors
    ///
    /// [`EngineError::Store`] if the entry is damaged.
    pub(crate) fn dropped_in(&self, entry: &Bytes) -> Result<Vec<Option<String>>> {
        let damaged = |reason: &dyn std::fmt::Display| {
            EngineError::Store(StoreError::StoredRow {
                what: "journal entry",
                reason: reason.to_string(),
            })
        };
        let (table, changes) = changes_of(entry).map_err(|error| damaged(&error))?;
        let state = self.system_table(STATE_TABLE)?;
        let Some(state) = state.filter(|state| state.table().points().id() == table) else {
            return Ok(Vec::new());
        };
        let own_owner = match self.has_all_models() {
            true => OWNER,
            false => OWNER_WITH_MODELS,
        };
        let mut names = Vec::new();
        for change in changes {
            let EntryChange::Row { key, mutation } = change else {
                continue;
            };
            let key = state.layout().decode(&key).map_err(|error| damaged(&error))?;
            let [
                KeyValue::String(owner),
                KeyValue::String(name),
                KeyValue::String(part),
            ] = key.as_slice()
            else {
                continue;
            };
            if owner != own_owner {
                continue;
            }
            let mutation = Mutation::decode(&mutation).map_err(|error| damaged(&error))?;
            if mutation.effect == Effect::Delete {
                let has_model = |model: &TableModel| match part.split_once(' ') {
                    Some((_, of_table)) => of_table == model.name(),
                    // The principal may use all models.
                    None => true,
                };
                let model = TableModel::ALL.into_iter().find(has_model);
                let may_know = model.is_some_and(|model| self.may_know(name, model));
                names.push(may_know.then(|| name.to_string()));
            }
        }
        Ok(names)
    }
}
