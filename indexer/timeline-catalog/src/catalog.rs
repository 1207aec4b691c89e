//! The catalog of one table: assigns ids and ordinals to timelines and controls their visibility.
//!
//! This module implements registration, visibility, adoption from the journal, and removal. Attributes, rows and
//! lookups are in other modules.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use tideline_key_codec::timeline_id;
use tideline_model::{Identity, Ordinal, SearchAnalyzer, TableId, TimelineId};

use crate::change::UnflushedBytes;
use crate::change_log::ChangeLog;
use crate::metadata::MetadataOfMetrics;
use crate::raw_keys::RawKeyBudget;
use crate::reader::CatalogReader;
use crate::searches::SavedSearches;
use crate::state::State;
use crate::store::WrittenRows;
use crate::symbols::Symbol;
use crate::{CatalogError, Result};

/// Maximum length of the stored form of an identity, in bytes. A term of the search index holds at most 65,530 bytes,
/// and the longest tag of an identity must fit into one.
pub const IDENTITY_BYTES_MAX: usize = 60 << 10;
/// Number of timelines that are removed under one lock of the catalog. Removing them takes a few milliseconds.
const REMOVED_GROUP: usize = 4_096;

/// The timelines of one table. All methods are thread-safe.
///
/// Memory is proportional to the number of timelines. A timeline with ten tags takes about 110 bytes if only one tag
/// differs between machines. The raw key cache is not included.
#[derive(Debug)]
pub struct Catalog {
    pub(crate) table: TableId,
    pub(crate) state: RwLock<State>,
    /// Rows written by the last flush. The lock is held while rows are written, so that an older row never overwrites a
    /// newer one. Locked before `state`. The committer of the log never waits for this lock.
    pub(crate) writing: Mutex<WrittenRows>,
    /// True if the table was dropped, so that no rows are written any more. Used while `writing` is locked.
    pub(crate) is_dropped: AtomicBool,
    /// Held during an attribute edit, until the log has responded. Locked before `state`.
    pub(crate) editing: Mutex<()>,
    pub(crate) unflushed: Arc<UnflushedBytes>,
    /// Log of changed rows; empty if no other process reads it.
    pub(crate) change_log: OnceLock<Arc<ChangeLog>>,
    pub(crate) searches: SavedSearches,
    pub(crate) metadata: MetadataOfMetrics,
}

/// Options of a catalog.
#[derive(Debug, Clone, Default)]
pub struct CatalogOptions {
    /// Tag keys that identify the machine; the first one present applies.
    pub source_tags: Vec<String>,
    /// Budget of the raw key caches, shared by all catalogs of the process. A key costs its length plus 24 bytes.
    pub raw_key_budget: Arc<RawKeyBudget>,
    /// Counter of bytes that only the journal holds, shared by all catalogs that are flushed together.
    pub unflushed: Arc<UnflushedBytes>,
}

/// Result of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registered {
    /// Ordinal of the timeline: its dense number in the table.
    pub ordinal: Ordinal,
    /// Id of the timeline.
    pub id: TimelineId,
    /// True if the timeline was not registered before.
    pub new: bool,
}

impl Catalog {
    /// Creates an empty catalog. [`Catalog::load`] opens one from its rows.
    pub fn new(table: TableId, options: CatalogOptions) -> Self {
        let CatalogOptions {
            source_tags,
            raw_key_budget,
            unflushed,
        } = options;
        Self {
            table,
            state: RwLock::new(State::new(source_tags, raw_key_budget)),
            writing: Mutex::default(),
            is_dropped: AtomicBool::new(false),
            editing: Mutex::new(()),
            unflushed,
            change_log: OnceLock::new(),
            searches: SavedSearches::new(table),
            metadata: MetadataOfMetrics::new(table),
        }
    }

    /// Returns the id of the table.
    pub fn table(&self) -> TableId {
        self.table
    }

    /// Sets the log to which changed rows of timelines are written before they are written as rows. Has no effect if a
    /// log is set.
    pub fn log_changes(&self, log: Arc<ChangeLog>) {
        let _ = self.change_log.set(log);
    }

    /// Returns the saved searches.
    pub fn searches(&self) -> &SavedSearches {
        &self.searches
    }

    /// Returns the metadata of metrics.
    pub fn metadata(&self) -> &MetadataOfMetrics {
        &self.metadata
    }

    /// Sorts all measurements and tag values in advance, so that their first listing does not sort them. Call this
    /// after a start. Releases the lock after each tag key, so that a registration waits for one sort at most.
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

    /// Locks the catalog for a batch of lookups; see [`CatalogReader`] for its restrictions.
    pub fn reader(&self) -> CatalogReader<'_> {
        CatalogReader::new(self.state.read())
    }

    /// Returns the number of visible timelines.
    pub fn len(&self) -> u64 {
        self.state.read().visible.len()
    }

    /// Returns true if no timeline is visible.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the resident bytes, estimated from the sizes of all parts.
    pub fn memory_bytes(&self) -> usize {
        self.state.read().memory_bytes()
    }

    /// Returns the bytes of the texts and values that users store in the catalog in addition to timelines: attributes,
    /// saved searches and metadata of metrics. Attributes that several timelines share count once. The call is cheap.
    pub fn setting_bytes(&self) -> u64 {
        let attributes = self.state.read().edits.attribute_bytes();
        (attributes + self.metadata.bytes()) as u64 + self.searches.bytes()
    }

    /// Returns the number of ordinals, including unused ones below the highest, and the resident bytes of ids, names
    /// and tags. The time is proportional to the number of distinct combinations of measurement and tag keys.
    pub fn identity_bytes(&self) -> (u64, u64) {
        let state = self.state.read();
        (state.registered(), state.identity_bytes() as u64)
    }

    /// Replaces the source tags, which is possible until the first timeline is registered.
    ///
    /// # Errors
    ///
    /// [`CatalogError::SourceTagsFixed`] if a timeline is registered and the tags would change.
    pub fn set_source_tags(&self, source_tags: Vec<String>) -> Result<()> {
        let mut state = self.state.write();
        if !state.is_untouched() && state.source_tags != source_tags {
            return Err(CatalogError::SourceTagsFixed);
        }
        state.source_tags = source_tags;
        Ok(())
    }

    /// Replaces the analyzers of text attributes, by attribute key. Later searches use them. The caller must also
    /// notify the search index, because it holds the words of the previous analyzers.
    pub fn set_analyzers(&self, analyzers: BTreeMap<String, SearchAnalyzer>) {
        self.state.write().analyzers = Arc::new(analyzers);
    }

    /// Finds or adds a timeline, and caches `raw_key` for [`CatalogReader::by_key`].
    ///
    /// 1. The id is derived from source, identity and salt 0.
    /// 2. If another timeline has that id (a hash collision), the next salt is tried.
    /// 3. If the id is free, it is assigned together with a free ordinal.
    ///
    /// A new timeline is invisible until [`mark_durable`](Catalog::mark_durable).
    ///
    /// # Errors
    ///
    /// [`CatalogError::OverLimit`] if the identity is longer than [`IDENTITY_BYTES_MAX`], [`CatalogError::Full`] if a
    /// 32-bit number space is exhausted.
    ///
    /// # Examples
    ///
    /// ```
    /// use tideline_model::{Identity, TableId};
    /// use tideline_timeline_catalog::{Catalog, CatalogOptions};
    ///
    /// let catalog = Catalog::new(TableId(1), CatalogOptions::default());
    /// let identity = Identity::new("cpu".to_owned(), vec![("host".to_owned(), "web-1".to_owned())])?;
    /// let registered = catalog.register(&identity, None)?;
    /// assert!(registered.new);
    /// assert_eq!(catalog.len(), 0, "the timeline is not visible yet");
    ///
    /// // After the journal holds the identity:
    /// catalog.mark_durable(&[registered.ordinal]);
    /// assert_eq!(catalog.reader().by_id(registered.id), Some(registered.ordinal));
    /// assert!(!catalog.register(&identity, None)?.new);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn register(&self, identity: &Identity, raw_key: Option<&[u8]>) -> Result<Registered> {
        let bytes = encoded(identity)?;
        self.insert(identity, &bytes, raw_key)
    }

    /// Registers a timeline like [`register`](Self::register), but adds a new timeline only if `admit` returns true.
    /// Returns `None` if `admit` returns false.
    ///
    /// The argument of `admit` is the list of tags that no visible timeline has yet. `admit` is called while the read
    /// lock is held, so it must not call the catalog. It may be called more than once for a timeline if several threads
    /// register it concurrently.
    ///
    /// # Errors
    ///
    /// The errors of [`register`](Self::register).
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

    /// Makes timelines visible after a delta with their identities is committed. Idempotent.
    pub fn mark_durable(&self, ordinals: &[Ordinal]) {
        let mut state = self.state.write();
        for ordinal in ordinals {
            state.set_durable(*ordinal);
        }
    }

    /// Adds a timeline from a committed journal delta, and makes it visible.
    ///
    /// Repeating an id with the same ordinal and identity has no effect on a visible timeline, even if the
    /// timeline was loaded from its row.
    ///
    /// # Errors
    ///
    /// [`CatalogError::Identity`] if `identity` cannot be decoded. [`CatalogError::Conflict`] if the id is known with
    /// another ordinal or identity, or if the ordinal is assigned to another id. [`CatalogError::Full`] if a 32-bit
    /// number space is exhausted.
    pub fn adopt(&self, id: TimelineId, ordinal: Ordinal, identity: &[u8]) -> Result<()> {
        let identity = Identity::decode(identity)?;
        let mut state = self.state.write();
        match state.ordinal_of(id) {
            Some(known) if known == ordinal && state.is_identity(known, &identity) => {}
            Some(_) => return Err(CatalogError::Conflict { id, ordinal }),
            None => state.insert(id, ordinal, identity.measurement(), borrowed(identity.tags()))?,
        }
        state.set_durable(ordinal);
        Ok(())
    }

    /// Removes timelines and their attributes after the delete is committed. From then on they are neither visible
    /// nor counted, and [`CatalogReader::needs_identity`] returns true for them. Unknown and invisible
    /// timelines are ignored.
    ///
    /// Their rows remain until [`save_removals`](Self::save_removals). Costs about a microsecond per timeline.
    pub fn remove(&self, ids: &[TimelineId]) {
        self.each_removed(ids, |state, ordinal| state.edits.withdraw(ordinal));
    }

    /// Removes timelines like [`remove`](Self::remove), for a removal that is replayed from the journal at the start.
    ///
    /// Attributes from earlier journal entries are dropped. Attributes that only a loaded row holds are kept if a later
    /// journal entry makes the timeline visible again: older rows are deleted before a removal is acknowledged, so the
    /// row was written after the removal. [`replayed`](Self::replayed) removes the attributes of all other removed
    /// timelines, whose rows may be older than the removal.
    pub fn remove_replayed(&self, ids: &[TimelineId]) {
        self.each_removed(ids, |state, ordinal| state.edits.forget_confirmed(ordinal));
    }

    /// Ends the replay of the journal. Removed timelines that did not become visible again lose their attributes.
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
                    && state.hide(ordinal)
                {
                    follow(&mut state, ordinal);
                }
            }
        }
    }

    /// Marks rows as possibly missing, so that the next [`write_rows`](Self::write_rows) writes them.
    ///
    /// A standby reads changes of rows before the rows are written, so the rows of
    /// [`TimelinesAhead::in_doubt`](crate::TimelinesAhead::in_doubt) may be missing. Called after the replay of the
    /// journal, and before the first write of rows.
    pub fn doubt_rows(&self, ids: &[TimelineId]) {
        let mut state = self.state.write();
        for id in ids {
            if let Some(ordinal) = state.ordinal_of(*id)
                && state.visible.contains(ordinal.0)
            {
                state.set_unsaved(ordinal);
            }
        }
    }

    /// Returns a lower bound of the number of visible timelines with a durable row.
    pub fn saved(&self) -> u64 {
        let state = self.state.read();
        state.visible.len() - state.visible.intersection_len(&state.unsaved)
    }

    /// Returns the number of timelines whose row is not up to date: visible timelines without a current row, and
    /// removed timelines that may still have a row.
    pub fn unsaved(&self) -> u64 {
        let state = self.state.read();
        (&state.unsaved | &state.outdated).len()
    }
}

impl State {
    fn find_or_insert(&mut self, identity: &Identity, bytes: &[u8]) -> Result<Registered> {
        let (id, known) = self.locate(identity, bytes)?;
        if let Some(ordinal) = known {
            let new = false;
            return Ok(Registered { ordinal, id, new });
        }
        let ordinal = self.free_ordinal();
        self.insert(id, ordinal, identity.measurement(), borrowed(identity.tags()))?;
        let new = true;
        Ok(Registered { ordinal, id, new })
    }

    pub(crate) fn find(&self, identity: &Identity, bytes: &[u8]) -> Result<Option<Ordinal>> {
        Ok(self.locate(identity, bytes)?.1)
    }

    /// Returns the id of an identity, and its ordinal if the timeline is registered.
    fn locate(&self, identity: &Identity, bytes: &[u8]) -> Result<(TimelineId, Option<Ordinal>)> {
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

    /// Returns true if a visible timeline has this tag.
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

pub(crate) fn encoded(identity: &Identity) -> Result<Vec<u8>> {
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
