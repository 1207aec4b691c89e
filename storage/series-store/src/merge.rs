//! Merges runs of one timeline: the newest write of each field wins.
//!
//! [`concat`] handles the common case of runs that follow each other in time. [`merge`] handles overlapping runs:
//! late data, overwrites and alternating shapes.

use std::cmp::Reverse;
use std::ops::Range;

use tideline_chunk::{Bitmap, Presence, Run, RunColumn};
use tideline_model::{ColumnData, FieldId, Value, ValueType};

/// Run to be merged. Its rows need not be sorted and may repeat a timestamp.
pub(crate) struct Part<'a> {
    pub(crate) run: &'a Run,
    pub(crate) priority: Priority<'a>,
}

/// Priority of the rows of a part. Of two values of one field and timestamp, the one with the higher priority wins.
pub(crate) enum Priority<'a> {
    /// The same priority for all rows.
    All(u64),
    /// Priority of each row. If the priorities are equal, the later row wins.
    Rows(&'a [u64]),
}

impl Priority<'_> {
    fn of(&self, row: usize) -> u64 {
        match self {
            Self::All(priority) => *priority,
            Self::Rows(priorities) => priorities[row],
        }
    }
}

/// Merges parts into one run.
///
/// 1. Sort all rows by timestamp, then by priority, highest first. Rows of equal priority are sorted by part, then by
///    row, latest first.
/// 2. For each timestamp, visit its rows from the newest on. Each field takes the first value found, in the column
///    of that value's type.
pub(crate) fn merge(parts: &[Part<'_>]) -> Run {
    struct Entry {
        timestamp: i64,
        priority: u64,
        part: u32,
        row: u32,
    }
    let mut entries: Vec<Entry> = Vec::new();
    for (part, source) in (0u32..).zip(parts) {
        let rows = (0u32..).zip(&source.run.timestamps);
        entries.extend(rows.map(|(row, &timestamp)| Entry {
            timestamp,
            priority: source.priority.of(row as usize),
            part,
            row,
        }));
    }
    entries.sort_unstable_by_key(|entry| {
        (
            entry.timestamp,
            Reverse(entry.priority),
            Reverse(entry.part),
            Reverse(entry.row),
        )
    });
    let mut merger = Merger::new(parts);
    for instant in entries.chunk_by(|a, b| a.timestamp == b.timestamp) {
        merger.begin(instant[0].timestamp);
        for entry in instant {
            merger.offer(entry.part as usize, entry.row as usize);
        }
        merger.end();
    }
    merger.finish()
}

struct Merger<'a> {
    parts: Vec<Source<'a>>,
    timestamps: Vec<i64>,
    columns: Vec<Builder>,
    /// True for each field that already has a value in the current row.
    filled: Vec<bool>,
}

struct Source<'a> {
    columns: Vec<SourceColumn<'a>>,
}

struct SourceColumn<'a> {
    values: &'a ColumnData,
    /// Index of each row's value, `u32::MAX` if absent; `None` if every row has a value.
    indices: Option<Vec<u32>>,
    /// Index of the output column.
    target: usize,
    /// Index of its field in `filled`.
    field: usize,
}

struct Builder {
    field: FieldId,
    values: ColumnData,
    present: Bitmap,
    open: bool,
}

impl<'a> Merger<'a> {
    fn new(parts: &[Part<'a>]) -> Self {
        let mut keys: Vec<(FieldId, ValueType)> = parts
            .iter()
            .flat_map(|part| part.run.columns.iter().map(key))
            .collect();
        keys.sort_unstable_by_key(|(field, value_type)| (*field, value_type.code()));
        keys.dedup();
        let mut fields: Vec<FieldId> = keys.iter().map(|(field, _)| *field).collect();
        fields.dedup();
        let position = |column: &RunColumn| {
            keys.iter()
                .position(|have| *have == key(column))
                .unwrap_or_default()
        };
        let field = |column: &RunColumn| fields.binary_search(&column.field).unwrap_or_default();
        let sources = parts.iter().map(|part| Source {
            columns: part
                .run
                .columns
                .iter()
                .map(|column| SourceColumn {
                    values: &column.values,
                    indices: value_indices(column),
                    target: position(column),
                    field: field(column),
                })
                .collect(),
        });
        let columns = keys.iter().map(|(field, value_type)| Builder {
            field: *field,
            values: ColumnData::new(*value_type),
            present: Bitmap::absent(0),
            open: false,
        });
        Self {
            parts: sources.collect(),
            timestamps: Vec::new(),
            columns: columns.collect(),
            filled: vec![false; fields.len()],
        }
    }

    fn begin(&mut self, timestamp: i64) {
        self.timestamps.push(timestamp);
        self.filled.fill(false);
    }

    fn offer(&mut self, part: usize, row: usize) {
        for column in &self.parts[part].columns {
            let index = column.indices.as_ref().map_or(row as u32, |indices| indices[row]);
            if index == u32::MAX || self.filled[column.field] {
                continue;
            }
            self.filled[column.field] = true;
            let target = &mut self.columns[column.target];
            push_from(&mut target.values, column.values, index as usize);
            target.open = true;
        }
    }

    fn end(&mut self) {
        for column in &mut self.columns {
            column.present.push(std::mem::take(&mut column.open));
        }
    }

    fn finish(self) -> Run {
        let rows = self.timestamps.len();
        let columns = self
            .columns
            .into_iter()
            .filter(|column| !column.values.is_empty())
            .map(|column| RunColumn {
                field: column.field,
                presence: if column.values.len() == rows {
                    Presence::All
                } else {
                    Presence::Some(column.present)
                },
                values: column.values,
            });
        Run {
            columns: columns.collect(),
            timestamps: self.timestamps,
        }
    }
}

/// Appends `next`, which must begin after `run` ends.
pub(crate) fn concat(run: &mut Run, next: &Run) {
    if run.timestamps.is_empty() {
        *run = next.clone();
        return;
    }
    let (before, more) = (run.rows(), next.rows());
    run.timestamps.extend_from_slice(&next.timestamps);
    let order = |column: &RunColumn| (column.field, column.values.value_type().code());
    for (at, column) in next.columns.iter().enumerate() {
        // The columns of a timeline seldom change, so the position is nearly always the same.
        let same = run.columns.get(at).is_some_and(|have| key(have) == key(column));
        let index = if same {
            Ok(at)
        } else {
            run.columns.binary_search_by_key(&order(column), order)
        };
        match index {
            Ok(at) => {
                let have = &mut run.columns[at];
                append_presence(&mut have.presence, before, &column.presence, more);
                extend(&mut have.values, &column.values, 0..column.values.len());
            }
            Err(at) => {
                let mut presence = Presence::Some(Bitmap::absent(before));
                append_presence(&mut presence, before, &column.presence, more);
                let (field, values) = (column.field, column.values.clone());
                run.columns.insert(
                    at,
                    RunColumn {
                        field,
                        presence,
                        values,
                    },
                );
            }
        }
    }
    // Columns that `next` lacks have no value in the appended rows.
    for column in &mut run.columns {
        if !next.columns.iter().any(|other| key(other) == key(column)) {
            append_presence(
                &mut column.presence,
                before,
                &Presence::Some(Bitmap::absent(more)),
                more,
            );
        }
    }
}

fn append_presence(presence: &mut Presence, rows: usize, next: &Presence, more: usize) {
    if matches!((&*presence, next), (Presence::All, Presence::All)) {
        return;
    }
    if matches!(presence, Presence::All) {
        *presence = Presence::Some(Bitmap::present(rows));
    }
    let Presence::Some(bitmap) = presence else { return };
    (0..more).for_each(|row| bitmap.push(next.contains(row)));
}

/// Returns some rows of a run, without columns that have no value in these rows.
pub(crate) fn slice(run: &Run, rows: Range<usize>) -> Run {
    run.slice(rows)
}

/// Returns the value of a column in a row; `None` if the row has no value.
pub(crate) fn value_at(column: &RunColumn, row: usize) -> Option<Value> {
    if !column.presence.contains(row) {
        return None;
    }
    let at = column.presence.rank(row);
    Some(match &column.values {
        ColumnData::Float(values) => Value::Float(values[at]),
        ColumnData::Signed(values) => Value::Signed(values[at]),
        ColumnData::Unsigned(values) => Value::Unsigned(values[at]),
        ColumnData::Boolean(values) => Value::Boolean(values[at]),
        ColumnData::String(values) => Value::String(values.get(at).into()),
        ColumnData::Histogram(values) => Value::Histogram(values.get(at).into()),
    })
}

fn key(column: &RunColumn) -> (FieldId, ValueType) {
    (column.field, column.values.value_type())
}

fn value_indices(column: &RunColumn) -> Option<Vec<u32>> {
    let Presence::Some(bitmap) = &column.presence else {
        return None;
    };
    let mut indices = vec![u32::MAX; bitmap.len()];
    for (index, row) in (0u32..).zip(bitmap.iter_ones()) {
        indices[row] = index;
    }
    Some(indices)
}

fn push_from(out: &mut ColumnData, from: &ColumnData, at: usize) {
    extend(out, from, at..at + 1);
}

/// Appends some values of a column of the same type.
fn extend(out: &mut ColumnData, from: &ColumnData, values: Range<usize>) {
    match (out, from) {
        (ColumnData::Float(out), ColumnData::Float(from)) => out.extend_from_slice(&from[values]),
        (ColumnData::Signed(out), ColumnData::Signed(from)) => out.extend_from_slice(&from[values]),
        (ColumnData::Unsigned(out), ColumnData::Unsigned(from)) => out.extend_from_slice(&from[values]),
        (ColumnData::Boolean(out), ColumnData::Boolean(from)) => out.extend_from_slice(&from[values]),
        (ColumnData::String(out), ColumnData::String(from)) => values.for_each(|at| out.push(from.get(at))),
        (ColumnData::Histogram(out), ColumnData::Histogram(from)) => {
            values.for_each(|at| out.push(from.get(at)));
        }
        _ => debug_assert!(false, "columns are matched by type before"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(rows: &[(i64, i64)]) -> Run {
        let values = ColumnData::Signed(rows.iter().map(|(_, value)| *value).collect());
        let column = RunColumn {
            field: FieldId(1),
            presence: Presence::All,
            values,
        };
        Run {
            timestamps: rows.iter().map(|(at, _)| *at).collect(),
            columns: vec![column],
        }
    }

    #[test]
    fn the_newest_write_of_an_instant_wins_and_time_orders_the_rest() {
        let old = run(&[(1, 10), (3, 30)]);
        let new = run(&[(2, 21), (3, 31)]);
        let merged = merge(&[
            Part {
                run: &old,
                priority: Priority::All(1),
            },
            Part {
                run: &new,
                priority: Priority::All(2),
            },
        ]);
        assert_eq!(merged, run(&[(1, 10), (2, 21), (3, 31)]));
    }

    #[test]
    fn fields_of_one_instant_merge_and_a_change_of_type_moves_the_value() {
        let mut left = run(&[(1, 10)]);
        let mut right = run(&[(1, 0)]);
        right.columns[0].values = ColumnData::Float(vec![0.5]);
        let other = RunColumn {
            field: FieldId(2),
            presence: Presence::All,
            values: ColumnData::Boolean(vec![true]),
        };
        left.columns.push(other.clone());
        let merged = merge(&[
            Part {
                run: &right,
                priority: Priority::All(2),
            },
            Part {
                run: &left,
                priority: Priority::All(1),
            },
        ]);
        assert_eq!(merged.columns, vec![right.columns[0].clone(), other]);
    }

    #[test]
    fn of_equal_priorities_the_later_row_wins() {
        let twice = run(&[(5, 1), (4, 7), (5, 2)]);
        let merged = merge(&[Part {
            run: &twice,
            priority: Priority::Rows(&[9, 9, 9]),
        }]);
        assert_eq!(merged, run(&[(4, 7), (5, 2)]));
    }

    #[test]
    fn runs_put_one_after_another_equal_their_merge() {
        let mut left = run(&[(1, 10), (2, 20)]);
        let mut right = run(&[(3, 30), (4, 40), (5, 50)]);
        right.columns[0] = RunColumn {
            field: FieldId(1),
            presence: Presence::Some([true, false, true].into_iter().collect()),
            values: ColumnData::Signed(vec![30, 50]),
        };
        left.columns.push(RunColumn {
            field: FieldId(3),
            presence: Presence::Some([false, true].into_iter().collect()),
            values: ColumnData::Boolean(vec![true]),
        });
        right.columns.push(RunColumn {
            field: FieldId(2),
            presence: Presence::All,
            values: ColumnData::Float(vec![0.5; 3]),
        });
        let parts = [&left, &right].map(|run| Part {
            run,
            priority: Priority::All(1),
        });
        let merged = merge(&parts);
        let mut whole = left.clone();
        concat(&mut whole, &right);
        assert_eq!(whole, merged);
    }

    #[test]
    fn a_slice_keeps_presence() {
        let mut gaps = run(&[(1, 10), (2, 20), (3, 30)]);
        let present: Bitmap = [true, false, true].into_iter().collect();
        gaps.columns[0] = RunColumn {
            field: FieldId(1),
            presence: Presence::Some(present),
            values: ColumnData::Signed(vec![10, 30]),
        };
        let tail = slice(&gaps, 1..3);
        assert_eq!(tail.timestamps, [2, 3]);
        assert_eq!(value_at(&tail.columns[0], 0), None);
        assert_eq!(value_at(&tail.columns[0], 1), Some(Value::Signed(30)));
        assert!(slice(&gaps, 1..2).columns.is_empty());
    }
}
