//! Naive evaluator of fills: searches the neighbors of each empty window.

use tideline_model::{TimeRange, Value};
use tideline_query::{Fill, Function, WindowSpec};

use crate::naive::GroupRows;

/// Returns a row for each window of a range.
pub(crate) fn filled(
    rows: &GroupRows,
    columns: &[(Function, String)],
    range: TimeRange,
    window: WindowSpec,
    fill: &Fill,
) -> GroupRows {
    let mut filled = GroupRows::new();
    let mut start = range.start - (range.start - window.offset).rem_euclid(window.width);
    while start < range.end {
        let cells = columns.iter().enumerate().map(|(column, (function, _))| {
            let has = |(at, row): (&i64, &Vec<Option<Value>>)| Some((*at, row[column].clone()?));
            let own = rows.get_key_value(&start).and_then(has);
            if let Some((_, value)) = own {
                return Some(value);
            }
            if function.counts() {
                return Some(Value::Unsigned(0));
            }
            let before = rows.range(..start).rev().find_map(has);
            let after = rows.range(start..).find_map(has);
            match fill {
                Fill::Null => None,
                Fill::Value(value) => {
                    let has_floats = rows
                        .iter()
                        .filter_map(has)
                        .any(|(_, value)| matches!(value, Value::Float(_)));
                    let float = value.as_f64().filter(|_| has_floats).map(Value::Float);
                    Some(float.unwrap_or_else(|| value.clone()))
                }
                Fill::Previous { reach } => before
                    .filter(|(at, _)| start - at <= *reach)
                    .map(|(_, value)| value),
                Fill::Linear => {
                    let ((from, low), (to, high)) = (before?, after?);
                    let (low, high) = (low.as_f64()?, high.as_f64()?);
                    let share = (start - from) as f64 / (to - from) as f64;
                    Some(Value::Float(low + (high - low) * share))
                }
            }
        });
        filled.insert(start, cells.collect());
        start += window.width;
    }
    filled
}
