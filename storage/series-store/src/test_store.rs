//! Test fixture: a store over the memory backend, for tests that need the internal state.

use std::sync::Arc;

use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_chunk::NewTimeline;
use tideline_model::{Clock, TableId, TimelineId};

use crate::recovery::Recovery;
use crate::settings::Settings;
use crate::store::{SeriesStore, TimelineDirectory};

/// Directory of a store whose timelines have no names.
struct Unnamed;

impl TimelineDirectory for Unnamed {
    fn adopt(&self, _table: TableId, _timeline: &NewTimeline) -> Result<(), String> {
        Ok(())
    }

    fn made_durable(&self, _table: TableId, _timelines: &[NewTimeline]) {}

    fn removed(&self, _table: TableId, _ids: &[TimelineId]) {}
}

/// Opens a new store.
pub(crate) fn open(clock: Arc<dyn Clock>) -> SeriesStore {
    let backend = Arc::new(MemoryBackend::open(&MemoryDisk::new(Character::Embedded)));
    let recovery = Recovery::begin(backend, clock, Settings::default()).expect("the store begins to open");
    let (store, _) = recovery.finish(Arc::new(Unnamed)).expect("the store opens");
    store
}
