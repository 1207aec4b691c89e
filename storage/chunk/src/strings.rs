//! Columns of text and of bytes: each value behind another, or a dictionary where values repeat.

use std::collections::HashMap;
use std::ops::Range;

use tideline_model::batch::{BytesColumn, StringColumn};

use crate::integers::{IntegerEncoder, Integers};
use crate::packed_array::PackedArray;
use crate::wire::{Damaged, Reader, put_varint};

const PLAIN: u8 = 0;
const DICTIONARY: u8 = 1;

/// Most bytes that a dictionary may unfold to: few bytes stand for many there, so it needs a bound.
const UNFOLDED_BYTES_MAX: usize = 1 << 22;

/// A column whose values are read as bytes and pushed as such.
pub(crate) trait Values {
    /// Values held.
    fn count(&self) -> usize;
    /// Bytes of all values.
    fn bytes(&self) -> usize;
    /// The value of a row.
    fn value(&self, row: usize) -> &[u8];
    /// Appends a value, if it is one.
    fn take(&mut self, value: &[u8]) -> Result<(), Damaged>;
}

impl Values for StringColumn {
    fn count(&self) -> usize {
        self.len()
    }

    fn bytes(&self) -> usize {
        self.text_bytes()
    }

    fn value(&self, row: usize) -> &[u8] {
        self.get(row).as_bytes()
    }

    fn take(&mut self, value: &[u8]) -> Result<(), Damaged> {
        let text = std::str::from_utf8(value).map_err(|_| Damaged("text is not UTF-8"))?;
        self.push(text);
        Ok(())
    }
}

impl Values for BytesColumn {
    fn count(&self) -> usize {
        self.len()
    }

    fn bytes(&self) -> usize {
        self.bytes()
    }

    fn value(&self, row: usize) -> &[u8] {
        self.get(row)
    }

    fn take(&mut self, value: &[u8]) -> Result<(), Damaged> {
        self.push(value);
        Ok(())
    }
}

/// Appends `values`.
pub(crate) fn encode(values: &impl Values, integers: &mut IntegerEncoder, out: &mut Vec<u8>) {
    let count = values.count();
    let all = || (0..count).map(|row| values.value(row));
    let mut places = HashMap::new();
    let mut entries: Vec<&[u8]> = Vec::new();
    let mut indexes = Vec::with_capacity(count);
    for value in all() {
        let index = *places.entry(value).or_insert_with(|| {
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

/// Where each value ends when all stand behind each other.
fn ends<'a>(values: impl Iterator<Item = &'a [u8]>) -> Vec<i64> {
    values
        .scan(0, |end, value| {
            *end += value.len() as i64;
            Some(*end)
        })
        .collect()
}

/// A view of a stored column.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Strings<'a> {
    Plain {
        ends: Integers<'a>,
        text: &'a [u8],
    },
    Dictionary {
        ends: PackedArray<'a>,
        text: &'a [u8],
        indexes: Integers<'a>,
    },
}

impl<'a> Strings<'a> {
    /// Reads the column of `count` values that stands next.
    pub(crate) fn open(reader: &mut Reader<'a>, count: usize) -> Result<Self, Damaged> {
        match reader.byte()? {
            PLAIN => {
                let ends = Integers::open(reader, count)?;
                let length = if count == 0 { 0 } else { ends.get(count - 1) };
                let text = take_text(reader, length)?;
                Ok(Self::Plain { ends, text })
            }
            DICTIONARY => {
                let entries = reader.count(count)?;
                if entries == 0 {
                    return Err(Damaged("dictionary without entries"));
                }
                let ends = PackedArray::open(reader, entries)?;
                let text = take_text(reader, ends.get(entries - 1))?;
                let indexes = Integers::open(reader, count)?;
                Ok(Self::Dictionary { ends, text, indexes })
            }
            _ => Err(Damaged("unknown form of strings")),
        }
    }

    /// Appends the values of `rows`, which must lie inside the column.
    pub(crate) fn decode(&self, rows: Range<usize>, out: &mut impl Values) -> Result<(), Damaged> {
        let mut result = Ok(());
        match self {
            Self::Plain { ends, text } => {
                let mut start = if rows.start == 0 {
                    0
                } else {
                    ends.get(rows.start - 1)
                };
                ends.for_each_block(rows, |ends| {
                    for end in ends {
                        result = result.and_then(|()| out.take(slice(text, start, *end)?));
                        start = *end;
                    }
                });
            }
            Self::Dictionary { ends, text, indexes } => {
                let mut budget = UNFOLDED_BYTES_MAX;
                indexes.for_each_block(rows, |indexes| {
                    for index in indexes {
                        result = result.and_then(|()| {
                            let value = entry(ends, text, *index)?;
                            budget = budget
                                .checked_sub(value.len())
                                .ok_or(Damaged("dictionary unfolds beyond its limit"))?;
                            out.take(value)
                        });
                    }
                });
            }
        }
        result
    }
}

fn take_text<'a>(reader: &mut Reader<'a>, length: i64) -> Result<&'a [u8], Damaged> {
    let length = usize::try_from(length).map_err(|_| Damaged("text ends before it starts"))?;
    reader.take(length)
}

fn entry<'a>(ends: &PackedArray<'_>, text: &'a [u8], index: i64) -> Result<&'a [u8], Damaged> {
    let index = usize::try_from(index)
        .ok()
        .filter(|index| *index < ends.len())
        .ok_or(Damaged("no such dictionary entry"))?;
    let start = if index == 0 { 0 } else { ends.get(index - 1) };
    slice(text, start, ends.get(index))
}

fn slice(text: &[u8], start: i64, end: i64) -> Result<&[u8], Damaged> {
    let (Ok(start), Ok(end)) = (usize::try_from(start), usize::try_from(end)) else {
        return Err(Damaged("text ends before it starts"));
    };
    text.get(start..end).ok_or(Damaged("text ends out of order"))
}

#[cfg(test)]
mod tests {
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
