//! Reads (rows by key, scans and counts), and deletes of ranges.
//!
//! Rows are converted to JSON one by one and passed to the caller. Memory is therefore bounded by one page of the
//! engine per range.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use tideline_engine::backend::Direction;
use tideline_engine::indexes::Index;
use tideline_engine::key_codec::layout::Ranges;
use tideline_engine::key_codec::tuple::KeyValue;
use tideline_engine::model::{Durability, SequenceNumber, Tier, TierScope};
use tideline_engine::rows::{GroupSet, PartSelection, RangeDigest, RowPath, RowScan, ScannedRow, StoredRow};
use tideline_engine::{Engine, WideTable};
use tideline_openapi::condition::RowFilter;
use tideline_openapi::row::{DeleteRows, GetRows, KeyBounds, Members, PageEnd, ScanDirection};
use tideline_openapi::tier::RowTiers;

use crate::condition::{RowMatcher, required_columns};
use crate::error::{Result, RowsError};
use crate::parts::{check_tier, parts_of};
use crate::selection::{RowEncoder, Selection};
use crate::transaction::one_partition;
use crate::{key, token, transaction};

/// Maximum number of keys of a request.
pub const KEYS_MAX: u64 = 2_000;
/// Maximum number of rows of a page.
pub const PAGE_ROWS_MAX: u64 = 10_000;
/// Default number of rows of a page.
pub const PAGE_ROWS: u64 = 100;
/// Maximum number of rows that are read for a page.
pub const PAGE_SCANNED_MAX: u64 = 100_000;
/// Total size of the rows of a page, in bytes of JSON, at which the page ends.
pub const PAGE_BYTES_MAX: u64 = 4 << 20;
/// Maximum number of rows that are read for one count request.
pub const COUNT_SCANNED_MAX: u64 = 1_000_000;
/// Assumed number of rows of a scan without a limit, or with a condition.
const MANY_ROWS: usize = 1 << 20;

/// Returns the keys of a request in their stored form.
///
/// # Errors
///
/// [`RowsError::Invalid`] for keys that are not valid for the table, and [`RowsError::OverLimit`] for more than
/// [`KEYS_MAX`].
pub fn keys_of(table: &WideTable, request: &GetRows) -> Result<Vec<Vec<u8>>> {
    match (&request.keys, &request.lists) {
        (Some(keys), None) => {
            if keys.len() as u64 > KEYS_MAX {
                return Err(RowsError::over("number of keys", KEYS_MAX, keys.len() as u64));
            }
            let encoded = keys.iter().enumerate().map(|(number, members)| {
                key::encode(table, members).map_err(|error| match error {
                    RowsError::Invalid(reason) => RowsError::Invalid(format!("keys/{number}: {reason}")),
                    error => error,
                })
            });
            encoded.collect()
        }
        (None, Some(lists)) => product(table, lists),
        _ => Err(RowsError::Invalid("give exactly one of keys and in".into())),
    }
}

/// Returns the stored keys of all combinations of one value from each list.
fn product(table: &WideTable, lists: &BTreeMap<String, Vec<Box<RawValue>>>) -> Result<Vec<Vec<u8>>> {
    let layout = table.layout();
    for name in lists.keys() {
        layout.logical_number(name)?;
    }
    let mut values = Vec::with_capacity(layout.logical().len());
    for column in layout.logical() {
        let list = lists.get(&column.name).ok_or_else(|| {
            RowsError::Invalid(format!(
                "in: the key column {:?} has no list of values; give a list for each key column, or use a scan with \
                 a prefix",
                column.name
            ))
        })?;
        let parsed = list
            .iter()
            .map(|json| key::parse_value(&column.name, json.get(), column.kind));
        let parsed = parsed.collect::<std::result::Result<Vec<KeyValue<'_>>, String>>();
        values.push(parsed.map_err(RowsError::Invalid)?);
    }
    let product = layout.product(&values, KEYS_MAX)?;
    let encoded = product.iter().map(|combination| {
        let mut out = Vec::new();
        layout.encode(&combination, &mut out)?;
        Ok(out)
    });
    encoded.collect()
}

/// Reads rows by their stored keys and passes the existing rows to `take`. Columns of groups that the selection does
/// not need may be missing.
///
/// # Errors
///
/// The errors of [`get`].
pub fn get_stored(
    engine: &Engine,
    table: &WideTable,
    keys: &[Vec<u8>],
    selection: &Selection,
    is_stopped: &dyn Fn() -> bool,
    take: &mut dyn FnMut(&StoredRow) -> Result<()>,
) -> Result<()> {
    let groups = selection.groups(table);
    selection.note(engine, table, None);
    engine.admit_reads(table, keys.iter().map(Vec::as_slice))?;
    for key in keys {
        if is_stopped() {
            return Err(RowsError::Cancelled);
        }
        if let Some(row) = engine.row_of_groups(table, key, groups)? {
            take(&row)?;
        }
    }
    Ok(())
}

/// Reads rows by their stored keys. Passes each row to `take` as JSON, or `None` if the row does not exist. Returns the
/// number of rows that exist.
///
/// # Errors
///
/// [`RowsError::Cancelled`] if `is_stopped` returns true, the errors of [`Engine::row`] and those of `take`.
pub fn get(
    engine: &Engine,
    table: &WideTable,
    keys: &[Vec<u8>],
    selection: &Selection,
    is_stopped: &dyn Fn() -> bool,
    take: &mut dyn FnMut(Option<&[u8]>) -> Result<()>,
) -> Result<u64> {
    let mut found = 0;
    let mut json = Vec::new();
    let groups = selection.groups(table);
    selection.note(engine, table, None);
    engine.admit_reads(table, keys.iter().map(Vec::as_slice))?;
    for key in keys {
        if is_stopped() {
            return Err(RowsError::Cancelled);
        }
        match engine.row_of_groups(table, key, groups)? {
            None => take(None)?,
            Some(row) => {
                found += 1;
                json.clear();
                write_row(table, &row, selection, &mut json)?;
                take(Some(&json))?;
            }
        }
    }
    Ok(found)
}

/// Planned scan.
#[derive(Debug)]
pub struct Scan {
    pub(crate) path: RowPath,
    pub(crate) ranges: Ranges,
    direction: Direction,
    pub(crate) matcher: Option<RowMatcher>,
    /// Parts from which rows are read.
    pub(crate) parts: PartSelection,
    /// Column groups that the condition needs, and that the check of index entries against their rows needs.
    pub(crate) tested: GroupSet,
    /// Column groups that the result needs.
    returned: GroupSet,
    /// Names of the columns that the result and the condition need; `None` for all columns.
    columns: Option<Vec<String>>,
    after: Option<Vec<u8>>,
    /// Bytes that identify the request in page tokens.
    pub(crate) terms: Vec<u8>,
}

/// Parameters of a scan.
#[derive(Debug, Clone, Copy)]
pub struct ScanTerms<'a> {
    /// Name of the index to whose key `prefix` and `range` apply; `None` = the primary key.
    pub index: Option<&'a str>,
    /// Values of the first key columns.
    pub prefix: &'a Members,
    /// Bounds of the next key column.
    pub range: Option<&'a KeyBounds>,
    /// Direction of the scan.
    pub direction: ScanDirection,
    /// Condition on rows.
    pub filter: Option<&'a RowFilter>,
    /// Tiers from whose parts rows are read.
    pub tier: RowTiers,
    /// Token returned by the previous page; `None` for the first page.
    pub page_token: Option<&'a str>,
    /// True if all rows of the table may be read.
    pub allow_scan: bool,
}

/// Columns of a row that the result needs, in addition to the columns of the filter.
#[derive(Debug, Clone, Copy)]
pub enum NeededColumns<'a> {
    /// The newest values of these columns.
    Named(&'a [String]),
    /// The newest values of all columns.
    All,
    /// The whole stored row. Needed, for example, if versions are returned.
    Stored,
}

impl NeededColumns<'_> {
    /// Returns true if the entries of an index hold these columns and the columns of a filter.
    fn is_covered(&self, table: &WideTable, index: &Index, filter: Option<&RowMatcher>) -> bool {
        let is_held = |name: &String| table.layout().has_column(name) || index.holds(&table.column(name).0);
        let result = match self {
            Self::Named(names) => names.iter().all(is_held),
            Self::All => index.holds_all(),
            Self::Stored => false,
        };
        result && filter.is_none_or(|filter| filter.columns().iter().all(is_held))
    }

    /// Returns the names of these columns and of the columns of a filter; `None` for all columns.
    fn names(&self, filter: Option<&RowMatcher>) -> Option<Vec<String>> {
        match self {
            Self::Named(names) => {
                Some([names, &filter.map_or_else(Vec::new, RowMatcher::columns)[..]].concat())
            }
            Self::All | Self::Stored => None,
        }
    }

    /// Returns the column groups that store these columns and the columns of a filter.
    pub fn groups(&self, table: &WideTable, filter: Option<&RowMatcher>) -> GroupSet {
        match self.names(filter) {
            Some(names) => table.groups_of(names.iter().map(String::as_str)),
            None => GroupSet::ALL,
        }
    }

    /// Records a read of these columns and of the columns of a filter in the statistics of column use.
    pub fn note(&self, engine: &Engine, table: &WideTable, filter: Option<&RowMatcher>) {
        let names = self.names(filter);
        let names = names.as_ref().map(|names| names.iter().map(String::as_str));
        engine.note_column_reads(table, names);
    }
}

/// Parameters of a scan of given ranges.
#[derive(Debug, Clone, Copy)]
pub struct RangeTerms<'a> {
    /// Index to whose keys the ranges apply; `None` = the primary key.
    pub index: Option<&'a Arc<Index>>,
    /// Columns that the result needs.
    pub needed: NeededColumns<'a>,
    /// Direction of the scan.
    pub direction: ScanDirection,
    /// Condition on rows.
    pub filter: Option<&'a RowFilter>,
    /// Tiers from whose parts rows are read.
    pub tier: TierScope,
    /// Token returned by the previous page; `None` for the first page.
    pub page_token: Option<&'a str>,
    /// Bytes that identify the encoding of the rows in page tokens.
    pub encoder_terms: &'a [u8],
}

/// Limits of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimits {
    /// Maximum number of rows; `None` = unlimited.
    pub rows: Option<u64>,
    /// Maximum number of rows that are read; `None` = unlimited.
    pub scanned: Option<u64>,
    /// Size of the rows in bytes of JSON at which the page ends; `None` = unlimited.
    pub bytes: Option<u64>,
}

/// Summary of a page: counts of rows, and position of the next page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Number of rows that were read, including deleted rows.
    pub scanned: u64,
    /// Number of rows that were returned.
    pub returned: u64,
    /// Token of the next page; `None` at the end of the scan.
    pub next: Option<String>,
    /// Reason why the page ended before the end of the scan; `None` at the end of the scan.
    pub reason: Option<PageEnd>,
    /// Revision of the range. Present only if revisions are requested, and if the page contains a complete forward scan
    /// by the primary key within one partition.
    pub revision: Option<String>,
}

/// Result of a count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Count {
    /// Number of matching rows.
    pub count: u64,
    /// Number of rows that were read, including deleted rows.
    pub scanned: u64,
    /// Token with which the count continues; `None` if all rows were counted.
    pub next: Option<String>,
}

impl Scan {
    /// Plans a scan. `selection` selects the columns and versions that the scan returns.
    ///
    /// # Errors
    ///
    /// [`RowsError::Invalid`] if the scan has no restriction and is not allowed to read all rows, if the prefix or the
    /// range is not valid for the key, or if the token belongs to another request; and the errors of
    /// [`RowMatcher::new`].
    pub fn new(
        engine: &Engine,
        table: &WideTable,
        terms: &ScanTerms<'_>,
        selection: &Selection,
    ) -> Result<Self> {
        let index = terms.index.map(|name| table.index(name)).transpose()?;
        let layout = index.map_or(table.layout(), |index| index.layout());
        let ranges = key::ranges(
            layout,
            terms.prefix,
            terms.range,
            terms.allow_scan,
            Some("allow_scan"),
        )
        .map_err(|error| with_index(error, table, terms))?;
        let terms = RangeTerms {
            index,
            needed: selection.needed(),
            direction: terms.direction,
            filter: terms.filter,
            tier: terms.tier.into(),
            page_token: terms.page_token,
            encoder_terms: selection.terms(),
        };
        let scan = Self::of_ranges(engine, table, ranges, &terms)?;
        Ok(Self {
            returned: selection.groups(table),
            ..scan
        })
    }

    /// Plans a scan of given ranges, which must not overlap. The rows of all ranges are merged by their keys without
    /// the bucket.
    ///
    /// # Errors
    ///
    /// [`RowsError::Invalid`] if the token belongs to another request, or if `terms` limit the tiers and the table has
    /// no tiers; and the errors of [`RowMatcher::new`].
    pub fn of_ranges(
        engine: &Engine,
        table: &WideTable,
        ranges: Ranges,
        terms: &RangeTerms<'_>,
    ) -> Result<Self> {
        check_tier(table, terms.tier)?;
        let matcher = terms.filter.map(|filter| RowMatcher::new(engine, table, filter));
        let matcher = matcher.transpose()?;
        let path = match terms.index {
            None => RowPath::Primary,
            Some(index) => RowPath::Index {
                is_covered: terms.needed.is_covered(table, index, matcher.as_ref()),
                index: Arc::clone(index),
            },
        };
        let direction = match terms.direction {
            ScanDirection::Forward => Direction::Ascending,
            ScanDirection::Backward => Direction::Descending,
        };
        let mut bytes = table.table().points().id().0.to_le_bytes().to_vec();
        bytes.push(u8::from(direction == Direction::Descending));
        if let Some(index) = terms.index {
            bytes.extend_from_slice(b"index");
            bytes.extend_from_slice(&index.id().0.to_le_bytes());
        }
        if !terms.tier.is_all() {
            bytes.extend_from_slice(terms.tier.name().as_bytes());
        }
        for range in &ranges.ranges {
            for end in [Some(&range.start), range.end.as_ref()] {
                bytes.push(u8::from(end.is_some()));
                let end = end.map(Vec::as_slice).unwrap_or_default();
                bytes.extend_from_slice(&(end.len() as u64).to_le_bytes());
                bytes.extend_from_slice(end);
            }
        }
        let filter = serde_json::to_vec(&terms.filter).unwrap_or_default();
        bytes.extend_from_slice(&(filter.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&filter);
        bytes.extend_from_slice(terms.encoder_terms);
        let after = terms.page_token.map(|token| token::decode_scan(&bytes, token));
        Ok(Self {
            path,
            ranges,
            direction,
            parts: PartSelection {
                numbers: parts_of(table, matcher.as_ref()),
                tier: terms.tier,
            },
            tested: tested_groups(table, matcher.as_ref(), terms.index),
            returned: terms.needed.groups(table, None),
            columns: terms.needed.names(matcher.as_ref()),
            matcher,
            after: after.transpose()?,
            terms: bytes,
        })
    }

    /// Returns an error if the index of the scan does not cover the tiers of all parts that are read.
    ///
    /// # Errors
    ///
    /// The errors of [`Engine::check_index_covers`].
    pub fn check_tiers(&self, engine: &Engine) -> Result<()> {
        match &self.path {
            RowPath::Primary => Ok(()),
            RowPath::Index { index, .. } => {
                Ok(engine.check_index_covers(index, &self.ranges, &self.parts)?)
            }
        }
    }

    /// Returns true if the scan reaches parts of the table in the cold tier or in the archive.
    ///
    /// # Errors
    ///
    /// The errors of [`Engine::scan_reaches_cold`].
    pub fn reaches_cold(&self, engine: &Engine, table: &WideTable) -> Result<bool> {
        let PartSelection { numbers, tier } = &self.parts;
        Ok(tier.has(Tier::Cold) && engine.scan_reaches_cold(table, &self.path, &self.ranges, numbers)?)
    }

    /// Begins the scan. `groups` are the column groups that are needed in addition to the groups in `tested`.
    fn begin<'e>(
        &self,
        engine: &'e Engine,
        table: &Arc<WideTable>,
        wanted: Option<u64>,
        groups: GroupSet,
    ) -> RowScan<'e> {
        let columns = self.columns.as_ref();
        let columns = columns.map(|columns| columns.iter().map(String::as_str));
        engine.note_column_reads(table, columns);
        let wanted = wanted.and_then(|wanted| usize::try_from(wanted).ok());
        // One extra row is requested, to detect whether the scan ends with the page. A condition may reject any number
        // of rows, so a scan with a condition requests [`MANY_ROWS`].
        let wanted = wanted
            .filter(|_| self.matcher.is_none())
            .map_or(MANY_ROWS, |wanted| wanted.saturating_add(1));
        let scan = engine.scan_rows(
            Arc::clone(table),
            self.path.clone(),
            self.ranges.clone(),
            self.direction,
            self.after.as_deref(),
            wanted,
        );
        let scan = scan
            .in_parts(self.parts.clone())
            .with_groups(self.tested.union(groups));
        match &self.columns {
            Some(columns) => scan.with_columns(columns.iter().map(String::as_str)),
            None => scan,
        }
    }

    /// Returns true if a row matches the condition.
    pub(crate) fn matches(&self, table: &WideTable, row: &StoredRow) -> Result<bool> {
        let Some(matcher) = &self.matcher else {
            return Ok(true);
        };
        let columns = row.columns().map_err(|reason| damaged(table, reason))?;
        Ok(matcher.matches(table.layout(), &row.key, Some(&columns)))
    }

    /// Returns the token of the page that begins after the row at this position.
    fn token(&self, table: &WideTable, position: &[u8]) -> String {
        token::encode(&self.terms, self.path.layout(table).merge_key(position))
    }

    /// Returns an empty digest if the scan can return a revision of its range; `None` otherwise.
    fn digest(&self, table: &WideTable, has_revisions: bool) -> Option<RangeDigest> {
        let is_primary = self.path.index().is_none();
        let is_whole = is_primary && self.direction == Direction::Ascending && self.after.is_none();
        let is_one = || one_partition(table.layout(), self.ranges.ranges.clone()).is_some();
        (has_revisions && is_whole && is_one()).then(RangeDigest::default)
    }

    /// Reads a page and passes each of its rows, as JSON, to `take`.
    ///
    /// # Errors
    ///
    /// [`RowsError::Cancelled`] if `is_stopped` returns true, the errors of [`RowScan::next_row`], and the errors of
    /// `take`.
    pub fn page(
        &self,
        engine: &Engine,
        table: &Arc<WideTable>,
        encoder: &dyn RowEncoder,
        limits: PageLimits,
        is_stopped: &dyn Fn() -> bool,
        take: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Page> {
        let mut json = Vec::new();
        let has_revisions = encoder.has_revisions();
        self.read_page(engine, table, has_revisions, limits, is_stopped, &mut |row| {
            json.clear();
            write_row(table, row, encoder, &mut json)?;
            take(&json)?;
            Ok(json.len() as u64)
        })
    }

    /// Reads a page and passes each of its rows to `take`, which returns the size of its output in bytes.
    ///
    /// # Errors
    ///
    /// The errors of [`page`](Self::page).
    pub fn stored_page(
        &self,
        engine: &Engine,
        table: &Arc<WideTable>,
        limits: PageLimits,
        is_stopped: &dyn Fn() -> bool,
        take: &mut dyn FnMut(&StoredRow) -> Result<u64>,
    ) -> Result<Page> {
        self.read_page(engine, table, false, limits, is_stopped, take)
    }

    /// Reads a page. If `has_revisions` is true, also computes the revision of the range.
    fn read_page(
        &self,
        engine: &Engine,
        table: &Arc<WideTable>,
        has_revisions: bool,
        limits: PageLimits,
        is_stopped: &dyn Fn() -> bool,
        take: &mut dyn FnMut(&StoredRow) -> Result<u64>,
    ) -> Result<Page> {
        let mut scan = self.begin(engine, table, limits.rows, self.returned);
        let (mut returned, mut bytes, mut read) = (0_u64, 0_u64, 0_u64);
        let mut last: Option<Bytes> = None;
        let mut digest = self.digest(table, has_revisions);
        let reason = loop {
            if is_stopped() {
                return Err(RowsError::Cancelled);
            }
            let Some(ScannedRow { position, row }) = scan.next_row()? else {
                break None;
            };
            // Another row exists. If the page is already full, it ends before this row.
            let is_over = |limit: Option<u64>, actual| limit.is_some_and(|limit| actual >= limit);
            if is_over(limits.rows, returned) {
                break Some(PageEnd::Limit);
            }
            if is_over(limits.bytes, bytes) {
                break Some(PageEnd::Bytes);
            }
            if is_over(limits.scanned, read) {
                break Some(PageEnd::Scanned);
            }
            read += 1;
            if let Some(digest) = &mut digest {
                digest.add(&row);
            }
            if self.matches(table, &row)? {
                returned += 1;
                bytes += take(&row)?;
            }
            last = Some(position);
        };
        let next = last.filter(|_| reason.is_some());
        Ok(Page {
            scanned: scan.scanned(),
            returned,
            next: next.map(|last| self.token(table, &last)),
            reason,
            revision: digest
                .filter(|_| reason.is_none())
                .map(|digest| transaction::encode(digest.finish())),
        })
    }

    /// Counts the matching rows. Reads at most [`COUNT_SCANNED_MAX`] rows.
    ///
    /// # Errors
    ///
    /// The errors of [`page`](Self::page).
    pub fn count(
        &self,
        engine: &Engine,
        table: &Arc<WideTable>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Count> {
        let mut scan = self.begin(engine, table, None, GroupSet::NONE);
        let (mut count, mut read) = (0, 0_u64);
        let mut last: Option<Bytes> = None;
        let next = loop {
            if is_stopped() {
                return Err(RowsError::Cancelled);
            }
            let Some(ScannedRow { position, row }) = scan.next_row()? else {
                break None;
            };
            if read >= COUNT_SCANNED_MAX {
                break last;
            }
            read += 1;
            count += u64::from(self.matches(table, &row)?);
            last = Some(position);
        };
        Ok(Count {
            count,
            scanned: scan.scanned(),
            next: next.map(|last| self.token(table, &last)),
        })
    }
}

/// Returns the column groups that are needed to evaluate a condition, and to check whether a row still has its entry in
/// an index.
pub(crate) fn tested_groups(
    table: &WideTable,
    matcher: Option<&RowMatcher>,
    index: Option<&Arc<Index>>,
) -> GroupSet {
    let tested = matcher.map_or_else(Vec::new, RowMatcher::columns);
    let of_index = index.map_or(&[][..], |index| index.layout().logical());
    let of_index = of_index.iter().map(|column| column.name.as_str());
    table.groups_of(tested.iter().map(String::as_str).chain(of_index))
}

/// Deletes the rows that a prefix and bounds select. In a table without indexes, one journal entry deletes all rows; in
/// a table with indexes, the rows are deleted page by page. Returns the sequence of the newest journal entry, which
/// is at or after the last entry of the delete.
///
/// # Errors
///
/// [`RowsError::Invalid`] if the request has no restriction and does not allow deleting all rows, or if the prefix or
/// the range is not valid for the key; and the errors of [`Engine::delete_rows`].
pub fn delete(
    engine: &Engine,
    table: &WideTable,
    request: &DeleteRows,
    durability: Option<Durability>,
    is_stopped: &dyn Fn() -> bool,
) -> Result<SequenceNumber> {
    let ranges = key::ranges(
        table.layout(),
        &request.prefix,
        request.range.as_ref(),
        request.allow_all,
        Some("allow_all"),
    )?;
    if !ranges.ranges.is_empty() {
        engine.delete_rows(table, &ranges.ranges, durability, is_stopped)?;
    }
    Ok(newest_position(engine))
}

/// Returns the sequence of the newest journal entry. It is at or after all entries of writes that have ended.
pub fn newest_position(engine: &Engine) -> SequenceNumber {
    SequenceNumber(engine.store().recent_end().0.saturating_sub(1))
}

/// Adds an index that begins with a tested column to the error of a scan without a prefix and a range.
fn with_index(error: RowsError, table: &WideTable, terms: &ScanTerms<'_>) -> RowsError {
    let is_unrestricted = terms.index.is_none() && terms.prefix.is_empty() && terms.range.is_none();
    let (RowsError::Invalid(reason), true, Some(filter)) = (&error, is_unrestricted, terms.filter) else {
        return error;
    };
    let required = required_columns(filter);
    let mut indexes = table.indexes().iter().filter(|index| index.is_ready());
    let found = indexes.find_map(|index| {
        let first = index.layout().logical().first()?.name.as_str();
        let (_, is_equal) = required.iter().find(|(column, _)| *column == first)?;
        Some((index, first, if *is_equal { "prefix" } else { "range" }))
    });
    let Some((index, first, member)) = found else {
        return error;
    };
    RowsError::Invalid(format!(
        "{reason}; or scan the index {:?} by `index`, with {first:?} in `{member}` (the index has no entry of a row \
         without a value in one of its columns)",
        index.name()
    ))
}

pub(crate) fn write_row(
    table: &WideTable,
    row: &StoredRow,
    encoder: &dyn RowEncoder,
    out: &mut Vec<u8>,
) -> Result<()> {
    let columns = row.columns().map_err(|reason| damaged(table, reason))?;
    let revision = encoder.has_revisions().then(|| row.digest());
    encoder.write_row(table, &row.key, &columns, revision, out)
}

pub(crate) fn damaged(table: &WideTable, reason: impl std::fmt::Display) -> RowsError {
    RowsError::Damaged {
        table: table.table().name().to_string(),
        reason: reason.to_string(),
    }
}
