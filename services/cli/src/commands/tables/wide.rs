//! Settings of wide tables on the command line: key columns with their modifiers, and declared columns.
//!
//! The server checks the settings. This module only parses their form on the command line, and prints settings in the
//! same form.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};

use super::setting;
use crate::commands::selection;
use crate::error::{CliError, Result};
use crate::output;
use crate::output::grid::Grid;

/// Forms of `--key`, for messages.
const KEY_FORMS: &str = "NAME TYPE [desc], NAME generated, NAME hash_prefix DIGITS of COLUMN…, NAME bucket COUNT of COLUMN…, \
                         NAME reverse COLUMN TYPE, or NAME splice COLUMN TYPE [PAD], COLUMN TYPE [PAD]…";

/// Options of a wide table.
#[derive(Debug, Args)]
pub(crate) struct WideArguments {
    /// Key column of a wide table, in the order of the key; may be repeated
    ///
    /// Forms: 'customer string', 'placed timestamp desc', 'id generated', 'spread hash_prefix 4 of path', 'spread
    /// bucket 16 of at', 'back reverse phone string', 'who splice school string, card u64 8' (padded to 8 digits).
    #[arg(help_heading = "Rows", long = "key", value_name = "COLUMN")]
    keys: Vec<String>,
    /// Declared column of a wide table as 'NAME TYPE', such as 'total decimal' or 'seen_* timestamp'; may be repeated
    #[arg(help_heading = "Rows", long = "column", value_name = "COLUMN")]
    columns: Vec<String>,
    /// Group of columns that are stored apart from the others as 'NAME COLUMN…', such as 'texts description picture_*';
    /// may be repeated
    #[arg(help_heading = "Rows", long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    /// Like --group, with columns that are compressed further; may be repeated
    #[arg(help_heading = "Rows", long = "dense-group", value_name = "GROUP")]
    dense_groups: Vec<String>,
    /// Number of versions that are kept per column of a wide table
    #[arg(help_heading = "Rows", long, value_name = "N")]
    max_versions: Option<u32>,
    /// Accept a first key column that rises with time
    #[arg(help_heading = "Rows", long)]
    allow_rising_key: bool,
    /// Time after which data of a wide table expires, such as 30d
    #[arg(help_heading = "Rows", long, value_name = "TIME")]
    ttl: Option<String>,
    /// Unit in which data of a wide table expires: row or cell
    #[arg(help_heading = "Rows", long, value_name = "SCOPE", requires = "ttl")]
    ttl_of: Option<String>,
    /// Key column and length of the parts into which a wide table is divided, such as 'placed month'
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
    /// JSON file with the settings of the rows, as in the API, or `-` for standard input
    #[arg(help_heading = "Rows", long = "wide", value_name = "FILE")]
    #[arg(conflicts_with_all = ["keys", "columns", "groups", "dense_groups", "max_versions", "allow_rising_key", "ttl", "ttl_of", "parts"])]
    file: Option<PathBuf>,
}

impl WideArguments {
    /// Returns the settings of the rows; `None` if no option is given.
    pub(super) fn settings(&self) -> Result<Option<Value>> {
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
        let columns = self.columns.iter().map(|text| {
            let column = text.split_once(char::is_whitespace);
            column
                .map(|(name, of)| json!({"name": name, "type": of.trim()}))
                .ok_or_else(|| CliError::usage(format!("--column {text:?}: expected 'NAME TYPE'")))
        });
        let columns = columns.collect::<Result<Vec<Value>>>()?;
        let mut settings = Map::new();
        if !columns.is_empty() {
            settings.insert("columns".into(), columns.into());
        }
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
        for (name, text) in [("ttl", &self.ttl), ("ttl_of", &self.ttl_of)] {
            if let Some(text) = text {
                settings.insert(name.into(), text.as_str().into());
            }
        }
        if let Some(text) = &self.parts {
            let Some((by, every)) = text.trim().rsplit_once(char::is_whitespace) else {
                return Err(CliError::usage(format!(
                    "--parts {text:?}: expected a key column and day, week or month, such as 'placed month'"
                )));
            };
            let mut parts = json!({"by": by.trim(), "every": every});
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
                let Some((target, after)) = archive.trim().rsplit_once(char::is_whitespace) else {
                    return Err(CliError::usage(format!(
                        "--archive-parts {archive:?}: expected a target and a time, such as 'default 90d'"
                    )));
                };
                parts["archive"] = json!({"target": target.trim(), "after": after});
            }
            settings.insert("parts".into(), parts);
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

/// Formats the key, the declared columns and the other settings of a wide table. Key columns have the form of `--key`,
/// and groups have the form of `--group`.
pub(super) fn described(wide: &Value) -> String {
    let mut grid = Grid::new(["setting", "value"]).wrapping();
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
    let settings = wide.as_object().into_iter().flatten();
    for (name, value) in settings.filter(|(name, _)| !matches!(name.as_str(), "key" | "columns" | "groups")) {
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
    format!(
        "{} {}",
        output::member(column, "name"),
        output::member(column, "type")
    )
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
}
