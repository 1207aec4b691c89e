//! Attributes of many timelines at once: set and removed group by group, so that it can be watched and stopped.

use roaring::RoaringBitmap;
use tideline_model::Ordinal;
use tideline_timeline_catalog::editing::EDIT_TIMELINES_MAX;
use tideline_timeline_catalog::{AttributeChanges, AttributeValue, CatalogError, CatalogReader};

use crate::engine::Engine;
use crate::error::Result;
use crate::tables::Table;

/// About how many bytes of attributes one group sets: what bounds its memory.
const GROUP_BYTES_MAX: usize = 8 << 20;

/// How far a change of many timelines has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AttributesChanged {
    /// Timelines that were selected.
    pub selected: u64,
    /// Those that were changed; durable and findable.
    pub changed: u64,
    /// Those that were as they should be before.
    pub unchanged: u64,
    /// Those that have gone meanwhile.
    pub gone: u64,
    /// Those that could not take the change.
    pub refused: u64,
    /// Why the first of those could not.
    pub first_refusal: Option<String>,
}

impl AttributesChanged {
    /// Those that something is said of so far.
    pub fn seen(&self) -> u64 {
        self.changed + self.unchanged + self.gone + self.refused
    }
}

impl Engine {
    /// Sets and removes attributes of selected timelines. After each group of at most a thousand, which is durable and
    /// findable then, `watch` is told; when it returns false the rest stays as it is.
    ///
    /// Sent again it changes what is left: timelines that have the values already are passed over.
    pub fn set_attributes_of(
        &self,
        table: &Table,
        selected: &RoaringBitmap,
        changes: &AttributeChanges,
        watch: &mut dyn FnMut(&AttributesChanged) -> bool,
    ) -> Result<AttributesChanged> {
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
        let open: Vec<Ordinal> = {
            let reader = table.catalog.reader();
            let is_open = |ordinal: &Ordinal| !is_done(&reader, *ordinal, changes);
            group.iter().copied().filter(is_open).collect()
        };
        progress.unchanged += (group.len() - open.len()) as u64;
        let commit = |entry| self.commit_change(entry);
        let edited = table.catalog.set_attributes_of(&open, changes, &commit)?;
        for outcome in edited {
            match outcome {
                Ok(_) => progress.changed += 1,
                Err(CatalogError::UnknownTimeline(_)) => progress.gone += 1,
                Err(error) => {
                    progress.refused += 1;
                    progress.first_refusal.get_or_insert_with(|| error.to_string());
                }
            }
        }
        Ok(())
    }
}

/// Whether a timeline has what would be set, and nothing of what would be removed.
fn is_done(reader: &CatalogReader<'_>, ordinal: Ordinal, changes: &AttributeChanges) -> bool {
    let Some(entry) = reader.entry(ordinal) else {
        return false;
    };
    changes.iter().all(|(key, value)| {
        let has = entry.attribute(key).map(|value| value.to_value());
        has == *value
    })
}

/// About what a change adds to a timeline, with its keys.
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
