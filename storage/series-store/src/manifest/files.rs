//! The files of a segment as its manifest row has them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tideline_archive::{ArchiveCopy, Attached, PagedList};

/// The files of a segment: few are in its row, many in a list that is stored with its extents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentFiles {
    /// Without files of points, where those are in a list.
    copy: Arc<ArchiveCopy>,
    list: Option<FilesList>,
}

/// A list of files that is not in the row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesList {
    /// The pages of the list.
    #[serde(flatten)]
    pub pages: PagedList,
    /// Bytes of all listed files.
    pub bytes: u64,
}

impl SegmentFiles {
    /// Files that are all in the row.
    pub fn in_row(copy: ArchiveCopy) -> Self {
        Self {
            copy: Arc::new(copy),
            list: None,
        }
    }

    /// Files of points that are in a list.
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

    /// Contents of the row, and the separate list.
    pub(crate) fn row(&self) -> (&Arc<ArchiveCopy>, Option<&FilesList>) {
        (&self.copy, self.list.as_ref())
    }

    /// Everything about the files, where the row has all of them.
    pub fn whole(&self) -> Option<&Arc<ArchiveCopy>> {
        self.list.is_none().then_some(&self.copy)
    }

    /// The target, as the table's policy names it.
    pub fn target(&self) -> &str {
        &self.copy.target
    }

    /// The name of the description.
    pub fn sidecar(&self) -> &str {
        &self.copy.sidecar
    }

    /// The name of the file of timelines.
    pub fn timelines(&self) -> &str {
        &self.copy.timelines.key
    }

    /// Owner of the files of a segment that another database wrote; `None` for own files.
    pub fn attached(&self) -> Option<Attached> {
        self.copy.attached
    }

    /// Whether the files may be removed when nothing here needs them any more.
    pub fn is_owned(&self) -> bool {
        self.copy.is_owned()
    }

    /// Files, that of the timelines included.
    pub fn count(&self) -> u64 {
        let listed = self.list.as_ref().map(|list| list.pages.items);
        listed.unwrap_or(self.copy.files.len() as u64) + 1
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        let listed = self.list.as_ref().map_or(0, |list| list.bytes);
        self.copy.bytes().saturating_add(listed)
    }

    /// The same as files of another database.
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
