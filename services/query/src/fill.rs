//! Filling: what stands where a window has no value.

use tideline_engine::model::{Value, ValueKind};

use crate::answer::ValueRef;
use crate::error::{QueryError, Result};
use crate::filter::plural;
use crate::function::Function;
use crate::plan::{AggregateSource, Columns};
use crate::window::Windows;

/// What stands in the windows of a series that have no value of a column; then every window of the range has a row,
/// also those before the first value and after the last. A series that has no value at all stays absent. Counts are 0
/// there, whatever the fill.
#[derive(Debug, Clone, PartialEq)]
pub enum Fill {
    /// Nothing: a row without the value.
    Null,
    /// The newest value before, as far as it reaches; before the first one nothing.
    Previous {
        /// Most nanoseconds from the start of the window with the value to that of the filled one.
        reach: i64,
    },
    /// The straight line between the values before and after, by the starts of their windows, as a float; nothing before
    /// the first and after the last. For numbers only.
    Linear,
    /// This value; for columns of its kind only, and as a float where the column has floats.
    Value(Value),
}

impl Fill {
    /// Refuses what makes no sense of some column.
    pub(crate) fn check(&self, columns: &Columns<AggregateSource>) -> Result<()> {
        let wanted = match self {
            Self::Null | Self::Previous { .. } => return Ok(()),
            Self::Linear => ValueKind::Number,
            Self::Value(value) => value.value_type().kind(),
        };
        for of in &columns.by_measurement {
            for (source, position) in of.sources.iter().zip(&of.positions) {
                if source.kind != wanted && !source.function.counts() {
                    let column = &columns.names[*position];
                    let (wanted, has) = (plural(wanted), plural(source.kind));
                    let fill = match self {
                        Self::Linear => "linear",
                        _ => "the value",
                    };
                    return Err(QueryError::Invalid(format!(
                        "{fill} fills columns of {wanted}, and {column} has {has}; fill null or previous, or name fields \
                         and functions that give {wanted}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Fills the windows of one column, in the order of time.
    pub(crate) fn apply<'v>(
        &'v self,
        function: Function,
        windows: &Windows,
        cells: &mut [Option<ValueRef<'v>>],
    ) {
        if function.counts() {
            let empty = cells.iter_mut().filter(|cell| cell.is_none());
            return empty.for_each(|cell| *cell = Some(ValueRef::Unsigned(0)));
        }
        match self {
            Self::Null => {}
            Self::Value(value) => {
                // A column of floats stays one.
                let has_floats = cells.iter().any(|cell| matches!(cell, Some(ValueRef::Float(_))));
                let float = value.as_f64().filter(|_| has_floats);
                let value = float.map_or_else(|| value.into(), ValueRef::Float);
                let empty = cells.iter_mut().filter(|cell| cell.is_none());
                empty.for_each(|cell| *cell = Some(value));
            }
            Self::Previous { reach } => previous(*reach, windows, cells),
            Self::Linear => linear(windows, cells),
        }
    }
}

fn previous<'v>(reach: i64, windows: &Windows, cells: &mut [Option<ValueRef<'v>>]) {
    let mut before: Option<(i64, ValueRef<'v>)> = None;
    for (window, cell) in cells.iter_mut().enumerate() {
        let start = windows.start(window);
        match (*cell, before) {
            (Some(value), _) => before = Some((start, value)),
            (None, Some((since, value))) if start.saturating_sub(since) <= reach => *cell = Some(value),
            (None, _) => {}
        }
    }
}

fn linear(windows: &Windows, cells: &mut [Option<ValueRef<'_>>]) {
    let mut before: Option<(usize, f64)> = None;
    for window in 0..cells.len() {
        let Some(value) = cells[window].and_then(number) else {
            continue;
        };
        if let Some((from, low)) = before.replace((window, value)) {
            let since =
                |window: usize| (i128::from(windows.start(window)) - i128::from(windows.start(from))) as f64;
            for (gap, cell) in cells.iter_mut().enumerate().take(window).skip(from + 1) {
                let share = since(gap) / since(window);
                *cell = Some(ValueRef::Float(low * (1.0 - share) + value * share));
            }
        }
    }
}

fn number(value: ValueRef<'_>) -> Option<f64> {
    value.to_value().as_f64()
}
