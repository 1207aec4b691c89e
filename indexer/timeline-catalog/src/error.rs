//! What can go wrong in the catalog.

use tideline_backend::BackendError;
use tideline_log::LogError;
use tideline_model::identity::IdentityError;
use tideline_model::{Ordinal, TimelineId};

/// A failed catalog call.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The backend could not read or write rows; its kind says what to do next.
    #[error("catalog rows: {0}")]
    Backend(#[from] BackendError),
    /// The log did not commit a change, or did not say so.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A journal entry of a catalog is not what was written.
    #[error("a journal entry of the catalog is damaged")]
    DamagedEntry,
    /// A journal entry does not hold an identity.
    #[error("identity in the journal: {0}")]
    Identity(#[from] IdentityError),
    /// A stored row is not what was written.
    #[error("catalog row of {id} is damaged: {reason}")]
    DamagedRow {
        /// Whose row.
        id: TimelineId,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A key of the catalog's space is not a catalog key.
    #[error("a key of {0} bytes in the catalog's space is no catalog key")]
    DamagedKey(usize),
    /// Journal and rows disagree about which timeline an ordinal or id names.
    #[error("timeline {id} has ordinal {ordinal} in the journal, but the catalog knows otherwise")]
    Conflict {
        /// The id that was to be adopted.
        id: TimelineId,
        /// The ordinal that was to be adopted.
        ordinal: Ordinal,
    },
    /// No visible timeline has this ordinal.
    #[error("there is no timeline with ordinal {0}")]
    UnknownTimeline(Ordinal),
    /// A limit of identities or attributes.
    #[error("{what} of {actual} is over the limit of {limit}")]
    OverLimit {
        /// What is too large.
        what: &'static str,
        /// The limit.
        limit: usize,
        /// Its size.
        actual: usize,
    },
    /// An attribute that cannot be stored.
    #[error("attribute {key:?} {reason}")]
    InvalidAttribute {
        /// Its key.
        key: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A value of another type than its key has.
    #[error(
        "attribute {key:?} is a {has} on {timelines} other timelines of this table, and a {given} was given; \
         a key has one type, so give a {has} or take another key"
    )]
    MixedAttribute {
        /// The key.
        key: String,
        /// The type it has.
        has: &'static str,
        /// How many other timelines have it.
        timelines: u32,
        /// The type that was given.
        given: &'static str,
    },
    /// The row of a saved search is not what was written.
    #[error("the row of saved search {0:?} is damaged")]
    DamagedSearch(String),
    /// The row of what is said of a metric is not what was written.
    #[error("the row of the metadata of metric {0:?} is damaged")]
    DamagedMetadata(String),
    /// A name that a search cannot have.
    #[error("{0:?} is no name of a search: 1 to 128 letters, digits, dots, dashes and underscores")]
    InvalidSearchName(String),
    /// Source tags cannot change once a timeline has been named by them.
    #[error("source tags are fixed by the first write")]
    SourceTagsFixed,
    /// A 32-bit number of the table has run out.
    #[error("the table holds no more {0}")]
    Full(&'static str),
}
