//! Settings of wide tables on the command line: key columns with their modifiers, and declared columns.
//!
//! The server checks the settings; this module only recognizes their form.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};

use crate::commands::selection;
use crate::error::{CliError, Result};

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
    /// Number of versions that are kept per column of a wide table
    #[arg(help_heading = "Rows", long, value_name = "N")]
    max_versions: Option<u32>,
    /// Accept a first key column that rises with time
    #[arg(help_heading = "Rows", long)]
    allow_rising_key: bool,
    /// JSON file with the settings of the rows, as in the API, or `-` for standard input
    #[arg(help_heading = "Rows", long = "wide", value_name = "FILE")]
    #[arg(conflicts_with_all = ["keys", "columns", "max_versions", "allow_rising_key"])]
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
        if let Some(count) = self.max_versions {
            settings.insert("max_versions".into(), count.into());
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
            assert_eq!(key_column(text), Some(json), "{text}");
        }
        for wrong in ["", "a", "a bucket x of b", "a hash_prefix 4 of", "a b c d"] {
            assert_eq!(key_column(wrong), None, "{wrong}");
        }
    }
}
