//! Offline check: reads every row of a part, joins the fragments of large rows, and decodes everything.
//!
//! The check writes nothing. A large row is stored as a head and fragments. Fragments that no head references are not
//! damage: an interrupted flush leaves them, and the next flush of the row deletes them.

use std::collections::BTreeMap;

use bytes::Bytes;
use tideline_backend::{Backend, Direction, PageLimit, Partition};
use tideline_log::{LogError, Manifest, SHARD};
use tideline_model::{KeyRange, TableId};

use crate::codec;
use crate::entry::{Change, Entry};
use crate::error::Damage;
use crate::fragments::{FRAGMENTS_BUCKET, Head, join, range_of};
use crate::read::ROWS_BUCKET;
use crate::state::Part;
use crate::store::read_parts;
use crate::tables::Tables;

/// Number of findings in a table after which the check of the table ends.
const FINDINGS_MAX: usize = 20;
/// Number of rows that are read at once.
const PAGE_ROWS: usize = 500;
/// Size in bytes after which a page of rows ends.
const PAGE_BYTES: usize = 1 << 20;

/// Result of the check of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckedRows {
    /// Rows in the part.
    pub rows: u64,
    /// Bytes of the keys and columns of these rows, without damaged rows.
    pub bytes: u64,
    /// Descriptions of the damage found, each with the first bytes of the key. If the check ended early, the last
    /// element states this.
    pub findings: Vec<String>,
}

/// Parts of all wide tables, read from the manifest once for the checks of all tables.
#[derive(Debug)]
pub struct StoredParts(BTreeMap<TableId, Part>);

impl StoredParts {
    /// Reads the parts.
    ///
    /// # Errors
    ///
    /// The errors of the backend, and [`LogError::StoredRow`] if the manifest cannot be read.
    pub fn read(backend: &dyn Backend) -> Result<Self, LogError> {
        let stored = backend.manifest(SHARD)?;
        let tables = Tables::new(&Manifest::read(&stored)?, &Tables::default());
        Ok(Self(read_parts(&tables, &stored.rows)?))
    }
}

/// Checks the flushed rows of a table. `check_key` returns a description of the damage if a stored key is not valid for
/// the table. The result is empty if the table has no part.
///
/// # Errors
///
/// The errors of the backend.
pub fn check_rows(
    backend: &dyn Backend,
    parts: &StoredParts,
    table: TableId,
    check_key: &dyn Fn(&[u8]) -> Result<(), String>,
) -> Result<CheckedRows, LogError> {
    let mut checked = CheckedRows::default();
    let Some(part) = parts.0.get(&table) else {
        return Ok(checked);
    };
    let limit = PageLimit {
        rows_max: PAGE_ROWS,
        bytes_max: PAGE_BYTES,
    };
    let partition = |bucket| Partition::part(part.at, bucket);
    let mut rest = Some(KeyRange::ALL);
    while let Some(range) = rest {
        let page = backend.scan(partition(ROWS_BUCKET), &range, Direction::Ascending, limit)?;
        for row in page.rows {
            let whole = match Head::decode(&row.value) {
                Ok(None) => Ok(row.value.clone()),
                Ok(Some(head)) => {
                    let range = range_of(&row.key, Some(head.generation));
                    let mut fragments = Vec::new();
                    let mut rest = Some(range);
                    while let Some(range) = rest {
                        let bucket = partition(FRAGMENTS_BUCKET);
                        let page = backend.scan(bucket, &range, Direction::Ascending, limit)?;
                        fragments.extend(page.rows.into_iter().map(|row| row.value));
                        rest = page.next;
                    }
                    whole(&head, &fragments)
                }
                Err(damage) => Err(damage),
            };
            let decoded = whole.and_then(|whole| codec::decode(&whole).map(|_| whole.len()));
            checked.rows += 1;
            match decoded {
                Ok(bytes) => checked.bytes += (row.key.len() + bytes) as u64,
                Err(damage) => checked.findings.push(format!("row {}: {damage}", hex(&row.key))),
            }
            if let Err(damage) = check_key(&row.key) {
                checked.findings.push(format!("row {}: {damage}", hex(&row.key)));
            }
            if checked.findings.len() >= FINDINGS_MAX {
                checked.findings.push(format!(
                    "further rows are not checked after {FINDINGS_MAX} damaged ones"
                ));
                return Ok(checked);
            }
        }
        rest = page.next;
    }
    Ok(checked)
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

/// Checks a journal entry of this model.
///
/// # Errors
///
/// [`Damage`] if the entry or one of its mutations cannot be decoded.
pub fn check_entry(entry: &Bytes) -> Result<(), Damage> {
    let entry = Entry::decode(entry)?;
    let of_indexes = entry.index_changes.iter().flat_map(|(_, changes)| changes);
    entry
        .changes
        .iter()
        .chain(of_indexes)
        .try_for_each(|change| match change {
            Change::Row { mutation, .. } => codec::decode(mutation).map(drop),
            Change::DeleteRange(_) => Ok(()),
        })
}

/// Returns the first 40 bytes of a key in hexadecimal.
fn hex(key: &[u8]) -> String {
    let shown: String = key.iter().take(40).map(|byte| format!("{byte:02x}")).collect();
    match key.len() > 40 {
        true => format!("{shown}…"),
        false => shown,
    }
}
