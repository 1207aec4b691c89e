//! Attribute changes of many timelines, applied in groups.
//!
//! Each group is one durable commit, so the change can be observed and stopped between groups.

use roaring::RoaringBitmap;
use tideline_model::Ordinal;
use tideline_timeline_catalog::editing::EDIT_TIMELINES_MAX;
use tideline_timeline_catalog::{AttributeChanges, AttributeValue, CatalogError, Entry};

use crate::engine::Engine;
use crate::error::Result;
use crate::tables::Table;

/// Approximate limit of the attribute bytes that one group sets; bounds its memory.
const GROUP_BYTES_MAX: usize = 8 << 20;

/// Progress of an attribute change of many timelines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttributesChanged {
    /// Selected timelines.
    pub selected: u64,
    /// Changed timelines. Their changes are durable and searchable.
    pub changed: u64,
    /// Timelines that already had the requested attributes.
    pub unchanged: u64,
    /// Timelines that were removed meanwhile.
    pub gone: u64,
    /// Timelines whose change was refused.
    pub refused: u64,
    /// Reason of the first refusal.
    pub first_refusal: Option<String>,
}

impl AttributesChanged {
    /// Returns the number of timelines processed so far.
    pub fn seen(&self) -> u64 {
        self.changed + self.unchanged + self.gone + self.refused
    }
}

impl Engine {
    /// Sets and removes attributes of the selected timelines, in groups of at most 1,000.
    ///
    /// `watch` is called after each group, which is then durable and searchable. When it returns false, the remaining
    /// timelines stay unchanged. A repeated call skips timelines that already have the requested attributes.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::Forbidden`](crate::EngineError::Forbidden) if the principal is restricted by one of the
    /// attributes, and an error if the table was dropped or a commit fails. Groups changed before stay changed.
    pub fn set_attributes_of(
        &self,
        table: &Table,
        selected: &RoaringBitmap,
        changes: &AttributeChanges,
        watch: &mut dyn FnMut(&AttributesChanged) -> bool,
    ) -> Result<AttributesChanged> {
        table.check_changes(changes)?;
        let mut progress = AttributesChanged {
            selected: selected.len(),
            ..AttributesChanged::default()
        };
        let group_max = (GROUP_BYTES_MAX / bytes_of(changes)).clamp(1, EDIT_TIMELINES_MAX);
        let mut rest = selected.iter().map(Ordinal);
        loop {
            let group: Vec<Ordinal> = rest.by_ref().take(group_max).collect();
            if group.is_empty() {
                return Ok(progress);
            }
            self.set_attributes_of_group(table, &group, changes, &mut progress)?;
            self.index.notify();
            if !watch(&progress) {
                return Ok(progress);
            }
        }
    }

    fn set_attributes_of_group(
        &self,
        table: &Table,
        group: &[Ordinal],
        changes: &AttributeChanges,
        progress: &mut AttributesChanged,
    ) -> Result<()> {
        let _timelines_stay = self.keep_timelines(table)?;
        let mut open = Vec::with_capacity(group.len());
        {
            let reader = table.reader();
            for ordinal in group {
                match reader.entry(*ordinal) {
                    // The timeline was removed since the selection, or a restricted handle may not use it any more.
                    None => progress.gone += 1,
                    Some(entry) if is_done(&entry, changes) => progress.unchanged += 1,
                    Some(_) => open.push(*ordinal),
                }
            }
        }
        let commit = |entry| self.commit_change(entry);
        let edited = table.catalog.set_attributes_of(&open, changes, &commit)?;
        for outcome in edited {
            match outcome {
                Ok(_) => progress.changed += 1,
                Err(CatalogError::UnknownTimeline(_)) => progress.gone += 1,
                Err(error) => {
                    progress.refused += 1;
                    let shown = || table.shown_error(error).to_string();
                    progress.first_refusal.get_or_insert_with(shown);
                }
            }
        }
        Ok(())
    }
}

/// Returns true if a timeline already has all attributes to set and none of the attributes to remove.
fn is_done(entry: &Entry<'_>, changes: &AttributeChanges) -> bool {
    changes.iter().all(|(key, value)| {
        let has = entry.attribute(key).map(|value| value.to_value());
        has == *value
    })
}

/// Returns the approximate bytes that a change adds to a timeline, keys included.
fn bytes_of(changes: &AttributeChanges) -> usize {
    let of_value = |value: &AttributeValue| match value {
        AttributeValue::Text(text) => text.len(),
        other => format!("{other:?}").len(),
    };
    let bytes = changes
        .iter()
        .map(|(key, value)| key.len() + value.as_ref().map_or(0, of_value));
    bytes.sum::<usize>() + 1
}
