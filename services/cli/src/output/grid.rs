//! Tables of text. Columns are as wide as their widest cell; numbers are right-aligned.
//!
//! A table is fitted to the width of the terminal. Times and numbers lose unneeded digits first, then long texts
//! lose their middle. If the table still does not fit, each row becomes a block of lines. In a pipe or a file
//! all cells are written in full.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::readable::{self, Kind};

/// Number of spaces between two columns.
const GAP: usize = 2;
/// Minimum width of a shortened text.
const TEXT_MIN: usize = 16;
/// Minimum width of a shortened timeline id. Ids are distinguished by their ends.
const ID_MIN: usize = 11;
/// Minimum width to which the heading of a column with times or numbers is shortened.
const HEAD_MIN: usize = 8;
/// Maximum width of the line that separates two blocks.
const RULE_MAX: usize = 40;

/// Table with a head.
pub(crate) struct Grid {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    wraps: bool,
}

impl Grid {
    /// Creates a table with these columns.
    pub(crate) fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Self {
        Self {
            head: head.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
            wraps: false,
        }
    }

    /// Allows texts of the last column to wrap instead of losing their middle.
    pub(crate) fn wrapping(mut self) -> Self {
        self.wraps = true;
        self
    }

    /// Adds a row. Missing cells are rendered empty, surplus cells are omitted.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Formats the table for standard output. Every line ends with a line end.
    pub(crate) fn render(&self) -> String {
        self.render_within(super::columns())
    }

    /// Formats the table for a terminal of `width` columns, or in full without a width.
    pub(crate) fn render_within(&self, width: Option<usize>) -> String {
        let shown = self.shown();
        let Some(width) = width else {
            let (widths, is_number) = (shown.natural(), shown.numbers());
            return shown.lines(&widths, &is_number);
        };
        let shown = shown.readable();
        shown.fitted(width).unwrap_or_else(|| shown.blocks(width))
    }

    /// Returns the table without control characters, and with one cell per column in each row.
    fn shown(&self) -> Self {
        let row = |row: &Vec<String>| {
            let cells = (0..self.head.len()).map(|at| steered(row.get(at).map_or("", String::as_str)));
            cells.collect()
        };
        Self {
            head: self.head.iter().map(|name| steered(name)).collect(),
            rows: self.rows.iter().map(row).collect(),
            wraps: self.wraps,
        }
    }

    /// Returns the table with shortened times and numbers.
    fn readable(mut self) -> Self {
        for at in 0..self.head.len() {
            let mut cells: Vec<&mut String> = self.rows.iter_mut().map(|row| &mut row[at]).collect();
            readable::shorten(&mut cells);
        }
        self
    }

    fn cells(&self, column: usize) -> impl Iterator<Item = &str> {
        self.rows.iter().map(move |row| &*row[column])
    }

    /// Returns the width of the widest cell of each column, including its head.
    fn natural(&self) -> Vec<usize> {
        let natural = |(at, head): (usize, &String)| self.cells(at).map(width).fold(width(head), usize::max);
        self.head.iter().enumerate().map(natural).collect()
    }

    /// Returns true for each column whose cells are all numbers or empty. Without rows, all columns are false.
    fn numbers(&self) -> Vec<bool> {
        let is_number = |at| {
            let mut cells = self.cells(at).map(str::trim_end);
            !self.rows.is_empty()
                && cells.all(|cell| cell.is_empty() || looks_like_number(cell) || cell.parse::<f64>().is_ok())
        };
        (0..self.head.len()).map(is_number).collect()
    }

    /// Returns the minimum readable width of each column.
    fn least(&self, natural: &[usize]) -> Vec<usize> {
        let least = |(at, natural): (usize, &usize)| match readable::kind(self.cells(at)) {
            Kind::Text => TEXT_MIN.min(*natural),
            Kind::Id => ID_MIN.min(*natural),
            Kind::Time | Kind::Number => {
                let widest = self.cells(at).map(width).max().unwrap_or_default();
                widest.max(HEAD_MIN.min(*natural))
            }
        };
        natural.iter().enumerate().map(least).collect()
    }

    /// Formats the table within `width_max`. Returns `None` if texts would become too short, or if two different
    /// values would become equal.
    fn fitted(&self, width_max: usize) -> Option<String> {
        let is_number = self.numbers();
        let mut widths = self.natural();
        let least = self.least(&widths);
        let room = width_max.checked_sub(GAP * self.head.len().saturating_sub(1))?;
        if least.iter().sum::<usize>() > room {
            return None;
        }
        // Shortens the widest column that is not at its minimum by one character, until all columns fit.
        while widths.iter().sum::<usize>() > room {
            let widest = (0..widths.len()).filter(|at| widths[*at] > least[*at]);
            let widest = widest.max_by_key(|at| widths[*at])?;
            widths[widest] -= 1;
        }
        let wrapped = self.wraps.then(|| self.head.len() - 1);
        let mut narrow = Self {
            head: elided(&self.head, &widths, None),
            rows: Vec::with_capacity(self.rows.len()),
            wraps: self.wraps,
        };
        narrow.rows = self
            .rows
            .iter()
            .map(|row| elided(row, &widths, wrapped))
            .collect();
        let keeps = |at| distinct(self.cells(at)) == distinct(narrow.cells(at));
        let keeps_all = (0..self.head.len()).all(keeps) && distinct(&self.head) == distinct(&narrow.head);
        keeps_all.then(|| narrow.lines(&widths, &is_number))
    }

    /// Formats each row as a block with one entry per column. Empty cells are omitted; long cells are wrapped.
    fn blocks(&self, width_max: usize) -> String {
        let names = self.head.iter().map(|name| width(name)).max().unwrap_or_default();
        let names = names.min(width_max / 3).max(1);
        let room = width_max.saturating_sub(names + GAP).max(TEXT_MIN);
        let mut out = String::new();
        for (number, row) in (1..).zip(&self.rows) {
            let title = format!("─ {number} of {} ", self.rows.len());
            let rule = width_max.min(RULE_MAX).saturating_sub(width(&title));
            out.push_str(&format!("{title}{}\n", "─".repeat(rule)));
            for (name, cell) in self.head.iter().zip(row).filter(|(_, cell)| !cell.is_empty()) {
                let mut name = padded(&elide(name, names), names);
                for piece in wrap(cell.trim(), room) {
                    out.push_str(&format!("{name}{}{piece}\n", " ".repeat(GAP)));
                    name = " ".repeat(names);
                }
            }
        }
        out
    }

    /// Formats head, rule and rows.
    fn lines(&self, widths: &[usize], is_number: &[bool]) -> String {
        let mut out = String::new();
        line(&self.head, widths, is_number, &mut out);
        let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
        line(&rule, widths, is_number, &mut out);
        for row in &self.rows {
            let last = row.len().saturating_sub(1);
            let pieces = match (self.wraps, row.last()) {
                (true, Some(cell)) => wrap(cell, widths[last]),
                _ => Vec::new(),
            };
            if pieces.len() < 2 {
                line(row, widths, is_number, &mut out);
                continue;
            }
            let mut cells = row.clone();
            for piece in pieces {
                cells[last] = piece;
                line(&cells, widths, is_number, &mut out);
                cells.iter_mut().for_each(String::clear);
            }
        }
        out
    }
}

/// Appends one line of cells.
fn line(cells: &[String], widths: &[usize], is_number: &[bool], out: &mut String) {
    let begin = out.len();
    for (at, (cell, wide)) in cells.iter().zip(widths).enumerate() {
        if at > 0 {
            out.push_str(&" ".repeat(GAP));
        }
        if is_number[at] {
            out.push_str(&" ".repeat(wide.saturating_sub(width(cell))));
            out.push_str(cell);
        } else {
            out.push_str(&padded(cell, *wide));
        }
    }
    let end = out[begin..].trim_end().len();
    out.truncate(begin + end);
    out.push('\n');
}

/// Pads a text with spaces to a width.
fn padded(text: &str, wide: usize) -> String {
    format!("{text}{}", " ".repeat(wide.saturating_sub(width(text))))
}

/// Shortens cells to their widths. Cells of the column `whole` are unchanged.
fn elided(cells: &[String], widths: &[usize], whole: Option<usize>) -> Vec<String> {
    let cells = cells.iter().zip(widths).enumerate();
    cells
        .map(|(at, (cell, wide))| match whole == Some(at) {
            true => cell.clone(),
            false => elide(cell, *wide),
        })
        .collect()
}

/// Shortens a text to at most `wide` terminal columns by replacing its middle with `…`.
pub(crate) fn elide(text: &str, wide: usize) -> String {
    if width(text) <= wide {
        return text.to_owned();
    }
    let kept = wide.saturating_sub(1);
    let head = fitting(text.chars(), kept - kept / 2);
    let tail: Vec<char> = fitting(text.chars().rev(), kept / 2).chars().collect();
    format!("{head}…{}", tail.into_iter().rev().collect::<String>())
}

/// Returns the first characters that fit into `wide` columns.
fn fitting(chars: impl Iterator<Item = char>, wide: usize) -> String {
    let mut left = wide;
    chars
        .take_while(|c| match left.checked_sub(c.width().unwrap_or(0)) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        })
        .collect()
}

/// Wraps a text to lines of at most `wide` columns, after a space or a comma if possible.
fn wrap(text: &str, wide: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = text;
    while width(rest) > wide {
        let most = fitting(rest.chars(), wide).len();
        let most = match most {
            0 => rest.chars().next().map_or(rest.len(), char::len_utf8),
            most => most,
        };
        let cut = rest[..most].rfind([' ', ',']).map_or(most, |at| at + 1);
        lines.push(rest[..cut].trim_end().to_owned());
        rest = rest[cut..].trim_start();
    }
    if !rest.is_empty() || lines.is_empty() {
        lines.push(rest.to_owned());
    }
    lines
}

fn distinct<S: AsRef<str> + Ord>(cells: impl IntoIterator<Item = S>) -> usize {
    cells.into_iter().collect::<std::collections::BTreeSet<_>>().len()
}

/// Replaces characters that would control the terminal.
fn steered(cell: &str) -> String {
    cell.chars().map(|c| if steers(c) { '·' } else { c }).collect()
}

/// Returns true for control characters and characters that change the writing direction.
fn steers(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns the width in terminal columns: two for East Asian characters and most emoji, zero for combining
/// characters.
fn width(text: &str) -> usize {
    text.width()
}

fn looks_like_number(cell: &str) -> bool {
    cell.bytes().any(|byte| byte.is_ascii_digit())
        && cell
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b',' | b'-' | b'+' | b'e' | b'E' | b'%'))
        && !cell[1..].contains('-')
}

#[cfg(test)]
mod tests;
