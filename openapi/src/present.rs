//! Tells a member that is `null` from one that is missing.

use serde::{Deserialize, Deserializer};

/// With `#[serde(default, deserialize_with = "present")]`: missing = `None`, `null` = `Some(None)`.
pub(crate) fn present<'de, T, D>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::deserialize(deserializer).map(Some)
}
