//! Columns of 64-bit integers: constant, offsets from a base, or differences, bit-packed in blocks of 128.
//!
//! Signed, unsigned, booleans, indexes, text ends, scaled decimals and float bits all end here. Arithmetic
//! wraps, so every bit pattern of 64 bits is ordinary. The layout is drawn in `FORMAT.md`.

use std::ops::Range;

use crate::bitpack::{BLOCK, Block, bits, pack, packed_bytes, unpack, unpack_deltas};
use crate::packed_array::PackedArray;
use crate::wire::{Damaged, Reader, put_signed};

const CONSTANT: u8 = 0;
const OFFSETS: u8 = 1;
const DELTAS: u8 = 2;

/// A type whose values are stored as 64-bit integers.
pub(crate) trait Lane: Copy {
    /// The stored integer.
    fn into_lane(self) -> i64;
    /// The value of a stored integer; one that was never stored gives any value.
    fn from_lane(lane: i64) -> Self;
}

impl Lane for i64 {
    fn into_lane(self) -> i64 {
        self
    }
    fn from_lane(lane: i64) -> Self {
        lane
    }
}

impl Lane for u64 {
    fn into_lane(self) -> i64 {
        self as i64
    }
    fn from_lane(lane: i64) -> Self {
        lane as u64
    }
}

impl Lane for u32 {
    fn into_lane(self) -> i64 {
        i64::from(self)
    }
    fn from_lane(lane: i64) -> Self {
        lane as u32
    }
}

impl Lane for bool {
    fn into_lane(self) -> i64 {
        i64::from(self)
    }
    fn from_lane(lane: i64) -> Self {
        lane != 0
    }
}

/// What the packing of one block depends on.
#[derive(Debug, Clone, Copy)]
struct BlockShape {
    first: i64,
    /// Smallest value, and bits of the largest offset from it.
    base: i64,
    offset_width: usize,
    /// Smallest difference, and bits of the largest offset from it.
    step: i64,
    step_width: usize,
}

impl BlockShape {
    fn of<T: Lane>(values: &[T]) -> Self {
        let first = values[0].into_lane();
        let (mut low, mut high) = (first, first);
        let (mut step_low, mut step_high) = (i64::MAX, i64::MIN);
        for (value, next) in values.iter().zip(&values[1..]) {
            let (value, next) = (value.into_lane(), next.into_lane());
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

/// Writes columns; keeps its buffer from one to the next.
#[derive(Debug, Default)]
pub(crate) struct IntegerEncoder {
    shapes: Vec<BlockShape>,
}

impl IntegerEncoder {
    /// Appends `values` in the smallest of the three forms.
    pub(crate) fn encode<T: Lane>(&mut self, values: &[T], out: &mut Vec<u8>) {
        self.shapes.clear();
        self.shapes.extend(values.chunks(BLOCK).map(BlockShape::of));
        let first = self.shapes.first().map_or(0, |shape| shape.first);
        if self
            .shapes
            .iter()
            .all(|shape| shape.first == first && shape.offset_width == 0)
        {
            out.push(CONSTANT);
            put_signed(first, out);
        } else if self.deltas_are_smaller(values.len()) {
            self.encode_deltas(values, out);
        } else {
            self.encode_offsets(values, out);
        }
    }

    /// Compares payloads, and charges differences for the third array of heads at about one byte a block.
    fn deltas_are_smaller(&self, count: usize) -> bool {
        let last = self.shapes.len() - 1;
        let bytes = |width: fn(&BlockShape) -> usize| -> usize {
            let full: usize = self.shapes[..last]
                .iter()
                .map(|shape| width(shape) * BLOCK / 8)
                .sum();
            full + packed_bytes(count - last * BLOCK, width(&self.shapes[last]))
        };
        bytes(|shape| shape.step_width) + self.shapes.len() < bytes(|shape| shape.offset_width)
    }

    fn encode_offsets<T: Lane>(&self, values: &[T], out: &mut Vec<u8>) {
        out.push(OFFSETS);
        let shapes = self.shapes.iter();
        PackedArray::encode(shapes.clone().map(|shape| shape.offset_width as i64), out);
        PackedArray::encode(shapes.clone().map(|shape| shape.base), out);
        let mut block = [0; BLOCK];
        for (values, shape) in values.chunks(BLOCK).zip(shapes) {
            for (slot, value) in block.iter_mut().zip(values) {
                *slot = value.into_lane();
            }
            pack(&mut block, values.len(), shape.base, shape.offset_width, out);
        }
    }

    fn encode_deltas<T: Lane>(&self, values: &[T], out: &mut Vec<u8>) {
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
                *slot = next.into_lane().wrapping_sub(value.into_lane());
            }
            pack(&mut block, values.len(), shape.step, shape.step_width, out);
        }
    }
}

/// A view of a stored column. Opening it checks every length, so reading cannot fail.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Integers<'a> {
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

impl<'a> Integers<'a> {
    /// Reads the column of `count` values that stands next; `count` must be backed by a checked limit.
    ///
    /// Costs a few instructions a block.
    pub(crate) fn open(reader: &mut Reader<'a>, count: usize) -> Result<Self, Damaged> {
        let code = reader.byte()?;
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

    /// The values of `rows`, which must lie inside the column, block by block in order.
    pub(crate) fn for_each_block(&self, rows: Range<usize>, mut visit: impl FnMut(&[i64])) {
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

    /// Hands each value to `visit`, in order.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(i64)) {
        self.for_each_block(0..self.count, |values| {
            values.iter().for_each(|value| visit(*value));
        });
    }

    /// Appends the values of `rows`, which must lie inside the column.
    pub(crate) fn decode<T: Lane>(&self, rows: Range<usize>, out: &mut Vec<T>) {
        out.reserve(rows.len());
        self.for_each_block(rows, |values| {
            out.extend(values.iter().map(|value| T::from_lane(*value)));
        });
    }

    /// One value. Costs the unpacking of its block.
    pub(crate) fn get(&self, row: usize) -> i64 {
        let mut found = 0;
        self.for_each_block(row..row + 1, |values| found = values[0]);
        found
    }

    /// Of a rising column, how many values satisfy `before`, which must hold for a prefix of it.
    ///
    /// Costs a binary search over block heads and the unpacking of at most one block.
    pub(crate) fn partition_point(&self, before: impl Fn(i64) -> bool) -> usize {
        let firsts = match &self.form {
            Form::Constant(value) => return if before(*value) { self.count } else { 0 },
            // In a rising block the smallest value is the first.
            Form::Offsets { bases, .. } => bases,
            Form::Deltas { firsts, .. } => firsts,
        };
        let later_block = firsts.partition_point(&before);
        let Some(index) = later_block.checked_sub(1) else {
            return 0;
        };
        let start = index * BLOCK;
        let mut within = 0;
        self.for_each_block(start..self.count.min(start + BLOCK), |values| {
            within = values.partition_point(|value| before(*value));
        });
        start + within
    }

    /// Where the payload of block `index` starts.
    fn payload_offset(&self, index: usize) -> usize {
        match &self.form {
            Form::Constant(_) => 0,
            Form::Offsets { widths, .. } | Form::Deltas { widths, .. } => (0..index)
                .map(|block| packed_bytes(BLOCK, widths.get(block) as usize))
                .sum(),
        }
    }

    /// Fills the first `count` slots, and returns how many payload bytes the block takes.
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

/// Checks all widths and takes the blocks that follow, with whatever stands behind them.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded<T: Lane>(values: &[T]) -> Vec<u8> {
        let mut bytes = Vec::new();
        IntegerEncoder::default().encode(values, &mut bytes);
        bytes
    }

    fn decoded<T: Lane>(bytes: &[u8], count: usize, rows: Range<usize>) -> Vec<T> {
        let mut reader = Reader::new(bytes);
        let column = Integers::open(&mut reader, count).expect("it was just written");
        assert_eq!(reader.finish(), Ok(()));
        let mut values = Vec::new();
        column.decode(rows, &mut values);
        values
    }

    #[test]
    fn extremes_read_back_in_any_range() {
        let columns: [Vec<i64>; 5] = [
            vec![],
            vec![i64::MIN, i64::MAX, 0, -1, 1],
            vec![7; 1_000],
            (0..1_000).map(|n| n * 3).collect(),
            (0..300)
                .map(|n: i64| n.wrapping_mul(0x5851_f42d_4c95_7f2d))
                .collect(),
        ];
        for values in columns {
            let bytes = encoded(&values);
            let count = values.len();
            for rows in [0..count, 0..count / 2, count / 3..count, count / 2..count / 2] {
                assert_eq!(decoded::<i64>(&bytes, count, rows.clone()), values[rows]);
            }
        }
        let unsigned = [u64::MAX, 0, u64::MAX / 2 + 1, 5];
        assert_eq!(decoded::<u64>(&encoded(&unsigned), 4, 0..4), unsigned);
    }

    #[test]
    fn the_cheapest_form_is_taken() {
        assert_eq!(encoded(&[7i64; 500]), [CONSTANT, 14]);
        let line: Vec<i64> = (0..540).map(|n| n * 1_000).collect();
        assert_eq!(encoded(&line)[0], DELTAS);
        assert!(encoded(&line).len() < 30);
        let noise: Vec<i64> = (0..540).map(|n| (n * 37) % 101).collect();
        assert_eq!(encoded(&noise)[0], OFFSETS);
    }

    #[test]
    fn a_rising_column_is_searched_by_its_heads() {
        for values in [
            (0..1_000).map(|n| n * 3).collect::<Vec<i64>>(),
            (0..1_000).map(|n| n * n).collect(),
            vec![4],
        ] {
            let bytes = encoded(&values);
            let column = Integers::open(&mut Reader::new(&bytes), values.len()).expect("it was just written");
            for bound in [-1, 0, 1, 4, 5, 380, 384, 385, 2_997, 2_998, 999_999] {
                assert_eq!(
                    column.partition_point(|value| value < bound),
                    values.partition_point(|value| *value < bound)
                );
            }
        }
    }

    #[test]
    fn damage_is_an_error() {
        let bytes = encoded(&(0..300i64).map(|n| n % 7).collect::<Vec<_>>());
        for length in 0..bytes.len() {
            assert!(Integers::open(&mut Reader::new(&bytes[..length]), 300).is_err());
        }
        assert!(Integers::open(&mut Reader::new(&[9, 0, 0]), 3).is_err());
        // Width 65 as a signed varint.
        assert!(Integers::open(&mut Reader::new(&[OFFSETS, 0x82, 0x01, 0, 0, 0]), 1).is_err());
    }
}
