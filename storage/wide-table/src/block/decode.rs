//! Decoder of blocks.
//!
//! A read decodes the keys up to the end of its range, skips the values of the rows before the range, and builds only
//! the rows that it returns.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use tideline_backend::{Direction, PageLimit};
use tideline_model::KeyRange;
use tideline_wire::varint::unzigzag;
use zstd::zstd_safe::DCtx;

use super::apart::SegmentHead;
use super::columns::{ColumnReader, cut, take_payload};
use super::{BODY_BYTES_MAX, CHECKSUM_BYTES, FORMAT, FORMAT_APART, checksum, filter};
use crate::codec;
use crate::dictionaries::Dictionary;
use crate::error::Damage;
use crate::mutation::ColumnName;
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
    /// Head and stored bytes of each segment.
    segments: SmallVec<[(SegmentHead, &'b [u8]); 2]>,
    /// Dictionaries of the segments, by number.
    dictionaries: SmallVec<[(u32, Arc<Dictionary>); 2]>,
}

/// Copy of the parts of a block's header that show which keys the block does not contain.
#[derive(Debug)]
pub(crate) struct BlockKeys {
    first: Box<[u8]>,
    filter: Box<[u8]>,
}

impl BlockKeys {
    /// Returns false if the block certainly does not contain the key. The key must not be above the key of the block.
    pub(crate) fn may_contain(&self, key: &[u8]) -> bool {
        key >= &self.first[..] && filter::may_contain(&self.filter, key)
    }

    /// Returns the size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.first.len() + self.filter.len()
    }
}

/// Sizes of the columns of a block.
#[derive(Debug, Default)]
pub(crate) struct BlockSizes {
    pub(crate) columns: Vec<BlockColumnSize>,
    /// Stored bytes of the rows that are not split into columns, without contents that are stored apart; estimated.
    pub(crate) whole: u64,
}

/// Size of a column of a block.
#[derive(Debug)]
pub(crate) struct BlockColumnSize {
    pub(crate) name: ColumnName<'static>,
    /// Bytes before compression.
    pub(crate) bytes: u64,
    /// Stored bytes. For columns that are compressed together, their shares are estimated.
    pub(crate) stored: u64,
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
    context: Option<DCtx<'static>>,
    body: Vec<u8>,
    /// Contents of each segment that is not stored as it is.
    segments: Vec<Vec<u8>>,
}

impl<'b> Block<'b> {
    /// Decodes the header of a block.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the header is damaged.
    pub(crate) fn open(value: &'b [u8]) -> Result<Self, Damage> {
        let (&format, mut rest) = value.split_first().ok_or(Damage("a block is empty"))?;
        if format != FORMAT && format != FORMAT_APART {
            return Err(Damage("a block has a format that this build does not know"));
        }
        let mut size = || -> Result<usize, Damage> {
            let size = usize::try_from(number(&mut rest)?).ok();
            size.filter(|size| *size <= BODY_BYTES_MAX)
                .ok_or(Damage("a size of a block is too large"))
        };
        let (rows, bytes, body_bytes) = (size()?, size()?, size()?);
        let (first, filter) = (sized(&mut rest)?, sized(&mut rest)?);
        let mut frame_bytes = None;
        let mut heads: SmallVec<[SegmentHead; 2]> = SmallVec::new();
        if format == FORMAT_APART {
            frame_bytes = Some(number(&mut rest)? as usize);
            for _ in 0..count(&mut rest)? {
                heads.push(SegmentHead::take(&mut rest)?);
            }
        }
        let header = &value[..value.len() - rest.len()];
        if cut(&mut rest, CHECKSUM_BYTES)? != checksum(header) {
            return Err(Damage("the checksum of a block is wrong"));
        }
        if rows == 0 {
            return Err(Damage("a block has no rows"));
        }
        let frame_bytes = frame_bytes.unwrap_or(rest.len());
        let frame = cut(&mut rest, frame_bytes)?;
        let segments = heads
            .into_iter()
            .map(|head| Ok((head, cut(&mut rest, head.stored)?)));
        let segments = segments.collect::<Result<_, Damage>>()?;
        if !rest.is_empty() {
            return Err(Damage("bytes follow a block"));
        }
        Ok(Self {
            rows,
            bytes,
            first,
            filter,
            body_bytes,
            frame,
            segments,
            dictionaries: SmallVec::new(),
        })
    }

    /// Returns a copy of the parts of the header that show which keys the block does not contain.
    pub(crate) fn contained_keys(&self) -> BlockKeys {
        BlockKeys {
            first: self.first.into(),
            filter: self.filter.into(),
        }
    }

    /// Returns the numbers of the dictionaries that the block needs.
    pub(crate) fn needed_dictionaries(&self) -> impl Iterator<Item = u32> {
        let numbers = self.segments.iter().map(|(head, _)| head.dictionary);
        numbers.filter(|number| *number > 0)
    }

    /// Sets the dictionaries that the block needs.
    pub(crate) fn set_dictionaries(&mut self, dictionaries: SmallVec<[(u32, Arc<Dictionary>); 2]>) {
        self.dictionaries = dictionaries;
    }

    /// Returns the sizes of the columns.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the block is damaged.
    pub(crate) fn sizes(&self) -> Result<BlockSizes, Damage> {
        self.with_body(|body| {
            let packed = self.frame.len() as f64 / self.body_bytes.max(1) as f64;
            let stored = |bytes: usize| (bytes as f64 * packed).round() as u64;
            let mut segments = self.segments.iter();
            let columns = body.columns.iter().map(|column| {
                let name = codec::decode_name(&mut { column.name })?.into_owned();
                let segment = if column.is_apart { segments.next() } else { None };
                Ok(BlockColumnSize {
                    name,
                    bytes: (column.numbers.len() + column.bytes.len()) as u64,
                    stored: match segment {
                        Some((head, _)) => head.stored as u64 + stored(column.numbers.len()),
                        None => stored(column.numbers.len() + column.bytes.len()),
                    },
                })
            });
            Ok(BlockSizes {
                columns: columns.collect::<Result<_, Damage>>()?,
                whole: stored(body.whole.len()),
            })
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
            let keys = self.keys(&body, range, limit.rows_max)?;
            RowReader::new(body).read(keys, direction, limit, self.bytes / self.rows)
        })
    }

    /// Decompresses the block, and passes its streams to `read`.
    pub(super) fn with_body<T>(&self, read: impl FnOnce(Body<'_>) -> Result<T, Damage>) -> Result<T, Damage> {
        SCRATCH.with_borrow_mut(|scratch| {
            self.decompress(scratch)?;
            let unpacked = self.segments.iter().zip(&scratch.segments);
            let segments = unpacked.map(|((head, stored), unpacked)| match head.is_plain() {
                true => *stored,
                false => &unpacked[..],
            });
            let segments: SmallVec<[&[u8]; 2]> = segments.collect();
            read(Body::split(&scratch.body, &segments)?)
        })
    }

    fn decompress(&self, scratch: &mut Scratch) -> Result<(), Damage> {
        scratch.body.clear();
        scratch.body.reserve(self.body_bytes);
        let context = match &mut scratch.context {
            Some(context) => context,
            none => none.insert(DCtx::try_create().ok_or(Damage("a block cannot be decompressed"))?),
        };
        let size = context.decompress(&mut scratch.body, self.frame);
        if size != Ok(self.body_bytes) {
            return Err(Damage("the checksum or the size of a block is wrong"));
        }
        if scratch.segments.len() < self.segments.len() {
            scratch.segments.resize_with(self.segments.len(), Vec::new);
        }
        for ((head, stored), out) in self.segments.iter().zip(&mut scratch.segments) {
            out.clear();
            let mut known = self.dictionaries.iter();
            let dictionary = known.find(|(number, _)| *number == head.dictionary);
            head.unpack(stored, dictionary.map(|(_, dictionary)| dictionary), context, out)?;
        }
        Ok(())
    }

    /// Decodes the keys up to the end of a range, and returns the keys in the range. The caller needs about `expected`
    /// of them.
    fn keys(&self, body: &Body<'_>, range: &KeyRange, expected: usize) -> Result<Keys, Damage> {
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
                let expected = expected.min(self.rows - row);
                keys.bytes.reserve(expected * key.len());
                keys.ends.reserve(expected);
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
    /// Splits a decompressed body. `segments` are the contents that are stored apart.
    fn split(mut body: &'b [u8], segments: &[&'b [u8]]) -> Result<Self, Damage> {
        let mut columns = Vec::new();
        let mut apart: SmallVec<[usize; 2]> = SmallVec::new();
        for _ in 0..count(&mut body)? {
            let name = sized(&mut body)?;
            let mut column = ColumnReader::new(name, cut(&mut body, 1)?[0]);
            if !segments.is_empty() {
                match number(&mut body)? as usize {
                    0 => {}
                    // The columns refer to the segments in their order.
                    segment if segment == apart.len() + 1 && segment <= segments.len() => {
                        column.is_apart = true;
                        apart.push(columns.len());
                    }
                    _ => return Err(Damage("a block refers to a segment that it does not have")),
                }
            }
            columns.push(column);
        }
        if apart.len() != segments.len() {
            return Err(Damage("a segment of a block belongs to no column"));
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
        for (column, segment) in apart.into_iter().zip(segments) {
            columns[column].bytes = segment;
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

    /// Reads rows in the order of `direction`. `row_bytes` is the typical size of a row, from which the memory is
    /// reserved.
    fn read(
        mut self,
        keys: Keys,
        direction: Direction,
        limit: PageLimit,
        row_bytes: usize,
    ) -> Result<BlockRows, Damage> {
        let count = keys.ends.len();
        // A descending scan takes the last keys of the range.
        let skipped = match direction {
            Direction::Ascending => 0,
            Direction::Descending => count.saturating_sub(limit.rows_max),
        };
        for _ in 0..keys.from + skipped {
            self.skip()?;
        }
        let taken = count.min(limit.rows_max);
        let expected = (taken * row_bytes).min(limit.bytes_max.saturating_add(row_bytes));
        let (mut out, mut ends) = (Vec::with_capacity(expected), Vec::with_capacity(taken));
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
            let row = sized(&mut body.whole)?;
            return add_contents(row, &mut body.columns, Some(out));
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
            let row = sized(&mut body.whole)?;
            return add_contents(row, &mut body.columns, None);
        };
        self.time = self.time.wrapping_add(unzigzag(number(&mut body.times)?));
        body.shapes[shape]
            .iter()
            .try_for_each(|column| body.columns[*column].skip())
    }
}

/// Appends a row that is stored whole to `out`, with the contents that are stored apart. Without `out`, only skips
/// these contents.
fn add_contents(
    row: &[u8],
    columns: &mut [ColumnReader<'_>],
    mut out: Option<&mut Vec<u8>>,
) -> Result<(), Damage> {
    let mut copied = 0;
    if columns.iter().any(|column| column.is_apart) {
        codec::walk(row, &mut |name, of, rest| {
            let mut apart = columns.iter_mut().filter(|column| column.is_apart);
            let Some(column) = apart.find(|column| column.tag == of && column.name == name) else {
                take_payload(of, rest)?;
                return Ok(());
            };
            let length = number(rest)? as usize;
            let content = cut(&mut column.bytes, length)?;
            if let Some(out) = out.as_deref_mut() {
                let at = row.len() - rest.len();
                out.extend_from_slice(&row[copied..at]);
                out.extend_from_slice(content);
                copied = at;
            }
            Ok(())
        })?;
    }
    if let Some(out) = out {
        out.extend_from_slice(&row[copied..]);
    }
    Ok(())
}

/// Decodes a count at the front of `bytes`. Each counted item takes at least one byte.
fn count(bytes: &mut &[u8]) -> Result<usize, Damage> {
    let count = number(bytes)? as usize;
    (count <= bytes.len())
        .then_some(count)
        .ok_or(Damage("a block has more items than bytes"))
}
