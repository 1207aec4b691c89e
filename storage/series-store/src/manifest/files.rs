//! Files of a segment as stored in its manifest row.
//!
//! A row has a size limit, so a long file list is stored separately with the segment. The types of this module hide
//! this difference.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tideline_archive::{ArchiveCopy, Attached, PagedList};

/// Files of a segment. A short list is stored in the row, a long one with the extents of the segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentFiles {
    /// Row content. Its file list is empty if the files are in a separate list.
    copy: Arc<ArchiveCopy>,
    list: Option<FilesList>,
}

/// File list that is not in the row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesList {
    /// Pages of the list.
    #[serde(flatten)]
    pub pages: PagedList,
    /// Total bytes of all listed files.
    pub bytes: u64,
}

impl SegmentFiles {
    /// Creates the files of a segment whose list is stored in the row.
    pub fn in_row(copy: ArchiveCopy) -> Self {
        Self {
            copy: Arc::new(copy),
            list: None,
        }
    }

    /// Creates the files of a segment whose list is stored separately.
    pub fn listed(copy: ArchiveCopy, pages: PagedList) -> Self {
        let bytes = copy.files.iter().map(|file| file.bytes);
        let bytes = bytes.fold(0, u64::saturating_add);
        Self {
            list: Some(FilesList { pages, bytes }),
            copy: Arc::new(ArchiveCopy {
                files: Vec::new(),
                ..copy
            }),
        }
    }

    pub(super) fn from_row(copy: ArchiveCopy, list: Option<FilesList>) -> Self {
        Self {
            copy: Arc::new(copy),
            list,
        }
    }

    /// Returns the content of the row and the separate list.
    pub(crate) fn row(&self) -> (&Arc<ArchiveCopy>, Option<&FilesList>) {
        (&self.copy, self.list.as_ref())
    }

    /// Returns the complete description if all files are in the row; `None` if their list is stored separately.
    pub fn whole(&self) -> Option<&Arc<ArchiveCopy>> {
        self.list.is_none().then_some(&self.copy)
    }

    /// Returns the target by name or address, as in the policy of the table.
    pub fn target(&self) -> &str {
        &self.copy.target
    }

    /// Returns the name of the description.
    pub fn sidecar(&self) -> &str {
        &self.copy.sidecar
    }

    /// Returns the name of the timelines file.
    pub fn timelines(&self) -> &str {
        &self.copy.timelines.key
    }

    /// Returns the ownership of files that another database wrote; `None` for files of this database.
    pub fn attached(&self) -> Option<Attached> {
        self.copy.attached
    }

    /// Returns true if the files may be removed when this database no longer needs them.
    pub fn is_owned(&self) -> bool {
        self.copy.is_owned()
    }

    /// Returns the number of files, including the timelines file.
    pub fn count(&self) -> u64 {
        let listed = self.list.as_ref().map(|list| list.pages.items);
        listed.unwrap_or(self.copy.files.len() as u64) + 1
    }

    /// Returns the total bytes of all files.
    pub fn bytes(&self) -> u64 {
        let listed = self.list.as_ref().map_or(0, |list| list.bytes);
        self.copy.bytes().saturating_add(listed)
    }

    /// Returns the same files, marked as owned by another database.
    pub(crate) fn disowned(&self) -> Self {
        Self {
            copy: Arc::new(ArchiveCopy {
                attached: Some(Attached::Foreign),
                ..ArchiveCopy::clone(&self.copy)
            }),
            list: self.list.clone(),
        }
    }
}
