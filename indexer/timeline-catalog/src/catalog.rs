//! The catalog of one table: who gets which id and ordinal, and who is visible when.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tideline_key_codec::timeline_id;
use tideline_model::{Identity, Ordinal, TableId, TimelineId};

use crate::change::UnflushedBytes;
use crate::metadata::MetadataOfMetrics;
use crate::reader::CatalogReader;
use crate::searches::SavedSearches;
use crate::state::State;
use crate::store::WrittenRows;
use crate::symbols::Symbol;
use crate::{CatalogError, Result};

/// Longest stored form of an identity, in bytes. A term of the search index holds 65,530 bytes, and a tag of
/// its own length must fit there.
pub const IDENTITY_BYTES_MAX: usize = 60 << 10;
/// Timelines that are removed under one lock: a few milliseconds.
const REMOVED_GROUP: usize = 4_096;

/// The timelines of one table. All methods may be called from many threads.
///
/// Memory goes by the number of timelines: about 110 bytes each with ten tags of which one differs on every
/// machine, beside the cache of raw keys.
#[derive(Debug)]
pub struct Catalog {
    pub(crate) table: TableId,
    pub(crate) state: RwLock<State>,
    /// Held while rows are written, so that an older row never lands on a newer one; with what was written last. Taken before
    /// `state`. The committer of the log never waits for it.
    pub(crate) writing: Mutex<WrittenRows>,
    /// Held while attributes are edited, until the log answers. Taken before `state`.
    pub(crate) editing: Mutex<()>,
    pub(crate) unflushed: Arc<UnflushedBytes>,
    pub(crate) searches: SavedSearches,
    pub(crate) metadata: MetadataOfMetrics,
}

/// What a catalog is opened with.
#[derive(Debug, Clone, Default)]
pub struct CatalogOptions {
    /// Tags that name the machine, first present wins.
    pub source_tags: Vec<String>,
    /// Budget of the cache of raw keys, in bytes: a key costs its length and about 20 bytes.
    pub raw_key_cache_bytes: usize,
    /// Counts what the journal alone says, of all catalogs that are written out together.
    pub unflushed: Arc<UnflushedBytes>,
}

/// What became of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registered {
    /// The timeline's dense number.
    pub ordinal: Ordinal,
    /// Its id.
    pub id: TimelineId,
    /// Whether it was not known before.
    pub new: bool,
}

impl Catalog {
    /// An empty catalog. [`Catalog::load`] opens one that has rows.
    pub fn new(table: TableId, options: CatalogOptions) -> Self {
        let CatalogOptions {
            source_tags,
            raw_key_cache_bytes,
            unflushed,
        } = options;
        Self {
            table,
            state: RwLock::new(State::new(source_tags, raw_key_cache_bytes)),
            writing: Mutex::default(),
            editing: Mutex::new(()),
            unflushed,
            searches: SavedSearches::new(table),
            metadata: MetadataOfMetrics::new(table),
        }
    }

    /// The table.
    pub fn table(&self) -> TableId {
        self.table
    }

    /// The conditions that people gave a name.
    pub fn searches(&self) -> &SavedSearches {
        &self.searches
    }

    /// What senders say of metrics.
    pub fn metadata(&self) -> &MetadataOfMetrics {
        &self.metadata
    }

    /// Sorts all names, which the first list of each would otherwise do; for the time after a start. One tag after the
    /// other: registrations wait for one of them at most.
    pub fn sort_names(&self) {
        let keys: Vec<Symbol> = {
            let state = self.state.read();
            state.names.measurements.sort(&state.symbols);
            state.names.tags.keys().copied().collect()
        };
        for key in keys {
            let state = self.state.read();
            if let Some(tag) = state.names.tags.get(&key) {
                tag.values.sort(&state.symbols);
            }
        }
    }

    /// Takes the lock for a batch of look-ups; see [`CatalogReader`] for what to beware of.
    pub fn reader(&self) -> CatalogReader<'_> {
        CatalogReader {
            state: self.state.read(),
        }
    }

    /// Visible timelines.
    pub fn len(&self) -> u64 {
        self.state.read().visible.len()
    }

    /// Whether no timeline is visible.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Resident bytes, estimated from the sizes of all parts.
    pub fn memory_bytes(&self) -> usize {
        self.state.read().memory_bytes()
    }

    /// Timelines that were ever registered, and the resident bytes of their names and tags. The cost grows with the number of
    /// different sets of names.
    pub fn identity_bytes(&self) -> (u64, u64) {
        let state = self.state.read();
        (state.registered(), state.identity_bytes() as u64)
    }

    /// Replaces the source tags, which is possible until the first timeline is registered.
    pub fn set_source_tags(&self, source_tags: Vec<String>) -> Result<()> {
        let mut state = self.state.write();
        if !state.is_untouched() && state.source_tags != source_tags {
            return Err(CatalogError::SourceTagsFixed);
        }
        state.source_tags = source_tags;
        Ok(())
    }

    /// Finds or adds a timeline, and remembers `raw_key` for [`CatalogReader::by_key`].
    ///
    /// 1. The id is derived from source, identity and salt 0.
    /// 2. Where a timeline with that id is another one (the hashes clash), the next salt is tried.
    /// 3. A free id is taken, with the next ordinal.
    ///
    /// A new timeline is invisible until it is [`announced`](Catalog::announced).
    pub fn register(&self, identity: &Identity, raw_key: Option<&[u8]>) -> Result<Registered> {
        let bytes = encoded(identity)?;
        self.insert(identity, &bytes, raw_key)
    }

    /// As [`register`](Self::register), but a timeline that is not known is taken only where `admit` says so; `None`
    /// when it does not.
    ///
    /// `admit` is handed the tags whose value no visible timeline bears yet. It is called with the lock held for
    /// reading: it must not call the catalog. Two threads that bring the same timeline may both be asked.
    pub fn register_admitted(
        &self,
        identity: &Identity,
        raw_key: Option<&[u8]>,
        admit: impl FnOnce(&[(&str, &str)]) -> bool,
    ) -> Result<Option<Registered>> {
        let bytes = encoded(identity)?;
        {
            let state = self.state.read();
            if state.find(identity, &bytes)?.is_none() {
                let tags = borrowed(identity.tags());
                let novel: Vec<(&str, &str)> = tags.filter(|(key, value)| !state.bears(key, value)).collect();
                if !admit(&novel) {
                    return Ok(None);
                }
            }
        }
        self.insert(identity, &bytes, raw_key).map(Some)
    }

    fn insert(&self, identity: &Identity, bytes: &[u8], raw_key: Option<&[u8]>) -> Result<Registered> {
        let mut state = self.state.write();
        let registered = state.find_or_insert(identity, bytes)?;
        if let Some(raw_key) = raw_key {
            state.raw_keys.insert(raw_key, registered.ordinal);
        }
        Ok(registered)
    }

    /// Makes timelines visible: a delta that carries their identities has been committed. May be repeated.
    pub fn announced(&self, ordinals: &[Ordinal]) {
        let mut state = self.state.write();
        for ordinal in ordinals {
            state.announce(*ordinal);
        }
    }

    /// Takes a timeline from a committed delta of the journal, and makes it visible.
    ///
    /// The same id and ordinal may come any number of times, also after its row was loaded. Another ordinal for
    /// a known id, another id for a known ordinal, or another identity is a [`CatalogError::Conflict`].
    pub fn adopt(&self, id: TimelineId, ordinal: Ordinal, identity: &[u8]) -> Result<()> {
        let identity = Identity::decode(identity)?;
        let mut state = self.state.write();
        match state.ordinal_of(id) {
            Some(known) if known == ordinal && state.is_identity(known, &identity) => {}
            Some(_) => return Err(CatalogError::Conflict { id, ordinal }),
            None => state.insert(id, ordinal, identity.measurement(), borrowed(identity.tags()))?,
        }
        state.announce(ordinal);
        Ok(())
    }

    /// Takes timelines out, with their attributes: a delete that says so has been committed. At once they are neither
    /// visible nor counted, and [`CatalogReader::needs_announcement`] holds again. Unknown ones are passed over.
    ///
    /// Their rows wait for [`save_removals`](Self::save_removals). Costs about a microsecond a timeline.
    pub fn remove(&self, ids: &[TimelineId]) {
        self.each_removed(ids, |state, ordinal| state.edits.withdraw(ordinal));
    }

    /// As [`remove`](Self::remove), for a removal that is found in the journal at the start.
    ///
    /// Attributes that the journal said before go. A row that was read may be one of before the removal or one of after
    /// it, for a timeline that came back: since rows of before are deleted before a removal is answered, attributes that
    /// only a row says stay with a timeline that the journal brings back. [`replayed`](Self::replayed) takes those of the
    /// others.
    pub fn remove_replayed(&self, ids: &[TimelineId]) {
        self.each_removed(ids, |state, ordinal| state.edits.forget_confirmed(ordinal));
    }

    /// The journal has been replayed to its end: what has been removed and has not come back loses its attributes.
    pub fn replayed(&self) {
        let mut state = self.state.write();
        state.edits.loaded();
        let gone = &state.outdated - &state.visible;
        for ordinal in gone {
            state.edits.withdraw(Ordinal(ordinal));
        }
    }

    fn each_removed(&self, ids: &[TimelineId], follow: impl Fn(&mut State, Ordinal)) {
        for group in ids.chunks(REMOVED_GROUP) {
            let mut state = self.state.write();
            for id in group {
                if let Some(ordinal) = state.ordinal_of(*id)
                    && state.unannounce(ordinal)
                {
                    follow(&mut state, ordinal);
                }
            }
        }
    }

    /// Visible timelines with a durable row, at least.
    pub fn saved(&self) -> u64 {
        let state = self.state.read();
        state.visible.len() - state.visible.intersection_len(&state.unsaved)
    }

    /// Timelines whose row is not yet as durable as they are: announced ones without a row, removed ones with one.
    pub fn unsaved(&self) -> u64 {
        let state = self.state.read();
        (&state.unsaved | &state.outdated).len()
    }
}

impl State {
    fn find_or_insert(&mut self, identity: &Identity, bytes: &[u8]) -> Result<Registered> {
        let (id, known) = self.place(identity, bytes)?;
        if let Some(ordinal) = known {
            let new = false;
            return Ok(Registered { ordinal, id, new });
        }
        let ordinal = self.free_ordinal();
        self.insert(id, ordinal, identity.measurement(), borrowed(identity.tags()))?;
        let new = true;
        Ok(Registered { ordinal, id, new })
    }

    fn find(&self, identity: &Identity, bytes: &[u8]) -> Result<Option<Ordinal>> {
        Ok(self.place(identity, bytes)?.1)
    }

    /// The id of an identity, and its ordinal where it is known.
    fn place(&self, identity: &Identity, bytes: &[u8]) -> Result<(TimelineId, Option<Ordinal>)> {
        let source = identity.source(&self.source_tags);
        for salt in 0..=u32::MAX {
            let id = timeline_id(source, bytes, salt);
            match self.ordinal_of(id) {
                Some(ordinal) if !self.is_identity(ordinal, identity) => {}
                known => return Ok((id, known)),
            }
        }
        Err(CatalogError::Full("ids for one hash"))
    }

    /// Whether a visible timeline bears this tag.
    fn bears(&self, key: &str, value: &str) -> bool {
        let tag = self.symbols.get(key).and_then(|key| self.names.tags.get(&key));
        let value = self.symbols.get(value);
        tag.zip(value)
            .is_some_and(|(tag, value)| tag.values.contains(value))
    }

    fn is_identity(&self, ordinal: Ordinal, identity: &Identity) -> bool {
        self.measurement(ordinal) == identity.measurement()
            && self.tags(ordinal).eq(borrowed(identity.tags()))
    }
}

fn encoded(identity: &Identity) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    identity.encode(&mut bytes);
    if bytes.len() > IDENTITY_BYTES_MAX {
        return Err(CatalogError::OverLimit {
            what: "bytes of measurement and tags",
            limit: IDENTITY_BYTES_MAX,
            actual: bytes.len(),
        });
    }
    Ok(bytes)
}

fn borrowed(tags: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> + Clone {
    tags.iter().map(|(key, value)| (key.as_str(), value.as_str()))
}

#[cfg(test)]
mod tests;
