//! Errors of the catalog.

use tideline_backend::BackendError;
use tideline_model::identity::IdentityError;
use tideline_model::{Ordinal, TimelineId};

/// A failed catalog call.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The backend failed to read or write rows; its error kind determines whether a retry helps.
    #[error("catalog rows: {0}")]
    Backend(#[from] BackendError),
    /// The log did not commit a change, or the outcome of the commit is unknown.
    #[error(transparent)]
    NotCommitted(Box<dyn std::error::Error + Send + Sync>),
    /// A catalog entry of the journal is damaged.
    #[error("a journal entry of the catalog is damaged")]
    DamagedEntry,
    /// The identity in a journal entry is invalid.
    #[error("invalid identity in the journal: {0}")]
    Identity(#[from] IdentityError),
    /// A stored row is damaged.
    #[error("catalog row of {id} is damaged: {reason}")]
    DamagedRow {
        /// Timeline of the row.
        id: TimelineId,
        /// Human-readable reason.
        reason: &'static str,
    },
    /// A key in the key space of the catalog is not a catalog key.
    #[error("a key of {0} bytes in the catalog's key space is not a catalog key")]
    DamagedKey(usize),
    /// A record of changed catalog rows is damaged.
    #[error("a record of changed catalog rows is damaged")]
    DamagedRecord,
    /// A timeline in the journal or the rows has the ordinal of another timeline, or an id that is known with another
    /// ordinal or identity.
    #[error("timeline {id} with ordinal {ordinal} conflicts with the catalog")]
    Conflict {
        /// Id of the rejected timeline.
        id: TimelineId,
        /// Ordinal of the rejected timeline.
        ordinal: Ordinal,
    },
    /// No visible timeline has this ordinal.
    #[error("there is no timeline with ordinal {0}")]
    UnknownTimeline(Ordinal),
    /// A size limit was exceeded.
    #[error("{what} of {actual} is over the limit of {limit}")]
    OverLimit {
        /// Name of the limited quantity.
        what: &'static str,
        /// Maximum.
        limit: usize,
        /// Actual size.
        actual: usize,
    },
    /// An attribute cannot be stored.
    #[error("attribute {key:?} {reason}")]
    InvalidAttribute {
        /// Key of the attribute.
        key: String,
        /// Human-readable reason.
        reason: &'static str,
    },
    /// The value has a different type than the other values of its key.
    #[error(
        "attribute {key:?} is a {has} on {timelines} other timelines of this table, and a {given} was given; \
         a key has one type, so give a {has} or use another key"
    )]
    MixedAttribute {
        /// Key of the attribute.
        key: String,
        /// Type that the key has.
        has: &'static str,
        /// Number of other timelines that have the key with this type.
        timelines: u32,
        /// Type of the given value.
        given: &'static str,
    },
    /// The row of a saved search is damaged.
    #[error("the row of saved search {0:?} is damaged")]
    DamagedSearch(String),
    /// The row of a metric's metadata is damaged.
    #[error("the metadata row of metric {0:?} is damaged")]
    DamagedMetadata(String),
    /// The name of a saved search is not valid.
    #[error("{0:?} is not a valid search name: use 1 to 128 letters, digits, dots, dashes and underscores")]
    InvalidSearchName(String),
    /// The source tags cannot change after the first timeline is registered.
    #[error("source tags are fixed by the first write")]
    SourceTagsFixed,
    /// A 32-bit number space of the table is exhausted.
    #[error("the table cannot hold more {0}")]
    Full(&'static str),
}
