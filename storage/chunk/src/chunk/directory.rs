//! Entries of a column directory, used by chunks and by their summaries.

use tideline_model::{FieldId, ValueType};

use super::ChunkError;
use crate::column;
use crate::wire::{Damaged, Reader, put_varint};

/// Bits of the first byte of an entry.
mod tag {
    /// Code of the value type.
    pub(super) const TYPE: u8 = 0x0f;
    /// Set if the body starts with a presence (the set of rows that have a value); otherwise every row has a value.
    pub(super) const SPARSE: u8 = 0x10;
    /// Set if the field id is one higher than in the previous entry; otherwise the difference follows.
    pub(super) const NEXT_FIELD: u8 = 0x20;
    /// Reserved for later versions.
    pub(super) const RESERVED: u8 = 0xc0;
}

/// Directory entry of one column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) field: FieldId,
    pub(crate) value_type: ValueType,
    /// True if the body starts with a presence; otherwise every row has a value.
    pub(crate) is_sparse: bool,
    /// Length of the body in bytes.
    pub(crate) length: usize,
}

impl Entry {
    /// Appends the entry. `previous` is the field of the previous entry, or 0 for the first entry.
    pub(crate) fn put(&self, previous: u32, out: &mut Vec<u8>) {
        let mut tag = self.value_type.code();
        if self.is_sparse {
            tag |= tag::SPARSE;
        }
        if self.field.0.wrapping_sub(previous) == 1 {
            out.push(tag | tag::NEXT_FIELD);
        } else {
            out.push(tag);
            put_varint(u64::from(self.field.0 - previous), out);
        }
        put_varint(self.length as u64, out);
    }

    /// Reads the next entry. Its body may have at most `length_max` bytes.
    #[inline]
    pub(crate) fn read(
        reader: &mut Reader<'_>,
        previous: u32,
        length_max: usize,
    ) -> Result<Self, ChunkError> {
        let tag = reader.byte()?;
        if tag & tag::RESERVED != 0 {
            return Err(Damaged("column with unknown flags").into());
        }
        let value_type = column::value_type(tag & tag::TYPE)?;
        let above = match tag & tag::NEXT_FIELD {
            0 => reader.count(u32::MAX as usize)? as u32,
            _ => 1,
        };
        let field = previous
            .checked_add(above)
            .ok_or(Damaged("field beyond 32 bits"))?;
        Ok(Self {
            field: FieldId(field),
            value_type,
            is_sparse: tag & tag::SPARSE != 0,
            length: reader.count(length_max)?,
        })
    }
}
