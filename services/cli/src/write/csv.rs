//! CSV into points: which column is what, and each row as a line of JSON, which holds any text.

use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, NaiveDateTime, SecondsFormat};
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::{CliError, Result};

/// How CSV is read.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct CsvArguments {
    /// The measurement of all rows [default: the column `measurement`]
    #[arg(
        help_heading = "CSV and Parquet",
        long,
        value_name = "NAME",
        conflicts_with = "measurement_column"
    )]
    measurement: Option<String>,
    /// The column that holds the measurement
    #[arg(help_heading = "CSV and Parquet", long, value_name = "COLUMN")]
    measurement_column: Option<String>,
    /// A column that is a tag
    #[arg(help_heading = "CSV and Parquet", long = "tag", value_name = "COLUMN")]
    #[serde(rename = "tag")]
    tags: Vec<String>,
    /// A column that is a field, with its type: float, int, uint, bool or string; without one, what the text looks like
    /// [default: all columns that are nothing else]
    #[arg(
        help_heading = "CSV and Parquet",
        long = "field",
        value_name = "COLUMN[:TYPE]"
    )]
    #[serde(rename = "field")]
    fields: Vec<String>,
    /// The column that holds the time [default: `time`, where there is one]
    #[arg(help_heading = "CSV and Parquet", long, value_name = "COLUMN")]
    time: Option<String>,
    /// How times are written: rfc3339, s, ms, us, ns, or a pattern such as '%d.%m.%Y %H:%M:%S' (UTC without a %z)
    #[arg(help_heading = "CSV and Parquet", long, value_name = "FORMAT")]
    time_format: Option<String>,
    /// The names of the columns, separated by commas, of files without a header
    #[arg(
        help_heading = "CSV and Parquet",
        long,
        value_name = "NAMES",
        value_delimiter = ','
    )]
    columns: Vec<String>,
    /// What stands between cells
    #[arg(help_heading = "CSV and Parquet", long, value_name = "CHARACTER", default_value = ",", value_parser = delimiter)]
    delimiter: u8,
}

/// What a column is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Role {
    Measurement,
    Time,
    Tag(String),
    Field(String, Kind),
    Nothing,
}

/// How a field is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Auto,
    Float,
    Int,
    Uint,
    Bool,
    String,
}

/// How the rows of a file become points.
#[derive(Debug)]
pub(super) struct CsvPlan {
    roles: Vec<Role>,
    measurement: Option<String>,
    time_pattern: Option<String>,
    delimiter: u8,
}

/// The rows of a batch as lines of JSON.
#[derive(Debug, Default)]
pub(super) struct Converted {
    pub(super) body: Vec<u8>,
    /// Where the row of each line begins in the batch.
    pub(super) starts: Vec<usize>,
    /// Rows that are no points: where they begin, and why.
    pub(super) refused: Vec<(usize, String)>,
}

impl CsvArguments {
    pub(super) const fn delimiter(&self) -> u8 {
        self.delimiter
    }

    /// Whether files have a header.
    pub(super) fn has_header(&self) -> bool {
        self.columns.is_empty()
    }

    /// The unit of integer times, where the format of times is one.
    pub(super) fn precision(&self) -> Option<&'static str> {
        let units = ["s", "ms", "us", "ns"].into_iter();
        units
            .clone()
            .find(|unit| self.time_format.as_deref() == Some(unit))
    }

    /// The measurement of all rows, where it is in no column.
    pub(super) fn measurement(&self) -> Option<&str> {
        self.measurement.as_deref()
    }

    /// Whether no column is said to be anything.
    pub(super) fn says_nothing(&self) -> bool {
        let names = [
            &self.measurement,
            &self.measurement_column,
            &self.time,
            &self.time_format,
        ];
        let lists = [&self.tags, &self.fields, &self.columns];
        names.iter().all(|name| name.is_none()) && lists.iter().all(|list| list.is_empty())
    }

    /// Refuses what has no meaning without an input of columns, or none at all.
    pub(super) fn check(&self, has_columns: bool) -> Result<()> {
        if !has_columns && !self.says_nothing() {
            return Err(CliError::usage(
                "--measurement, --tag, --field, --time, --time-format and --columns are for CSV and Parquet, and nothing \
                 here is",
            ));
        }
        let format = self.time_format.as_deref().unwrap_or("rfc3339");
        let is_known = format == "rfc3339" || self.precision().is_some() || format.contains('%');
        if !is_known {
            return Err(CliError::usage(format!(
                "--time-format {format:?} is none of rfc3339, s, ms, us, ns, or a pattern such as %Y-%m-%d"
            )));
        }
        for field in &self.fields {
            split_field(field)?;
        }
        Ok(())
    }

    /// Refuses what has no meaning for Parquet.
    pub(super) fn check_for_parquet(&self) -> Result<()> {
        let has_pattern = self
            .time_format
            .as_deref()
            .is_some_and(|format| format.contains('%'));
        if has_pattern || !self.columns.is_empty() {
            return Err(CliError::usage(
                "--columns and patterns of --time-format are for CSV; in Parquet columns have names, and times a type",
            ));
        }
        Ok(())
    }

    /// How a file with this header is read; with `None` as `--columns` says.
    pub(super) fn plan(&self, header: Option<&[u8]>) -> Result<CsvPlan> {
        let names = match header {
            None => self.columns.clone(),
            Some(header) => cells_of_header(header, self.delimiter)?,
        };
        Ok(CsvPlan {
            roles: self.roles(&names)?,
            measurement: self.measurement.clone(),
            time_pattern: self.time_format.clone().filter(|format| format.contains('%')),
            delimiter: self.delimiter,
        })
    }

    /// What each column is.
    pub(super) fn roles(&self, names: &[String]) -> Result<Vec<Role>> {
        let column = |name: &str| {
            names.iter().position(|other| other == name).ok_or_else(|| {
                CliError::usage(format!(
                    "there is no column {name:?}; the columns are: {}",
                    names.join(", ")
                ))
            })
        };
        let mut roles: BTreeMap<usize, Role> = BTreeMap::new();
        let mut assign = |at: usize, role: Role| match roles.insert(at, role) {
            None => Ok(()),
            Some(_) => Err(CliError::usage(format!(
                "the column {:?} is named twice",
                names[at]
            ))),
        };
        match (&self.measurement, &self.measurement_column) {
            (Some(_), _) => {}
            (None, Some(name)) => assign(column(name)?, Role::Measurement)?,
            (None, None) => match column("measurement") {
                Ok(at) => assign(at, Role::Measurement)?,
                Err(_) => {
                    return Err(CliError::usage(
                        "there is no column \"measurement\"; say --measurement NAME or --measurement-column COLUMN",
                    ));
                }
            },
        }
        match &self.time {
            Some(name) => assign(column(name)?, Role::Time)?,
            None => {
                if let Ok(at) = column("time") {
                    assign(at, Role::Time)?;
                }
            }
        }
        for name in &self.tags {
            assign(column(name)?, Role::Tag(name.clone()))?;
        }
        for field in &self.fields {
            let (name, kind) = split_field(field)?;
            assign(column(name)?, Role::Field(name.to_owned(), kind))?;
        }
        let rest = |name: &String| match self.fields.is_empty() {
            true => Role::Field(name.clone(), Kind::Auto),
            false => Role::Nothing,
        };
        let roles = names
            .iter()
            .enumerate()
            .map(|(at, name)| roles.remove(&at).unwrap_or_else(|| rest(name)));
        Ok(roles.collect())
    }
}

impl CsvPlan {
    /// Turns whole rows into lines of JSON.
    pub(super) fn convert(&self, rows: &[u8]) -> Converted {
        let mut reader = ::csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(self.delimiter)
            .from_reader(rows);
        let mut converted = Converted::default();
        let mut row = ::csv::ByteRecord::new();
        loop {
            match reader.read_byte_record(&mut row) {
                Ok(true) => {}
                // Reading memory does not fail.
                Ok(false) | Err(_) => return converted,
            }
            let start = row
                .position()
                .and_then(|position| usize::try_from(position.byte()).ok());
            let mut start = start.unwrap_or_default();
            // The reader counts the rest of a line end, and blank lines, to the row behind them.
            while matches!(rows.get(start), Some(b'\r' | b'\n')) {
                start += 1;
            }
            match self.point(&row) {
                Ok(point) => {
                    converted.starts.push(start);
                    converted.body.extend_from_slice(point.to_string().as_bytes());
                    converted.body.push(b'\n');
                }
                Err(reason) => converted.refused.push((start, reason)),
            }
        }
    }

    fn point(&self, row: &::csv::ByteRecord) -> std::result::Result<Value, String> {
        if row.len() != self.roles.len() {
            return Err(format!("{} cells for {} columns", row.len(), self.roles.len()));
        }
        let mut point = serde_json::Map::new();
        let mut tags = serde_json::Map::new();
        let mut fields = serde_json::Map::new();
        if let Some(name) = &self.measurement {
            point.insert("measurement".into(), name.as_str().into());
        }
        for (role, cell) in self.roles.iter().zip(row) {
            let cell = std::str::from_utf8(cell).map_err(|_| "invalid UTF-8".to_owned())?;
            // No value is an empty cell.
            if cell.is_empty() {
                continue;
            }
            match role {
                Role::Nothing => {}
                Role::Measurement => {
                    point.insert("measurement".into(), cell.into());
                }
                Role::Time => {
                    point.insert("time".into(), self.time(cell.trim())?.into());
                }
                Role::Tag(name) => {
                    tags.insert(name.clone(), cell.into());
                }
                Role::Field(name, kind) => {
                    fields.insert(name.clone(), value(name, *kind, cell)?);
                }
            }
        }
        if fields.is_empty() {
            return Err("no field has a value".into());
        }
        if self.roles.contains(&Role::Time) && !point.contains_key("time") {
            return Err("it has no time".into());
        }
        point.insert("tags".into(), tags.into());
        point.insert("fields".into(), fields.into());
        Ok(point.into())
    }

    /// A time as the server reads it.
    fn time(&self, cell: &str) -> std::result::Result<String, String> {
        let Some(pattern) = &self.time_pattern else {
            return Ok(cell.to_owned());
        };
        let with_zone = DateTime::parse_from_str(cell, pattern).map(|time| time.to_utc());
        let time = with_zone
            .or_else(|_| NaiveDateTime::parse_from_str(cell, pattern).map(|time| time.and_utc()))
            .or_else(|error| match NaiveDate::parse_from_str(cell, pattern) {
                Ok(date) => Ok(date.and_time(chrono::NaiveTime::MIN).and_utc()),
                Err(_) => Err(error),
            });
        let time = time.map_err(|error| format!("time {cell:?} is not like {pattern:?}: {error}"))?;
        Ok(time.to_rfc3339_opts(SecondsFormat::AutoSi, true))
    }
}

/// A cell as the value of a field.
fn value(name: &str, kind: Kind, cell: &str) -> std::result::Result<Value, String> {
    let text = cell.trim();
    let boolean = match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    };
    Ok(match kind {
        Kind::Float => json!({"float": text}),
        Kind::Int => json!({"signed": text}),
        Kind::Uint => json!({"unsigned": text}),
        Kind::String => cell.into(),
        Kind::Bool => match (boolean, text) {
            (Some(value), _) => value.into(),
            (None, "1" | "t" | "T") => true.into(),
            (None, "0" | "f" | "F") => false.into(),
            _ => return Err(format!("field {name}: {cell:?} is neither true nor false")),
        },
        Kind::Auto => match boolean {
            Some(value) => value.into(),
            None if text.parse::<i64>().is_ok() => json!({"signed": text}),
            None if text.parse::<f64>().is_ok() && text.bytes().any(|byte| byte.is_ascii_digit()) => {
                json!({"float": text})
            }
            None => cell.into(),
        },
    })
}

fn split_field(field: &str) -> Result<(&str, Kind)> {
    let Some((name, kind)) = field.rsplit_once(':') else {
        return Ok((field, Kind::Auto));
    };
    let kind = match kind {
        "float" => Kind::Float,
        "int" => Kind::Int,
        "uint" => Kind::Uint,
        "bool" => Kind::Bool,
        "string" => Kind::String,
        _ => {
            return Err(CliError::usage(format!(
                "--field {field}: the type {kind:?} is none of float, int, uint, bool, string"
            )));
        }
    };
    Ok((name, kind))
}

fn cells_of_header(header: &[u8], delimiter: u8) -> Result<Vec<String>> {
    let header = header.strip_prefix(b"\xef\xbb\xbf").unwrap_or(header);
    let mut reader = ::csv::ReaderBuilder::new()
        .has_headers(false)
        .delimiter(delimiter)
        .from_reader(header);
    let mut row = ::csv::StringRecord::new();
    match reader.read_record(&mut row) {
        Ok(true) => Ok(row.iter().map(|name| name.trim().to_owned()).collect()),
        Ok(false) => Err(CliError::usage("it has no header")),
        Err(error) => Err(CliError::usage(format!("its header cannot be read: {error}"))),
    }
}

fn delimiter(text: &str) -> std::result::Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [byte] if !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
        _ => Err("write one ASCII character, or \\t".into()),
    }
}

#[cfg(test)]
mod tests;
