//! Segments that are out of the manifest, until nobody reads them any more.
//!
//! A reader pins the manifest of one moment, and may hold it over many edits. A segment is free when every manifest
//! that names it is gone: not only the last one before the edit that took it out.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tideline_archive::ArchiveCopy;
use tideline_backend::SegmentRef;

use crate::manifest::{ManifestState, Segment};

/// The retired segments of a store.
#[derive(Debug, Default)]
pub(crate) struct Retired(Mutex<State>);

/// A segment that is out of the manifest.
#[derive(Debug)]
pub(crate) struct Gone {
    /// Where the backend keeps it.
    pub(crate) place: SegmentRef,
    /// Its files, of one that was archived.
    pub(crate) files: Option<Arc<ArchiveCopy>>,
}

impl Gone {
    pub(crate) fn of(segment: &Segment) -> Self {
        Self {
            place: segment.reference(),
            files: segment.archive.clone(),
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
    pub(crate) fn files(&self) -> Vec<Arc<ArchiveCopy>> {
        let state = self.0.lock();
        let waiting = state.waiting.iter().flat_map(|(_, segments)| segments);
        waiting.filter_map(|gone| gone.files.clone()).collect()
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        let state = self.0.lock();
        state.waiting.iter().map(|(_, segments)| segments.len()).sum()
    }
}
