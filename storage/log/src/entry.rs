//! A write on its way through the log, and the model that its bytes belong to.

use std::fmt;

use bytes::Bytes;
use tideline_model::{Durability, SequenceNumber, TableId, TableName};

use crate::requests::RequestRecord;

/// The model that an entry of the journal belongs to: the two bytes that it begins with.
///
/// | first bytes | model |
/// |---|---|
/// | `TD` | series: every delta has begun with them from the first build on |
/// | `TC` | catalogs: what people and senders say of timelines and metrics, and saved searches |
/// | `TW` | wide rows |
/// | `TF` | feeds |
/// | `TT` | models of tests |
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
    /// Models of tests.
    pub const TEST: Self = Self(*b"TT");

    /// The model of an encoded entry; `None` for one that is too short.
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

/// One write: decoded for its model, encoded for the journal. The committer calls it on its own thread.
pub trait LogEntry: Send {
    /// The name of its steps for tests, such as `delete`.
    fn kind(&self) -> &'static str;

    /// The table that it is written to.
    fn table(&self) -> TableId;

    /// Its bytes in the journal; the first one is of its model's [`ModelTag`].
    fn encoded(&self) -> &Bytes;

    /// When it is acknowledged.
    fn durability(&self) -> Durability;

    /// The idempotency key of its request, with the outcome to remember.
    fn request(&self) -> Option<RequestRecord> {
        None
    }

    /// Whether it changes what [`check`](Self::check) of later entries looks at: then it ends its group, so that they are
    /// checked after it was applied.
    fn ends_group(&self) -> bool {
        false
    }

    /// Whether it can still be written, looked at right before its group is numbered.
    ///
    /// # Errors
    ///
    /// Nothing of it is written.
    fn check(&self) -> Result<(), Refusal>;

    /// Makes it visible to readers: it is in the journal. Called in the order of sequences, one after the other.
    ///
    /// # Errors
    ///
    /// It is visible as far as possible; a restart applies it whole.
    fn apply(&self, sequence: SequenceNumber) -> Result<(), ModelError>;
}

/// A failure of a model, passed through the log to the model's own caller.
pub type ModelError = Box<dyn std::error::Error + Send + Sync>;

/// The reason why an entry was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The table was dropped meanwhile.
    #[error("table {0} was dropped")]
    TableDropped(TableId),
    /// It is not known whether the table was dropped.
    #[error("it is not known yet whether table {0} was dropped; the write was not done")]
    TableInDoubt(TableName),
    /// The state that the entry was made from has changed; the caller makes it anew.
    #[error("the write was made from a state that has changed meanwhile")]
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
