//! Formats query results for terminals, as a table or as charts.
//!
//! Both forms read the whole result. Series with different columns share one table; charts draw only columns of
//! numbers or booleans.

use serde_json::Value;
use tideline_openapi::model::Timestamp;

use crate::output;
use crate::output::chart::{Line, SERIES_MAX, chart};
use crate::output::grid::Grid;

/// Maximum number of charts per result.
const CHARTS_MAX: usize = 8;

/// Formats the rows of a result and its notes. `width` is the width of the terminal; `None` without a terminal.
pub(crate) fn table(response: &Value, width: Option<usize>) -> String {
    let (grid, rows) = grid(response);
    let cost = &response["cost"];
    let more = match response["more"].as_bool() {
        Some(true) => ", and there are more: raise --limit, or narrow the query",
        _ => "",
    };
    let mut notes = String::new();
    for (member, what) in [
        ("estimated", "estimates"),
        ("overflowed", "empty where a sum of integers exceeds 64 bits"),
    ] {
        let columns = response[member].as_array().into_iter().flatten();
        let columns: Vec<String> = columns.map(output::cell).collect();
        if !columns.is_empty() {
            notes.push_str(&format!("{what}: {}\n", columns.join(", ")));
        }
    }
    format!(
        "{}\n{} {}{more}; {} points of {} timelines read in {} ms\n{notes}",
        grid.render_within(width),
        output::count(rows),
        if rows == 1 { "row" } else { "rows" },
        output::count(cost["points"].as_u64().unwrap_or_default()),
        output::count(cost["timelines"].as_u64().unwrap_or_default()),
        output::member(cost, "elapsed_ms"),
    )
}

/// Returns the rows of all series as one table, and their number. The first column is the measurement, unless
/// all series lack one. The tags of all series follow, then all columns.
pub(crate) fn grid(response: &Value) -> (Grid, u64) {
    let series = || response["series"].as_array().into_iter().flatten();
    let mut tags: Vec<&str> = series()
        .flat_map(|one| one["tags"].as_object().into_iter().flatten())
        .map(|(key, _)| &**key)
        .collect();
    tags.sort_unstable();
    tags.dedup();
    let mut columns: Vec<&str> = Vec::new();
    for name in series().flat_map(names) {
        if !columns.contains(&name) {
            columns.push(name);
        }
    }
    let is_named = series().next().is_none() || series().any(|one| one["measurement"] != "");
    let heads = is_named.then_some("measurement").into_iter();
    let mut grid = Grid::new(heads.chain(tags.iter().copied()).chain(columns.iter().copied()));
    let mut rows = 0;
    for one in series() {
        let positions: Vec<Option<usize>> = columns
            .iter()
            .map(|name| names(one).position(|own| own == *name))
            .collect();
        for row in one["points"].as_array().into_iter().flatten() {
            let measurement = is_named.then(|| output::member(one, "measurement"));
            let mut cells: Vec<String> = measurement.into_iter().collect();
            cells.extend(tags.iter().map(|tag| output::member(&one["tags"], tag)));
            cells.extend(positions.iter().map(|position| {
                let cell = position.and_then(|at| row.get(at));
                cell.map(output::cell).unwrap_or_default()
            }));
            grid.row(cells);
            rows += 1;
        }
    }
    (grid, rows)
}

/// Returns the column names of a series.
fn names(series: &Value) -> impl Iterator<Item = &str> {
    let columns = series["columns"].as_array().into_iter().flatten();
    columns.filter_map(Value::as_str)
}

/// Chart of one field of a measurement, with up to [`SERIES_MAX`] of its series on one axis.
struct Drawn<'a> {
    measurement: String,
    column: &'a str,
    lines: Vec<Line>,
    left_out: usize,
}

/// Draws one chart per field and measurement, at most [`CHARTS_MAX`]. `width` is the width of the terminal; `None`
/// without a terminal.
pub(crate) fn charts(response: &Value, width: Option<usize>) -> String {
    let mut drawn: Vec<Drawn<'_>> = Vec::new();
    for series in response["series"].as_array().into_iter().flatten() {
        for (at, column) in names(series).enumerate().skip(1) {
            let points = points(series, at);
            if points.is_empty() {
                continue;
            }
            let measurement = output::member(series, "measurement");
            let known = drawn
                .iter()
                .position(|one| one.measurement == measurement && one.column == column);
            let at = known.unwrap_or_else(|| {
                drawn.push(Drawn {
                    measurement,
                    column,
                    lines: Vec::new(),
                    left_out: 0,
                });
                drawn.len() - 1
            });
            let chart = &mut drawn[at];
            match chart.lines.len() < SERIES_MAX {
                true => chart.lines.push(Line {
                    name: output::pairs(&series["tags"]),
                    points,
                }),
                false => chart.left_out += 1,
            }
        }
    }
    if drawn.is_empty() {
        return "no points with numbers\n".into();
    }
    let mut shown: Vec<String> = drawn.iter().take(CHARTS_MAX).map(|one| one.text(width)).collect();
    if let Some(more @ 1..) = drawn.len().checked_sub(CHARTS_MAX) {
        shown.push(format!(
            "{more} more charts are not drawn: narrow the query by --field\n"
        ));
    }
    shown.join("\n")
}

impl Drawn<'_> {
    fn text(&self, width: Option<usize>) -> String {
        let tags = match &self.lines[..] {
            [only] => only.name.as_str(),
            _ => "",
        };
        let title = [&self.measurement, tags, self.column].map(str::trim);
        let title: Vec<&str> = title.into_iter().filter(|part| !part.is_empty()).collect();
        let mut text = chart(&title.join(" "), &self.lines, width);
        if self.left_out > 0 {
            text.push_str(&format!(
                "{} more series are not drawn: narrow the query by --where, or rank it by --top {SERIES_MAX}\n",
                self.left_out
            ));
        }
        text
    }
}

/// Returns the points of a column that are numbers or booleans, as nanoseconds and value.
fn points(series: &Value, column: usize) -> Vec<(i64, f64)> {
    let rows = series["points"].as_array().into_iter().flatten();
    rows.filter_map(|row| {
        let time = Timestamp::parse_rfc3339(row.get(0)?.as_str()?)?;
        Some((time.nanos(), number(row.get(column)?)?))
    })
    .collect()
}

/// Converts a value to a number; booleans become 0 and 1. `None` for other values.
fn number(value: &Value) -> Option<f64> {
    value
        .as_f64()
        .or_else(|| value.as_bool().map(|value| f64::from(u8::from(value))))
}
