//! Times of the old type INT96: a day and the nanoseconds of it, which reach further than nanoseconds since 1970 do.
//!
//! Read as those they wrap around without a word, so such columns are read twice, by a second reader as seconds, which
//! hold them all. Where the two disagree, the time lies beyond what can be stored.

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

/// Reads seconds beside the rows.
pub(super) struct WideTimes {
    reader: ParquetRecordBatchReader,
    /// For each wanted column, whether it is one of them.
    is_wide: Vec<bool>,
}

/// The seconds of some rows, of each wanted column that has them.
pub(super) type Seconds = Vec<Option<ArrayRef>>;

impl WideTimes {
    /// Opens the file once more for those of the wanted columns that are INT96; `None` where none is.
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

    /// The seconds of the next `rows` rows.
    pub(super) fn next(&mut self, rows: usize) -> io::Result<Seconds> {
        let damaged = |reason: String| io::Error::new(ErrorKind::InvalidData, reason);
        let batch = self.reader.next().transpose();
        let batch = batch.map_err(|error| damaged(error.to_string()))?;
        let batch = batch.filter(|batch| batch.num_rows() == rows);
        let batch = batch.ok_or_else(|| damaged("columns of different lengths".into()))?;
        let mut columns = batch.columns().iter();
        let seconds = self.is_wide.iter().map(|is_wide| match is_wide {
            true => columns.next().map(Arc::clone),
            false => None,
        });
        Ok(seconds.collect())
    }
}

/// Whether a time in nanoseconds is the one that the seconds say.
pub(super) fn is_whole(nanos: i64, seconds: &ArrayRef, row: usize) -> bool {
    let seconds = seconds.as_primitive::<TimestampSecondType>().value(row);
    // A part of a second is cut off on one side or the other; what has wrapped around is centuries away.
    nanos.div_euclid(1_000_000_000).abs_diff(seconds) <= 1
}
