//! Deserialization that distinguishes a `null` member from a missing one.

use serde::{Deserialize, Deserializer};

/// Deserializes a member used with `#[serde(default, deserialize_with = "present")]`: missing = `None`, `null` =
/// `Some(None)`.
pub(crate) fn present<'de, T, D>(deserializer: D) -> Result<Option<Option<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::deserialize(deserializer).map(Some)
}
