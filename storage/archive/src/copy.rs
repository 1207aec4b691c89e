//! Metadata of the files of a segment, stored in the manifest and with the files.

use serde::{Deserialize, Serialize};

/// Files of one segment, with all data that is needed to read and verify them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveCopy {
    /// Name or address of the target.
    pub target: String,
    /// Files of points. Extents refer to them by index.
    pub files: Vec<ArchiveFile>,
    /// File of timelines, with the locations and identities of all timelines.
    pub timelines: ArchiveFile,
    /// Object name of the description; empty until it is written.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sidecar: String,
    /// Ownership of the files of a segment that another database wrote; `None` for segments of this database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<Attached>,
}

/// Ownership of the files of a segment that another database wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attached {
    /// The files are owned by the other database or by no database, and this database never removes them.
    Foreign,
    /// The ownership of the files has passed to this database.
    Owned,
}

/// Metadata of one archive file: name, size, checksums and content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveFile {
    /// Object name, relative to the target.
    pub key: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
    /// Offset of the page indexes and footer, which readers fetch first.
    pub index_from: u64,
    /// SHA-256 of the bytes from `index_from` on, in hexadecimal; empty in descriptions that earlier builds wrote.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub index_sha256: String,
    /// Number of rows.
    pub rows: u64,
    /// Earliest timestamp, nanoseconds since the epoch.
    pub first: i64,
    /// Latest timestamp, nanoseconds since the epoch.
    pub last: i64,
    /// True if small measurements share the file, with one row per value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

impl ArchiveCopy {
    /// Returns the object names of the segment, the description last.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let files = self.files.iter().map(|file| file.key.as_str());
        let own = [self.timelines.key.as_str(), self.sidecar.as_str()];
        files.chain(own).filter(|key| !key.is_empty())
    }

    /// Returns the object names of the segment in the order of removal: the description first.
    pub fn newest_first(&self) -> impl Iterator<Item = &str> {
        let files = self.files.iter().rev().map(|file| file.key.as_str());
        let own = [self.sidecar.as_str(), self.timelines.key.as_str()].into_iter();
        own.chain(files).filter(|key| !key.is_empty())
    }

    /// Returns true if this database may remove the files once it no longer needs them.
    pub fn is_owned(&self) -> bool {
        self.attached != Some(Attached::Foreign)
    }

    /// Returns the total size of the files of points and timelines in bytes, without the description.
    pub fn bytes(&self) -> u64 {
        let files = self.files.iter().chain([&self.timelines]);
        files.fold(0, |sum, file| sum.saturating_add(file.bytes))
    }
}
