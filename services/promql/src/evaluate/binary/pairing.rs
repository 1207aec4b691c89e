//! The series of two vectors, group by group: which meet, and what they come to.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::super::Scope;
use super::super::column::{Cell, Column, ColumnBuilder, is_absent, without_metadata};
use super::super::labels_call::with_label;
use super::super::matching::matching_labels;
use super::Operation;
use super::operate::{Outcome, operate};
use crate::ast::{Cardinality, VectorMatching};
use crate::error::{PromqlError, Result};
use crate::labels::Labels;
use crate::math;

/// Pairs the series of two vectors. One to one, the left side is that of many.
pub(super) struct Pairing<'a> {
    pub(super) scope: &'a Scope<'a>,
    pub(super) operation: Operation,
    pub(super) matching: &'a VectorMatching,
    pub(super) many: &'a [Column],
    pub(super) one: &'a [Column],
    /// Whether the left side is that of one.
    pub(super) swaps: bool,
    /// Steps at which both sides have any series: nowhere else do rivals matter. `None` = everywhere.
    pub(super) shared_steps: Option<Vec<bool>>,
    /// Columns behind the place of their series of the side of many.
    pub(super) result: Vec<(usize, Column)>,
}

/// Two series that meet.
struct Pair {
    many: usize,
    /// `None` = what is filled in.
    one: Option<usize>,
    labels: Labels,
}

/// What two series come to.
struct Paired {
    builder: ColumnBuilder,
    /// Steps at which they met, whether or not anything is kept; empty = nobody asks.
    met: Vec<bool>,
}

/// What has been met so far in a group.
struct Meetings {
    any: Vec<bool>,
    by_labels: HashMap<Labels, Vec<bool>>,
}

impl Pairing<'_> {
    /// Pairs the series of a group, given by their places.
    pub(super) fn group(&mut self, many: &[usize], one: &[usize]) -> Result<()> {
        let (fill_one, fill_many) = (self.matching.fill_right, self.matching.fill_left);
        let pairs = self.pairs(many, one, fill_one.is_some());
        let fill_many = fill_many.filter(|_| !one.is_empty());
        let are_watched = fill_many.is_some() || self.may_collide(many, &pairs);
        let steps = if are_watched { self.scope.grid.steps } else { 0 };
        let mut meetings = Meetings {
            any: vec![false; steps],
            by_labels: HashMap::new(),
        };
        for pair in pairs {
            let many = &self.many[pair.many];
            let paired = match (pair.one, fill_one) {
                (Some(one), _) => self.met(many, &self.one[one], steps),
                (None, Some(fill)) => self.filled_one(many, one, fill, steps),
                (None, None) => continue,
            };
            self.watch(&paired, &pair.labels, &mut meetings)?;
            self.finish(pair.many, pair.labels, paired);
        }
        let Some(fill) = fill_many else { return Ok(()) };
        let met = meetings.any.clone();
        for &place in one {
            let series = &self.one[place];
            let labels = self.result_labels(&matching_labels(&series.labels, self.matching), &series.labels);
            let paired = self.filled_many(series, fill, &met);
            self.watch(&paired, &labels, &mut meetings)?;
            self.finish(self.many.len() + place, labels, paired);
        }
        Ok(())
    }

    fn pairs(&self, many: &[usize], one: &[usize], has_fill: bool) -> Vec<Pair> {
        let mut pairs = Vec::with_capacity(many.len() * one.len());
        for &many in many {
            let labels = &self.many[many].labels;
            pairs.extend(one.iter().map(|&one| Pair {
                many,
                one: Some(one),
                labels: self.result_labels(labels, &self.one[one].labels),
            }));
            if has_fill {
                pairs.push(Pair {
                    many,
                    one: None,
                    labels: self.result_labels(labels, &matching_labels(labels, self.matching)),
                });
            }
        }
        pairs
    }

    /// Whether results of different series may stand beside each other where they must not.
    fn may_collide(&self, many: &[usize], pairs: &[Pair]) -> bool {
        if self.matching.cardinality == Cardinality::OneToOne || many.len() <= 1 {
            return many.len() > 1;
        }
        let mut owners: HashMap<&Labels, usize> = HashMap::with_capacity(pairs.len());
        pairs.iter().any(|pair| match owners.entry(&pair.labels) {
            Entry::Occupied(owner) => *owner.get() != pair.many,
            Entry::Vacant(entry) => {
                entry.insert(pair.many);
                false
            }
        })
    }

    fn finish(&mut self, place: usize, labels: Labels, paired: Paired) {
        let column = paired.builder.finish(labels, self.operation.return_bool);
        self.result.extend(column.map(|column| (place, column)));
    }

    /// Several series of the side of one may follow each other in time, but not stand beside each other.
    pub(super) fn check_rivals(&self, one: &[usize]) -> Result<()> {
        let mut owner: Vec<Option<usize>> = vec![None; self.scope.grid.steps];
        for &place in one {
            for (step, _) in self.one[place].cells() {
                if self.shared_steps.as_ref().is_some_and(|shared| !shared[step]) {
                    continue;
                }
                if let Some(other) = owner[step].replace(place) {
                    return Err(self.rivals(&self.one[place].labels, &self.one[other].labels));
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

    fn met(&self, many: &Column, one: &Column, watched: usize) -> Paired {
        let mut paired = self.paired(watched);
        let steps = many.first.max(one.first)..many.end().min(one.end());
        if steps.is_empty() {
            return paired;
        }
        if watched == 0 && !many.has_histograms() && !one.has_histograms() {
            self.met_numbers(many, one, steps, &mut paired.builder);
            return paired;
        }
        for step in steps {
            if let (Some(many), Some(one)) = (many.cell(step), one.cell(step)) {
                self.meet(step, many, one, &mut paired);
            }
        }
        paired
    }

    /// Numbers only, and nobody asks where they met.
    fn met_numbers(
        &self,
        many: &Column,
        one: &Column,
        steps: std::ops::Range<usize>,
        builder: &mut ColumnBuilder,
    ) {
        let values =
            |column: &'_ Column| column.values[steps.start - column.first..steps.end - column.first].to_vec();
        let (left, right) = match self.swaps {
            true => (values(one), values(many)),
            false => (values(many), values(one)),
        };
        let Operation { op, return_bool, .. } = self.operation;
        for (at, (&left, &right)) in left.iter().zip(&right).enumerate() {
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
                let outcome = operate(op, Cell::Float(left), Cell::Float(right));
                self.scope.remark(self.operation, &outcome);
            }
        }
    }

    /// A series of the side of many where it meets none of the side of one.
    fn filled_one(&self, many: &Column, one: &[usize], fill: f64, watched: usize) -> Paired {
        let mut paired = self.paired(watched);
        for (step, cell) in many.cells() {
            if one.iter().all(|place| self.one[*place].cell(step).is_none()) {
                self.meet(step, cell, Cell::Float(fill), &mut paired);
            }
        }
        paired
    }

    /// A series of the side of one where nothing has met it.
    fn filled_many(&self, one: &Column, fill: f64, met: &[bool]) -> Paired {
        let mut paired = self.paired(met.len());
        for (step, cell) in one.cells().filter(|(step, _)| !met[*step]) {
            self.meet(step, Cell::Float(fill), cell, &mut paired);
        }
        paired
    }

    fn paired(&self, watched: usize) -> Paired {
        Paired {
            builder: ColumnBuilder::new(self.scope.grid.steps),
            met: vec![false; watched],
        }
    }

    fn meet(&self, step: usize, many: Cell<'_>, one: Cell<'_>, paired: &mut Paired) {
        let (left, right) = if self.swaps { (one, many) } else { (many, one) };
        let outcome = operate(self.operation.op, left, right);
        self.scope.remark(self.operation, &outcome);
        if matches!(outcome, Outcome::Refused(_)) {
            return;
        }
        if let Some(met) = paired.met.get_mut(step) {
            *met = true;
        }
        match outcome {
            Outcome::Value(point) | Outcome::Noted(point, _) => paired.builder.push(step, point),
            Outcome::Holds(holds) if self.operation.return_bool => {
                paired.builder.push_float(step, f64::from(u8::from(holds)));
            }
            Outcome::Holds(true) => paired.builder.push_cell(step, left),
            Outcome::Holds(false) | Outcome::Refused(_) => {}
        }
    }

    /// Within a group results may not stand beside each other under equal labels; one to one, not at all.
    fn watch(&self, paired: &Paired, labels: &Labels, meetings: &mut Meetings) -> Result<()> {
        if paired.met.is_empty() {
            return Ok(());
        }
        let (known, message) = match self.matching.cardinality {
            Cardinality::OneToOne => (
                &mut meetings.any,
                "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)",
            ),
            _ => {
                for (any, now) in meetings.any.iter_mut().zip(&paired.met) {
                    *any |= now;
                }
                let steps = paired.met.len();
                (
                    meetings
                        .by_labels
                        .entry(labels.clone())
                        .or_insert_with(|| vec![false; steps]),
                    "multiple matches for labels: grouping labels must ensure unique matches",
                )
            }
        };
        for (known, now) in known.iter_mut().zip(&paired.met) {
            if *known && *now {
                return Err(PromqlError::Execution(message.to_owned()));
            }
            *known |= now;
        }
        Ok(())
    }

    /// The labels of what two series come to: those of the side of many, with what is taken over from the side of one.
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
