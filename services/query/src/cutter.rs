//! Splits runs at window boundaries and feeds the accumulators.
//!
//! A run has one column per field and type. Columns with a value in every row share one list of segments; other
//! columns are cut by the timestamps of their own values.

use tideline_engine::model::FieldId;
use tideline_engine::points::{ColumnSummary, Presence, Run, RunColumn};

use crate::accumulate::scalar::Scalar;
use crate::accumulate::{Accumulator, Slice};
use crate::plan::{AggregateSource, MeasurementColumns};
use crate::window::{Segment, Windows};

/// Accumulators of one group: one per function and field, for all windows.
pub(crate) type GroupState = Vec<Accumulator>;

/// Indices of the accumulators of a measurement, by source field.
#[derive(Debug)]
pub(crate) struct AccumulatorIndices(Vec<(FieldId, Vec<usize>)>);

impl AccumulatorIndices {
    pub(crate) fn new(columns: &MeasurementColumns<AggregateSource>) -> Self {
        let mut indices: Vec<(FieldId, Vec<usize>)> = Vec::new();
        for (index, source) in columns.sources.iter().enumerate() {
            match indices.binary_search_by_key(&source.field, |(field, _)| *field) {
                Ok(at) => indices[at].1.push(index),
                Err(at) => indices.insert(at, (source.field, vec![index])),
            }
        }
        Self(indices)
    }

    /// Returns the source fields of all accumulators.
    pub(crate) fn fields(&self) -> impl Iterator<Item = FieldId> {
        self.0.iter().map(|(field, _)| *field)
    }

    fn of(&self, field: FieldId) -> &[usize] {
        let found = self.0.binary_search_by_key(&field, |(field, _)| *field);
        found.map_or(&[], |at| &self.0[at].1)
    }
}

/// Splits runs at window boundaries. Buffers are reused from run to run.
#[derive(Debug)]
pub(crate) struct Cutter {
    windows: Windows,
    dense: Vec<Segment>,
    sparse: Vec<Segment>,
    times: Vec<i64>,
}

impl Cutter {
    pub(crate) fn new(windows: Windows) -> Self {
        Self {
            windows,
            dense: Vec::new(),
            sparse: Vec::new(),
            times: Vec::new(),
        }
    }

    /// Passes the values of a run to the accumulators of their fields.
    pub(crate) fn take(&mut self, run: &Run, indices: &AccumulatorIndices, state: &mut GroupState) {
        self.windows.cut(&run.timestamps, &mut self.dense);
        for columns in run.columns.chunk_by(|a, b| a.field == b.field) {
            let wanted = indices.of(columns[0].field);
            let is_mixed = columns.len() > 1;
            for column in columns {
                let slice = self.slice(run, column);
                for index in wanted {
                    if !(is_mixed && state[*index].needs_sequence()) {
                        state[*index].add(&slice);
                    }
                }
            }
            if is_mixed && wanted.iter().any(|index| state[*index].needs_sequence()) {
                let sequence = sequence(run, columns);
                let times: Vec<i64> = sequence.iter().map(|(time, _)| *time).collect();
                self.windows.cut(&times, &mut self.sparse);
                for index in wanted {
                    state[*index].add_sequence(&sequence, &self.sparse);
                }
            }
        }
    }

    /// Passes summaries of a field to its accumulators; returns the number of summaries passed. An unknown summary is
    /// skipped.
    pub(crate) fn take_summaries(
        &self,
        field: FieldId,
        summaries: &[ColumnSummary],
        indices: &AccumulatorIndices,
        state: &mut GroupState,
    ) -> u64 {
        let wanted = indices.of(field);
        let mut known = 0;
        for summary in summaries {
            if let ColumnSummary::Known(summary) = summary {
                let window = self.windows.at(summary.first.0);
                wanted
                    .iter()
                    .for_each(|index| state[*index].add_summary(window, summary));
                known += 1;
            }
        }
        known
    }

    fn slice<'a>(&'a mut self, run: &'a Run, column: &'a RunColumn) -> Slice<'a> {
        match &column.presence {
            Presence::All => Slice {
                times: &run.timestamps,
                values: &column.values,
                segments: &self.dense,
            },
            Presence::Some(bitmap) => {
                self.times.clear();
                self.times
                    .extend(bitmap.iter_ones().map(|row| run.timestamps[row]));
                self.windows.cut(&self.times, &mut self.sparse);
                Slice {
                    times: &self.times,
                    values: &column.values,
                    segments: &self.sparse,
                }
            }
        }
    }
}

/// Returns the values of a field with columns of several types, sorted by time.
fn sequence(run: &Run, columns: &[RunColumn]) -> Vec<(i64, Scalar)> {
    let mut sequence: Vec<(i64, Scalar)> = Vec::new();
    for column in columns {
        let present = (0..run.rows()).filter(|row| column.presence.contains(*row));
        for (at, row) in present.enumerate() {
            if let Some(scalar) = Scalar::at(&column.values, at) {
                sequence.push((run.timestamps[row], scalar));
            }
        }
    }
    sequence.sort_by_key(|(time, _)| *time);
    sequence
}
