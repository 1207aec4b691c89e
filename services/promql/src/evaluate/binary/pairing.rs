//! Vector matching: joins the series of both operands, group by group.
//!
//! A group contains the series with equal matching labels. Pairs of these series are joined in the order of the "many"
//! side. Steps at which pairs matched are tracked only if duplicates or fill values require it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use super::super::Scope;
use super::super::budget::Making;
use super::super::column::{Cell, Column, ColumnBuilder, is_absent, without_metadata};
use super::super::labels_call::with_label;
use super::super::matching::matching_labels;
use super::Operation;
use super::marks::Marks;
use super::operate::{Outcome, operate};
use crate::ast::{Cardinality, VectorMatching};
use crate::error::{PromqlError, Result};
use crate::labels::Labels;
use crate::math;

/// Maximum number of pairs of a group whose labels are computed in advance. If a group has more pairs, the labels are
/// computed pair by pair.
const PAIRS_KEPT: usize = 1 << 16;

/// Number of steps processed between two checks for timeout and cancellation.
const UNCHECKED_MAX: usize = 1 << 16;

/// Join of two vectors. With one-to-one matching, the left side is the "many" side.
pub(super) struct Pairing<'a> {
    pub(super) scope: &'a Scope<'a>,
    pub(super) operation: Operation,
    pub(super) matching: &'a VectorMatching,
    pub(super) many: &'a [Column],
    pub(super) one: &'a [Column],
    /// True if the left side is the "one" side.
    pub(super) swaps: bool,
    /// Steps at which both sides have at least one series. Duplicates matter only there. `None` means all
    /// steps.
    pub(super) shared_steps: Option<Vec<bool>>,
    /// Result columns, each with a sort position: the position of its series on the "many" side. A series of the "one"
    /// side that is joined with a fill value is positioned after all series of the "many" side.
    pub(super) result: Vec<(usize, Column)>,
    /// Cost of the result. With many series on both sides, there may be as many result series as pairs.
    pub(super) making: Making<'a>,
    /// Number of steps processed since the last check.
    pub(super) unchecked: usize,
}

/// Series of a group, by position.
#[derive(Clone, Copy)]
struct Group<'a> {
    many: &'a [usize],
    one: &'a [usize],
    /// True if series of the "many" side are also paired with a fill value.
    fills: bool,
}

impl Group<'_> {
    /// Iterates over the pairs of positions; `None` represents the fill value.
    fn pairs(&self) -> impl Iterator<Item = (usize, Option<usize>)> {
        self.many.iter().flat_map(|&many| {
            let ones = self.one.iter().map(|one| Some(*one));
            ones.chain(self.fills.then_some(None)).map(move |one| (many, one))
        })
    }

    fn pair_count(&self) -> usize {
        self.many
            .len()
            .saturating_mul(self.one.len() + usize::from(self.fills))
    }
}

/// Join of two series.
#[derive(Debug)]
struct Paired {
    builder: ColumnBuilder,
    /// Steps at which the outcome is not [`Outcome::Refused`]: the operator has a result, or a filter has dropped the
    /// value. `None` means that the steps are not tracked.
    met: Option<Marks>,
}

/// Steps matched so far in a group.
struct Meetings<'a> {
    any: Marks,
    by_labels: HashMap<Labels, Marks>,
    making: Making<'a>,
}

impl<'a> Pairing<'a> {
    /// Joins the series of a group, given by position.
    pub(super) fn group(&mut self, many: &[usize], one: &[usize]) -> Result<()> {
        let (fill_one, fill_many) = (self.matching.fill_right, self.matching.fill_left);
        let fill_many = fill_many.filter(|_| !one.is_empty());
        let group = Group {
            many,
            one,
            fills: fill_one.is_some(),
        };
        let (labels, may_collide) = self.labels_of(group)?;
        let is_watched = fill_many.is_some() || may_collide;
        let mut meetings = Meetings {
            any: Marks::default(),
            by_labels: HashMap::new(),
            making: Making::of(self.scope.budget(), many.len() + one.len()),
        };
        // Fill values apply only at steps without a series of the "one" side.
        let there = match group.fills {
            true => self
                .scope
                .steps_with_any(one.iter().map(|position| &self.one[*position])),
            false => Vec::new(),
        };
        for (number, (position, one)) in group.pairs().enumerate() {
            self.scope.check_now_and_then(number)?;
            let many = &self.many[position];
            let paired = match (one, fill_one) {
                (Some(one), _) => self.met(many, &self.one[one], is_watched)?,
                (None, Some(fill)) => self.filled_one(many, &there, fill, is_watched)?,
                (None, None) => continue,
            };
            if paired.is_empty() {
                continue;
            }
            let labels = match labels.get(number) {
                Some(labels) => labels.clone(),
                None => self.labels_of_pair(position, one),
            };
            self.watch(&paired, &labels, &mut meetings)?;
            self.finish(position, labels, paired)?;
        }
        let Some(fill) = fill_many else { return Ok(()) };
        let met = meetings.any.clone();
        for &position in one {
            let series = &self.one[position];
            let labels = self.result_labels(&matching_labels(&series.labels, self.matching), &series.labels);
            let paired = self.filled_many(series, fill, &met)?;
            self.watch(&paired, &labels, &mut meetings)?;
            self.finish(self.many.len() + position, labels, paired)?;
        }
        Ok(())
    }

    /// Computes the labels of all pairs; returns no labels for more than [`PAIRS_KEPT`] pairs. The flag is true if
    /// results of different series of the "many" side may conflict at a step. The steps of the results must then be
    /// tracked.
    fn labels_of(&self, group: Group<'_>) -> Result<(Vec<Labels>, bool)> {
        if group.pair_count() > PAIRS_KEPT {
            return Ok((Vec::new(), true));
        }
        let mut labels = Vec::with_capacity(group.pair_count());
        for (number, (many, one)) in group.pairs().enumerate() {
            self.scope.check_now_and_then(number)?;
            labels.push(self.labels_of_pair(many, one));
        }
        if self.matching.cardinality == Cardinality::OneToOne || group.many.len() <= 1 {
            return Ok((labels, group.many.len() > 1));
        }
        let mut owners: HashMap<&Labels, usize> = HashMap::with_capacity(labels.len());
        let mut owned = group.pairs().zip(&labels);
        let may_collide = owned.any(|((many, _), labels)| match owners.entry(labels) {
            Entry::Occupied(owner) => *owner.get() != many,
            Entry::Vacant(entry) => {
                entry.insert(many);
                false
            }
        });
        Ok((labels, may_collide))
    }

    fn labels_of_pair(&self, many: usize, one: Option<usize>) -> Labels {
        let many = &self.many[many].labels;
        match one {
            Some(one) => self.result_labels(many, &self.one[one].labels),
            None => self.result_labels(many, &matching_labels(many, self.matching)),
        }
    }

    fn finish(&mut self, position: usize, labels: Labels, paired: Paired) -> Result<()> {
        if let Some(column) = paired.builder.finish(labels, self.operation.return_bool) {
            self.making.take_series(&column.labels)?;
            self.making.take(column.cost())?;
            self.result.push((position, column));
        }
        Ok(())
    }

    /// Checks that no two series of the "one" side have a value at the same step. Only `shared_steps` are
    /// checked.
    pub(super) fn check_rivals(&self, one: &[usize]) -> Result<()> {
        if one.len() <= 1 {
            return Ok(());
        }
        let columns = || one.iter().map(|position| &self.one[*position]);
        let first = columns().map(|column| column.first).min().unwrap_or(0);
        let end = columns().map(Column::end).max().unwrap_or(0);
        // Position in the group plus one; zero means no series.
        let mut owners = vec![0_u32; end - first];
        for (number, column) in (1_u32..).zip(columns()) {
            self.scope.check_now_and_then(number as usize)?;
            for (step, _) in column.cells() {
                if self.shared_steps.as_ref().is_some_and(|shared| !shared[step]) {
                    continue;
                }
                let other = std::mem::replace(&mut owners[step - first], number) as usize;
                if other > 0 {
                    return Err(self.rivals(&column.labels, &self.one[one[other - 1]].labels));
                }
            }
        }
        Ok(())
    }

    fn rivals(&self, a: &Labels, b: &Labels) -> PromqlError {
        let side = if self.swaps { "left" } else { "right" };
        let group = matching_labels(a, self.matching);
        let (mut a, mut b) = (a.to_string(), b.to_string());
        if a > b {
            std::mem::swap(&mut a, &mut b);
        }
        PromqlError::Execution(format!(
            "found duplicate series for the match group {group} on the {side} hand-side of the operation: [{a}, \
             {b}];many-to-many matching not allowed: matching labels must be unique on one side"
        ))
    }

    fn met(&mut self, many: &Column, one: &Column, is_watched: bool) -> Result<Paired> {
        let steps = many.first.max(one.first)..many.end().min(one.end());
        self.check_after(steps.len())?;
        if steps.is_empty() {
            return Ok(Paired::of(0, is_watched));
        }
        let mut paired = Paired::of(steps.end, is_watched);
        if !is_watched && !many.has_histograms() && !one.has_histograms() {
            self.met_numbers(many, one, steps, &mut paired.builder)?;
            return Ok(paired);
        }
        for step in steps {
            if let (Some(many), Some(one)) = (many.cell(step), one.cell(step)) {
                self.push_pair(step, many, one, &mut paired)?;
            }
        }
        Ok(paired)
    }

    /// Joins two series of floats without tracking the matched steps.
    fn met_numbers(
        &mut self,
        many: &Column,
        one: &Column,
        steps: Range<usize>,
        builder: &mut ColumnBuilder,
    ) -> Result<()> {
        let (many, one) = (many.floats(steps.clone()), one.floats(steps.clone()));
        let (left, right) = if self.swaps { (one, many) } else { (many, one) };
        let Operation { op, return_bool, .. } = self.operation;
        for (at, (&left, &right)) in left.iter().zip(right).enumerate() {
            if is_absent(left) || is_absent(right) {
                continue;
            }
            let step = steps.start + at;
            if let Some(value) = math::arithmetic(op, left, right) {
                builder.push_float(step, value);
            } else if let Some(holds) = math::comparison(op, left, right) {
                if return_bool {
                    builder.push_float(step, f64::from(u8::from(holds)));
                } else if holds {
                    builder.push_float(step, left);
                }
            } else {
                self.check_after(0)?;
                let outcome = operate(op, Cell::Float(left), Cell::Float(right));
                self.scope.remark(self.operation, &outcome);
            }
        }
        Ok(())
    }

    /// Joins a series of the "many" side with the fill value, at the steps without a series of the "one" side.
    /// `there` marks the steps with such a series.
    fn filled_one(&mut self, many: &Column, there: &[bool], fill: f64, is_watched: bool) -> Result<Paired> {
        let mut paired = Paired::of(many.end(), is_watched);
        for (step, cell) in many.cells().filter(|(step, _)| !there[*step]) {
            self.push_pair(step, cell, Cell::Float(fill), &mut paired)?;
        }
        Ok(paired)
    }

    /// Joins a series of the "one" side with the fill value, at the steps without a match.
    fn filled_many(&mut self, one: &Column, fill: f64, met: &Marks) -> Result<Paired> {
        let mut paired = Paired::of(one.end(), true);
        for (step, cell) in one.cells().filter(|(step, _)| !met.has(*step)) {
            self.push_pair(step, Cell::Float(fill), cell, &mut paired)?;
        }
        Ok(paired)
    }

    /// Counts processed steps and checks for timeout and cancellation once per [`UNCHECKED_MAX`]. Each call
    /// adds one extra step, so that pairs without common steps count as well.
    fn check_after(&mut self, positions: usize) -> Result<()> {
        self.unchecked += positions + 1;
        if self.unchecked < UNCHECKED_MAX {
            return Ok(());
        }
        self.unchecked = 0;
        self.scope.check()
    }

    fn push_pair(&mut self, step: usize, many: Cell<'_>, one: Cell<'_>, paired: &mut Paired) -> Result<()> {
        self.check_after(0)?;
        let (left, right) = if self.swaps { (one, many) } else { (many, one) };
        let outcome = operate(self.operation.op, left, right);
        self.scope.remark(self.operation, &outcome);
        if matches!(outcome, Outcome::Refused(_)) {
            return Ok(());
        }
        if let Some(met) = &mut paired.met {
            met.push(step);
        }
        match outcome {
            Outcome::Value(point) | Outcome::Noted(point, _) => paired.builder.push(step, point),
            Outcome::Holds(holds) if self.operation.return_bool => {
                paired.builder.push_float(step, f64::from(u8::from(holds)));
            }
            Outcome::Holds(true) => paired.builder.push_cell(step, left),
            Outcome::Holds(false) | Outcome::Refused(_) => {}
        }
        Ok(())
    }

    /// Checks that results of a group do not share a step. With one-to-one matching, this applies to all
    /// results, otherwise to results with equal labels.
    fn watch(&self, paired: &Paired, labels: &Labels, meetings: &mut Meetings<'_>) -> Result<()> {
        let Some(met) = &paired.met else {
            return Ok(());
        };
        let (known, message) = match self.matching.cardinality {
            Cardinality::OneToOne => (
                &mut meetings.any,
                "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)",
            ),
            _ => {
                meetings.any.add(met);
                if !meetings.by_labels.contains_key(labels) {
                    meetings.making.take_series(labels)?;
                }
                (
                    meetings.by_labels.entry(labels.clone()).or_default(),
                    "multiple matches for labels: grouping labels must ensure unique matches",
                )
            }
        };
        if known.intersects(met) {
            return Err(PromqlError::Execution(message.to_owned()));
        }
        let before = known.size();
        known.add(met);
        meetings
            .making
            .take((known.size() - before).div_ceil(size_of::<f64>()))
    }

    /// Returns the labels of the result: those of the "many" side, plus the included labels of the "one" side.
    /// One-to-one matching keeps only the matching labels and, with `ignoring`, the metric name. Arithmetic operators
    /// remove the metric name; `bool` removes it unless removal is delayed.
    fn result_labels(&self, many: &Labels, one: &Labels) -> Labels {
        let matching = self.matching;
        let drops =
            self.operation.changes_meaning() || (self.operation.return_bool && !self.scope.delays_names());
        let mut labels = if drops {
            without_metadata(many)
        } else {
            many.clone()
        };
        if matching.cardinality == Cardinality::OneToOne {
            let is_named = |name: &str| matching.labels.iter().any(|label| label == name);
            labels = labels.filtered(|name| is_named(name) == matching.is_on);
        }
        for name in &matching.include {
            labels = with_label(&labels, name, one.get(name).unwrap_or_default());
        }
        labels
    }
}

impl Paired {
    /// Creates an empty join for steps below `end`.
    fn of(end: usize, is_watched: bool) -> Self {
        Self {
            builder: ColumnBuilder::new(end),
            met: is_watched.then(Marks::default),
        }
    }

    /// Returns true if there is neither a value nor a tracked step.
    fn is_empty(&self) -> bool {
        self.builder.is_empty() && self.met.as_ref().is_none_or(|met| met.size() == 0)
    }
}
