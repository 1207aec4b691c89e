//! Journal entries of wide tables: the changes of one write, all or none.
//!
//! `FORMAT.md` describes the bytes. Decoded keys and mutations share the memory of the entry.

use bytes::Bytes;
use tideline_log::RequestRecord;
use tideline_model::{KeyRange, ModelTag, TableId};
use tideline_wire::varint;

use crate::error::Damage;
use crate::value::{number, sized};

const FORMAT: u8 = 1;
const ROW: u8 = 1;
const RANGE: u8 = 2;

/// Change of one row or of a range of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Encoded mutation of a row.
    Row {
        /// Stored key.
        key: Bytes,
        /// Encoded mutation.
        mutation: Bytes,
    },
    /// Deletion of all rows whose keys are in the range.
    DeleteRange(KeyRange),
}

/// Decoded journal entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) table: TableId,
    pub(crate) request: Option<RequestRecord>,
    pub(crate) changes: Vec<Change>,
}

impl Entry {
    /// Returns the bytes of the entry in the journal.
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(64 + self.changes.iter().map(Change::bytes).sum::<usize>());
        out.extend_from_slice(&ModelTag::WIDE.0);
        out.push(FORMAT);
        varint::put(u64::from(self.table.0), &mut out);
        match &self.request {
            None => out.push(0),
            Some(request) => {
                out.push(1);
                out.extend_from_slice(&request.key);
                put_sized(&request.outcome, &mut out);
            }
        }
        varint::put(self.changes.len() as u64, &mut out);
        for change in &self.changes {
            match change {
                Change::Row { key, mutation } => {
                    out.push(ROW);
                    put_sized(key, &mut out);
                    put_sized(mutation, &mut out);
                }
                Change::DeleteRange(range) => {
                    out.push(RANGE);
                    put_sized(&range.start, &mut out);
                    put_sized(range.end.as_deref().unwrap_or_default(), &mut out);
                }
            }
        }
        Bytes::from(out)
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
        if format != FORMAT {
            return Err(Damage("an entry has a format that this build does not know"));
        }
        let table = u32::try_from(number(&mut rest)?).map_err(|_| Damage("a table id is too large"))?;
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
        let count = number(&mut rest)?;
        let count = usize::try_from(count).ok().filter(|count| *count <= rest.len());
        let count = count.ok_or(Damage("an entry has more changes than bytes"))?;
        let mut changes = Vec::with_capacity(count);
        for _ in 0..count {
            changes.push(match take_byte(&mut rest)? {
                ROW => Change::Row {
                    key: entry.slice_ref(sized(&mut rest)?),
                    mutation: entry.slice_ref(sized(&mut rest)?),
                },
                RANGE => {
                    let start = sized(&mut rest)?.to_vec();
                    let end = sized(&mut rest)?;
                    Change::DeleteRange(KeyRange {
                        start,
                        end: (!end.is_empty()).then(|| end.to_vec()),
                    })
                }
                _ => return Err(Damage("an entry has an unknown kind of change")),
            });
        }
        if !rest.is_empty() {
            return Err(Damage("bytes follow an entry"));
        }
        Ok(Self {
            table: TableId(table),
            request,
            changes,
        })
    }
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
        for (request, changes) in [
            (None, vec![]),
            (
                Some(request),
                vec![row(b"a"), Change::DeleteRange(KeyRange::ALL), row(b"")],
            ),
            (None, vec![Change::DeleteRange(KeyRange::new(*b"a", *b"b"))]),
        ] {
            let entry = Entry {
                table: TableId(300),
                request,
                changes,
            };
            let encoded = entry.encode();
            assert_eq!(Entry::decode(&encoded).as_ref(), Ok(&entry));
            for length in 0..encoded.len() {
                Entry::decode(&encoded.slice(..length)).expect_err("it is cut off");
            }
        }
    }
}
