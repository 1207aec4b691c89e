//! Log entries: writes on their way through the log, and the models that they belong to.
//!
//! The log handles entries of all models through the trait [`LogEntry`]; only the first two bytes have a common
//! meaning.

use std::fmt;

use bytes::Bytes;
use tideline_model::{Durability, SequenceNumber, TableId, TableName};

use crate::requests::RequestRecord;

/// Model of a journal entry, stored as the first two bytes of the entry.
///
/// | first bytes | model |
/// |---|---|
/// | `TD` | series: points of timelines, in this form since the first build |
/// | `TC` | catalog: attributes of timelines, metadata of metrics, saved searches |
/// | `TW` | wide rows |
/// | `TF` | feeds |
/// | `TT` | test models |
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelTag(pub [u8; 2]);

impl ModelTag {
    /// Points of timelines.
    pub const SERIES: Self = Self(*b"TD");
    /// Attributes, saved searches and metadata of metrics.
    pub const CATALOG: Self = Self(*b"TC");
    /// Wide rows.
    pub const WIDE: Self = Self(*b"TW");
    /// Messages of feeds.
    pub const FEED: Self = Self(*b"TF");
    /// Test models.
    pub const TEST: Self = Self(*b"TT");

    /// Returns the model of an encoded entry; `None` if the entry is shorter than two bytes.
    pub fn of(entry: &[u8]) -> Option<Self> {
        entry.first_chunk().copied().map(Self)
    }
}

impl fmt::Display for ModelTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::SERIES => f.write_str("series"),
            Self::CATALOG => f.write_str("catalog"),
            Self::WIDE => f.write_str("wide"),
            Self::FEED => f.write_str("feed"),
            Self(bytes) => write!(f, "{:?}", bytes.escape_ascii().to_string()),
        }
    }
}

/// One write: decoded for its model, encoded for the journal. The committer calls the methods on its own thread.
pub trait LogEntry: Send {
    /// Returns the prefix of the entry's fail points, such as `delete`.
    fn kind(&self) -> &'static str;

    /// Returns the table of the entry.
    fn table(&self) -> TableId;

    /// Returns the bytes of the entry in the journal. They begin with the [`ModelTag`] of its model.
    fn encoded(&self) -> &Bytes;

    /// Returns the durability that the entry needs before it is acknowledged.
    fn durability(&self) -> Durability;

    /// Returns the idempotency key of the request, with the outcome to remember; `None` if it has no key.
    fn request(&self) -> Option<RequestRecord> {
        None
    }

    /// Returns true if the entry changes state that the [`check`](Self::check) of later entries reads. The entry is
    /// then the last of its group, so that later entries are checked after it was applied.
    fn ends_group(&self) -> bool {
        false
    }

    /// Checks that the entry can still be written. Called right before its group is numbered.
    ///
    /// # Errors
    ///
    /// A [`Refusal`]: nothing of the entry is written.
    fn check(&self) -> Result<(), Refusal>;

    /// Makes an entry that is in the journal visible to readers. Called in the order of sequences, one entry at a time.
    ///
    /// # Errors
    ///
    /// An error of the model: the entry is visible as far as possible, and a restart applies all of it.
    fn apply(&self, sequence: SequenceNumber) -> Result<(), ModelError>;
}

/// Failure of a model, passed through the log to the model's caller.
pub type ModelError = Box<dyn std::error::Error + Send + Sync>;

/// Reason why an entry was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The table was dropped before the entry was written.
    #[error("table {0} was dropped")]
    TableDropped(TableId),
    /// The drop of the table has an unknown outcome.
    #[error("it is not known yet whether table {0} was dropped; the write was not done")]
    TableInDoubt(TableName),
    /// The state that the entry was based on has changed; the caller builds the entry again.
    #[error("the state that the write was based on has changed; nothing was written, send the write again")]
    Outdated,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_name_their_models_by_their_first_bytes() {
        for (entry, model, name) in [
            (&b"TD\x01rest"[..], ModelTag::SERIES, "series"),
            (b"TC\x01", ModelTag::CATALOG, "catalog"),
            (b"TW", ModelTag::WIDE, "wide"),
            (b"TF\xff", ModelTag::FEED, "feed"),
            (b"\x00Z", ModelTag(*b"\x00Z"), "\"\\\\x00Z\""),
        ] {
            assert_eq!(ModelTag::of(entry), Some(model));
            assert_eq!(model.to_string(), name);
        }
        assert_eq!(ModelTag::of(b"T"), None);
        assert_eq!(ModelTag::of(b""), None);
    }
}
