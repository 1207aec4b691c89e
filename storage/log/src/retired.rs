//! Retired segments: no longer in the manifest, but possibly still read.
//!
//! A reader pins one version of the manifest and may hold it over many edits. A segment can be freed once all manifests
//! that reference it have been released, not only the last manifest before the edit that removed it.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Manifest that readers of a model can pin.
pub trait Versioned {
    /// Returns the version of the shard's manifest.
    fn version(&self) -> u64;
}

/// Segments that were removed from the manifests `M` of a model. `G` describes one segment.
#[derive(Debug)]
pub struct Retired<M, G>(Mutex<State<M, G>>);

#[derive(Debug)]
struct State<M, G> {
    /// Manifests that an edit has replaced and that readers may still hold.
    replaced: Vec<Weak<M>>,
    /// Removed segments, each list with the version of the first manifest without them.
    waiting: Vec<(u64, Vec<G>)>,
}

impl<M: Versioned, G> Retired<M, G> {
    /// Creates the list with segments that no manifest references, such as those of a load that a crash interrupted.
    pub fn new(orphans: Vec<G>) -> Self {
        Self(Mutex::new(State {
            replaced: Vec::new(),
            waiting: vec![(0, orphans)],
        }))
    }

    /// Records a manifest that is no longer the current one.
    pub fn replaced(&self, manifest: &Arc<M>) {
        self.0.lock().replaced.push(Arc::downgrade(manifest));
    }

    /// Adds segments that the manifests from `version` on do not contain.
    pub fn add(&self, version: u64, segments: Vec<G>) {
        self.0.lock().waiting.push((version, segments));
    }

    /// Removes and returns the segments that no reader can still use.
    pub fn take_free(&self) -> Vec<G> {
        let mut state = self.0.lock();
        state.replaced.retain(|manifest| manifest.strong_count() > 0);
        let held = state.replaced.iter().filter_map(Weak::upgrade);
        let oldest = held.map(|manifest| manifest.version()).min();
        let is_free = |version: u64| oldest.is_none_or(|oldest| oldest >= version);
        let free = state.waiting.extract_if(.., |(version, _)| is_free(*version));
        free.flat_map(|(_, segments)| segments).collect()
    }

    /// Applies `of` to each waiting segment, and returns the values that are not `None`.
    pub fn waiting<T>(&self, of: impl Fn(&G) -> Option<T>) -> Vec<T> {
        let state = self.0.lock();
        let waiting = state.waiting.iter().flat_map(|(_, segments)| segments);
        waiting.filter_map(of).collect()
    }

    /// Returns the number of waiting segments.
    pub fn count(&self) -> usize {
        let state = self.0.lock();
        state.waiting.iter().map(|(_, segments)| segments.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct At(u64);

    impl Versioned for At {
        fn version(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn a_segment_waits_for_the_last_reader_of_any_manifest_that_names_it() {
        let retired = Retired::new(vec!["orphan"]);
        assert_eq!(retired.take_free(), ["orphan"]);
        let manifests = [1, 2, 3].map(|version| Arc::new(At(version)));
        manifests.iter().for_each(|manifest| retired.replaced(manifest));
        let [one, two, three] = manifests;
        retired.add(3, vec!["out in 3"]);
        retired.add(4, vec!["out in 4"]);
        assert_eq!(retired.count(), 2);
        assert_eq!(retired.waiting(|segment| Some(segment.len())), [8, 8]);
        drop((two, three));
        assert!(retired.take_free().is_empty(), "the first manifest names both");
        drop(one);
        assert_eq!(retired.take_free(), ["out in 3", "out in 4"]);
    }
}
