//! Attributes are set and removed: rows first, memory when they are durable.

use std::collections::BTreeMap;

use bytes::Bytes;
use hashbrown::HashMap;
use tideline_backend::{Backend, RowChange, Stamp};
use tideline_key_codec::{catalog_key, catalog_partition};
use tideline_model::Ordinal;

use crate::attributes::{self, AttributeType, AttributeValue, Attributes};
use crate::catalog::Catalog;
use crate::edits::Edited;
use crate::state::State;
use crate::store::{Change, write_rows};
use crate::{CatalogError, Result};

/// Most timelines that are edited in one call: what bounds its memory.
pub const EDIT_TIMELINES_MAX: usize = 1_000;

/// What is set (`Some`) and removed (`None`), by key.
pub type AttributeChanges = BTreeMap<String, Option<AttributeValue>>;

/// An edit whose row is being written.
struct Pending {
    ordinal: Ordinal,
    edited: Edited,
    attributes: Attributes,
}

/// The types that an edit of several timelines gives to keys: those of its timelines are not counted before its end.
#[derive(Default)]
struct GivenTypes<'a>(HashMap<&'a str, (AttributeType, u32)>);

impl<'a> GivenTypes<'a> {
    fn check(&self, changes: &AttributeChanges) -> Result<()> {
        for (key, value) in changes {
            let given = value.as_ref().map(AttributeValue::kind);
            let known = self.0.get(key.as_str());
            if let Some(((has, timelines), given)) = known.zip(given)
                && *has != given
            {
                return Err(CatalogError::MixedAttribute {
                    key: key.clone(),
                    has: has.name(),
                    timelines: *timelines,
                    given: given.name(),
                });
            }
        }
        Ok(())
    }

    fn take(&mut self, changes: &'a AttributeChanges) {
        for (key, value) in changes {
            if let Some(value) = value {
                self.0.entry(key).or_insert((value.kind(), 0)).1 += 1;
            }
        }
    }
}

impl Catalog {
    /// Changes attributes of a visible timeline and returns all it has then; durable and visible on return.
    ///
    /// Keys that are not named stay. A value of another type than the key has on other timelines is refused. The row is
    /// written at once, so a timeline that was not yet saved is now. After a backend error the edit is not visible;
    /// whether it is after a restart depends on the error's kind. An edit that a removal overtakes fails as for an
    /// unknown timeline.
    pub fn set_attributes(
        &self,
        backend: &dyn Backend,
        ordinal: Ordinal,
        changes: &AttributeChanges,
        stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
    ) -> Result<Attributes> {
        let mut edited = self.set_attributes_of(backend, &[ordinal], changes, stamp)?;
        edited.pop().expect("one outcome for each timeline")
    }

    /// As [`set_attributes`](Self::set_attributes), of several timelines at once, at most [`EDIT_TIMELINES_MAX`] different
    /// ones; what became of each, in their order. A backend error is one of the whole call.
    pub fn set_attributes_of(
        &self,
        backend: &dyn Backend,
        ordinals: &[Ordinal],
        changes: &AttributeChanges,
        stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
    ) -> Result<Vec<Result<Attributes>>> {
        let edits: Vec<_> = ordinals.iter().map(|ordinal| (*ordinal, changes)).collect();
        self.edit(backend, &edits, stamp)
    }

    /// As [`set_attributes_of`](Self::set_attributes_of), with changes of its own for each timeline.
    pub fn set_attributes_each(
        &self,
        backend: &dyn Backend,
        edits: &[(Ordinal, AttributeChanges)],
        stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
    ) -> Result<Vec<Result<Attributes>>> {
        let edits: Vec<_> = edits
            .iter()
            .map(|(ordinal, changes)| (*ordinal, changes))
            .collect();
        self.edit(backend, &edits, stamp)
    }

    fn edit(
        &self,
        backend: &dyn Backend,
        edits: &[(Ordinal, &AttributeChanges)],
        stamp: &mut dyn FnMut() -> tideline_backend::Result<Stamp>,
    ) -> Result<Vec<Result<Attributes>>> {
        if edits.len() > EDIT_TIMELINES_MAX {
            return Err(CatalogError::OverLimit {
                what: "timelines of one edit",
                limit: EDIT_TIMELINES_MAX,
                actual: edits.len(),
            });
        }
        let _writing = self.writing.lock();
        let mut rows = Vec::with_capacity(edits.len());
        let mut given = GivenTypes::default();
        let pending: Vec<Result<Pending>> = {
            let mut state = self.state.write();
            state.removed_meanwhile.clear();
            let mut number = state.edits.newest();
            let mut begun = Vec::with_capacity(edits.len());
            for (ordinal, changes) in edits {
                let next = given.check(changes);
                let next = next.and_then(|()| self.begin(&mut state, *ordinal, number + 1, changes));
                begun.push(next.map(|(pending, row)| {
                    given.take(changes);
                    number += 1;
                    rows.push(row);
                    pending
                }));
            }
            begun
        };
        rows.sort_unstable_by(|a, b| (a.partition, &a.row.key).cmp(&(b.partition, &b.row.key)));
        let written = write_rows(backend, &rows, stamp);
        let mut state = self.state.write();
        let first = pending
            .iter()
            .flatten()
            .next()
            .map(|pending| pending.edited.number);
        let overtaken = first.is_some_and(|first| state.edits.newest() >= first);
        if let Some(last) = pending.iter().flatten().last() {
            state.edits.pass(last.edited.number);
        }
        let is_written = written.is_ok();
        let end = |pending: Result<Pending>| state.end(pending?, is_written, overtaken);
        let outcomes = pending.into_iter().map(end).collect();
        written.map(|()| outcomes)
    }

    /// Checks an edit and makes its row.
    fn begin(
        &self,
        state: &mut State,
        ordinal: Ordinal,
        number: u64,
        changes: &AttributeChanges,
    ) -> Result<(Pending, Change)> {
        if !state.visible.contains(ordinal.0) {
            return Err(CatalogError::UnknownTimeline(ordinal));
        }
        for (key, value) in changes {
            if let Some(value) = value {
                state.check_type(ordinal, key, value.kind())?;
            }
        }
        let mut row = state.row(ordinal);
        attributes::apply(&mut row.attributes, changes)?;
        row.edit = number;
        let id = state.id(ordinal);
        let value = row.encode(id);
        let attributes = row.attributes;
        let edited = state.edited(number, &attributes)?;
        state.edits.set_in_doubt(ordinal, number);
        let change = Change {
            ordinal,
            partition: catalog_partition(id),
            row: RowChange {
                key: Bytes::copy_from_slice(&catalog_key(self.table, id)),
                value: Some(value.into()),
            },
        };
        let pending = Pending {
            ordinal,
            edited,
            attributes,
        };
        Ok((pending, change))
    }
}

impl State {
    /// Makes an edit visible, if its row was written.
    fn end(&mut self, pending: Pending, is_written: bool, overtaken: bool) -> Result<Attributes> {
        let Pending {
            ordinal,
            mut edited,
            attributes,
        } = pending;
        if self.removed_meanwhile.contains(ordinal.0) {
            // What was just written is a row of before the removal: it stays in doubt until it is replaced.
            return Err(CatalogError::UnknownTimeline(ordinal));
        }
        if !is_written {
            self.set_unsaved(ordinal);
            return Ok(attributes);
        }
        if overtaken {
            // The removal of another timeline has taken the number: the row shall say a higher one.
            edited.number = self.edits.newest() + 1;
            self.set_unsaved(ordinal);
        } else {
            self.set_saved(ordinal);
        }
        self.edits.set(ordinal, edited);
        Ok(attributes)
    }
}
