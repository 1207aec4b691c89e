//! Column groups: columns that are stored apart from the other columns of their rows.
//!
//! Journal, row buffer, conditions and indexes use whole rows. A flush divides each changed row into *shares*: the main
//! share, and one per group. Each share is stored in a separate part, under an id from the number range of tables, with
//! the same part number and the same row keys. A flush writes a share only if the change concerns it, and a read joins
//! only the shares that it needs.
//!
//! The main share of a changed row is always written. It alone determines whether the row exists. It also holds the
//! time of the row, so all shares expire together. A share of a group that has no columns is not stored.
//!
//! # Consistent reads
//!
//! While a flush writes the shares of a row one after the other, readers overlay its generation on them. Applying a
//! generation again changes nothing, so a read of a share has the same result before and after the share is written.
//!
//! A change that is applied after a reader has read the buffers could be flushed before the reader has read all shares.
//! Like every reader of parts, a reader of shares therefore reads again if a generation was frozen during the read; see
//! [`state`](crate::state).

use bytes::Bytes;
use tideline_model::{ColumnGroupSpec, GroupCompression, TableId, WideSpec};

use crate::codec;
use crate::columns::ColumnSpan;
use crate::error::{Damage, Result as StoreResult, WideError};
use crate::mutation::{Column, ColumnName, Effect, Mutation};
use crate::state::{Part, State};
use crate::store::WideStore;
use crate::tables::TableRules;

/// Maximum number of column groups of a table. Each group adds one lookup to a read of a whole row.
pub const GROUPS_MAX: usize = 16;

/// Columns of a row that are stored together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// Columns outside of the groups.
    Main,
    /// Columns of the group at this position of the settings.
    Group(usize),
}

/// Set of column groups that a read needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupSet(u16);

impl GroupSet {
    /// All groups: whole rows.
    pub const ALL: Self = Self(u16::MAX);
    /// No group: only the columns that are stored with the row.
    pub const NONE: Self = Self(0);

    /// Returns the set with the group at a position of the settings, below [`GROUPS_MAX`].
    #[must_use]
    pub fn with(self, group: usize) -> Self {
        Self(self.0 | 1 << group)
    }

    /// Returns the groups of both sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) fn has(self, group: usize) -> bool {
        self.0 & 1 << group != 0
    }
}

/// Column groups of a table.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    specs: Vec<ColumnGroupSpec>,
    /// Group of each declared column that rows store by number, sorted by number.
    declared: Vec<(u32, usize)>,
}

impl Groups {
    /// Compiles the groups of a table.
    pub(crate) fn new(spec: &WideSpec) -> Self {
        let grouped = spec.columns.iter().filter_map(|column| {
            let group = spec.group_of(&column.name)?;
            (column.number > 0 && !column.is_pattern()).then_some((column.number, group))
        });
        let mut declared: Vec<(u32, usize)> = grouped.collect();
        declared.sort_unstable();
        Self {
            specs: spec.groups.clone(),
            declared,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    /// Returns the ids of the groups, in the order of the settings.
    pub(crate) fn ids(&self) -> impl Iterator<Item = TableId> {
        self.specs.iter().map(|group| TableId(group.id))
    }

    /// Returns the name of a group.
    pub(crate) fn name(&self, group: usize) -> &str {
        &self.specs[group].name
    }

    /// Returns the compression of the packed columns of a group.
    pub(crate) fn compression(&self, group: usize) -> GroupCompression {
        self.specs[group].compression
    }

    /// Returns the positions and ids of the groups of a set.
    pub(crate) fn of_set(&self, set: GroupSet) -> impl Iterator<Item = (usize, TableId)> {
        self.ids().enumerate().filter(move |(group, _)| set.has(*group))
    }

    /// Returns the share that stores a column.
    pub(crate) fn share_of(&self, name: &ColumnName<'_>) -> Share {
        let group = match name {
            ColumnName::Declared(number) => {
                let found = self.declared.binary_search_by_key(number, |(number, _)| *number);
                found.ok().map(|at| self.declared[at].1)
            }
            ColumnName::Named(name) => self.specs.iter().position(|group| group.holds(name)),
        };
        group.map_or(Share::Main, Share::Group)
    }

    /// Returns the groups that can store columns of a span.
    pub(crate) fn in_span(&self, span: &ColumnSpan<'_>) -> GroupSet {
        let declared = span.declared.iter().map(|number| ColumnName::Declared(*number));
        let declared = declared.filter_map(|name| match self.share_of(&name) {
            Share::Group(group) => Some(group),
            Share::Main => None,
        });
        let is_below_end = |name: &str| span.to.is_none_or(|to| name < to);
        let is_named = |name: &String| match name.strip_suffix('*') {
            Some(start) => is_below_end(start) && (start >= span.from || span.from.starts_with(start)),
            None => is_below_end(name) && name.as_str() >= span.from,
        };
        let named = self.specs.iter().enumerate();
        let named = named.filter(|(_, group)| group.columns.iter().any(is_named));
        let groups = declared.chain(named.map(|(group, _)| group));
        groups.fold(GroupSet::NONE, GroupSet::with)
    }

    /// Restricts an encoded mutation to one share. Returns `None` if the mutation does not change this share.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the mutation is damaged.
    pub(crate) fn cut(&self, mutation: &Bytes, share: Share) -> Result<Option<Bytes>, Damage> {
        if self.specs.is_empty() {
            return Ok(Some(mutation.clone()));
        }
        let mut decoded = codec::decode(mutation)?;
        let before = decoded.columns.len();
        decoded
            .columns
            .retain(|column| self.share_of(&column.name) == share);
        if share != Share::Main && decoded.columns.is_empty() {
            return Ok(match decoded.effect {
                Effect::Update => None,
                Effect::Replace | Effect::Delete => Some(codec::deleted_marker()),
            });
        }
        Ok(Some(match decoded.columns.len() == before {
            true => mutation.clone(),
            false => codec::encoded(&decoded),
        }))
    }
}

/// Joins the shares of a row. The time of the row is that of its main share.
///
/// # Errors
///
/// [`Damage`] if a share is damaged, or two shares have the same column.
pub(crate) fn join(main: Bytes, of_groups: &[Bytes]) -> Result<Bytes, Damage> {
    if of_groups.is_empty() {
        return Ok(main);
    }
    let whole = codec::decode(&main)?;
    let mut columns: Vec<Column<'_>> = whole.columns;
    for share in of_groups {
        columns.extend(codec::decode(share)?.columns);
    }
    columns.sort_by(|one, other| one.name.cmp(&other.name));
    if columns.windows(2).any(|pair| pair[0].name == pair[1].name) {
        return Err(Damage("a column of a row is stored in two groups"));
    }
    Ok(codec::encoded(&Mutation {
        effect: Effect::Replace,
        time: whole.time,
        columns,
    }))
}

impl State {
    /// Returns the parts of the column groups that belong to a part of a table, with the positions of their groups.
    /// Returns no parts for a part in the archive, because it has whole rows.
    pub(crate) fn group_parts<'s>(
        &'s self,
        rules: &'s TableRules,
        part: &Part,
        set: GroupSet,
    ) -> impl Iterator<Item = (usize, &'s Part)> {
        let number = part.number();
        let groups = (!part.is_archived()).then(|| rules.groups.of_set(set));
        groups
            .into_iter()
            .flatten()
            .filter_map(move |(group, id)| Some((group, self.parts.get(&(id, number))?)))
    }
}

impl WideStore {
    /// Returns a row of a part together with the columns of the groups in `set`. `main` is the main share of the row.
    pub(crate) fn with_groups(
        &self,
        state: &State,
        rules: &TableRules,
        part: &Part,
        (key, main): (&[u8], Bytes),
        set: GroupSet,
    ) -> StoreResult<Bytes> {
        let mut of_groups = Vec::new();
        for (_, of_group) in state.group_parts(rules, part, set) {
            of_groups.extend(self.stored_in(of_group, key)?);
        }
        let joined = join(main, &of_groups);
        joined.map_err(|reason| WideError::Damaged {
            table: part.at.table,
            reason,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::CellValue;

    fn spec() -> WideSpec {
        let spec = serde_json::json!({
            "key": [{"name": "id", "type": "string"}],
            "columns": [
                {"name": "price", "type": "i64", "number": 1},
                {"name": "description", "type": "string", "number": 2},
                {"name": "picture_*", "type": "string"},
            ],
            "groups": [
                {"id": 7, "name": "texts", "columns": ["description", "notes"]},
                {"id": 8, "name": "pictures", "columns": ["picture_*"]},
            ],
        });
        serde_json::from_value(spec).expect("valid settings")
    }

    fn named(name: &'static str) -> ColumnName<'static> {
        ColumnName::Named(name.into())
    }

    #[test]
    fn a_column_belongs_to_the_first_group_that_holds_its_name() {
        let groups = Groups::new(&spec());
        for (name, share) in [
            (ColumnName::Declared(1), Share::Main),
            (ColumnName::Declared(2), Share::Group(0)),
            (ColumnName::Declared(9), Share::Main),
            (named("notes"), Share::Group(0)),
            (named("note"), Share::Main),
            (named("picture_1"), Share::Group(1)),
            (named("picture"), Share::Main),
        ] {
            assert_eq!(groups.share_of(&name), share, "{name:?}");
        }
    }

    #[test]
    fn a_span_reads_the_groups_that_can_store_its_columns() {
        let groups = Groups::new(&spec());
        for (declared, from, to, set) in [
            (&[][..], "", None, GroupSet::ALL),
            (&[][..], "", Some("notes"), GroupSet::NONE.with(0)),
            (&[2][..], "", Some("a"), GroupSet::NONE.with(0)),
            (&[1][..], "notes", Some("o"), GroupSet::NONE.with(0)),
            (&[][..], "picture_12", Some("picture_13"), GroupSet::NONE.with(1)),
            (&[][..], "picturf", None, GroupSet::NONE),
        ] {
            let span = ColumnSpan {
                declared,
                from,
                to,
                limit: 1,
            };
            let found = groups.in_span(&span);
            for group in 0..2 {
                assert_eq!(found.has(group), set.has(group), "group {group} of {span:?}");
            }
        }
    }

    #[test]
    fn the_shares_of_a_row_are_the_row() {
        let groups = Groups::new(&spec());
        let text = |text: &'static str| CellValue::String(text.into());
        let row = Mutation {
            effect: Effect::Replace,
            time: 9,
            columns: vec![
                Column::with(ColumnName::Declared(1), 9, CellValue::I64(5)),
                Column::with(ColumnName::Declared(2), 4, text("long")),
                Column::with(named("picture_1"), 3, text("large")),
                Column::with(named("stock"), 9, CellValue::I64(1)),
            ],
        };
        let row = codec::encoded(&row);
        let cut = |share| {
            groups
                .cut(&row, share)
                .expect("it is intact")
                .expect("it has columns")
        };
        let shares = [cut(Share::Group(0)), cut(Share::Group(1))];
        assert_eq!(join(cut(Share::Main), &shares), Ok(row.clone()));
        assert!(join(row, &shares).is_err(), "no column is stored twice");
    }

    #[test]
    fn a_change_of_other_columns_does_not_concern_a_group() {
        let groups = Groups::new(&spec());
        let mutation = |effect| {
            codec::encoded(&Mutation {
                effect,
                time: 1,
                columns: vec![Column::with(ColumnName::Declared(1), 1, CellValue::I64(5))],
            })
        };
        let (update, replace) = (mutation(Effect::Update), mutation(Effect::Replace));
        assert_eq!(groups.cut(&update, Share::Group(0)), Ok(None));
        let of_group = groups.cut(&replace, Share::Group(0)).expect("it is intact");
        assert!(codec::is_delete(&of_group.expect("the group is emptied")));
        assert_eq!(groups.cut(&update, Share::Main), Ok(Some(update.clone())));
    }
}
