//! Segments that are no longer in the manifest: their location in the backend and their files at targets.
//!
//! A segment is reclaimed when its last reader is done. Its files are removed afterwards, on threads that may wait for
//! the target.

use std::time::Duration;

use parking_lot::Mutex;
use tideline_archive::ArchiveCopy;
use tideline_backend::SegmentRef;

use crate::manifest::{Segment, SegmentFiles};

/// Files of removed segments, and of segments that were never published, that still have to be removed at their
/// targets. No reader uses these files.
#[derive(Debug, Default)]
pub(crate) struct FilesToRemove(Mutex<Removal>);

/// Objects at a target that are no longer needed.
#[derive(Debug, Clone)]
pub(crate) struct ObjectsToRemove {
    /// Target as in the policy of the table.
    pub(crate) target: String,
    /// Object names, in the order of removal.
    pub(crate) keys: Vec<String>,
}

impl ObjectsToRemove {
    /// Returns the objects of a segment.
    pub(crate) fn of(files: &ArchiveCopy) -> Self {
        Self {
            target: files.target.clone(),
            keys: files.newest_first().map(str::to_owned).collect(),
        }
    }
}

/// Written segment whose edit had an unknown outcome. A later edit shows whether the manifest references the segment.
#[derive(Debug)]
pub(crate) struct InDoubt {
    /// Location of the segment in the backend.
    pub(crate) location: SegmentRef,
    /// Objects that were written for the segment.
    pub(crate) objects: Option<ObjectsToRemove>,
}

#[derive(Debug, Default)]
struct Removal {
    waiting: Vec<ObjectsToRemove>,
    /// Monotonic time of the next attempt.
    not_before: Duration,
}

impl FilesToRemove {
    /// Adds files.
    pub(crate) fn add(&self, files: ObjectsToRemove) {
        self.0.lock().waiting.push(files);
    }

    /// Takes the files of one segment; `None` if no files wait, or if the next attempt is not due yet.
    pub(crate) fn next(&self, now: Duration) -> Option<ObjectsToRemove> {
        let mut removal = self.0.lock();
        (now >= removal.not_before)
            .then(|| removal.waiting.pop())
            .flatten()
    }

    /// Puts back files that could not be removed. The next attempt is due at the monotonic time `not_before`.
    pub(crate) fn put_back(&self, files: ObjectsToRemove, not_before: Duration) {
        let mut removal = self.0.lock();
        removal.waiting.push(files);
        removal.not_before = not_before;
    }

    /// Returns all waiting files.
    pub(crate) fn all(&self) -> Vec<ObjectsToRemove> {
        self.0.lock().waiting.clone()
    }
}

/// Segment that is no longer in the manifest.
#[derive(Debug)]
pub(crate) struct RetiredSegment {
    /// Location in the backend.
    pub(crate) location: SegmentRef,
    /// Files, if this database owns them. Other files are not removed.
    pub(crate) files: Option<SegmentFiles>,
}

impl RetiredSegment {
    pub(crate) fn of(segment: &Segment) -> Self {
        Self {
            location: segment.reference(),
            files: segment.archive.clone().filter(|files| files.is_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(target: &str) -> ObjectsToRemove {
        ObjectsToRemove {
            target: target.into(),
            keys: vec!["k".into()],
        }
    }

    #[test]
    fn files_that_could_not_be_removed_wait_and_keep_the_others_waiting() {
        let waiting = FilesToRemove::default();
        waiting.add(files("a"));
        waiting.add(files("b"));
        let now = Duration::from_secs(5);
        let tried = waiting.next(now).expect("one of two");
        waiting.put_back(tried, now + Duration::from_secs(300));
        assert!(waiting.next(now).is_none() && waiting.next(now + Duration::from_secs(299)).is_none());
        assert_eq!(waiting.all().len(), 2);
        let later = now + Duration::from_secs(300);
        assert!(waiting.next(later).is_some() && waiting.next(later).is_some());
        assert!(waiting.next(later).is_none());
    }
}
