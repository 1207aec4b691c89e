//! Every object at a target, by name, and the names that finished descriptions give.

use std::collections::HashSet;

use crate::Archive;
use crate::error::Result;
use crate::layout::{self, ObjectContent};

/// An object at a target that a database has written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetObject {
    /// Its name below the target.
    pub key: String,
    /// Its size.
    pub bytes: u64,
    /// When it was written, by the target's clock: nanoseconds since the epoch.
    pub modified: i64,
    /// The folder of its table.
    pub table: String,
    /// Kind of its content.
    pub content: ObjectContent,
    /// The database that wrote it.
    pub origin: String,
    /// The segment that it was written for; of settings their revision.
    pub number: u64,
}

/// Names that the descriptions of a database give.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DescribedKeys {
    /// The descriptions that read back, and everything that they name.
    pub keys: HashSet<String>,
    /// Descriptions that are cut short or damaged, and why.
    pub broken: Vec<(String, String)>,
}

impl Archive {
    /// Every object at a target that has a name which a database gives.
    ///
    /// # Errors
    ///
    /// Where the target fails.
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

    /// Reads descriptions, and gathers what they name.
    ///
    /// # Errors
    ///
    /// Where the target cannot be reached.
    pub fn described_keys<'k>(
        &self,
        target: &str,
        descriptions: impl IntoIterator<Item = &'k str>,
    ) -> Result<DescribedKeys> {
        let mut described = DescribedKeys::default();
        for key in descriptions {
            match self.description(target, key) {
                Ok(description) => {
                    let keys = description.archive.keys().map(str::to_owned);
                    described.keys.extend(keys);
                }
                Err(error) if error.is_missing() => {}
                Err(error) if error.is_retryable() => return Err(error),
                Err(error) => described.broken.push((key.to_owned(), error.to_string())),
            }
        }
        Ok(described)
    }
}
