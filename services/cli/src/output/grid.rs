//! A table of text: columns as wide as their widest cell, numbers to the right.

use unicode_width::UnicodeWidthStr;

/// A table under one heading.
pub(crate) struct Grid {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// A table with these columns.
    pub(crate) fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Self {
        Self {
            head: head.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row of as many cells as there are columns.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table as text, a line end after each line.
    pub(crate) fn render(&self) -> String {
        let columns = self.head.len();
        let mut widths: Vec<usize> = self.head.iter().map(|name| width(name)).collect();
        let mut is_number = vec![!self.rows.is_empty(); columns];
        for row in &self.rows {
            for (at, cell) in row.iter().enumerate().take(columns) {
                widths[at] = widths[at].max(width(&shown(cell)));
                is_number[at] &= cell.is_empty() || looks_like_number(cell);
            }
        }
        let mut out = String::new();
        self.line(&self.head, &widths, &is_number, &mut out);
        let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
        self.line(&rule, &widths, &is_number, &mut out);
        for row in &self.rows {
            self.line(row, &widths, &is_number, &mut out);
        }
        out
    }

    fn line(&self, cells: &[String], widths: &[usize], is_number: &[bool], out: &mut String) {
        let begin = out.len();
        for (at, width_of_column) in widths.iter().enumerate() {
            let cell = shown(cells.get(at).map_or("", String::as_str));
            let space = " ".repeat(width_of_column.saturating_sub(width(&cell)));
            if at > 0 {
                out.push_str("  ");
            }
            if is_number[at] {
                out.push_str(&space);
                out.push_str(&cell);
            } else {
                out.push_str(&cell);
                out.push_str(&space);
            }
        }
        let end = out[begin..].trim_end().len();
        out.truncate(begin + end);
        out.push('\n');
    }
}

/// A cell on one line, without what could steer a terminal.
fn shown(cell: &str) -> String {
    cell.chars().map(|c| if steers(c) { '·' } else { c }).collect()
}

/// Whether a character moves, colours or turns around what stands near it.
fn steers(c: char) -> bool {
    c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Columns of a terminal: two for characters of East Asia and most pictures, none for those that join others.
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
mod tests {
    use super::*;

    #[test]
    fn columns_stand_below_each_other() {
        let mut grid = Grid::new(["name", "n"]);
        grid.row(vec!["a".into(), "1".into()]);
        grid.row(vec!["much longer".into(), "1,200".into()]);
        assert_eq!(
            grid.render(),
            "name             n\n───────────  ─────\na                1\nmuch longer  1,200\n"
        );
    }

    #[test]
    fn what_steers_a_terminal_is_not_shown() {
        let mut grid = Grid::new(["x"]);
        grid.row(vec!["a\x1b[2J\nb".into()]);
        assert_eq!(grid.render().lines().nth(2), Some("a·[2J·b"));
        assert_eq!(Grid::new(["x"]).render(), "x\n─\n");
        let mut grid = Grid::new(["x"]);
        grid.row(vec!["user\u{202e}exe".into()]);
        assert_eq!(grid.render().lines().nth(2), Some("user·exe"));
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let mut grid = Grid::new(["host", "x"]);
        grid.row(vec!["日本".into(), "a".into()]);
        grid.row(vec!["cafe\u{301}".into(), "b".into()]);
        assert_eq!(grid.render(), "host  x\n────  ─\n日本  a\ncafe\u{301}  b\n");
    }
}
