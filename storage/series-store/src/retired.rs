//! What is left of segments that are out of the manifest: their place in the backend, their files at targets.

use std::time::Duration;

use parking_lot::Mutex;
use tideline_archive::ArchiveCopy;
use tideline_backend::SegmentRef;

use crate::manifest::{Segment, SegmentFiles};

/// Files of segments that nobody reads any more, until their target has removed them.
#[derive(Debug, Default)]
pub(crate) struct FilesToRemove(Mutex<Removal>);

/// Objects of a target that nothing needs any more.
#[derive(Debug, Clone)]
pub(crate) struct ObjectsToRemove {
    /// The target, as the table's policy named it.
    pub(crate) target: String,
    /// Their names, in the order in which they go.
    pub(crate) keys: Vec<String>,
}

impl ObjectsToRemove {
    /// The objects of a segment.
    pub(crate) fn of(files: &ArchiveCopy) -> Self {
        Self {
            target: files.target.clone(),
            keys: files.newest_first().map(str::to_owned).collect(),
        }
    }
}

/// A load whose edit had an unknown outcome: a later edit shows whether the manifest names it.
#[derive(Debug)]
pub(crate) struct InDoubt {
    /// The load.
    pub(crate) place: SegmentRef,
    /// Objects that were written for it.
    pub(crate) objects: Option<ObjectsToRemove>,
}

#[derive(Debug, Default)]
struct Removal {
    waiting: Vec<ObjectsToRemove>,
    /// On the monotonic clock: before it nothing is tried.
    not_before: Duration,
}

impl FilesToRemove {
    /// Adds files.
    pub(crate) fn add(&self, files: ObjectsToRemove) {
        self.0.lock().waiting.push(files);
    }

    /// Takes some, unless it is too early to try.
    pub(crate) fn next(&self, now: Duration) -> Option<ObjectsToRemove> {
        let mut removal = self.0.lock();
        (now >= removal.not_before)
            .then(|| removal.waiting.pop())
            .flatten()
    }

    /// Gives back what could not be removed, to be tried after an instant of the monotonic clock.
    pub(crate) fn put_back(&self, files: ObjectsToRemove, not_before: Duration) {
        let mut removal = self.0.lock();
        removal.waiting.push(files);
        removal.not_before = not_before;
    }

    /// All that wait.
    pub(crate) fn all(&self) -> Vec<ObjectsToRemove> {
        self.0.lock().waiting.clone()
    }
}

/// A segment that is out of the manifest.
#[derive(Debug)]
pub(crate) struct Gone {
    /// Where the backend keeps it.
    pub(crate) place: SegmentRef,
    /// Its files, of one that was archived here: those of others stay.
    pub(crate) files: Option<SegmentFiles>,
}

impl Gone {
    pub(crate) fn of(segment: &Segment) -> Self {
        Self {
            place: segment.reference(),
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
