//! Reading many timelines under one lock.

use parking_lot::RwLockReadGuard;
use roaring::RoaringBitmap;
use tideline_model::{Ordinal, TimelineId};

use crate::attributes::Attributes;
use crate::names::{self, CountedName, NameRef, NameSelection};
use crate::raw_keys::LastKey;
use crate::state::{Stage, State};
use crate::types::CountedKey;
use crate::value::AttributeRef;

/// Holds the catalog's lock for reading, for a whole batch of look-ups.
///
/// While it lives, registrations wait, and then so do new readers: keep it for milliseconds, never ask the
/// same catalog for a second one on the same thread, and drop it before any other call of the catalog.
#[derive(Debug)]
pub struct CatalogReader<'a> {
    pub(crate) state: RwLockReadGuard<'a, State>,
}

impl CatalogReader<'_> {
    /// The timeline that these raw key bytes were registered with.
    ///
    /// `None` says only that the bytes are not in the cache. Costs one comparison where it came after the `last` one
    /// before too, otherwise a hash more. `last` becomes this key.
    pub fn by_key(&self, raw: &[u8], last: &mut LastKey) -> Option<Ordinal> {
        self.state.raw_keys.get(raw, last)
    }

    /// The timeline whose raw key probably comes after the `last` one, where `is_it` says of that key that it does. `last`
    /// becomes this key then.
    pub fn guess(&self, is_it: impl FnOnce(&[u8]) -> bool, last: &mut LastKey) -> Option<Ordinal> {
        self.state.raw_keys.guess(is_it, last)
    }

    /// The id of a timeline, visible or not.
    ///
    /// # Panics
    ///
    /// When the ordinal was never given out by this catalog.
    pub fn id(&self, ordinal: Ordinal) -> TimelineId {
        self.state.id(ordinal)
    }

    /// The visible timeline with this id.
    pub fn by_id(&self, id: TimelineId) -> Option<Ordinal> {
        let ordinal = self.state.ordinal_of(id)?;
        self.state.visible.contains(ordinal.0).then_some(ordinal)
    }

    /// Whether a delta that uses this timeline must carry its identity, because it is new or was removed.
    pub fn needs_announcement(&self, ordinal: Ordinal) -> bool {
        self.state.stage(ordinal) == Stage::Registered
    }

    /// The timeline with this id, where a delta that uses it must carry its identity.
    pub fn unannounced(&self, id: TimelineId) -> Option<Ordinal> {
        let ordinal = self.state.ordinal_of(id)?;
        self.needs_announcement(ordinal).then_some(ordinal)
    }

    /// Appends the stored form of a timeline's identity ([`tideline_model::Identity`]), visible or not.
    ///
    /// # Panics
    ///
    /// When the ordinal was never given out by this catalog.
    pub fn encode_identity(&self, ordinal: Ordinal, out: &mut Vec<u8>) {
        let mut put = |text: &str| {
            // The length was checked at registration.
            out.extend_from_slice(&(text.len() as u32).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        };
        put(self.state.measurement(ordinal));
        for (key, value) in self.state.tags(ordinal) {
            put(key);
            put(value);
        }
    }

    /// The tags that name the machine, first present wins.
    pub fn source_tags(&self) -> &[String] {
        &self.state.source_tags
    }

    /// A visible timeline.
    pub fn entry(&self, ordinal: Ordinal) -> Option<Entry<'_>> {
        let visible = self.state.visible.contains(ordinal.0);
        let state: &State = &self.state;
        visible.then_some(Entry { state, ordinal })
    }

    /// The ordinals of all visible timelines.
    pub fn visible(&self) -> &RoaringBitmap {
        &self.state.visible
    }

    /// The number of the newest attribute edit. It survives restarts, but for edits of timelines that were removed.
    pub fn edit_counter(&self) -> u64 {
        self.state.edits.newest()
    }

    /// The highest edit counter that may be remembered across a restart.
    ///
    /// It stays behind [`edit_counter`](Self::edit_counter) while the write of an edited row has an unknown
    /// outcome: after a restart that edit may turn out to have happened.
    pub fn settled_edits(&self) -> u64 {
        self.state.edits.settled()
    }

    /// Visible timelines that were edited after the counter stood at `counter`, in the order of their last edit.
    /// Losing attributes by a removal, and coming back without them, counts as an edit.
    pub fn edits_since(&self, counter: u64) -> impl Iterator<Item = Ordinal> {
        let edits = self.state.edits.since(counter);
        edits.filter(|ordinal| self.state.visible.contains(ordinal.0))
    }

    /// The same with the counter that each edit brought about.
    pub fn numbered_edits_since(&self, counter: u64) -> impl Iterator<Item = (u64, Ordinal)> {
        let edits = self.state.edits.numbered_since(counter);
        edits.filter(|(_, ordinal)| self.state.visible.contains(ordinal.0))
    }

    /// The id that an ordinal names, of a visible or a removed timeline; `None` where it names nothing.
    pub fn known_id(&self, ordinal: Ordinal) -> Option<TimelineId> {
        let known = self.state.stage(ordinal) != Stage::Absent;
        known.then(|| self.state.id(ordinal))
    }

    /// Measurements in byte order.
    pub fn measurements(&self, selection: &NameSelection<'_>) -> Vec<CountedName> {
        self.state
            .names
            .measurements
            .select(&self.state.symbols, selection)
    }

    /// Tag keys in byte order.
    pub fn tag_keys(&self, selection: &NameSelection<'_>) -> Vec<CountedName> {
        let counts = self.state.names.tags.iter();
        names::select(
            &self.state.symbols,
            counts.map(|(key, tag)| (*key, tag.timelines())),
            selection,
        )
    }

    /// Values of a tag key in byte order; none when no timeline has the key.
    ///
    /// Costs a look at each value of the page, and the first time a sort of all: about 10 ms for 200,000.
    pub fn tag_values(&self, key: &str, selection: &NameSelection<'_>) -> Vec<CountedName> {
        let key = self.state.symbols.get(key);
        let Some(tag) = key.and_then(|key| self.state.names.tags.get(&key)) else {
            return Vec::new();
        };
        tag.values.select(&self.state.symbols, selection)
    }

    /// How many visible timelines bear this tag.
    pub fn timelines_with_tag(&self, key: &str, value: &str) -> u64 {
        let symbols = &self.state.symbols;
        let tag = symbols.get(key).and_then(|key| self.state.names.tags.get(&key));
        let value = symbols.get(value);
        tag.zip(value).map_or(0, |(tag, value)| tag.values.count(value))
    }

    /// How many visible timelines have this measurement.
    pub fn timelines_of_measurement(&self, name: &str) -> u64 {
        let symbol = self.state.symbols.get(name);
        symbol.map_or(0, |name| self.state.names.measurements.count(name))
    }

    /// Whether a visible timeline has this measurement.
    pub fn has_measurement(&self, name: &str) -> bool {
        let symbol = self.state.symbols.get(name);
        symbol.is_some_and(|name| self.state.names.measurements.contains(name))
    }

    /// Whether a visible timeline has this tag.
    pub fn has_tag_key(&self, key: &str) -> bool {
        let symbol = self.state.symbols.get(key);
        symbol.is_some_and(|key| self.state.names.tags.contains_key(&key))
    }

    /// Whether a timeline has this attribute.
    pub fn has_attribute_key(&self, key: &str) -> bool {
        let symbol = self.state.symbols.get(key);
        symbol.is_some_and(|key| self.state.edits.types.has(key))
    }

    /// Every measurement with how many timelines have it, in byte order.
    pub fn measurement_counts(&self) -> impl Iterator<Item = (NameRef<'_>, u32)> {
        self.state.names.measurements.in_order(&self.state.symbols)
    }

    /// Every value of a tag with how many timelines bear it, in byte order.
    pub fn tag_counts(&self, key: &str) -> impl Iterator<Item = (NameRef<'_>, u32)> {
        let key = self.state.symbols.get(key);
        let tag = key.and_then(|key| self.state.names.tags.get(&key));
        tag.into_iter()
            .flat_map(|tag| tag.values.in_order(&self.state.symbols))
    }

    /// Attribute keys in byte order, with the types of their values.
    pub fn attribute_keys(&self) -> Vec<CountedKey> {
        self.state.edits.types.keys(&self.state.symbols)
    }
}

/// A visible timeline.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    state: &'a State,
    ordinal: Ordinal,
}

impl<'a> Entry<'a> {
    /// Its dense number.
    pub fn ordinal(&self) -> Ordinal {
        self.ordinal
    }

    /// Its id.
    pub fn id(&self) -> TimelineId {
        self.state.id(self.ordinal)
    }

    /// Its measurement.
    pub fn measurement(&self) -> &'a str {
        self.state.measurement(self.ordinal)
    }

    /// The machine it belongs to: the value of the first source tag that it has.
    pub fn source(&self) -> Option<&'a str> {
        self.state.source(self.ordinal)
    }

    /// Its tags, sorted by key.
    pub fn tags(&self) -> impl ExactSizeIterator<Item = (&'a str, &'a str)> + Clone + use<'a> {
        self.state.tags(self.ordinal)
    }

    /// The value of a tag; `None` where it is missing.
    pub fn tag(&self, key: &str) -> Option<&'a str> {
        self.state.tag(self.ordinal, key)
    }

    /// The value of an attribute; `None` where it is missing.
    pub fn attribute(&self, key: &str) -> Option<AttributeRef<'a>> {
        self.state.attribute(self.ordinal, key)
    }

    /// Its attributes, sorted by key.
    pub fn attributes(&self) -> impl Iterator<Item = (&'a str, AttributeRef<'a>)> + use<'a> {
        self.state.attributes(self.ordinal)
    }

    /// Its attributes, as a map that stands alone.
    pub fn owned_attributes(&self) -> Attributes {
        let all = self.attributes();
        all.map(|(key, value)| (key.to_owned(), value.to_value()))
            .collect()
    }
}
