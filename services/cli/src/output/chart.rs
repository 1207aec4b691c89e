//! Charts of characters: time on the horizontal axis, values on the vertical one, all series on one axis.
//!
//! A single series is drawn as an area, several series as letters. Columns keep the minimum and maximum of
//! their points, so that spikes stay visible.

use tideline_openapi::model::time::{NANOS_PER_SECOND, format_duration};

use super::grid::Grid;
use super::readable::{number, span};

/// Characters that fill one to eight eighths of a cell.
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Character between the lowest and the highest value of a column.
const BAND: char = '▒';
/// Mark of cells that several series share.
const SEVERAL: char = '+';
/// Height of a chart of one series, in lines.
const HEIGHT: usize = 8;
/// Height of a chart of several series, in lines. The marks of several series need more room than an area.
const HEIGHT_OF_SEVERAL: usize = 14;
/// Width of a chart in a pipe or a file, in columns.
const WIDTH_OF_FILES: usize = 80;
/// Minimum width reserved for columns, however narrow the terminal is.
const COLUMNS_MIN: usize = 8;
/// Maximum number of series per chart: the number of letters that are easily distinguished.
pub(crate) const SERIES_MAX: usize = 10;

/// Points of one series, as nanoseconds and value, in any order.
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(i64, f64)>,
}

/// Lowest and highest value of a series within one column.
#[derive(Debug, Clone, Copy)]
struct Extent {
    low: f64,
    high: f64,
}

/// Axes that all series of a chart share.
struct Axes {
    first: i64,
    last: i64,
    lowest: f64,
    highest: f64,
    columns: usize,
    height: usize,
}

/// Draws series on one axis. Each column shows the lowest and highest of its points, and is blank without points.
/// `width` is the width of the terminal; `None` selects [`WIDTH_OF_FILES`].
pub(crate) fn chart(title: &str, lines: &[Line], width: Option<usize>) -> String {
    let width = width.unwrap_or(WIDTH_OF_FILES);
    let mut out = format!("{}\n", super::grid::elide(title, width));
    let Some(axes) = Axes::of(lines, width) else {
        out.push_str("  no numbers\n");
        return out;
    };
    let columns: Vec<Vec<Option<Extent>>> = lines.iter().map(|line| axes.columns_of(line)).collect();
    let rows = match &columns[..] {
        [only] => axes.area(only),
        several => axes.marks(several),
    };
    let (top, bottom) = (number(axes.highest), number(axes.lowest));
    let margin = top.chars().count().max(bottom.chars().count());
    for (at, row) in rows.iter().enumerate() {
        let label = match at {
            0 => &top,
            _ if at + 1 == rows.len() => &bottom,
            _ => "",
        };
        out.push_str(format!("{label:>margin$} ┤{row}").trim_end());
        out.push('\n');
    }
    out.push_str(&axes.times(margin));
    out.push_str(&legend(lines, &columns, &axes, width));
    out
}

impl Axes {
    /// Creates the axes for all finite points. Returns `None` if no point is finite.
    fn of(lines: &[Line], width: usize) -> Option<Self> {
        let finite = || {
            let points = lines.iter().flat_map(|line| &line.points);
            points.filter(|(_, value)| value.is_finite())
        };
        let first = finite().map(|(time, _)| *time).min()?;
        let last = finite().map(|(time, _)| *time).max()?;
        let lowest = finite().map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
        let highest = finite()
            .map(|(_, value)| *value)
            .fold(f64::NEG_INFINITY, f64::max);
        let margin = number(highest)
            .chars()
            .count()
            .max(number(lowest).chars().count());
        let room = width.saturating_sub(margin + 2).max(COLUMNS_MIN);
        let times = finite().map(|(time, _)| *time).collect();
        Some(Self {
            first,
            last,
            lowest,
            highest,
            columns: steps(times, first, last, room),
            height: if lines.len() == 1 {
                HEIGHT
            } else {
                HEIGHT_OF_SEVERAL
            },
        })
    }

    /// Returns the extent of each column; `None` for a column without finite points.
    fn columns_of(&self, line: &Line) -> Vec<Option<Extent>> {
        let span = i128::from(self.last) - i128::from(self.first);
        let mut columns: Vec<Option<Extent>> = vec![None; self.columns];
        for (time, value) in line.points.iter().filter(|(_, value)| value.is_finite()) {
            let offset = i128::from(*time) - i128::from(self.first);
            let at = match span {
                0 => 0,
                _ => offset * (self.columns as i128 - 1) / span,
            };
            // The offset is at most the span.
            let column = &mut columns[usize::try_from(at).unwrap_or(0)];
            let known = column.unwrap_or(Extent {
                low: *value,
                high: *value,
            });
            *column = Some(Extent {
                low: known.low.min(*value),
                high: known.high.max(*value),
            });
        }
        columns
    }

    /// Maps a value to one of `steps` vertical steps, counted from 0 at the bottom. If all values of the chart are
    /// equal, returns the middle step.
    fn steps(&self, value: f64, steps: usize) -> usize {
        // The values are halved first, because the difference of two doubles may exceed the range of a double.
        let span = self.highest / 2.0 - self.lowest / 2.0;
        let share = match span > 0.0 {
            true => (value / 2.0 - self.lowest / 2.0) / span,
            false => 0.5,
        };
        (share * (steps - 1) as f64).round() as usize
    }

    /// Draws one series. Each column has full blocks up to its lowest value, and shaded blocks from there to its
    /// highest value.
    fn area(&self, columns: &[Option<Extent>]) -> Vec<String> {
        let steps = self.height * BLOCKS.len();
        let cell = |line: usize, extent: Extent| {
            // At least one step, so that the lowest value is visible too.
            let (low, high) = (
                1 + self.steps(extent.low, steps),
                1 + self.steps(extent.high, steps),
            );
            match low.saturating_sub(line * BLOCKS.len()) {
                0 if high > line * BLOCKS.len() => BAND,
                0 => ' ',
                filled => BLOCKS[filled.min(BLOCKS.len()) - 1],
            }
        };
        let row = |line| {
            let cells = columns
                .iter()
                .map(|extent| extent.map_or(' ', |extent| cell(line, extent)));
            cells.collect()
        };
        (0..self.height).rev().map(row).collect()
    }

    /// Draws several series. In each column, the letter of a series covers the cells from its lowest to its highest
    /// value.
    fn marks(&self, series: &[Vec<Option<Extent>>]) -> Vec<String> {
        let mut cells = vec![vec![' '; self.columns]; self.height];
        for (number, columns) in series.iter().enumerate() {
            for (column, extent) in columns.iter().enumerate() {
                let Some(extent) = extent else { continue };
                let (low, high) = (
                    self.steps(extent.low, self.height),
                    self.steps(extent.high, self.height),
                );
                for row in &mut cells[low..=high] {
                    row[column] = if row[column] == ' ' {
                        letter(number)
                    } else {
                        SEVERAL
                    };
                }
            }
        }
        cells.iter().rev().map(|row| row.iter().collect()).collect()
    }

    /// Returns the line below the chart, with the first and the last time.
    fn times(&self, margin: usize) -> String {
        let (from, to) = span(self.first, self.last);
        let space = self.columns.saturating_sub(from.len() + to.len()).max(1);
        let to = match self.first == self.last {
            true => String::new(),
            false => format!("{}{to}", " ".repeat(space)),
        };
        format!("{:margin$}  {from}{to}\n", "")
    }

    /// Returns the time span of a column.
    fn column(&self) -> String {
        let nanos = (i128::from(self.last) - i128::from(self.first)) / (self.columns as i128 - 1).max(1);
        let nanos = i64::try_from(nanos).unwrap_or(i64::MAX);
        format_duration(match nanos {
            NANOS_PER_SECOND.. => nanos / NANOS_PER_SECOND * NANOS_PER_SECOND,
            1_000_000.. => nanos / 1_000_000 * 1_000_000,
            _ => nanos,
        })
    }
}

/// Returns the number of columns: one per smallest time step, but at most `room`. With one column per step, consecutive
/// windows leave no gaps.
fn steps(mut times: Vec<i64>, first: i64, last: i64, room: usize) -> usize {
    times.sort_unstable();
    let steps = times
        .windows(2)
        .map(|pair| i128::from(pair[1]) - i128::from(pair[0]));
    let step = steps.filter(|step| *step > 0).min().unwrap_or(1);
    let steps = (i128::from(last) - i128::from(first)) / step + 1;
    usize::try_from(steps).unwrap_or(room).min(room)
}

/// Returns the legend: statistics of each series and its mark.
fn legend(lines: &[Line], columns: &[Vec<Option<Extent>>], axes: &Axes, width: usize) -> String {
    let figures = |line: &Line| {
        let finite = || line.points.iter().filter(|(_, value)| value.is_finite());
        let last = finite().max_by_key(|(time, _)| *time);
        let count = finite().count().max(1) as f64;
        let mean = finite().map(|(_, value)| value / count).sum::<f64>();
        let low = finite().map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
        let high = finite()
            .map(|(_, value)| *value)
            .fold(f64::NEG_INFINITY, f64::max);
        match last {
            Some((_, last)) => [low, mean, high, *last].map(number),
            None => [const { String::new() }; 4],
        }
    };
    let has_band = columns
        .iter()
        .flatten()
        .flatten()
        .any(|extent| extent.high > extent.low);
    if let [only] = lines {
        let [low, mean, high, last] = figures(only);
        let band = match has_band {
            true => format!(
                "\n█ up to the minimum and {BAND} up to the maximum of each {}",
                axes.column()
            ),
            false => String::new(),
        };
        return format!("minimum {low}, mean {mean}, maximum {high}, last {last}{band}\n");
    }
    let mut grid = Grid::new(["", "series", "minimum", "mean", "maximum", "last"]);
    for (number, line) in lines.iter().enumerate() {
        let mut cells = vec![letter(number).to_string(), line.name.clone()];
        cells.extend(figures(line));
        grid.row(cells);
    }
    let band = match has_band {
        true => format!(
            "letters extend from the minimum to the maximum of each {}; ",
            axes.column()
        ),
        false => String::new(),
    };
    format!(
        "{}{band}{SEVERAL} marks several series\n",
        grid.render_within(Some(width))
    )
}

/// Returns the letter of a series.
fn letter(number: usize) -> char {
    char::from(b'a' + u8::try_from(number.min(25)).unwrap_or_default())
}

#[cfg(test)]
mod tests;
