//! Journal entries of wide tables. An entry holds all changes of one write, because they are applied together.
//!
//! `FORMAT.md` describes the bytes. Decoded keys and mutations share the memory of the entry.

use bytes::Bytes;
use tideline_log::RequestRecord;
use tideline_model::{KeyRange, ModelTag, TableId};
use tideline_wire::varint;

use crate::error::Damage;
use crate::value::{number, sized};

/// Format of an entry without changes of index entries.
const FORMAT: u8 = 1;
/// Format of an entry with changes of index entries. Builds that do not support indexes refuse it.
const FORMAT_INDEXES: u8 = 2;
/// Format of an entry that records the newest version of the server. Earlier builds refuse it: they would continue with
/// the version of a client.
const FORMAT_NEWEST: u8 = 3;
const ROW: u8 = 1;
const RANGE: u8 = 2;

/// Change of one row or of a range of rows, as an entry of the journal holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Encoded mutation of a row; [`Mutation::decode`](crate::Mutation::decode) reads it.
    Row {
        /// Stored key.
        key: Bytes,
        /// Encoded mutation.
        mutation: Bytes,
    },
    /// Deletion of all rows whose keys are in the range.
    DeleteRange(KeyRange),
}

/// Returns the stored keys of the rows that a journal entry has written or deleted one by one. They share the memory of
/// `entry`. Rows that were deleted as a range are not returned.
///
/// # Errors
///
/// [`Damage`] if the bytes are not an entry of a wide table.
pub fn written_keys(entry: &Bytes) -> Result<Vec<Bytes>, Damage> {
    let changes = Entry::decode(entry)?.changes.into_iter();
    let keys = changes.filter_map(|change| match change {
        Change::Row { key, .. } => Some(key),
        Change::DeleteRange(_) => None,
    });
    Ok(keys.collect())
}

/// Returns the table of a journal entry, and the changes of its rows in order, without those of indexes. They share the
/// memory of `entry`.
///
/// # Errors
///
/// [`Damage`] if the bytes are not an entry of a wide table.
pub fn changes_of(entry: &Bytes) -> Result<(TableId, Vec<Change>), Damage> {
    let entry = Entry::decode(entry)?;
    Ok((entry.table, entry.changes))
}

/// Decoded journal entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) table: TableId,
    pub(crate) request: Option<RequestRecord>,
    pub(crate) changes: Vec<Change>,
    /// Changes of the index entries of the rows, with the id of their index.
    pub(crate) index_changes: Vec<(TableId, Vec<Change>)>,
    /// Newest version that the server had assigned before the entry, including those of the entry; `None` unless the
    /// entry [must record it](crate::versions).
    pub(crate) newest: Option<i64>,
}

impl Entry {
    /// Returns the bytes of the entry in the journal.
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(64 + self.bytes());
        out.extend_from_slice(&ModelTag::WIDE.0);
        out.push(match (self.newest, self.index_changes.is_empty()) {
            (Some(_), _) => FORMAT_NEWEST,
            (None, true) => FORMAT,
            (None, false) => FORMAT_INDEXES,
        });
        varint::put(u64::from(self.table.0), &mut out);
        if let Some(newest) = self.newest {
            out.extend_from_slice(&newest.to_le_bytes());
        }
        match &self.request {
            None => out.push(0),
            Some(request) => {
                out.push(1);
                out.extend_from_slice(&request.key);
                put_sized(&request.outcome, &mut out);
            }
        }
        put_changes(&self.changes, &mut out);
        if self.newest.is_some() || !self.index_changes.is_empty() {
            varint::put(self.index_changes.len() as u64, &mut out);
            for (index, changes) in &self.index_changes {
                varint::put(u64::from(index.0), &mut out);
                put_changes(changes, &mut out);
            }
        }
        Bytes::from(out)
    }

    /// Returns the approximate encoded size of the request and of all changes.
    pub(crate) fn bytes(&self) -> usize {
        let of_request = |request: &RequestRecord| request.key.len() + request.outcome.len() + 8;
        let of_request = self.request.as_ref().map_or(0, of_request);
        let of_indexes = self.index_changes.iter().flat_map(|(_, changes)| changes);
        let of_changes: usize = self.changes.iter().chain(of_indexes).map(Change::bytes).sum();
        of_request + of_changes
    }

    /// Decodes an entry. Keys and mutations share the memory of `entry`.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the bytes are not an entry of this model.
    pub(crate) fn decode(entry: &Bytes) -> Result<Self, Damage> {
        let mut rest = entry
            .strip_prefix(&ModelTag::WIDE.0)
            .ok_or(Damage("an entry has another tag"))?;
        let format = take_byte(&mut rest)?;
        if !(FORMAT..=FORMAT_NEWEST).contains(&format) {
            return Err(Damage("an entry has a format that this build does not know"));
        }
        let table = take_table(&mut rest)?;
        let newest = match format {
            FORMAT_NEWEST => {
                let (newest, after) = rest
                    .split_first_chunk()
                    .ok_or(Damage("the newest version of an entry is cut off"))?;
                rest = after;
                Some(i64::from_le_bytes(*newest))
            }
            _ => None,
        };
        let request = match take_byte(&mut rest)? {
            0 => None,
            1 => {
                let (key, after) = rest
                    .split_first_chunk::<16>()
                    .ok_or(Damage("a request key is cut off"))?;
                rest = after;
                Some(RequestRecord {
                    key: *key,
                    outcome: entry.slice_ref(sized(&mut rest)?),
                })
            }
            _ => return Err(Damage("an entry has an unknown flag")),
        };
        let changes = take_changes(entry, &mut rest)?;
        let mut index_changes = Vec::new();
        if format >= FORMAT_INDEXES {
            let count = take_count(&mut rest)?;
            for _ in 0..count {
                let index = take_table(&mut rest)?;
                index_changes.push((index, take_changes(entry, &mut rest)?));
            }
        }
        if !rest.is_empty() {
            return Err(Damage("bytes follow an entry"));
        }
        Ok(Self {
            table,
            request,
            changes,
            index_changes,
            newest,
        })
    }
}

fn put_changes(changes: &[Change], out: &mut Vec<u8>) {
    varint::put(changes.len() as u64, out);
    for change in changes {
        match change {
            Change::Row { key, mutation } => {
                out.push(ROW);
                put_sized(key, out);
                put_sized(mutation, out);
            }
            Change::DeleteRange(range) => {
                out.push(RANGE);
                put_sized(&range.start, out);
                put_sized(range.end.as_deref().unwrap_or_default(), out);
            }
        }
    }
}

/// Decodes the list of changes at the front of `rest` and removes its bytes. `rest` is a slice of `entry`.
fn take_changes(entry: &Bytes, rest: &mut &[u8]) -> Result<Vec<Change>, Damage> {
    let count = take_count(rest)?;
    let mut changes = Vec::with_capacity(count);
    for _ in 0..count {
        changes.push(match take_byte(rest)? {
            ROW => Change::Row {
                key: entry.slice_ref(sized(rest)?),
                mutation: entry.slice_ref(sized(rest)?),
            },
            RANGE => {
                let start = sized(rest)?.to_vec();
                let end = sized(rest)?;
                Change::DeleteRange(KeyRange {
                    start,
                    end: (!end.is_empty()).then(|| end.to_vec()),
                })
            }
            _ => return Err(Damage("an entry has an unknown kind of change")),
        });
    }
    Ok(changes)
}

fn take_count(rest: &mut &[u8]) -> Result<usize, Damage> {
    let count = usize::try_from(number(rest)?).ok();
    let count = count.filter(|count| *count <= rest.len());
    count.ok_or(Damage("an entry has more changes than bytes"))
}

fn take_table(rest: &mut &[u8]) -> Result<TableId, Damage> {
    let id = u32::try_from(number(rest)?).map_err(|_| Damage("a table id is too large"))?;
    Ok(TableId(id))
}

impl Change {
    /// Returns the approximate encoded size.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Row { key, mutation } => key.len() + mutation.len() + 8,
            Self::DeleteRange(range) => range.start.len() + range.end.as_ref().map_or(0, Vec::len) + 8,
        }
    }
}

fn take_byte(bytes: &mut &[u8]) -> Result<u8, Damage> {
    let (&byte, rest) = bytes.split_first().ok_or(Damage("an entry is cut off"))?;
    *bytes = rest;
    Ok(byte)
}

fn put_sized(bytes: &[u8], out: &mut Vec<u8>) {
    varint::put(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_decoded_as_they_were() {
        let row = |key: &'static [u8]| Change::Row {
            key: Bytes::from_static(key),
            mutation: Bytes::from_static(b"mutation"),
        };
        let request = RequestRecord {
            key: [7; 16],
            outcome: Bytes::from_static(b"outcome"),
        };
        let indexes = vec![(TableId(301), vec![row(b"x"), row(b"y")]), (TableId(7), vec![])];
        for (newest, (request, changes, index_changes)) in [None, Some(-7)].into_iter().flat_map(|newest| {
            let cases = [
                (None, vec![], vec![]),
                (
                    Some(request.clone()),
                    vec![row(b"a"), Change::DeleteRange(KeyRange::ALL), row(b"")],
                    indexes.clone(),
                ),
                (None, vec![], indexes.clone()),
                (
                    None,
                    vec![Change::DeleteRange(KeyRange::new(*b"a", *b"b"))],
                    vec![],
                ),
            ];
            cases.map(|case| (newest, case))
        }) {
            let entry = Entry {
                table: TableId(300),
                request,
                changes,
                index_changes,
                newest,
            };
            let encoded = entry.encode();
            assert_eq!(Entry::decode(&encoded).as_ref(), Ok(&entry));
            for length in 0..encoded.len() {
                Entry::decode(&encoded.slice(..length)).expect_err("it is cut off");
            }
        }
    }

    #[test]
    fn the_size_of_an_entry_includes_the_outcome_of_its_request() {
        let entry = Entry {
            table: TableId(300),
            request: Some(RequestRecord {
                key: [7; 16],
                outcome: vec![0; 100_000].into(),
            }),
            changes: Vec::new(),
            index_changes: Vec::new(),
            newest: None,
        };
        let (encoded, estimated) = (entry.encode().len(), entry.bytes());
        assert!(encoded.abs_diff(estimated) < 100, "{encoded}, {estimated}");
    }
}
