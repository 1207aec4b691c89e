//! Reads a chunk in place: the directory is walked, and only blocks that are asked for are unpacked.

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

/// A view of a stored chunk. It borrows the bytes and allocates nothing.
#[derive(Debug, Clone, Copy)]
pub struct Chunk<'a> {
    sequences: SequenceSpan,
    timestamps: Timestamps<'a>,
    /// The section of summaries, not read yet; empty where there is none.
    summaries: Reader<'a>,
    columns: Columns<'a>,
}

impl<'a> Chunk<'a> {
    /// Checks version, checksum and directory of a chunk that fills `bytes`.
    ///
    /// Costs one hash of the bytes, and a few instructions a column.
    pub fn open(bytes: &'a [u8]) -> Result<Self, ChunkError> {
        let stored = bytes.get(PREFIX_BYTES - 4..PREFIX_BYTES);
        let chunk = Self::open_trusted(bytes);
        // A foreign or newer chunk is named as such; its checksum may lie elsewhere.
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

    /// As [`Chunk::open`] without the hash and the walk over the directory: for bytes that this process encoded or has
    /// opened before.
    ///
    /// Damage still never panics; it may go unnoticed, and columns behind it are then not there.
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

    /// Rows held, at least one.
    pub fn rows(&self) -> usize {
        self.timestamps.rows()
    }

    /// Values held in all columns.
    pub fn values(&self) -> usize {
        self.columns().map(|column| column.count()).sum()
    }

    /// The first instant.
    pub fn first_timestamp(&self) -> i64 {
        self.timestamps.get(0)
    }

    /// The last instant. Costs the unpacking of a block where the series is not regular.
    pub fn last_timestamp(&self) -> i64 {
        self.timestamps.get(self.rows() - 1)
    }

    /// The journal sequences that went into it.
    pub fn sequences(&self) -> SequenceSpan {
        self.sequences
    }

    /// The instants of its rows.
    pub fn timestamps(&self) -> &Timestamps<'a> {
        &self.timestamps
    }

    /// What its numbers add up to in buckets of time; `None` where it was written without, or where that part of
    /// it is damaged. Costs an allocation, and a few nanoseconds a bucket.
    pub fn summaries(&self) -> Option<Summaries<'a>> {
        if self.summaries.remaining() == 0 {
            return None;
        }
        Summaries::open(self.summaries, &self.timestamps).ok()
    }

    /// Its columns, in the order of field and type code.
    pub fn columns(&self) -> Columns<'a> {
        self.columns
    }

    /// The columns of some fields (`None` = all), in the order of field and type code. Those between them are passed over
    /// by their length, and behind the last one nothing is looked at.
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

    /// The columns of `field`: none, one, or one for each numeric type that it was written with.
    pub fn find(&self, field: FieldId) -> impl Iterator<Item = ColumnInfo<'a>> + use<'a> {
        let mut columns = self.columns();
        columns.skip_to(field);
        columns.take_while(move |column| column.field == field)
    }

    /// The rows whose instants lie in `range`; see [`Timestamps::row_range`].
    pub fn row_range(&self, range: TimeRange) -> Range<usize> {
        self.timestamps.row_range(range)
    }

    /// Makes `values` hold the values of `column` in `rows`, dense, and `presence` say which of the rows have
    /// one (its row 0 is the first of `rows`).
    ///
    /// Unpacks only the blocks that the rows touch. Both buffers are reused: once they have grown, and `values`
    /// has the column's type, nothing is allocated.
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

    /// Unpacks everything.
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

/// What the directory says of one column.
#[derive(Debug, Clone, Copy)]
pub struct ColumnInfo<'a> {
    field: FieldId,
    value_type: ValueType,
    count: usize,
    presence: PresenceView<'a>,
    /// The values, behind the presence.
    body: Reader<'a>,
}

impl ColumnInfo<'_> {
    /// The field.
    pub fn field(&self) -> FieldId {
        self.field
    }

    /// The type of the values.
    pub fn value_type(&self) -> ValueType {
        self.value_type
    }

    /// Values held: the number of rows that have one.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether every row of the chunk has a value here.
    pub fn is_dense(&self) -> bool {
        matches!(self.presence, PresenceView::All)
    }

    /// Bytes that its values take in the chunk, without its presence and place in the directory.
    pub fn stored_bytes(&self) -> usize {
        self.body.remaining()
    }
}

/// Walks over the directory of a chunk.
#[derive(Debug, Clone, Copy)]
pub struct Columns<'a> {
    /// Stands at the next entry.
    directory: Reader<'a>,
    /// Stands at the next body.
    bodies: Reader<'a>,
    left: usize,
    field: u32,
    rows: usize,
}

impl<'a> Columns<'a> {
    /// Reads every entry once, so that iterating later cannot meet damage.
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

    /// Moves on to the first column of `field` or a later one.
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

    /// The next entry and its body.
    #[inline]
    fn step(&mut self) -> Result<(Entry, Reader<'a>), ChunkError> {
        let entry = Entry::read(&mut self.directory, self.field, self.bodies.remaining())?;
        self.field = entry.field.0;
        self.left -= 1;
        Ok((entry, self.bodies.split(entry.length)?))
    }

    /// The next column of one of `fields`, of which none is above `last`.
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
        // Every entry was checked when the chunk was first opened.
        let (entry, body) = self.step().ok()?;
        self.open(&entry, body).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Columns<'_> {}
