//! Read access to many timelines under one lock.
//!
//! A [`CatalogReader`] holds the read lock of the catalog for a batch of lookups, so that the hot path of a write
//! locks once per batch. An [`Entry`] gives access to one visible timeline. For the reader of a
//! [`CatalogSubset`](crate::CatalogSubset), the timelines outside of the subset are not visible.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLockReadGuard;
use roaring::RoaringBitmap;
use tideline_model::{Identity, Ordinal, SearchAnalyzer, TimelineId};

use crate::attributes::Attributes;
use crate::catalog::encoded;
use crate::error::CatalogError;
use crate::names::{self, CountedName, NameCounts, NameRef, NameSelection};
use crate::raw_keys::LastKey;
use crate::state::{Stage, State};
use crate::subset::Members;
use crate::types::{CountedKey, TypeCounts};
use crate::value::AttributeRef;

/// Read lock of the catalog for a batch of lookups.
///
/// While a reader exists, registrations wait, and while a registration waits, new readers wait too. Keep a reader for
/// milliseconds only, never create a second one of the same catalog on the same thread, and drop it before any other
/// call on the catalog.
#[derive(Debug)]
pub struct CatalogReader<'a> {
    pub(crate) state: RwLockReadGuard<'a, State>,
    /// Timelines that are visible to this reader; `None` = all visible timelines.
    members: Option<RwLockReadGuard<'a, Members>>,
}

impl<'a> CatalogReader<'a> {
    pub(crate) fn new(state: RwLockReadGuard<'a, State>) -> Self {
        let members = None;
        Self { state, members }
    }

    /// Creates the reader of a subset, whose members must be up to date.
    pub(crate) fn of_subset(
        state: RwLockReadGuard<'a, State>,
        members: RwLockReadGuard<'a, Members>,
    ) -> Self {
        let members = Some(members);
        Self { state, members }
    }

    /// Returns the counts of the names of the visible timelines.
    pub(crate) fn names(&self) -> &NameCounts {
        self.members
            .as_ref()
            .map_or(&self.state.names, |members| &members.names)
    }
}

impl CatalogReader<'_> {
    /// Returns the timeline that was registered with these raw key bytes.
    ///
    /// `None` means only that the key is not in the cache. Costs one comparison if the key followed `last` before,
    /// otherwise also a hash. If the key is found, `last` is set to it.
    pub fn by_key(&self, raw: &[u8], last: &mut LastKey) -> Option<Ordinal> {
        self.state.raw_keys.get(raw, last)
    }

    /// Returns the timeline whose raw key probably follows `last`, if `is_it` returns true for that key; `last` is then
    /// set to that key. Otherwise returns `None`.
    pub fn guess(&self, is_it: impl FnOnce(&[u8]) -> bool, last: &mut LastKey) -> Option<Ordinal> {
        self.state.raw_keys.guess(is_it, last)
    }

    /// Returns the id of a timeline, visible or not.
    ///
    /// # Panics
    ///
    /// Panics if the ordinal is above all assigned ordinals. The id of an unused ordinal below them has no meaning.
    pub fn id(&self, ordinal: Ordinal) -> TimelineId {
        self.state.id(ordinal)
    }

    /// Returns the visible timeline with this id; `None` if no visible timeline has it.
    pub fn by_id(&self, id: TimelineId) -> Option<Ordinal> {
        let ordinal = self.state.ordinal_of(id)?;
        self.visible().contains(ordinal.0).then_some(ordinal)
    }

    /// Returns the visible timeline with this identity; `None` if no visible timeline has it. Costs two hashes of the
    /// identity.
    ///
    /// # Errors
    ///
    /// [`CatalogError::OverLimit`](crate::CatalogError::OverLimit) if the identity is too long.
    pub fn by_identity(&self, identity: &Identity) -> Result<Option<Ordinal>, CatalogError> {
        let found = self.state.find(identity, &encoded(identity)?)?;
        Ok(found.filter(|ordinal| self.visible().contains(ordinal.0)))
    }

    /// Returns true if a delta that uses this timeline must carry its identity, because the timeline is new or was
    /// removed.
    pub fn needs_identity(&self, ordinal: Ordinal) -> bool {
        self.state.stage(ordinal) == Stage::Registered
    }

    /// Returns the timeline with this id if a delta that uses it must carry its identity; otherwise `None`.
    pub fn not_durable(&self, id: TimelineId) -> Option<Ordinal> {
        let ordinal = self.state.ordinal_of(id)?;
        self.needs_identity(ordinal).then_some(ordinal)
    }

    /// Appends the stored form of a timeline's identity ([`tideline_model::Identity`]), visible or not.
    ///
    /// # Panics
    ///
    /// Panics if the ordinal is above all assigned ordinals. The identity of an unused ordinal below them has no
    /// meaning.
    pub fn encode_identity(&self, ordinal: Ordinal, out: &mut Vec<u8>) {
        let mut put = |text: &str| {
            // The length fits 32 bits, because registration limits it.
            out.extend_from_slice(&(text.len() as u32).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        };
        put(self.state.measurement(ordinal));
        for (key, value) in self.state.tags(ordinal) {
            put(key);
            put(value);
        }
    }

    /// Returns the value of a tag of a timeline, visible or not; `None` if it is missing.
    ///
    /// # Panics
    ///
    /// Panics if the ordinal is above all assigned ordinals. The tags of an unused ordinal below them have no meaning.
    pub fn tag(&self, ordinal: Ordinal, key: &str) -> Option<&str> {
        self.state.tag(ordinal, key)
    }

    /// Returns the tag keys that identify the machine; the first one present applies.
    pub fn source_tags(&self) -> &[String] {
        &self.state.source_tags
    }

    /// Returns the analyzers of text attributes, by attribute key.
    pub fn analyzers(&self) -> &Arc<BTreeMap<String, SearchAnalyzer>> {
        &self.state.analyzers
    }

    /// Returns the entry of a timeline; `None` if the timeline is not visible.
    pub fn entry(&self, ordinal: Ordinal) -> Option<Entry<'_>> {
        let visible = self.visible().contains(ordinal.0);
        visible.then_some(Entry::new(&self.state, ordinal))
    }

    /// Returns the entry of a visible, registered or removed timeline; `None` if the ordinal is unused. A removed
    /// timeline has no attributes.
    pub fn known_entry(&self, ordinal: Ordinal) -> Option<Entry<'_>> {
        let known = self.state.stage(ordinal) != Stage::Absent;
        known.then_some(Entry::new(&self.state, ordinal))
    }

    /// Returns the visible, registered or removed timeline with this id; `None` if no such timeline has it.
    pub fn known_by_id(&self, id: TimelineId) -> Option<Ordinal> {
        self.state.ordinal_of(id)
    }

    /// Returns the ordinals of all visible timelines.
    pub fn visible(&self) -> &RoaringBitmap {
        self.members
            .as_ref()
            .map_or(&self.state.visible, |members| &members.visible)
    }

    /// Returns the number of the newest attribute edit. It can be lower after a restart, if the timelines of the
    /// newest edits were removed.
    pub fn edit_counter(&self) -> u64 {
        self.state.edits.newest()
    }

    /// Returns the highest edit counter that a follower may persist across a restart.
    ///
    /// It is lower than [`edit_counter`](Self::edit_counter) while the outcome of an edit is unknown: after a restart
    /// that edit may turn out to be in the journal.
    pub fn settled_edits(&self) -> u64 {
        self.state.edits.settled()
    }

    /// Iterates over the visible timelines with an edit after counter value `counter`, in the order of their last
    /// edit. Losing attributes through a removal counts as an edit.
    pub fn edits_since(&self, counter: u64) -> impl Iterator<Item = Ordinal> {
        let edits = self.state.edits.since(counter);
        edits.filter(|ordinal| self.visible().contains(ordinal.0))
    }

    /// Iterates like [`edits_since`](Self::edits_since), with the counter value of each edit.
    pub fn numbered_edits_since(&self, counter: u64) -> impl Iterator<Item = (u64, Ordinal)> {
        let edits = self.state.edits.numbered_since(counter);
        edits.filter(|(_, ordinal)| self.visible().contains(ordinal.0))
    }

    /// Returns the id of a visible, registered or removed timeline; `None` if the ordinal is unused.
    pub fn known_id(&self, ordinal: Ordinal) -> Option<TimelineId> {
        let known = self.state.stage(ordinal) != Stage::Absent;
        known.then(|| self.state.id(ordinal))
    }

    /// Returns the selected measurements in byte order.
    pub fn measurements(&self, selection: &NameSelection<'_>) -> Vec<CountedName> {
        self.names().measurements.select(&self.state.symbols, selection)
    }

    /// Returns the selected tag keys in byte order.
    pub fn tag_keys(&self, selection: &NameSelection<'_>) -> Vec<CountedName> {
        let counts = self.names().tags.iter();
        names::select(
            &self.state.symbols,
            counts.map(|(key, tag)| (*key, tag.timelines())),
            selection,
        )
    }

    /// Returns the selected values of a tag key in byte order; empty if no timeline has the key.
    ///
    /// Costs one lookup per returned value. The first call also sorts all values: about 10 ms for 200,000.
    pub fn tag_values(&self, key: &str, selection: &NameSelection<'_>) -> Vec<CountedName> {
        let key = self.state.symbols.get(key);
        let Some(tag) = key.and_then(|key| self.names().tags.get(&key)) else {
            return Vec::new();
        };
        tag.values.select(&self.state.symbols, selection)
    }

    /// Returns the number of visible timelines with this tag.
    pub fn timelines_with_tag(&self, key: &str, value: &str) -> u64 {
        let symbols = &self.state.symbols;
        let tag = symbols.get(key).and_then(|key| self.names().tags.get(&key));
        let value = symbols.get(value);
        tag.zip(value).map_or(0, |(tag, value)| tag.values.count(value))
    }

    /// Returns the number of visible timelines with this measurement.
    pub fn timelines_of_measurement(&self, name: &str) -> u64 {
        let symbol = self.state.symbols.get(name);
        symbol.map_or(0, |name| self.names().measurements.count(name))
    }

    /// Returns true if a visible timeline has this measurement.
    pub fn has_measurement(&self, name: &str) -> bool {
        let symbol = self.state.symbols.get(name);
        symbol.is_some_and(|name| self.names().measurements.contains(name))
    }

    /// Returns true if a visible timeline has this tag key.
    pub fn has_tag_key(&self, key: &str) -> bool {
        let symbol = self.state.symbols.get(key);
        symbol.is_some_and(|key| self.names().tags.contains_key(&key))
    }

    /// Returns true if a visible timeline has an attribute with this key. The reader of a subset visits its timelines.
    pub fn has_attribute_key(&self, key: &str) -> bool {
        let symbol = self.state.symbols.get(key);
        let Some(key) = symbol.filter(|key| self.state.edits.types.has(*key)) else {
            return false;
        };
        self.members.as_ref().is_none_or(|members| {
            let mut edited = members
                .visible
                .iter()
                .filter_map(|ordinal| self.state.edits.of(Ordinal(ordinal)));
            edited.any(|edited| edited.attributes.get(key).is_some())
        })
    }

    /// Iterates over all measurements and their timeline counts in byte order.
    pub fn measurement_counts(&self) -> impl Iterator<Item = (NameRef<'_>, u32)> {
        self.names().measurements.in_order(&self.state.symbols)
    }

    /// Iterates over all values of a tag key and their timeline counts in byte order.
    pub fn tag_counts(&self, key: &str) -> impl Iterator<Item = (NameRef<'_>, u32)> {
        let key = self.state.symbols.get(key);
        let tag = key.and_then(|key| self.names().tags.get(&key));
        tag.into_iter()
            .flat_map(|tag| tag.values.in_order(&self.state.symbols))
    }

    /// Returns all attribute keys in byte order, with the types of their values. The reader of a subset visits its
    /// timelines.
    pub fn attribute_keys(&self) -> Vec<CountedKey> {
        match &self.members {
            None => self.state.edits.types.keys(&self.state.symbols),
            Some(members) => {
                let mut types = TypeCounts::default();
                for ordinal in &members.visible {
                    if let Some(edited) = self.state.edits.of(Ordinal(ordinal)) {
                        types.add(edited.attributes);
                    }
                }
                types.keys(&self.state.symbols)
            }
        }
    }
}

/// One timeline.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    state: &'a State,
    ordinal: Ordinal,
}

impl<'a> Entry<'a> {
    pub(crate) fn new(state: &'a State, ordinal: Ordinal) -> Self {
        Self { state, ordinal }
    }

    /// Returns the ordinal: the dense number of the timeline in its table.
    pub fn ordinal(&self) -> Ordinal {
        self.ordinal
    }

    /// Returns the id.
    pub fn id(&self) -> TimelineId {
        self.state.id(self.ordinal)
    }

    /// Returns the measurement.
    pub fn measurement(&self) -> &'a str {
        self.state.measurement(self.ordinal)
    }

    /// Returns the machine of the timeline: the value of the first source tag that the timeline has; `None` if it has
    /// no source tag.
    pub fn source(&self) -> Option<&'a str> {
        self.state.source(self.ordinal)
    }

    /// Iterates over the tags, sorted by key.
    pub fn tags(&self) -> impl ExactSizeIterator<Item = (&'a str, &'a str)> + Clone + use<'a> {
        self.state.tags(self.ordinal)
    }

    /// Returns the value of a tag; `None` if it is missing.
    pub fn tag(&self, key: &str) -> Option<&'a str> {
        self.state.tag(self.ordinal, key)
    }

    /// Returns the value of an attribute; `None` if it is missing.
    pub fn attribute(&self, key: &str) -> Option<AttributeRef<'a>> {
        self.state.attribute(self.ordinal, key)
    }

    /// Iterates over the attributes, sorted by key.
    pub fn attributes(&self) -> impl Iterator<Item = (&'a str, AttributeRef<'a>)> + use<'a> {
        self.state.attributes(self.ordinal)
    }

    /// Returns an owned copy of the attributes.
    pub fn owned_attributes(&self) -> Attributes {
        let all = self.attributes();
        all.map(|(key, value)| (key.to_owned(), value.to_value()))
            .collect()
    }
}
