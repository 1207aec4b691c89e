//! Complete foreign files on the local disk: fetched in parts, verified, then decoded.
//!
//! All rows of these files are read, so page indexes and block checksums are not needed.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{ByteArray, ByteArrayType, DataType};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::SerializedFileReader;
use ring::digest::{Context, SHA256};

use crate::copy::ArchiveFile;
use crate::digest::hex;
use crate::error::{ArchiveError, Result};
use crate::target::Target;

/// Bytes per request.
const PART_BYTES: u64 = 8 << 20;

/// Fetches a file into an unnamed temporary file and verifies its checksum. The system removes the file when the handle
/// is dropped.
pub(super) fn fetch(target: &Target, file: &ArchiveFile, directory: &Path) -> Result<File> {
    let mut local = tempfile::tempfile_in(directory).map_err(ArchiveError::local("making"))?;
    let mut digest = Context::new(&SHA256);
    let mut at = 0;
    while at < file.bytes {
        let range = at..file.bytes.min(at + PART_BYTES);
        at = range.end;
        for part in target.get_ranges(&file.key, std::slice::from_ref(&range))? {
            digest.update(&part);
            local.write_all(&part).map_err(ArchiveError::local("writing"))?;
        }
    }
    if hex(digest.finish().as_ref()) != file.sha256 {
        return Err(target.damaged(&file.key, "its checksum does not match"));
    }
    local
        .seek(SeekFrom::Start(0))
        .map_err(ArchiveError::local("reading"))?;
    Ok(local)
}

/// Opens a fetched file if its column paths equal one of these lists and its format is known.
pub(super) fn open(file: &File, lists: &[&[&str]]) -> ParquetResult<SerializedFileReader<File>> {
    let reader = SerializedFileReader::new(file.try_clone()?)?;
    let metadata = reader.metadata().file_metadata();
    let schema = metadata.schema_descr();
    let paths: Vec<String> = schema
        .columns()
        .iter()
        .map(|column| column.path().string())
        .collect();
    if !lists.iter().any(|columns| paths == *columns) {
        return Err(ParquetError::General(format!(
            "it has unexpected columns: {}",
            paths.join(", ")
        )));
    }
    let notes = metadata.key_value_metadata().into_iter().flatten();
    let format = notes
        .filter(|note| note.key == "tideline.format")
        .find_map(|note| note.value.clone())
        .unwrap_or_default();
    if format != crate::FORMAT.to_string() {
        return Err(ParquetError::General(format!(
            "format {format:?} is not known to this build"
        )));
    }
    Ok(reader)
}

/// Returns the reader of a column of a row group; fails if the column has another type.
pub(super) fn column<T: DataType>(
    group: &dyn RowGroupReader,
    at: usize,
) -> ParquetResult<ColumnReaderImpl<T>> {
    let about = group.metadata().column(at).column_descr();
    if about.physical_type() != T::get_physical_type() {
        return Err(ParquetError::General(format!(
            "column {:?} has the wrong type",
            about.path().string()
        )));
    }
    Ok(get_typed_column_reader::<T>(group.get_column_reader(at)?))
}

/// Reads `rows` values of an optional string column.
pub(super) fn texts(
    reader: &mut ColumnReaderImpl<ByteArrayType>,
    rows: usize,
) -> ParquetResult<Vec<Option<ByteArray>>> {
    let (mut levels, mut values) = (Vec::new(), Vec::new());
    let (read, ..) = reader.read_records(rows, Some(&mut levels), None, &mut values)?;
    whole(read, rows)?;
    let mut values = values.into_iter();
    let next = |level: i16| if level > 0 { values.next() } else { None };
    Ok(levels.into_iter().map(next).collect())
}

pub(super) fn whole(have: usize, rows: usize) -> ParquetResult<()> {
    match have == rows {
        true => Ok(()),
        false => Err(ParquetError::EOF(format!(
            "a column ends {} rows too early",
            rows - have
        ))),
    }
}

/// Converts bytes to a string; fails if they are not UTF-8.
pub(super) fn text(bytes: &ByteArray) -> ParquetResult<&str> {
    std::str::from_utf8(bytes.data()).map_err(|_| ParquetError::General("a text is not UTF-8".into()))
}
