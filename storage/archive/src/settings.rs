//! Settings of tables, stored with the files of an archive.
//!
//! A description has the settings that its table had when the files were written. Later settings are stored as separate
//! objects, so that another database that attaches the files applies the newest settings.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tideline_model::{TableName, TableSpec};

use crate::Archive;
use crate::digest::sha256_hex;
use crate::error::Result;
use crate::layout::{self, ObjectContent, named, settings_key, settings_prefix};

/// Settings of a table after a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSettings {
    /// Format number; must be [`SETTINGS_FORMAT`].
    pub format: u32,
    /// Name of the table in the database that wrote the settings.
    pub table: TableName,
    /// Time of the change, in nanoseconds since the epoch by the trusted clock of that database.
    pub changed: i64,
    /// Settings of the table.
    pub spec: TableSpec,
}

/// Maximum size of a settings object, in bytes.
const SETTINGS_BYTES_MAX: u64 = 1 << 20;

/// Format number of [`TableSettings`].
pub const SETTINGS_FORMAT: u32 = 1;

/// Settings found at a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundSettings {
    /// Database that wrote the settings.
    pub origin: String,
    /// Revision of the settings; increases with each write by that database.
    pub revision: u64,
    /// Settings of the table.
    pub settings: TableSettings,
}

impl Archive {
    /// Writes settings of a table into a folder of the table at a target, and removes earlier settings of the same
    /// database. Writes nothing if the newest settings are equal.
    ///
    /// # Errors
    ///
    /// Fails if the target is not allowed or fails. The call can be repeated.
    pub fn write_settings(
        &self,
        (target, folder): (&str, &str),
        origin: &str,
        settings: &TableSettings,
    ) -> Result<()> {
        let content = serde_json::to_vec_pretty(settings).expect("plain structures always serialise");
        let sha256 = sha256_hex(&content);
        self.check_allowed(target)?;
        let opened = self.target(target)?;
        let listed = opened.list(&settings_prefix(folder))?;
        let mut own: Vec<String> = listed.into_iter().map(|object| object.key).collect();
        own.retain(|key| is_settings_of(key, origin));
        own.sort_by_key(|key| named(key).map(|object| object.number));
        let newest = own.last().and_then(|key| named(key));
        match newest {
            Some(newest) if sha256.starts_with(newest.digits) => {
                own.pop();
            }
            newest => {
                let number = newest.map_or(1, |newest| newest.number.saturating_add(1));
                let key = settings_key(folder, origin, number, &sha256);
                opened.put_new(&key, &Bytes::from(content))?;
            }
        }
        own.iter().try_for_each(|key| opened.delete(key))
    }

    /// Returns the settings of a table at a target: the newest of each database, with object names. The entry of
    /// damaged settings is an error. Settings that are removed during the call are skipped.
    ///
    /// # Errors
    ///
    /// Fails if the target is not valid or cannot be reached.
    pub fn settings(&self, target: &str, folder: &str) -> Result<Vec<(String, Result<FoundSettings>)>> {
        let opened = self.target(target)?;
        let listed = opened.list(&settings_prefix(folder))?;
        let mut keys: Vec<String> = listed.into_iter().map(|object| object.key).collect();
        keys.retain(|key| named(key).is_some_and(|object| object.content == ObjectContent::Settings));
        let order = |key: &String| named(key).map(|object| (object.origin.to_owned(), object.number));
        keys.sort_by_key(|key| std::cmp::Reverse(order(key)));
        keys.dedup_by_key(|key| order(key).map(|(origin, _)| origin));
        let read = |key: String| {
            let found = match opened.get(&key, SETTINGS_BYTES_MAX) {
                Err(error) if error.is_retryable() => return Err(error),
                // The object was removed after the listing, because newer settings were written.
                Err(error) if error.is_missing() => return Ok(None),
                content => content
                    .and_then(|content| parse(&content, &key).map_err(|reason| opened.damaged(&key, reason))),
            };
            Ok(Some((key, found)))
        };
        keys.into_iter().filter_map(|key| read(key).transpose()).collect()
    }
}

/// Returns true if an object has settings that a database wrote.
fn is_settings_of(key: &str, origin: &str) -> bool {
    named(key).is_some_and(|object| object.content == ObjectContent::Settings && object.origin == origin)
}

/// Parses settings; on error, returns a human-readable reason.
fn parse(content: &[u8], key: &str) -> std::result::Result<FoundSettings, String> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let object = layout::named(key).ok_or("its name is not a valid settings name")?;
    if !sha256_hex(content).starts_with(object.digits) {
        return Err("its checksum does not match".into());
    }
    let version: Version = serde_json::from_slice(content).map_err(|error| error.to_string())?;
    if version.format != SETTINGS_FORMAT {
        return Err(format!("format {} is not known to this build", version.format));
    }
    Ok(FoundSettings {
        origin: object.origin.to_owned(),
        revision: object.number,
        settings: serde_json::from_slice(content).map_err(|error| error.to_string())?,
    })
}
