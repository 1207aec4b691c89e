//! Summaries without their chunk: what is kept at hand of rows that are far away.

use tideline_model::{FieldId, ValueType};

use super::{ROWS_PER_BUCKET_MIN, Summaries, SummaryEncoder};
use crate::chunk::directory::Entry;
use crate::chunk::{ChunkError, checksum};
use crate::run::{ROWS_MAX, Run, VALUES_MAX};
use crate::wire::{Damaged, Reader, put_varint};

/// Writes summaries of runs; keeps its buffers from one to the next.
#[derive(Debug, Default)]
pub struct LoneSummaryWriter {
    encoder: SummaryEncoder,
    section: Vec<u8>,
}

/// A view of stored summaries.
#[derive(Debug, Clone)]
pub struct LoneSummaries<'a> {
    directory: Reader<'a>,
    rows: usize,
    columns: usize,
    summaries: Summaries<'a>,
}

impl LoneSummaryWriter {
    /// Appends summaries of the numbers of a run, and which columns it has; nothing of a run without numbers. Buckets have
    /// the first of `widths`, in nanoseconds, by which one has 16 rows on average, else the last one. Costs about two
    /// nanoseconds a value.
    ///
    /// # Errors
    ///
    /// Where [`Run::check`] fails, or a width is not positive.
    pub fn write(&mut self, run: &Run, widths: &[i64], out: &mut Vec<u8>) -> Result<(), ChunkError> {
        run.check()?;
        if widths.iter().any(|width| *width <= 0) {
            return Err(ChunkError::Malformed("the width of its buckets is not positive"));
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
    /// Checks what fills `bytes`.
    ///
    /// # Errors
    ///
    /// Where it is not what was written.
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

    /// False where buckets have fewer than 16 rows on average: earlier builds refuse such summaries.
    pub fn is_dense(&self) -> bool {
        self.summaries.buckets().len() <= self.rows / ROWS_PER_BUCKET_MIN
    }

    /// What the numbers come to.
    pub fn summaries(&self) -> &Summaries<'a> {
        &self.summaries
    }

    /// The columns of the run, numbers or not, in the order of field and type code.
    pub fn columns(&self) -> impl Iterator<Item = (FieldId, ValueType)> + use<'a> {
        let (mut reader, mut left, mut previous) = (self.directory, self.columns, 0);
        std::iter::from_fn(move || {
            left = left.checked_sub(1)?;
            // It was read before, when this was opened.
            let entry = Entry::read(&mut reader, previous, 0).ok()?;
            previous = entry.field.0;
            Some((entry.field, entry.value_type))
        })
    }
}
