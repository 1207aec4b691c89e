//! Secondary indexes: derives the entry of a row, and the key of the row from its entry.
//!
//! An entry is stored like a row, under the id of the index. Its key holds the columns of the index and of the primary
//! key. Its value holds the time of the row, and the newest version of each covered column. A row has no entry if it
//! lacks a value in one of the index columns, or if the value has another type.
//!
//! The entry of a row depends only on this row. A writer therefore reads the current row first, and adds the changes of
//! all index entries to the journal entry of the write. An acknowledged write is visible in every index.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tideline_key_codec::layout::KeyLayout;
use tideline_key_codec::tuple::{KeyKind, KeyValue};
use tideline_model::{ColumnType, IndexCover, IndexScope, IndexSpec, TableId, TierScope, WideSpec};

use crate::codec;
use crate::entry::Change;
use crate::error::Damage;
use crate::mutation::{Column, ColumnName, Effect, Mutation, column_of};
use crate::read::StoredRow;
use crate::value::CellValue;

/// Memory in which an entry is encoded, in bytes; larger entries need more.
const ENTRY_BYTES: usize = 128;

/// Compiled secondary index.
#[derive(Debug)]
pub struct Index {
    pub(crate) id: TableId,
    name: String,
    is_ready: bool,
    tier: TierScope,
    layout: KeyLayout,
    primary: Arc<KeyLayout>,
    /// Origin of each logical column of the index key.
    sources: Vec<Source>,
    /// Position of each logical column of the primary key in the index key.
    primary_numbers: Vec<usize>,
    /// Covered columns, sorted; `None` = all columns.
    covered: Option<Vec<ColumnName<'static>>>,
    /// True if the cells of the table expire one by one.
    cells_expire: bool,
}

/// Origin of the values in a column of an index key.
#[derive(Debug)]
enum Source {
    /// Logical column of the primary key, by its number.
    Key(usize),
    /// Column of the row.
    Column(ColumnName<'static>),
}

/// Entry of a row: its key and its encoded value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) key: Bytes,
    pub(crate) value: Bytes,
}

/// Reason why a row has no entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EntryLack {
    /// The row has no value of a column of the index key.
    NoValue(String),
    /// The row holds a value of another type than the column of the index key.
    OtherType {
        column: String,
        found: ColumnType,
        expected: KeyKind,
    },
}

impl Index {
    /// Compiles the indexes of a table.
    ///
    /// # Errors
    ///
    /// A message if an index or the key of the table is not valid.
    pub fn all_of(table: &WideSpec) -> Result<Vec<Arc<Self>>, String> {
        if table.indexes.is_empty() {
            return Ok(Vec::new());
        }
        let primary = KeyLayout::new(&table.key, true).map_err(|error| error.to_string())?;
        let primary = Arc::new(primary);
        let mut indexes = Vec::with_capacity(table.indexes.len());
        for index in &table.indexes {
            indexes.push(Arc::new(Self::new(table, &primary, index)?));
        }
        indexes.sort_by_key(|index| index.id);
        Ok(indexes)
    }

    fn new(table: &WideSpec, primary: &Arc<KeyLayout>, spec: &IndexSpec) -> Result<Self, String> {
        let is_local = spec.scope == IndexScope::Local;
        let refuse = |reason: String| format!("index {:?}: {reason}", spec.name);
        let layout = KeyLayout::of_index(&table.key, &spec.key, is_local, spec.allow_rising_key);
        let layout = layout.map_err(|error| refuse(error.to_string()))?;
        let mut sources = Vec::with_capacity(layout.logical().len());
        for column in layout.logical() {
            let in_key = primary.logical().iter().position(|key| key.name == column.name);
            let (source, declared) = match in_key {
                Some(number) => (Source::Key(number), Some(primary.logical()[number].kind)),
                None => {
                    let name = column_name(table, &column.name).ok_or_else(|| {
                        refuse(format!(
                            "column {:?} is neither declared by its name nor part of the key; declare it with its type \
                             before the index is created, and drop the index before the column is removed",
                            column.name
                        ))
                    })?;
                    let declared = table.columns.iter().find(|declared| declared.name == column.name);
                    let kind = declared.and_then(|declared| KeyKind::of(declared.column_type));
                    (Source::Column(name), kind)
                }
            };
            if declared != Some(column.kind) {
                return Err(refuse(format!(
                    "column {:?} has another type in the table than {}",
                    column.name, column.kind
                )));
            }
            sources.push(source);
        }
        let number_of = |name: &str| layout.logical().iter().position(|column| column.name == name);
        let primary_numbers = primary
            .logical()
            .iter()
            .filter_map(|column| number_of(&column.name));
        let covered = match &spec.covers {
            IndexCover::All => None,
            IndexCover::Columns(names) => {
                let mut covered = Vec::with_capacity(names.len());
                for name in names {
                    covered.push(column_name(table, name).unwrap_or_else(|| named(name)));
                }
                covered.sort();
                Some(covered)
            }
        };
        Ok(Self {
            id: TableId(spec.id),
            name: spec.name.clone(),
            is_ready: spec.is_ready(),
            tier: spec.tier,
            primary_numbers: primary_numbers.collect(),
            primary: Arc::clone(primary),
            layout,
            sources,
            covered,
            cells_expire: table.cells_expire(),
        })
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the id under which the entries are stored.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Returns the layout of the keys of the entries.
    pub fn layout(&self) -> &KeyLayout {
        &self.layout
    }

    /// Returns the tiers of the parts whose rows have entries.
    pub fn tier(&self) -> TierScope {
        self.tier
    }

    /// Returns true if the index is completely built, so that no entry is missing.
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Returns true if the entries hold the newest version of this column, in their key or in their value.
    pub fn holds(&self, column: &ColumnName<'_>) -> bool {
        let Some(covered) = &self.covered else {
            return true;
        };
        // Keys store decimals without trailing zeros, so the original number of digits is lost.
        let mut keys = self.sources.iter().zip(self.layout.logical());
        let in_key = keys.any(|(source, key)| {
            matches!(source, Source::Column(name) if name == column) && key.kind != KeyKind::Decimal
        });
        in_key || covered.iter().any(|name| name == column)
    }

    /// Returns true if the values of the entries hold this column.
    pub(crate) fn covers(&self, column: &ColumnName<'_>) -> bool {
        let covered = self.covered.as_ref();
        covered.is_none_or(|covered| covered.iter().any(|name| name == column))
    }

    /// Returns true if the entries hold the newest version of every column.
    pub fn holds_all(&self) -> bool {
        self.covered.is_none()
    }

    /// Returns false if a row with these columns has no entry, because one of the index columns is missing.
    pub(crate) fn may_have_entry(&self, columns: &[Column<'_>]) -> bool {
        self.sources.iter().all(|source| match source {
            Source::Key(_) => true,
            Source::Column(name) => columns.iter().any(|column| column.name == *name),
        })
    }

    /// Returns the entry of a row; `None` if the row has no entry. `values` are the logical values of its primary key.
    ///
    /// # Errors
    ///
    /// A message if the key of the entry is too long, or if the modifiers of the index do not accept its values.
    pub(crate) fn entry(
        &self,
        values: &[KeyValue<'_>],
        row: &Mutation<'_>,
    ) -> Result<Option<IndexEntry>, String> {
        self.entry_of(values, row.time, &row.columns)
    }

    /// Returns the entry of a row like [`entry`](Self::entry), for the time and the sorted columns of the row.
    fn entry_of(
        &self,
        values: &[KeyValue<'_>],
        time: i64,
        columns: &[Column<'_>],
    ) -> Result<Option<IndexEntry>, String> {
        let mut logical = Vec::with_capacity(self.sources.len());
        let mut oldest = time;
        for (source, column) in self.sources.iter().zip(self.layout.logical()) {
            let value = match source {
                Source::Key(number) => Some(values[*number].clone()),
                Source::Column(name) => {
                    let newest = column_of(columns, name).and_then(Column::newest);
                    // A cut value is longer than any key.
                    if let Some(version) = newest
                        && let CellValue::Large(value) = &version.value
                        && value.is_cut
                        && KeyKind::of(version.value.column_type()) == Some(column.kind)
                    {
                        return Err(format!(
                            "the row cannot be stored in the index {:?}: the value of column {:?} has {} bytes",
                            self.name, column.name, value.bytes
                        ));
                    }
                    newest.and_then(|version| {
                        oldest = oldest.min(version.time);
                        version.value.key_value()
                    })
                }
            };
            match value.filter(|value| value.kind() == column.kind) {
                Some(value) => logical.push(value),
                None => return Ok(None),
            }
        }
        // The key and the value share one allocation.
        let mut out = Vec::with_capacity(ENTRY_BYTES);
        self.layout
            .encode(&logical, &mut out)
            .map_err(|error| format!("the row cannot be stored in the index {:?}: {error}", self.name))?;
        let key_bytes = out.len();
        // If cells expire one by one, an entry expires with its row, or with the first of the values in its key.
        let time = match self.cells_expire {
            true => oldest,
            false => time,
        };
        self.encode_value(time, columns, &mut out);
        let mut value = Bytes::from(out);
        Ok(Some(IndexEntry {
            key: value.split_to(key_bytes),
            value,
        }))
    }

    /// Appends the value of an entry: the newest version of each covered column.
    fn encode_value(&self, time: i64, columns: &[Column<'_>], out: &mut Vec<u8>) {
        let is_newest = |column: &Column<'_>| column.versions.len() == 1 && !column.clears;
        let held: Vec<Column<'_>> = match &self.covered {
            // The columns are encoded as they are.
            None if columns.iter().all(is_newest) => {
                return codec::encode_columns(Effect::Replace, time, columns, out);
            }
            None => columns.iter().filter_map(newest_version).collect(),
            Some(covered) => covered
                .iter()
                .filter_map(|name| column_of(columns, name).and_then(newest_version))
                .collect(),
        };
        codec::encode_columns(Effect::Replace, time, &held, out);
    }

    /// Returns the reason why a row has no entry; `None` if the row has an entry, or if the layout of the index key
    /// refuses the values of the row.
    pub(crate) fn lack(&self, row: &Mutation<'_>) -> Option<EntryLack> {
        let columns = self.sources.iter().zip(self.layout.logical());
        columns.into_iter().find_map(|(source, column)| {
            let Source::Column(name) = source else { return None };
            let Some(version) = row.column(name).and_then(Column::newest) else {
                return Some(EntryLack::NoValue(column.name.clone()));
            };
            let kind = version.value.key_value().map(|value| value.kind());
            (kind != Some(column.kind)).then(|| EntryLack::OtherType {
                column: column.name.clone(),
                found: version.value.column_type(),
                expected: column.kind,
            })
        })
    }

    /// Returns the stored key of the row of an entry.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the key of the entry is damaged.
    pub fn row_key(&self, entry_key: &[u8]) -> Result<Vec<u8>, Damage> {
        let damaged = |_| Damage("the key of an index entry is damaged");
        let values = self.layout.decode(entry_key).map_err(damaged)?;
        let primary: Vec<KeyValue<'_>> = self
            .primary_numbers
            .iter()
            .map(|number| values[*number].clone())
            .collect();
        let mut key = Vec::new();
        let encoded = self.primary.encode(&primary, &mut key);
        encoded.map_err(|_| Damage("the key of an index entry is not that of a row"))?;
        Ok(key)
    }

    /// Converts an entry to a stored row with the columns that the entry holds. Columns that are stored only in the
    /// index key get the time of the row.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the entry is damaged.
    pub fn covered_row(&self, entry: &StoredRow) -> Result<StoredRow, Damage> {
        let damaged = |_| Damage("the key of an index entry is damaged");
        let values = self.layout.decode(&entry.key).map_err(damaged)?;
        let stored = entry.columns()?;
        let mut columns: BTreeMap<ColumnName<'_>, Column<'_>> = self
            .sources
            .iter()
            .zip(&values)
            .filter_map(|(source, value)| match source {
                Source::Key(_) => None,
                Source::Column(name) => {
                    let column = Column::with(name.clone(), stored.time, CellValue::of_key(value));
                    Some((name.clone(), column))
                }
            })
            .collect();
        columns.extend(
            stored
                .columns
                .into_iter()
                .map(|column| (column.name.clone(), column)),
        );
        let row = Mutation {
            effect: Effect::Replace,
            time: stored.time,
            columns: columns.into_values().collect(),
        };
        let mut value = Vec::new();
        codec::encode(&row, &mut value);
        Ok(StoredRow::new(self.row_key(&entry.key)?.into(), value.into()))
    }

    /// Returns true if the current entry of the row has this key.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the row is damaged.
    pub fn is_entry_of(&self, entry_key: &[u8], row: &StoredRow) -> Result<bool, Damage> {
        let columns = row.columns()?;
        let values = self.primary_values(&row.key)?;
        let entry = self.entry(&values, &columns).ok().flatten();
        Ok(entry.is_some_and(|entry| entry.key == entry_key))
    }

    /// Decodes the stored key of a row.
    pub(crate) fn primary_values<'k>(&self, key: &'k [u8]) -> Result<Vec<KeyValue<'k>>, Damage> {
        let damaged = |_| Damage("the key of a row is damaged");
        self.primary.decode(key).map_err(damaged)
    }
}

/// Returns the changes of the index entries of one row, each with the id of its index, in the order of `indexes`.
/// `before` is the row before a write, and `after` are the time and the sorted columns of the row after the write;
/// `None` if the row does not exist.
///
/// # Errors
///
/// A message if the stored key is damaged, or if the new row cannot have an entry in an index.
pub(crate) fn changes_of(
    indexes: &[&Index],
    key: &[u8],
    before: Option<&Mutation<'_>>,
    after: Option<(i64, &[Column<'_>])>,
    time: i64,
) -> Result<Vec<(TableId, Change)>, String> {
    let Some(first) = indexes.first() else {
        return Ok(Vec::new());
    };
    let values = first.primary_values(key).map_err(|damage| damage.to_string())?;
    let mut all = Vec::with_capacity(indexes.len());
    for index in indexes {
        // A row that was written before the index existed may have no valid entry.
        let old = before.and_then(|row| index.entry(&values, row).ok().flatten());
        let new = match after {
            Some((time, columns)) => index.entry_of(&values, time, columns)?,
            None => None,
        };
        if let Some(old) = &old
            && new.as_ref().is_none_or(|new| new.key != old.key)
        {
            let key = old.key.clone();
            let mutation = codec::encoded(&Mutation::delete(time));
            all.push((index.id, Change::Row { key, mutation }));
        }
        // While an index is being built, the old entry may be missing, so an unchanged entry is written again.
        if let Some(new) = new.filter(|new| !index.is_ready || old.as_ref() != Some(new)) {
            let (key, mutation) = (new.key, new.value);
            all.push((index.id, Change::Row { key, mutation }));
        }
    }
    Ok(all)
}

/// Returns the column with its newest version only, which borrows its name and value; `None` if it has no version.
fn newest_version<'c>(column: &'c Column<'_>) -> Option<Column<'c>> {
    let version = column.newest()?;
    Some(Column::with(
        column.name.borrowed(),
        version.time,
        version.value.borrowed(),
    ))
}

/// Returns the stored name of a declared column; `None` if the column is not declared, or only by a pattern.
fn column_name(table: &WideSpec, name: &str) -> Option<ColumnName<'static>> {
    let mut declared = table.columns.iter();
    let declared = declared.find(|column| column.name == name && !column.is_pattern())?;
    Some(match declared.number {
        0 => named(name),
        number => ColumnName::Declared(number),
    })
}

fn named(name: &str) -> ColumnName<'static> {
    ColumnName::Named(name.to_owned().into())
}
