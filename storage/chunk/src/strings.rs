//! Codec of text and byte columns: concatenated values, or a dictionary if at most half of the values are distinct and
//! the column has at most [`UNFOLDED_BYTES_MAX`] bytes.
//!
//! Values are located by their end offsets. UTF-8 is checked when values are decoded, not when the column is opened.

use std::collections::HashMap;
use std::ops::Range;

use tideline_model::batch::{Joined, JoinedColumn};

use crate::integers::{IntegerEncoder, Integers};
use crate::packed_array::PackedArray;
use crate::wire::{Damaged, Reader, put_varint};

const PLAIN: u8 = 0;
const DICTIONARY: u8 = 1;

/// Maximum size in bytes to which a dictionary column may expand. A few stored bytes can expand to many, so a limit
/// is needed.
const UNFOLDED_BYTES_MAX: usize = 1 << 22;

/// Appends `values`.
pub(crate) fn encode<B: Joined>(values: &JoinedColumn<B>, integers: &mut IntegerEncoder, out: &mut Vec<u8>) {
    let count = values.len();
    let all = || values.iter().map(B::bytes_of);
    let mut index_of = HashMap::new();
    let mut entries: Vec<&[u8]> = Vec::new();
    let mut indexes = Vec::with_capacity(count);
    for value in all() {
        let index = *index_of.entry(value).or_insert_with(|| {
            entries.push(value);
            entries.len() as u32 - 1
        });
        indexes.push(index);
        if entries.len() > count / 2 {
            break;
        }
    }
    if indexes.len() < count || count == 0 || values.bytes() > UNFOLDED_BYTES_MAX {
        out.push(PLAIN);
        let ends = ends(all());
        integers.encode(&ends, out);
        all().for_each(|value| out.extend_from_slice(value));
    } else {
        out.push(DICTIONARY);
        put_varint(entries.len() as u64, out);
        PackedArray::encode(ends(entries.iter().copied()).into_iter(), out);
        entries.iter().for_each(|entry| out.extend_from_slice(entry));
        integers.encode(&indexes, out);
    }
}

/// Returns the end offset of each value in their concatenation.
fn ends<'a>(values: impl Iterator<Item = &'a [u8]>) -> Vec<i64> {
    values
        .scan(0, |end, value| {
            *end += value.len() as i64;
            Some(*end)
        })
        .collect()
}

/// View of a stored column.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Strings<'a> {
    Plain {
        ends: Integers<'a>,
        joined: &'a [u8],
    },
    Dictionary {
        ends: PackedArray<'a>,
        joined: &'a [u8],
        indexes: Integers<'a>,
    },
}

impl<'a> Strings<'a> {
    /// Opens the next column, which has `count` values.
    pub(crate) fn open(reader: &mut Reader<'a>, count: usize) -> Result<Self, Damaged> {
        match reader.byte()? {
            PLAIN => {
                let ends = Integers::open(reader, count)?;
                let length = if count == 0 { 0 } else { ends.get(count - 1) };
                let joined = take_joined(reader, length)?;
                Ok(Self::Plain { ends, joined })
            }
            DICTIONARY => {
                let entries = reader.count(count)?;
                if entries == 0 {
                    return Err(Damaged("dictionary without entries"));
                }
                let ends = PackedArray::open(reader, entries)?;
                let joined = take_joined(reader, ends.get(entries - 1))?;
                let indexes = Integers::open(reader, count)?;
                Ok(Self::Dictionary {
                    ends,
                    joined,
                    indexes,
                })
            }
            _ => Err(Damaged("unknown form of strings")),
        }
    }

    /// Appends the values of `rows`, which must be within the column.
    pub(crate) fn decode<B: Joined>(
        &self,
        rows: Range<usize>,
        out: &mut JoinedColumn<B>,
    ) -> Result<(), Damaged> {
        let mut take = |value| {
            out.push(B::value_of(value).ok_or(Damaged("text is not UTF-8"))?);
            Ok(())
        };
        let mut result = Ok(());
        match self {
            Self::Plain { ends, joined } => {
                let mut start = if rows.start == 0 {
                    0
                } else {
                    ends.get(rows.start - 1)
                };
                ends.for_each_block(rows, |ends| {
                    for end in ends {
                        result = result.and_then(|()| take(slice(joined, start, *end)?));
                        start = *end;
                    }
                });
            }
            Self::Dictionary {
                ends,
                joined,
                indexes,
            } => {
                let mut budget = UNFOLDED_BYTES_MAX;
                indexes.for_each_block(rows, |indexes| {
                    for index in indexes {
                        result = result.and_then(|()| {
                            let value = entry(ends, joined, *index)?;
                            budget = budget
                                .checked_sub(value.len())
                                .ok_or(Damaged("dictionary expands beyond its limit"))?;
                            take(value)
                        });
                    }
                });
            }
        }
        result
    }
}

fn take_joined<'a>(reader: &mut Reader<'a>, length: i64) -> Result<&'a [u8], Damaged> {
    let length = usize::try_from(length).map_err(|_| Damaged("a value ends before it starts"))?;
    reader.take(length)
}

fn entry<'a>(ends: &PackedArray<'_>, joined: &'a [u8], index: i64) -> Result<&'a [u8], Damaged> {
    let index = usize::try_from(index)
        .ok()
        .filter(|index| *index < ends.len())
        .ok_or(Damaged("dictionary index out of range"))?;
    let start = if index == 0 { 0 } else { ends.get(index - 1) };
    slice(joined, start, ends.get(index))
}

fn slice(joined: &[u8], start: i64, end: i64) -> Result<&[u8], Damaged> {
    let (Ok(start), Ok(end)) = (usize::try_from(start), usize::try_from(end)) else {
        return Err(Damaged("a value ends before it starts"));
    };
    joined.get(start..end).ok_or(Damaged("values end out of order"))
}

#[cfg(test)]
mod tests {
    use tideline_model::batch::{BytesColumn, StringColumn};

    use super::*;

    fn round_trip(values: &[&str]) -> Vec<u8> {
        let column: StringColumn = values.iter().copied().collect();
        let mut bytes = Vec::new();
        encode(&column, &mut IntegerEncoder::default(), &mut bytes);
        let mut reader = Reader::new(&bytes);
        let strings = Strings::open(&mut reader, values.len()).expect("it was just written");
        assert_eq!(reader.finish(), Ok(()));
        let middle = values.len() / 2;
        for rows in [0..values.len(), middle..values.len()] {
            let mut read = StringColumn::default();
            strings.decode(rows.clone(), &mut read).expect("it is whole");
            assert_eq!(read.iter().collect::<Vec<_>>(), values[rows]);
        }
        bytes
    }

    #[test]
    fn strings_read_back() {
        round_trip(&[]);
        round_trip(&[""]);
        round_trip(&["", "a", "", "größer", "日本"]);
        let repeated = ["running", "stopped"].repeat(200);
        assert!(round_trip(&repeated).len() < 100);
    }

    #[test]
    fn bytes_read_back_whatever_they_are() {
        let values: Vec<Vec<u8>> = (0..300u16).map(|at| vec![0xff; usize::from(at % 7)]).collect();
        for values in [&values[..], &values[..3], &[]] {
            let column: BytesColumn = values.iter().map(Vec::as_slice).collect();
            let mut bytes = Vec::new();
            encode(&column, &mut IntegerEncoder::default(), &mut bytes);
            let mut reader = Reader::new(&bytes);
            let stored = Strings::open(&mut reader, values.len()).expect("it was just written");
            assert_eq!(reader.finish(), Ok(()));
            let mut read = BytesColumn::default();
            stored.decode(0..values.len(), &mut read).expect("it is whole");
            assert_eq!(read, column);
        }
    }

    #[test]
    fn damaged_text_is_an_error() {
        let mut bytes = round_trip(&["ab", "cd", "ef"]);
        let last = bytes.len() - 1;
        bytes[last] = 0xff;
        let strings = Strings::open(&mut Reader::new(&bytes), 3).expect("lengths are whole");
        assert!(strings.decode(0..3, &mut StringColumn::default()).is_err());
        assert!(Strings::open(&mut Reader::new(&bytes[..last]), 3).is_err());
    }
}
