//! The table that points go to.

use tideline_engine::{Engine, ErrorKind, Table};

use crate::database::DatabaseTag;
use crate::decoder::Decoder;
use crate::error::WriteError;

/// The place that a client names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The table of this name, which must exist.
    Table(String),
    /// The database of this name, as [`database`](crate::database) explains; the empty name stands for the default table.
    Database(String),
}

/// A table, and the tag that all its timelines of this write get.
pub(crate) struct Destination {
    pub(crate) table: Table,
    pub(crate) tag: Option<DatabaseTag>,
}

impl Target {
    /// Finds the table.
    ///
    /// # Errors
    ///
    /// Where there is no such table and none stands in for it: series of samples are named by their labels, to which no tag
    /// of a database can be appended.
    pub(crate) fn find(&self, engine: &Engine, decoder: &Decoder) -> Result<Destination, WriteError> {
        let (table, tag) = match self {
            Self::Table(name) => (engine.table(name)?, None),
            Self::Database(name) if name.is_empty() => (engine.default_table()?, None),
            Self::Database(name) => match engine.table(name) {
                Err(error) if error.kind() == ErrorKind::NotFound && decoder.takes_tags() => {
                    let tag = DatabaseTag::new(name).map_err(WriteError::DatabaseName)?;
                    (engine.default_table()?, Some(tag))
                }
                table => (table?, None),
            },
        };
        Ok(Destination { table, tag })
    }
}
