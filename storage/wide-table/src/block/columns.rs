//! Values of one column of a block, split into a stream of numbers and a stream of bytes.
//!
//! Integers and timestamps are stored as differences to the previous value of the column, because the values of
//! neighboring rows are often rising numbers. Texts and bytes are stored as lengths and content.

use tideline_model::ColumnCompression;
use tideline_wire::varint::{self, unzigzag, zigzag};

use crate::error::Damage;
use crate::value::{number, sized, tag};

/// Returns the type byte with which a block stores the values of a column. Both booleans use the same type byte.
pub(super) const fn stored_tag(of: u8) -> u8 {
    match of {
        tag::TRUE => tag::FALSE,
        other => other,
    }
}

/// Returns true if values with this type byte have contents that a segment can hold: texts, bytes and JSON documents.
pub(super) const fn has_content(of: u8) -> bool {
    matches!(of, tag::STRING | tag::BINARY | tag::JSON)
}

/// Returns the payload at the front of `rest`, which follows the type byte `of`, and removes it.
///
/// # Errors
///
/// [`Damage`] if the type byte is unknown or the payload is cut off.
pub(super) fn take_payload<'r>(of: u8, rest: &mut &'r [u8]) -> Result<&'r [u8], Damage> {
    let all = *rest;
    match of {
        tag::STRING | tag::BINARY | tag::JSON | tag::LARGE => {
            sized(rest)?;
        }
        tag::I64 | tag::U64 | tag::TIMESTAMP => {
            number(rest)?;
        }
        tag::F64 => {
            cut(rest, 8)?;
        }
        tag::FALSE | tag::TRUE => {}
        tag::DECIMAL => {
            let head = cut(rest, 2)?;
            cut(rest, usize::from(head[1]))?;
        }
        _ => return Err(Damage("a value has an unknown type")),
    }
    Ok(&all[..all.len() - rest.len()])
}

/// Returns the first `length` bytes and removes them.
///
/// # Errors
///
/// [`Damage`] if there are fewer bytes.
pub(crate) fn cut<'r>(rest: &mut &'r [u8], length: usize) -> Result<&'r [u8], Damage> {
    let (taken, after) = rest
        .split_at_checked(length)
        .ok_or(Damage("a block is cut off"))?;
    *rest = after;
    Ok(taken)
}

/// Writes the values of a column.
#[derive(Debug, Default)]
pub(super) struct ColumnWriter {
    /// Encoded name of the column.
    pub(super) name: Vec<u8>,
    /// Type byte, as [`stored_tag`] returns it.
    pub(super) tag: u8,
    /// Compression of the contents. They are stored apart unless it is `Auto`.
    pub(super) compression: ColumnCompression,
    pub(super) numbers: Vec<u8>,
    pub(super) bytes: Vec<u8>,
    previous: u64,
}

impl ColumnWriter {
    pub(super) fn new(name: &[u8], of: u8, compression: ColumnCompression) -> Self {
        Self {
            name: name.to_vec(),
            tag: stored_tag(of),
            compression,
            ..Self::default()
        }
    }

    /// Returns true if the contents of the column are stored in a segment.
    pub(super) fn is_apart(&self) -> bool {
        !self.compression.is_auto() && !self.bytes.is_empty()
    }

    /// Appends a value, given by its type byte and its payload.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the payload is damaged.
    pub(super) fn push(&mut self, of: u8, mut payload: &[u8]) -> Result<(), Damage> {
        match of {
            tag::STRING | tag::BINARY | tag::JSON | tag::LARGE => {
                let content = sized(&mut payload)?;
                varint::put(content.len() as u64, &mut self.numbers);
                self.bytes.extend_from_slice(content);
            }
            tag::I64 | tag::TIMESTAMP => self.push_number(unzigzag(number(&mut payload)?) as u64),
            tag::U64 => self.push_number(number(&mut payload)?),
            tag::FALSE | tag::TRUE => self.bytes.push(of),
            tag::DECIMAL => {
                self.numbers.extend_from_slice(cut(&mut payload, 2)?);
                self.bytes.extend_from_slice(payload);
            }
            _ => self.bytes.extend_from_slice(payload),
        }
        Ok(())
    }

    fn push_number(&mut self, value: u64) {
        let difference = value.wrapping_sub(self.previous) as i64;
        varint::put(zigzag(difference), &mut self.numbers);
        self.previous = value;
    }
}

/// Reads the values of a column.
#[derive(Debug, Clone)]
pub(crate) struct ColumnReader<'b> {
    /// Encoded name of the column.
    pub(crate) name: &'b [u8],
    /// Type byte, as [`stored_tag`] returns it.
    pub(crate) tag: u8,
    /// True if the contents are in a segment, including those of rows that are stored whole.
    pub(super) is_apart: bool,
    /// Stream of numbers that were not read yet.
    pub(crate) numbers: &'b [u8],
    /// Stream of bytes that were not read yet.
    pub(crate) bytes: &'b [u8],
    previous: u64,
}

impl<'b> ColumnReader<'b> {
    pub(super) fn new(name: &'b [u8], tag: u8) -> Self {
        Self {
            name,
            tag,
            is_apart: false,
            numbers: &[],
            bytes: &[],
            previous: 0,
        }
    }

    /// Appends the stored form of the next value, with its type byte, to `out`.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the streams are cut off or the type byte is unknown.
    #[inline]
    pub(super) fn next(&mut self, out: &mut Vec<u8>) -> Result<(), Damage> {
        match self.tag {
            tag::STRING | tag::BINARY | tag::JSON | tag::LARGE => {
                let length = number(&mut self.numbers)?;
                out.push(self.tag);
                varint::put(length, out);
                out.extend_from_slice(cut(&mut self.bytes, length as usize)?);
            }
            tag::I64 | tag::TIMESTAMP => {
                let value = self.next_number()?;
                out.push(self.tag);
                varint::put(zigzag(value as i64), out);
            }
            tag::U64 => {
                let value = self.next_number()?;
                out.push(self.tag);
                varint::put(value, out);
            }
            tag::F64 => {
                out.push(self.tag);
                out.extend_from_slice(cut(&mut self.bytes, 8)?);
            }
            tag::FALSE => out.extend_from_slice(cut(&mut self.bytes, 1)?),
            tag::DECIMAL => {
                let (head, digits) = self.decimal()?;
                out.push(self.tag);
                out.extend_from_slice(&head);
                out.extend_from_slice(digits);
            }
            _ => return Err(Damage("a column of a block has an unknown type")),
        }
        Ok(())
    }

    /// Skips the next value.
    ///
    /// # Errors
    ///
    /// The errors of [`next`](Self::next).
    #[inline]
    pub(super) fn skip(&mut self) -> Result<(), Damage> {
        match self.tag {
            tag::STRING | tag::BINARY | tag::JSON | tag::LARGE => {
                let length = number(&mut self.numbers)?;
                cut(&mut self.bytes, length as usize)?;
            }
            tag::I64 | tag::TIMESTAMP | tag::U64 => {
                self.next_number()?;
            }
            tag::F64 => {
                cut(&mut self.bytes, 8)?;
            }
            tag::FALSE => {
                cut(&mut self.bytes, 1)?;
            }
            tag::DECIMAL => {
                self.decimal()?;
            }
            _ => return Err(Damage("a column of a block has an unknown type")),
        }
        Ok(())
    }

    /// Returns the next decimal: its scale and the number of its digit bytes, then the digit bytes.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the streams are cut off.
    #[inline]
    pub(crate) fn decimal(&mut self) -> Result<([u8; 2], &'b [u8]), Damage> {
        let (head, rest) = self
            .numbers
            .split_first_chunk()
            .ok_or(Damage("a block is cut off"))?;
        self.numbers = rest;
        Ok((*head, cut(&mut self.bytes, usize::from(head[1]))?))
    }

    /// Returns the next integer or timestamp as 64 bits; signed values in two's complement.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the stream is cut off.
    #[inline]
    pub(crate) fn next_number(&mut self) -> Result<u64, Damage> {
        let difference = unzigzag(number(&mut self.numbers)?);
        self.previous = self.previous.wrapping_add(difference as u64);
        Ok(self.previous)
    }
}
