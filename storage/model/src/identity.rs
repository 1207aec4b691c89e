//! Timeline identity: a measurement and tags.
//!
//! The stored form is canonical. It is therefore also the input of the hash in [`TimelineId`](crate::TimelineId).

/// Identity of a timeline: a measurement and tags. Tags are sorted by key; keys are unique; no key or value is empty.
///
/// A missing tag is equivalent to the empty string everywhere; therefore a tag cannot be empty.
///
/// # Stored form
///
/// The measurement, then key and value of each tag in order, each as `length: u32 little-endian ‖ UTF-8 bytes`. Two
/// identities are equal exactly if their stored bytes are equal, so this form is also the input of the hash.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    measurement: String,
    tags: Vec<(String, String)>,
}

/// Error of invalid parts of an identity, or of invalid stored bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The measurement is empty.
    #[error("missing measurement")]
    MissingMeasurement,
    /// A tag has an empty key or value.
    #[error("tag {0:?} has an empty key or value")]
    EmptyTag(String),
    /// A key occurs twice.
    #[error("duplicate tag {0:?}")]
    DuplicateTag(String),
    /// The stored bytes are truncated, have surplus bytes, or are not UTF-8.
    #[error("stored identity is damaged")]
    Damaged,
}

impl Identity {
    /// Creates an identity. Sorts the tags and validates them.
    ///
    /// # Errors
    ///
    /// Returns an error if the measurement is empty, a tag has an empty key or value, or a key occurs twice.
    ///
    /// # Examples
    ///
    /// ```
    /// use tideline_model::Identity;
    ///
    /// let tags = [("host", "web-1"), ("dc", "fra")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    /// let identity = Identity::new("cpu".to_owned(), tags.to_vec())?;
    /// assert_eq!(identity.tag("host"), Some("web-1"));
    /// assert_eq!(identity.tags()[0].0, "dc", "tags are sorted by key");
    ///
    /// let mut stored = Vec::new();
    /// identity.encode(&mut stored);
    /// assert_eq!(Identity::decode(&stored)?, identity);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(measurement: String, mut tags: Vec<(String, String)>) -> Result<Self, IdentityError> {
        if measurement.is_empty() {
            return Err(IdentityError::MissingMeasurement);
        }
        tags.sort_unstable();
        if let Some((key, _)) = tags
            .iter()
            .find(|(key, value)| key.is_empty() || value.is_empty())
        {
            return Err(IdentityError::EmptyTag(key.clone()));
        }
        if let Some(pair) = tags.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(IdentityError::DuplicateTag(pair[0].0.clone()));
        }
        Ok(Self { measurement, tags })
    }

    /// Returns the measurement.
    pub fn measurement(&self) -> &str {
        &self.measurement
    }

    /// Returns the tags, sorted by key.
    pub fn tags(&self) -> &[(String, String)] {
        &self.tags
    }

    /// Returns the value of a tag; `None` if the tag is missing.
    pub fn tag(&self, key: &str) -> Option<&str> {
        let at = self
            .tags
            .binary_search_by(|(have, _)| have.as_str().cmp(key))
            .ok()?;
        Some(&self.tags[at].1)
    }

    /// Returns the machine that this timeline belongs to: the value of the first of `source_tags` that is present;
    /// `None` if no tag is present.
    pub fn source<'a>(&'a self, source_tags: &[String]) -> Option<&'a str> {
        source_tags.iter().find_map(|key| self.tag(key))
    }

    /// Appends the stored form to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut put = |text: &str| {
            let length = u32::try_from(text.len()).expect("a tag is bounded by its request, far below 4 GiB");
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        };
        put(&self.measurement);
        for (key, value) in &self.tags {
            put(key);
            put(value);
        }
    }

    /// Decodes the stored form, which must fill `bytes`.
    ///
    /// # Errors
    ///
    /// Returns [`IdentityError::Damaged`] if `bytes` is not a stored form, and the errors of [`new`](Self::new) if its
    /// parts are not valid.
    pub fn decode(bytes: &[u8]) -> Result<Self, IdentityError> {
        let mut rest = bytes;
        let measurement = take_text(&mut rest)?;
        let mut tags = Vec::new();
        while !rest.is_empty() {
            tags.push((take_text(&mut rest)?, take_text(&mut rest)?));
        }
        Self::new(measurement, tags)
    }
}

/// Removes a text and its length from the front of `bytes`.
fn take_text(bytes: &mut &[u8]) -> Result<String, IdentityError> {
    let (length, rest) = bytes.split_first_chunk::<4>().ok_or(IdentityError::Damaged)?;
    let length = u32::from_le_bytes(*length) as usize;
    let (text, rest) = rest.split_at_checked(length).ok_or(IdentityError::Damaged)?;
    *bytes = rest;
    String::from_utf8(text.to_vec()).map_err(|_| IdentityError::Damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect()
    }

    #[test]
    fn the_stored_form_reads_back_and_ignores_the_order_of_tags() {
        let one = Identity::new("cpu".into(), tags(&[("host", "a"), ("dc", "x")])).expect("valid");
        let two = Identity::new("cpu".into(), tags(&[("dc", "x"), ("host", "a")])).expect("valid");
        let (mut first, mut second) = (Vec::new(), Vec::new());
        one.encode(&mut first);
        two.encode(&mut second);
        assert_eq!(first, second);
        assert_eq!(Identity::decode(&first), Ok(one.clone()));
        assert_eq!(
            Identity::decode(&first[..first.len() - 1]),
            Err(IdentityError::Damaged)
        );
        // The last tag has a key without a value. The second key is also not UTF-8.
        for key in [b"k", b"\xff"] {
            let damaged = [&1u32.to_le_bytes()[..], b"m", &1u32.to_le_bytes()[..], key].concat();
            assert_eq!(Identity::decode(&damaged), Err(IdentityError::Damaged));
        }
        assert_eq!(one.tag("host"), Some("a"));
        assert_eq!(one.source(&["instance".into(), "host".into()]), Some("a"));
    }

    #[test]
    fn broken_rules_are_named() {
        let duplicate = Identity::new("m".into(), tags(&[("a", "1"), ("a", "2")]));
        assert_eq!(duplicate, Err(IdentityError::DuplicateTag("a".into())));
        assert_eq!(
            Identity::new(String::new(), vec![]),
            Err(IdentityError::MissingMeasurement)
        );
        assert_eq!(
            Identity::new("m".into(), tags(&[("a", "")])),
            Err(IdentityError::EmptyTag("a".into()))
        );
    }
}
