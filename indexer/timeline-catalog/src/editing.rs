//! Setting and removing attributes. An edit is committed to the journal, then applied to memory. Its rows are written
//! before the journal discards the entry.
//!
//! Edits of a table are serialized. An edit carries the complete attributes of its timeline after the edit, and the
//! number of the edit that it is based on. The log rejects the edit if its timeline is not visible, or was edited after
//! the preparation of the edit. The loss of attributes in a removal counts as an edit.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use tideline_model::{Ordinal, TimelineId};

use crate::attributes::{self, AttributeType, AttributeValue, Attributes};
use crate::catalog::Catalog;
use crate::change::{Changed, Commit, EntryRows, RowKind};
use crate::edits::Edited;
use crate::packed::Packed;
use crate::row::Row;
use crate::state::State;
use crate::{CatalogError, Result};

/// Maximum number of timelines in one edit call; bounds the memory of the call.
pub const EDIT_TIMELINES_MAX: usize = 1_000;

/// Attribute changes by key: `Some` sets, `None` removes.
pub type AttributeChanges = BTreeMap<String, Option<AttributeValue>>;

/// An edit that is being committed.
#[derive(Debug, Clone)]
pub(crate) struct Edit {
    ordinal: Ordinal,
    /// Number of the earlier edit of the timeline on which this edit is based.
    from: u64,
    number: u64,
    attributes: Packed,
}

/// The leading edits of a call that fit into one entry.
struct Batch {
    rows: EntryRows,
    edits: Vec<Edit>,
    /// Outcomes of the leading edits of the call, including rejected edits.
    outcomes: Vec<Result<Attributes>>,
}

/// Types that the earlier edits of a batch assign to keys. The type counts of the table include them only after the
/// commit.
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
    /// Changes attributes of a visible timeline and returns all its attributes after the change. The change is durable
    /// and visible on return.
    ///
    /// Keys that are not in `changes` keep their values.
    ///
    /// # Errors
    ///
    /// [`CatalogError::UnknownTimeline`] if the timeline is not visible, [`CatalogError::OverLimit`],
    /// [`CatalogError::InvalidAttribute`] or [`CatalogError::MixedAttribute`] for an invalid change,
    /// [`CatalogError::Full`] if a 32-bit number space is exhausted. [`CatalogError::NotCommitted`] if the commit
    /// fails. The edit is then not visible, unless the log has applied it. The error of the log determines whether a
    /// restart restores the edit.
    pub fn set_attributes(
        self: &Arc<Self>,
        ordinal: Ordinal,
        changes: &AttributeChanges,
        commit: &Commit<'_>,
    ) -> Result<Attributes> {
        let mut edited = self.edit(&[(ordinal, changes)], commit)?;
        edited.pop().expect("one outcome for each timeline")
    }

    /// Changes attributes of up to [`EDIT_TIMELINES_MAX`] distinct timelines, like
    /// [`set_attributes`](Self::set_attributes). Returns one outcome per timeline, in the order of `ordinals`.
    ///
    /// # Errors
    ///
    /// [`CatalogError::OverLimit`] for too many timelines; then nothing changes. [`CatalogError::NotCommitted`] if a
    /// commit fails; a part of the edits may be stored then.
    pub fn set_attributes_of(
        self: &Arc<Self>,
        ordinals: &[Ordinal],
        changes: &AttributeChanges,
        commit: &Commit<'_>,
    ) -> Result<Vec<Result<Attributes>>> {
        let edits: Vec<_> = ordinals.iter().map(|ordinal| (*ordinal, changes)).collect();
        self.edit(&edits, commit)
    }

    /// Changes attributes like [`set_attributes_of`](Self::set_attributes_of), with separate changes per timeline.
    ///
    /// # Errors
    ///
    /// The errors of [`set_attributes_of`](Self::set_attributes_of).
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
        let _editing = self.editing.lock();
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
                        self.state.write().fail(&made, failed.error.is_not_written);
                    }
                    if failed.error.is_outdated {
                        continue;
                    }
                    return Err(failed.into());
                }
            }
            outcomes.extend(more);
        }
        Ok(outcomes)
    }

    /// Checks the leading edits and encodes their rows, as many as fit into one entry.
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

    /// Returns true if all timelines are visible, and none of them was edited after the given edits were prepared.
    pub(crate) fn are_current(&self, edits: &[Edit]) -> bool {
        let state = self.state.read();
        edits.iter().all(|edit| {
            state.visible.contains(edit.ordinal.0) && state.edits.number_of(edit.ordinal) == edit.from
        })
    }

    /// Applies edits that are in the journal to memory.
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
                // A removal of another timeline has used the number, so followers need a higher one. Only the row
                // will hold the higher number: a restart before the row is written restores the number from the
                // journal.
                number = state.edits.newest() + 1;
            } else {
                state.edits.settle(ordinal, number);
            }
            state.edits.set(ordinal, Edited { number, attributes });
            state.set_unsaved(ordinal);
        }
    }

    /// Applies an edit from the journal, unless the loaded row holds a later one.
    pub(crate) fn replay_edit(&self, id: TimelineId, row: &[u8]) -> Result<()> {
        let row = Row::decode(id, row)?;
        let mut state = self.state.write();
        state.edits.pass(row.edit);
        // A timeline that is not visible was removed by a later entry, and its row was deleted.
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

    /// Ends edits whose commit failed. `is_surely_not_written` is false if the outcome is unknown.
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
            // A row with a higher number than the journal entry ends the doubt: a restart then keeps the row.
            self.edits.renumber(*ordinal);
            if self.visible.contains(ordinal.0) {
                self.set_unsaved(*ordinal);
            } else if !self.outdated.contains(ordinal.0) {
                self.set_row_deleted(*ordinal);
            }
        }
    }
}
