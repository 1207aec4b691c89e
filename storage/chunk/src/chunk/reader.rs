//! Reads a chunk in place.
//!
//! The reader walks the directory and unpacks only the requested blocks of the requested columns. Every length and
//! count is checked against a limit before it is used, so damaged bytes cause an error and never a panic.

use std::ops::Range;

use tideline_model::{ColumnData, FieldId, SequenceNumber, TimeRange, ValueType};

use super::directory::Entry;
use super::{ChunkError, MAGIC, PREFIX_BYTES, SequenceSpan, VERSION, VERSION_PLAIN, checksum};
use crate::column::ColumnView;
use crate::presence::{Bitmap, Presence, PresenceView};
use crate::run::{ROWS_MAX, Run, RunColumn, VALUES_MAX};
use crate::summaries::Summaries;
use crate::timestamps::Timestamps;
use crate::wire::{Damaged, Reader};

/// View of a stored chunk. It borrows the bytes; opening allocates nothing.
#[derive(Debug, Clone, Copy)]
pub struct Chunk<'a> {
    sequences: SequenceSpan,
    timestamps: Timestamps<'a>,
    /// Section with the summaries, not parsed yet; empty in a chunk without summaries.
    summaries: Reader<'a>,
    columns: Columns<'a>,
}

impl<'a> Chunk<'a> {
    /// Opens the chunk in `bytes`, which must hold nothing else. Checks version, checksum and directory.
    ///
    /// Costs one hash over the bytes and a few instructions per column.
    ///
    /// # Errors
    ///
    /// [`ChunkError::NotAChunk`] or [`ChunkError::UnknownVersion`] if the magic or the version does not match,
    /// [`ChunkError::Checksum`] if the content was changed, [`ChunkError::UnknownType`] or [`ChunkError::Damaged`] if
    /// the content is not valid.
    pub fn open(bytes: &'a [u8]) -> Result<Self, ChunkError> {
        let stored = bytes.get(PREFIX_BYTES - 4..PREFIX_BYTES);
        let chunk = Self::open_trusted(bytes);
        // Other formats and newer versions have their own errors, since their checksum may be stored elsewhere.
        if let Err(error @ (ChunkError::NotAChunk | ChunkError::UnknownVersion(_))) = chunk {
            return Err(error);
        }
        if stored != Some(&checksum(&bytes[PREFIX_BYTES..])[..]) {
            return Err(ChunkError::Checksum);
        }
        let chunk = chunk?;
        chunk.columns.check()?;
        Ok(chunk)
    }

    /// Opens a chunk like [`Chunk::open`], but without checking checksum and directory. Intended for bytes that this
    /// process has encoded or has opened before.
    ///
    /// Damaged bytes do not cause a panic. Damage in the directory may remain undetected; the columns after it are
    /// then missing.
    ///
    /// # Errors
    ///
    /// [`ChunkError::NotAChunk`] or [`ChunkError::UnknownVersion`] if the magic or the version does not match,
    /// [`ChunkError::Damaged`] if the header, the timestamps or the length of a section is not valid.
    pub fn open_trusted(bytes: &'a [u8]) -> Result<Self, ChunkError> {
        let mut reader = Reader::new(bytes);
        if reader.array() != Ok(MAGIC) {
            return Err(ChunkError::NotAChunk);
        }
        let version = reader.byte().map_err(|_| ChunkError::NotAChunk)?;
        if !(VERSION_PLAIN..=VERSION).contains(&version) {
            return Err(ChunkError::UnknownVersion(version));
        }
        reader.take(4).map_err(|_| ChunkError::NotAChunk)?;

        let rows = reader.count(ROWS_MAX)?;
        if rows == 0 {
            return Err(Damaged("chunk without rows").into());
        }
        let count = reader.count(VALUES_MAX / rows)?;
        let lowest = reader.varint()?;
        let highest = lowest
            .checked_add(reader.varint()?)
            .ok_or(Damaged("sequences out of order"))?;
        let sequences = SequenceSpan {
            lowest: SequenceNumber(lowest),
            highest: SequenceNumber(highest),
        };
        let summaries = match version {
            VERSION_PLAIN => 0,
            _ => reader.count(reader.remaining())?,
        };
        let length = reader.count(reader.remaining())?;
        let directory = reader.split(length)?;
        let timestamps = Timestamps::open(&mut reader, rows)?;
        let summaries = reader.split(summaries)?;
        Ok(Self {
            sequences,
            timestamps,
            summaries,
            columns: Columns {
                directory,
                bodies: reader,
                left: count,
                field: 0,
                rows,
            },
        })
    }

    /// Returns the number of rows, at least one.
    pub fn rows(&self) -> usize {
        self.timestamps.rows()
    }

    /// Returns the number of values in all columns.
    pub fn values(&self) -> usize {
        self.columns().map(|column| column.count()).sum()
    }

    /// Returns the first timestamp.
    pub fn first_timestamp(&self) -> i64 {
        self.timestamps.get(0)
    }

    /// Returns the last timestamp. Unpacks one block unless the series is regular or the chunk stores the last
    /// timestamp.
    pub fn last_timestamp(&self) -> i64 {
        self.timestamps.get(self.rows() - 1)
    }

    /// Returns the range of journal sequences of the points.
    pub fn sequences(&self) -> SequenceSpan {
        self.sequences
    }

    /// Returns the timestamps of the rows.
    pub fn timestamps(&self) -> &Timestamps<'a> {
        &self.timestamps
    }

    /// Returns the summaries of the numeric columns; `None` if the chunk has no summaries or if their section is
    /// damaged. Costs one allocation and a few nanoseconds per bucket.
    pub fn summaries(&self) -> Option<Summaries<'a>> {
        if self.summaries.remaining() == 0 {
            return None;
        }
        Summaries::open(self.summaries, &self.timestamps).ok()
    }

    /// Returns the columns in the order of field and type code.
    pub fn columns(&self) -> Columns<'a> {
        self.columns
    }

    /// Returns the columns of `fields` (`None` = all), in the order of field and type code. Skips other columns by
    /// their length, and stops after the last requested field.
    pub fn columns_of<'f>(
        &self,
        fields: Option<&'f [FieldId]>,
    ) -> impl Iterator<Item = ColumnInfo<'a>> + use<'a, 'f> {
        let mut columns = self.columns;
        let last = fields.map(|fields| fields.iter().max().copied());
        std::iter::from_fn(move || match (fields, last) {
            (None, _) => columns.next(),
            (Some(fields), Some(Some(last))) => columns.next_of(fields, last),
            (Some(_), _) => None,
        })
    }

    /// Returns the columns of `field`: one per value type that the field has in this chunk, or none.
    pub fn find(&self, field: FieldId) -> impl Iterator<Item = ColumnInfo<'a>> + use<'a> {
        let mut columns = self.columns();
        columns.skip_to(field);
        columns.take_while(move |column| column.field == field)
    }

    /// Returns the rows with timestamps in `range`; see [`Timestamps::row_range`].
    pub fn row_range(&self, range: TimeRange) -> Range<usize> {
        self.timestamps.row_range(range)
    }

    /// Decodes the values of `column` in `rows` into `values`, without slots for rows that have no value. Bit `i` of
    /// `presence` is set if row `rows.start + i` has a value.
    ///
    /// Decodes only the blocks or frames that contain these rows. Both buffers are reused, so nothing is allocated
    /// once they are large enough and `values` has the type of the column.
    ///
    /// # Errors
    ///
    /// [`ChunkError::NoSuchRows`] if `rows` exceed the chunk or end before they start, [`ChunkError::Damaged`] if the
    /// body is not valid.
    pub fn decode(
        &self,
        column: &ColumnInfo<'a>,
        rows: Range<usize>,
        values: &mut ColumnData,
        presence: &mut Bitmap,
    ) -> Result<(), ChunkError> {
        if rows.end > self.rows() || rows.start > rows.end {
            return Err(ChunkError::NoSuchRows {
                end: rows.end.max(rows.start),
                rows: self.rows(),
            });
        }
        let view = ColumnView::open(&mut column.body.clone(), column.value_type, column.count)?;
        let start = column.presence.rank(rows.start);
        column.presence.read(rows, presence);
        view.decode(start..start + presence.count_ones(), values)?;
        Ok(())
    }

    /// Decodes the entire chunk.
    ///
    /// # Errors
    ///
    /// [`ChunkError::Damaged`] if the body of a column is not valid.
    pub fn to_run(&self) -> Result<Run, ChunkError> {
        let rows = 0..self.rows();
        let mut timestamps = Vec::new();
        self.timestamps.decode(rows.clone(), &mut timestamps);
        let columns = self.columns().map(|column| {
            let mut values = ColumnData::new(column.value_type);
            let mut bitmap = Bitmap::default();
            self.decode(&column, rows.clone(), &mut values, &mut bitmap)?;
            let presence = if column.is_dense() {
                Presence::All
            } else {
                Presence::Some(bitmap)
            };
            Ok(RunColumn {
                field: column.field,
                presence,
                values,
            })
        });
        Ok(Run {
            timestamps,
            columns: columns.collect::<Result<_, ChunkError>>()?,
        })
    }
}

/// Directory entry and position of one column.
#[derive(Debug, Clone, Copy)]
pub struct ColumnInfo<'a> {
    field: FieldId,
    value_type: ValueType,
    count: usize,
    presence: PresenceView<'a>,
    /// The values, after the presence.
    body: Reader<'a>,
}

impl ColumnInfo<'_> {
    /// Returns the field.
    pub fn field(&self) -> FieldId {
        self.field
    }

    /// Returns the type of the values.
    pub fn value_type(&self) -> ValueType {
        self.value_type
    }

    /// Returns the number of values, which equals the number of rows that have a value.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns true if every row of the chunk has a value in this column.
    pub fn is_dense(&self) -> bool {
        matches!(self.presence, PresenceView::All)
    }

    /// Returns the stored size of the values in bytes, without presence and directory entry.
    pub fn stored_bytes(&self) -> usize {
        self.body.remaining()
    }
}

/// Iterator over the columns of a chunk.
#[derive(Debug, Clone, Copy)]
pub struct Columns<'a> {
    /// Positioned at the next entry.
    directory: Reader<'a>,
    /// Positioned at the next body.
    bodies: Reader<'a>,
    left: usize,
    field: u32,
    rows: usize,
}

impl<'a> Columns<'a> {
    /// Validates every entry, so that a later iteration cannot fail.
    fn check(mut self) -> Result<(), ChunkError> {
        let mut last = None;
        while self.left > 0 {
            let (entry, mut body) = self.step()?;
            if entry.is_sparse {
                PresenceView::open(&mut body, self.rows)?;
            }
            let order = Some((entry.field, entry.value_type));
            if order <= last {
                return Err(Damaged("columns out of order").into());
            }
            last = order;
        }
        self.directory.finish()?;
        Ok(self.bodies.finish()?)
    }

    /// Advances to the first column whose field is `field` or higher.
    fn skip_to(&mut self, field: FieldId) {
        while self.left > 0 {
            let here = *self;
            match self.step() {
                Ok((entry, _)) if entry.field < field => {}
                _ => {
                    *self = here;
                    return;
                }
            }
        }
    }

    /// Reads the next entry and its body.
    #[inline]
    fn step(&mut self) -> Result<(Entry, Reader<'a>), ChunkError> {
        let entry = Entry::read(&mut self.directory, self.field, self.bodies.remaining())?;
        self.field = entry.field.0;
        self.left -= 1;
        Ok((entry, self.bodies.split(entry.length)?))
    }

    /// Returns the next column whose field is in `fields`. `last` is the highest of `fields`.
    fn next_of(&mut self, fields: &[FieldId], last: FieldId) -> Option<ColumnInfo<'a>> {
        while self.left > 0 {
            let (entry, body) = self.step().ok()?;
            if entry.field > last {
                self.left = 0;
            } else if fields.contains(&entry.field) {
                return self.open(&entry, body).ok();
            }
        }
        None
    }

    fn open(&self, entry: &Entry, mut body: Reader<'a>) -> Result<ColumnInfo<'a>, ChunkError> {
        let presence = if entry.is_sparse {
            PresenceView::open(&mut body, self.rows)?
        } else {
            PresenceView::All
        };
        Ok(ColumnInfo {
            field: entry.field,
            value_type: entry.value_type,
            count: presence.rank(self.rows),
            presence,
            body,
        })
    }
}

impl<'a> Iterator for Columns<'a> {
    type Item = ColumnInfo<'a>;

    fn next(&mut self) -> Option<ColumnInfo<'a>> {
        if self.left == 0 {
            return None;
        }
        // `Chunk::open` has checked every entry. After `Chunk::open_trusted`, damage ends the iteration.
        let (entry, body) = self.step().ok()?;
        self.open(&entry, body).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Columns<'_> {}
