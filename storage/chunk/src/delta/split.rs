//! Splits a delta that is too large for one journal entry.
//!
//! Applying both halves in order has the same effect as applying the original, so a writer can commit them
//! separately.

use std::collections::HashSet;

use tideline_model::TimelineId;

use super::{Delta, DeltaGroup};

/// Marker of a timeline that no row has referenced yet.
const UNKNOWN: u32 = u32::MAX;

impl Delta {
    /// Splits the delta in two: the first half of the rows, and the other rows. Applying both in order has the same
    /// effect as applying the original.
    ///
    /// A new timeline is listed in the first delta if a row of that delta uses it, otherwise in the second. The
    /// request record is part of the second delta, because the request is complete only after both. The groups keep
    /// their order. If a group is split, one part is the last group of the first delta, and the other part is the
    /// first group of the second delta.
    ///
    /// # Panics
    ///
    /// Panics if the delta [cannot be split](Self::can_split).
    #[must_use]
    pub fn split(mut self) -> (Self, Self) {
        assert!(self.can_split(), "a delta of one row or a delete stays whole");
        let (mut first, mut second) = (Vec::new(), Vec::new());
        let mut room = self.rows() / 2;
        for group in std::mem::take(&mut self.groups) {
            let taken = room.min(group.rows());
            room -= taken;
            if taken == group.rows() {
                first.push(group);
            } else if taken == 0 {
                second.push(group);
            } else {
                first.push(part(&group, 0..taken));
                second.push(part(&group, taken..group.rows()));
            }
        }
        let known = std::mem::take(&mut self.timelines);
        let (first, second) = (with_timelines(first, &known), with_timelines(second, &known));
        let of_first: HashSet<TimelineId> = first.timelines.iter().copied().collect();
        let new = std::mem::take(&mut self.new_timelines);
        let (new_first, new_second) = new.into_iter().partition(|new| of_first.contains(&new.id));
        let first = Self {
            table: self.table,
            new_timelines: new_first,
            ..first
        };
        let second = Self {
            table: self.table,
            request: self.request,
            new_timelines: new_second,
            ..second
        };
        (first, second)
    }

    /// Returns true if the delta has several rows and no delete.
    pub fn can_split(&self) -> bool {
        self.rows() > 1 && self.delete.is_none()
    }
}

/// Returns a copy of some rows of a group.
fn part(group: &DeltaGroup, rows: std::ops::Range<usize>) -> DeltaGroup {
    let mut measurements = group.measurements.clone();
    let keep: Vec<bool> = (0..group.rows()).map(|row| rows.contains(&row)).collect();
    measurements.retain(&keep);
    DeltaGroup {
        measurements,
        fields: group.fields.clone(),
        columns: group
            .columns
            .iter()
            .map(|column| column.pick(rows.clone()))
            .collect(),
        timelines: group.timelines[rows.clone()].to_vec(),
        timestamps: group.timestamps[rows].to_vec(),
    }
}

/// Returns a delta of `groups` that lists only the timelines of their rows. In the given groups, rows refer to
/// timelines by their index in `known`.
fn with_timelines(mut groups: Vec<DeltaGroup>, known: &[TimelineId]) -> Delta {
    let mut new_indexes = vec![UNKNOWN; known.len()];
    let mut timelines = Vec::new();
    for timeline in groups.iter_mut().flat_map(|group| &mut group.timelines) {
        let index = &mut new_indexes[*timeline as usize];
        if *index == UNKNOWN {
            *index = timelines.len() as u32;
            timelines.push(known[*timeline as usize]);
        }
        *timeline = *index;
    }
    Delta {
        timelines,
        groups,
        ..Delta::default()
    }
}
