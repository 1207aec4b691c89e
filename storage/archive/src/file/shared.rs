//! Rows of many small measurements in one file: a row for each value, tags as a map.
//!
//! Thousands of measurements of a few rows would be thousands of files of mostly footers. Here each value is a row with the
//! name of its measurement and field, and one of five columns for it, or of six where there are histograms.

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
/// The same where no row is a histogram, whose column is the last. So files without them are as builds that know none
/// write and read them.
pub(crate) const SHARED_LEAVES_WITHOUT_HISTOGRAMS: usize = SHARED_LEAVES - 1;

/// The types of the columns of values, in their order.
static TYPES: [ValueType; ValueType::ALL.len()] = ValueType::ALL;

/// A file of small measurements in the making.
pub(crate) struct SharedFile {
    /// The types that it has columns for.
    types: &'static [ValueType],
    pub(crate) file: FileWriter,
}

impl SharedFile {
    /// A file for these runs.
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
        buffers[MEASUREMENT_AT].push_text(who.map(Identity::measurement), count);
        buffers[TAGS_AT].push_map(who.map_or(&[][..], Identity::tags), count);
        self.file.pushed(count)?;
        Ok(rows)
    }

    pub(crate) fn finish(self) -> Result<FinishedFile> {
        self.file.finish()
    }
}

/// The types of columns that a file of runs has: that of histograms where one of them has some.
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
