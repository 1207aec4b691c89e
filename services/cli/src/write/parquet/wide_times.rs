//! Times of the Parquet type INT96, which consist of a day and the nanoseconds since its start. The range of INT96 is
//! larger than that of nanoseconds since 1970 in 64 bits.
//!
//! The decoder overflows silently when it converts such times to nanoseconds. A second reader therefore decodes such
//! columns as seconds, which cannot overflow. If both values differ, the time is outside of the supported range.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampSecondType;
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Type;
use parquet::errors::ParquetError;

use super::{ROWS_AT_ONCE, invalid};

/// Second reader, which decodes the seconds of the same rows.
pub(super) struct WideTimes {
    reader: ParquetRecordBatchReader,
    /// True for each read column that is INT96.
    is_wide: Vec<bool>,
}

/// Seconds of some rows; `None` for columns that are not INT96.
pub(super) type Seconds = Vec<Option<ArrayRef>>;

impl WideTimes {
    /// Opens the file again for the wanted columns that are INT96. Returns `None` without such columns.
    pub(super) fn open(
        path: &Path,
        builder: &ParquetRecordBatchReaderBuilder<File>,
        wanted: &[usize],
    ) -> io::Result<Option<Self>> {
        let roots = builder.parquet_schema().root_schema().get_fields();
        let is_wide = |at: usize| roots[at].is_primitive() && roots[at].get_physical_type() == Type::INT96;
        if !wanted.iter().any(|at| is_wide(*at)) {
            return Ok(None);
        }
        let fields = builder.schema().fields().iter().enumerate();
        let fields = fields.map(|(at, field)| match is_wide(at) {
            true => {
                let seconds = DataType::Timestamp(TimeUnit::Second, None);
                Arc::new(Field::clone(field).with_data_type(seconds))
            }
            false => Arc::clone(field),
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let options = ArrowReaderOptions::new().with_schema(schema);
        let again = || -> Result<ParquetRecordBatchReader, ParquetError> {
            let metadata = ArrowReaderMetadata::try_new(Arc::clone(builder.metadata()), options)?;
            let wide = wanted.iter().copied().filter(|at| is_wide(*at));
            ParquetRecordBatchReaderBuilder::new_with_metadata(File::open(path)?, metadata)
                .with_projection(ProjectionMask::roots(builder.parquet_schema(), wide))
                .with_batch_size(ROWS_AT_ONCE)
                .build()
        };
        Ok(Some(Self {
            reader: again().map_err(|error| invalid(&error))?,
            is_wide: wanted.iter().map(|at| is_wide(*at)).collect(),
        }))
    }

    /// Returns the seconds of the next `rows` rows.
    pub(super) fn next(&mut self, rows: usize) -> io::Result<Seconds> {
        let damaged = |reason: String| io::Error::new(ErrorKind::InvalidData, reason);
        let batch = self.reader.next().transpose();
        let batch = batch.map_err(|error| damaged(error.to_string()))?;
        let batch = batch.filter(|batch| batch.num_rows() == rows);
        let batch = batch.ok_or_else(|| damaged("columns have different lengths".into()))?;
        let mut columns = batch.columns().iter();
        let seconds = self.is_wide.iter().map(|is_wide| match is_wide {
            true => columns.next().map(Arc::clone),
            false => None,
        });
        Ok(seconds.collect())
    }
}

/// Returns true if a time in nanoseconds agrees with the time in seconds.
pub(super) fn is_whole(nanos: i64, seconds: &ArrayRef, row: usize) -> bool {
    let seconds = seconds.as_primitive::<TimestampSecondType>().value(row);
    // Rounding may differ by one second. An overflow differs by centuries.
    nanos.div_euclid(1_000_000_000).abs_diff(seconds) <= 1
}
