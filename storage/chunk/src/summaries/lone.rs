//! Lone summaries: summaries without their chunk, kept locally for rows that are stored remotely.
//!
//! A query over summaries then needs no access to the remote rows. The format additionally lists the columns of the
//! run, because there is no chunk directory.

use tideline_model::{FieldId, ValueType};

use super::{ROWS_PER_BUCKET_MIN, Summaries, SummaryEncoder};
use crate::chunk::directory::Entry;
use crate::chunk::{ChunkError, checksum};
use crate::run::{ROWS_MAX, Run, VALUES_MAX};
use crate::wire::{Damaged, Reader, put_varint};

/// Encoder of lone summaries with reusable buffers.
#[derive(Debug, Default)]
pub struct LoneSummaryWriter {
    encoder: SummaryEncoder,
    section: Vec<u8>,
}

/// View of stored lone summaries.
#[derive(Debug, Clone)]
pub struct LoneSummaries<'a> {
    directory: Reader<'a>,
    rows: usize,
    columns: usize,
    summaries: Summaries<'a>,
}

impl LoneSummaryWriter {
    /// Appends the summaries of the numeric columns of a run, and the list of all its columns. Appends nothing if
    /// the run has no numeric column or `widths` is empty.
    ///
    /// The bucket width is the first of `widths` (nanoseconds) for which a bucket has at least 16 rows on average. If
    /// no width satisfies this, the last of `widths` is used. Costs about two nanoseconds per value.
    ///
    /// # Errors
    ///
    /// [`ChunkError::Malformed`] or [`ChunkError::TooLarge`] if [`Run::check`] fails or a width is not positive.
    pub fn write(&mut self, run: &Run, widths: &[i64], out: &mut Vec<u8>) -> Result<(), ChunkError> {
        run.check()?;
        if widths.iter().any(|width| *width <= 0) {
            return Err(ChunkError::Malformed("summary bucket width is not positive"));
        }
        self.section.clear();
        self.encoder.encode_lone(run, widths, &mut self.section);
        if self.section.is_empty() {
            return Ok(());
        }
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        put_varint(run.rows() as u64, out);
        put_varint(run.columns.len() as u64, out);
        let mut previous = 0;
        for column in &run.columns {
            let entry = Entry {
                field: column.field,
                value_type: column.values.value_type(),
                is_sparse: false,
                length: 0,
            };
            entry.put(previous, out);
            previous = column.field.0;
        }
        out.extend_from_slice(&self.section);
        let sum = checksum(&out[start + 4..]);
        out[start..start + 4].copy_from_slice(&sum);
        Ok(())
    }
}

impl<'a> LoneSummaries<'a> {
    /// Opens the lone summaries in `bytes`, which must hold nothing else.
    ///
    /// # Errors
    ///
    /// [`ChunkError::Checksum`] if the content was changed, [`ChunkError::UnknownType`] or [`ChunkError::Damaged`]
    /// if it is not valid.
    pub fn open(bytes: &'a [u8]) -> Result<Self, ChunkError> {
        let (stored, content) = bytes.split_at_checked(4).ok_or(Damaged("no checksum"))?;
        if checksum(content) != stored {
            return Err(ChunkError::Checksum);
        }
        let mut reader = Reader::new(bytes);
        reader.take(stored.len())?;
        let rows = reader.count(ROWS_MAX)?;
        let columns = reader.count(VALUES_MAX / rows.max(1))?;
        let directory = reader;
        let mut previous = 0;
        for _ in 0..columns {
            previous = Entry::read(&mut reader, previous, 0)?.field.0;
        }
        Ok(Self {
            directory,
            rows,
            columns,
            summaries: Summaries::open_of(reader, rows, None, 1)?,
        })
    }

    /// Returns true if buckets have at least 16 rows on average. Older builds reject summaries for which this is
    /// false.
    pub fn is_dense(&self) -> bool {
        self.summaries.buckets().len() <= self.rows / ROWS_PER_BUCKET_MIN
    }

    /// Returns the summaries of the numeric columns.
    pub fn summaries(&self) -> &Summaries<'a> {
        &self.summaries
    }

    /// Returns all columns of the run, numeric or not, in the order of field and type code.
    pub fn columns(&self) -> impl Iterator<Item = (FieldId, ValueType)> + use<'a> {
        let (mut reader, mut left, mut previous) = (self.directory, self.columns, 0);
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            // The entries were validated by `open`.
            let entry = Entry::read(&mut reader, previous, 0).ok()?;
            previous = entry.field.0;
            Some((entry.field, entry.value_type))
        })
    }
}
