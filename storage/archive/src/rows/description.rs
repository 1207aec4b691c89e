//! Description of an archived part, stored with its files. It has all data that another database needs to read the
//! files.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tideline_model::{TableName, TableSpec};

use super::GroupLocation;
use super::schema::RowColumn;
use crate::copy::ArchiveFile;
use crate::error::{ArchiveError, Result};
use crate::layout::DESCRIPTION_BYTES_MAX;

/// Format number of descriptions with [`values`](RowsDescription::values). Earlier builds refuse it: they would remove
/// the files of the values as unreferenced objects.
pub const FORMAT_WITH_VALUES: u32 = 2;

/// Description of a part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RowsDescription {
    /// Format number: [`FORMAT`](crate::FORMAT), or [`FORMAT_WITH_VALUES`].
    pub format: u32,
    /// Table of the part.
    pub table: TableName,
    /// Settings of the table when the files were written.
    pub spec: TableSpec,
    /// Number of the part in its table.
    pub number: i32,
    /// Name of the part.
    pub name: String,
    /// Data of the store about the part.
    pub detail: serde_json::Value,
    /// Columns of the files.
    pub columns: Vec<RowColumn>,
    /// Files in the order of their keys.
    pub files: Vec<ArchiveFile>,
    /// Row groups in the order of their keys.
    pub groups: Vec<DescribedGroup>,
    /// Number of streamed large values of the rows whose contents are in no file. 0 if an early build, which did not
    /// count them, wrote the description.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub streamed_values: u64,
    /// Files with the contents of streamed large values; `None` without such files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<DescribedValues>,
}

/// Streamed large values of a part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DescribedValues {
    /// Files in the order of the ids of the values.
    pub files: Vec<ArchiveFile>,
    /// Groups of pieces in the order of their keys.
    pub groups: Vec<DescribedGroup>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "called by serde")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Row group of a part.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DescribedGroup {
    /// Last key of the group, in base64.
    pub last: String,
    /// Location of the group.
    #[serde(flatten)]
    pub location: GroupLocation,
}

impl DescribedGroup {
    /// Creates a group with the last key of its rows.
    pub fn new(last: &[u8], location: GroupLocation) -> Self {
        Self {
            last: STANDARD.encode(last),
            location,
        }
    }

    /// Returns the last key; `None` if it is not valid.
    pub fn last_key(&self) -> Option<Vec<u8>> {
        STANDARD.decode(&self.last).ok()
    }
}

impl RowsDescription {
    /// Returns the files of streamed values.
    pub fn value_files(&self) -> &[ArchiveFile] {
        self.values.as_ref().map_or(&[], |values| &values.files)
    }

    /// Returns the files of rows and the files of streamed values.
    pub fn all_files(&self) -> impl Iterator<Item = &ArchiveFile> {
        self.files.iter().chain(self.value_files())
    }

    pub(super) fn encode(&self) -> Result<Bytes> {
        let content = serde_json::to_vec(self)
            .map_err(|error| ArchiveError::format("the description of a part", error))?;
        match content.len() as u64 > DESCRIPTION_BYTES_MAX {
            true => Err(ArchiveError::format(
                "the description of a part",
                format!(
                    "it has {} bytes; the limit is {DESCRIPTION_BYTES_MAX}",
                    content.len()
                ),
            )),
            false => Ok(content.into()),
        }
    }

    /// Decodes a description; on error, returns a human-readable reason.
    pub(super) fn decode(content: &[u8]) -> std::result::Result<Self, String> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let version: Version = serde_json::from_slice(content).map_err(|error| error.to_string())?;
        if ![crate::FORMAT, FORMAT_WITH_VALUES].contains(&version.format) {
            return Err(format!("format {} is not known to this build", version.format));
        }
        serde_json::from_slice(content).map_err(|error| error.to_string())
    }
}
