//! Table settings stored next to archive files, so that a database which attaches the files applies the newest
//! settings.
//!
//! A description contains the settings at the time when its files were written. Later settings are separate objects in
//! each folder with files of the table. The settings of each folder are cached until the process ends; after a start
//! each folder is checked once.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use tideline_archive::{SETTINGS_FORMAT, TableSettings};
use tideline_model::{TableId, TableSpec};

use super::archive::given_up;
use crate::error::{Result, StoreError};
use crate::manifest::ManifestState;
use crate::shared::Shared;
use crate::tables::Table;

/// Settings stored in each target folder that was checked or written since the start, by table, target and folder.
pub(crate) type SettingsWritten = HashMap<(TableId, String, String), TableSpec>;

/// Returns the targets and folders in which this database owns files of a table.
fn folders(manifest: &ManifestState, table: TableId) -> BTreeSet<(&str, &str)> {
    let parts = manifest.of_table(table).flat_map(|segment| segment.parts());
    let files = parts.filter_map(|part| part.archive.as_ref());
    let owned = files.filter(|files| files.is_owned());
    let folder = |key: &'_ str| key.find('/').unwrap_or(key.len());
    owned
        .map(|files| (files.target(), &files.timelines()[..folder(files.timelines())]))
        .collect()
}

impl Shared {
    /// Returns true if a folder with files of a table may hold settings that differ from those of the table.
    pub(crate) fn has_unwritten_settings(&self, manifest: &ManifestState, table: &Table) -> bool {
        if self.settings.archive.is_none() || manifest.common.cursor.origin.is_none() {
            return false;
        }
        let folders = folders(manifest, table.id());
        if folders.is_empty() {
            return false;
        }
        let (spec, written) = (table.spec(), self.settings_written.lock());
        folders.into_iter().any(|(target, folder)| {
            let key = (table.id(), target.to_owned(), folder.to_owned());
            written.get(&key) != Some(&*spec)
        })
    }

    /// Writes the settings of a table to each folder with files of the table if the settings stored there differ. Skips
    /// folders that were checked or written with the same settings since the start. Returns the number of folders
    /// written or checked; `0` without an archive, or if nothing was archived yet. A failing folder does not prevent
    /// writing to other folders; the first error is returned at the end.
    pub(crate) fn write_settings(&self, table: TableId) -> Result<u64> {
        let found = self.tables.read().by_id.get(&table).cloned();
        let found = found.ok_or(StoreError::TableDropped(table))?;
        let manifest = self.state.read().manifest.clone();
        let (Some(archive), Some(origin)) = (&self.settings.archive, manifest.common.cursor.origin) else {
            return Ok(0);
        };
        let spec = found.spec();
        let settings = TableSettings {
            format: SETTINGS_FORMAT,
            table: found.name().clone(),
            changed: found.policy_changed().max(found.created()),
            spec: TableSpec::clone(&spec),
        };
        let (mut count, mut failure) = (0, None);
        for (target, folder) in folders(&manifest, table) {
            let key = (table, target.to_owned(), folder.to_owned());
            if self.settings_written.lock().get(&key) == Some(&*spec) {
                continue;
            }
            match archive.write_settings((target, folder), &format!("{origin:016x}"), &settings) {
                Ok(()) => {
                    count += 1;
                    self.settings_written.lock().insert(key, settings.spec.clone());
                }
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        match failure {
            Some(error) => Err(given_up(error)),
            None => Ok(count),
        }
    }
}
