//! Conditions on values: select the points of a run column by column.
//!
//! [`tideline_engine::condition`] compiles a condition: comparisons become intervals in each type that a column
//! may have, exact for every integer and double. This module resolves the fields in the table and evaluates the
//! condition on columns: each test costs one pass over the columns of its field, and the rows that do not match are
//! removed in one more pass. The condition is also a zone filter (see [`zone_filter`]), so that runs excluded by their
//! summaries are not read at all.

mod zone_filter;

use tideline_engine::Table;
use tideline_engine::condition::intervals::Intervals;
use tideline_engine::condition::{Condition, ConditionError, Matcher, Node as Compiled, Subject};
use tideline_engine::model::{ColumnData, FieldId, ValueKind};
use tideline_engine::points::{Bitmap, Presence, Run, RunColumn};

use crate::compute::{Computed, no_such_field};
use crate::error::{QueryError, Result};
use crate::plan::Scope;

/// Compiled condition on runs. Buffers are reused from run to run.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    root: Node,
    fields: Vec<FieldId>,
    /// Fields that are stored and not computed.
    stored: Vec<FieldId>,
    masks: Masks,
    kept: Run,
}

#[derive(Debug, Clone)]
enum Node {
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Leaf(Leaf),
}

#[derive(Debug, Clone)]
struct Leaf {
    field: FieldId,
    is_computed: bool,
    /// `None` if every value matches.
    intervals: Option<Intervals>,
    /// True if values outside the intervals match instead of those inside.
    is_outside: bool,
}

/// Reusable masks with one bool per row.
#[derive(Debug, Clone, Default)]
struct Masks(Vec<Vec<bool>>);

impl Filter {
    /// Compiles a condition. Returns an error if the engine refuses the condition, if a field is unknown, or if a test
    /// applies to anything but a field. Also returns an error if a field has values in the scope but no value of the
    /// kind that its test requires.
    pub(crate) fn new(
        condition: &Condition,
        scope: &Scope,
        table: &Table,
        computed: &Computed,
    ) -> Result<Self> {
        let mut kinds = scope.kinds(table);
        kinds.extend(computed.ids().map(|id| (id, ValueKind::Number)));
        let mut compiler = Compiler {
            table,
            computed,
            kinds,
            fields: Vec::new(),
        };
        let matcher = Matcher::new(condition).map_err(refused)?;
        let root = compiler.node(matcher.root())?;
        let mut fields = compiler.fields;
        fields.sort_unstable();
        fields.dedup();
        let is_stored = |field: &FieldId| computed.name(*field).is_none();
        Ok(Self {
            root,
            stored: fields.iter().copied().filter(is_stored).collect(),
            fields,
            masks: Masks::default(),
            kept: Run::default(),
        })
    }

    /// Returns the fields that the condition names.
    pub(crate) fn fields(&self) -> &[FieldId] {
        &self.fields
    }

    /// Returns the rows of a run that match; `None` if no row does.
    pub(crate) fn select<'r>(&'r mut self, run: &'r Run) -> Option<&'r Run> {
        let mask = self.root.mask(run, &mut self.masks);
        let count = mask.iter().filter(|counts| **counts).count();
        if count > 0 && count < run.rows() {
            keep(run, &mask, &mut self.kept);
        }
        self.masks.0.push(mask);
        match count {
            0 => None,
            _ if count == run.rows() => Some(run),
            _ => Some(&self.kept),
        }
    }
}

/// State of the compilation of a condition.
struct Compiler<'a> {
    table: &'a Table,
    computed: &'a Computed,
    /// Fields of the scope with the kinds of their values.
    kinds: Vec<(FieldId, ValueKind)>,
    fields: Vec<FieldId>,
}

impl Compiler<'_> {
    fn node(&mut self, compiled: &Compiled) -> Result<Node> {
        let mut all = |nodes: &[Compiled]| {
            nodes
                .iter()
                .map(|node| self.node(node))
                .collect::<Result<Vec<_>>>()
        };
        Ok(match compiled {
            Compiled::All => Node::And(Vec::new()),
            Compiled::And(nodes) => Node::And(all(nodes)?),
            Compiled::Or(nodes) => Node::Or(all(nodes)?),
            Compiled::Not(inner) => Node::Not(Box::new(self.node(inner)?)),
            Compiled::Exists(Subject::Field(name)) => Node::Leaf(self.leaf(name, None, false)?),
            Compiled::Intervals {
                subject: Subject::Field(name),
                intervals,
                is_outside,
            } => Node::Leaf(self.leaf(name, Some(intervals.clone()), *is_outside)?),
            _ => {
                return Err(QueryError::Invalid(
                    "a condition on values can only test fields".into(),
                ));
            }
        })
    }

    fn leaf(&mut self, name: &str, intervals: Option<Intervals>, is_outside: bool) -> Result<Leaf> {
        let stored = || self.table.field(name);
        let field = self.computed.field(name).or_else(stored);
        let field = field.ok_or_else(|| no_such_field(name, self.table))?;
        self.fields.push(field);
        self.check_kind(name, field, intervals.as_ref())?;
        Ok(Leaf {
            field,
            is_computed: self.computed.name(field).is_some(),
            intervals,
            is_outside,
        })
    }

    /// Returns an error if the field has values in the scope but none of the kind that the test requires.
    fn check_kind(&self, name: &str, field: FieldId, intervals: Option<&Intervals>) -> Result<()> {
        let Some(wanted) = intervals.and_then(Intervals::kind) else {
            return Ok(());
        };
        let mut kinds = self.kinds.iter().filter(|(of, _)| *of == field);
        let other = kinds.clone().next().map(|(_, kind)| *kind);
        match other {
            Some(has) if kinds.all(|(_, kind)| *kind != wanted) => Err(QueryError::Invalid(format!(
                "field {name:?} holds {}, and is compared with {}",
                plural(has),
                plural(wanted)
            ))),
            _ => Ok(()),
        }
    }
}

/// Converts the error of a refused condition.
fn refused(error: ConditionError) -> QueryError {
    match error {
        ConditionError::OverLimit { what, limit, actual } => QueryError::OverBudget {
            what,
            limit: limit as u64,
            actual: actual as u64,
        },
        ConditionError::Memory(full) => QueryError::Memory(full),
        error => QueryError::Invalid(error.to_string()),
    }
}

/// Returns the plural name of the values of a kind.
pub(crate) fn plural(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::Number => "numbers",
        ValueKind::Boolean => "booleans",
        ValueKind::String => "texts",
        ValueKind::Histogram => "histograms",
    }
}

impl Node {
    /// Returns a flag for each row of a run: true if the row matches.
    fn mask(&self, run: &Run, masks: &mut Masks) -> Vec<bool> {
        match self {
            Self::And(all) => Self::fold(all, run, masks, true, |a, b| a & b),
            Self::Or(any) => Self::fold(any, run, masks, false, |a, b| a | b),
            Self::Not(inner) => {
                let mut mask = inner.mask(run, masks);
                mask.iter_mut().for_each(|row| *row = !*row);
                mask
            }
            Self::Leaf(leaf) => {
                let mut mask = masks.take(run.rows(), false);
                let columns = run.columns.iter().filter(|column| column.field == leaf.field);
                columns.for_each(|column| leaf.mark(column, &mut mask));
                mask
            }
        }
    }

    fn fold(
        nodes: &[Self],
        run: &Run,
        masks: &mut Masks,
        start: bool,
        join: impl Fn(bool, bool) -> bool,
    ) -> Vec<bool> {
        let mut mask = masks.take(run.rows(), start);
        for node in nodes {
            let other = node.mask(run, masks);
            let rows = mask.iter_mut().zip(&other);
            rows.for_each(|(row, other)| *row = join(*row, *other));
            masks.0.push(other);
        }
        mask
    }
}

impl Leaf {
    /// Marks the matching rows of a column. In each row, at most one column of a field has a value.
    fn mark(&self, column: &RunColumn, mask: &mut [bool]) {
        let presence = &column.presence;
        let Some(intervals) = &self.intervals else {
            return put(presence, std::iter::repeat(true), mask);
        };
        let outside = self.is_outside;
        match &column.values {
            ColumnData::Float(values) => {
                put(
                    presence,
                    values.iter().map(|v| intervals.has_float(*v) != outside),
                    mask,
                );
            }
            ColumnData::Signed(values) => {
                put(
                    presence,
                    values.iter().map(|v| intervals.has_signed(*v) != outside),
                    mask,
                );
            }
            ColumnData::Unsigned(values) => {
                put(
                    presence,
                    values.iter().map(|v| intervals.has_unsigned(*v) != outside),
                    mask,
                );
            }
            ColumnData::Boolean(values) => {
                put(
                    presence,
                    values.iter().map(|v| intervals.has_boolean(*v) != outside),
                    mask,
                );
            }
            ColumnData::String(values) => {
                put(
                    presence,
                    values.iter().map(|v| intervals.has_text(v) != outside),
                    mask,
                );
            }
            // No interval contains a histogram.
            ColumnData::Histogram(_) => put(presence, std::iter::repeat(outside), mask),
        }
    }
}

/// Writes the result for each value to its row.
fn put(presence: &Presence, passes: impl Iterator<Item = bool>, mask: &mut [bool]) {
    match presence {
        Presence::All => mask
            .iter_mut()
            .zip(passes)
            .for_each(|(row, passes)| *row = passes),
        Presence::Some(bitmap) => bitmap
            .iter_ones()
            .zip(passes)
            .for_each(|(row, passes)| mask[row] = passes),
    }
}

impl Masks {
    fn take(&mut self, rows: usize, value: bool) -> Vec<bool> {
        let mut mask = self.0.pop().unwrap_or_default();
        mask.clear();
        mask.resize(rows, value);
        mask
    }
}

/// Replaces `kept` by the marked rows of a run.
fn keep(run: &Run, mask: &[bool], kept: &mut Run) {
    let rows = || {
        mask.iter()
            .enumerate()
            .filter(|(_, counts)| **counts)
            .map(|(row, _)| row)
    };
    kept.timestamps.clear();
    kept.timestamps.extend(rows().map(|row| run.timestamps[row]));
    kept.columns.clear();
    for column in &run.columns {
        let (presence, values) = match &column.presence {
            Presence::All => (Presence::All, column.values.pick(rows())),
            Presence::Some(bitmap) => {
                let positions = bitmap.iter_ones().enumerate().filter(|(_, row)| mask[*row]);
                let values = column.values.pick(positions.map(|(position, _)| position));
                (
                    Presence::Some(rows().map(|row| bitmap.get(row)).collect::<Bitmap>()),
                    values,
                )
            }
        };
        if !values.is_empty() {
            kept.columns.push(RunColumn {
                field: column.field,
                presence,
                values,
            });
        }
    }
}
