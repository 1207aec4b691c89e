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
    /// The names of all its objects.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let files = self.files.iter().map(|file| file.key.as_str());
        let own = [self.timelines.key.as_str(), self.sidecar.as_str()];
        files.chain(own).filter(|key| !key.is_empty())
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        let files = self.files.iter().chain([&self.timelines]);
        files.fold(0, |sum, file| sum.saturating_add(file.bytes))
    }
}

/// What a description says of the files of its segment; in words why it says nothing.
pub(crate) fn described(content: &[u8]) -> Result<ArchiveCopy, String> {
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    #[derive(Deserialize)]
    struct Description {
        archive: ArchiveCopy,
    }
    let version: Version = serde_json::from_slice(content).map_err(|error| error.to_string())?;
    if version.format != crate::FORMAT {
        return Err(format!("format {} is not known to this build", version.format));
    }
    let description: Description = serde_json::from_slice(content).map_err(|error| error.to_string())?;
    Ok(description.archive)
}
