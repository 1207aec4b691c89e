//! Attributes are set and removed: in the journal first, then in memory, and in rows before the journal forgets them.
//!
//! Edits of a table are made one call after the other. An edit carries all attributes that its timeline has by it, and the
//! number of the edit that they were made from: the log refuses it if the timeline was removed meanwhile, or has come
//! back.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use tideline_log::Refusal;
use tideline_model::{Ordinal, TimelineId};

use crate::attributes::{self, AttributeType, AttributeValue, Attributes};
use crate::catalog::Catalog;
use crate::change::{Changed, Commit, EntryRows, RowKind};
use crate::edits::Edited;
use crate::packed::Packed;
use crate::row::Row;
use crate::state::State;
use crate::{CatalogError, Result};

/// Most timelines that are edited in one call: what bounds its memory.
pub const EDIT_TIMELINES_MAX: usize = 1_000;

/// What is set (`Some`) and removed (`None`), by key.
pub type AttributeChanges = BTreeMap<String, Option<AttributeValue>>;

/// An edit on its way through the log.
#[derive(Debug, Clone)]
pub(crate) struct Edit {
    ordinal: Ordinal,
    /// The number of the timeline's edit that this one was made from.
    from: u64,
    number: u64,
    attributes: Packed,
}

/// The first edits of a call that fit into one entry.
struct Batch {
    rows: EntryRows,
    edits: Vec<Edit>,
    /// Outcome of each edit of the call that is in the batch or was refused.
    outcomes: Vec<Result<Attributes>>,
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
    /// Keys that are not named stay. A value of another type than the key has on other timelines is refused.
    ///
    /// # Errors
    ///
    /// Those of the log: then the edit is not visible, unless its error says that it was written; whether it is after a
    /// restart depends on the error.
    pub fn set_attributes(
        self: &Arc<Self>,
        ordinal: Ordinal,
        changes: &AttributeChanges,
        commit: &Commit<'_>,
    ) -> Result<Attributes> {
        let mut edited = self.edit(&[(ordinal, changes)], commit)?;
        edited.pop().expect("one outcome for each timeline")
    }

    /// As [`set_attributes`](Self::set_attributes), of several timelines at once, at most [`EDIT_TIMELINES_MAX`] different
    /// ones; what became of each, in their order. An error of the log is one of the whole call.
    pub fn set_attributes_of(
        self: &Arc<Self>,
        ordinals: &[Ordinal],
        changes: &AttributeChanges,
        commit: &Commit<'_>,
    ) -> Result<Vec<Result<Attributes>>> {
        let edits: Vec<_> = ordinals.iter().map(|ordinal| (*ordinal, changes)).collect();
        self.edit(&edits, commit)
    }

    /// As [`set_attributes_of`](Self::set_attributes_of), with changes of its own for each timeline.
    pub fn set_attributes_each(
        self: &Arc<Self>,
        edits: &[(Ordinal, AttributeChanges)],
        commit: &Commit<'_>,
    ) -> Result<Vec<Result<Attributes>>> {
        let edits: Vec<_> = edits
            .iter()
            .map(|(ordinal, changes)| (*ordinal, changes))
            .collect();
        self.edit(&edits, commit)
    }

    fn edit(
        self: &Arc<Self>,
        edits: &[(Ordinal, &AttributeChanges)],
        commit: &Commit<'_>,
    ) -> Result<Vec<Result<Attributes>>> {
        if edits.len() > EDIT_TIMELINES_MAX {
            return Err(CatalogError::OverLimit {
                what: "timelines of one edit",
                limit: EDIT_TIMELINES_MAX,
                actual: edits.len(),
            });
        }
        let _turn = self.editing.lock();
        let mut outcomes = Vec::with_capacity(edits.len());
        while outcomes.len() < edits.len() {
            let Batch {
                rows,
                edits: made,
                outcomes: more,
            } = self.prepare(&edits[outcomes.len()..]);
            if !made.is_empty() {
                let committed = self.commit(rows, Changed::Attributes(made.clone()), commit);
                if let Err(failed) = committed {
                    if !failed.is_applied {
                        self.state.write().fail(&made, failed.error.is_not_written());
                    }
                    if failed.is_outdated() {
                        continue;
                    }
                    return Err(failed.into());
                }
            }
            outcomes.extend(more);
        }
        Ok(outcomes)
    }

    /// Checks edits and makes their rows, as many as fit into one entry.
    fn prepare(&self, edits: &[(Ordinal, &AttributeChanges)]) -> Batch {
        let mut state = self.state.write();
        let mut number = state.edits.newest();
        let mut given = GivenTypes::default();
        let mut batch = Batch {
            rows: EntryRows::new(self.table),
            edits: Vec::with_capacity(edits.len()),
            outcomes: Vec::with_capacity(edits.len()),
        };
        for (ordinal, changes) in edits {
            if batch.rows.is_full() {
                break;
            }
            let checked = given.check(changes);
            let made = checked.and_then(|()| state.make_edit(*ordinal, number + 1, changes, &mut batch.rows));
            batch.outcomes.push(made.map(|(edit, attributes)| {
                given.take(changes);
                number += 1;
                batch.edits.push(edit);
                attributes
            }));
        }
        batch
    }

    /// Refuses edits of timelines that are no longer what the edits were made from.
    pub(crate) fn check_edits(&self, edits: &[Edit]) -> std::result::Result<(), Refusal> {
        let state = self.state.read();
        let is_current = |edit: &Edit| {
            state.visible.contains(edit.ordinal.0) && state.edits.number_of(edit.ordinal) == edit.from
        };
        match edits.iter().all(is_current) {
            true => Ok(()),
            false => Err(Refusal::Outdated),
        }
    }

    /// Makes edits visible that are in the journal.
    pub(crate) fn apply_edits(&self, edits: Vec<Edit>) {
        let mut state = self.state.write();
        let first = edits.first().map(|edit| edit.number);
        let is_overtaken = first.is_some_and(|first| state.edits.newest() >= first);
        if let Some(last) = edits.last() {
            state.edits.pass(last.number);
        }
        for edit in edits {
            let Edit {
                ordinal,
                mut number,
                attributes,
                ..
            } = edit;
            if is_overtaken {
                // The removal of another timeline has taken the number. Followers of edits need a higher one, which only
                // the row will say: until then a restart would bring back the number of the journal.
                number = state.edits.newest() + 1;
            } else {
                state.edits.settle(ordinal, number);
            }
            state.edits.set(ordinal, Edited { number, attributes });
            state.set_unsaved(ordinal);
        }
    }

    /// Takes in an edit that the journal says, unless the row that was loaded is of a later one.
    pub(crate) fn replay_edit(&self, id: TimelineId, row: &[u8]) -> Result<()> {
        let row = Row::decode(id, row)?;
        let mut state = self.state.write();
        state.edits.pass(row.edit);
        // A timeline that is not there was removed later, and its row with it.
        let visible = state
            .ordinal_of(id)
            .filter(|ordinal| state.visible.contains(ordinal.0));
        let Some(ordinal) = visible else {
            return Ok(());
        };
        let known = state.edits.number_of(ordinal);
        if row.edit < known {
            return Ok(());
        }
        state.edits.confirm(ordinal);
        if row.edit > known {
            let edited = state.edited(row.edit, &row.attributes)?;
            state.edits.load(ordinal, edited);
            state.set_unsaved(ordinal);
        }
        Ok(())
    }
}

impl State {
    /// Checks an edit and adds its row to an entry.
    fn make_edit(
        &mut self,
        ordinal: Ordinal,
        number: u64,
        changes: &AttributeChanges,
        rows: &mut EntryRows,
    ) -> Result<(Edit, Attributes)> {
        if !self.visible.contains(ordinal.0) {
            return Err(CatalogError::UnknownTimeline(ordinal));
        }
        for (key, value) in changes {
            if let Some(value) = value {
                self.check_type(ordinal, key, value.kind())?;
            }
        }
        let mut row = self.row(ordinal);
        attributes::apply(&mut row.attributes, changes)?;
        row.edit = number;
        let id = self.id(ordinal);
        let value = row.encode(id);
        let attributes = row.attributes;
        let packed = Packed::new(&attributes, &mut self.symbols)?;
        rows.push(RowKind::Timeline, &id.0, Some(&value));
        self.edits.set_in_doubt(ordinal, number);
        let edit = Edit {
            ordinal,
            from: self.edits.number_of(ordinal),
            number,
            attributes: packed,
        };
        Ok((edit, attributes))
    }

    /// Ends edits that were not committed: surely not, or for all that is known.
    fn fail(&mut self, edits: &[Edit], is_surely_not_written: bool) {
        if is_surely_not_written {
            for edit in edits {
                self.edits.settle(edit.ordinal, edit.number);
            }
            return;
        }
        if let Some(last) = edits.last() {
            self.edits.pass(last.number);
        }
        for Edit { ordinal, .. } in edits {
            // A row with a higher number than the journal's ends the doubt: a restart stays with the row.
            self.edits.renumber(*ordinal);
            if self.visible.contains(ordinal.0) {
                self.set_unsaved(*ordinal);
            } else if !self.outdated.contains(ordinal.0) {
                self.set_row_deleted(*ordinal);
            }
        }
    }
}
