//! `info(vector, selector)`: adds the labels of info series to the series of the same target.
//!
//! A series and an info series have the same target if their identifying labels, `instance` and `job`, are equal.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::column::{Column, is_absent};
use super::labels_call::with_label;
use super::merge::ColumnsByLabels;
use super::{Scope, cost};
use crate::error::{PromqlError, Result};
use crate::labels::{Labels, METRIC_NAME};
use crate::matcher::{MatchOp, Matcher};
use crate::plan::{Kind, Node, Reference};

/// Labels that identify the target of a series and of its info series.
const IDENTIFYING_LABELS: [&str; 2] = ["instance", "job"];

/// Default name of info series.
const TARGET_INFO: &str = "target_info";

/// Maximum number of values per identifying label in the request to the source. With more values, the request
/// matches any nonempty value and the result is filtered here, because sources limit the size of expressions.
const VALUES_ASKED: usize = 1_000;

/// Selection of info series and of their labels.
#[derive(Debug)]
struct InfoSelection {
    /// Matchers on the names of info series.
    names: Vec<Matcher>,
    /// Matchers on labels. If there are any, only the labels that they name are copied.
    labels: Vec<Matcher>,
}

impl InfoSelection {
    fn of(argument: Option<&Node<'_>>) -> Result<Self> {
        let (mut names, mut labels) = (Vec::new(), Vec::new());
        let matchers = match argument.map(|node| &node.kind) {
            None => &[],
            Some(Kind::Selector(selector)) => selector.matchers,
            Some(_) => {
                return Err(PromqlError::Execution(
                    "the second argument of info must be a label selector".to_owned(),
                ));
            }
        };
        for matcher in matchers {
            matcher
                .compile()
                .map_err(|error| PromqlError::TooMany(error.to_string()))?;
            match matcher.name.as_str() {
                METRIC_NAME => names.push(matcher.clone()),
                _ => labels.push(matcher.clone()),
            }
        }
        let is_positive = |matcher: &Matcher| matches!(matcher.op, MatchOp::Equal | MatchOp::Regex);
        if names.is_empty() {
            names.push(condition(METRIC_NAME, MatchOp::Equal, TARGET_INFO)?);
        } else if !names.iter().any(is_positive) {
            names.push(condition(METRIC_NAME, MatchOp::Regex, ".+_info")?);
        }
        Ok(Self { names, labels })
    }

    fn is_info(&self, labels: &Labels) -> bool {
        let name = labels.metric_name().unwrap_or_default();
        self.names.iter().all(|matcher| matcher.matches(name))
    }

    fn takes(&self, label: &str) -> bool {
        label != METRIC_NAME
            && (self.labels.is_empty() || self.labels.iter().any(|matcher| matcher.name == label))
    }

    /// Returns true if a series without info series stays in the result.
    fn is_met_by_none(&self) -> bool {
        self.labels.iter().all(|matcher| matcher.matches(""))
    }
}

fn condition(name: &str, op: MatchOp, value: &str) -> Result<Matcher> {
    Matcher::new(name, op, value).map_err(|error| PromqlError::Execution(error.to_string()))
}

impl Scope<'_> {
    /// Evaluates `info`.
    pub(super) fn info(&self, arguments: &[Node<'_>]) -> Result<Vec<Column>> {
        // Info series are read with the time shift of the first selector in the first argument.
        let reference = arguments[0].first_reference().unwrap_or(Reference {
            offset: 0,
            fixed: None,
        });
        let columns = self.vector(&arguments[0])?;
        let selection = InfoSelection::of(arguments.get(1))?;
        let is_plain: Vec<bool> = columns
            .iter()
            .map(|column| selection.is_info(&column.labels))
            .collect();
        let infos = self.info_series(&columns, &is_plain, &selection, reference)?;
        let described = self.described(&columns, &is_plain, &infos, &selection)?;
        let before = cost(&columns) + cost(&infos);
        self.exchange(columns.len() + infos.len(), before, cost(&described))?;
        Ok(described)
    }

    /// Reads the info series of all targets. Values are the timestamps of their samples in
    /// milliseconds.
    fn info_series(
        &self,
        columns: &[Column],
        is_plain: &[bool],
        selection: &InfoSelection,
        reference: Reference,
    ) -> Result<Vec<Column>> {
        let (mut matchers, mut sets) = (Vec::new(), Vec::new());
        for name in IDENTIFYING_LABELS {
            let described = columns.iter().zip(is_plain).filter(|(_, is_plain)| !**is_plain);
            let values: HashSet<&str> = described
                .filter_map(|(column, _)| column.labels.get(name))
                .collect();
            if values.is_empty() {
                continue;
            }
            let pattern = match values.len() <= VALUES_ASKED {
                true => {
                    let mut values: Vec<String> = values.iter().map(|value| regex::escape(value)).collect();
                    values.sort_unstable();
                    values.join("|")
                }
                false => ".+".to_owned(),
            };
            matchers.push(condition(name, MatchOp::Regex, &pattern)?);
            sets.push((name, values));
        }
        if matchers.is_empty() {
            return Ok(Vec::new());
        }
        matchers.extend(selection.labels.iter().cloned());
        matchers.extend(selection.names.iter().cloned());
        let is_of_target = |labels: &Labels| {
            let mut sets = sets.iter();
            sets.all(|(name, values)| labels.get(name).is_some_and(|value| values.contains(value)))
        };
        self.last_times_of_numbers(&matchers, reference, is_of_target, |labels| {
            PromqlError::Execution(format!(
                "this should be an info metric, with float samples: {labels}"
            ))
        })
    }

    fn described(
        &self,
        columns: &[Column],
        is_plain: &[bool],
        infos: &[Column],
        selection: &InfoSelection,
    ) -> Result<Vec<Column>> {
        let targets = Targets::of(infos);
        let mut result = ColumnsByLabels::of(self, columns.len());
        // Labels change rarely, so the result of the previous step is reused if the info series are the same.
        let mut found: Vec<(Vec<usize>, Option<usize>)> = vec![(Vec::new(), None); columns.len()];
        let mut is_found = vec![false; columns.len()];
        for step in 0..self.grid.steps {
            if step % 16 == 0 {
                self.check()?;
            }
            // Conflicting info series are an error only at steps with series to describe.
            if columns.iter().all(|column| column.cell(step).is_none()) {
                continue;
            }
            let current = targets.at(infos, step)?;
            for (position, column) in columns.iter().enumerate() {
                let Some(cell) = column.cell(step) else { continue };
                let of_target = match is_plain[position] {
                    true => Vec::new(),
                    false => targets.of_series(&column.labels, &current),
                };
                if !is_found[position] || found[position].0 != of_target {
                    let labels = match is_plain[position] {
                        true => Some(column.labels.clone()),
                        false => labels_with(&column.labels, &of_target, infos, selection)?,
                    };
                    let series = labels.map(|labels| result.position(&labels, column.drops_name));
                    found[position] = (of_target, series.transpose()?);
                    is_found[position] = true;
                }
                if let Some(series) = found[position].1 {
                    result.push(series, step, cell)?;
                }
            }
        }
        Ok(result.finish())
    }
}

/// Values of the identifying labels.
type Target = [String; 2];

/// Info series by name and target.
#[derive(Debug)]
struct Targets {
    /// Ordered by name, so that results do not depend on the order of series.
    by_name: BTreeMap<String, HashMap<Target, Vec<usize>>>,
}

/// Info series of each name and target at a step.
type Current<'a> = Vec<HashMap<&'a Target, usize>>;

impl Targets {
    fn of(infos: &[Column]) -> Self {
        let mut by_name: BTreeMap<String, HashMap<Target, Vec<usize>>> = BTreeMap::new();
        for (position, info) in infos.iter().enumerate() {
            let name = info.labels.metric_name().unwrap_or_default().to_owned();
            let targets = by_name.entry(name).or_default();
            targets.entry(target(&info.labels)).or_default().push(position);
        }
        Self { by_name }
    }

    /// Selects, for each name and target, the info series with the newest sample at a step. The series are compared in
    /// their order. Fails if the sample of a series has the same timestamp as the newest sample of the preceding
    /// series.
    fn at(&self, infos: &[Column], step: usize) -> Result<Current<'_>> {
        let mut current = Vec::with_capacity(self.by_name.len());
        for targets in self.by_name.values() {
            let mut newest = HashMap::with_capacity(targets.len());
            for (target, positions) in targets {
                let mut best: Option<(f64, usize)> = None;
                for &position in positions {
                    let time = infos[position].float(step);
                    if is_absent(time) {
                        continue;
                    }
                    match best {
                        Some((newest, _)) if newest > time => {}
                        Some((newest, other)) if newest == time => {
                            return Err(PromqlError::Execution(format!(
                                "found duplicate series for info metric: existing {} @ {newest}, new {} @ {time}",
                                infos[other].labels, infos[position].labels
                            )));
                        }
                        _ => best = Some((time, position)),
                    }
                }
                if let Some((_, position)) = best {
                    newest.insert(target, position);
                }
            }
            current.push(newest);
        }
        Ok(current)
    }

    fn of_series(&self, labels: &Labels, current: &Current<'_>) -> Vec<usize> {
        let target = target(labels);
        current
            .iter()
            .filter_map(|targets| targets.get(&target).copied())
            .collect()
    }
}

fn target(labels: &Labels) -> Target {
    IDENTIFYING_LABELS.map(|name| labels.get(name).unwrap_or_default().to_owned())
}

/// Adds the labels of info series; `None` if the series is dropped. Fails if info series have different values for
/// an added label.
fn labels_with(
    labels: &Labels,
    of_target: &[usize],
    infos: &[Column],
    selection: &InfoSelection,
) -> Result<Option<Labels>> {
    if of_target.is_empty() && !selection.is_met_by_none() {
        return Ok(None);
    }
    let mut taken: BTreeMap<&str, &str> = BTreeMap::new();
    for &position in of_target {
        for (name, value) in infos[position]
            .labels
            .iter()
            .filter(|(name, _)| selection.takes(name))
        {
            if taken.get(name).is_some_and(|known| *known != value) {
                return Err(PromqlError::Execution(format!("conflicting label: {name}")));
            }
            if labels.get(name).is_none() {
                taken.insert(name, value);
            }
        }
    }
    let mut result = labels.clone();
    for (name, value) in taken {
        result = with_label(&result, name, value);
    }
    Ok(Some(result))
}
