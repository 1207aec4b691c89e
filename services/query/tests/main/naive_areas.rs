//! Naive evaluator of areas under the lines between points, window by window and line by line.

use std::collections::BTreeMap;

use tideline_model::{TimeRange, Value};
use tideline_query::{Function, WindowSpec};

use crate::naive::Timeline;

/// Sums of one window.
#[derive(Default)]
struct Cell {
    area: f64,
    seconds: f64,
    points: Vec<f64>,
}

/// Computes `integral` or `time_weighted_mean` of a field for each window that contains a point or a part of a line.
/// The key of the map is the start of the window.
pub(crate) fn areas(
    members: &[&Timeline],
    field: &str,
    function: Function,
    range: TimeRange,
    window: Option<WindowSpec>,
) -> BTreeMap<i64, Option<Value>> {
    let bounds = |time: i64| match window {
        Some(spec) => {
            let start = time - (time - spec.offset).rem_euclid(spec.width);
            (start, start + spec.width)
        }
        None => (range.start, range.end),
    };
    let mut cells: BTreeMap<i64, Cell> = BTreeMap::new();
    for timeline in members {
        let inside = timeline.points.range(range.start..range.end);
        let points = inside.filter_map(|(time, point)| Some((*time, point.get(field)?.as_f64()?)));
        let points: Vec<(i64, f64)> = points.filter(|(_, value)| !value.is_nan()).collect();
        for (time, value) in &points {
            cells.entry(bounds(*time).0).or_default().points.push(*value);
        }
        for line in points.windows(2) {
            let ((from, low), (to, high)) = (line[0], line[1]);
            let at = |time: i64| low + (high - low) * (time - from) as f64 / (to - from) as f64;
            let mut time = from;
            while time < to {
                let (start, end) = bounds(time);
                let end = end.min(to);
                let seconds = (end - time) as f64 / 1e9;
                let cell = cells.entry(start).or_default();
                cell.area += (at(time) + at(end)) / 2.0 * seconds;
                cell.seconds += seconds;
                time = end;
            }
        }
    }
    let value = |cell: Cell| match function {
        Function::Integral => (cell.seconds > 0.0).then_some(Value::Float(cell.area)),
        _ if cell.seconds > 0.0 => Some(Value::Float(cell.area / cell.seconds)),
        _ => Some(Value::Float(
            cell.points.iter().sum::<f64>() / cell.points.len() as f64,
        )),
    };
    cells
        .into_iter()
        .map(|(start, cell)| (start, value(cell)))
        .collect()
}
