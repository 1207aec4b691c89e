//! Decoder of blocks.
//!
//! A read decodes the keys up to the end of its range, skips the values of the rows before the range, and builds only
//! the rows that it returns.

use std::cell::RefCell;

use bytes::Bytes;
use tideline_backend::{Direction, PageLimit};
use tideline_model::KeyRange;
use tideline_wire::varint::unzigzag;
use zstd::bulk::Decompressor;

use super::columns::{ColumnReader, cut};
use super::{BODY_BYTES_MAX, CHECKSUM_BYTES, FORMAT, checksum, filter};
use crate::codec;
use crate::error::Damage;
use crate::value::{number, sized};

/// Block with a decoded header.
#[derive(Debug)]
pub(crate) struct Block<'b> {
    /// Number of rows; at least 1.
    pub(crate) rows: usize,
    /// Bytes of the keys and rows before their encoding as a block.
    pub(crate) bytes: usize,
    /// Key of the first row.
    pub(crate) first: &'b [u8],
    filter: &'b [u8],
    body_bytes: usize,
    frame: &'b [u8],
}

/// Rows of a block, in scan order.
#[derive(Debug, Default)]
pub(crate) struct BlockRows {
    /// Key and encoded row. The rows share two allocations.
    pub(crate) rows: Vec<(Bytes, Bytes)>,
    /// True if further rows of the range follow in the block.
    pub(crate) is_cut: bool,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

/// Memory that a thread reuses for each block.
#[derive(Default)]
struct Scratch {
    decompressor: Option<Decompressor<'static>>,
    body: Vec<u8>,
}

impl<'b> Block<'b> {
    /// Decodes the header of a block.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the header is damaged.
    pub(crate) fn open(value: &'b [u8]) -> Result<Self, Damage> {
        let (&format, mut rest) = value.split_first().ok_or(Damage("a block is empty"))?;
        if format != FORMAT {
            return Err(Damage("a block has a format that this build does not know"));
        }
        let mut size = || -> Result<usize, Damage> {
            let size = usize::try_from(number(&mut rest)?).ok();
            size.filter(|size| *size <= BODY_BYTES_MAX)
                .ok_or(Damage("a size of a block is too large"))
        };
        let (rows, bytes, body_bytes) = (size()?, size()?, size()?);
        let (first, filter) = (sized(&mut rest)?, sized(&mut rest)?);
        let header = &value[..value.len() - rest.len()];
        if cut(&mut rest, CHECKSUM_BYTES)? != checksum(header) {
            return Err(Damage("the checksum of a block is wrong"));
        }
        if rows == 0 {
            return Err(Damage("a block has no rows"));
        }
        Ok(Self {
            rows,
            bytes,
            first,
            filter,
            body_bytes,
            frame: rest,
        })
    }

    /// Returns the row of a key; `None` if the block does not contain it.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the block is damaged.
    pub(crate) fn row(&self, key: &[u8]) -> Result<Option<Bytes>, Damage> {
        if key < self.first || !filter::may_contain(self.filter, key) {
            return Ok(None);
        }
        let range = KeyRange::new(key, [key, &[0]].concat());
        let limit = PageLimit {
            rows_max: 1,
            bytes_max: usize::MAX,
        };
        let rows = self.rows_in(&range, Direction::Ascending, limit)?.rows;
        Ok(rows.into_iter().next().map(|(_, row)| row))
    }

    /// Returns all rows, ascending.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the block is damaged.
    pub(crate) fn all_rows(&self) -> Result<Vec<(Bytes, Bytes)>, Damage> {
        let limit = PageLimit {
            rows_max: usize::MAX,
            bytes_max: usize::MAX,
        };
        Ok(self.rows_in(&KeyRange::ALL, Direction::Ascending, limit)?.rows)
    }

    /// Returns rows of a range in scan order: at most `limit.rows_max` rows, and no further row once their size exceeds
    /// `limit.bytes_max`.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the block is damaged.
    pub(crate) fn rows_in(
        &self,
        range: &KeyRange,
        direction: Direction,
        limit: PageLimit,
    ) -> Result<BlockRows, Damage> {
        self.with_body(|body| {
            let keys = self.keys(&body, range)?;
            RowReader::new(body).read(keys, direction, limit)
        })
    }

    /// Decompresses the block, and passes its streams to `read`.
    pub(super) fn with_body<T>(&self, read: impl FnOnce(Body<'_>) -> Result<T, Damage>) -> Result<T, Damage> {
        SCRATCH.with_borrow_mut(|scratch| {
            self.decompress(scratch)?;
            read(Body::split(&scratch.body)?)
        })
    }

    fn decompress(&self, scratch: &mut Scratch) -> Result<(), Damage> {
        scratch.body.clear();
        scratch.body.reserve(self.body_bytes);
        let decompressor = match &mut scratch.decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new().map_err(|_| Damage("a block cannot be decompressed"))?),
        };
        let size = decompressor.decompress_to_buffer(self.frame, &mut scratch.body);
        match size {
            Ok(size) if size == self.body_bytes => Ok(()),
            _ => Err(Damage("the checksum or the size of a block is wrong")),
        }
    }

    /// Decodes the keys up to the end of a range, and returns the keys in the range.
    fn keys(&self, body: &Body<'_>, range: &KeyRange) -> Result<Keys, Damage> {
        let mut keys = Keys::default();
        let mut reader = KeyReader::new(body);
        for row in 0..self.rows {
            let key = reader.next()?;
            if *key < range.start[..] {
                continue;
            }
            if range.end.as_ref().is_some_and(|end| *key >= end[..]) {
                break;
            }
            if keys.ends.is_empty() {
                keys.from = row;
            }
            keys.bytes.extend_from_slice(key);
            keys.ends.push(keys.bytes.len());
        }
        Ok(keys)
    }
}

/// Decompressed block, split into its streams.
pub(super) struct Body<'b> {
    pub(super) columns: Vec<ColumnReader<'b>>,
    /// Shapes of the rows: lists of positions of columns.
    pub(super) shapes: Vec<Vec<usize>>,
    key_lengths: &'b [u8],
    key_suffixes: &'b [u8],
    shape_numbers: &'b [u8],
    pub(super) times: &'b [u8],
    whole: &'b [u8],
}

impl<'b> Body<'b> {
    fn split(mut body: &'b [u8]) -> Result<Self, Damage> {
        let mut columns = Vec::new();
        for _ in 0..count(&mut body)? {
            let name = sized(&mut body)?;
            columns.push(ColumnReader::new(name, cut(&mut body, 1)?[0]));
        }
        let mut shapes = Vec::new();
        for _ in 0..count(&mut body)? {
            let shape = (0..count(&mut body)?).map(|_| {
                let column = number(&mut body)? as usize;
                (column < columns.len())
                    .then_some(column)
                    .ok_or(Damage("a block refers to a column that it does not have"))
            });
            shapes.push(shape.collect::<Result<Vec<usize>, Damage>>()?);
        }
        let mut lengths = [0; 5];
        for length in &mut lengths {
            *length = number(&mut body)? as usize;
        }
        let of_columns: Vec<[usize; 2]> = (0..columns.len())
            .map(|_| Ok([number(&mut body)? as usize, number(&mut body)? as usize]))
            .collect::<Result<_, Damage>>()?;
        let mut streams: [&[u8]; 5] = [&[]; 5];
        for (stream, length) in streams.iter_mut().zip(lengths) {
            *stream = cut(&mut body, length)?;
        }
        for (column, [numbers, bytes]) in columns.iter_mut().zip(of_columns) {
            column.numbers = cut(&mut body, numbers)?;
            column.bytes = cut(&mut body, bytes)?;
        }
        let [key_lengths, key_suffixes, shape_numbers, times, whole] = streams;
        Ok(Self {
            columns,
            shapes,
            key_lengths,
            key_suffixes,
            shape_numbers,
            times,
            whole,
        })
    }

    /// Returns the position of the shape of the next row; `None` if the row is stored whole.
    pub(super) fn shape(&mut self) -> Result<Option<usize>, Damage> {
        match number(&mut self.shape_numbers)? as usize {
            0 => Ok(None),
            shape if shape <= self.shapes.len() => Ok(Some(shape - 1)),
            _ => Err(Damage(
                "a block refers to a list of columns that it does not have",
            )),
        }
    }
}

/// Reads the keys of a block one by one.
pub(super) struct KeyReader<'b> {
    lengths: &'b [u8],
    suffixes: &'b [u8],
    key: Vec<u8>,
    is_first: bool,
}

impl<'b> KeyReader<'b> {
    pub(super) fn new(body: &Body<'b>) -> Self {
        Self {
            lengths: body.key_lengths,
            suffixes: body.key_suffixes,
            key: Vec::new(),
            is_first: true,
        }
    }

    /// Returns the next key, which must exist.
    pub(super) fn next(&mut self) -> Result<&[u8], Damage> {
        let shared = number(&mut self.lengths)? as usize;
        let length = number(&mut self.lengths)? as usize;
        if shared > self.key.len() {
            return Err(Damage("a key of a block is cut off"));
        }
        let suffix = cut(&mut self.suffixes, length)?;
        if !std::mem::take(&mut self.is_first) && self.key[shared..] >= *suffix {
            return Err(Damage("the keys of a block are not sorted"));
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(suffix);
        Ok(&self.key)
    }
}

/// Keys of the rows of a range, joined in one buffer.
#[derive(Debug, Default)]
struct Keys {
    /// Number of rows of the block before the first key.
    from: usize,
    bytes: Vec<u8>,
    /// End of each key in `bytes`.
    ends: Vec<usize>,
}

/// Reads the rows of a block one by one.
struct RowReader<'b> {
    body: Body<'b>,
    time: i64,
}

impl<'b> RowReader<'b> {
    fn new(body: Body<'b>) -> Self {
        Self { body, time: 0 }
    }

    fn read(mut self, keys: Keys, direction: Direction, limit: PageLimit) -> Result<BlockRows, Damage> {
        let count = keys.ends.len();
        // A descending scan takes the last keys of the range.
        let skipped = match direction {
            Direction::Ascending => 0,
            Direction::Descending => count.saturating_sub(limit.rows_max),
        };
        for _ in 0..keys.from + skipped {
            self.skip()?;
        }
        let (mut out, mut ends) = (Vec::new(), Vec::new());
        let taken = count.min(limit.rows_max);
        for key in skipped..skipped + taken {
            self.next(&mut out)?;
            ends.push(out.len());
            let bytes = keys.ends[key] + out.len();
            if direction == Direction::Ascending && bytes > limit.bytes_max {
                break;
            }
        }
        let mut is_cut = skipped > 0 || skipped + ends.len() < count;
        let (key_bytes, row_bytes) = (Bytes::from(keys.bytes), Bytes::from(out));
        let (mut key_start, mut start) = (skipped.checked_sub(1).map_or(0, |last| keys.ends[last]), 0);
        let mut rows: Vec<(Bytes, Bytes)> = Vec::with_capacity(ends.len());
        for (key_end, end) in keys.ends.into_iter().skip(skipped).zip(ends) {
            rows.push((key_bytes.slice(key_start..key_end), row_bytes.slice(start..end)));
            (key_start, start) = (key_end, end);
        }
        if direction == Direction::Descending {
            rows.reverse();
            let mut bytes = 0;
            let fits = rows.iter().position(|(key, row)| {
                bytes += key.len() + row.len();
                bytes > limit.bytes_max
            });
            if let Some(last) = fits.filter(|last| last + 1 < rows.len()) {
                rows.truncate(last + 1);
                is_cut = true;
            }
        }
        Ok(BlockRows { rows, is_cut })
    }

    fn next(&mut self, out: &mut Vec<u8>) -> Result<(), Damage> {
        let body = &mut self.body;
        let Some(shape) = body.shape()? else {
            out.extend_from_slice(sized(&mut body.whole)?);
            return Ok(());
        };
        let shape = &body.shapes[shape];
        self.time = self.time.wrapping_add(unzigzag(number(&mut body.times)?));
        codec::begin_uniform_row(self.time, shape.len(), out);
        for column in shape {
            let column = &mut body.columns[*column];
            out.extend_from_slice(column.name);
            column.next(out)?;
        }
        Ok(())
    }

    fn skip(&mut self) -> Result<(), Damage> {
        let body = &mut self.body;
        let Some(shape) = body.shape()? else {
            sized(&mut body.whole)?;
            return Ok(());
        };
        self.time = self.time.wrapping_add(unzigzag(number(&mut body.times)?));
        body.shapes[shape]
            .iter()
            .try_for_each(|column| body.columns[*column].skip())
    }
}

/// Decodes a count at the front of `bytes`. Each counted item takes at least one byte.
fn count(bytes: &mut &[u8]) -> Result<usize, Damage> {
    let count = number(bytes)? as usize;
    (count <= bytes.len())
        .then_some(count)
        .ok_or(Damage("a block has more items than bytes"))
}
