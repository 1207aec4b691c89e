//! Two deltas from one that is too large for an entry of the journal.

use std::collections::HashSet;

use tideline_model::TimelineId;

use super::{Delta, DeltaGroup};

/// Marks a timeline that no row has named yet.
const UNKNOWN: u32 = u32::MAX;

impl Delta {
    /// Two deltas that say the same one after the other: the first half of the rows, and the rest.
    ///
    /// Each timeline is introduced by the first that names it; the request is remembered with the second, since before it
    /// the request is not done. The groups of each are in their order: a group that is cut in two is the last of one and
    /// the first of the other.
    ///
    /// # Panics
    ///
    /// When it [cannot be split](Self::can_split).
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

    /// Whether it has several rows and no delete.
    pub fn can_split(&self) -> bool {
        self.rows() > 1 && self.delete.is_none()
    }
}

/// Some rows of a group.
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

/// A delta of these groups, whose rows name timelines by their places in `known`.
fn with_timelines(mut groups: Vec<DeltaGroup>, known: &[TimelineId]) -> Delta {
    let mut places = vec![UNKNOWN; known.len()];
    let mut timelines = Vec::new();
    for timeline in groups.iter_mut().flat_map(|group| &mut group.timelines) {
        let place = &mut places[*timeline as usize];
        if *place == UNKNOWN {
            *place = timelines.len() as u32;
            timelines.push(known[*timeline as usize]);
        }
        *timeline = *place;
    }
    Delta {
        timelines,
        groups,
        ..Delta::default()
    }
}
