//! Rows of many small measurements in one file: one row per value, with tags as a map.
//!
//! Thousands of measurements with a few rows each would become thousands of files that consist mostly of footers. In a
//! shared file, each value is a row with the names of its measurement and field, and one column per value type. The
//! column of histograms exists only in files that have histograms.

use std::path::Path;

use hashbrown::HashMap;
use parquet::basic::Repetition;
use tideline_chunk::Run;
use tideline_model::{ColumnData, FieldId, Identity, TimelineId, ValueType};

use super::buffer::Buffer;
use super::columns::{self, TIME, TIME_AT, TIMELINE, TIMELINE_AT};
use super::writer::{FileWriter, FinishedFile};
use crate::error::Result;

/// Buffer indexes; the buffers of timestamps and ids come first.
const MEASUREMENT_AT: usize = 2;
const TAGS_AT: usize = 3;
const FIELD_AT: usize = 4;
const VALUES_AT: usize = 5;

/// Index of the field column in the file. This index differs from the buffer index because a map takes two columns.
pub(crate) const FIELD_LEAF: usize = FIELD_AT + 1;
/// Index in the file of the first value column. The value columns are ordered by type.
pub(crate) const VALUES_LEAF: usize = VALUES_AT + 1;
/// Number of columns of a shared file with histograms.
pub(crate) const SHARED_LEAVES: usize = VALUES_LEAF + ValueType::ALL.len();
/// Number of columns of a shared file without histograms. The column of histograms is the last column. A file without
/// this column therefore has the form that builds without histogram support read and write.
pub(crate) const SHARED_LEAVES_WITHOUT_HISTOGRAMS: usize = SHARED_LEAVES - 1;

/// Types of the value columns, in column order.
static TYPES: [ValueType; ValueType::ALL.len()] = ValueType::ALL;

/// Shared file that is being written.
pub(crate) struct SharedFile {
    /// Value types for which the file has columns.
    types: &'static [ValueType],
    pub(crate) file: FileWriter,
}

impl SharedFile {
    /// Creates a file for these runs.
    pub(crate) fn new<'r>(
        directory: &Path,
        runs: impl Iterator<Item = &'r Run>,
        notes: Vec<(String, String)>,
    ) -> Result<Self> {
        let types = types_of(runs);
        let format = columns::format;
        let mut leaves = vec![
            columns::time(TIME).map_err(format)?,
            columns::id(TIMELINE).map_err(format)?,
            columns::text("measurement", Repetition::OPTIONAL).map_err(format)?,
            columns::map("tags")?,
            columns::text("field", Repetition::OPTIONAL).map_err(format)?,
        ];
        let mut buffers = vec![
            Buffer::Integers(Vec::new()),
            Buffer::ids(),
            Buffer::strings(),
            Buffer::maps(),
            Buffer::strings(),
        ];
        for of in types {
            leaves.push(columns::value(of.name(), *of).map_err(format)?);
            buffers.push(Buffer::of(*of));
        }
        let schema = columns::root(leaves)?;
        let file = FileWriter::new(directory, &schema, buffers, &[], &[], notes)?;
        Ok(Self { types, file })
    }

    /// Adds a run of a timeline and returns its number of rows. A point without values becomes a row without a field.
    pub(crate) fn add(
        &mut self,
        id: TimelineId,
        identity: Option<&Identity>,
        run: &Run,
        names: &HashMap<FieldId, String>,
    ) -> Result<u32> {
        let buffers = self.file.buffers();
        let mut rows = 0u32;
        let mut taken: Vec<usize> = vec![0; run.columns.len()];
        for (row, time) in run.timestamps.iter().enumerate() {
            let before = rows;
            for (column, taken) in run.columns.iter().zip(&mut taken) {
                if !column.presence.contains(row) {
                    continue;
                }
                let at = std::mem::replace(taken, *taken + 1);
                buffers[TIME_AT].push_integers(&[*time]);
                buffers[FIELD_AT].push_text(names.get(&column.field).map(String::as_str), 1);
                push_value(&mut buffers[VALUES_AT..], self.types, &column.values, at);
                rows += 1;
            }
            if rows == before {
                buffers[TIME_AT].push_integers(&[*time]);
                buffers[FIELD_AT].push_text(None, 1);
                buffers[VALUES_AT..]
                    .iter_mut()
                    .for_each(|buffer| buffer.push_absent(1));
                rows += 1;
            }
        }
        let count = rows as usize;
        buffers[TIMELINE_AT].push_id(id, count);
        buffers[MEASUREMENT_AT].push_text(identity.map(Identity::measurement), count);
        buffers[TAGS_AT].push_map(identity.map_or(&[][..], Identity::tags), count);
        self.file.pushed(count)?;
        Ok(rows)
    }

    pub(crate) fn finish(self) -> Result<FinishedFile> {
        self.file.finish()
    }
}

/// Returns the types of the value columns for runs. Histograms are included only if a run has histograms.
fn types_of<'r>(mut runs: impl Iterator<Item = &'r Run>) -> &'static [ValueType] {
    let is_histogram = |values: &ColumnData| matches!(values, ColumnData::Histogram(_));
    let has_some = |run: &Run| run.columns.iter().any(|column| is_histogram(&column.values));
    match runs.any(has_some) {
        true => &TYPES,
        false => &TYPES[..SHARED_LEAVES_WITHOUT_HISTOGRAMS - VALUES_LEAF],
    }
}

fn push_value(buffers: &mut [Buffer], types: &[ValueType], values: &ColumnData, at: usize) {
    let of = values.value_type();
    for (buffer, kind) in buffers.iter_mut().zip(types) {
        if *kind == of {
            let one = tideline_chunk::RunColumn {
                field: FieldId(0),
                presence: tideline_chunk::Presence::All,
                values: values.pick(std::iter::once(at)),
            };
            buffer.push_column(&one, 1);
        } else {
            buffer.push_absent(1);
        }
    }
}
