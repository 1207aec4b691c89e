//! Lists of a segment that are too long for its manifest row: its files, and the descriptions that it replaces.
//!
//! The size of a manifest row is limited, but a segment may have any number of files. A short list is stored in the
//! row. A long list is written with the segment, in a separate bucket, and the row stores its length and checksum. A
//! long file list is read on demand and cached.

use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tideline_archive::{ArchiveCopy, Attached, PagedList};
use tideline_backend::{
    Backend, BackendError, Direction, MANIFEST_ROW_BYTES_MAX, Partition, Row, SegmentRef,
};
use tideline_key_codec::{LISTS_BUCKET, SegmentList, list_key, list_pages};
use tideline_model::SegmentId;

use crate::error::{Result, StoreError};
use crate::manifest::{Segment, SegmentFiles};
use crate::shared::Shared;

/// Maximum size in bytes of the file list in a manifest row: about forty files.
const FILES_IN_ROW_BYTES: usize = 16 << 10;
/// Maximum size in bytes of the names of replaced descriptions in a manifest row: about ninety names.
const NAMES_IN_ROW_BYTES: usize = 8 << 10;
/// Maximum number of files in the cached lists of all segments: about 16 MiB. A single longer list is cached as well.
const CACHED_FILES_MAX: usize = 40_000;

/// Bytes of a manifest row that remain for other members if the lists of a segment and of its copy have their maximum
/// sizes.
const ROW_REST: usize = MANIFEST_ROW_BYTES_MAX - 2 * (FILES_IN_ROW_BYTES + NAMES_IN_ROW_BYTES);

/// Cache of recently read file lists.
#[derive(Debug, Default)]
pub(crate) struct FileLists(Mutex<Cached>);

#[derive(Debug, Default)]
struct Cached {
    lists: HashMap<(SegmentId, Option<Attached>), (Arc<ArchiveCopy>, u64)>,
    files: usize,
    uses: u64,
}

impl FileLists {
    fn get(&self, key: (SegmentId, Option<Attached>)) -> Option<Arc<ArchiveCopy>> {
        let mut cached = self.0.lock();
        cached.uses += 1;
        let uses = cached.uses;
        let (copy, used) = cached.lists.get_mut(&key)?;
        *used = uses;
        Some(Arc::clone(copy))
    }

    fn keep(&self, key: (SegmentId, Option<Attached>), copy: &Arc<ArchiveCopy>) {
        let mut cached = self.0.lock();
        cached.uses += 1;
        let uses = cached.uses;
        cached.files += copy.files.len();
        if let Some((before, _)) = cached.lists.insert(key, (Arc::clone(copy), uses)) {
            cached.files -= before.files.len();
        }
        while cached.files > CACHED_FILES_MAX && cached.lists.len() > 1 {
            let oldest = cached.lists.iter().min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = oldest.map(|(key, _)| *key) else {
                return;
            };
            if let Some((gone, _)) = cached.lists.remove(&oldest) {
                cached.files -= gone.files.len();
            }
        }
    }

    /// Removes the lists of a segment that no longer exists.
    fn forget(&self, id: SegmentId) {
        let mut cached = self.0.lock();
        let gone = cached.lists.extract_if(|(of, _), _| *of == id);
        let files: usize = gone.map(|(_, (copy, _))| copy.files.len()).sum();
        cached.files -= files;
    }
}

/// Encodes a list as pages if it is too long for the row; `None` if it fits.
fn paged<T: Serialize>(items: &[T], in_row_bytes: usize) -> Option<(PagedList, Vec<Bytes>)> {
    let (list, pages) = PagedList::encode(items);
    let bytes: usize = pages.iter().map(Bytes::len).sum();
    (bytes > in_row_bytes).then_some((list, pages))
}

fn rows(list: SegmentList, pages: Vec<Bytes>) -> impl Iterator<Item = tideline_backend::Result<Row>> {
    (0u32..).zip(pages).map(move |(page, value)| {
        Ok(Row {
            key: Bytes::copy_from_slice(&list_key(list, page)),
            value,
        })
    })
}

/// Reads a list of a segment.
pub(crate) fn read<T: DeserializeOwned>(
    backend: &dyn Backend,
    segment: SegmentRef,
    list: SegmentList,
    stored: &PagedList,
) -> Result<Vec<T>> {
    let partition = Partition::segment(segment, LISTS_BUCKET);
    let mut range = list_pages(list);
    let limit = backend.capabilities().page_advice;
    let mut pages = Vec::new();
    loop {
        let page = backend.scan(partition, &range, Direction::Ascending, limit)?;
        pages.extend(page.rows.into_iter().map(|row| row.value));
        match page.next {
            Some(next) => range = next,
            None => break,
        }
    }
    stored.decode(&pages).map_err(|error| StoreError::StoredRow {
        what: "list of a segment",
        reason: format!("segment {}: {error}", segment.segment.0),
    })
}

/// Returns the complete description of the files of a segment.
pub(crate) fn files(
    backend: &dyn Backend,
    segment: SegmentRef,
    files: &SegmentFiles,
) -> Result<Arc<ArchiveCopy>> {
    let (copy, list) = files.row();
    let Some(list) = list else {
        return Ok(Arc::clone(copy));
    };
    Ok(Arc::new(ArchiveCopy {
        files: read(backend, segment, SegmentList::Files, &list.pages)?,
        ..ArchiveCopy::clone(copy)
    }))
}

impl Shared {
    /// Writes the lists of a segment that are too long for its row. Returns the segment as it is stored in the
    /// manifest. `files` are the files of an archive segment and the time at which they were written.
    pub(crate) fn load_lists(&self, segment: Segment, files: Option<(ArchiveCopy, i64)>) -> Result<Segment> {
        let mut segment = segment;
        let mut loaded = Vec::new();
        if let Some((copy, now)) = files {
            let files = match paged(&copy.files, FILES_IN_ROW_BYTES) {
                Some((list, pages)) => {
                    loaded.extend(rows(SegmentList::Files, pages));
                    SegmentFiles::listed(copy, list)
                }
                None => SegmentFiles::in_row(copy),
            };
            segment = segment.in_files(files, now);
        }
        if let Some((list, pages)) = paged(&segment.replaces, NAMES_IN_ROW_BYTES) {
            loaded.extend(rows(SegmentList::Replaces, pages));
            segment.replaces = Vec::new();
            segment.replaces_list = Some(list);
        }
        if !loaded.is_empty() {
            self.backend
                .load(segment.reference(), LISTS_BUCKET, &mut loaded.into_iter())?;
        }
        Ok(segment)
    }

    /// Checks that the manifest row of a segment fits its limit without the lists, before anything is written for
    /// the segment.
    pub(crate) fn check_row(&self, segment: &Segment) -> Result<()> {
        let mut bare = segment.clone();
        bare.replaces = Vec::new();
        let bytes = serde_json::to_vec(&bare).map_or(usize::MAX, |row| row.len());
        if bytes > ROW_REST {
            return Err(BackendError::TooLarge {
                what: "manifest row of a segment without its lists",
                limit: ROW_REST,
                actual: bytes,
            }
            .into());
        }
        Ok(())
    }

    /// Returns the complete description of the files of a segment; `None` if it has no files.
    pub(crate) fn files_of(&self, segment: &Segment) -> Result<Option<Arc<ArchiveCopy>>> {
        let Some(stored) = &segment.archive else {
            return Ok(None);
        };
        self.files_at(segment.reference(), stored).map(Some)
    }

    /// Returns the same as [`files_of`](Self::files_of), but also for a segment that is no longer in the manifest.
    pub(crate) fn files_at(&self, location: SegmentRef, stored: &SegmentFiles) -> Result<Arc<ArchiveCopy>> {
        if let Some(copy) = stored.whole() {
            return Ok(Arc::clone(copy));
        }
        let key = (location.segment, stored.attached());
        if let Some(copy) = self.file_lists.get(key) {
            return Ok(copy);
        }
        let copy = files(self.backend.as_ref(), location, stored)?;
        self.file_lists.keep(key, &copy);
        Ok(copy)
    }

    /// Reads the files like [`files_at`](Self::files_at), but without caching, for scans of all segments.
    pub(crate) fn read_files(&self, location: SegmentRef, stored: &SegmentFiles) -> Result<Arc<ArchiveCopy>> {
        files(self.backend.as_ref(), location, stored)
    }

    /// Returns the names of the descriptions that a segment replaces; see [`Segment::replaces`].
    pub(crate) fn replaces_of(&self, segment: &Segment) -> Result<Vec<String>> {
        match &segment.replaces_list {
            None => Ok(segment.replaces.clone()),
            Some(list) => read(
                self.backend.as_ref(),
                segment.reference(),
                SegmentList::Replaces,
                list,
            ),
        }
    }

    /// Removes cached lists of a segment that no longer exists.
    pub(crate) fn forget_lists(&self, id: SegmentId) {
        self.file_lists.forget(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy_of(files: usize) -> Arc<ArchiveCopy> {
        let file = r#"{"key":"k","bytes":1,"sha256":"","index_from":0,"rows":0,"first":0,"last":0}"#;
        let listed = vec![file; files].join(",");
        let copy = format!(r#"{{"target":"t","files":[{listed}],"timelines":{file}}}"#);
        Arc::new(serde_json::from_str(&copy).expect("well-formed"))
    }

    #[test]
    fn lists_in_memory_stay_within_their_budget_and_the_last_one_stays() {
        let lists = FileLists::default();
        let (small, large) = (copy_of(CACHED_FILES_MAX / 4), copy_of(CACHED_FILES_MAX * 2));
        for id in 1..=6 {
            lists.keep((SegmentId(id), None), &small);
            lists.get((SegmentId(1), None));
        }
        let known = |id: u64| lists.get((SegmentId(id), None)).is_some();
        assert!(known(1) && !known(2) && !known(3) && known(6));
        assert_eq!(lists.0.lock().files, CACHED_FILES_MAX);
        lists.keep((SegmentId(7), None), &large);
        assert!(known(7) && !known(1));
        lists.forget(SegmentId(7));
        assert_eq!((known(7), lists.0.lock().files), (false, 0));
    }
}
