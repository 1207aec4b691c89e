//! Rules of the wide tables, compiled from the manifest: versions to keep, time-to-live, division into parts, and
//! secondary indexes.
//!
//! The rules of a table are compiled again only after its settings have changed. The rules of the entries of an index
//! are stored under the id of the index, so that buffers and parts handle entries like the rows of a table. The ids of
//! column groups and of large values also have rules, because their parts are dropped together with the parts of the
//! table.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tideline_key_codec::layout::KeyLayout;
use tideline_log::Manifest;
use tideline_model::{GroupCompression, KeyRange, PartsSpec, RowTtl, TableId, TierScope, WideSpec};

use crate::codecs::ColumnCodecs;
use crate::division::{ALL_PARTS, Division, PartNumbers, WHOLE};
use crate::error::{Damage, Result, WideError};
use crate::groups::{Groups, Share};
use crate::index::Index;
use crate::state::{PartKey, State};

/// Rules of a wide table, or of the entries of an index.
#[derive(Debug)]
pub(crate) struct TableRules {
    /// Maximum number of versions that are kept per column.
    pub(crate) versions_max: usize,
    /// Time after which data expires; `None` = never.
    pub(crate) ttl: Option<RowTtl>,
    /// Secondary indexes of the table, in the order of their ids.
    pub(crate) indexes: Vec<Arc<Index>>,
    /// Ids of the search indexes of the table.
    pub(crate) searches: Vec<TableId>,
    /// Tiers that each search index in `searches` covers.
    pub(crate) search_tiers: Vec<TierScope>,
    /// Id of the parts with the pieces of large values; `None` until the table gets its first large value.
    pub(crate) large_values: Option<TableId>,
    /// True if rows can reference values that ordinary writes have stored in pieces.
    pub(crate) cut_values: bool,
    /// Groups of columns that are stored apart.
    pub(crate) groups: Groups,
    /// Compression of the packed rows. In the rules of a column group, this is the compression in the settings of the
    /// group.
    compression: GroupCompression,
    /// Columns with a separate compression setting.
    pub(crate) codecs: Arc<ColumnCodecs>,
    /// Division into parts; `None` if there is only one part.
    pub(crate) division: Option<Division>,
    /// Table and index, if these are the rules of index entries.
    pub(crate) entries: Option<EntriesOf>,
    /// Reason why the settings of the table cannot be compiled; `None` unless they are damaged.
    damage: Option<String>,
    spec: Option<Box<WideSpec>>,
}

/// Origin of index entries.
#[derive(Debug)]
pub(crate) struct EntriesOf {
    /// Table of the rows. The tiers of its parts apply to the entries.
    pub(crate) table: TableId,
    pub(crate) index: Arc<Index>,
}

impl TableRules {
    fn new(spec: Option<&WideSpec>) -> Self {
        let compiled = spec.map_or(Ok((Vec::new(), None)), |spec| {
            Ok((Index::all_of(spec)?, division_of(spec)?))
        });
        let ((indexes, division), damage) = match compiled {
            Ok(compiled) => (compiled, None),
            Err(reason) => ((Vec::new(), None), Some(reason)),
        };
        Self {
            versions_max: spec.map_or(1, |spec| spec.max_versions.max(1) as usize),
            ttl: spec.and_then(|spec| spec.ttl),
            indexes,
            searches: spec.map_or(Vec::new(), |spec| {
                spec.search_indexes
                    .iter()
                    .map(|index| TableId(index.id))
                    .collect()
            }),
            search_tiers: spec.map_or(Vec::new(), |spec| {
                spec.search_indexes.iter().map(|index| index.tier).collect()
            }),
            large_values: spec.and_then(|spec| spec.large_values).map(TableId),
            cut_values: spec.is_some_and(|spec| spec.cut_values),
            groups: spec.map_or_else(Groups::default, Groups::new),
            compression: GroupCompression::Fast,
            codecs: Arc::new(spec.map_or_else(ColumnCodecs::default, ColumnCodecs::new)),
            division,
            entries: None,
            damage,
            spec: spec.map(|spec| Box::new(spec.clone())),
        }
    }

    /// Returns the rules of the entries of an index. `self` are the rules of its table.
    fn of_index(&self, table: TableId, index: &Arc<Index>) -> Self {
        let division = self.division.as_ref();
        let division = division.map(|division| Division::of_entries(&division.spec, index.layout().clone()));
        let (division, damage) = match division.transpose() {
            Ok(division) => (division, None),
            Err(reason) => (None, Some(reason)),
        };
        Self {
            ttl: self.ttl,
            codecs: Arc::clone(&self.codecs),
            division,
            entries: Some(EntriesOf {
                table,
                index: Arc::clone(index),
            }),
            damage,
            ..Self::new(None)
        }
    }

    /// Returns the rules of a column group or of the pieces of large values. `self` are the rules of the table. Such
    /// data is in the part with the same number as the part of its row.
    fn stored_apart(&self, compression: GroupCompression) -> Self {
        let spec = self.spec.as_deref();
        let division = spec.map_or(Ok(None), division_of);
        Self {
            division: division.unwrap_or(None),
            compression,
            ..Self::new(None)
        }
    }

    /// Returns the compression of the packed rows of a share.
    pub(crate) fn compression_of(&self, share: Share) -> GroupCompression {
        match share {
            Share::Main => self.compression,
            Share::Group(group) => self.groups.compression(group),
        }
    }

    /// Returns the settings of the division into parts.
    pub(crate) fn parts(&self) -> Option<&PartsSpec> {
        self.division.as_ref().map(|division| &division.spec)
    }

    /// Returns the number of the part of a key.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the key is damaged.
    pub(crate) fn part_of(&self, key: &[u8]) -> std::result::Result<i32, Damage> {
        match &self.division {
            Some(division) => division.number_of(key),
            None => Ok(WHOLE),
        }
    }

    /// Returns the numbers of the parts that are visible at a time.
    pub(crate) fn visible_parts(&self, now: i64) -> PartNumbers {
        match &self.division {
            Some(division) => division.spec.visible_from(now)..=i32::MAX,
            None => ALL_PARTS,
        }
    }

    /// Returns the bounds of the numbers of parts that are in `parts`, that were not dropped, and that can have keys of
    /// a range.
    pub(crate) fn kept_parts(&self, range: &KeyRange, parts: &PartNumbers) -> PartNumbers {
        let Some(division) = &self.division else {
            return ALL_PARTS;
        };
        let numbers = division.numbers_in(range);
        let first = division.spec.first.max(*parts.start());
        first.max(*numbers.start())..=*numbers.end().min(parts.end())
    }

    /// Returns true if the current time determines which rows are visible or can be written.
    pub(crate) fn depend_on_time(&self) -> bool {
        let of_parts =
            |parts: &PartsSpec| parts.keep.is_some() || parts.writable.is_some() || parts.archive.is_some();
        self.ttl.is_some() || self.parts().is_some_and(of_parts)
    }

    /// Returns true if a flush may drop expired rows and cells. Otherwise a delete in the journal removes them: it
    /// removes the shares of a row in several parts together, and also its index entries and documents. If these
    /// stayed, they would be found again once `ttl` is extended.
    pub(crate) fn drops_expired(&self) -> bool {
        self.groups.is_empty()
            && self.indexes.is_empty()
            && self.searches.is_empty()
            && self.entries.is_none()
    }

    /// Returns the number of the first part whose rows can be written at a time.
    pub(crate) fn writable_from(&self, now: i64) -> i32 {
        self.parts().map_or(i32::MIN, |parts| parts.writable_from(now))
    }

    /// Returns false if the part with this number was dropped.
    pub(crate) fn keeps(&self, number: i32) -> bool {
        self.parts().is_none_or(|parts| number >= parts.first)
    }

    /// Returns an error if the settings cannot be used. Writes to the table are then refused.
    ///
    /// # Errors
    ///
    /// [`WideError::Settings`] if the settings are damaged.
    pub(crate) fn check(&self, table: TableId) -> Result<()> {
        match self.damage.clone() {
            Some(reason) => Err(WideError::Settings { table, reason }),
            None => Ok(()),
        }
    }

    /// Returns true if writes to a part also change the entries of an index.
    pub(crate) fn maintains(&self, state: &State, (table, number): PartKey, index: &Index) -> bool {
        self.division.is_none() || state.maintains(table, number, index.tier())
    }

    /// Returns true if flushes write the index entries of a part, and reads return them. Always true if these are not
    /// the rules of an index.
    pub(crate) fn keeps_entries(&self, state: &State, number: i32) -> bool {
        let entries = self.entries.as_ref();
        entries.is_none_or(|of| self.maintains(state, (of.table, number), &of.index))
    }

    /// Returns true if a read of the tiers `tier` returns the rows or index entries of a part.
    pub(crate) fn is_read(&self, state: &State, (id, number): PartKey, tier: TierScope) -> bool {
        let (table, covered) = match &self.entries {
            Some(of) => (of.table, of.index.tier()),
            None => (id, TierScope::All),
        };
        if tier.is_all() && covered.is_all() {
            return true;
        }
        let stored = state.tier_of(table, number);
        tier.has(stored) && covered.has(stored)
    }

    /// Returns the ids of the indexes, ascending.
    pub(crate) fn index_ids(&self) -> impl Iterator<Item = TableId> {
        self.indexes.iter().map(|index| index.id)
    }

    /// Returns an index by its id.
    pub(crate) fn index(&self, id: TableId) -> Option<&Arc<Index>> {
        self.indexes.iter().find(|index| index.id == id)
    }
}

/// Compiles the division of a table.
fn division_of(spec: &WideSpec) -> std::result::Result<Option<Division>, String> {
    let Some(parts) = &spec.parts else {
        return Ok(None);
    };
    let layout = KeyLayout::new(&spec.key, true).map_err(|error| error.to_string())?;
    Division::new(parts, layout).map(Some)
}

/// Rules of all wide tables and indexes of one version of the manifest.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    rules: BTreeMap<TableId, Arc<TableRules>>,
}

impl Tables {
    /// Compiles the rules of a manifest. Takes the rules of unchanged tables from `before`.
    pub(crate) fn new(manifest: &Manifest, before: &Self) -> Self {
        let mut tables = Self::default();
        let wide = manifest.tables.values();
        for row in wide.filter(|row| row.spec.model.has_rows()) {
            let spec = row.spec.wide.as_ref();
            let known = before
                .rules
                .get(&row.id)
                .filter(|rules| rules.spec.as_ref() == spec);
            let rules = match known {
                Some(known) => Arc::clone(known),
                None => Arc::new(TableRules::new(spec.map(AsRef::as_ref))),
            };
            for index in &rules.indexes {
                let known = before
                    .rules
                    .get(&index.id)
                    .filter(|known| known.ttl == rules.ttl && known.parts() == rules.parts())
                    .filter(|known| known.codecs == rules.codecs);
                let of_entries = match known {
                    Some(known) => Arc::clone(known),
                    None => Arc::new(rules.of_index(row.id, index)),
                };
                tables.rules.insert(index.id, of_entries);
            }
            let pieces = rules.large_values.map(|id| (id, GroupCompression::Fast));
            let groups = rules.groups.ids().enumerate();
            let groups = groups.map(|(group, id)| (id, rules.groups.compression(group)));
            for (id, compression) in groups.chain(pieces) {
                let known = before.rules.get(&id);
                let known = known.filter(|known| known.parts() == rules.parts());
                let apart = known.map_or_else(|| Arc::new(rules.stored_apart(compression)), Arc::clone);
                tables.rules.insert(id, apart);
            }
            tables.rules.insert(row.id, rules);
        }
        tables
    }

    /// Returns the rules of a table or index; `None` if it does not exist.
    pub(crate) fn get(&self, id: TableId) -> Option<&Arc<TableRules>> {
        self.rules.get(&id)
    }

    /// Returns true if the settings of a table cannot be used. The rules of its indexes are then missing.
    pub(crate) fn have_damage(&self) -> bool {
        self.rules.values().any(|rules| rules.damage.is_some())
    }

    /// Returns true if the table or index exists.
    pub(crate) fn contains(&self, id: TableId) -> bool {
        self.rules.contains_key(&id)
    }

    /// Returns true if the table or index exists, and its part with this number was not dropped.
    pub(crate) fn keeps(&self, id: TableId, number: i32) -> bool {
        self.rules.get(&id).is_some_and(|rules| rules.keeps(number))
    }
}

/// Cached rules of the newest manifest.
#[derive(Debug, Default)]
pub(crate) struct TablesCache(Mutex<Option<(Arc<Manifest>, Arc<Tables>)>>);

impl TablesCache {
    /// Returns the rules of the current manifest. Compiles them only if the manifest has changed.
    pub(crate) fn of(&self, manifest: &Arc<Manifest>) -> Arc<Tables> {
        let mut cached = self.0.lock();
        if let Some((known, tables)) = &*cached
            && Arc::ptr_eq(known, manifest)
        {
            return Arc::clone(tables);
        }
        let before = cached.take().map_or_else(Arc::default, |(_, tables)| tables);
        let tables = Arc::new(Tables::new(manifest, &before));
        *cached = Some((Arc::clone(manifest), Arc::clone(&tables)));
        tables
    }
}

/// Returns the rules of a table.
///
/// # Errors
///
/// [`WideError::NoTable`] if the table or index does not exist.
pub(crate) fn rules_of(tables: &Tables, id: TableId) -> Result<Arc<TableRules>> {
    tables.get(id).cloned().ok_or(WideError::NoTable(id))
}
