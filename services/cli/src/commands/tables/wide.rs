//! Settings of wide tables and feed tables on the command line: key columns with their modifiers, declared columns, parts.
//!
//! The server checks the settings. This module only parses their form on the command line, and prints settings in the
//! same form.

use std::collections::VecDeque;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};
use tideline_openapi::policy::Schedule;

use super::setting;
use crate::commands::selection;
use crate::error::{CliError, Result};
use crate::output;
use crate::output::grid::Grid;

/// Forms of `--key`, for messages.
const KEY_FORMS: &str = "NAME TYPE [desc], NAME generated, NAME hash_prefix DIGITS of COLUMN…, NAME bucket COUNT of COLUMN…, \
                         NAME reverse COLUMN TYPE, or NAME splice COLUMN TYPE [PAD], COLUMN TYPE [PAD]…";

/// Schedules and rate of the jobs of parts.
#[derive(Debug, Args)]
pub(super) struct PartsJobsArguments {
    /// Times at which moves of parts to the cold tier start, such as '0 3 * * *' or '0 3 * * * in Europe/Berlin', or
    /// continuous
    #[arg(help_heading = "Parts", long, value_name = "SCHEDULE")]
    parts_migrate_schedule: Option<String>,
    /// Times at which hidden parts are dropped and the bytes of expired rows are freed
    #[arg(help_heading = "Parts", long, value_name = "SCHEDULE")]
    parts_expire_schedule: Option<String>,
    /// Times at which moves of parts into the archive start; requires --archive-parts
    #[arg(help_heading = "Parts", long, value_name = "SCHEDULE")]
    parts_archive_schedule: Option<String>,
    /// Maximum number of bytes that the jobs of the table read per second, or none
    #[arg(help_heading = "Parts", long, value_name = "BYTES")]
    parts_move_rate: Option<String>,
}

impl PartsJobsArguments {
    /// Returns the first given option.
    fn given(&self) -> Option<&'static str> {
        let options = [
            ("--parts-migrate-schedule", &self.parts_migrate_schedule),
            ("--parts-expire-schedule", &self.parts_expire_schedule),
            ("--parts-archive-schedule", &self.parts_archive_schedule),
            ("--parts-move-rate", &self.parts_move_rate),
        ];
        let mut given = options.into_iter().filter(|(_, value)| value.is_some());
        given.next().map(|(option, _)| option)
    }

    /// Adds the schedules and the rate to the settings or changes of parts, which have the archive already.
    pub(super) fn add_to(&self, parts: &mut Value) -> Result<()> {
        for (member, schedule) in [
            ("migrate", &self.parts_migrate_schedule),
            ("expire", &self.parts_expire_schedule),
        ] {
            if let Some(schedule) = schedule {
                parts[member] = json!(Schedule::from_text(schedule));
            }
        }
        if let Some(schedule) = &self.parts_archive_schedule {
            if !parts["archive"].is_object() {
                return Err(CliError::usage(
                    "--parts-archive-schedule needs the target and the time of the archive; add --archive-parts",
                ));
            }
            parts["archive"]["schedule"] = json!(Schedule::from_text(schedule));
        }
        match self.parts_move_rate.as_deref() {
            None => {}
            Some("none") => parts["move_bytes_per_second"] = Value::Null,
            Some(rate) => {
                let bytes: u64 = rate.parse().map_err(|_| {
                    CliError::usage(format!(
                        "--parts-move-rate {rate:?}: expected a number of bytes per second, or none"
                    ))
                })?;
                parts["move_bytes_per_second"] = bytes.into();
            }
        }
        Ok(())
    }
}

/// Options of a wide table.
#[derive(Debug, Args)]
pub(crate) struct WideArguments {
    /// Key column of a wide table, in the order of the key; may be repeated
    ///
    /// Forms: 'customer string', 'placed timestamp desc', 'id generated', 'spread hash_prefix 4 of path', 'spread
    /// bucket 16 of at', 'back reverse phone string', 'who splice school string, card u64 8' (padded to 8 digits).
    #[arg(help_heading = "Rows", long = "key", value_name = "COLUMN")]
    keys: Vec<String>,
    /// Declared column of a wide table or of the messages of a feed table as 'NAME TYPE', such as 'total decimal' or 'seen_* timestamp'; texts, bytes and JSON can have a compression, such as 'note string zstd'; may be repeated
    #[arg(help_heading = "Rows", long = "column", value_name = "COLUMN")]
    columns: Vec<String>,
    /// Group of columns that are stored apart from the others as 'NAME COLUMN…', such as 'texts description picture_*';
    /// may be repeated
    #[arg(help_heading = "Rows", long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Like --group, with columns that are compressed more strongly; may be repeated
    #[arg(help_heading = "Rows", long = "dense-group", value_name = "GROUP")]
    dense_groups: Vec<String>,
    /// Number of versions that are kept per column of a wide table
    #[arg(help_heading = "Rows", long, value_name = "N")]
    max_versions: Option<u32>,
    /// Accept a first key column that rises with time
    #[arg(help_heading = "Rows", long)]
    allow_rising_key: bool,
    /// Time after which data of a wide table, or messages of a feed table, expire, such as 30d
    #[arg(help_heading = "Rows", long, value_name = "TIME")]
    ttl: Option<String>,
    /// Unit in which data of a wide table expires: row or cell
    #[arg(help_heading = "Rows", long, value_name = "SCOPE", requires = "ttl")]
    ttl_of: Option<String>,
    /// Key column and length of the parts into which a wide table is divided, such as 'placed month'; of a feed table, only
    /// the length
    #[arg(help_heading = "Rows", long, value_name = "PARTS")]
    parts: Option<String>,
    /// Minimum time for which a part is kept after its end, such as 365d
    #[arg(help_heading = "Rows", long, value_name = "TIME", requires = "parts")]
    keep_parts: Option<String>,
    /// Minimum time for which a part stays in the hot tier after its end, such as 30d
    #[arg(help_heading = "Rows", long, value_name = "TIME", requires = "parts")]
    hot_parts: Option<String>,
    /// Minimum time for which rows of a part can be written after its end, such as 60d
    #[arg(help_heading = "Rows", long, value_name = "TIME", requires = "parts")]
    writable_parts: Option<String>,
    /// Target and minimum time after the end of a part at which it is archived, such as 'default 90d'
    #[arg(help_heading = "Rows", long, value_name = "ARCHIVE", requires = "parts")]
    archive_parts: Option<String>,
    #[command(flatten)]
    jobs: PartsJobsArguments,
    /// Maximum number of rows of a wide table that are read or written per second, such as 'writes 20000'; with an age,
    /// for parts that are at least this old, such as '30d reads 5000 writes 100'; may be repeated
    #[arg(help_heading = "Rows", long = "row-limit", value_name = "LIMIT")]
    row_limits: Vec<String>,
    /// Origin of the sequence numbers of a feed table: generated by the server, or manual, given with each message
    /// [default: generated]
    #[arg(help_heading = "Rows", long, value_parser = ["generated", "manual"])]
    sequence: Option<String>,
    /// Deliver messages to the inboxes of members; the value is the largest number of members of a feed whose messages
    /// are written to the inboxes together with the message, 0 to 1000
    #[arg(help_heading = "Rows", long, value_name = "N")]
    inboxes: Option<u32>,
    /// Largest number of members of a feed whose messages a job writes to the inboxes later, up to 100000
    #[arg(help_heading = "Rows", long, value_name = "N", requires = "inboxes")]
    fan_out: Option<u32>,
    /// Copy messages into inboxes, so that a read of an inbox reads no message
    #[arg(help_heading = "Rows", long, requires = "inboxes")]
    inbox_copies: bool,
    /// JSON file with the settings of the rows, as in the API, or `-` for standard input
    #[arg(help_heading = "Rows", long = "wide", value_name = "FILE")]
    #[arg(conflicts_with_all = ["keys", "columns", "groups", "dense_groups", "max_versions", "allow_rising_key", "ttl", "ttl_of", "parts", "row_limits", "sequence", "inboxes", "fan_out", "inbox_copies"])]
    file: Option<PathBuf>,
}

impl WideArguments {
    /// Returns true if an option that only feed tables have is given.
    pub(super) const fn is_feed(&self) -> bool {
        self.sequence.is_some() || self.inboxes.is_some()
    }

    /// Returns the settings of the rows of a wide table; `None` if no option is given.
    pub(super) fn settings(&self) -> Result<Option<Value>> {
        if let (None, Some(option)) = (&self.parts, self.jobs.given()) {
            return Err(CliError::usage(format!(
                "{option} applies to a table that is divided into parts; add --parts"
            )));
        }
        if let Some(path) = &self.file {
            let text = selection::body(path)?;
            let settings = serde_json::from_str(&text).map_err(|error| CliError::usage(error.to_string()))?;
            return Ok(Some(settings));
        }
        let keys = self.keys.iter().map(|text| {
            key_column(text).ok_or_else(|| {
                CliError::usage(format!("--key {text:?}: expected one of the forms {KEY_FORMS}"))
            })
        });
        let keys = keys.collect::<Result<Vec<Value>>>()?;
        let mut settings = self.shared_settings()?;
        let groups = self.groups.iter().map(|text| column_group(text));
        let dense = self.dense_groups.iter().map(|text| {
            let mut group = column_group(text)?;
            group["compression"] = "dense".into();
            Ok(group)
        });
        let groups = groups.chain(dense).collect::<Result<Vec<Value>>>()?;
        if !groups.is_empty() {
            settings.insert("groups".into(), groups.into());
        }
        if let Some(count) = self.max_versions {
            settings.insert("max_versions".into(), count.into());
        }
        if let Some(scope) = &self.ttl_of {
            settings.insert("ttl_of".into(), scope.as_str().into());
        }
        if let Some(text) = &self.parts {
            let Some((by, every)) = text.trim().rsplit_once(char::is_whitespace) else {
                return Err(CliError::usage(format!(
                    "--parts {text:?}: expected a key column and day, week or month, such as 'placed month'"
                )));
            };
            let mut parts = json!({"by": by.trim(), "every": every});
            self.add_ages(&mut parts)?;
            self.jobs.add_to(&mut parts)?;
            settings.insert("parts".into(), parts);
        }
        if !self.row_limits.is_empty() {
            settings.insert("limits".into(), row_limits(&self.row_limits)?.into());
        }
        if self.allow_rising_key {
            settings.insert("allow_rising_key".into(), true.into());
        }
        if keys.is_empty() && settings.is_empty() {
            return Ok(None);
        }
        settings.insert("key".into(), keys.into());
        Ok(Some(settings.into()))
    }

    /// Returns the settings of the messages of a feed table; `None` if no option is given.
    pub(super) fn feed_settings(&self) -> Result<Option<Value>> {
        for (option, is_given) in [
            ("--key", !self.keys.is_empty()),
            ("--group", !self.groups.is_empty()),
            ("--dense-group", !self.dense_groups.is_empty()),
            ("--max-versions", self.max_versions.is_some()),
            ("--allow-rising-key", self.allow_rising_key),
            ("--ttl-of", self.ttl_of.is_some()),
            ("--row-limit", !self.row_limits.is_empty()),
            ("--wide", self.file.is_some()),
        ] {
            if is_given {
                return Err(CliError::usage(format!(
                    "{option} applies to tables of the model wide; omit it for a feed table"
                )));
            }
        }
        if let Some(option) = self.jobs.given() {
            return Err(CliError::usage(format!(
                "{option} does not apply to a new feed table; use it with `tables alter`"
            )));
        }
        let mut settings = self.shared_settings()?;
        if let Some(source) = &self.sequence {
            settings.insert("sequence".into(), source.as_str().into());
        }
        if let Some(push_max) = self.inboxes {
            let mut inboxes = json!({"push_max": push_max});
            if let Some(fan_out_max) = self.fan_out {
                inboxes["fan_out_max"] = fan_out_max.into();
            }
            if self.inbox_copies {
                inboxes["entries"] = "copy".into();
            }
            settings.insert("inboxes".into(), inboxes);
        }
        if let Some(every) = &self.parts {
            let mut parts = json!({"every": every.trim()});
            self.add_ages(&mut parts)?;
            settings.insert("parts".into(), parts);
        }
        Ok((!settings.is_empty()).then(|| settings.into()))
    }

    /// Returns the settings that wide tables and feed tables have: the declared columns and the time-to-live.
    fn shared_settings(&self) -> Result<Map<String, Value>> {
        let columns = self.columns.iter().map(|text| declared_column("--column", text));
        let columns = columns.collect::<Result<Vec<Value>>>()?;
        let mut settings = Map::new();
        if !columns.is_empty() {
            settings.insert("columns".into(), columns.into());
        }
        if let Some(ttl) = &self.ttl {
            settings.insert("ttl".into(), ttl.as_str().into());
        }
        Ok(settings)
    }

    /// Adds the ages of parts to their settings.
    fn add_ages(&self, parts: &mut Value) -> Result<()> {
        for (name, age) in [
            ("keep", &self.keep_parts),
            ("hot", &self.hot_parts),
            ("writable", &self.writable_parts),
        ] {
            if let Some(age) = age {
                parts[name] = age.as_str().into();
            }
        }
        if let Some(archive) = &self.archive_parts {
            parts["archive"] = archive_of_parts(archive)?;
        }
        Ok(())
    }
}

/// Parses the value of `--archive-parts`.
pub(super) fn archive_of_parts(text: &str) -> Result<Value> {
    let Some((target, after)) = text.trim().rsplit_once(char::is_whitespace) else {
        return Err(CliError::usage(format!(
            "--archive-parts {text:?}: expected a target and a time, such as 'default 90d'"
        )));
    };
    Ok(json!({"target": target.trim(), "after": after}))
}

/// Parses a declared column of an option: its name, its type and possibly its compression.
pub(super) fn declared_column(option: &str, text: &str) -> Result<Value> {
    match text.split_whitespace().collect::<Vec<&str>>()[..] {
        [name, of] => Ok(json!({"name": name, "type": of})),
        [name, of, compression] => Ok(json!({"name": name, "type": of, "compression": compression})),
        _ => Err(CliError::usage(format!(
            "{option} {text:?}: expected 'NAME TYPE' or 'NAME TYPE COMPRESSION'"
        ))),
    }
}

/// Parses the values of `--row-limit`.
pub(super) fn row_limits(texts: &[String]) -> Result<Vec<Value>> {
    let limits = texts.iter().map(|text| {
        row_limit(text).ok_or_else(|| {
            CliError::usage(format!(
                "--row-limit {text:?}: expected '[AGE] [reads N] [writes N]', such as '30d reads 5000 writes 100'"
            ))
        })
    });
    limits.collect()
}

/// Parses a limit of rows per second; `None` if it does not have the form of `--row-limit`.
fn row_limit(text: &str) -> Option<Value> {
    let mut words: VecDeque<&str> = text.split_whitespace().collect();
    let mut limit = json!({});
    if let Some(age) = words.pop_front_if(|word| !matches!(*word, "reads" | "writes")) {
        limit["older_than"] = age.into();
    }
    while let Some(access) = words.pop_front() {
        let member = match access {
            "reads" => "reads_per_second",
            "writes" => "writes_per_second",
            _ => return None,
        };
        if !limit[member].is_null() {
            return None;
        }
        limit[member] = words.pop_front()?.parse::<u64>().ok()?.into();
    }
    Some(limit).filter(|limit| !limit["reads_per_second"].is_null() || !limit["writes_per_second"].is_null())
}

/// Formats a limit of rows per second in the form that [`row_limit`] parses.
fn row_limit_text(limit: &Value) -> String {
    let mut words: Vec<String> = limit["older_than"]
        .as_str()
        .map(str::to_owned)
        .into_iter()
        .collect();
    for (access, member) in [("reads", "reads_per_second"), ("writes", "writes_per_second")] {
        if let Some(rate) = limit[member].as_u64() {
            words.extend([access.to_owned(), rate.to_string()]);
        }
    }
    words.join(" ")
}

/// Parses a column group: its name, and then its columns.
fn column_group(text: &str) -> Result<Value> {
    let mut words = text.split_whitespace();
    let name = words.next().unwrap_or_default();
    let columns: Vec<&str> = words.collect();
    match columns.is_empty() {
        true => Err(CliError::usage(format!(
            "column group {text:?}: expected 'NAME COLUMN…'"
        ))),
        false => Ok(json!({"name": name, "columns": columns})),
    }
}

/// Formats the key, the declared columns and the other settings of a wide table or feed table. Key columns have the form
/// of `--key`, groups have the form of `--group`, and limits that of `--row-limit`.
pub(super) fn described(table: &Value) -> String {
    let wide = &table["wide"];
    let mut grid = Grid::new(["setting", "value"]).wrapping();
    if let Some(source) = table["feed"]["sequence"].as_str() {
        grid.row(vec!["sequence".into(), source.into()]);
    }
    let inboxes = &table["feed"]["inboxes"];
    if let Some(push_max) = inboxes["push_max"].as_u64() {
        grid.row(vec!["inboxes".into(), push_max.to_string()]);
    }
    if let Some(fan_out_max) = inboxes["fan_out_max"].as_u64() {
        grid.row(vec!["fan-out".into(), fan_out_max.to_string()]);
    }
    if let Some(entries) = inboxes["entries"].as_str() {
        grid.row(vec!["inbox entries".into(), entries.into()]);
    }
    for column in wide["key"].as_array().into_iter().flatten() {
        grid.row(vec!["key".into(), key_text(column)]);
    }
    for column in wide["columns"].as_array().into_iter().flatten() {
        grid.row(vec!["column".into(), typed(column)]);
    }
    for group in wide["groups"].as_array().into_iter().flatten() {
        let columns = group["columns"].as_array().into_iter().flatten();
        let words = std::iter::once(&group["name"]).chain(columns).map(output::cell);
        let setting = match group["compression"].as_str() {
            Some("dense") => "dense-group",
            _ => "group",
        };
        grid.row(vec![setting.into(), words.collect::<Vec<String>>().join(" ")]);
    }
    for limit in wide["limits"].as_array().into_iter().flatten() {
        grid.row(vec!["row-limit".into(), row_limit_text(limit)]);
    }
    let settings = wide.as_object().into_iter().flatten();
    let is_shown = |name: &str| matches!(name, "key" | "columns" | "groups" | "limits");
    for (name, value) in settings.filter(|(name, _)| !is_shown(name)) {
        grid.row(setting(name, value));
    }
    grid.render()
}

/// Formats a key column in the form that [`key_column`] parses.
fn key_text(column: &Value) -> String {
    let names = |of: &Value| {
        let names = of.as_array().into_iter().flatten().map(output::cell);
        names.collect::<Vec<String>>().join(" ")
    };
    let name = output::member(column, "name");
    let (hash, bucket) = (&column["hash_prefix"], &column["bucket"]);
    let (reverse, splice) = (&column["reverse"], &column["splice"]);
    let text = match () {
        () if hash.is_object() => format!("{name} hash_prefix {} of {}", hash["hex"], names(&hash["of"])),
        () if bucket.is_object() => format!("{name} bucket {} of {}", bucket["count"], names(&bucket["of"])),
        () if reverse.is_object() => format!("{name} reverse {}", typed(&reverse["of"])),
        () if splice.is_object() => {
            let columns = splice["columns"].as_array().into_iter().flatten();
            let columns = columns.map(|column| {
                let pad = column["pad"].as_u64().map(|pad| format!(" {pad}"));
                typed(column) + &pad.unwrap_or_default()
            });
            format!("{name} splice {}", columns.collect::<Vec<String>>().join(", "))
        }
        () if column["generated"].is_object() => format!("{name} generated"),
        () => typed(column),
    };
    match column["order"].as_str() {
        Some("desc") => text + " desc",
        _ => text,
    }
}

/// Formats the name and the type of a column.
fn typed(column: &Value) -> String {
    let words = ["name", "type", "compression"].map(|member| output::member(column, member));
    words.join(" ").trim_end().to_owned()
}

/// Parses a key column; `None` if it has none of the forms.
fn key_column(text: &str) -> Option<Value> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let order = match words.last() {
        Some(&("asc" | "desc")) if words.len() > 2 => words.pop(),
        _ => None,
    };
    let mut column = match words.as_slice() {
        [name, "generated"] => json!({"name": name, "generated": {}}),
        [name, "hash_prefix", digits, "of", of @ ..] if !of.is_empty() => {
            json!({"name": name, "hash_prefix": {"of": names(of), "hex": digits.parse::<u8>().ok()?}})
        }
        [name, "bucket", count, "of", of @ ..] if !of.is_empty() => {
            json!({"name": name, "bucket": {"of": names(of), "count": count.parse::<u16>().ok()?}})
        }
        [name, "reverse", of, column_type] => {
            json!({"name": name, "reverse": {"of": {"name": of, "type": column_type}}})
        }
        [name, "splice", columns @ ..] => {
            let columns = columns.join(" ");
            let columns = columns.split(',').map(|column| {
                match column.split_whitespace().collect::<Vec<&str>>().as_slice() {
                    [name, column_type] => Some(json!({"name": name, "type": column_type})),
                    [name, column_type, pad] => {
                        Some(json!({"name": name, "type": column_type, "pad": pad.parse::<u8>().ok()?}))
                    }
                    _ => None,
                }
            });
            json!({"name": name, "splice": {"columns": columns.collect::<Option<Vec<Value>>>()?}})
        }
        [name, column_type] => json!({"name": name, "type": column_type}),
        _ => return None,
    };
    if let Some(order) = order {
        column["order"] = order.into();
    }
    Some(column)
}

/// Splits names that are separated by spaces or commas.
fn names(words: &[&str]) -> Vec<String> {
    let names = words.iter().flat_map(|word| word.split(','));
    names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_columns_have_all_modifiers() {
        for (text, json) in [
            ("customer string", json!({"name": "customer", "type": "string"})),
            (
                "placed timestamp desc",
                json!({"name": "placed", "type": "timestamp", "order": "desc"}),
            ),
            ("id generated", json!({"name": "id", "generated": {}})),
            (
                "spread hash_prefix 4 of a, b",
                json!({"name": "spread", "hash_prefix": {"of": ["a", "b"], "hex": 4}}),
            ),
            (
                "spread bucket 16 of at",
                json!({"name": "spread", "bucket": {"of": ["at"], "count": 16}}),
            ),
            (
                "back reverse phone string",
                json!({"name": "back", "reverse": {"of": {"name": "phone", "type": "string"}}}),
            ),
            (
                "who splice school string, card u64 8",
                json!({"name": "who", "splice": {"columns": [
                    {"name": "school", "type": "string"}, {"name": "card", "type": "u64", "pad": 8}]}}),
            ),
        ] {
            assert_eq!(key_column(text), Some(json.clone()), "{text}");
            assert_eq!(
                key_column(&key_text(&json)),
                Some(json),
                "{text} is shown in the form of --key"
            );
        }
        for wrong in ["", "a", "a bucket x of b", "a hash_prefix 4 of", "a b c d"] {
            assert_eq!(key_column(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn row_limits_have_ages_and_accesses() {
        for (text, json) in [
            ("writes 20000", json!({"writes_per_second": 20_000})),
            (
                "30d reads 5000 writes 100",
                json!({"older_than": "30d", "reads_per_second": 5_000, "writes_per_second": 100}),
            ),
        ] {
            assert_eq!(row_limit(text), Some(json.clone()), "{text}");
            assert_eq!(row_limit_text(&json), text);
        }
        let reversed = json!({"reads_per_second": 1, "writes_per_second": 2});
        assert_eq!(row_limit("writes 2 reads 1"), Some(reversed));
        for wrong in [
            "",
            "30d",
            "reads",
            "reads many",
            "reads 1 reads 2",
            "30d 40d reads 1",
            "reads 1 each",
        ] {
            assert_eq!(row_limit(wrong), None, "{wrong}");
        }
    }
}
