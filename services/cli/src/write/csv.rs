//! CSV into points: which column is what, and each row as a line of JSON, which holds any text.
//!
//! A file is read twice: `scan` decides the type of each column and the form of its times, then rows are converted. Of a
//! stream the first batch decides.

mod replaced;
mod scan;
mod tags;
mod times;
mod values;

use std::collections::BTreeMap;

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{CliError, Result};
use replaced::Met;
pub(super) use replaced::{COMPARED_MAX, Compared};
pub(super) use scan::ColumnScan;
use times::TimeForm;
pub(super) use times::likely_unit;
pub(super) use values::Kind;
use values::{split_field, value};

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
    /// A column that is a tag, or of CSV a tag that all rows have
    #[arg(
        help_heading = "CSV and Parquet",
        long = "tag",
        value_name = "COLUMN|KEY=VALUE"
    )]
    #[serde(rename = "tag")]
    tags: Vec<String>,
    /// A tag whose value is the name of the file without its endings, or the part for which * stands in a pattern, as in
    /// host=metrics-*.csv; of CSV
    #[arg(help_heading = "CSV and Parquet", long, value_name = "KEY[=PATTERN]")]
    tag_from_file: Vec<String>,
    /// A column that is a field, with its type: float, int, uint, bool or string; without one, the type that holds all of
    /// its cells [default: all columns that are nothing else]
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
    /// How times are written: rfc3339, s, ms, us, ns, or a pattern such as '%d.%m.%Y %H:%M:%S' (UTC without a %z) [default: of
    /// CSV any of RFC 3339, a date, a date with a time, and numbers in the unit that their size suggests]
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

/// How the rows of a file become points.
#[derive(Debug)]
pub(super) struct CsvPlan {
    /// The columns.
    names: Vec<String>,
    roles: Vec<Role>,
    measurement: Option<String>,
    /// Tags that all rows have.
    tags: Vec<(String, String)>,
    times: TimeForm,
    delimiter: u8,
    met: Met,
}

/// The rows of a batch as lines of JSON.
#[derive(Debug, Default)]
pub(super) struct Converted {
    pub(super) body: Vec<u8>,
    /// Where the row of each line begins in the batch.
    pub(super) starts: Vec<usize>,
    /// Rows that are no points: where they begin, and why.
    pub(super) refused: Vec<(usize, String)>,
    /// Counts of replaced and repeated rows of the file.
    pub(super) compared: Compared,
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
        let lists = [&self.tags, &self.tag_from_file, &self.fields, &self.columns];
        names.iter().all(|name| name.is_none()) && lists.iter().all(|list| list.is_empty())
    }

    /// Refuses what has no meaning without an input of columns, or none at all.
    pub(super) fn check(&self, has_columns: bool) -> Result<()> {
        if !has_columns && !self.says_nothing() {
            return Err(CliError::usage(
                "--measurement, --tag, --tag-from-file, --field, --time, --time-format and --columns are for CSV and \
                 Parquet, and nothing here is",
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
        self.tag_from_file.iter().try_for_each(|rule| tags::check(rule))
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
        if !self.tag_from_file.is_empty() || self.tags.iter().any(|tag| tags::constant(tag).is_some()) {
            return Err(CliError::usage(
                "--tag-from-file and --tag KEY=VALUE are for CSV; a Parquet file says itself which tags its rows have",
            ));
        }
        Ok(())
    }

    /// How a file with this header is read; with `None` as `--columns` says. Types of columns and the form of times are open
    /// until a [`ColumnScan`] decides.
    pub(super) fn plan(&self, header: Option<&[u8]>, path: &str) -> Result<CsvPlan> {
        let names = match header {
            None => self.columns.clone(),
            Some(header) => cells_of_header(header, self.delimiter)?,
        };
        let roles = self.roles(&names)?;
        Ok(CsvPlan {
            tags: self.shared_tags(&roles, path)?,
            names,
            roles,
            measurement: self.measurement.clone(),
            times: match &self.time_format {
                Some(format) if format.contains('%') => TimeForm::Pattern(format.clone()),
                Some(_) => TimeForm::Plain,
                None => TimeForm::Common("ns"),
            },
            delimiter: self.delimiter,
            met: Met::default(),
        })
    }

    /// The tags that all rows of a file have.
    fn shared_tags(&self, roles: &[Role], path: &str) -> Result<Vec<(String, String)>> {
        let said = self.tags.iter().filter_map(|tag| tags::constant(tag));
        let mut shared: Vec<(String, String)> = said
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        for rule in &self.tag_from_file {
            shared.push(tags::from_file(rule, path)?);
        }
        shared.sort_unstable();
        let is_column = |key: &str| {
            roles
                .iter()
                .any(|role| matches!(role, Role::Tag(tag) if tag == key))
        };
        let twice = shared
            .windows(2)
            .find(|pair| pair[0].0 == pair[1].0)
            .map(|pair| &pair[0].0);
        match twice.or_else(|| shared.iter().map(|(key, _)| key).find(|key| is_column(key))) {
            Some(key) => Err(CliError::usage(format!("the tag {key:?} is named twice"))),
            None => Ok(shared),
        }
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
        for name in self.tags.iter().filter(|tag| tags::constant(tag).is_none()) {
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
    /// The unit of integer times, where their size decides it.
    pub(super) const fn unit(&self) -> Option<&'static str> {
        match self.times {
            TimeForm::Common(unit) => Some(unit),
            TimeForm::Plain | TimeForm::Pattern(_) => None,
        }
    }

    /// Turns whole rows into lines of JSON.
    pub(super) fn convert(&self, bytes: &[u8]) -> Converted {
        let mut converted = Converted::default();
        let mut hashes = Vec::new();
        rows(bytes, self.delimiter, |start, row| match self.point(row) {
            Ok(point) => {
                hashes.extend(place_of(&point));
                converted.starts.push(start);
                converted.body.extend_from_slice(point.to_string().as_bytes());
                converted.body.push(b'\n');
            }
            Err(reason) => converted.refused.push((start, reason)),
        });
        converted.compared = self.met.add(&hashes);
        converted
    }

    fn point(&self, row: &::csv::ByteRecord) -> std::result::Result<Value, String> {
        if row.len() != self.roles.len() {
            return Err(format!("{} cells for {} columns", row.len(), self.roles.len()));
        }
        let mut point = serde_json::Map::new();
        let mut tags = serde_json::Map::new();
        tags.extend(
            self.tags
                .iter()
                .map(|(key, value)| (key.clone(), value.as_str().into())),
        );
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
                    point.insert("time".into(), self.times.read(cell.trim())?.into());
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
}

/// Hands out each row with the place at which it begins.
fn rows(bytes: &[u8], delimiter: u8, mut each: impl FnMut(usize, &::csv::ByteRecord)) {
    let mut reader = ::csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(delimiter)
        .from_reader(bytes);
    let mut row = ::csv::ByteRecord::new();
    // Reading memory does not fail.
    while let Ok(true) = reader.read_byte_record(&mut row) {
        let start = row
            .position()
            .and_then(|position| usize::try_from(position.byte()).ok());
        let mut start = start.unwrap_or_default();
        // The reader counts the rest of a line end, and blank lines, to the row behind them.
        while matches!(bytes.get(start), Some(b'\r' | b'\n')) {
            start += 1;
        }
        each(start, &row);
    }
}

/// A hash of the timeline and the time of a point that has one.
fn place_of(point: &Value) -> Option<u64> {
    let time = point.get("time")?;
    let place = json!([point.get("measurement"), point.get("tags"), time]);
    Some(xxh3_64(place.to_string().as_bytes()))
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
