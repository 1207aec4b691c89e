//! Conversion of CSV to points: assigns a role to each column and writes each row as a line of JSON, which can
//! hold any text.
//!
//! A file is read twice. `scan` first determines the type of each column and the form of the times; then rows are
//! converted. For a stream, only the first batch is scanned.

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

/// Options that define how CSV and Parquet are read.
#[derive(Debug, Clone, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct CsvArguments {
    /// Measurement of all rows [default: the column `measurement`]
    #[arg(
        help_heading = "CSV and Parquet",
        long,
        value_name = "NAME",
        conflicts_with = "measurement_column"
    )]
    measurement: Option<String>,
    /// Column that holds the measurement
    #[arg(help_heading = "CSV and Parquet", long, value_name = "COLUMN")]
    measurement_column: Option<String>,
    /// Tag column; for CSV also a constant tag of all rows; may be repeated
    #[arg(
        help_heading = "CSV and Parquet",
        long = "tag",
        value_name = "COLUMN|KEY=VALUE"
    )]
    #[serde(rename = "tag")]
    tags: Vec<String>,
    /// Tag whose value is the file name without its endings, or the part that * matches in a pattern, as in
    /// host=metrics-*.csv; CSV only
    #[arg(help_heading = "CSV and Parquet", long, value_name = "KEY[=PATTERN]")]
    tag_from_file: Vec<String>,
    /// Field column with its type: float, int, uint, bool or string; without a type, the one that fits all
    /// cells [default: all other columns]
    #[arg(
        help_heading = "CSV and Parquet",
        long = "field",
        value_name = "COLUMN[:TYPE]"
    )]
    #[serde(rename = "field")]
    fields: Vec<String>,
    /// Column that holds the time [default: `time`, if it exists]
    #[arg(help_heading = "CSV and Parquet", long, value_name = "COLUMN")]
    time: Option<String>,
    /// Format of times: rfc3339, s, ms, us, ns, or a pattern such as '%d.%m.%Y %H:%M:%S' (UTC without a %z)
    /// [default for CSV: RFC 3339, a date, a date with a time, or numbers in the unit suggested by their
    /// magnitude]
    #[arg(help_heading = "CSV and Parquet", long, value_name = "FORMAT")]
    time_format: Option<String>,
    /// Column names, separated by commas, for files without a header
    #[arg(
        help_heading = "CSV and Parquet",
        long,
        value_name = "NAMES",
        value_delimiter = ','
    )]
    columns: Vec<String>,
    /// Character that separates cells
    #[arg(help_heading = "CSV and Parquet", long, value_name = "CHARACTER", default_value = ",", value_parser = delimiter)]
    delimiter: u8,
}

/// Role of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Role {
    Measurement,
    Time,
    Tag(String),
    Field(String, Kind),
    Nothing,
}

/// Plan for converting the rows of a file to points.
#[derive(Debug)]
pub(super) struct CsvPlan {
    /// Column names.
    names: Vec<String>,
    roles: Vec<Role>,
    measurement: Option<String>,
    /// Tags that all rows share.
    tags: Vec<(String, String)>,
    times: TimeForm,
    delimiter: u8,
    met: Met,
}

/// Converted rows of a batch, as lines of JSON.
#[derive(Debug, Default)]
pub(super) struct Converted {
    pub(super) body: Vec<u8>,
    /// For each line of the body, the position of its source row in the batch.
    pub(super) starts: Vec<usize>,
    /// Rows that are not valid points: their position and the reason.
    pub(super) refused: Vec<(usize, String)>,
    /// Counts of rows that replace another row, and of rows that were not compared.
    pub(super) compared: Compared,
}

impl CsvArguments {
    pub(super) const fn delimiter(&self) -> u8 {
        self.delimiter
    }

    /// Returns true if files have a header.
    pub(super) fn has_header(&self) -> bool {
        self.columns.is_empty()
    }

    /// Returns the unit of integer times if `--time-format` is a unit, otherwise `None`.
    pub(super) fn precision(&self) -> Option<&'static str> {
        let units = ["s", "ms", "us", "ns"].into_iter();
        units
            .clone()
            .find(|unit| self.time_format.as_deref() == Some(unit))
    }

    /// Returns the measurement of all rows; `None` if it is in a column.
    pub(super) fn measurement(&self) -> Option<&str> {
        self.measurement.as_deref()
    }

    /// Returns true if no option except the delimiter is set.
    pub(super) fn has_no_options(&self) -> bool {
        let names = [
            &self.measurement,
            &self.measurement_column,
            &self.time,
            &self.time_format,
        ];
        let lists = [&self.tags, &self.tag_from_file, &self.fields, &self.columns];
        names.iter().all(|name| name.is_none()) && lists.iter().all(|list| list.is_empty())
    }

    /// Validates the options. Fails if an option needs an input with columns and no input has columns.
    pub(super) fn check(&self, has_columns: bool) -> Result<()> {
        if !has_columns && !self.has_no_options() {
            return Err(CliError::usage(
                "--measurement, --tag, --tag-from-file, --field, --time, --time-format and --columns apply \
                 to CSV and Parquet, and no input has one of these formats",
            ));
        }
        let format = self.time_format.as_deref().unwrap_or("rfc3339");
        let is_known = format == "rfc3339" || self.precision().is_some() || format.contains('%');
        if !is_known {
            return Err(CliError::usage(format!(
                "invalid --time-format {format:?}: use rfc3339, s, ms, us, ns, or a pattern such as %Y-%m-%d"
            )));
        }
        for field in &self.fields {
            split_field(field)?;
        }
        self.tag_from_file.iter().try_for_each(|rule| tags::check(rule))
    }

    /// Refuses options that do not apply to Parquet.
    pub(super) fn check_for_parquet(&self) -> Result<()> {
        let has_pattern = self
            .time_format
            .as_deref()
            .is_some_and(|format| format.contains('%'));
        if has_pattern || !self.columns.is_empty() {
            return Err(CliError::usage(
                "--columns and patterns of --time-format apply to CSV only; Parquet has names and types",
            ));
        }
        if !self.tag_from_file.is_empty() || self.tags.iter().any(|tag| tags::constant(tag).is_some()) {
            return Err(CliError::usage(
                "--tag-from-file and --tag KEY=VALUE apply to CSV only; for Parquet use tag columns",
            ));
        }
        Ok(())
    }

    /// Creates the plan for a file with this header, or with the names of `--columns` if it is `None`. Column types
    /// and the form of times stay undetermined if no option sets them; a [`ColumnScan`] then determines them.
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

    /// Returns the tags that all rows of a file share. Fails with a usage error if a tag is given twice, or has the
    /// name of a tag column.
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
            Some(key) => Err(CliError::usage(format!("the tag {key:?} is given twice"))),
            None => Ok(shared),
        }
    }

    /// Returns the role of each column. Fails with a usage error if an option names a column that does not exist or
    /// that has a role already, or if there is no measurement.
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
                "the column {:?} is given twice",
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
                        "there is no column \"measurement\"; use --measurement or --measurement-column",
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
    /// Returns the unit of integer times if it was determined from their magnitude or `--precision`; `None` if
    /// `--time-format` is given.
    pub(super) const fn unit(&self) -> Option<&'static str> {
        match self.times {
            TimeForm::Common(unit) => Some(unit),
            TimeForm::Plain | TimeForm::Pattern(_) => None,
        }
    }

    /// Converts whole rows to lines of JSON.
    pub(super) fn convert(&self, bytes: &[u8]) -> Converted {
        let mut converted = Converted::default();
        let mut hashes = Vec::new();
        rows(bytes, self.delimiter, |start, row| match self.point(row) {
            Ok(point) => {
                hashes.extend(point_hash(&point));
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
            // An empty cell has no value.
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
            return Err("the row has no time".into());
        }
        point.insert("tags".into(), tags.into());
        point.insert("fields".into(), fields.into());
        Ok(point.into())
    }
}

/// Calls `each` for each row with its position.
fn rows(bytes: &[u8], delimiter: u8, mut each: impl FnMut(usize, &::csv::ByteRecord)) {
    let mut reader = ::csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(delimiter)
        .from_reader(bytes);
    let mut row = ::csv::ByteRecord::new();
    // Reading from memory cannot fail.
    while let Ok(true) = reader.read_byte_record(&mut row) {
        let start = row
            .position()
            .and_then(|position| usize::try_from(position.byte()).ok());
        let mut start = start.unwrap_or_default();
        // The position may be at the `\n` of the previous `\r\n`, or at blank lines before the row.
        while matches!(bytes.get(start), Some(b'\r' | b'\n')) {
            start += 1;
        }
        each(start, &row);
    }
}

/// Returns a hash of timeline and time. Returns `None` for a point without a time.
fn point_hash(point: &Value) -> Option<u64> {
    let time = point.get("time")?;
    let identity = json!([point.get("measurement"), point.get("tags"), time]);
    Some(xxh3_64(identity.to_string().as_bytes()))
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
        Ok(false) => Err(CliError::usage("the header is missing")),
        Err(error) => Err(CliError::usage(format!("the header cannot be read: {error}"))),
    }
}

fn delimiter(text: &str) -> std::result::Result<u8, String> {
    match text.as_bytes() {
        b"\\t" => Ok(b'\t'),
        [byte] if !matches!(byte, b'"' | b'\n' | b'\r') => Ok(*byte),
        _ => Err("expected one ASCII character, or \\t".into()),
    }
}

#[cfg(test)]
mod tests;
