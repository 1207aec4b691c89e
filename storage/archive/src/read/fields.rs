//! Fields of a segment, read from its files.
//!
//! Used if a description (sidecar) was written by an earlier build and therefore has no list of fields.

use std::path::Path;

use parquet::basic::Type as Physical;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result as ParquetResult;
use parquet::file::reader::{FileReader, RowGroupReader};
use tideline_model::ValueType;

use super::footers::Footers;
use super::local;
use crate::copy::{ArchiveCopy, ArchiveFile};
use crate::description::{DescribedFields, note};
use crate::error::Result;
use crate::file::shared::{FIELD_LEAF, SHARED_LEAVES, SHARED_LEAVES_WITHOUT_HISTOGRAMS, VALUES_LEAF};
use crate::target::Target;

/// Columns of a shared file, which holds the values of several small measurements, one per row.
const SHARED: [&str; SHARED_LEAVES] = [
    "time",
    "timeline",
    "measurement",
    "tags.key_value.key",
    "tags.key_value.value",
    "field",
    "float",
    "integer",
    "unsigned",
    "boolean",
    "string",
    "histogram",
];
const MEASUREMENT_LEAF: usize = 2;
/// Key of the metadata entry with the measurement of a file.
const NOTE_MEASUREMENT: &str = "tideline.measurement";
/// Number of rows decoded at once.
const BATCH_ROWS: usize = 4_096;

/// Returns the fields in all files of a segment.
pub(crate) fn of(
    target: &Target,
    footers: &Footers,
    copy: &ArchiveCopy,
    directory: &Path,
) -> Result<DescribedFields> {
    let mut fields = DescribedFields::new();
    for file in &copy.files {
        if file.shared {
            shared(target, file, directory, &mut fields)?;
            continue;
        }
        let open = footers.open(target, file)?.file;
        let notes = open.metadata.file_metadata().key_value_metadata();
        let measurement = notes
            .into_iter()
            .flatten()
            .find(|note| note.key == NOTE_MEASUREMENT);
        let measurement = measurement.and_then(|note| note.value.as_deref());
        let measurement =
            measurement.ok_or_else(|| target.damaged(&file.key, "its footer names no measurement"))?;
        for (_, name, of) in &open.fields {
            note(&mut fields, measurement, name, *of);
        }
    }
    Ok(fields)
}

fn shared(target: &Target, file: &ArchiveFile, directory: &Path, fields: &mut DescribedFields) -> Result<()> {
    let fetched = local::fetch(target, file, directory)?;
    let mut read = || -> ParquetResult<()> {
        let reader = local::open(&fetched, &[&SHARED, &SHARED[..SHARED_LEAVES_WITHOUT_HISTOGRAMS]])?;
        for group in 0..reader.num_row_groups() {
            rows(reader.get_row_group(group)?.as_ref(), fields)?;
        }
        Ok(())
    };
    read().map_err(|error| target.damaged(&file.key, error.to_string()))
}

/// Collects the fields in the rows of a row group.
fn rows(group: &dyn RowGroupReader, fields: &mut DescribedFields) -> ParquetResult<()> {
    let mut left = usize::try_from(group.metadata().num_rows())?;
    let mut measurements = local::column::<ByteArrayType>(group, MEASUREMENT_LEAF)?;
    let mut names = local::column::<ByteArrayType>(group, FIELD_LEAF)?;
    let mut values = (VALUES_LEAF..group.metadata().num_columns())
        .zip(ValueType::ALL)
        .map(|(at, of)| Ok((of, Values::open(group, at)?)))
        .collect::<ParquetResult<Vec<_>>>()?;
    // Rows of a timeline are adjacent, so a row often has the same field as the row before.
    let mut before: Option<(ByteArray, ByteArray, ValueType)> = None;
    while left > 0 {
        let count = left.min(BATCH_ROWS);
        left -= count;
        let measurements = local::texts(&mut measurements, count)?;
        let names = local::texts(&mut names, count)?;
        let mut present = vec![None; count];
        for (of, values) in &mut values {
            for (row, level) in values.levels(count)?.into_iter().enumerate() {
                if level > 0 {
                    present[row] = Some(*of);
                }
            }
        }
        for ((measurement, name), of) in measurements.into_iter().zip(names).zip(present) {
            let (Some(measurement), Some(name), Some(of)) = (measurement, name, of) else {
                continue;
            };
            let next = (measurement, name, of);
            if before.as_ref() != Some(&next) {
                note(fields, local::text(&next.0)?, local::text(&next.1)?, of);
                before = Some(next);
            }
        }
    }
    Ok(())
}

/// Reader of a value column; only the definition levels are used.
enum Values {
    Floats(ColumnReaderImpl<DoubleType>),
    Integers(ColumnReaderImpl<Int64Type>),
    Booleans(ColumnReaderImpl<BoolType>),
    Strings(ColumnReaderImpl<ByteArrayType>),
}

impl Values {
    fn open(group: &dyn RowGroupReader, at: usize) -> ParquetResult<Self> {
        Ok(match group.metadata().column(at).column_type() {
            Physical::DOUBLE => Self::Floats(local::column(group, at)?),
            Physical::INT64 => Self::Integers(local::column(group, at)?),
            Physical::BOOLEAN => Self::Booleans(local::column(group, at)?),
            _ => Self::Strings(local::column(group, at)?),
        })
    }

    fn levels(&mut self, rows: usize) -> ParquetResult<Vec<i16>> {
        match self {
            Self::Floats(reader) => levels(reader, rows),
            Self::Integers(reader) => levels(reader, rows),
            Self::Booleans(reader) => levels(reader, rows),
            Self::Strings(reader) => levels(reader, rows),
        }
    }
}

fn levels<T: DataType>(reader: &mut ColumnReaderImpl<T>, rows: usize) -> ParquetResult<Vec<i16>> {
    let (mut levels, mut values) = (Vec::with_capacity(rows), Vec::new());
    let (read, ..) = reader.read_records(rows, Some(&mut levels), None, &mut values)?;
    local::whole(read, rows)?;
    Ok(levels)
}
