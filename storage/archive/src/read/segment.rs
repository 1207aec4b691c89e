//! Runs of all files of a segment.

use std::sync::Arc;

use hashbrown::HashMap;
use tideline_chunk::{Bitmap, Presence, Run, RunColumn};
use tideline_model::{ColumnData, FieldId, ValueType};

use super::file::FileReader;
use super::footers::Footers;
use crate::copy::ArchiveCopy;
use crate::error::{ArchiveError, Result};
use crate::extent::Extent;
use crate::target::Target;

/// The numbers of fields by their names.
pub trait FieldNames {
    /// The number of a field; `None` where the table has none of that name.
    fn id(&self, name: &str) -> Option<FieldId>;
}

impl<F: Fn(&str) -> Option<FieldId>> FieldNames for F {
    fn id(&self, name: &str) -> Option<FieldId> {
        self(name)
    }
}

/// Reads runs of a segment; asked for in rising order of timelines it reads each file once, forwards.
pub struct SegmentReader {
    target: Arc<Target>,
    footers: Arc<Footers>,
    copy: Arc<ArchiveCopy>,
    fields: Option<Vec<FieldId>>,
    /// Bytes that all files together fetch ahead; zero where single timelines are wanted.
    ahead: u64,
    files: HashMap<u32, FileReader>,
}

impl std::fmt::Debug for SegmentReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "SegmentReader({}, {} files)",
            self.target,
            self.copy.files.len()
        )
    }
}

impl SegmentReader {
    pub(crate) fn new(
        target: Arc<Target>,
        footers: Arc<Footers>,
        copy: Arc<ArchiveCopy>,
        fields: Option<Vec<FieldId>>,
        ahead: u64,
    ) -> Self {
        Self {
            target,
            footers,
            copy,
            fields,
            ahead,
            files: HashMap::new(),
        }
    }

    /// Reads a run: the wanted fields only, columns without a value left out.
    ///
    /// # Errors
    ///
    /// Where the target cannot be reached, or what is there is not what was written.
    pub fn read(&mut self, extent: &Extent, names: &dyn FieldNames) -> Result<Run> {
        let fields = self.fields.as_deref();
        let reader = match self.files.entry(extent.file) {
            hashbrown::hash_map::Entry::Occupied(open) => open.into_mut(),
            hashbrown::hash_map::Entry::Vacant(vacant) => {
                let file = self.copy.files.get(extent.file as usize).ok_or_else(|| {
                    ArchiveError::format("an extent", format!("the segment has no file {}", extent.file))
                })?;
                let open = self.footers.open(&self.target, file)?;
                let ahead = self.ahead / self.copy.files.len().max(1) as u64;
                vacant.insert(FileReader::new(
                    Arc::clone(&self.target),
                    &file.key,
                    open,
                    names,
                    fields,
                    ahead,
                )?)
            }
        };
        let rows = extent.row..extent.row + u64::from(extent.rows);
        let run = reader.read(rows, names, fields)?;
        let ends = run.timestamps.first().zip(run.timestamps.last());
        let is_right = ends == Some((&extent.first, &extent.last)) && run.rows() == extent.points as usize;
        if !is_right || !run.timestamps.is_sorted_by(|a, b| a < b) {
            let key = &self.copy.files[extent.file as usize].key;
            return Err(self
                .target
                .damaged(key, "its rows are not those that were stored about it"));
        }
        Ok(run)
    }
}

/// Puts values that come one by one into the columns of a run.
#[derive(Default)]
pub(super) struct Pivot {
    times: Vec<i64>,
    columns: HashMap<(FieldId, ValueType), (Vec<usize>, ColumnData)>,
}

impl Pivot {
    /// Begins with the next point.
    pub(super) fn begin(&mut self, time: i64) {
        self.times.push(time);
    }

    /// Takes a value of the point.
    pub(super) fn push(&mut self, field: FieldId, from: &ColumnData, at: usize) {
        let of = from.value_type();
        let new = || (Vec::new(), ColumnData::new(of));
        let (rows, values) = self.columns.entry((field, of)).or_insert_with(new);
        rows.push(self.times.len() - 1);
        match (values, from) {
            (ColumnData::Float(to), ColumnData::Float(from)) => to.push(from[at]),
            (ColumnData::Signed(to), ColumnData::Signed(from)) => to.push(from[at]),
            (ColumnData::Unsigned(to), ColumnData::Unsigned(from)) => to.push(from[at]),
            (ColumnData::Boolean(to), ColumnData::Boolean(from)) => to.push(from[at]),
            (ColumnData::String(to), ColumnData::String(from)) => to.push(from.get(at)),
            _ => {}
        }
    }

    pub(super) fn finish(self) -> Run {
        let length = self.times.len();
        let columns = self.columns.into_iter().map(|((field, _), (rows, values))| {
            let presence = if rows.len() == length {
                Presence::All
            } else {
                let mut bitmap = Bitmap::absent(length);
                rows.iter().for_each(|row| bitmap.set(*row));
                Presence::Some(bitmap)
            };
            RunColumn {
                field,
                presence,
                values,
            }
        });
        let mut columns: Vec<RunColumn> = columns.collect();
        columns.sort_unstable_by_key(|column| (column.field, column.values.value_type().code()));
        Run {
            timestamps: self.times,
            columns,
        }
    }
}
