//! Reading of single row groups, by their recorded locations.
//!
//! The location contains all data that the decoder would otherwise need from the footer, so one request reads a group.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::page::PageReader;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;

use super::group::{GroupColumn, GroupValues, RowGroup};
use super::schema::RowSchema;
use super::{ColumnLocation, GroupLocation};
use crate::Archive;
use crate::copy::ArchiveFile;
use crate::error::{Result, guarded};

/// Maximum number of attempts to fetch a group whose checksum differs. The first difference may be a transmission
/// error.
const TRIES: usize = 2;

impl Archive {
    /// Reads a row group of a file of archived rows with one request, and verifies it.
    ///
    /// # Errors
    ///
    /// Fails if the target is not valid or cannot be reached. [`ArchiveError::Damaged`](crate::ArchiveError::Damaged)
    /// if the bytes differ from the written bytes.
    pub fn row_group(
        &self,
        target: &str,
        file: &ArchiveFile,
        schema: &RowSchema,
        location: &GroupLocation,
    ) -> Result<RowGroup> {
        let target = self.target(target)?;
        let range = location.start..location.start + u64::from(location.bytes);
        let mut tries = 1;
        let bytes = loop {
            let got = target.get_ranges(&file.key, std::slice::from_ref(&range))?;
            let got = got.into_iter().next().unwrap_or_default();
            if crc32fast::hash(&got) == location.checksum {
                break got;
            }
            if tries == TRIES {
                let reason = format!(
                    "the checksum of bytes {}..{} does not match; put the file back from a copy",
                    range.start, range.end
                );
                return Err(target.damaged(&file.key, reason));
            }
            tries += 1;
        };
        let damaged = |reason: String| target.damaged(&file.key, reason);
        let decoded = guarded(|| decoded(&bytes, schema, location)).map_err(damaged)?;
        decoded.map_err(|error| damaged(error.to_string()))
    }
}

fn decoded(bytes: &Bytes, schema: &RowSchema, location: &GroupLocation) -> ParquetResult<RowGroup> {
    let rows = location.rows as usize;
    if location.columns.len() != schema.columns().len() {
        return Err(ParquetError::General("it has other columns".to_owned()));
    }
    let mut group = RowGroup::new(schema);
    group.rows = rows;
    for (number, (column, at)) in group.columns.iter_mut().zip(&location.columns).enumerate() {
        let chunk = chunk_of(schema, number, rows, at)?;
        let pages = SerializedPageReader::new(Arc::new(bytes.clone()), &chunk, rows, None)?;
        column.read(Box::new(pages), &chunk, rows)?;
    }
    Ok(group)
}

/// Returns the metadata of a column as in the footer of the file, but with offsets from the start of the group.
fn chunk_of(
    schema: &RowSchema,
    number: usize,
    rows: usize,
    at: &ColumnLocation,
) -> ParquetResult<ColumnChunkMetaData> {
    ColumnChunkMetaData::builder(schema.leaves().column(number))
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_num_values(i64::try_from(rows)?)
        .set_total_compressed_size(i64::from(at.bytes))
        .set_data_page_offset(i64::from(at.data))
        .set_dictionary_page_offset(at.dictionary.map(i64::from))
        .build()
}

impl GroupColumn {
    fn read(
        &mut self,
        pages: Box<dyn PageReader>,
        chunk: &ColumnChunkMetaData,
        rows: usize,
    ) -> ParquetResult<()> {
        let levels = self.levels.as_mut();
        let about = chunk.column_descr_ptr();
        match &mut self.values {
            GroupValues::Bytes(joined) => {
                let mut values: Vec<ByteArray> = Vec::with_capacity(rows);
                let reader = ColumnReaderImpl::<ByteArrayType>::new(about, pages);
                records(reader, rows, levels, &mut values)?;
                values.iter().for_each(|value| joined.push(value.data()));
                Ok(())
            }
            GroupValues::Floats(values) => {
                records::<DoubleType>(ColumnReaderImpl::new(about, pages), rows, levels, values)
            }
            GroupValues::Integers(values) => {
                records::<Int64Type>(ColumnReaderImpl::new(about, pages), rows, levels, values)
            }
            GroupValues::Booleans(values) => {
                records::<BoolType>(ColumnReaderImpl::new(about, pages), rows, levels, values)
            }
        }
    }
}

fn records<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    rows: usize,
    levels: Option<&mut Vec<i16>>,
    values: &mut Vec<T::T>,
) -> ParquetResult<()> {
    let (read, ..) = reader.read_records(rows, levels, None, values)?;
    match read == rows {
        true => Ok(()),
        false => Err(ParquetError::EOF(format!("a column has {read} of {rows} rows"))),
    }
}
