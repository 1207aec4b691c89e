//! Scan of a file, or of the first batch of a stream, that determines column types and the form of times.
//!
//! A column gets the narrowest type that fits all its cells. Texts in a column of mostly numbers are reported
//! instead of turning the column into text.

use super::times::{TimeForm, TimeNumbers, decimal, likely_unit};
use super::values::{Kind, boolean, is_float};
use super::{CsvPlan, Role, rows};
use crate::error::{CliError, Result};
use crate::write::cutter::RecordBlock;
use crate::write::early::is_near_1970;

/// Result of a scan: counts per column, and the forms of times.
#[derive(Debug)]
pub(in crate::write) struct ColumnScan {
    columns: Vec<ColumnCounts>,
    times: TimeNumbers,
    /// Number of parsed times that are not numbers.
    dates: u64,
    /// First time that cannot be parsed; `None` if all can.
    no_time: Option<Cell>,
}

/// Cell that does not fit, with its line.
#[derive(Debug)]
struct Cell {
    line: u64,
    text: String,
}

/// Counts of the cells of a column by form.
#[derive(Debug, Default)]
struct ColumnCounts {
    booleans: u64,
    integers: u64,
    /// Integers above the signed range.
    unsigned: u64,
    negative: u64,
    floats: u64,
    texts: u64,
    /// First cell that is not a number; `None` if all cells are numbers.
    no_number: Option<Cell>,
}

impl ColumnScan {
    pub(in crate::write) fn new(plan: &CsvPlan) -> Self {
        Self {
            columns: plan.roles.iter().map(|_| ColumnCounts::default()).collect(),
            times: TimeNumbers::default(),
            dates: 0,
            no_time: None,
        }
    }

    /// Adds the cells of a block of whole rows to the counts.
    pub(in crate::write) fn add(&mut self, plan: &CsvPlan, block: &RecordBlock) {
        let (mut line, mut counted) = (block.first_line, 0);
        rows(&block.bytes, plan.delimiter, |start, row| {
            line += memchr::memchr_iter(b'\n', &block.bytes[counted..start]).count() as u64;
            counted = start;
            if row.len() != plan.roles.len() {
                return;
            }
            for (at, (role, cell)) in plan.roles.iter().zip(row).enumerate() {
                let Some(text) = std::str::from_utf8(cell).ok().map(str::trim) else {
                    continue;
                };
                match role {
                    _ if text.is_empty() => {}
                    Role::Field(_, Kind::Auto) => self.columns[at].add(line, text),
                    Role::Time => self.add_time(plan, line, text),
                    _ => {}
                }
            }
        });
    }

    fn add_time(&mut self, plan: &CsvPlan, line: u64, text: &str) {
        if matches!(plan.times, TimeForm::Pattern(_)) {
            return;
        }
        let number = text.parse().ok().or_else(|| Some(decimal(text)?.0));
        if let Some(number) = number {
            self.times.add(number);
        } else if plan.times.read(text).is_ok() {
            self.dates += 1;
        } else {
            self.no_time.get_or_insert_with(|| Cell {
                line,
                text: text.to_owned(),
            });
        }
    }

    /// Returns the likely unit of integer times if the largest of them is near 1970 when read in `unit`; otherwise
    /// `None`.
    pub(in crate::write) fn likely_unit(&self, unit: &str) -> Option<&'static str> {
        let largest = self.times.largest()?;
        let is_near = i64::try_from(largest).is_ok_and(|time| is_near_1970(time, unit));
        is_near.then(|| likely_unit(largest))
    }

    /// Sets types and times in the plan. `unit` is the unit of `--precision`; `None` if the option is not given.
    ///
    /// # Errors
    ///
    /// Returns a usage error with the position of the first bad cell if a column of mostly numbers has other cells, or
    /// if no time can be parsed. Returns a usage error without a position if `unit` is `None` and the times are numbers
    /// that suggest several units.
    pub(in crate::write) fn decide(
        &self,
        plan: &mut CsvPlan,
        path: &str,
        unit: Option<&'static str>,
    ) -> Result<()> {
        let names = plan.names.clone();
        for ((role, counts), column) in plan.roles.iter_mut().zip(&self.columns).zip(&names) {
            if let Role::Field(_, kind @ Kind::Auto) = role {
                *kind = counts.kind().map_err(|(cell, numbers)| {
                    CliError::usage(format!(
                        "{path}:{}: column {column}: {:?} is not a number, but {numbers} other cells are; \
                         correct it, use --field {column}:string to keep texts, or --field {column}:float to \
                         reject such rows",
                        cell.line, cell.text
                    ))
                })?;
            }
        }
        if !matches!(plan.times, TimeForm::Common(_)) {
            return Ok(());
        }
        if let Some(cell) = self
            .no_time
            .as_ref()
            .filter(|_| self.times.largest().is_none() && self.dates == 0)
        {
            let reason = plan.times.read(&cell.text).err().unwrap_or_default();
            return Err(CliError::usage(format!("{path}:{}: {reason}", cell.line)));
        }
        let unit = match unit {
            Some(unit) => unit,
            None => self
                .times
                .unit()
                .map_err(|reason| CliError::usage(format!("{path}: {reason}")))?,
        };
        plan.times = TimeForm::Common(unit);
        Ok(())
    }
}

impl ColumnCounts {
    fn add(&mut self, line: u64, text: &str) {
        if text.parse::<i64>().is_ok() {
            self.integers += 1;
            self.negative += u64::from(text.starts_with('-'));
            return;
        }
        if text.parse::<u64>().is_ok() {
            self.unsigned += 1;
            return;
        }
        if is_float(text) {
            self.floats += 1;
            return;
        }
        match boolean(text) {
            Some(_) => self.booleans += 1,
            None => self.texts += 1,
        }
        self.no_number.get_or_insert_with(|| Cell {
            line,
            text: text.to_owned(),
        });
    }

    /// Returns the type that fits all cells; [`Kind::Auto`] without cells. If most but not all cells are
    /// numbers, returns the first other cell and the count of numbers as an error.
    fn kind(&self) -> std::result::Result<Kind, (&Cell, u64)> {
        let numbers = self.integers + self.unsigned + self.floats;
        let others = self.booleans + self.texts;
        Ok(match (numbers, others) {
            (0, 0) => Kind::Auto,
            (0, _) if self.texts == 0 => Kind::Bool,
            // The column holds texts, some of which have the form of numbers, such as the rooms `12` and `12a`.
            (_, 1..) if others >= numbers => Kind::String,
            (_, 1..) => {
                if let Some(cell) = &self.no_number {
                    return Err((cell, numbers));
                }
                Kind::String
            }
            _ if self.floats > 0 || (self.unsigned > 0 && self.negative > 0) => Kind::Float,
            _ if self.unsigned > 0 => Kind::Uint,
            _ => Kind::Int,
        })
    }
}
