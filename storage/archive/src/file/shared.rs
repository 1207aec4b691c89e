//! Rows of many small measurements in one file: a row for each value, tags as a map.
//!
//! Thousands of measurements of a few rows would be thousands of files of mostly footers. Here each value is a row with the
//! name of its measurement and field, and one of six columns for it.

use std::path::Path;

use hashbrown::HashMap;
use parquet::basic::Repetition;
use tideline_chunk::Run;
use tideline_model::{ColumnData, FieldId, Identity, TimelineId, ValueType};

use super::buffer::Buffer;
use super::columns::{self, TIME, TIME_AT, TIMELINE, TIMELINE_AT};
use super::writer::{FileWriter, FinishedFile};
use crate::error::Result;

/// Places of the columns among the buffers, behind those that every file has.
const MEASUREMENT_AT: usize = 2;
const TAGS_AT: usize = 3;
const FIELD_AT: usize = 4;
const VALUES_AT: usize = 5;

/// Places of the columns in the file: a map takes two.
pub(crate) const FIELD_LEAF: usize = FIELD_AT + 1;
/// See [`FIELD_LEAF`]: the first of the columns of values, which are in the order of their types.
pub(crate) const VALUES_LEAF: usize = VALUES_AT + 1;
/// All columns of a shared file.
pub(crate) const SHARED_LEAVES: usize = VALUES_LEAF + ValueType::ALL.len();
/// The same in files of builds that had no histograms, whose column is the last.
pub(crate) const SHARED_LEAVES_WITHOUT_HISTOGRAMS: usize = SHARED_LEAVES - 1;

/// A file of small measurements in the making.
pub(crate) struct SharedFile {
    pub(crate) file: FileWriter,
}

impl SharedFile {
    pub(crate) fn new(directory: &Path, notes: Vec<(String, String)>) -> Result<Self> {
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
            Buffer::texts(),
            Buffer::maps(),
            Buffer::texts(),
        ];
        for of in ValueType::ALL {
            leaves.push(columns::value(of.name(), of).map_err(format)?);
            buffers.push(Buffer::of(of));
        }
        let schema = columns::root(leaves)?;
        let file = FileWriter::new(directory, &schema, buffers, &[], &[], notes)?;
        Ok(Self { file })
    }

    /// Takes a run of a timeline; how many rows that are. A point without a value is a row without a field.
    pub(crate) fn add(
        &mut self,
        id: TimelineId,
        who: Option<&Identity>,
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
                push_value(&mut buffers[VALUES_AT..], &column.values, at);
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
        buffers[MEASUREMENT_AT].push_text(who.map(Identity::measurement), count);
        buffers[TAGS_AT].push_map(who.map_or(&[][..], Identity::tags), count);
        self.file.pushed(count)?;
        Ok(rows)
    }

    pub(crate) fn finish(self) -> Result<FinishedFile> {
        self.file.finish()
    }
}

fn push_value(buffers: &mut [Buffer], values: &ColumnData, at: usize) {
    let of = values.value_type();
    for (buffer, kind) in buffers.iter_mut().zip(ValueType::ALL) {
        if kind == of {
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
