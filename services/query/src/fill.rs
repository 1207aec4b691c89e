//! Fill: values for windows without a value.
//!
//! Filling happens once per column after all values are merged, because a fill needs the neighboring windows.

use tideline_engine::model::{Value, ValueKind};

use crate::error::{QueryError, Result};
use crate::filter::plural;
use crate::function::Function;
use crate::plan::{AggregateSource, Columns};
use crate::result::ValueRef;
use crate::window::Windows;

/// Fill of the windows that have no value in a column of a series. With a fill, every window of the range has a
/// row, including those before the first value and after the last. A series without any value has no rows. Counts
/// are filled with 0 by every fill.
#[derive(Debug, Clone, PartialEq)]
pub enum Fill {
    /// No fill: the value is missing in its row.
    Null,
    /// The newest earlier value, up to a maximum distance; nothing before the first value.
    Previous {
        /// Maximum nanoseconds from the start of the window with the value to the start of the filled window.
        reach: i64,
    },
    /// Linear interpolation, as a float, between the previous and the next value at the starts of their windows.
    /// Nothing before the first value and after the last. Supported only by columns of numbers.
    Linear,
    /// This value, as a float if the column has floats. Supported only by columns of the same kind.
    Value(Value),
}

impl Fill {
    /// Returns an error if some column does not support the fill.
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
                        "{fill} can only fill {wanted}, but {column} has {has}; use null or previous, or \
                         select fields and functions that return {wanted}"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Fills the windows of one column, in time order.
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
                // A column of floats keeps its type.
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
