//! Trace of one key: all stored data of the key, and the rule that hides each piece of it.
//!
//! A trace reads the layers of a key: the packed row, the single row, and the generations of the row buffer. The
//! columns of a group have separate packed and single copies. A trace applies the layers from the oldest to the newest,
//! with the same result as a read. It keeps data that a read drops, together with the reason. At the end it applies the
//! time-to-live and the visibility of the part. The versions that no rule hides are therefore the versions that a read
//! returns at the same time.
//!
//! Only data that is still stored can be traced: a flush drops replaced rows and surplus versions.

use std::collections::BTreeMap;

use bytes::Bytes;
use tideline_backend::Partition;
use tideline_key_codec::tuple::KeyKind;
use tideline_model::{ColumnType, RowTtl, SequenceNumber, TableId, Tier, TierScope};

use crate::buffer::{Found, TableBuffer};
use crate::codec;
use crate::error::{Damage, Result, WideError};
use crate::expiry::Expiry;
use crate::fragments::Head;
use crate::groups::GroupSet;
use crate::index::{EntryLack, Index};
use crate::mutation::{Column, ColumnName, Effect, Mutation, Version};
use crate::read::ROWS_BUCKET;
use crate::state::{Part, State};
use crate::store::WideStore;
use crate::tables::TableRules;

/// Rule that hides stored data from reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HidingRule {
    /// A later write deleted the row.
    Deleted,
    /// A later delete of a range covered the row.
    RangeDeleted,
    /// A later write replaced the whole row.
    Replaced,
    /// A later write removed all versions of the column.
    Cleared,
    /// A later write stored a value with the same time.
    SameTime,
    /// The table keeps a limited number of versions, and newer versions use up this limit.
    MaxVersions,
    /// The part has a newer copy of the row or of the columns of a group: the single copy hides the packed one.
    NewerCopy,
    /// The time-to-live of the row has passed.
    RowExpired,
    /// The time-to-live of the version has passed.
    CellExpired,
    /// The part of the row is older than the setting `keep` allows.
    PartHidden,
    /// The part of the row was dropped.
    PartDropped,
}

/// Reason why reads do not return stored data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hidden {
    /// The rule.
    pub rule: HidingRule,
    /// Position in [`KeyTrace::layers`] of the layer that hides the data; `None` if a setting of the table hides it.
    pub by: Option<usize>,
    /// Time of the write that hides the data, or time at which the data expired, in nanoseconds since
    /// 1970-01-01T00:00:00Z; `None` if the time is not stored.
    pub since: Option<i64>,
}

/// Location of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerLocation {
    /// Generation of the row buffer: 0 is the active one, 1 is the newest one that waits for its flush.
    Buffer(usize),
    /// Single row of the part.
    Single,
    /// Row in a block of the part.
    Packed,
    /// Row in a file of the archive.
    Archive,
}

/// Write or stored row in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeTrace {
    /// Effect on the row.
    pub effect: Effect,
    /// Time of the write or row; `None` for the marker of a deleted row, which has no time.
    pub time: Option<i64>,
    /// Number of columns in the write or row.
    pub columns: usize,
    /// Stored size in bytes, without the key.
    pub bytes: usize,
    /// Reason why reads return no data of the change; `None` if the change contributes to the row.
    pub hidden: Option<Hidden>,
}

/// Location with stored data of the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerTrace {
    /// The location.
    pub location: LayerLocation,
    /// Writes of the key, oldest first. The row buffer merges several writes of a row into one; a part has one row.
    pub changes: Vec<ChangeTrace>,
    /// True if the generation deletes a range that contains the key. All `changes` of this layer were made after the
    /// deletion.
    pub deletes_range: bool,
    /// Sequence of the last change in the journal; `None` in a part.
    pub sequence: Option<SequenceNumber>,
    /// Number of fragments of a large row; 0 for other rows.
    pub fragments: usize,
    /// Name of the column group whose columns the layer holds; `None` for columns outside of groups, and for the row
    /// buffer.
    pub group: Option<String>,
}

/// Stored version of a column.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionTrace {
    /// Column.
    pub column: ColumnName<'static>,
    /// Time and value.
    pub version: Version<'static>,
    /// Position in [`KeyTrace::layers`] of the layer that stores the version.
    pub layer: usize,
    /// Reason why reads do not return the version; `None` if they return it.
    pub hidden: Option<Hidden>,
}

/// Visibility of the part that a key belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartVisibility {
    /// Reads cover the part.
    Visible,
    /// The part is older than the setting `keep` allows, and is dropped later.
    Hidden,
    /// The part was dropped.
    Dropped,
}

/// Part of a key in a table that is divided by time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartTrace {
    /// Number of the part.
    pub number: i32,
    /// Visibility of the part.
    pub visibility: PartVisibility,
}

/// All stored data of a key.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyTrace {
    /// Time of the trace, in nanoseconds since 1970-01-01T00:00:00Z.
    pub now: i64,
    /// Time-to-live of the table.
    pub ttl: Option<RowTtl>,
    /// Number of versions that the table keeps per column.
    pub versions_max: usize,
    /// Part of the key; `None` if the table has only one.
    pub part: Option<PartTrace>,
    /// Layers with stored data of the key, newest first.
    pub layers: Vec<LayerTrace>,
    /// Versions, by column, newest first.
    pub versions: Vec<VersionTrace>,
    /// Time of the row; `None` if the row does not exist. Hidden rows also have a time.
    pub time: Option<i64>,
    /// Reason why reads do not return the row; `None` if they return it, or if nothing is stored for the key.
    pub hidden: Option<Hidden>,
}

impl KeyTrace {
    /// Returns true if reads return the row.
    pub fn is_visible(&self) -> bool {
        self.time.is_some() && self.hidden.is_none()
    }

    /// Returns the time at which the row expires or expired; `None` if it does not exist or never expires.
    pub fn expires(&self) -> Option<i64> {
        Some(self.time?.saturating_add(self.ttl?.after))
    }

    /// Returns the row that reads return, with its visible versions; `None` if they return nothing.
    pub fn row(&self) -> Option<Mutation<'static>> {
        let time = self.time.filter(|_| self.hidden.is_none())?;
        let mut columns: Vec<Column<'static>> = Vec::new();
        for traced in self.versions.iter().filter(|traced| traced.hidden.is_none()) {
            match columns.last_mut().filter(|last| last.name == traced.column) {
                Some(column) => column.versions.push(traced.version.clone()),
                None => columns.push(Column {
                    name: traced.column.clone(),
                    clears: false,
                    versions: [traced.version.clone()].into_iter().collect(),
                }),
            }
        }
        Some(Mutation {
            effect: Effect::Replace,
            time,
            columns,
        })
    }
}

/// Entry of a row in a secondary index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryTrace {
    /// The entry is stored and visible.
    Present,
    /// The row is not visible, so it has no visible entry.
    NoRow,
    /// The row has no value of a column of the index key.
    NoValue {
        /// The column.
        column: String,
    },
    /// The row holds a value of another type in a column of the index key.
    OtherType {
        /// The column.
        column: String,
        /// Type of the stored value.
        found: ColumnType,
        /// Type of the column in the index.
        expected: KeyKind,
    },
    /// The index does not cover the tier of the part of the row.
    OtherTier {
        /// Tier of the part.
        tier: Tier,
        /// Tiers that the index covers.
        covered: TierScope,
    },
    /// The index cannot hold the row, for example because the key of the entry is too long.
    Refused(String),
    /// The entry should exist, but does not. Either the build has not reached the row yet, or a write changed the row
    /// during the trace.
    Missing,
}

/// State of a secondary index, and the entry of a row in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexTrace {
    /// Name of the index.
    pub index: String,
    /// False while the index is being built.
    pub is_ready: bool,
    /// The entry.
    pub entry: EntryTrace,
}

/// Layer with its decoded changes, oldest first.
struct Layer {
    location: LayerLocation,
    changes: Vec<(Mutation<'static>, usize)>,
    is_marker: bool,
    deletes_range: bool,
    sequence: Option<SequenceNumber>,
    fragments: usize,
    /// Name of the column group.
    group: Option<String>,
}

impl Layer {
    fn of_buffer(
        number: usize,
        buffer: &TableBuffer,
        key: &[u8],
    ) -> std::result::Result<Option<Self>, Damage> {
        let deletes_range = buffer.is_deleted(key);
        let changes = match buffer.find(key) {
            Found::Row(mutations) => mutations,
            Found::Deleted => Default::default(),
            Found::Nothing => return Ok(None),
        };
        let changes = changes.iter().map(decoded);
        Ok(Some(Self {
            location: LayerLocation::Buffer(number),
            changes: changes.collect::<std::result::Result<_, _>>()?,
            is_marker: false,
            deletes_range,
            sequence: buffer.last_change(key),
            fragments: 0,
            group: None,
        }))
    }

    fn of_part(location: LayerLocation, row: &Bytes, fragments: usize) -> std::result::Result<Self, Damage> {
        Ok(Self {
            location,
            changes: vec![decoded(row)?],
            is_marker: codec::is_delete(row),
            deletes_range: false,
            sequence: None,
            fragments,
            group: None,
        })
    }
}

fn decoded(bytes: &Bytes) -> std::result::Result<(Mutation<'static>, usize), Damage> {
    Ok((codec::decode(bytes)?.into_owned(), bytes.len()))
}

impl WideStore {
    /// Returns everything that is stored for a key.
    ///
    /// # Errors
    ///
    /// The errors of [`row`](Self::row).
    pub fn trace(&self, table: TableId, key: &[u8]) -> Result<KeyTrace> {
        let damaged = |reason| WideError::Damaged { table, reason };
        let rules = self.rules(table)?;
        let number = rules.part_of(key).map_err(damaged)?;
        self.log.check_lease()?;
        loop {
            let state = self.state();
            let layers = self.layers_of(&state, (table, &rules), number, key)?;
            if self.must_read_again(&state) {
                continue;
            }
            let now = self.log.trusted_now().now.nanos();
            let visible = rules.visible_parts(now);
            let part = rules.parts().map(|_| PartTrace {
                number,
                visibility: match (rules.keeps(number), visible.contains(&number)) {
                    (false, _) => PartVisibility::Dropped,
                    (true, false) => PartVisibility::Hidden,
                    (true, true) => PartVisibility::Visible,
                },
            });
            return Ok(trace_of(layers, &rules, part, now));
        }
    }

    /// Returns the layers of a key, newest first. The stored layers of column groups precede the stored layers of the
    /// other columns. A trace applies the layers in reverse order, so the main share creates the row first.
    fn layers_of(
        &self,
        state: &State,
        (table, rules): (TableId, &TableRules),
        number: i32,
        key: &[u8],
    ) -> Result<Vec<Layer>> {
        let damaged = |reason| WideError::Damaged { table, reason };
        let mut layers = Vec::new();
        for (number, buffer) in state.buffers(table).iter().enumerate() {
            layers.extend(Layer::of_buffer(number, buffer, key).map_err(damaged)?);
        }
        if let Some(part) = state.parts.get(&(table, number)) {
            for (group, of_group) in state.group_parts(rules, part, GroupSet::ALL) {
                let first = layers.len();
                self.add_stored(of_group, key, &mut layers)?;
                let name = rules.groups.name(group);
                for layer in &mut layers[first..] {
                    layer.group = Some(name.to_owned());
                }
            }
            self.add_stored(part, key, &mut layers)?;
        }
        Ok(layers)
    }

    /// Adds the stored copies of a row in a part: the single row and the packed row, or the archived row.
    fn add_stored(&self, part: &Part, key: &[u8], layers: &mut Vec<Layer>) -> Result<()> {
        let table = part.at.table;
        let damaged = |reason| WideError::Damaged { table, reason };
        let backend = self.log.backend().as_ref();
        if part.is_archived() {
            if let Some(row) = self.archived_row(part, key)? {
                layers.push(Layer::of_part(LayerLocation::Archive, &row, 0).map_err(damaged)?);
            }
            return Ok(());
        }
        if let Some(single) = backend.get(Partition::part(part.at, ROWS_BUCKET), key)? {
            let head = Head::decode(&single).map_err(damaged)?;
            let fragments = head.map_or(0, |head| head.firsts.len());
            if let Some(row) = self.joined(part, key, single)? {
                let layer = Layer::of_part(LayerLocation::Single, &row, fragments);
                layers.push(layer.map_err(damaged)?);
            }
        }
        if part.detail.has_blocks() {
            let packed = self.blocks(part.at).row(key);
            if let Some(row) = packed.map_err(|error| error.of(table))? {
                layers.push(Layer::of_part(LayerLocation::Packed, &row, 0).map_err(damaged)?);
            }
        }
        Ok(())
    }

    /// Returns the entries of a row in the secondary indexes of its table, ordered by the ids of the indexes. `row` is
    /// the visible row; `None` if reads do not return it.
    ///
    /// # Errors
    ///
    /// The errors of [`row`](Self::row).
    pub fn trace_indexes(
        &self,
        table: TableId,
        key: &[u8],
        row: Option<&Mutation<'_>>,
    ) -> Result<Vec<IndexTrace>> {
        let rules = self.rules(table)?;
        let traces = rules.indexes.iter().map(|index| {
            Ok(IndexTrace {
                index: index.name().to_owned(),
                is_ready: index.is_ready(),
                entry: match row {
                    Some(row) => self.entry_of(table, index, key, row)?,
                    None => EntryTrace::NoRow,
                },
            })
        });
        traces.collect()
    }

    fn entry_of(&self, table: TableId, index: &Index, key: &[u8], row: &Mutation<'_>) -> Result<EntryTrace> {
        let damaged = |reason| WideError::Damaged { table, reason };
        let tier = self.tier_of(table, key)?;
        if !index.tier().has(tier) {
            let covered = index.tier();
            return Ok(EntryTrace::OtherTier { tier, covered });
        }
        let values = index.primary_values(key).map_err(damaged)?;
        if let Some(lack) = index.lack(row) {
            return Ok(match lack {
                EntryLack::NoValue(column) => EntryTrace::NoValue { column },
                EntryLack::OtherType {
                    column,
                    found,
                    expected,
                } => EntryTrace::OtherType {
                    column,
                    found,
                    expected,
                },
            });
        }
        let entry = match index.entry(&values, row) {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(EntryTrace::Missing),
            Err(reason) => return Ok(EntryTrace::Refused(reason)),
        };
        let stored = self.row(index.id(), &entry.key)?;
        Ok(match stored {
            Some(_) => EntryTrace::Present,
            None => EntryTrace::Missing,
        })
    }
}

/// State of a row while its layers are applied.
struct Tracer {
    versions_max: usize,
    versions: Vec<VersionTrace>,
    /// Positions in `versions` of the versions that are not hidden, newest first, by column.
    alive: BTreeMap<ColumnName<'static>, Vec<usize>>,
    /// Changes that are not hidden, each as the position of its layer and its position in the layer.
    changes: Vec<(usize, usize)>,
    /// Time of the row, or of its last deletion. `exists` is true if the row exists.
    time: Option<i64>,
    exists: bool,
    /// Reason why the row is not visible.
    gone: Option<Hidden>,
}

/// Traces layers that are given newest first: applies them from the oldest to the newest, and then the rules of the
/// table.
fn trace_of(layers: Vec<Layer>, rules: &TableRules, part: Option<PartTrace>, now: i64) -> KeyTrace {
    let traced = |layer: &Layer| LayerTrace {
        location: layer.location,
        changes: layer
            .changes
            .iter()
            .map(|(change, bytes)| ChangeTrace {
                effect: change.effect,
                time: (!layer.is_marker).then_some(change.time),
                columns: change.columns.len(),
                bytes: *bytes,
                hidden: None,
            })
            .collect(),
        deletes_range: layer.deletes_range,
        sequence: layer.sequence,
        fragments: layer.fragments,
        group: layer.group.clone(),
    };
    let mut traces: Vec<LayerTrace> = layers.iter().map(traced).collect();
    let mut tracer = Tracer {
        versions_max: rules.versions_max,
        versions: Vec::new(),
        alive: BTreeMap::new(),
        changes: Vec::new(),
        time: None,
        exists: false,
        gone: None,
    };
    for (at, layer) in layers.into_iter().enumerate().rev() {
        tracer.apply(at, layer, &mut traces);
    }
    let expiry = Expiry::new(rules.ttl, now);
    tracer.expire(&expiry, rules.ttl, &mut traces);
    if let Some(rule) = part.and_then(|part| match part.visibility {
        PartVisibility::Visible => None,
        PartVisibility::Hidden => Some(HidingRule::PartHidden),
        PartVisibility::Dropped => Some(HidingRule::PartDropped),
    }) {
        let hidden = Hidden {
            rule,
            by: None,
            since: None,
        };
        tracer.hide_row(hidden, &mut traces);
    }
    let time = tracer.time.filter(|_| tracer.exists);
    let mut versions = tracer.versions;
    versions.sort_by(|one, other| {
        let of = |traced: &VersionTrace| (traced.hidden.is_some(), traced.layer);
        let by_time = other.version.time.cmp(&one.version.time);
        let by_column = one.column.cmp(&other.column);
        by_column.then(by_time).then(of(one).cmp(&of(other)))
    });
    KeyTrace {
        now,
        ttl: rules.ttl,
        versions_max: rules.versions_max,
        part,
        layers: traces,
        versions,
        time,
        hidden: tracer.gone,
    }
}

impl Tracer {
    /// Applies a layer. The first change of a layer hides all older layers, unless it is an update or belongs to a
    /// column group.
    fn apply(&mut self, at: usize, layer: Layer, traces: &mut [LayerTrace]) {
        if layer.group.is_some() {
            self.apply_group(at, layer, traces);
            return;
        }
        let by = |rule, since| Hidden {
            rule,
            by: Some(at),
            since,
        };
        if layer.deletes_range {
            self.delete(by(HidingRule::RangeDeleted, None), traces);
        }
        for (number, (change, _)) in layer.changes.into_iter().enumerate() {
            let since = (!layer.is_marker).then_some(change.time);
            match change.effect {
                Effect::Delete => {
                    self.delete(by(HidingRule::Deleted, since), traces);
                    self.time = since;
                }
                Effect::Replace => {
                    let rule = match layer.location {
                        LayerLocation::Single => HidingRule::NewerCopy,
                        _ => HidingRule::Replaced,
                    };
                    self.hide_row(by(rule, since), traces);
                    (self.time, self.exists, self.gone) = (since, true, None);
                    self.changes.push((at, number));
                    self.add(at, change);
                }
                Effect::Update => {
                    // A deleted row is recreated with the time of the update.
                    let time = if self.exists { self.time.max(since) } else { since };
                    (self.time, self.exists, self.gone) = (time, true, None);
                    self.changes.push((at, number));
                    self.add(at, change);
                }
            }
        }
    }

    /// Applies the stored columns of a group. They hide the older, packed copy of these columns.
    fn apply_group(&mut self, at: usize, layer: Layer, traces: &mut [LayerTrace]) {
        let hidden = Hidden {
            rule: HidingRule::NewerCopy,
            by: Some(at),
            since: (!layer.is_marker)
                .then(|| layer.changes.first().map(|(change, _)| change.time))
                .flatten(),
        };
        let older = traces.get(at + 1).filter(|older| older.group == traces[at].group);
        if older.is_some() {
            for alive in self.alive.values_mut() {
                let (gone, kept) = alive
                    .iter()
                    .partition(|version| self.versions[**version].layer == at + 1);
                *alive = kept;
                let gone: Vec<usize> = gone;
                gone.into_iter()
                    .for_each(|version| self.versions[version].hidden = Some(hidden));
            }
            self.changes.retain(|(layer, change)| {
                let is_older = *layer == at + 1;
                if is_older {
                    traces[*layer].changes[*change].hidden = Some(hidden);
                }
                !is_older
            });
        }
        for (number, (change, _)) in layer.changes.into_iter().enumerate() {
            if !layer.is_marker {
                self.changes.push((at, number));
                self.add(at, change);
            }
        }
        // Columns of a row that does not exist are not read.
        if !self.exists {
            let gone = self.gone.unwrap_or(Hidden {
                rule: HidingRule::Deleted,
                ..hidden
            });
            self.hide_row(gone, traces);
        }
    }

    /// Adds the versions of a change, column by column.
    fn add(&mut self, layer: usize, change: Mutation<'static>) {
        for column in change.columns {
            let hide = |rule| Hidden {
                rule,
                by: Some(layer),
                since: Some(change.time),
            };
            let alive = self.alive.entry(column.name.clone()).or_default();
            if column.clears {
                for version in alive.drain(..) {
                    self.versions[version].hidden = Some(hide(HidingRule::Cleared));
                }
            }
            for version in column.versions {
                let new = self.versions.len();
                let time_of = |at: usize| self.versions[at].version.time;
                let found = alive.binary_search_by(|old| version.time.cmp(&time_of(*old)));
                match found {
                    Ok(at) => {
                        let old = std::mem::replace(&mut alive[at], new);
                        self.versions[old].hidden = Some(hide(HidingRule::SameTime));
                    }
                    Err(at) => alive.insert(at, new),
                }
                self.versions.push(VersionTrace {
                    column: column.name.clone(),
                    version,
                    layer,
                    hidden: None,
                });
            }
            for surplus in alive.drain(self.versions_max.min(alive.len())..) {
                self.versions[surplus].hidden = Some(hide(HidingRule::MaxVersions));
            }
        }
    }

    /// Hides all data that is visible so far, because the row was deleted.
    fn delete(&mut self, hidden: Hidden, traces: &mut [LayerTrace]) {
        self.hide_row(hidden, traces);
        (self.exists, self.gone) = (false, Some(hidden));
    }

    /// Hides all data that is visible so far.
    fn hide_row(&mut self, hidden: Hidden, traces: &mut [LayerTrace]) {
        for version in std::mem::take(&mut self.alive).into_values().flatten() {
            self.versions[version].hidden = Some(hidden);
        }
        for (layer, change) in self.changes.drain(..) {
            traces[layer].changes[change].hidden = Some(hidden);
        }
        if self.exists && self.gone.is_none() {
            self.gone = Some(hidden);
        }
    }

    /// Hides expired data.
    fn expire(&mut self, expiry: &Expiry, ttl: Option<RowTtl>, traces: &mut [LayerTrace]) {
        let Some((ttl, time)) = ttl.zip(self.time.filter(|_| self.exists)) else {
            return;
        };
        let expired = |rule, time: i64| Hidden {
            rule,
            by: None,
            since: Some(time.saturating_add(ttl.after)),
        };
        if expiry.has_expired(time) {
            self.hide_row(expired(HidingRule::RowExpired, time), traces);
            return;
        }
        if !expiry.is_of_cells() {
            return;
        }
        for alive in self.alive.values_mut() {
            alive.retain(|at| {
                let version = &mut self.versions[*at];
                let has_expired = expiry.has_expired(version.version.time);
                if has_expired {
                    version.hidden = Some(expired(HidingRule::CellExpired, version.version.time));
                }
                !has_expired
            });
        }
    }
}
