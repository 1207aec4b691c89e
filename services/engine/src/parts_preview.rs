//! Preview of changed ages of the parts of a wide table: computes the effects without applying them.
//!
//! The effects follow from the settings and the list of the parts, so no row is read.

use tideline_model::{PartsSpec, TableSpec, Tier, Timestamp};

use crate::engine::Engine;
use crate::error::{EngineError, Result};
use crate::parts::TablePart;
use crate::wide_table::WideTable;

/// Effects of changed ages. A part may be in several lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartsPreview {
    /// Trusted time from which ages are counted.
    pub now: Timestamp,
    /// Settings of the parts, with the changed ages.
    pub parts: PartsSpec,
    /// Parts that move from the hot to the cold tier.
    pub migrate: Vec<TablePart>,
    /// Parts that move into the archive.
    pub archive: Vec<TablePart>,
    /// Parts whose rows can be written now, and could no longer be written.
    pub close: Vec<TablePart>,
    /// Parts whose rows cannot be written now, and could be written again.
    pub open: Vec<TablePart>,
    /// Parts that are visible now, and would be hidden immediately.
    pub hide: Vec<TablePart>,
    /// Parts that are hidden now, and would be visible again.
    pub show: Vec<TablePart>,
    /// Parts that the next removal of expired data drops.
    pub drop: Vec<TablePart>,
    /// Reason why no part is moved or dropped at the moment; `None` otherwise.
    pub paused: Option<String>,
}

/// Effects of ages on one part.
struct Effects {
    is_visible: bool,
    is_writable: bool,
    is_archived: bool,
    is_migrated: bool,
    is_dropped: bool,
}

impl Engine {
    /// Previews changed ages of the parts of a table. `change` changes the current settings.
    ///
    /// # Errors
    ///
    /// Returns [`EngineError::Invalid`] or [`EngineError::Forbidden`] for settings that
    /// [`alter_table`](Self::alter_table) would refuse, [`EngineError::Invalid`] for a table that is not divided into
    /// parts, and the errors of [`table_parts`](Self::table_parts).
    pub fn preview_parts(
        &self,
        table: &WideTable,
        change: impl FnOnce(&mut TableSpec) -> std::result::Result<(), String>,
    ) -> Result<PartsPreview> {
        let mut spec = TableSpec::clone(&table.table().spec());
        let name = table.table().name();
        change(&mut spec).map_err(EngineError::Invalid)?;
        self.check_rows(name, &mut spec, Some(table.settings()))?;
        let parts = spec.wide.and_then(|wide| wide.parts).ok_or_else(|| {
            EngineError::Invalid(format!(
                "table {name} is not divided into parts; `wide.parts` divides a new table"
            ))
        })?;
        let trusted = self.store.trusted_now();
        let now = trusted.now.nanos();
        let mut preview = PartsPreview {
            now: trusted.now,
            migrate: Vec::new(),
            archive: Vec::new(),
            close: Vec::new(),
            open: Vec::new(),
            hide: Vec::new(),
            show: Vec::new(),
            drop: Vec::new(),
            paused: trusted.doubt.map(|doubt| doubt.reason()),
            parts,
        };
        let dropped_before = self.hidden_long_before(&preview.parts, now);
        for part in self.table_parts(table)? {
            let number = preview.parts.every.number_of(part.start.nanos());
            let effects = Effects::of(&preview.parts, (number, &part), dropped_before, now);
            preview.add(&part, &effects);
        }
        Ok(preview)
    }
}

impl Effects {
    fn of(parts: &PartsSpec, (number, part): (i32, &TablePart), dropped_before: i32, now: i64) -> Self {
        let is_held = part.held_until.is_some();
        let is_visible = number >= parts.visible_from(now);
        let is_in_files = part.tier == Some(Tier::Archive);
        let is_archived = number < parts.archived_before(now) && !is_in_files && !is_held;
        let is_in_hot = matches!(part.tier, None | Some(Tier::Hot));
        Self {
            is_visible,
            is_writable: is_visible && !is_in_files && (number >= parts.writable_from(now) || is_held),
            is_archived,
            is_migrated: number < parts.hot_from(now) && is_in_hot && !is_archived,
            is_dropped: number < dropped_before,
        }
    }
}

impl PartsPreview {
    fn add(&mut self, part: &TablePart, effects: &Effects) {
        for (is_in, list) in [
            (effects.is_migrated, &mut self.migrate),
            (effects.is_archived, &mut self.archive),
            (part.is_writable && !effects.is_writable, &mut self.close),
            (!part.is_writable && effects.is_writable, &mut self.open),
            (part.is_visible && !effects.is_visible, &mut self.hide),
            (!part.is_visible && effects.is_visible, &mut self.show),
            (effects.is_dropped, &mut self.drop),
        ] {
            if is_in {
                list.push(part.clone());
            }
        }
    }
}
