//! Rows of one measurement: one row per point, one column per tag, and one per field and type.
//!
//! The columns are fixed when the file is created. Runs that need other columns start another file.

use std::path::Path;

use hashbrown::{HashMap, HashSet};
use tideline_chunk::Run;
use tideline_model::{ColumnData, Identity, TimelineId, ValueType};

use super::buffer::Buffer;
use super::columns::{Columns, NOTE_COLUMNS, Shape, TIME_AT, TIMELINE_AT};
use super::writer::{DISTINCT_FLOATS_MAX, FileWriter, FinishedFile};
use crate::error::Result;

/// File of one measurement that is being written.
pub(crate) struct WideFile {
    columns: Columns,
    pub(crate) file: FileWriter,
}

impl WideFile {
    /// Creates a file for rows of a shape. The floats of `samples` determine which float columns use a dictionary.
    pub(crate) fn new<'r>(
        directory: &Path,
        shape: &Shape,
        samples: impl Iterator<Item = &'r Run>,
        mut notes: Vec<(String, String)>,
    ) -> Result<Self> {
        let columns = Columns::of(shape)?;
        let varied = varied(&columns, samples);
        let buffers = columns.types.iter().zip(&columns.notes).enumerate();
        let buffers = buffers.map(|(at, (of, _))| match (at, of) {
            (TIME_AT, _) => Buffer::Integers(Vec::new()),
            (TIMELINE_AT, _) => Buffer::ids(),
            (_, Some(of)) => Buffer::of(*of),
            (_, None) => Buffer::strings(),
        });
        let said = serde_json::to_string(&columns.notes).expect("plain structures always serialise");
        notes.push((NOTE_COLUMNS.into(), said));
        let sorted = [TIMELINE_AT, TIME_AT];
        let file = FileWriter::new(
            directory,
            &columns.schema,
            buffers.collect(),
            &sorted,
            &varied,
            notes,
        )?;
        Ok(Self { columns, file })
    }

    /// Returns true if the file has columns for a timeline and its run.
    pub(crate) fn fits(&self, identity: &Identity, run: &Run) -> bool {
        self.columns.hold(identity.tags(), run)
    }

    /// Adds the rows of a run, which must [fit](Self::fits).
    pub(crate) fn add(&mut self, id: TimelineId, identity: &Identity, run: &Run) -> Result<()> {
        let rows = run.rows();
        let Self { columns, file } = self;
        let mut filled: Vec<bool> = vec![false; columns.notes.len()];
        let buffers = file.buffers();
        buffers[TIME_AT].push_integers(&run.timestamps);
        buffers[TIMELINE_AT].push_id(id, rows);
        filled[TIME_AT] = true;
        filled[TIMELINE_AT] = true;
        for (key, value) in identity.tags() {
            if let Some(at) = columns.tags.get(key) {
                buffers[*at].push_text(Some(value), rows);
                filled[*at] = true;
            }
        }
        for column in &run.columns {
            let of: ValueType = column.values.value_type();
            if let Some(at) = columns.fields.get(&(column.field, of)) {
                buffers[*at].push_column(column, rows);
                filled[*at] = true;
            }
        }
        for (buffer, is_filled) in buffers.iter_mut().zip(&filled) {
            if !is_filled {
                buffer.push_absent(rows);
            }
        }
        file.pushed(rows)
    }

    pub(crate) fn finish(self) -> Result<FinishedFile> {
        self.file.finish()
    }
}

/// Returns the indexes of the float columns that have too many distinct values in `samples` for a dictionary.
fn varied<'r>(columns: &Columns, samples: impl Iterator<Item = &'r Run>) -> Vec<usize> {
    let mut distinct: HashMap<usize, HashSet<u64>> = HashMap::new();
    for column in samples.flat_map(|run| &run.columns) {
        let ColumnData::Float(values) = &column.values else {
            continue;
        };
        if let Some(at) = columns.fields.get(&(column.field, ValueType::Float)) {
            let seen = distinct.entry(*at).or_default();
            for value in values {
                if seen.len() > DISTINCT_FLOATS_MAX {
                    break;
                }
                seen.insert(value.to_bits());
            }
        }
    }
    let varied = distinct
        .into_iter()
        .filter(|(_, seen)| seen.len() > DISTINCT_FLOATS_MAX);
    varied.map(|(at, _)| at).collect()
}
