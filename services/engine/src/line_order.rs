//! Order of conflicting lines within one request.
//!
//! A delta (the points of one commit) keeps the order of rows within a group, but not between groups. Two lines of a
//! request conflict if they write the same timeline, timestamp and field in different shapes (sets of fields with
//! types). The later line is then put into a later delta, so that it wins. Only groups that share a measurement and a
//! field can conflict, and agents seldom send such pairs.

use std::sync::Arc;

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};
use tideline_model::{ColumnData, LineReject, Ordinal, PointGroup, RejectReason};
use tideline_series_store::Shape;

/// Maximum number of parts of one request. Each part is committed separately.
const PARTS_MAX: usize = 64;
/// Part number of a row that a later line of the same group overwrites.
const OVERWRITTEN: usize = usize::MAX;

/// Group with its shape in the store.
pub(crate) type ShapedGroup = (PointGroup, Arc<Shape>);

/// Splits groups into parts that are committed one after another, so that later lines win. Usually there is one part.
///
/// 1. Sorts the rows of timelines that occur in several conflicting groups by timeline, timestamp and line.
/// 2. Keeps only the last row of each group for each timeline and timestamp that occurs in several groups. This row has
///    all fields of the group.
/// 3. Assigns the kept rows to parts in line order. Rows beyond [`PARTS_MAX`] parts are rejected.
pub(crate) fn in_line_order(
    groups: Vec<ShapedGroup>,
    rejects: &mut Vec<LineReject>,
) -> Vec<Vec<ShapedGroup>> {
    let Some(part_of_row) = parts(&groups) else {
        return vec![groups];
    };
    let last = part_of_row
        .iter()
        .flatten()
        .filter(|part| **part != OVERWRITTEN)
        .max()
        .copied()
        .unwrap_or(0);
    for ((group, _), parts) in groups.iter().zip(&part_of_row) {
        let beyond = parts
            .iter()
            .enumerate()
            .filter(|(_, part)| (PARTS_MAX..OVERWRITTEN).contains(*part));
        rejects.extend(beyond.map(|(row, _)| LineReject {
            line: group.lines[row],
            reason: RejectReason::TooManyFieldSets { limit: PARTS_MAX },
            excerpt: group.measurements.of(row).chars().take(80).collect(),
        }));
    }
    let part = |wanted: usize| -> Vec<ShapedGroup> {
        let split = groups.iter().zip(&part_of_row).map(|((group, shape), parts)| {
            let keep: Vec<bool> = parts.iter().map(|part| *part == wanted).collect();
            let mut group = group.clone();
            keep_rows(&mut group, &keep);
            (group, Arc::clone(shape))
        });
        split.filter(|(group, _)| group.rows() > 0).collect()
    };
    (0..=last.min(PARTS_MAX - 1)).map(part).collect()
}

/// Returns the part of each row of each group; `None` if all rows go into one part.
fn parts(groups: &[ShapedGroup]) -> Option<Vec<Vec<usize>>> {
    let overlapping = overlapping(groups);
    let scattered = scattered(&overlapping);
    if scattered.is_empty() {
        return None;
    }
    let mut rows = Vec::new();
    for (at, group) in overlapping {
        let of_scattered = (0..group.rows()).filter(|row| scattered.contains(&group.timelines[*row]));
        rows.extend(of_scattered.map(|row| {
            (
                group.timelines[row],
                group.timestamps[row],
                group.lines[row],
                at,
                row,
            )
        }));
    }
    rows.sort_unstable();
    let mut part_of_row: Vec<Vec<usize>> = groups.iter().map(|(group, _)| vec![0; group.rows()]).collect();
    let mut split = false;
    for instant in rows.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        if instant.iter().all(|row| row.3 == instant[0].3) {
            continue;
        }
        split = true;
        let mut newer = HashSet::new();
        let mut kept: Vec<(usize, usize)> = Vec::new();
        for (.., group, row) in instant.iter().rev() {
            if newer.insert(*group) {
                kept.push((*group, *row));
            } else {
                part_of_row[*group][*row] = OVERWRITTEN;
            }
        }
        for (part, (group, row)) in kept.into_iter().rev().enumerate() {
            part_of_row[group][row] = part;
        }
    }
    split.then_some(part_of_row)
}

/// Returns the groups, with their indexes, that share a measurement and one of its fields with another group.
fn overlapping(groups: &[ShapedGroup]) -> Vec<(usize, &PointGroup)> {
    if groups.len() < 2 {
        return Vec::new();
    }
    let mut seen = HashSet::new();
    let shared: HashSet<&str> = groups
        .iter()
        .flat_map(|(group, _)| group.measurements.names())
        .map(|name| &**name)
        .filter(|name| !seen.insert(*name))
        .collect();
    let mut overlaps = vec![false; groups.len()];
    let mut first_with: HashMap<(&str, &str), usize> = HashMap::new();
    for (at, (group, _)) in groups.iter().enumerate() {
        for name in group
            .measurements
            .names()
            .iter()
            .filter(|name| shared.contains(&***name))
        {
            for field in &group.fields {
                match first_with.entry((name, field)) {
                    Entry::Occupied(first) => {
                        overlaps[*first.get()] = true;
                        overlaps[at] = true;
                    }
                    Entry::Vacant(vacant) => {
                        vacant.insert(at);
                    }
                }
            }
        }
    }
    let groups = groups.iter().map(|(group, _)| group).enumerate();
    groups.filter(|(at, _)| overlaps[*at]).collect()
}

/// Returns the timelines with rows in several of these groups.
fn scattered(groups: &[(usize, &PointGroup)]) -> HashSet<Ordinal> {
    let mut first_with: HashMap<Ordinal, usize> = HashMap::new();
    let mut scattered = HashSet::new();
    for (at, group) in groups {
        for timeline in &group.timelines {
            if *first_with.entry(*timeline).or_insert(*at) != *at {
                scattered.insert(*timeline);
            }
        }
    }
    scattered
}

/// Removes the rows for which `keep` is false.
pub(crate) fn keep_rows(group: &mut PointGroup, keep: &[bool]) {
    group.measurements.retain(keep);
    retain(&mut group.timelines, keep);
    retain(&mut group.timestamps, keep);
    retain(&mut group.lines, keep);
    for column in &mut group.columns {
        match column {
            ColumnData::Float(values) => retain(values, keep),
            ColumnData::Signed(values) => retain(values, keep),
            ColumnData::Unsigned(values) => retain(values, keep),
            ColumnData::Boolean(values) => retain(values, keep),
            ColumnData::String(values) => *values = kept(values.iter(), keep).collect(),
            ColumnData::Histogram(values) => *values = kept(values.iter(), keep).collect(),
        }
    }
}

fn kept<T>(values: impl Iterator<Item = T>, keep: &[bool]) -> impl Iterator<Item = T> {
    let marked = values.zip(keep);
    marked.filter(|(_, keep)| **keep).map(|(value, _)| value)
}

fn retain<T>(values: &mut Vec<T>, keep: &[bool]) {
    let mut keep = keep.iter();
    values.retain(|_| keep.next().copied().unwrap_or(false));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(fields: &[&str], rows: &[(u32, i64, u32)]) -> ShapedGroup {
        let values: Vec<i64> = rows.iter().map(|row| i64::from(row.2)).collect();
        let shape = Arc::new(Shape {
            fields: Box::default(),
        });
        let group = PointGroup {
            measurements: "m".into(),
            fields: fields.iter().map(|field| (*field).into()).collect(),
            columns: fields
                .iter()
                .map(|_| ColumnData::Signed(values.clone()))
                .collect(),
            timelines: rows.iter().map(|row| Ordinal(row.0)).collect(),
            timestamps: rows.iter().map(|row| row.1).collect(),
            lines: rows.iter().map(|row| row.2).collect(),
        };
        (group, shape)
    }

    fn lines(groups: Vec<ShapedGroup>) -> Vec<Vec<u32>> {
        let mut rejects = Vec::new();
        let parts = in_line_order(groups, &mut rejects);
        assert_eq!(rejects, []);
        parts
            .iter()
            .map(|part| part.iter().flat_map(|(group, _)| group.lines.clone()).collect())
            .collect()
    }

    #[test]
    fn rows_that_do_not_overlap_stay_together() {
        let groups = vec![
            group(&["a"], &[(1, 5, 1), (1, 5, 3)]),
            group(&["a", "b"], &[(1, 7, 2), (2, 5, 4)]),
        ];
        assert_eq!(lines(groups), [[1, 3, 2, 4]]);
    }

    #[test]
    fn rows_without_a_common_field_stay_together() {
        let groups = vec![group(&["a"], &[(1, 5, 1)]), group(&["b"], &[(1, 5, 2)])];
        assert_eq!(lines(groups), [[1, 2]]);
    }

    #[test]
    fn a_later_line_of_another_shape_goes_into_a_later_part() {
        let groups = vec![
            group(&["a"], &[(9, 5, 1), (1, 5, 3), (1, 5, 4), (1, 5, 7)]),
            group(&["a", "b"], &[(1, 5, 2), (1, 5, 6)]),
        ];
        assert_eq!(lines(groups), [vec![1, 6], vec![7]]);
    }

    #[test]
    fn an_instant_in_too_many_shapes_is_rejected_line_by_line() {
        let names: Vec<String> = (0..PARTS_MAX + 2).map(|at| format!("f{at}")).collect();
        let groups = names
            .iter()
            .zip(1..)
            .map(|(name, line)| group(&["shared", name], &[(1, 5, line)]))
            .collect();
        let mut rejects = Vec::new();
        assert_eq!(in_line_order(groups, &mut rejects).len(), PARTS_MAX);
        let lines: Vec<usize> = rejects.iter().map(|reject| reject.line as usize).collect();
        assert_eq!(lines, [PARTS_MAX + 1, PARTS_MAX + 2]);
    }
}
