//! Set operators `and`, `or`, `unless`: filter series of one side by the presence of matching series on the
//! other.

use super::Scope;
use super::column::{Column, ColumnBuilder};
use super::matching::match_groups;
use crate::ast::{BinaryOp, VectorMatching};
use crate::error::Result;

impl Scope<'_> {
    /// Evaluates a set operator. The caller adjusts the budget.
    pub(super) fn set(
        &self,
        op: BinaryOp,
        left: Vec<Column>,
        right: Vec<Column>,
        matching: &VectorMatching,
    ) -> Result<Vec<Column>> {
        let groups = match_groups(self, &left, &right, matching)?;
        let mut sides = [
            left.into_iter().map(Some).collect::<Vec<_>>(),
            right.into_iter().map(Some).collect::<Vec<_>>(),
        ];
        let mut from_left: Vec<(usize, Column)> = Vec::new();
        let mut from_right: Vec<(usize, Column)> = Vec::new();
        for (number, group) in groups.iter().enumerate() {
            self.check_now_and_then(number)?;
            let takes = |side: &mut Vec<Option<Column>>, positions: &[usize]| -> Vec<(usize, Column)> {
                let taken = positions
                    .iter()
                    .map(|position| (*position, side[*position].take()));
                taken
                    .filter_map(|(position, column)| Some((position, column?)))
                    .collect()
            };
            let lefts = takes(&mut sides[0], &group.left);
            let rights = takes(&mut sides[1], &group.right);
            match op {
                BinaryOp::And => {
                    let there = self.steps_of(&rights);
                    from_left.extend(self.kept(lefts, &there, true));
                }
                BinaryOp::Unless => {
                    let there = self.steps_of(&rights);
                    from_left.extend(self.kept(lefts, &there, false));
                }
                _ => {
                    let there = self.steps_of(&lefts);
                    from_left.extend(lefts);
                    from_right.extend(self.kept(rights, &there, false));
                }
            }
        }
        // The result of an instant query keeps the order of the operands.
        from_left.sort_by_key(|(position, _)| *position);
        from_right.sort_by_key(|(position, _)| *position);
        let columns = from_left.into_iter().chain(from_right).map(|(_, column)| column);
        self.merged_always(columns.collect())
    }

    /// Returns a flag per step: true if any of the series has a value there. Empty without series.
    fn steps_of(&self, columns: &[(usize, Column)]) -> Vec<bool> {
        match columns.is_empty() {
            true => Vec::new(),
            false => self.steps_with_any(columns.iter().map(|(_, column)| column)),
        }
    }

    /// Keeps the values at the steps whose mark equals `wanted`; a missing mark counts as false.
    fn kept(&self, columns: Vec<(usize, Column)>, marks: &[bool], wanted: bool) -> Vec<(usize, Column)> {
        let is_kept = |step: usize| marks.get(step).copied().unwrap_or(false) == wanted;
        let kept = columns.into_iter().filter_map(|(position, column)| {
            if (column.first..column.end()).all(is_kept) {
                return Some((position, column));
            }
            let mut builder = ColumnBuilder::new(self.grid.steps);
            for (step, cell) in column.cells().filter(|(step, _)| is_kept(*step)) {
                builder.push_cell(step, cell);
            }
            Some((
                position,
                builder.finish(column.labels.clone(), column.drops_name)?,
            ))
        });
        kept.collect()
    }
}
