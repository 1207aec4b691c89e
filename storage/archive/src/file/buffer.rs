//! Buffered values of one column until their row group is written.
//!
//! Values that repeat over rows (ids, tags) are stored once with a row count. Other values are stored individually.
//! Optional numbers and booleans also have one definition level per row, which marks rows with a value.

use bytes::Bytes;
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DoubleType, FixedLenByteArray, FixedLenByteArrayType, Int64Type,
};
use parquet::errors::Result;
use parquet::file::writer::SerializedColumnWriter;
use tideline_chunk::{Presence, RunColumn};
use tideline_model::batch::{Joined, JoinedColumn};
use tideline_model::{ColumnData, TimelineId, ValueType};
use tideline_runtime::background;

/// Number of rows passed to the encoder at once.
const BATCH: usize = 4_096;
/// Number of rows passed to the encoder at once, for values that repeat over rows.
const REPEATED_BATCH: usize = 512;

/// Buffered values of one column.
#[derive(Debug)]
pub(crate) enum Buffer {
    /// Integer column; every row has a value.
    Integers(Vec<i64>),
    /// Id column; each id with its number of rows.
    Ids(Vec<(TimelineId, usize)>),
    /// Strings or histogram bytes, optional or required; each value with its number of rows.
    Strings(Strings),
    /// Maps from string to string; each map with its number of rows.
    Maps(Maps),
    /// Optional floats.
    Floats(Sparse<f64>),
    /// Optional integers. Unsigned integers are stored by their bits.
    Signed(Sparse<i64>),
    /// Optional booleans.
    Booleans(Sparse<bool>),
}

/// Strings or bytes, each with its number of rows.
#[derive(Debug, Default)]
pub(crate) struct Strings {
    is_required: bool,
    rows: Vec<(Option<ByteArray>, usize)>,
    bytes: usize,
}

/// Entries of a map, and the number of rows that have this map.
type MapRows = (Vec<(ByteArray, ByteArray)>, usize);

/// Maps from string to string. A map takes two columns of a file, which are written one after the other.
#[derive(Debug, Default)]
pub(crate) struct Maps {
    rows: Vec<MapRows>,
    bytes: usize,
    /// True if the column of keys has been written.
    are_keys_written: bool,
}

/// Optional values.
#[derive(Debug)]
pub(crate) struct Sparse<T> {
    values: Vec<T>,
    /// Definition level of each row: 1 if the row has a value, otherwise 0.
    levels: Vec<i16>,
}

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            levels: Vec::new(),
        }
    }
}

impl<T> Sparse<T> {
    fn bytes(&self) -> usize {
        self.values.len() * size_of::<T>() + self.levels.len() * size_of::<i16>()
    }

    fn absent(&mut self, rows: usize) {
        self.levels.resize(self.levels.len() + rows, 0);
    }

    fn present(&mut self, presence: &Presence, rows: usize) {
        match presence {
            Presence::All => self.levels.resize(self.levels.len() + rows, 1),
            Presence::Some(bitmap) => {
                let start = self.levels.len();
                self.levels.resize(start + rows, 0);
                bitmap.iter_ones().for_each(|row| self.levels[start + row] = 1);
            }
        }
    }
}

impl Buffer {
    /// Creates a buffer for field values of a type.
    pub(crate) fn of(kind: ValueType) -> Self {
        match kind {
            ValueType::Float => Self::Floats(Sparse::default()),
            ValueType::Signed | ValueType::Unsigned => Self::Signed(Sparse::default()),
            ValueType::Boolean => Self::Booleans(Sparse::default()),
            ValueType::String | ValueType::Histogram => Self::strings(),
        }
    }

    /// Creates a buffer for optional strings or bytes.
    pub(crate) fn strings() -> Self {
        Self::Strings(Strings::default())
    }

    /// Creates a buffer for required strings.
    pub(crate) fn required_strings() -> Self {
        Self::Strings(Strings {
            is_required: true,
            ..Strings::default()
        })
    }

    /// Creates a buffer for ids.
    pub(crate) fn ids() -> Self {
        Self::Ids(Vec::new())
    }

    /// Creates a buffer for maps.
    pub(crate) fn maps() -> Self {
        Self::Maps(Maps::default())
    }

    /// Returns the approximate memory usage in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Integers(values) => values.len() * size_of::<i64>(),
            Self::Ids(rows) => rows.len() * size_of::<(TimelineId, usize)>(),
            Self::Strings(strings) => strings.bytes,
            Self::Maps(maps) => maps.bytes,
            Self::Floats(values) => values.bytes(),
            Self::Signed(values) => values.bytes(),
            Self::Booleans(values) => values.bytes(),
        }
    }

    /// Appends integers, one per row.
    pub(crate) fn push_integers(&mut self, more: &[i64]) {
        if let Self::Integers(values) = self {
            values.extend_from_slice(more);
        }
    }

    /// Appends an id for `count` rows.
    pub(crate) fn push_id(&mut self, id: TimelineId, count: usize) {
        if let Self::Ids(rows) = self {
            match rows.last_mut() {
                Some((last, rows)) if *last == id => *rows += count,
                _ => rows.push((id, count)),
            }
        }
    }

    /// Appends a string or null for `count` rows.
    pub(crate) fn push_text(&mut self, text: Option<&str>, count: usize) {
        if let Self::Strings(strings) = self {
            strings.push(text, count);
        }
    }

    /// Appends a map for `count` rows.
    pub(crate) fn push_map(&mut self, pairs: &[(String, String)], count: usize) {
        if let Self::Maps(maps) = self {
            let array = |text: &String| ByteArray::from(text.as_str());
            let row: Vec<_> = pairs
                .iter()
                .map(|(key, value)| (array(key), array(value)))
                .collect();
            maps.bytes += pairs
                .iter()
                .map(|(key, value)| key.len() + value.len() + 80)
                .sum::<usize>()
                + 48;
            maps.rows.push((row, count));
        }
    }

    /// Appends a column of a run for all rows of the run. If the buffer has another type, the rows get no values.
    pub(crate) fn push_column(&mut self, column: &RunColumn, rows: usize) {
        match (self, &column.values) {
            (Self::Floats(to), ColumnData::Float(values)) => {
                to.present(&column.presence, rows);
                to.values.extend_from_slice(values);
            }
            (Self::Signed(to), ColumnData::Signed(values)) => {
                to.present(&column.presence, rows);
                to.values.extend_from_slice(values);
            }
            (Self::Signed(to), ColumnData::Unsigned(values)) => {
                to.present(&column.presence, rows);
                to.values.extend(values.iter().map(|value| *value as i64));
            }
            (Self::Booleans(to), ColumnData::Boolean(values)) => {
                to.present(&column.presence, rows);
                to.values.extend_from_slice(values);
            }
            (Self::Strings(to), ColumnData::String(values)) => {
                to.extend(values, &column.presence, rows);
            }
            (Self::Strings(to), ColumnData::Histogram(values)) => {
                to.extend(values, &column.presence, rows);
            }
            (other, _) => other.push_absent(rows),
        }
    }

    /// Appends rows without a value. Does nothing for integers, ids and maps, because each of their rows has a value.
    pub(crate) fn push_absent(&mut self, rows: usize) {
        match self {
            Self::Floats(values) => values.absent(rows),
            Self::Signed(values) => values.absent(rows),
            Self::Booleans(values) => values.absent(rows),
            Self::Strings(strings) => strings.push(None, rows),
            Self::Integers(_) | Self::Ids(_) | Self::Maps(_) => {}
        }
    }

    /// Returns the number of file columns that this buffer fills.
    pub(crate) fn leaves(&self) -> usize {
        if matches!(self, Self::Maps(_)) { 2 } else { 1 }
    }

    /// Writes the buffer as one column of a row group and clears it. Must be called twice for maps: the first call
    /// writes the keys, the second writes the values and clears the buffer.
    pub(crate) fn write(&mut self, to: &mut SerializedColumnWriter<'_>) -> Result<()> {
        match self {
            Self::Integers(values) => {
                let values = std::mem::take(values);
                for batch in values.chunks(BATCH) {
                    to.typed::<Int64Type>().write_batch(batch, None, None)?;
                    background::yield_core_after(batch.len());
                }
            }
            Self::Ids(rows) => write_ids(&std::mem::take(rows), to)?,
            Self::Strings(strings) => {
                let is_required = strings.is_required;
                std::mem::replace(
                    strings,
                    Strings {
                        is_required,
                        ..Strings::default()
                    },
                )
                .write(to)?;
            }
            Self::Maps(maps) => maps.write(to)?,
            Self::Floats(values) => {
                let values = std::mem::take(values);
                write_sparse(&values, |values, levels| {
                    to.typed::<DoubleType>().write_batch(values, Some(levels), None)
                })?;
            }
            Self::Signed(values) => {
                let values = std::mem::take(values);
                write_sparse(&values, |values, levels| {
                    to.typed::<Int64Type>().write_batch(values, Some(levels), None)
                })?;
            }
            Self::Booleans(values) => {
                let values = std::mem::take(values);
                write_sparse(&values, |values, levels| {
                    to.typed::<BoolType>().write_batch(values, Some(levels), None)
                })?;
            }
        }
        Ok(())
    }
}

fn write_sparse<T>(column: &Sparse<T>, mut write: impl FnMut(&[T], &[i16]) -> Result<usize>) -> Result<()> {
    let mut rest = &column.values[..];
    for levels in column.levels.chunks(BATCH) {
        let present = levels.iter().filter(|level| **level == 1).count();
        let (values, later) = rest.split_at(present);
        write(values, levels)?;
        rest = later;
        background::yield_core_after(levels.len());
    }
    Ok(())
}

fn write_ids(rows: &[(TimelineId, usize)], to: &mut SerializedColumnWriter<'_>) -> Result<()> {
    let ids = rows.iter().map(|(id, count)| {
        let id = FixedLenByteArray::from(ByteArray::from(Bytes::copy_from_slice(&id.0)));
        (Some(id), *count)
    });
    write_repeated(ids, |ids, _| {
        to.typed::<FixedLenByteArrayType>()
            .write_batch(ids, None, None)
            .map(drop)
    })
}

/// Passes repeated values to the encoder in batches of [`REPEATED_BATCH`] rows. A value that fills several complete
/// batches is cloned only for the first of these batches, because most of the cost is reference counting.
fn write_repeated<T: Clone>(
    rows: impl Iterator<Item = (Option<T>, usize)>,
    mut write: impl FnMut(&[T], &[i16]) -> Result<()>,
) -> Result<()> {
    let (mut values, mut levels) = (Vec::new(), Vec::with_capacity(REPEATED_BATCH));
    for (value, count) in rows {
        let mut left = count;
        let mut is_same = false;
        while left > 0 {
            if !is_same {
                let taken = left.min(REPEATED_BATCH - levels.len());
                is_same = taken == REPEATED_BATCH;
                levels.resize(levels.len() + taken, i16::from(value.is_some()));
                values.extend(
                    value
                        .iter()
                        .flat_map(|value| std::iter::repeat_n(value.clone(), taken)),
                );
                left -= taken;
            } else {
                left -= REPEATED_BATCH;
            }
            if levels.len() == REPEATED_BATCH {
                write(&values, &levels)?;
                background::yield_core_after(REPEATED_BATCH);
                if !is_same || left < REPEATED_BATCH {
                    values.clear();
                    levels.clear();
                    is_same = false;
                }
            }
        }
    }
    write(&values, &levels)
}

impl Strings {
    fn push(&mut self, text: Option<&str>, count: usize) {
        if let Some((last, rows)) = self.rows.last_mut()
            && last.as_ref().map(ByteArray::data) == text.map(str::as_bytes)
        {
            *rows += count;
            return;
        }
        self.bytes += text.map_or(0, str::len) + size_of::<(Option<ByteArray>, usize)>();
        self.rows.push((text.map(ByteArray::from), count));
    }

    /// Appends the values of a run, which share one allocation.
    fn extend<B: Joined>(&mut self, values: &JoinedColumn<B>, presence: &Presence, rows: usize) {
        let mut all = Vec::with_capacity(values.bytes());
        let mut ends = Vec::with_capacity(rows);
        for value in values.iter().map(B::bytes_of) {
            all.extend_from_slice(value);
            ends.push(all.len());
        }
        let all = Bytes::from(all);
        self.bytes += all.len() + rows * size_of::<(Option<ByteArray>, usize)>();
        let (mut at, mut ends) = (0, ends.into_iter());
        for row in 0..rows {
            let end = presence.contains(row).then(|| ends.next()).flatten();
            let value = end.map(|end| ByteArray::from(all.slice(std::mem::replace(&mut at, end)..end)));
            self.rows.push((value, 1));
        }
    }

    fn write(self, to: &mut SerializedColumnWriter<'_>) -> Result<()> {
        write_repeated(self.rows.into_iter(), |values, levels| {
            let some = (!self.is_required).then_some(levels);
            to.typed::<ByteArrayType>()
                .write_batch(values, some, None)
                .map(drop)
        })
    }
}

impl Maps {
    fn write(&mut self, to: &mut SerializedColumnWriter<'_>) -> Result<()> {
        let rows = if self.are_keys_written {
            std::mem::take(&mut self.rows)
        } else {
            self.rows.clone()
        };
        let is_key = !self.are_keys_written;
        self.are_keys_written = is_key;
        if !is_key {
            self.bytes = 0;
        }
        let mut values = Vec::with_capacity(BATCH);
        let (mut present, mut repeated) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        for (pairs, count) in &rows {
            for _ in 0..*count {
                if pairs.is_empty() {
                    present.push(0);
                    repeated.push(0);
                }
                for (nth, (key, value)) in pairs.iter().enumerate() {
                    values.push(if is_key { key.clone() } else { value.clone() });
                    present.push(1);
                    repeated.push(i16::from(nth > 0));
                }
                if present.len() >= BATCH {
                    to.typed::<ByteArrayType>()
                        .write_batch(&values, Some(&present), Some(&repeated))?;
                    background::yield_core_after(present.len());
                    values.clear();
                    present.clear();
                    repeated.clear();
                }
            }
        }
        to.typed::<ByteArrayType>()
            .write_batch(&values, Some(&present), Some(&repeated))
            .map(drop)
    }
}
