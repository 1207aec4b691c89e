//! Encoder of blocks.
//!
//! The encoder appends each row to the streams of the block that it builds, then compresses the streams together.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tideline_model::{ColumnCompression, GroupCompression};
use tideline_wire::varint::{self, zigzag};
use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

use super::apart::{self, PackZstd};
use super::columns::{ColumnWriter, cut, has_content, stored_tag, take_payload};
use super::{FORMAT, FORMAT_APART, checksum, filter, level};
use crate::blocks::BlockError;
use crate::codec;
use crate::codecs::ColumnCodecs;
use crate::error::Damage;
use crate::value::number;

/// Maximum number of shapes (different lists of columns) in a block. Rows with further shapes are stored whole.
const SHAPES_MAX: usize = 64;
/// Maximum number of columns of a row that is stored by columns. The search for a column takes time linear in the
/// number of columns of the block.
const ROW_COLUMNS_MAX: usize = 256;
/// Maximum number of different columns in a block.
const COLUMNS_MAX: usize = 1_024;

/// Builds blocks one after the other, and reuses its memory.
pub(crate) struct BlockEncoder {
    compressor: Compressor<'static>,
    codecs: Arc<ColumnCodecs>,
    first: Vec<u8>,
    last: Vec<u8>,
    /// Hash of each key.
    hashes: Vec<u64>,
    bytes: usize,
    /// Per row: length of the prefix shared with the previous key, and length of the suffix that follows it.
    key_lengths: Vec<u8>,
    key_suffixes: Vec<u8>,
    /// Per row: 0 if it is stored whole, otherwise the position of its shape plus 1.
    shape_numbers: Vec<u8>,
    /// Per row with a shape: difference of its time to the previous time.
    times: Vec<u8>,
    last_time: i64,
    /// Rows that are stored whole.
    whole: Vec<u8>,
    /// Current row that is stored whole, without the contents that are stored apart.
    without: Vec<u8>,
    columns: Vec<ColumnWriter>,
    /// Shapes: lists of positions in `columns`.
    shapes: Vec<Vec<u32>>,
    /// Position of the shape of the previous row.
    shape: usize,
    cells: Vec<Cell>,
    body: Vec<u8>,
}

/// Position of a column in an encoded row.
struct Cell {
    name: Range<usize>,
    tag: u8,
    payload: Range<usize>,
}

impl BlockEncoder {
    pub(crate) fn new(compression: GroupCompression, codecs: &Arc<ColumnCodecs>) -> Self {
        let mut compressor =
            Compressor::new(level(compression)).expect("a context of a supported level is created");
        compressor
            .set_parameter(CParameter::ChecksumFlag(true))
            .expect("a supported parameter is set");
        Self {
            compressor,
            codecs: Arc::clone(codecs),
            first: Vec::new(),
            last: Vec::new(),
            hashes: Vec::new(),
            bytes: 0,
            key_lengths: Vec::new(),
            key_suffixes: Vec::new(),
            shape_numbers: Vec::new(),
            times: Vec::new(),
            last_time: 0,
            whole: Vec::new(),
            without: Vec::new(),
            columns: Vec::new(),
            shapes: Vec::new(),
            shape: 0,
            cells: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Adds a row, whose key must be above that of the previous row.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the row is damaged.
    pub(crate) fn push(&mut self, key: &[u8], row: &[u8]) -> Result<(), Damage> {
        if self.hashes.is_empty() {
            self.first.extend_from_slice(key);
        }
        let shared = key
            .iter()
            .zip(&self.last)
            .take_while(|(one, other)| one == other)
            .count();
        varint::put(shared as u64, &mut self.key_lengths);
        varint::put((key.len() - shared) as u64, &mut self.key_lengths);
        self.key_suffixes.extend_from_slice(&key[shared..]);
        self.last.truncate(shared);
        self.last.extend_from_slice(&key[shared..]);
        self.hashes.push(filter::hash_of(key));
        self.bytes += key.len() + row.len();
        self.push_row(row)
    }

    fn push_row(&mut self, row: &[u8]) -> Result<(), Damage> {
        let shape = match codec::is_uniform_row(row) {
            true => self.shape_of(row)?,
            false => None,
        };
        let Some(shape) = shape else {
            varint::put(0, &mut self.shape_numbers);
            return self.push_whole(row);
        };
        self.shape = shape;
        varint::put(shape as u64 + 1, &mut self.shape_numbers);
        let time = codec::time_of(row)?;
        varint::put(zigzag(time.wrapping_sub(self.last_time)), &mut self.times);
        self.last_time = time;
        for (cell, column) in self.cells.iter().zip(&self.shapes[shape]) {
            self.columns[*column as usize].push(cell.tag, &row[cell.payload.clone()])?;
        }
        Ok(())
    }

    /// Adds a row that is not split into columns. Contents of columns with a separate compression setting are moved to
    /// the columns.
    fn push_whole(&mut self, row: &[u8]) -> Result<(), Damage> {
        if self.codecs.is_empty() {
            varint::put(row.len() as u64, &mut self.whole);
            self.whole.extend_from_slice(row);
            return Ok(());
        }
        let Self {
            codecs,
            columns,
            without,
            ..
        } = self;
        without.clear();
        let mut copied = 0;
        codec::walk(row, &mut |name, of, rest| {
            let Some(column) = apart_column(codecs, columns, name, of)? else {
                take_payload(of, rest)?;
                return Ok(());
            };
            let length = number(rest)? as usize;
            without.extend_from_slice(&row[copied..row.len() - rest.len()]);
            columns[column].bytes.extend_from_slice(cut(rest, length)?);
            copied = row.len() - rest.len();
            Ok(())
        })?;
        without.extend_from_slice(&row[copied..]);
        varint::put(without.len() as u64, &mut self.whole);
        self.whole.extend_from_slice(without);
        Ok(())
    }

    /// Splits a uniform row into the cells of its columns, and returns the position of its shape. Returns `None` if the
    /// row has too many columns, or if the block would have too many columns or shapes.
    fn shape_of(&mut self, row: &[u8]) -> Result<Option<usize>, Damage> {
        self.cells.clear();
        let mut rest = row.get(9..).ok_or(Damage("the time of a row is cut off"))?;
        let count = number(&mut rest)?;
        if count > ROW_COLUMNS_MAX as u64 {
            return Ok(None);
        }
        let at = |rest: &[u8]| row.len() - rest.len();
        for _ in 0..count {
            let start = at(rest);
            codec::skip_name(&mut rest)?;
            let name = start..at(rest);
            let (&tag, after) = rest.split_first().ok_or(Damage("a value is cut off"))?;
            rest = after;
            let start = at(rest);
            take_payload(tag, &mut rest)?;
            let payload = start..at(rest);
            self.cells.push(Cell { name, tag, payload });
        }
        if !rest.is_empty() {
            return Err(Damage("bytes follow a row"));
        }
        let is_of = |shape: &Vec<u32>| {
            let columns = shape.iter().map(|column| &self.columns[*column as usize]);
            shape.len() == self.cells.len()
                && self.cells.iter().zip(columns).all(|(cell, column)| {
                    column.tag == stored_tag(cell.tag) && row[cell.name.clone()] == column.name
                })
        };
        if self.shapes.get(self.shape).is_some_and(is_of) {
            return Ok(Some(self.shape));
        }
        if let Some(found) = self.shapes.iter().position(is_of) {
            return Ok(Some(found));
        }
        if self.shapes.len() == SHAPES_MAX || self.columns.len() + self.cells.len() > COLUMNS_MAX {
            return Ok(None);
        }
        let mut shape = Vec::with_capacity(self.cells.len());
        for cell in &self.cells {
            let name = &row[cell.name.clone()];
            let is_known = |column: &ColumnWriter| column.tag == stored_tag(cell.tag) && column.name == name;
            let known = self.columns.iter().position(is_known);
            shape.push(match known {
                Some(known) => known as u32,
                None => {
                    let compression = compression_of(&self.codecs, name, cell.tag)?;
                    self.columns.push(ColumnWriter::new(name, cell.tag, compression));
                    self.columns.len() as u32 - 1
                }
            });
        }
        self.shapes.push(shape);
        Ok(Some(self.shapes.len() - 1))
    }

    /// Returns the block of the rows that were added, and begins the next one. `zstd` compresses the contents of
    /// columns with the compression `zstd`.
    ///
    /// # Errors
    ///
    /// The errors of `zstd`.
    pub(crate) fn finish(&mut self, zstd: &mut PackZstd<'_>) -> Result<Bytes, BlockError> {
        let (mut count, mut heads, mut segments) = (0_u64, Vec::new(), Vec::new());
        for column in self.columns.iter().filter(|column| column.is_apart()) {
            let of = (column.compression, &column.name[..]);
            apart::push(of, &column.bytes, &mut heads, &mut segments, zstd)?;
            count += 1;
        }
        let is_apart = count > 0;
        let streams = [
            &self.key_lengths,
            &self.key_suffixes,
            &self.shape_numbers,
            &self.times,
            &self.whole,
        ];
        let none = Vec::new();
        let of_columns = self.columns.iter().flat_map(|column| {
            let bytes = if column.is_apart() { &none } else { &column.bytes };
            [&column.numbers, bytes]
        });
        let body = &mut self.body;
        body.clear();
        varint::put(self.columns.len() as u64, body);
        let mut segment = 0;
        for column in &self.columns {
            varint::put(column.name.len() as u64, body);
            body.extend_from_slice(&column.name);
            body.push(column.tag);
            if is_apart {
                segment += u64::from(column.is_apart());
                varint::put(if column.is_apart() { segment } else { 0 }, body);
            }
        }
        varint::put(self.shapes.len() as u64, body);
        for shape in &self.shapes {
            varint::put(shape.len() as u64, body);
            shape
                .iter()
                .for_each(|column| varint::put(u64::from(*column), body));
        }
        for stream in streams.into_iter().chain(of_columns.clone()) {
            varint::put(stream.len() as u64, body);
        }
        for stream in streams.into_iter().chain(of_columns) {
            body.extend_from_slice(stream);
        }
        let frame = self
            .compressor
            .compress(body)
            .expect("memory takes the compressed bytes");
        let mut out = vec![if is_apart { FORMAT_APART } else { FORMAT }];
        varint::put(self.hashes.len() as u64, &mut out);
        varint::put(self.bytes as u64, &mut out);
        varint::put(body.len() as u64, &mut out);
        varint::put(self.first.len() as u64, &mut out);
        out.extend_from_slice(&self.first);
        let filter = filter::build(&self.hashes);
        varint::put(filter.len() as u64, &mut out);
        out.extend_from_slice(&filter);
        if is_apart {
            varint::put(frame.len() as u64, &mut out);
            varint::put(count, &mut out);
            out.extend_from_slice(&heads);
        }
        out.extend_from_slice(&checksum(&out));
        out.extend_from_slice(&frame);
        out.extend_from_slice(&segments);
        self.clear();
        Ok(out.into())
    }

    fn clear(&mut self) {
        (self.bytes, self.last_time, self.shape) = (0, 0, 0);
        self.hashes.clear();
        for bytes in [
            &mut self.first,
            &mut self.last,
            &mut self.key_lengths,
            &mut self.key_suffixes,
            &mut self.shape_numbers,
            &mut self.times,
            &mut self.whole,
        ] {
            bytes.clear();
        }
        self.columns.clear();
        self.shapes.clear();
    }
}

/// Returns the compression of the contents of a column, given its encoded name and the type byte of its values.
fn compression_of(codecs: &ColumnCodecs, mut name: &[u8], of: u8) -> Result<ColumnCompression, Damage> {
    match codecs.is_empty() || !has_content(of) {
        true => Ok(ColumnCompression::Auto),
        false => Ok(codecs.of(&codec::decode_name(&mut name)?)),
    }
}

/// Returns the position of the column that stores the contents of a value apart, and adds the column if it is missing.
/// Returns `None` if the value has no such column, or if the block would have too many columns.
fn apart_column(
    codecs: &ColumnCodecs,
    columns: &mut Vec<ColumnWriter>,
    name: &[u8],
    of: u8,
) -> Result<Option<usize>, Damage> {
    if !has_content(of) {
        return Ok(None);
    }
    let is_known = |column: &ColumnWriter| column.tag == of && column.name == name;
    if let Some(known) = columns.iter().position(is_known) {
        return Ok((!columns[known].compression.is_auto()).then_some(known));
    }
    let compression = compression_of(codecs, name, of)?;
    if compression.is_auto() || columns.len() >= COLUMNS_MAX {
        return Ok(None);
    }
    columns.push(ColumnWriter::new(name, of, compression));
    Ok(Some(columns.len() - 1))
}
