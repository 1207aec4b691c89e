//! Offline check: reads every row of a part, joins the fragments of large rows, decodes everything, and compares
//! indexes with their rows.
//!
//! For a part in the archive, the check reads the list of files and the locations of the row groups, but not the files:
//! `tideline archive verify` reads them. Index entries of archived rows are decoded, but not compared with their rows.
//!
//! A row of a table with column groups is joined from its shares. The check also reads the parts of the groups on their
//! own: their columns must belong to the group and to a row.
//!
//! The check writes nothing. A large row is stored as a head and fragments. Fragments that no head references are not
//! damage: an interrupted flush leaves them, and the next flush of the row deletes them.

use std::collections::{HashSet, VecDeque};
use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use tideline_backend::{Backend, Direction, Partition, Row};
use tideline_key_codec::part_name;
use tideline_log::{LogError, Manifest, SHARD};
use tideline_model::{KeyRange, TableId};

use crate::archived::archived_rows;
use crate::block::Block;
use crate::blocks::{BLOCKS_BUCKET, BlockError, Blocks};
use crate::codec;
use crate::dictionaries::Dictionaries;
use crate::entry::{Change, Entry};
use crate::error::{Damage, WideError};
use crate::fragments::{FRAGMENTS_BUCKET, Head, join, range_of};
use crate::groups::{self, Share};
use crate::index::{Index, IndexEntry};
use crate::mutation::ColumnName;
use crate::read::{ROWS_BUCKET, STEP_PAGE};
use crate::state::{Part, State};
use crate::store::read_parts;
use crate::tables::{TableRules, Tables};
use crate::value::CellValue;

/// Number of findings in a table or index at which its check ends.
const FINDINGS_MAX: usize = 20;

/// Result of the check of a table or index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckedRows {
    /// Number of rows, or of index entries, in the part.
    pub rows: u64,
    /// Bytes of the keys and columns of these rows, without damaged rows.
    pub bytes: u64,
    /// Descriptions of the damage found, each with the first bytes of the key. If the check ended early, the last
    /// element states this.
    pub findings: Vec<String>,
    /// Number of large values whose rows were attached from an archive that does not contain the values.
    pub not_archived: u64,
}

/// Parts of all wide tables, read from the manifest once for the checks of all tables.
#[derive(Debug)]
pub struct StoredParts {
    /// State without rows in memory.
    state: State,
    tables: Tables,
    dictionaries: Dictionaries,
}

impl StoredParts {
    /// Reads the parts.
    ///
    /// # Errors
    ///
    /// The errors of the backend, and [`LogError::StoredRow`] if the manifest cannot be read.
    pub fn read(backend: &dyn Backend) -> Result<Self, LogError> {
        let stored = backend.manifest(SHARD)?;
        let tables = Tables::new(&Manifest::read(&stored)?, &Tables::default());
        Ok(Self {
            state: State {
                parts: read_parts(&stored.rows)?,
                ..State::default()
            },
            tables,
            dictionaries: Dictionaries::default(),
        })
    }
}

/// Decodes all rows of a stored block that needs no dictionaries: keys and encoded columns, in key order.
///
/// # Errors
///
/// [`Damage`] if the bytes are not a block, or if the block needs a dictionary.
pub fn rows_of_block(block: &[u8]) -> Result<Vec<(Bytes, Bytes)>, Damage> {
    Block::open(block)?.all_rows()
}

/// Checks the flushed rows of a table, and the stored lists of its parts in the archive. `check_key` returns a
/// description of the damage if a stored key is not valid for the table. The result is empty if the table has no part.
/// Columns in a group whose row does not exist are damage, unless `journal` changes the row: an interrupted flush may
/// have written the columns before the row.
///
/// # Errors
///
/// The errors of the backend.
pub fn check_rows(
    backend: &dyn Backend,
    parts: &StoredParts,
    table: TableId,
    journal: &JournalChanges,
    check_key: &dyn Fn(&[u8]) -> Result<(), String>,
) -> Result<CheckedRows, LogError> {
    let mut checked = CheckedRows::default();
    parts.each_row(backend, table, &mut |key, row| {
        let decoded = row.and_then(|row| codec::decode(&row).map(|_| row.len()));
        checked.rows += 1;
        match decoded {
            Ok(bytes) => checked.bytes += (key.len() + bytes) as u64,
            Err(damage) => checked.find("row", key, &damage),
        }
        if let Err(damage) = check_key(key) {
            checked.find("row", key, &damage);
        }
        Ok(checked.may_go_on("rows"))
    })?;
    parts.check_groups(backend, table, journal, &mut checked)?;
    parts.check_archived(backend, table, &mut checked)?;
    Ok(checked)
}

/// Compares the flushed entries of an index with the flushed rows of its table, in both directions. An entry is damage
/// if the index does not cover the part of its row. Reads one row per entry and one entry per row. The following are
/// not compared:
///
/// - Rows and entries that `journal` changes: an interrupted flush may have written only some of the changes. This
///   includes rows whose entry is in the journal, because a build writes entries without their rows.
/// - Rows and entries whose time has `expired`: they are not all removed at the same time.
/// - Entries of rows in the archive.
/// - Rows without an entry while the index is being built.
///
/// # Errors
///
/// The errors of the backend.
pub fn check_index(
    backend: &dyn Backend,
    parts: &StoredParts,
    table: TableId,
    index: &Index,
    journal: &JournalChanges,
    expired: &dyn Fn(i64) -> bool,
) -> Result<CheckedRows, LogError> {
    let mut checked = CheckedRows::default();
    parts.each_row(backend, index.id(), &mut |key, value| {
        checked.rows += 1;
        checked.bytes += (key.len() + value.as_ref().map_or(0, Bytes::len)) as u64;
        let row_key = match index.row_key(key) {
            Ok(row_key) => row_key,
            Err(damage) => {
                checked.find("entry", key, &damage);
                return Ok(checked.may_go_on("entries"));
            }
        };
        let is_expired = value
            .as_ref()
            .is_ok_and(|value| codec::time_of(value).is_ok_and(expired));
        let is_compared = !is_expired && !parts.is_archived(table, &row_key);
        let is_changed = journal.changes(table, &row_key) || journal.changes(index.id(), key);
        if is_compared && !is_changed {
            let expected = entry_of(index, &row_key, parts.row(backend, table, &row_key)?);
            match (expected, value) {
                _ if !parts.maintains(table, &row_key, index) => {
                    checked.find("entry", key, &"the index does not cover the tier of the row");
                }
                (Ok(Some(entry)), Ok(value)) if entry.key == key && entry.value == value => {}
                (Ok(Some(entry)), Ok(value))
                    if entry.key == key && holds_same(index, &entry.value, &value) => {}
                (Ok(Some(entry)), Ok(_)) if entry.key == key => {
                    checked.find("entry", key, &"the entry holds other values than its row");
                }
                (Ok(_), Ok(_)) => checked.find("entry", key, &"the entry has no row"),
                (Err(damage), _) | (_, Err(damage)) => checked.find("entry", key, &damage),
            }
        }
        Ok(checked.may_go_on("entries"))
    })?;
    if !index.is_ready() {
        return Ok(checked);
    }
    parts.each_row(backend, table, &mut |key, row| {
        if journal.changes(table, key) {
            return Ok(true);
        }
        // Damage of the row itself is reported by the check of the rows.
        if let Ok(row) = row
            && parts.covers(table, key, index)
            && let Ok(Some(entry)) = entry_of(index, key, Ok(Some(row)))
            && !codec::time_of(&entry.value).is_ok_and(expired)
            && !journal.changes(index.id(), &entry.key)
            && !matches!(parts.row(backend, index.id(), &entry.key)?, Ok(Some(_)))
        {
            checked.find("row", key, &"the row has no entry");
        }
        Ok(checked.may_go_on("rows"))
    })?;
    Ok(checked)
}

/// Returns true if an entry holds the values of its row, or references to the same cut values. An archived row holds
/// its values itself, even after its restoration, but its entries are not written again and keep their references.
/// Declared columns that the index does not cover are ignored: earlier builds allowed the removal of a covered column,
/// and entries keep its values.
fn holds_same(index: &Index, expected: &[u8], stored: &[u8]) -> bool {
    let (Ok(expected), Ok(mut stored)) = (codec::decode(expected), codec::decode(stored)) else {
        return false;
    };
    stored
        .columns
        .retain(|column| matches!(column.name, ColumnName::Named(_)) || index.covers(&column.name));
    for (own, column) in expected.columns.iter().zip(&mut stored.columns) {
        if let (Some(own), Some(version)) = (own.newest(), column.versions.first_mut())
            && let CellValue::Large(value) = version.value
            && value.is_the_cut_of(&own.value)
        {
            version.value = own.value.clone();
        }
    }
    expected == stored
}

/// Returns the entry that a stored row must have; `None` if the row is missing or needs no entry.
fn entry_of(
    index: &Index,
    key: &[u8],
    row: Result<Option<Bytes>, Damage>,
) -> Result<Option<IndexEntry>, Damage> {
    let Some(row) = row? else {
        return Ok(None);
    };
    let columns = codec::decode(&row)?;
    let values = index.primary_values(key)?;
    Ok(index.entry(&values, &columns).ok().flatten())
}

/// Keys and ranges of the rows and index entries that the journal changes.
#[derive(Debug, Default)]
pub struct JournalChanges {
    rows: HashSet<(TableId, Bytes)>,
    ranges: Vec<(TableId, KeyRange)>,
}

impl JournalChanges {
    /// Checks a journal entry of this model, and adds the rows and index entries that it changes.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the entry or one of its mutations cannot be decoded.
    pub fn add(&mut self, entry: &Bytes) -> Result<(), Damage> {
        let entry = Entry::decode(entry)?;
        let of_indexes = entry.index_changes.into_iter();
        let all = std::iter::once((entry.table, entry.changes)).chain(of_indexes);
        let all: Vec<(TableId, Change)> = all
            .flat_map(|(table, changes)| changes.into_iter().map(move |change| (table, change)))
            .collect();
        all.iter().try_for_each(|(_, change)| match change {
            Change::Row { mutation, .. } => codec::decode(mutation).map(drop),
            Change::DeleteRange(_) => Ok(()),
        })?;
        for (table, change) in all {
            match change {
                // The key is copied, because a slice would keep the whole entry in memory.
                Change::Row { key, .. } => {
                    self.rows.insert((table, Bytes::copy_from_slice(&key)));
                }
                Change::DeleteRange(range) => self.ranges.push((table, range)),
            }
        }
        Ok(())
    }

    /// Returns true if the journal changes the row or index entry.
    pub(crate) fn changes(&self, table: TableId, key: &[u8]) -> bool {
        let is_deleted = |(of, range): &(TableId, KeyRange)| *of == table && range.contains(key);
        self.rows.contains(&(table, Bytes::copy_from_slice(key))) || self.ranges.iter().any(is_deleted)
    }
}

impl CheckedRows {
    /// Adds a finding. `what` is `row` or `entry`.
    pub(crate) fn find(&mut self, what: &str, key: &[u8], damage: &dyn Display) {
        self.findings.push(format!("{what} {}: {damage}", hex(key)));
    }

    /// Returns false, and adds a note, if the check ends because of too many findings.
    pub(crate) fn may_go_on(&mut self, what: &str) -> bool {
        let is_over = self.findings.len() >= FINDINGS_MAX;
        if is_over {
            self.findings.push(format!(
                "further {what} are not checked after {FINDINGS_MAX} damaged ones"
            ));
        }
        !is_over
    }
}

/// Function that receives the key of a stored row and the row, or its damage. It returns false to end the check.
type TakeStored<'t> = dyn FnMut(&[u8], Result<Bytes, Damage>) -> Result<bool, LogError> + 't;

impl StoredParts {
    /// Returns the blocks of a part.
    fn blocks<'b>(&'b self, backend: &'b dyn Backend, part: &Part) -> Blocks<'b> {
        Blocks::new(backend, part.at, &self.dictionaries)
    }

    /// Returns true if the row of a key is in the archive.
    fn is_archived(&self, table: TableId, key: &[u8]) -> bool {
        let number = self.tables.get(table).map(|rules| rules.part_of(key));
        let Some(Ok(number)) = number else {
            return false;
        };
        self.state
            .parts
            .get(&(table, number))
            .is_some_and(Part::is_archived)
    }

    /// Returns true if an index may have the entry of a row, because the index covers the tier of the part or the tier
    /// that the part is about to move to. Also returns true for a damaged key; the check of the rows reports it.
    fn maintains(&self, table: TableId, key: &[u8], index: &Index) -> bool {
        let number = self.tables.get(table).and_then(|rules| rules.part_of(key).ok());
        number.is_none_or(|number| self.state.maintains(table, number, index.tier()))
    }

    /// Returns true if an index must have the entry of a row.
    fn covers(&self, table: TableId, key: &[u8], index: &Index) -> bool {
        let number = self.tables.get(table).and_then(|rules| rules.part_of(key).ok());
        number.is_none_or(|number| index.tier().has(self.state.tier_of(table, number)))
    }

    /// Checks that the stored columns of groups belong to the group and to a row.
    fn check_groups(
        &self,
        backend: &dyn Backend,
        table: TableId,
        journal: &JournalChanges,
        checked: &mut CheckedRows,
    ) -> Result<(), LogError> {
        let Some(rules) = self.tables.get(table) else {
            return Ok(());
        };
        for (group, id) in rules.groups.ids().enumerate() {
            if checked.findings.len() >= FINDINGS_MAX {
                return Ok(());
            }
            let is_foreign = |name: &ColumnName<'_>| rules.groups.share_of(name) != Share::Group(group);
            self.each_row(backend, id, &mut |key, row| {
                let decoded = row
                    .as_ref()
                    .map_err(|damage| *damage)
                    .and_then(|row| codec::decode(row));
                match decoded {
                    Err(damage) => checked.find("group", key, &damage),
                    Ok(row) if row.columns.iter().any(|column| is_foreign(&column.name)) => {
                        checked.find("group", key, &"it has a column that is not of the group");
                    }
                    Ok(_) => {}
                }
                if !journal.changes(table, key) && !self.has_main_share(backend, table, rules, key)? {
                    checked.find("group", key, &"it has columns of a row that does not exist");
                }
                Ok(checked.may_go_on("groups"))
            })?;
        }
        Ok(())
    }

    /// Returns true if the row of a share exists, that is, if its main share is stored or is damaged.
    fn has_main_share(
        &self,
        backend: &dyn Backend,
        table: TableId,
        rules: &TableRules,
        key: &[u8],
    ) -> Result<bool, LogError> {
        let number = rules.part_of(key).ok();
        let part = number.and_then(|number| self.state.parts.get(&(table, number)));
        Ok(match part {
            Some(part) => !matches!(stored(self.blocks(backend, part), part, key)?, Ok(None)),
            None => false,
        })
    }

    /// Checks the stored lists of the parts of a table that are in the archive.
    fn check_archived(
        &self,
        backend: &dyn Backend,
        table: TableId,
        checked: &mut CheckedRows,
    ) -> Result<(), LogError> {
        let parts = self.state.parts.range((table, i32::MIN)..=(table, i32::MAX));
        for (_, part) in parts.filter(|(_, part)| part.is_archived()) {
            match archived_rows(backend, part.at) {
                Ok(rows) => checked.rows += rows,
                Err(WideError::Backend(error)) => return Err(error.into()),
                Err(error) => checked.find("archived part", &part_name(part.at.part), &error),
            }
        }
        Ok(())
    }

    /// Passes each row of the parts of a table or index to `take`, part by part, except for parts in the archive.
    pub(crate) fn each_row(
        &self,
        backend: &dyn Backend,
        table: TableId,
        take: &mut TakeStored<'_>,
    ) -> Result<(), LogError> {
        let rules = self.tables.get(table);
        for part in self
            .state
            .parts
            .range((table, i32::MIN)..=(table, i32::MAX))
            .map(|(_, part)| part)
        {
            if part.is_archived() {
                continue;
            }
            let mut is_ended = false;
            each_row_of(self.blocks(backend, part), part, &mut |key, row| {
                let number = rules.map_or(Ok(part.number()), |rules| rules.part_of(key));
                let row = match (number, row) {
                    (Ok(number), row) if number == part.number() => match row {
                        Ok(main) => self.with_groups(backend, rules, part, (key, main))?,
                        damaged => damaged,
                    },
                    (Ok(_), _) => Err(Damage("the row belongs to another part")),
                    (Err(damage), _) => Err(damage),
                };
                let goes_on = take(key, row)?;
                is_ended = !goes_on;
                Ok(goes_on)
            })?;
            if is_ended {
                break;
            }
        }
        Ok(())
    }

    /// Returns the part that holds the pieces of the large values of a row; `None` if there is no such part.
    pub(crate) fn large_part(&self, table: TableId, key: &[u8]) -> Option<&Part> {
        let rules = self.tables.get(table)?;
        self.state
            .parts
            .get(&(rules.large_values?, rules.part_of(key).ok()?))
    }

    /// Returns true if this database never had the pieces of a large value of a row, given by its id.
    pub(crate) fn is_elsewhere(&self, table: TableId, key: &[u8], value: u64) -> bool {
        let rules = self.tables.get(table);
        rules.is_some_and(|rules| {
            let number = rules.part_of(key);
            number.is_ok_and(|number| self.state.is_elsewhere(table, rules, (number, value)))
        })
    }

    /// Returns a row of a table or index; `None` if there is no such row.
    fn row(
        &self,
        backend: &dyn Backend,
        table: TableId,
        key: &[u8],
    ) -> Result<Result<Option<Bytes>, Damage>, LogError> {
        let number = match self.tables.get(table).map(|rules| rules.part_of(key)) {
            None => return Ok(Ok(None)),
            Some(Ok(number)) => number,
            Some(Err(damage)) => return Ok(Err(damage)),
        };
        let Some(part) = self.state.parts.get(&(table, number)) else {
            return Ok(Ok(None));
        };
        match stored(self.blocks(backend, part), part, key)? {
            Ok(Some(main)) => {
                let row = self.with_groups(backend, self.tables.get(table), part, (key, main))?;
                Ok(row.map(Some))
            }
            missing => Ok(missing),
        }
    }

    /// Returns a row of a part together with the columns of its groups. `main` is the main share of the row.
    fn with_groups(
        &self,
        backend: &dyn Backend,
        rules: Option<&Arc<TableRules>>,
        part: &Part,
        (key, main): (&[u8], Bytes),
    ) -> Result<Result<Bytes, Damage>, LogError> {
        let mut of_groups = Vec::new();
        for id in rules.into_iter().flat_map(|rules| rules.groups.ids()) {
            if let Some(of_group) = self.state.parts.get(&(id, part.number())) {
                match stored(self.blocks(backend, of_group), of_group, key)? {
                    Ok(found) => of_groups.extend(found),
                    Err(damage) => return Ok(Err(damage)),
                }
            }
        }
        Ok(groups::join(main, &of_groups))
    }
}

/// Returns the stored row of a key in a part; `None` if the part does not have the row.
fn stored(blocks: Blocks<'_>, part: &Part, key: &[u8]) -> Result<Result<Option<Bytes>, Damage>, LogError> {
    let backend = blocks.backend();
    match backend.get(Partition::part(part.at, ROWS_BUCKET), key)? {
        Some(single) if codec::is_delete(&single) => Ok(Ok(None)),
        Some(single) => Ok(joined(backend, part, key, &single)?.map(Some)),
        None if part.detail.has_blocks() => match blocks.row(key) {
            Ok(row) => Ok(Ok(row)),
            Err(BlockError::Damage(damage)) => Ok(Err(damage)),
            Err(BlockError::Backend(error)) => Err(error.into()),
        },
        None => Ok(Ok(None)),
    }
}

/// Passes each row of a part to `take`.
fn each_row_of(blocks: Blocks<'_>, part: &Part, take: &mut TakeStored<'_>) -> Result<(), LogError> {
    let backend = blocks.backend();
    let mut singles = Singles::new(backend, part);
    let mut below = None;
    let mut rest = part.detail.has_blocks().then_some(KeyRange::ALL);
    while let Some(range) = rest {
        let bucket = Partition::part(part.at, BLOCKS_BUCKET);
        let page = backend.scan(bucket, &range, Direction::Ascending, STEP_PAGE)?;
        for block in page.rows {
            let packed = match rows_of(blocks, &block, below.as_deref()) {
                Ok(rows) => rows,
                Err(BlockError::Backend(error)) => return Err(error.into()),
                Err(BlockError::Damage(damage)) => {
                    if !take(&block.key, Err(damage))? {
                        return Ok(());
                    }
                    Vec::new()
                }
            };
            for (key, row) in packed {
                if !singles.pass_below(Some(&key), take)? {
                    return Ok(());
                }
                let is_hidden = singles.is_next(&key)?;
                if !is_hidden && !take(&key, Ok(row))? {
                    return Ok(());
                }
            }
            below = Some(block.key);
        }
        rest = page.next;
    }
    singles.pass_below(None, take)?;
    Ok(())
}

/// Returns the rows of a block. `below` is the key of the block before it.
///
/// # Errors
///
/// [`BlockError::Damage`] if the block is damaged, or has rows outside its span, and the errors of the backend.
fn rows_of(blocks: Blocks<'_>, block: &Row, below: Option<&[u8]>) -> Result<Vec<(Bytes, Bytes)>, BlockError> {
    let opened = blocks.open(&block.value)?;
    let rows = opened.all_rows()?;
    let bytes: usize = rows.iter().map(|(key, row)| key.len() + row.len()).sum();
    let is_in_span = below.is_none_or(|below| below < opened.first)
        && rows.last().is_some_and(|(last, _)| *last <= block.key)
        && rows.first().is_some_and(|(first, _)| *first == opened.first);
    if bytes != opened.bytes {
        return Err(Damage("the rows of a block have another size than its header records").into());
    }
    match is_in_span {
        true => Ok(rows),
        false => Err(Damage("a block has rows that belong to another block").into()),
    }
}

/// Single rows of a part, in key order.
struct Singles<'b> {
    backend: &'b dyn Backend,
    part: &'b Part,
    rows: VecDeque<Row>,
    rest: Option<KeyRange>,
}

impl<'b> Singles<'b> {
    fn new(backend: &'b dyn Backend, part: &'b Part) -> Self {
        Self {
            backend,
            part,
            rows: VecDeque::new(),
            rest: Some(KeyRange::ALL),
        }
    }

    fn front(&mut self) -> Result<Option<&Row>, LogError> {
        while self.rows.is_empty()
            && let Some(range) = self.rest.take()
        {
            let bucket = Partition::part(self.part.at, ROWS_BUCKET);
            let page = self
                .backend
                .scan(bucket, &range, Direction::Ascending, STEP_PAGE)?;
            (self.rows, self.rest) = (page.rows.into(), page.next);
        }
        Ok(self.rows.front())
    }

    /// Returns true if the next single row has the key.
    fn is_next(&mut self, key: &[u8]) -> Result<bool, LogError> {
        Ok(self.front()?.is_some_and(|row| row.key == key))
    }

    /// Passes the rows with keys below `end` to `take`, without the markers of deleted rows. Returns false if `take`
    /// ended the check.
    fn pass_below(&mut self, end: Option<&[u8]>, take: &mut TakeStored<'_>) -> Result<bool, LogError> {
        while self
            .front()?
            .is_some_and(|row| end.is_none_or(|end| row.key < end))
        {
            let Some(row) = self.rows.pop_front() else { break };
            if !codec::is_delete(&row.value) {
                let stored = joined(self.backend, self.part, &row.key, &row.value)?;
                if !take(&row.key, stored)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// Returns a stored row, with its fragments joined if it is large.
fn joined(
    backend: &dyn Backend,
    part: &Part,
    key: &[u8],
    value: &Bytes,
) -> Result<Result<Bytes, Damage>, LogError> {
    let head = match Head::decode(value) {
        Ok(None) => return Ok(Ok(value.clone())),
        Ok(Some(head)) => head,
        Err(damage) => return Ok(Err(damage)),
    };
    let mut fragments = Vec::new();
    let mut rest = Some(range_of(key, Some(head.generation)));
    while let Some(range) = rest {
        let bucket = Partition::part(part.at, FRAGMENTS_BUCKET);
        let page = backend.scan(bucket, &range, Direction::Ascending, STEP_PAGE)?;
        fragments.extend(page.rows.into_iter().map(|row| row.value));
        rest = page.next;
    }
    Ok(whole(&head, &fragments))
}

fn whole(head: &Head, fragments: &[Bytes]) -> Result<Bytes, Damage> {
    if fragments.len() != head.firsts.len() {
        return Err(Damage("fragments of a row are missing"));
    }
    let whole = join(head, fragments)?;
    match whole.len() as u64 == head.bytes {
        true => Ok(whole),
        false => Err(Damage(
            "the fragments of a row have another size than its head records",
        )),
    }
}

/// Returns the first 40 bytes of a key in hexadecimal.
fn hex(key: &[u8]) -> String {
    let shown: String = key.iter().take(40).map(|byte| format!("{byte:02x}")).collect();
    match key.len() > 40 {
        true => format!("{shown}…"),
        false => shown,
    }
}
