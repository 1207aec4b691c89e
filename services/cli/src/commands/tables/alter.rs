//! `tideline tables alter`: changes the settings of the rows of a wide table or feed table.
//!
//! The server checks the changes, and applies all of them or none.

use clap::Args;
use serde_json::{Map, Value, json};

use super::wide::{self, PartsJobsArguments, archive_of_parts, declared_column, row_limits};
use super::{NamedArguments, path};
use crate::error::{CliError, Result};
use crate::output;

/// Value of `--ttl`, and of an age of parts, that removes the setting.
const NEVER: &str = "never";

#[derive(Debug, Args)]
pub(crate) struct AlterArguments {
    #[command(flatten)]
    table: NamedArguments,
    /// Column to declare as 'NAME TYPE' or 'NAME TYPE COMPRESSION', such as 'note string zstd'; may be repeated
    #[arg(long = "add-column", value_name = "COLUMN")]
    add_columns: Vec<String>,
    /// Declared column or pattern to remove; may be repeated
    #[arg(long = "remove-column", value_name = "NAME")]
    remove_columns: Vec<String>,
    /// Compression of a declared column from now on: auto, none, lz4 or zstd; may be repeated
    #[arg(long, value_name = "COLUMN=COMPRESSION")]
    compression: Vec<String>,
    /// Number of versions that are kept per column
    #[arg(long, value_name = "N")]
    max_versions: Option<u32>,
    /// Time after which data expires, such as 30d, or never
    #[arg(long, value_name = "TIME")]
    ttl: Option<String>,
    /// Minimum time for which a part is kept after its end, such as 365d, or never to keep parts until they are dropped
    #[arg(help_heading = "Parts", long, value_name = "TIME")]
    keep_parts: Option<String>,
    /// Minimum time for which a part stays in the hot tier after its end, such as 30d, or never to keep parts there
    #[arg(help_heading = "Parts", long, value_name = "TIME")]
    hot_parts: Option<String>,
    /// Minimum time for which rows of a part can be written after its end, such as 60d, or never for no limit
    #[arg(help_heading = "Parts", long, value_name = "TIME")]
    writable_parts: Option<String>,
    /// Target and minimum time after the end of a part at which it is archived, such as 'default 90d', or never
    ///
    /// Replaces the target, the time and the schedule of the archive.
    #[arg(help_heading = "Parts", long, value_name = "ARCHIVE")]
    archive_parts: Option<String>,
    #[command(flatten)]
    jobs: PartsJobsArguments,
    /// Maximum number of rows that are read or written per second, as in `tables create`; may be repeated
    ///
    /// The limits replace all limits of the table.
    #[arg(long = "row-limit", value_name = "LIMIT")]
    row_limits: Vec<String>,
    /// Remove all limits of rows per second
    #[arg(long, conflicts_with = "row_limits")]
    no_row_limits: bool,
}

/// Changes the settings, and prints the settings after the change.
pub(super) fn run(arguments: &AlterArguments) -> Result<()> {
    let changes = arguments.changes()?;
    let NamedArguments { name, connection } = &arguments.table;
    let client = connection.client()?;
    let text = client.patch(&path(name), &json!({"wide": changes}))?;
    match connection.json {
        true => output::print(&text),
        false => output::print(&wide::described(&client.parse(&text)?)),
    }
}

impl AlterArguments {
    /// Returns the changes in the form of the API.
    fn changes(&self) -> Result<Map<String, Value>> {
        let mut changes = Map::new();
        let columns = self
            .add_columns
            .iter()
            .map(|text| declared_column("--add-column", text));
        let columns = columns.collect::<Result<Vec<Value>>>()?;
        if !columns.is_empty() {
            changes.insert("add_columns".into(), columns.into());
        }
        if !self.remove_columns.is_empty() {
            changes.insert("remove_columns".into(), json!(self.remove_columns));
        }
        let mut compressions = Map::new();
        for pair in &self.compression {
            let Some((column, compression)) = pair.rsplit_once('=') else {
                return Err(CliError::usage(format!(
                    "--compression {pair:?}: expected COLUMN=COMPRESSION, such as note=zstd"
                )));
            };
            if compressions
                .insert(column.to_owned(), compression.into())
                .is_some()
            {
                return Err(CliError::usage(format!("--compression {column} is given twice")));
            }
        }
        if !compressions.is_empty() {
            changes.insert("compression".into(), compressions.into());
        }
        if let Some(count) = self.max_versions {
            changes.insert("max_versions".into(), count.into());
        }
        match self.ttl.as_deref() {
            Some(NEVER) => {
                changes.insert("ttl".into(), Value::Null);
            }
            Some(ttl) => {
                changes.insert("ttl".into(), ttl.into());
            }
            None => {}
        }
        let parts = self.parts()?;
        if parts != json!({}) {
            changes.insert("parts".into(), parts);
        }
        if self.no_row_limits || !self.row_limits.is_empty() {
            changes.insert("limits".into(), row_limits(&self.row_limits)?.into());
        }
        match changes.is_empty() {
            true => Err(CliError::usage(
                "no change is given; use an option such as --add-column, --compression, --ttl or --row-limit",
            )),
            false => Ok(changes),
        }
    }

    /// Returns the changes of the parts; an empty object if no option is given.
    fn parts(&self) -> Result<Value> {
        let mut parts = json!({});
        for (name, age) in [
            ("keep", &self.keep_parts),
            ("hot", &self.hot_parts),
            ("writable", &self.writable_parts),
        ] {
            match age.as_deref() {
                Some(NEVER) => parts[name] = Value::Null,
                Some(age) => parts[name] = age.into(),
                None => {}
            }
        }
        match self.archive_parts.as_deref() {
            Some(NEVER) => parts["archive"] = Value::Null,
            Some(archive) => parts["archive"] = archive_of_parts(archive)?,
            None => {}
        }
        self.jobs.add_to(&mut parts)?;
        Ok(parts)
    }
}
