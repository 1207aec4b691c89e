//! Optimistic transactions: revisions of rows and ranges that were read, and the requirement that they are unchanged.
//!
//! A revision is the digest of the stored content, as text. The server keeps no state for a revision. Revisions
//! therefore stay valid after a restart, and reads do not block writes. All rows and ranges of a transaction belong to
//! one partition.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tideline_engine::WideTable;
use tideline_engine::key_codec::layout::KeyLayout;
use tideline_engine::model::KeyRange;
use tideline_engine::rows::{RowDigest, Unchanged};
use tideline_openapi::row::RequiredRead;

use crate::error::{Result, RowsError};
use crate::key;

/// Maximum number of rows and ranges that a write requires to be unchanged.
pub const REQUIRED_MAX: usize = 1_000;

/// Rows and ranges that must be unchanged, and the partition to which they belong.
#[derive(Debug, Clone)]
pub struct Transaction {
    pub(crate) unchanged: Vec<Unchanged>,
    pub(crate) partition: Vec<u8>,
}

impl Transaction {
    /// Parses the member `unchanged` of a write; `None` if it is empty.
    ///
    /// # Errors
    ///
    /// [`RowsError::OverLimit`] for more than [`REQUIRED_MAX`] elements. [`RowsError::Invalid`] if an element is not
    /// valid, or if the elements belong to several partitions.
    pub fn new(table: &WideTable, required: &[RequiredRead]) -> Result<Option<Self>> {
        if required.len() > REQUIRED_MAX {
            return Err(RowsError::over(
                "number of elements of unchanged",
                REQUIRED_MAX as u64,
                required.len() as u64,
            ));
        }
        let mut transaction: Option<Self> = None;
        for (index, element) in required.iter().enumerate() {
            let (partition, unchanged) = parse(table, element)
                .map_err(|error| RowsError::Invalid(format!("unchanged/{index}: {error}")))?;
            let transaction = transaction.get_or_insert_with(|| Self {
                unchanged: Vec::with_capacity(required.len()),
                partition: partition.clone(),
            });
            if transaction.partition != partition {
                return Err(RowsError::Invalid(format!(
                    "unchanged/{index} belongs to another partition than unchanged/0; a transaction covers one \
                     partition"
                )));
            }
            transaction.unchanged.push(unchanged);
        }
        Ok(transaction)
    }
}

/// Parses one element. Also returns its partition.
fn parse(table: &WideTable, element: &RequiredRead) -> Result<(Vec<u8>, Unchanged)> {
    let layout = table.layout();
    let invalid = |text: &str| RowsError::Invalid(text.to_owned());
    let digest = element.revision.as_deref().map(decode).transpose()?;
    if let Some(members) = &element.key {
        if element.range.is_some() || !element.prefix.is_empty() {
            return Err(invalid("give either key, or prefix and range"));
        }
        let key = key::encode(table, members)?;
        let partition = partition_of(layout, &key).ok_or_else(|| invalid("the key is damaged"))?;
        return Ok((key[..partition].to_vec(), Unchanged::Row { key, digest }));
    }
    let digest = digest.ok_or_else(|| invalid("a range needs the revision that its scan returned"))?;
    if element.prefix.is_empty() && element.range.is_none() {
        return Err(invalid("give key, or prefix and range"));
    }
    let ranges = key::ranges(
        table.layout(),
        &element.prefix,
        element.range.as_ref(),
        false,
        None,
    )?
    .ranges;
    let (range, partition) = one_partition(layout, ranges).ok_or_else(|| {
        invalid("the range is not within one partition; give all columns of the partition in prefix")
    })?;
    let name = range.start[..partition].to_vec();
    let unchanged = Unchanged::Range {
        range,
        partition,
        digest,
    };
    Ok((name, unchanged))
}

fn partition_of(layout: &KeyLayout, key: &[u8]) -> Option<usize> {
    layout.partition_len(key).ok()
}

/// Returns the only range of a scan, with the length of the key prefix that identifies its partition; `None` if the
/// scan is not within one partition.
pub(crate) fn one_partition(layout: &KeyLayout, ranges: Vec<KeyRange>) -> Option<(KeyRange, usize)> {
    let [range] = <[KeyRange; 1]>::try_from(ranges).ok()?;
    let partition = partition_of(layout, &range.start)?;
    // `name` is a prefix of all keys of the partition, and of no other keys.
    let name = &range.start[..partition];
    let end = range.end.as_deref()?;
    let is_inside = end.starts_with(name) || KeyRange::prefix(name).end.as_deref() == Some(end);
    is_inside.then_some((range, partition))
}

/// Returns a revision as text.
pub(crate) fn encode(digest: RowDigest) -> String {
    URL_SAFE_NO_PAD.encode(digest.0.to_be_bytes())
}

fn decode(text: &str) -> Result<RowDigest> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok();
    let bytes = bytes.and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    let bytes = bytes.ok_or_else(|| {
        RowsError::Invalid(format!(
            "{text:?} is not a revision; send the text that a read with `revisions` returned, or null for a row \
             that must not exist"
        ))
    })?;
    Ok(RowDigest(u128::from_be_bytes(bytes)))
}
