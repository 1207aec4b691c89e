//! Aggregations. Except for `count_values`, each series is assigned to its group once, for all steps; then each group
//! is aggregated.
//!
//! Submodules by kind of aggregation: `numbers` folds floats, `histograms` adds up histograms, `pick` selects series
//! with the `heap`, `count_values` counts equal values. `parameter` validates parameters.

mod count_values;
mod heap;
mod histograms;
mod numbers;
mod parameter;
mod pick;

use std::collections::HashMap;

use super::budget::Making;
use super::column::Column;
use super::matching::push_text;
use super::{Scalar, Scope, cost};
use crate::annotations::Annotation;
use crate::ast::{AggregateOp, TextRange};
use crate::error::Result;
use crate::labels::{Labels, METRIC_NAME};
use crate::plan::Aggregate;

/// Series that are aggregated into one.
#[derive(Debug)]
struct Group<'a> {
    labels: Labels,
    /// True if the result keeps the metric name, even if members are marked to drop it.
    keeps_name: bool,
    members: Vec<&'a Column>,
}

impl Group<'_> {
    fn drops_name(&self) -> bool {
        !self.keeps_name && self.members.iter().any(|column| column.drops_name)
    }

    fn has_histograms(&self) -> bool {
        self.members.iter().any(|column| column.has_histograms())
    }

    /// Returns the range of steps from the first to the last value of any member.
    fn steps(&self) -> std::ops::Range<usize> {
        let first = self.members.iter().map(|column| column.first).min().unwrap_or(0);
        let end = self.members.iter().map(|column| column.end()).max().unwrap_or(0);
        first..end
    }
}

impl Scope<'_> {
    /// Evaluates an aggregation.
    pub(super) fn aggregate(&self, aggregate: &Aggregate<'_>, at: TextRange) -> Result<Vec<Column>> {
        if aggregate.op == AggregateOp::CountValues {
            return self.count_values(aggregate);
        }
        let parameter = match &aggregate.parameter {
            Some(node) => self.scalar(node)?,
            None => Scalar::Constant(0.0),
        };
        let columns = self.vector(&aggregate.inner)?;
        let is_by_name = !aggregate.is_without && aggregate.grouping.iter().any(|label| label == METRIC_NAME);
        let keeps_name = is_by_name && self.shared.settings.keeps_grouped_names;
        let groups = groups(self, &columns, aggregate, keeps_name)?;
        self.check_parameter(aggregate, &parameter)?;
        let inner = aggregate.inner.at;
        let result = match aggregate.op {
            AggregateOp::TopK | AggregateOp::BottomK | AggregateOp::LimitK | AggregateOp::LimitRatio => {
                self.picked(aggregate.op, &groups, columns.len(), &parameter, at)?
            }
            AggregateOp::Sum | AggregateOp::Avg => {
                self.each_group(&groups, |group| match group.has_histograms() {
                    true => self.with_histograms(aggregate.op, group, inner),
                    false => self.numbers(aggregate.op, group),
                })?
            }
            AggregateOp::Quantile => {
                self.each_group(&groups, |group| self.quantiles(group, &parameter, inner))?
            }
            op => self.each_group(&groups, |group| {
                self.remark_histograms(op, group, inner);
                self.numbers(op, group)
            })?,
        };
        // The inputs are released before the result is held: groups are small compared with their members, and
        // Prometheus does not count both together, either.
        let parameters = usize::from(aggregate.parameter.is_some());
        self.budget()
            .release(cost(&columns) + parameters * self.grid.steps);
        self.budget().hold(cost(&result))?;
        Ok(result)
    }

    fn each_group<'a>(
        &self,
        groups: &[Group<'a>],
        make: impl Fn(&Group<'a>) -> Result<Option<Column>>,
    ) -> Result<Vec<Column>> {
        let mut result = Vec::with_capacity(groups.len());
        // The output is counted separately, because members far apart in time produce a column longer than all member
        // columns together.
        let mut making = Making::of(self.budget(), groups.len());
        for group in groups {
            self.check()?;
            if let Some(column) = make(group)? {
                making.take(column.cost())?;
                result.push(column);
            }
        }
        Ok(result)
    }

    /// Adds an info if histograms are ignored, because the operator aggregates floats only.
    fn remark_histograms(&self, op: AggregateOp, group: &Group<'_>, at: TextRange) {
        let aggregation = match op {
            AggregateOp::Min => "min",
            AggregateOp::Max => "max",
            AggregateOp::Stddev => "stddev",
            AggregateOp::Stdvar => "stdvar",
            AggregateOp::Quantile => "quantile",
            AggregateOp::TopK => "topk",
            AggregateOp::BottomK => "bottomk",
            _ => return,
        };
        if group.has_histograms() {
            self.annotate(&Annotation::HistogramIgnoredInAggregation { aggregation }, at);
        }
    }
}

/// Returns true if a label is part of the group key and stays on the result.
fn keeps_label(aggregate: &Aggregate<'_>, name: &str) -> bool {
    let is_named = aggregate.grouping.iter().any(|label| label == name);
    match aggregate.is_without {
        true => !is_named && name != METRIC_NAME,
        false => is_named,
    }
}

/// Groups series. The groups are in the order of their first members. Fails if the query ends early: a list of labels
/// can be long, and each label of each series is compared with it.
fn groups<'a>(
    scope: &Scope<'_>,
    columns: &'a [Column],
    aggregate: &Aggregate<'_>,
    keeps_name: bool,
) -> Result<Vec<Group<'a>>> {
    let mut positions: HashMap<Box<[u8]>, usize> = HashMap::new();
    let mut groups: Vec<Group<'a>> = Vec::new();
    let mut key = Vec::with_capacity(256);
    for (number, column) in columns.iter().enumerate() {
        scope.check_now_and_then(number)?;
        key.clear();
        if aggregate.is_without || !aggregate.grouping.is_empty() {
            for (name, value) in column
                .labels
                .iter()
                .filter(|(name, _)| keeps_label(aggregate, name))
            {
                push_text(&mut key, name);
                push_text(&mut key, value);
            }
        }
        match positions.get(key.as_slice()) {
            Some(position) => groups[*position].members.push(column),
            None => {
                positions.insert(key.as_slice().into(), groups.len());
                groups.push(Group {
                    keeps_name,
                    labels: column.labels.filtered(|name| keeps_label(aggregate, name)),
                    members: vec![column],
                });
            }
        }
    }
    Ok(groups)
}
