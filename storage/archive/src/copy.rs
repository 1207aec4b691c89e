//! What is kept about the files of a segment: in the manifest, and beside the files.

use serde::{Deserialize, Serialize};

/// The files of one segment: everything that is needed to read and to check them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveCopy {
    /// The target, as the table's policy names it.
    pub target: String,
    /// Files of points, in the order that extents count in.
    pub files: Vec<ArchiveFile>,
    /// The file that says where each timeline is, and what it is.
    pub timelines: ArchiveFile,
    /// The name of the object that describes all of this; empty until it is written.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sidecar: String,
    /// Whose files they are, of a segment that another database wrote; `None` of what this one wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<Attached>,
}

/// Whose the files are of a segment that another database wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attached {
    /// Still that one's, or nobody's: they are never removed from here.
    Foreign,
    /// This one's from now on.
    Owned,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveFile {
    /// The name of the object below the target.
    pub key: String,
    /// Its size.
    pub bytes: u64,
    /// SHA-256 of its bytes, in hexadecimal.
    pub sha256: String,
    /// Where in it begins what readers need first: page indexes and footer.
    pub index_from: u64,
    /// SHA-256 of its bytes from there on; empty in what earlier builds have described.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub index_sha256: String,
    /// Its rows.
    pub rows: u64,
    /// The first instant in it.
    pub first: i64,
    /// The last instant in it.
    pub last: i64,
    /// Whether small measurements share it: a row for each value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

impl ArchiveCopy {
    /// The names of all its objects, the description last.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let files = self.files.iter().map(|file| file.key.as_str());
        let own = [self.timelines.key.as_str(), self.sidecar.as_str()];
        files.chain(own).filter(|key| !key.is_empty())
    }

    /// The same in the order in which they are removed.
    pub fn newest_first(&self) -> impl Iterator<Item = &str> {
        let files = self.files.iter().rev().map(|file| file.key.as_str());
        let own = [self.sidecar.as_str(), self.timelines.key.as_str()].into_iter();
        own.chain(files).filter(|key| !key.is_empty())
    }

    /// Whether its files may be removed when nothing here needs them any more.
    pub fn is_owned(&self) -> bool {
        self.attached != Some(Attached::Foreign)
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        let files = self.files.iter().chain([&self.timelines]);
        files.fold(0, |sum, file| sum.saturating_add(file.bytes))
    }
}
