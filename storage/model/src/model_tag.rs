//! Tags of journal entries, which name the model of an entry.
//!
//! One log holds the entries of all models. Only the tag at the start of an entry is common to all models.

use std::fmt;

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
    /// Attributes of timelines, saved searches and metadata of metrics.
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
