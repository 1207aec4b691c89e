//! In-memory state of a table's timelines: arrays indexed by ordinal.
//!
//! Timelines of one *shape* (measurement and tag keys) differ only in their tag values. A timeline therefore stores the
//! number of its shape and one symbol per tag. A timeline with ten tags takes 16 bytes for its id, 40 for its symbols
//! and 12 for its slot (shape, offset and stage), plus its share of the hash tables.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::HashTable;
use roaring::RoaringBitmap;
use tideline_model::{Ordinal, SearchAnalyzer, TimelineId};
use xxhash_rust::xxh3::Xxh3Default;

use crate::attributes::{AttributeType, Attributes};
use crate::edits::{Edited, Edits};
use crate::names::NameCounts;
use crate::packed::Packed;
use crate::raw_keys::{RawKeyBudget, RawKeyCache};
use crate::row::Row;
use crate::symbols::{Symbol, SymbolTable};
use crate::value::AttributeRef;
use crate::{CatalogError, Result};

/// All state that the catalog's lock guards.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) source_tags: Vec<String>,
    pub(crate) analyzers: Arc<BTreeMap<String, SearchAnalyzer>>,
    pub(crate) symbols: SymbolTable,
    shapes: Vec<Shape>,
    shape_numbers: HashTable<u32>,
    /// Shape of the timeline that was inserted last; the next timeline often has the same shape.
    last_shape: u32,
    slots: Vec<Slot>,
    ids: Vec<TimelineId>,
    /// Tag values of all timelines; a slot holds the offset of its first value.
    values: Vec<Symbol>,
    by_id: HashTable<Ordinal>,
    pub(crate) raw_keys: RawKeyCache,
    /// Ordinals of the visible timelines.
    pub(crate) visible: RoaringBitmap,
    /// Ordinals of the visible timelines whose row may differ from memory.
    pub(crate) unsaved: RoaringBitmap,
    /// Ordinals whose stored row may be older than the last removal of the timeline.
    pub(crate) outdated: RoaringBitmap,
    /// Ordinals of timelines that were removed or edited after the last write of their rows began. Such a row may be
    /// outdated.
    pub(crate) changed_meanwhile: RoaringBitmap,
    pub(crate) names: NameCounts,
    pub(crate) edits: Edits,
    /// Number of changes of `visible`.
    pub(crate) changes: u64,
    /// Index below which no slot is free.
    free_from: usize,
}

/// A measurement and its tag keys.
#[derive(Debug)]
struct Shape {
    measurement: Symbol,
    keys: Box<[Symbol]>,
    /// Index of the source tag in `keys`; `None` if no key is a source tag.
    source: Option<usize>,
}

/// Location of a timeline's shape and tag values. The index of the slot is the ordinal.
#[derive(Debug, Clone, Copy)]
struct Slot {
    shape: u32,
    values_start: u32,
    stage: Stage,
}

/// Lifecycle stage of a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Unused ordinal. Before the last restart, it may have belonged to a timeline that was removed or never committed.
    Absent,
    /// Visible to the write path only: new, or removed.
    Registered,
    /// Visible; the identity is durable in the journal, but the row is missing or may differ from memory.
    Durable,
    /// Visible; the row is synced and equal to memory.
    Saved,
}

impl State {
    pub(crate) fn new(source_tags: Vec<String>, raw_key_budget: Arc<RawKeyBudget>) -> Self {
        Self {
            source_tags,
            analyzers: Arc::default(),
            symbols: SymbolTable::new(),
            shapes: Vec::new(),
            shape_numbers: HashTable::new(),
            last_shape: 0,
            slots: Vec::new(),
            ids: Vec::new(),
            values: Vec::new(),
            by_id: HashTable::new(),
            raw_keys: RawKeyCache::new(raw_key_budget),
            visible: RoaringBitmap::new(),
            unsaved: RoaringBitmap::new(),
            outdated: RoaringBitmap::new(),
            changed_meanwhile: RoaringBitmap::new(),
            names: NameCounts::default(),
            edits: Edits::default(),
            changes: 0,
            free_from: 0,
        }
    }

    /// Returns the lowest unused ordinal, for the next new timeline. Ordinals of timelines that were removed before
    /// the start are reused, so that the arrays do not grow forever.
    pub(crate) fn free_ordinal(&mut self) -> Ordinal {
        let taken = |slot: &Slot| slot.stage != Stage::Absent;
        while self.slots.get(self.free_from).is_some_and(taken) {
            self.free_from += 1;
        }
        Ordinal(self.free_from as u32)
    }

    /// Returns true if the catalog has no timelines, not even removed or invisible ones.
    pub(crate) fn is_untouched(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(crate) fn ordinal_of(&self, id: TimelineId) -> Option<Ordinal> {
        let found = self
            .by_id
            .find(id.low(), |ordinal| self.ids[ordinal.0 as usize] == id);
        found.copied()
    }

    /// Returns the id of a timeline. Panics if the ordinal is above all assigned ordinals.
    pub(crate) fn id(&self, ordinal: Ordinal) -> TimelineId {
        self.ids[ordinal.0 as usize]
    }

    pub(crate) fn stage(&self, ordinal: Ordinal) -> Stage {
        self.slots
            .get(ordinal.0 as usize)
            .map_or(Stage::Absent, |slot| slot.stage)
    }

    /// Inserts a timeline into a free slot, with stage `Registered`.
    pub(crate) fn insert<'a>(
        &mut self,
        id: TimelineId,
        ordinal: Ordinal,
        measurement: &str,
        tags: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    ) -> Result<()> {
        if self.stage(ordinal) != Stage::Absent || self.ordinal_of(id).is_some() {
            return Err(CatalogError::Conflict { id, ordinal });
        }
        if ordinal.0 == u32::MAX {
            return Err(CatalogError::Full("timelines"));
        }
        let shape = self.intern_shape(measurement, tags.clone().map(|(key, _)| key))?;
        let values_start = u32::try_from(self.values.len()).map_err(|_| CatalogError::Full("tag values"))?;
        for (_, value) in tags {
            let symbol = self.symbols.intern(value)?;
            self.values.push(symbol);
        }
        let index = ordinal.0 as usize;
        if index >= self.slots.len() {
            const HOLE: Slot = Slot {
                shape: 0,
                values_start: 0,
                stage: Stage::Absent,
            };
            self.slots.resize(index + 1, HOLE);
            self.ids.resize(index + 1, TimelineId::MIN);
        }
        self.slots[index] = Slot {
            shape,
            values_start,
            stage: Stage::Registered,
        };
        self.ids[index] = id;
        let ids = &self.ids;
        self.by_id
            .insert_unique(id.low(), ordinal, |known| ids[known.0 as usize].low());
        Ok(())
    }

    fn intern_shape<'a>(
        &mut self,
        measurement: &str,
        keys: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<u32> {
        let symbols = &self.symbols;
        let is_last = self.shapes.get(self.last_shape as usize).is_some_and(|last| {
            symbols.text(last.measurement) == measurement
                && last.keys.iter().map(|key| symbols.text(*key)).eq(keys.clone())
        });
        if !is_last {
            self.last_shape = self.intern_other_shape(measurement, keys)?;
        }
        Ok(self.last_shape)
    }

    fn intern_other_shape<'a>(
        &mut self,
        measurement: &str,
        keys: impl Iterator<Item = &'a str>,
    ) -> Result<u32> {
        let measurement = self.symbols.intern(measurement)?;
        let keys: Vec<Symbol> = keys.map(|key| self.symbols.intern(key)).collect::<Result<_>>()?;
        let hash = shape_hash(measurement, &keys);
        let shapes = &self.shapes;
        let same = |number: &u32| {
            let shape = &shapes[*number as usize];
            shape.measurement == measurement && *shape.keys == *keys
        };
        if let Some(number) = self.shape_numbers.find(hash, same) {
            return Ok(*number);
        }
        let number = u32::try_from(self.shapes.len()).map_err(|_| CatalogError::Full("shapes"))?;
        let source = source_of(&self.source_tags, &self.symbols, &keys);
        self.shapes.push(Shape {
            measurement,
            keys: keys.into(),
            source,
        });
        let shapes = &self.shapes;
        self.shape_numbers.insert_unique(hash, number, |number| {
            let shape = &shapes[*number as usize];
            shape_hash(shape.measurement, &shape.keys)
        });
        Ok(number)
    }

    /// Makes a registered timeline visible and marks its row as unsaved. Has no effect on a visible timeline.
    pub(crate) fn set_durable(&mut self, ordinal: Ordinal) {
        if self.stage(ordinal) == Stage::Registered {
            self.set_visible(ordinal, Stage::Durable);
            self.unsaved.insert(ordinal.0);
        }
    }

    /// Makes a timeline invisible and uncounted; returns true if it was visible. Its attributes are kept.
    pub(crate) fn hide(&mut self, ordinal: Ordinal) -> bool {
        let was_visible = self.visible.remove(ordinal.0);
        if was_visible {
            self.slots[ordinal.0 as usize].stage = Stage::Registered;
            self.unsaved.remove(ordinal.0);
            self.outdated.insert(ordinal.0);
            self.changed_meanwhile.insert(ordinal.0);
            self.changes += 1;
            let (names, measurement, tags) = self.counted(ordinal);
            names.remove(measurement, tags);
        }
        was_visible
    }

    /// Makes a timeline visible after its row is loaded. `attributes` is the result of edit number `edit`, which is 0
    /// if the timeline was never edited.
    pub(crate) fn set_loaded(&mut self, ordinal: Ordinal, edit: u64, attributes: &Attributes) -> Result<()> {
        self.set_visible(ordinal, Stage::Saved);
        if edit > 0 {
            let edited = self.edited(edit, attributes)?;
            self.edits.load(ordinal, edited);
        }
        Ok(())
    }

    /// Loads a row, like [`insert`](Self::insert) and [`set_loaded`](Self::set_loaded), in place of an earlier row of the
    /// timeline.
    pub(crate) fn reload(&mut self, id: TimelineId, row: &Row<'_>) -> Result<()> {
        let is_same = |known: &Ordinal| {
            *known == row.ordinal
                && self.measurement(*known) == row.measurement
                && self.tags(*known).eq(row.tags.iter().copied())
        };
        if self.ordinal_of(id).as_ref().is_some_and(is_same) {
            self.edits.unload(row.ordinal);
            if row.edit > 0 {
                let edited = self.edited(row.edit, &row.attributes)?;
                self.edits.load(row.ordinal, edited);
            }
            return Ok(());
        }
        self.unload(id);
        self.insert(id, row.ordinal, row.measurement, row.tags.iter().copied())?;
        self.set_loaded(row.ordinal, row.edit, &row.attributes)
    }

    /// Removes a loaded timeline, as if its row had not been read. Its texts and tag values stay in memory. Has no effect
    /// on an unknown timeline.
    pub(crate) fn unload(&mut self, id: TimelineId) {
        let ids = &self.ids;
        let found = self
            .by_id
            .find_entry(id.low(), |ordinal| ids[ordinal.0 as usize] == id);
        let Ok(found) = found else { return };
        let (ordinal, _) = found.remove();
        self.visible.remove(ordinal.0);
        self.changes += 1;
        let (names, measurement, tags) = self.counted(ordinal);
        names.remove(measurement, tags);
        self.edits.unload(ordinal);
        let index = ordinal.0 as usize;
        self.slots[index].stage = Stage::Absent;
        self.ids[index] = TimelineId::MIN;
        self.free_from = self.free_from.min(index);
    }

    /// Replaces this empty state by one that was loaded without settings, and keeps the settings of this state.
    pub(crate) fn take_loaded(&mut self, loaded: Self) {
        let Self {
            source_tags,
            analyzers,
            raw_keys,
            ..
        } = std::mem::replace(self, loaded);
        self.source_tags = source_tags;
        self.analyzers = analyzers;
        self.raw_keys = raw_keys;
        for shape in &mut self.shapes {
            shape.source = source_of(&self.source_tags, &self.symbols, &shape.keys);
        }
        self.edits.loaded();
    }

    /// Creates the edit with this number and the resulting attributes.
    pub(crate) fn edited(&mut self, number: u64, attributes: &Attributes) -> Result<Edited> {
        let attributes = Packed::new(attributes, &mut self.symbols)?;
        Ok(Edited { number, attributes })
    }

    /// Rejects a value whose type conflicts with the type of its key in this table.
    pub(crate) fn check_type(&self, ordinal: Ordinal, key: &str, given: AttributeType) -> Result<()> {
        let own = self.attribute(ordinal, key).map(AttributeRef::kind);
        self.edits.types.check(&self.symbols, key, own, given)
    }

    /// Returns the value of one attribute of a timeline; `None` if it is missing.
    pub(crate) fn attribute(&self, ordinal: Ordinal, key: &str) -> Option<AttributeRef<'_>> {
        self.edits.of(ordinal)?.attributes.get(self.symbols.get(key)?)
    }

    /// Iterates over all attributes of a timeline, sorted by key.
    pub(crate) fn attributes(&self, ordinal: Ordinal) -> impl Iterator<Item = (&str, AttributeRef<'_>)> {
        let all = self.edits.of(ordinal).into_iter();
        all.flat_map(|edited| edited.attributes.iter())
            .map(|(key, value)| (self.symbols.text(key), value))
    }

    fn set_visible(&mut self, ordinal: Ordinal, stage: Stage) {
        self.slots[ordinal.0 as usize].stage = stage;
        self.visible.insert(ordinal.0);
        self.changes += 1;
        let (names, measurement, tags) = self.counted(ordinal);
        names.add(measurement, tags);
    }

    /// Returns the measurement and the tags of a timeline, visible or not. The ordinal must be in use.
    pub(crate) fn symbols_of(&self, ordinal: Ordinal) -> (Symbol, impl Iterator<Item = (Symbol, Symbol)>) {
        let shape = self.shape(ordinal);
        let values = self.values_of(ordinal).iter().copied();
        (shape.measurement, shape.keys.iter().copied().zip(values))
    }

    /// Returns the name counts, and the measurement and tags that a timeline contributes to them.
    fn counted(
        &mut self,
        ordinal: Ordinal,
    ) -> (&mut NameCounts, Symbol, impl Iterator<Item = (Symbol, Symbol)>) {
        let slot = self.slots[ordinal.0 as usize];
        let shape = &self.shapes[slot.shape as usize];
        let values = &self.values[slot.values_start as usize..][..shape.keys.len()];
        let tags = shape.keys.iter().copied().zip(values.iter().copied());
        (&mut self.names, shape.measurement, tags)
    }

    /// Marks the row of a visible timeline as equal to memory.
    pub(crate) fn set_saved(&mut self, ordinal: Ordinal) {
        self.slots[ordinal.0 as usize].stage = Stage::Saved;
        self.unsaved.remove(ordinal.0);
        self.outdated.remove(ordinal.0);
        self.edits.no_doubt(ordinal);
    }

    /// Marks the row of a visible timeline as possibly different from memory.
    pub(crate) fn set_unsaved(&mut self, ordinal: Ordinal) {
        self.slots[ordinal.0 as usize].stage = Stage::Durable;
        self.unsaved.insert(ordinal.0);
        self.changed_meanwhile.insert(ordinal.0);
    }

    /// Marks the row of a removed timeline as deleted.
    pub(crate) fn set_row_deleted(&mut self, ordinal: Ordinal) {
        self.outdated.remove(ordinal.0);
        self.edits.no_doubt(ordinal);
    }

    /// Returns the measurement of a timeline. The ordinal must be in use.
    pub(crate) fn measurement(&self, ordinal: Ordinal) -> &str {
        self.symbols.text(self.shape(ordinal).measurement)
    }

    /// Returns the value of the source tag; `None` if it is missing.
    pub(crate) fn source(&self, ordinal: Ordinal) -> Option<&str> {
        let source = self.shape(ordinal).source?;
        Some(self.symbols.text(self.values_of(ordinal)[source]))
    }

    /// Iterates over the tags of a timeline, sorted by key.
    pub(crate) fn tags(&self, ordinal: Ordinal) -> impl ExactSizeIterator<Item = (&str, &str)> + Clone {
        let keys = self.shape(ordinal).keys.iter();
        keys.zip(self.values_of(ordinal))
            .map(|(key, value)| (self.symbols.text(*key), self.symbols.text(*value)))
    }

    /// Returns the value of a tag; `None` if it is missing.
    pub(crate) fn tag(&self, ordinal: Ordinal, key: &str) -> Option<&str> {
        let keys = &self.shape(ordinal).keys;
        let at = keys
            .binary_search_by(|have| self.symbols.text(*have).cmp(key))
            .ok()?;
        Some(self.symbols.text(self.values_of(ordinal)[at]))
    }

    /// Builds the row of a timeline.
    pub(crate) fn row(&self, ordinal: Ordinal) -> Row<'_> {
        let edited = self.edits.of(ordinal);
        Row {
            ordinal,
            edit: edited.map_or(0, |edited| edited.number),
            measurement: self.measurement(ordinal),
            tags: self.tags(ordinal).collect(),
            attributes: edited.map_or_else(Attributes::new, |edited| edited.attributes.unpack(&self.symbols)),
        }
    }

    fn shape(&self, ordinal: Ordinal) -> &Shape {
        &self.shapes[self.slots[ordinal.0 as usize].shape as usize]
    }

    fn values_of(&self, ordinal: Ordinal) -> &[Symbol] {
        let start = self.slots[ordinal.0 as usize].values_start as usize;
        &self.values[start..][..self.shape(ordinal).keys.len()]
    }

    /// Returns the resident bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.identity_bytes() + self.raw_keys.memory_bytes() + self.edits.memory_bytes()
    }

    /// Returns the number of ordinals, including unused ones below the highest.
    pub(crate) fn registered(&self) -> u64 {
        self.ids.len() as u64
    }

    /// Returns the resident bytes without attributes and without the raw key cache, which has its own budget.
    pub(crate) fn identity_bytes(&self) -> usize {
        let shapes: usize = self.shapes.iter().map(|shape| size_of_val(&*shape.keys)).sum();
        self.symbols.memory_bytes()
            + shapes
            + self.shapes.capacity() * size_of::<Shape>()
            + self.shape_numbers.allocation_size()
            + self.slots.capacity() * size_of::<Slot>()
            + self.ids.capacity() * size_of::<TimelineId>()
            + self.values.capacity() * size_of::<Symbol>()
            + self.by_id.allocation_size()
            + self.visible.serialized_size()
            + self.unsaved.serialized_size()
            + self.outdated.serialized_size()
            + self.names.memory_bytes()
    }
}

/// Returns the index of the source tag in `keys`; `None` if no key is a source tag.
fn source_of(source_tags: &[String], symbols: &SymbolTable, keys: &[Symbol]) -> Option<usize> {
    source_tags.iter().find_map(|source| {
        let symbol = symbols.get(source)?;
        keys.iter().position(|key| *key == symbol)
    })
}

fn shape_hash(measurement: Symbol, keys: &[Symbol]) -> u64 {
    let mut hasher = Xxh3Default::new();
    measurement.hash(&mut hasher);
    keys.hash(&mut hasher);
    hasher.finish()
}
