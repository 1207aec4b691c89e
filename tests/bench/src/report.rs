//! Report of benchmark figures and their goals, as a Markdown table and as JSON.
//!
//! Runs are compared by the names of the figures, so a name must not change.

use std::fmt;

use serde_json::{Value, json};

/// All figures and notes of a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) figures: Vec<Figure>,
    /// Explanations of the figures; notes have no goals.
    pub(crate) notes: Vec<String>,
}

/// Measured figure.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) reached: f64,
    pub(crate) unit: Unit,
    pub(crate) wanted: Wanted,
}

/// Unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Millions of values per second of CPU time.
    MillionValuesPerCpuSecond,
    /// Millions of values per second of wall-clock time.
    MillionValuesPerSecond,
    /// Bytes on disk per value.
    BytesPerValue,
    Mebibytes,
    Seconds,
    Milliseconds,
    /// Bytes per byte, such as bytes written per byte stored.
    BytesPerByte,
    /// Multiple of another figure.
    Times,
    Percent,
    Segments,
    /// Millions of bytes per second of wall-clock time.
    MegabytesPerSecond,
    Microseconds,
    /// Bytes per timeline.
    BytesPerTimeline,
    /// Bytes per row.
    BytesPerRow,
    /// Thousands of timelines per second of CPU time.
    ThousandTimelinesPerCpuSecond,
    /// Bytes per message or inbox entry.
    BytesPerMessage,
    /// Thousands of messages per second of wall-clock time.
    ThousandMessagesPerSecond,
    /// Thousands of messages or inbox entries per second of CPU time.
    ThousandMessagesPerCpuSecond,
    /// Thousands of rows per second of wall-clock time.
    ThousandRowsPerSecond,
    /// Thousands of rows per second of CPU time.
    ThousandRowsPerCpuSecond,
    /// Millions of rows per second of CPU time.
    MillionRowsPerCpuSecond,
}

/// Goal of a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Wanted {
    AtLeast(f64),
    AtMost(f64),
    /// No goal: the figure is only reported.
    Nothing,
}

impl Report {
    /// Adds a figure and prints it, so that a long run shows its progress.
    pub(crate) fn add(&mut self, name: impl Into<String>, reached: f64, unit: Unit, wanted: Wanted) {
        let figure = Figure {
            name: name.into(),
            reached,
            unit,
            wanted,
        };
        eprintln!("    {}: {}", figure.name, unit.show(reached));
        self.figures.push(figure);
    }

    /// Adds a note and prints it.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        eprintln!("    {note}");
        self.notes.push(note);
    }

    /// Returns the figures and notes as JSON.
    pub(crate) fn to_json(&self) -> Value {
        let figures = self.figures.iter().map(|figure| {
            let (at_least, at_most) = match figure.wanted {
                Wanted::AtLeast(least) => (Some(least), None),
                Wanted::AtMost(most) => (None, Some(most)),
                Wanted::Nothing => (None, None),
            };
            json!({
                "name": figure.name,
                "reached": figure.reached,
                "unit": figure.unit.name(),
                "at_least": at_least,
                "at_most": at_most,
                "met": figure.met(),
            })
        });
        json!({ "figures": figures.collect::<Vec<_>>(), "notes": self.notes })
    }
}

impl Figure {
    /// Returns true if the goal is met; `None` without a goal.
    pub(crate) fn met(&self) -> Option<bool> {
        match self.wanted {
            Wanted::AtLeast(least) => Some(self.reached >= least),
            Wanted::AtMost(most) => Some(self.reached <= most),
            Wanted::Nothing => None,
        }
    }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::MillionValuesPerCpuSecond => "M values/CPU-s",
            Self::MillionValuesPerSecond => "M values/s",
            Self::BytesPerValue => "B/value",
            Self::Mebibytes => "MiB",
            Self::Seconds => "s",
            Self::Milliseconds => "ms",
            Self::BytesPerByte => "B/B",
            Self::Times => "×",
            Self::Percent => "%",
            Self::Segments => "segments",
            Self::MegabytesPerSecond => "MB/s",
            Self::Microseconds => "µs",
            Self::BytesPerTimeline => "B/timeline",
            Self::BytesPerRow => "B/row",
            Self::ThousandTimelinesPerCpuSecond => "k timelines/CPU-s",
            Self::BytesPerMessage => "B/message",
            Self::ThousandMessagesPerSecond => "k messages/s",
            Self::ThousandMessagesPerCpuSecond => "k messages/CPU-s",
            Self::ThousandRowsPerSecond => "k rows/s",
            Self::ThousandRowsPerCpuSecond => "k rows/CPU-s",
            Self::MillionRowsPerCpuSecond => "M rows/CPU-s",
        }
    }

    fn show(self, number: f64) -> String {
        let places = match self {
            Self::Mebibytes
            | Self::Percent
            | Self::Segments
            | Self::BytesPerTimeline
            | Self::ThousandTimelinesPerCpuSecond => 0,
            _ => 2,
        };
        format!("{number:.places$} {}", self.name())
    }
}

impl fmt::Display for Report {
    /// Writes the figures as a Markdown table, which a README can quote unchanged, and the notes as a list.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows: Vec<[String; 4]> = self
            .figures
            .iter()
            .map(|figure| {
                let (wanted, ok) = match figure.wanted {
                    Wanted::AtLeast(least) => (format!("≥ {}", figure.unit.show(least)), figure.met()),
                    Wanted::AtMost(most) => (format!("≤ {}", figure.unit.show(most)), figure.met()),
                    Wanted::Nothing => (String::new(), None),
                };
                let ok = ok.map_or("", |ok| if ok { "yes" } else { "no" });
                let reached = figure.unit.show(figure.reached);
                [figure.name.clone(), reached, wanted, ok.to_owned()]
            })
            .collect();
        let titles = ["figure", "reached", "goal", "ok?"].map(str::to_owned);
        let widths: [usize; 4] = std::array::from_fn(|column| {
            let cells = rows.iter().chain([&titles]);
            cells.map(|row| row[column].chars().count()).max().unwrap_or(0)
        });
        let line = |f: &mut fmt::Formatter<'_>, row: &[String; 4]| {
            for (cell, width) in row.iter().zip(widths) {
                write!(f, "| {cell:width$} ")?;
            }
            writeln!(f, "|")
        };
        line(f, &titles)?;
        line(f, &widths.map(|width| "-".repeat(width)))?;
        rows.iter().try_for_each(|row| line(f, row))?;
        writeln!(f)?;
        self.notes.iter().try_for_each(|note| writeln!(f, "- {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_and_met_targets_are_marked() {
        let mut report = Report::default();
        report.add("fast", 4.5, Unit::MillionValuesPerCpuSecond, Wanted::AtLeast(4.0));
        report.add("small", 0.6, Unit::BytesPerValue, Wanted::AtMost(0.55));
        report.add("shown", 1.0, Unit::Seconds, Wanted::Nothing);
        let met: Vec<_> = report.figures.iter().map(Figure::met).collect();
        assert_eq!(met, [Some(true), Some(false), None]);
        let table = report.to_string();
        assert!(
            table.contains("| small  | 0.60 B/value        | ≤ 0.55 B/value        | no  |"),
            "{table}"
        );
    }
}
