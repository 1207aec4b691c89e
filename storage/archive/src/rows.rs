//! Archived rows of wide tables: one part of a table as Parquet files, whose row groups are read one by one.
//!
//! The streamed values of the rows are in separate files of the same form, with one row per piece of a value.
//!
//! The rows of a part are in the order of their stored keys, across all files. The database stores the
//! [location](GroupLocation) of each row group under its last key, so a read needs one request per group and no footer.
//! Every group is verified with its checksum before it is decoded.
//!
//! | module | holds |
//! |---|---|
//! | [`schema`] | columns of the files |
//! | [`group`] | rows of a group, column by column |
//! | `encode` | encoding of columns as Parquet column chunks |
//! | [`write`] | writing of groups to verified files |
//! | `read` | reading of groups |
//! | [`description`] | description of a part, stored with its files |

pub mod description;
mod encode;
pub mod group;
mod read;
pub mod schema;
pub mod write;

use serde::{Deserialize, Serialize};
use tideline_model::TableName;

use crate::error::Result;
use crate::layout::{self, DIGITS};
use crate::{Archive, SentObjects, Verified};

pub use description::{DescribedGroup, DescribedValues, FORMAT_WITH_VALUES, RowsDescription};
pub use group::{GroupColumn, GroupValues, JoinedBytes, RowGroup};
pub use schema::{RowColumn, RowColumnKind, RowSchema};
pub use write::{RowsWriter, WrittenRows};

/// Part of a wide table to be written, and its target.
#[derive(Debug, Clone)]
pub struct PartTarget {
    /// Digits that identify the writing database, because several databases may share a target.
    pub origin: String,
    /// Table of the part.
    pub table: TableName,
    /// Name of the part, such as `2026-11`.
    pub name: String,
    /// Number of this copy of the part, unique in the database.
    pub part: u64,
    /// Name or address of the target.
    pub target: String,
}

impl PartTarget {
    fn stem(&self, sha256: &str) -> String {
        format!("{}-{}-{}", self.origin, self.part, &sha256[..DIGITS])
    }

    /// Returns the name of a file of rows.
    pub(crate) fn file_key(&self, sha256: &str) -> String {
        layout::rows_key(&self.table, &self.name, &self.stem(sha256))
    }

    /// Returns the name of a file of streamed values.
    pub(crate) fn values_key(&self, sha256: &str) -> String {
        layout::values_key(&self.table, &self.stem(sha256))
    }

    /// Returns the name of the description.
    pub(crate) fn description_key(&self, sha256: &str) -> String {
        layout::part_description_key(&self.table, &self.stem(sha256))
    }
}

/// Location of a row group in a file, with everything that is needed to decode it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupLocation {
    /// Index of the file.
    pub file: u32,
    /// Number of rows.
    pub rows: u32,
    /// Offset of the group in the file, in bytes.
    pub start: u64,
    /// Size in bytes.
    pub bytes: u32,
    /// CRC-32 of the bytes.
    pub checksum: u32,
    /// Location of each column of the schema.
    pub columns: Vec<ColumnLocation>,
}

/// Location of a column within its row group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnLocation {
    /// Offset of the dictionary page from the start of the group; `None` without a dictionary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dictionary: Option<u32>,
    /// Offset of the first data page from the start of the group.
    pub data: u32,
    /// Size in bytes.
    pub bytes: u32,
}

impl Archive {
    /// Starts writing the files of a part.
    ///
    /// # Errors
    ///
    /// Fails if the target is not valid or not allowed.
    pub fn rows_writer(&self, part: PartTarget, schema: RowSchema) -> Result<RowsWriter> {
        self.check_allowed(&part.target)?;
        let target = self.target(&part.target)?;
        Ok(RowsWriter::new(part, target, schema, PartTarget::file_key))
    }

    /// Starts writing the files of the streamed values of a part. The names of all objects that are put are added to
    /// `sent`.
    ///
    /// # Errors
    ///
    /// The errors of [`rows_writer`](Self::rows_writer).
    pub fn values_writer(
        &self,
        part: PartTarget,
        schema: RowSchema,
        sent: &SentObjects,
    ) -> Result<RowsWriter> {
        self.check_allowed(&part.target)?;
        let target = self.target(&part.target)?;
        Ok(RowsWriter::new(part, target, schema, PartTarget::values_key).recording(sent))
    }

    /// Writes the description of a part and returns its object name. This is the last step, after which the files are
    /// valid. The name is recorded in `sent` before the object is put.
    ///
    /// # Errors
    ///
    /// Fails if the target is not valid or fails, and if the description is larger than 128 MiB.
    pub fn describe_rows(
        &self,
        part: &PartTarget,
        described: &RowsDescription,
        sent: &SentObjects,
    ) -> Result<String> {
        let content = described.encode()?;
        let key = part.description_key(&crate::digest::sha256_hex(&content));
        sent.note(&key);
        self.target(&part.target)?.put_new(&key, &content)?;
        Ok(key)
    }

    /// Reads the description of a part and verifies it with the checksum in its name.
    ///
    /// # Errors
    ///
    /// Fails if the target is not valid or cannot be reached. [`ArchiveError::Damaged`] if the object is not the
    /// description that was written, if it belongs to another table, or if it lists objects outside the folder of its
    /// part.
    pub fn rows_description(&self, target: &str, key: &str) -> Result<RowsDescription> {
        let opened = self.target(target)?;
        let content = opened.get(key, layout::DESCRIPTION_BYTES_MAX)?;
        if !layout::file_name(key).contains(&crate::digest::sha256_hex(&content)[..DIGITS]) {
            return Err(opened.damaged(key, "its checksum does not match"));
        }
        let decoded = RowsDescription::decode(&content);
        let described = decoded.map_err(|reason| opened.damaged(key, reason))?;
        if !key.starts_with(&layout::parts_prefix(&described.table)) {
            let reason = format!("it belongs to table {}", described.table);
            return Err(opened.damaged(key, reason));
        }
        let table = described.table.as_str();
        let is_of_part = |file: &crate::ArchiveFile| layout::is_rows_of(&file.key, table, &described.name);
        let is_of_values = |file: &crate::ArchiveFile| layout::is_values_of(&file.key, table);
        let mut of_rows = described.files.iter().filter(|file| !is_of_part(file));
        let mut of_values = described.value_files().iter().filter(|file| !is_of_values(file));
        match of_rows.next().or_else(|| of_values.next()) {
            Some(outside) => {
                let reason = format!("it lists {:?} outside the folder of its part", outside.key);
                Err(opened.damaged(key, reason))
            }
            None => Ok(described),
        }
    }

    /// Returns the sorted object names of the descriptions of parts at a target: of one table, or of all tables if
    /// `table` is `None`. Costs one listing.
    ///
    /// # Errors
    ///
    /// Fails if the target is not valid or cannot be reached.
    pub fn part_descriptions(&self, target: &str, table: Option<&TableName>) -> Result<Vec<String>> {
        let under = table.map_or_else(String::new, layout::parts_prefix);
        let listed = self.target(target)?.list(&under)?;
        let keys = listed.into_iter().map(|object| object.key);
        let mut keys: Vec<String> = keys.filter(|key| layout::is_part_description(key)).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    /// Returns the name of the first of the files that is missing, or whose size differs from the recorded size; `None`
    /// if all files exist with the right size. Reads no content.
    ///
    /// # Errors
    ///
    /// Fails if the target is not valid or cannot be reached.
    pub fn missing_rows<'f>(
        &self,
        target: &str,
        files: impl Iterator<Item = &'f crate::ArchiveFile>,
    ) -> Result<Option<String>> {
        self.first_missing(target, files.map(|file| (file.key.as_str(), Some(file.bytes))))
    }

    /// Returns the parts of wide tables that are described at a target, with the object names of their descriptions.
    /// Needs no database. The entry of a damaged description is an error.
    ///
    /// # Errors
    ///
    /// Fails if the target is not valid or cannot be reached.
    pub fn described_rows(&self, target: &str) -> Result<Vec<(String, Result<RowsDescription>)>> {
        let keys = self.part_descriptions(target, None)?;
        let read = |key: String| match self.rows_description(target, &key) {
            Err(error) if error.is_retryable() => Err(error),
            described => Ok((key, described)),
        };
        keys.into_iter().map(read).collect()
    }

    /// Reads a file of a part and compares it with its recorded size, checksum and number of rows.
    ///
    /// # Errors
    ///
    /// Fails if the target is not valid or cannot be reached. [`ArchiveError::Damaged`] if the file is not the one that
    /// was written.
    pub fn verify_rows_file(&self, target: &str, file: &crate::ArchiveFile) -> Result<()> {
        crate::send::verify_file(&*self.target(target)?, file)
    }

    /// Reads every file of a part and compares it with its recorded size, checksum and number of rows. Compares the
    /// description with the checksum in its name. Ends after the first error that a retry may fix; the remaining
    /// objects count as unread.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::BadTarget`] if the target is not valid. Objects that cannot be read are part of the result.
    pub fn verify_rows<'f>(
        &self,
        target: &str,
        description: &str,
        files: impl Iterator<Item = &'f crate::ArchiveFile>,
    ) -> Result<Verified> {
        self.verify_objects(target, files, Some(description))
    }
}
