//! What a user sets about a table.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::NANOS_PER_DAY;

/// The name of a table: `[a-z0-9_-]{1,64}`, so that it is safe in paths, object keys and URLs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TableName(Box<str>);

/// The text cannot name a table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot name a table: 1 to 64 characters of a-z, 0-9, _ and - are allowed")]
pub struct TableNameError(pub String);

impl TableName {
    /// The table that exists from the first start and that root-level routes mean.
    pub const DEFAULT: &'static str = "default";

    /// Checks and takes a name.
    pub fn new(name: &str) -> Result<Self, TableNameError> {
        let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_' || c == b'-';
        if (1..=64).contains(&name.len()) && name.bytes().all(allowed) {
            Ok(Self(name.into()))
        } else {
            let shown: String = name.chars().take(80).collect();
            Err(TableNameError(shown))
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for TableName {
    type Error = TableNameError;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::new(&name)
    }
}

impl From<TableName> for String {
    fn from(name: TableName) -> Self {
        name.0.into()
    }
}

/// What an acknowledgement promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The points are on stable storage.
    #[default]
    Synced,
    /// The points are with the operating system: a killed process loses nothing, a power cut may.
    Buffered,
}

/// Everything that a user sets about a table. Durations in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSpec {
    /// Tags that name the machine, first present wins. Fixed at the table's first write.
    pub source_tags: Vec<String>,
    /// What an acknowledgement promises when the request does not say.
    pub durability: Durability,
    /// How far before now a point may lie; `None` = any past.
    pub write_past: Option<i64>,
    /// How far after now a point may lie; `None` = any future.
    pub write_future: Option<i64>,
}

impl Default for TableSpec {
    fn default() -> Self {
        let source_tags = ["host", "hostname", "instance", "machine", "device"];
        Self {
            source_tags: source_tags.map(str::to_owned).to_vec(),
            durability: Durability::Synced,
            write_past: None,
            write_future: Some(365 * NANOS_PER_DAY),
        }
    }
}
