//! Bit-packed integers: constant, offsets from a base, or differences, in blocks of 128.
//!
//! A base is the smallest value of its block, and a step is the smallest difference, so packed offsets are never
//! negative. Each block can be unpacked independently. The layout is described in `FORMAT.md`.

use std::ops::Range;

use super::PackedInt;
use crate::bitpack::{BLOCK, Block, bits, pack, packed_bytes, unpack, unpack_deltas};
use crate::packed_array::PackedArray;
use crate::wire::{Damaged, Reader, put_signed};

pub(super) const CONSTANT: u8 = 0;
pub(super) const OFFSETS: u8 = 1;
pub(super) const DELTAS: u8 = 2;

/// Values that determine the packed form of one block.
#[derive(Debug, Clone, Copy)]
struct BlockShape {
    first: i64,
    /// Smallest value; `offset_width` is the number of bits of the largest offset from it.
    base: i64,
    offset_width: usize,
    /// Smallest difference; `step_width` is the number of bits of the largest offset from it.
    step: i64,
    step_width: usize,
}

impl BlockShape {
    fn of<T: PackedInt>(values: &[T]) -> Self {
        let first = values[0].into_packed();
        let (mut low, mut high) = (first, first);
        let (mut step_low, mut step_high) = (i64::MAX, i64::MIN);
        for (value, next) in values.iter().zip(&values[1..]) {
            let (value, next) = (value.into_packed(), next.into_packed());
            let step = next.wrapping_sub(value);
            low = low.min(next);
            high = high.max(next);
            step_low = step_low.min(step);
            step_high = step_high.max(step);
        }
        if values.len() == 1 {
            (step_low, step_high) = (0, 0);
        }
        Self {
            first,
            base: low,
            offset_width: bits(high.wrapping_sub(low) as u64),
            step: step_low,
            step_width: bits(step_high.wrapping_sub(step_low) as u64),
        }
    }
}

/// Encoder of packed columns with a reusable buffer.
#[derive(Debug, Default)]
pub(crate) struct PackedEncoder {
    shapes: Vec<BlockShape>,
}

/// Chosen form of a column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    form: u8,
    /// Size of the blocks in bytes, without their heads.
    payload: usize,
}

impl PackedEncoder {
    /// Appends `values` in the form with the smallest estimated size.
    pub(crate) fn encode<T: PackedInt>(&mut self, values: &[T], out: &mut Vec<u8>) {
        let plan = self.plan(values);
        self.write(&plan, values, out);
    }

    /// Chooses the form for `values`.
    pub(super) fn plan<T: PackedInt>(&mut self, values: &[T]) -> Plan {
        self.shapes.clear();
        self.shapes.extend(values.chunks(BLOCK).map(BlockShape::of));
        let first = self.shapes.first().map_or(0, |shape| shape.first);
        let mut shapes = self.shapes.iter();
        if shapes.all(|shape| shape.first == first && shape.offset_width == 0) {
            let form = CONSTANT;
            return Plan { form, payload: 0 };
        }
        let deltas = self.payload(values.len(), |shape| shape.step_width);
        let offsets = self.payload(values.len(), |shape| shape.offset_width);
        // Differences have a third array of heads, estimated at one byte per block.
        let deltas_are_smaller = deltas + self.shapes.len() < offsets;
        Plan {
            form: if deltas_are_smaller { DELTAS } else { OFFSETS },
            payload: if deltas_are_smaller { deltas } else { offsets },
        }
    }

    /// Appends `values`, which must be those passed to [`PackedEncoder::plan`].
    pub(super) fn write<T: PackedInt>(&self, plan: &Plan, values: &[T], out: &mut Vec<u8>) {
        match plan.form {
            CONSTANT => {
                out.push(CONSTANT);
                put_signed(self.shapes.first().map_or(0, |shape| shape.first), out);
            }
            DELTAS => self.encode_deltas(values, out),
            _ => self.encode_offsets(values, out),
        }
    }

    /// Returns the approximate encoded size in bytes.
    pub(super) fn bytes(&self, plan: &Plan) -> usize {
        let array = |element: fn(&BlockShape) -> i64| {
            let elements = self.shapes.iter().map(element);
            let low = elements.clone().min().unwrap_or(0);
            let high = elements.max().unwrap_or(0);
            2 + packed_bytes(self.shapes.len(), bits(high.wrapping_sub(low) as u64))
        };
        let heads = match plan.form {
            CONSTANT => 1,
            DELTAS => {
                array(|shape| shape.step_width as i64)
                    + array(|shape| shape.step)
                    + array(|shape| shape.first)
            }
            _ => array(|shape| shape.offset_width as i64) + array(|shape| shape.base),
        };
        1 + heads + plan.payload
    }

    fn payload(&self, count: usize, width: impl Fn(&BlockShape) -> usize) -> usize {
        let last = self.shapes.len() - 1;
        let full = self.shapes[..last].iter();
        full.map(|shape| width(shape) * BLOCK / 8).sum::<usize>()
            + packed_bytes(count - last * BLOCK, width(&self.shapes[last]))
    }

    fn encode_offsets<T: PackedInt>(&self, values: &[T], out: &mut Vec<u8>) {
        out.push(OFFSETS);
        let shapes = self.shapes.iter();
        PackedArray::encode(shapes.clone().map(|shape| shape.offset_width as i64), out);
        PackedArray::encode(shapes.clone().map(|shape| shape.base), out);
        let mut block = [0; BLOCK];
        for (values, shape) in values.chunks(BLOCK).zip(shapes) {
            for (slot, value) in block.iter_mut().zip(values) {
                *slot = value.into_packed();
            }
            pack(&mut block, values.len(), shape.base, shape.offset_width, out);
        }
    }

    fn encode_deltas<T: PackedInt>(&self, values: &[T], out: &mut Vec<u8>) {
        out.push(DELTAS);
        let shapes = self.shapes.iter();
        PackedArray::encode(shapes.clone().map(|shape| shape.step_width as i64), out);
        PackedArray::encode(shapes.clone().map(|shape| shape.step), out);
        PackedArray::encode(shapes.clone().map(|shape| shape.first), out);
        let mut block = [0; BLOCK];
        for (values, shape) in values.chunks(BLOCK).zip(shapes) {
            block[0] = shape.step;
            let pairs = values.iter().zip(&values[1..]);
            for (slot, (value, next)) in block[1..].iter_mut().zip(pairs) {
                *slot = next.into_packed().wrapping_sub(value.into_packed());
            }
            pack(&mut block, values.len(), shape.step, shape.step_width, out);
        }
    }
}

/// View of a stored column. Opening it checks every length, so reading cannot fail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packed<'a> {
    count: usize,
    form: Form<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Form<'a> {
    Constant(i64),
    Offsets {
        widths: PackedArray<'a>,
        bases: PackedArray<'a>,
        payload: &'a [u8],
    },
    Deltas {
        widths: PackedArray<'a>,
        steps: PackedArray<'a>,
        firsts: PackedArray<'a>,
        payload: &'a [u8],
    },
}

impl<'a> Packed<'a> {
    /// Opens the next column, which has `count` values. The caller must have checked `count` against a limit.
    ///
    /// Costs a few instructions per block.
    pub(crate) fn open(reader: &mut Reader<'a>, count: usize) -> Result<Self, Damaged> {
        let form = reader.byte()?;
        Self::open_form(form, reader, count)
    }

    /// Opens a column whose form byte has already been read; see [`Packed::open`].
    #[inline]
    pub(super) fn open_form(code: u8, reader: &mut Reader<'a>, count: usize) -> Result<Self, Damaged> {
        if code == CONSTANT {
            let form = Form::Constant(reader.signed()?);
            return Ok(Self { count, form });
        }
        if count == 0 {
            return Err(Damaged("empty column has blocks"));
        }
        let blocks = count.div_ceil(BLOCK);
        let widths = PackedArray::open(reader, blocks)?;
        let form = match code {
            OFFSETS => {
                let bases = PackedArray::open(reader, blocks)?;
                let payload = take_payload(reader, count, &widths)?;
                Form::Offsets {
                    widths,
                    bases,
                    payload,
                }
            }
            DELTAS => {
                let steps = PackedArray::open(reader, blocks)?;
                let firsts = PackedArray::open(reader, blocks)?;
                let payload = take_payload(reader, count, &widths)?;
                Form::Deltas {
                    widths,
                    steps,
                    firsts,
                    payload,
                }
            }
            _ => return Err(Damaged("unknown form of integers")),
        };
        Ok(Self { count, form })
    }

    /// Calls `visit` with the values of `rows`, block by block in order. `rows` must be within the column.
    pub(super) fn for_each_block(&self, rows: Range<usize>, mut visit: impl FnMut(&[i64])) {
        if rows.is_empty() {
            return;
        }
        let mut block = [0; BLOCK];
        let blocks = rows.start / BLOCK..rows.end.div_ceil(BLOCK);
        let mut offset = self.payload_offset(blocks.start);
        for index in blocks {
            let start = index * BLOCK;
            let count = BLOCK.min(self.count - start);
            offset += self.unpack_block(index, offset, count, &mut block);
            let first = rows.start.max(start) - start;
            let end = rows.end.min(start + BLOCK) - start;
            visit(&block[first..end]);
        }
    }

    /// Calls `visit` with each value in order.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(i64)) {
        self.for_each_block(0..self.count, |values| {
            values.iter().for_each(|value| visit(*value));
        });
    }

    /// Fills `block` with the values of block `index`, which must exist. Slots after the last value hold arbitrary
    /// values.
    pub(crate) fn read_block(&self, index: usize, block: &mut Block) {
        let count = BLOCK.min(self.count - index * BLOCK);
        self.unpack_block(index, self.payload_offset(index), count, block);
    }

    /// Returns the number of values.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the first values of the blocks of a rising column, and the number of values in a full block. For a
    /// constant column, returns its value as `Err`.
    pub(super) fn rising_heads(&self) -> Result<(PackedArray<'a>, usize), i64> {
        match self.form {
            Form::Constant(value) => Err(value),
            // The smallest value of a rising block is its first value.
            Form::Offsets { bases, .. } => Ok((bases, BLOCK)),
            Form::Deltas { firsts, .. } => Ok((firsts, BLOCK)),
        }
    }

    /// Returns the offset of the payload of block `index`.
    fn payload_offset(&self, index: usize) -> usize {
        match &self.form {
            Form::Constant(_) => 0,
            Form::Offsets { widths, .. } | Form::Deltas { widths, .. } => (0..index)
                .map(|block| packed_bytes(BLOCK, widths.get(block) as usize))
                .sum(),
        }
    }

    /// Fills the first `count` slots. Returns the size of the block's payload in bytes.
    fn unpack_block(&self, index: usize, offset: usize, count: usize, block: &mut Block) -> usize {
        match &self.form {
            Form::Constant(value) => {
                block.fill(*value);
                0
            }
            Form::Offsets {
                widths,
                bases,
                payload,
            } => {
                let width = widths.get(index) as usize;
                unpack(&payload[offset..], count, width, bases.get(index), block);
                packed_bytes(count, width)
            }
            Form::Deltas {
                widths,
                steps,
                firsts,
                payload,
            } => {
                let width = widths.get(index) as usize;
                let (step, first) = (steps.get(index), firsts.get(index));
                unpack_deltas(&payload[offset..], count, width, step, first, block);
                packed_bytes(count, width)
            }
        }
    }
}

/// Checks all widths and reads the payload of the blocks. The returned slice also contains all later bytes.
fn take_payload<'a>(
    reader: &mut Reader<'a>,
    count: usize,
    widths: &PackedArray<'a>,
) -> Result<&'a [u8], Damaged> {
    let mut length = 0;
    for block in 0..widths.len() {
        let width = usize::try_from(widths.get(block))
            .ok()
            .filter(|width| *width <= 64)
            .ok_or(Damaged("width beyond 64 bits"))?;
        length += packed_bytes(BLOCK.min(count - block * BLOCK), width);
    }
    reader.take_padded(length)
}
