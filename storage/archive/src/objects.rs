//! Listing of all objects at a target, and of the object names in descriptions.

use std::collections::HashSet;

use crate::Archive;
use crate::error::Result;
use crate::layout::{self, ObjectContent};

/// Archive object at a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetObject {
    /// Object name, relative to the target.
    pub key: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of writing by the clock of the target, in nanoseconds since the epoch.
    pub modified: i64,
    /// Folder of the table.
    pub table: String,
    /// Kind of the content.
    pub content: ObjectContent,
    /// Database that wrote the object.
    pub origin: String,
    /// Number of the segment, or revision of settings.
    pub number: u64,
}

/// Object names collected from descriptions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DescribedKeys {
    /// Object names of readable descriptions, and all object names that they list.
    pub keys: HashSet<String>,
    /// Object names of descriptions that are damaged or could not be read, each with the reason.
    pub broken: Vec<(String, String)>,
}

impl Archive {
    /// Returns all objects at a target whose names have the form of an archive object.
    ///
    /// # Errors
    ///
    /// Fails if the target is not valid or cannot be reached.
    pub fn objects(&self, target: &str) -> Result<Vec<TargetObject>> {
        let listed = self.target(target)?.list("")?;
        let object = |object: crate::Listed| {
            let named = layout::named(&object.key)?;
            Some(TargetObject {
                table: named.table.to_owned(),
                content: named.content,
                origin: named.origin.to_owned(),
                number: named.number,
                bytes: object.bytes,
                modified: object.modified,
                key: object.key,
            })
        };
        Ok(listed.into_iter().filter_map(object).collect())
    }

    /// Reads descriptions and collects the object names in them. Missing descriptions are skipped.
    ///
    /// # Errors
    ///
    /// Fails with the first error that a retry may fix, for example if the target cannot be reached. Other errors are
    /// part of the result.
    pub fn described_keys<'k>(
        &self,
        target: &str,
        descriptions: impl IntoIterator<Item = &'k str>,
    ) -> Result<DescribedKeys> {
        let mut described = DescribedKeys::default();
        for key in descriptions {
            match self.keys_in(target, key) {
                Ok(keys) => described.keys.extend(keys),
                Err(error) if error.is_missing() => {}
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => described.broken.push((key.to_owned(), error.to_string())),
            }
        }
        Ok(described)
    }

    /// Returns the object name of a description of a segment or a part, and all object names that it lists.
    fn keys_in(&self, target: &str, key: &str) -> Result<Vec<String>> {
        if layout::is_part_description(key) {
            let described = self.rows_description(target, key)?;
            let files = described.all_files().map(|file| file.key.clone());
            return Ok(files.chain([key.to_owned()]).collect());
        }
        let description = self.description(target, key)?;
        Ok(description.archive.keys().map(str::to_owned).collect())
    }
}
