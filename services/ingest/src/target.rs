//! Destination table of the points of a write.

use tideline_engine::{Engine, ErrorKind, Table};

use crate::database::DatabaseTag;
use crate::decoder::Decoder;
use crate::error::WriteError;

/// Table or database named by the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Table with this name, which must exist.
    Table(String),
    /// Database with this name, see [`database`](crate::database). The empty name selects the default table.
    Database(String),
}

/// Destination table, and the tag that is added to each timeline that has no tag `db`.
pub(crate) struct Destination {
    pub(crate) table: Table,
    pub(crate) tag: Option<DatabaseTag>,
}

impl Target {
    /// Finds the table.
    ///
    /// # Errors
    ///
    /// Returns an error if the table does not exist or its model is not `series`. For Prometheus formats and OTLP, also
    /// returns an error for a database without a table of the same name: series of these formats are identified by
    /// labels, to which the database tag cannot be appended. For other formats, such a database is an error only if its
    /// name cannot be a tag value.
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
