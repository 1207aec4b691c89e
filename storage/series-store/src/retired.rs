//! Segments that are out of the manifest, until nobody reads them any more.
//!
//! A reader pins the manifest of one moment, and may hold it over many edits. A segment is free when every manifest
//! that names it is gone: not only the last one before the edit that took it out.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tideline_archive::ArchiveCopy;
use tideline_backend::SegmentRef;

use crate::manifest::{ManifestState, Segment, SegmentFiles};

/// The retired segments of a store.
#[derive(Debug, Default)]
pub(crate) struct Retired(Mutex<State>);

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

#[derive(Debug, Default)]
struct State {
    /// Manifests that an edit has replaced and that somebody may still hold.
    replaced: Vec<Weak<ManifestState>>,
    /// The version of the first manifest without them, and segments.
    waiting: Vec<(u64, Vec<Gone>)>,
}

impl Retired {
    /// Begins with segments that no manifest names: what a crash left of a load.
    pub(crate) fn new(orphans: Vec<SegmentRef>) -> Self {
        let gone = |place| Gone { place, files: None };
        let waiting = vec![(0, orphans.into_iter().map(gone).collect())];
        Self(Mutex::new(State {
            replaced: Vec::new(),
            waiting,
        }))
    }

    /// Takes note of a manifest that is not the current one any more.
    pub(crate) fn replaced(&self, manifest: &Arc<ManifestState>) {
        self.0.lock().replaced.push(Arc::downgrade(manifest));
    }

    /// Adds segments that manifests name no more from `version` on.
    pub(crate) fn add(&self, version: u64, segments: Vec<Gone>) {
        self.0.lock().waiting.push((version, segments));
    }

    /// Hands out what nobody can be reading any more.
    pub(crate) fn take_free(&self) -> Vec<Gone> {
        let mut state = self.0.lock();
        state.replaced.retain(|manifest| manifest.strong_count() > 0);
        let held = state.replaced.iter().filter_map(Weak::upgrade);
        let oldest = held.map(|manifest| manifest.version).min();
        let is_free = |version: u64| oldest.is_none_or(|oldest| oldest >= version);
        let free = state.waiting.extract_if(.., |(version, _)| is_free(*version));
        free.flat_map(|(_, segments)| segments).collect()
    }

    /// The files of those that wait.
    pub(crate) fn files(&self) -> Vec<(SegmentRef, SegmentFiles)> {
        let state = self.0.lock();
        let waiting = state.waiting.iter().flat_map(|(_, segments)| segments);
        let files = waiting.filter_map(|gone| Some((gone.place, gone.files.clone()?)));
        files.collect()
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        let state = self.0.lock();
        state.waiting.iter().map(|(_, segments)| segments.len()).sum()
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
