//! Groups of an aggregate: timelines that share a result, in result order.
//!
//! Groups are found first and named (given their tags) later: if only a few of many are shown, the tags of the
//! remaining groups are never copied.
//!
//! A timeline that is removed after its selection has no points any more and belongs to no group, unless each timeline
//! is a group.

use std::cmp::Ordering;

use hashbrown::HashMap;
use tideline_engine::Table;
use tideline_engine::model::Ordinal;

use crate::plan::{LOCKED_GROUP, Scope, Selected, for_each_entry};
use crate::point_query::GroupBy;

/// Timelines that share a result.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) measurement: u32,
    /// Timeline of the group, if the group is a single timeline.
    pub(crate) timeline: Option<Selected>,
    /// Tags of the group; empty until the group is named. Always empty if groups are not formed by tags.
    pub(crate) tags: Vec<(String, String)>,
    /// Timeline whose tags name the group.
    example: Ordinal,
}

/// Groups, and the group index of each timeline of the scope; `None` = in no group.
#[derive(Debug)]
pub(crate) struct Groups {
    pub(crate) groups: Vec<Group>,
    pub(crate) of: Vec<Option<u32>>,
}

impl Groups {
    /// Returns the bytes of the groups, including the tags of named groups.
    pub(crate) fn bytes(&self) -> u64 {
        let text = |(key, value): &(String, String)| key.len() + value.len() + size_of::<(String, String)>();
        let group = |group: &Group| size_of::<Group>() + group.tags.iter().map(text).sum::<usize>();
        let groups: usize = self.groups.iter().map(group).sum();
        (groups + self.of.len() * size_of::<Option<u32>>()) as u64
    }
}

impl Scope {
    /// Groups the timelines and sorts the groups in result order.
    pub(crate) fn groups(&self, table: &Table, group_by: &GroupBy) -> Groups {
        let mut found = self.find_groups(table, group_by);
        let all: Vec<u32> = (0..found.groups.len() as u32).collect();
        self.name_groups(table, group_by, &mut found, &all);
        if matches!(group_by, GroupBy::Timeline) {
            return found;
        }
        let Groups { groups, of } = found;
        let mut sorted: Vec<(u32, Group)> = (0..).zip(groups).collect();
        sorted.sort_by(|(_, a), (_, b)| self.compare_groups(a, b));
        let mut position = vec![0; sorted.len()];
        for (new, (old, _)) in (0..).zip(&sorted) {
            position[*old as usize] = new;
        }
        Groups {
            groups: sorted.into_iter().map(|(_, group)| group).collect(),
            of: of
                .into_iter()
                .map(|old| old.map(|old| position[old as usize]))
                .collect(),
        }
    }

    /// Groups the timelines without naming the groups. The groups are in order of their first timelines.
    pub(crate) fn find_groups(&self, table: &Table, group_by: &GroupBy) -> Groups {
        let keys: &[String] = match group_by {
            GroupBy::Timeline => {
                let groups = self.timelines.iter().map(|timeline| Group {
                    measurement: timeline.measurement,
                    timeline: Some(*timeline),
                    tags: Vec::new(),
                    example: timeline.ordinal,
                });
                return Groups {
                    groups: groups.collect(),
                    of: (0..self.timelines.len() as u32).map(Some).collect(),
                };
            }
            GroupBy::Tags(keys) => keys,
            GroupBy::Nothing => &[],
        };
        let mut known: HashMap<Box<[u8]>, u32> = HashMap::new();
        let mut groups: Vec<Group> = Vec::new();
        let mut of = vec![None; self.timelines.len()];
        let mut key = Vec::new();
        let ordinals: Vec<Ordinal> = self.timelines.iter().map(|timeline| timeline.ordinal).collect();
        for_each_entry(table, &ordinals, |at, entry| {
            let timeline = &self.timelines[at];
            key.clear();
            key.extend_from_slice(&timeline.measurement.to_le_bytes());
            for tag in keys {
                let value = entry.tag(tag).unwrap_or_default();
                key.extend_from_slice(&(value.len() as u64).to_le_bytes());
                key.extend_from_slice(value.as_bytes());
            }
            let group = known.get(&key[..]).copied().unwrap_or_else(|| {
                let next = groups.len() as u32;
                known.insert(key.as_slice().into(), next);
                groups.push(Group {
                    measurement: timeline.measurement,
                    timeline: None,
                    tags: Vec::new(),
                    example: timeline.ordinal,
                });
                next
            });
            of[at] = Some(group);
        });
        Groups { groups, of }
    }

    /// Sets the tags of some of the groups. The catalog keeps the tags of a removed timeline until a restart, so a
    /// group gets its tags even if its example was removed.
    pub(crate) fn name_groups(&self, table: &Table, group_by: &GroupBy, groups: &mut Groups, which: &[u32]) {
        let GroupBy::Tags(keys) = group_by else { return };
        for which in which.chunks(LOCKED_GROUP) {
            let reader = table.reader();
            for group in which {
                let group = &mut groups.groups[*group as usize];
                let value = |tag: &String| reader.tag(group.example, tag).unwrap_or_default().to_owned();
                let tags = keys.iter().map(|tag| (tag.clone(), value(tag)));
                group.tags = tags.collect();
            }
        }
    }

    /// Compares named groups in result order: single timelines by id, other groups by measurement and tags.
    pub(crate) fn compare_groups(&self, a: &Group, b: &Group) -> Ordering {
        if let (Some(a), Some(b)) = (a.timeline, b.timeline) {
            return a.id.cmp(&b.id);
        }
        let name = |group: &Group| &self.measurements[group.measurement as usize];
        (name(a), &a.tags).cmp(&(name(b), &b.tags))
    }

    /// Keeps the groups in `kept`, in that order. Removes from the scope the timelines of other groups and the
    /// timelines without a group.
    pub(crate) fn keep_groups(&mut self, groups: Groups, kept: &[u32]) -> Groups {
        let mut position = vec![None; groups.groups.len()];
        for (new, old) in (0..).zip(kept) {
            position[*old as usize] = Some(new);
        }
        let of: Vec<Option<u32>> = groups.of.iter().map(|old| position[(*old)? as usize]).collect();
        let mut is_kept = of.iter().map(Option::is_some);
        self.timelines.retain(|_| is_kept.next().unwrap_or(false));
        let mut all: Vec<Option<Group>> = groups.groups.into_iter().map(Some).collect();
        let in_order = kept.iter().filter_map(|old| all[*old as usize].take());
        Groups {
            groups: in_order.collect(),
            of: of.into_iter().filter(Option::is_some).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
