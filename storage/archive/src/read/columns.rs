//! Forward reader of one column of a row group.
//!
//! Types are checked when a footer is opened; the checks in this module keep programming errors from causing wrong
//! results.

use std::sync::Arc;

use bytes::Bytes;
use parquet::column::page::PageReader;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::serialized_reader::SerializedPageReader;
use tideline_chunk::{Bitmap, Presence};
use tideline_model::batch::{Joined, JoinedColumn};
use tideline_model::{ColumnData, ValueType};

use super::fetch::Fetched;

/// Reader of one column, by physical type.
pub(super) enum ColumnReader {
    Integers(ColumnReaderImpl<Int64Type>),
    Floats(ColumnReaderImpl<DoubleType>),
    Booleans(ColumnReaderImpl<BoolType>),
    Strings(ColumnReaderImpl<ByteArrayType>),
}

/// Content of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Timestamps, one per row.
    Times,
    /// Optional values of a type.
    Values(ValueType),
}

impl ColumnReader {
    /// Opens a column. The footer must have been validated to have a column of this kind.
    pub(super) fn open(
        fetched: &Arc<Fetched>,
        metadata: &ParquetMetaData,
        group: usize,
        column: usize,
        kind: Kind,
    ) -> Result<Self> {
        let of_group = metadata.row_group(group);
        let chunk = of_group.column(column);
        let locations = page_locations(metadata, group, column)?.to_vec();
        let rows = usize::try_from(of_group.num_rows())?;
        let pages = SerializedPageReader::new(Arc::clone(fetched), chunk, rows, Some(locations))?;
        let pages: Box<dyn PageReader> = Box::new(pages);
        let about = chunk.column_descr_ptr();
        Ok(match kind {
            Kind::Times | Kind::Values(ValueType::Signed | ValueType::Unsigned) => {
                Self::Integers(ColumnReaderImpl::new(about, pages))
            }
            Kind::Values(ValueType::Float) => Self::Floats(ColumnReaderImpl::new(about, pages)),
            Kind::Values(ValueType::Boolean) => Self::Booleans(ColumnReaderImpl::new(about, pages)),
            Kind::Values(ValueType::String | ValueType::Histogram) => {
                Self::Strings(ColumnReaderImpl::new(about, pages))
            }
        })
    }

    /// Skips rows.
    pub(super) fn skip(&mut self, rows: usize) -> Result<()> {
        let skipped = match self {
            Self::Integers(reader) => reader.skip_records(rows)?,
            Self::Floats(reader) => reader.skip_records(rows)?,
            Self::Booleans(reader) => reader.skip_records(rows)?,
            Self::Strings(reader) => reader.skip_records(rows)?,
        };
        whole(skipped, rows)
    }

    /// Reads timestamps.
    pub(super) fn times(&mut self, rows: usize, out: &mut Vec<i64>) -> Result<()> {
        match self {
            Self::Integers(reader) => read(reader, rows, &mut Vec::new(), out),
            _ => Err(ParquetError::General("timestamps are not integers".into())),
        }
    }

    /// Reads `rows` rows. Appends their values to `out`, without slots for rows that have no value, and the definition
    /// level of every row to `levels`.
    pub(super) fn values(&mut self, rows: usize, levels: &mut Vec<i16>, out: &mut ColumnData) -> Result<()> {
        match (self, out) {
            (Self::Floats(reader), ColumnData::Float(values)) => read(reader, rows, levels, values),
            (Self::Integers(reader), ColumnData::Signed(values)) => read(reader, rows, levels, values),
            (Self::Integers(reader), ColumnData::Unsigned(values)) => {
                let mut bits = Vec::with_capacity(rows);
                read(reader, rows, levels, &mut bits)?;
                values.extend(bits.into_iter().map(|bits| bits as u64));
                Ok(())
            }
            (Self::Booleans(reader), ColumnData::Boolean(values)) => read(reader, rows, levels, values),
            (Self::Strings(reader), ColumnData::String(values)) => strings(reader, rows, levels, values),
            (Self::Strings(reader), ColumnData::Histogram(values)) => strings(reader, rows, levels, values),
            _ => Err(ParquetError::General("a column has the wrong type".into())),
        }
    }

    /// Reads optional strings.
    pub(super) fn texts(&mut self, rows: usize) -> Result<Vec<Option<Bytes>>> {
        let Self::Strings(reader) = self else {
            return Err(ParquetError::General("field names are not strings".into()));
        };
        let (mut levels, mut texts): (Vec<i16>, Vec<ByteArray>) = (Vec::new(), Vec::new());
        read(reader, rows, &mut levels, &mut texts)?;
        let mut texts = texts.into_iter();
        let next =
            |level: i16| (level > 0).then(|| texts.next().map(|text| Bytes::copy_from_slice(text.data())));
        Ok(levels.into_iter().map(next).map(Option::flatten).collect())
    }
}

fn read<T: DataType>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    levels: &mut Vec<i16>,
    values: &mut Vec<T::T>,
) -> Result<()> {
    let (read, ..) = reader.read_records(rows, Some(levels), None, values)?;
    whole(read, rows)
}

fn whole(have: usize, rows: usize) -> Result<()> {
    match have == rows {
        true => Ok(()),
        false => Err(ParquetError::EOF(format!(
            "a column ends {} rows too early",
            rows - have
        ))),
    }
}

fn strings<B: Joined>(
    reader: &mut ColumnReaderImpl<ByteArrayType>,
    rows: usize,
    levels: &mut Vec<i16>,
    out: &mut JoinedColumn<B>,
) -> Result<()> {
    let mut values: Vec<ByteArray> = Vec::with_capacity(rows);
    read(reader, rows, levels, &mut values)?;
    for value in &values {
        let value = B::value_of(value.data());
        out.push(value.ok_or_else(|| ParquetError::General("a text is not UTF-8".into()))?);
    }
    Ok(())
}

/// Converts definition levels to the rows with a value.
pub(super) fn presence(levels: &[i16]) -> Presence {
    if levels.iter().all(|level| *level > 0) {
        return Presence::All;
    }
    Presence::Some(levels.iter().map(|level| *level > 0).collect::<Bitmap>())
}

/// Returns the page locations of a column of a row group.
///
/// # Errors
///
/// Returns an error if the column has no page index.
pub(super) fn page_locations(
    metadata: &ParquetMetaData,
    group: usize,
    column: usize,
) -> Result<&[parquet::file::page_index::offset_index::PageLocation]> {
    let index = metadata
        .page_index()
        .and_then(|index| index.offset_index(group, column));
    index
        .map(|index| index.page_locations().as_slice())
        .ok_or_else(|| ParquetError::General("a column has no page index".into()))
}
