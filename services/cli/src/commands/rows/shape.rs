//! Key columns and declared types of a wide table, and values on the command line.
//!
//! Values are entered as text. The column types determine whether they become JSON numbers, booleans or strings.
//! Decimals become strings, because a number of [`Value`] does not keep all their digits.

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::client::{Client, encoded};
use crate::error::{CliError, Result};

/// Names and types of the columns of a table.
pub(crate) struct TableShape {
    /// Names and types of the key columns whose values a user supplies, in key order.
    pub(super) key: Vec<(String, String)>,
    /// Names or patterns of the declared columns, and their types.
    columns: Vec<(String, String)>,
}

/// Comparison of a key column with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    From,
    After,
    To,
    Before,
}

impl TableShape {
    /// Reads the shape of a table. Fails for a table whose model has no rows.
    pub(super) fn read(client: &Client) -> Result<Self> {
        let table = client.parse(&client.get(&client.of_table(""))?)?;
        if table["wide"].is_null() {
            return Err(CliError::usage(format!(
                "table {} has no rows; commands of `rows` apply to tables of the models wide and feed",
                client.table()
            )));
        }
        Ok(Self::new(&table))
    }

    /// Returns the shape of a table that the server has described.
    pub(crate) fn new(table: &Value) -> Self {
        let wide = &table["wide"];
        let columns = wide["columns"].as_array().into_iter().flatten();
        Self {
            key: key_columns(&wide["key"]),
            columns: columns.map(named).collect(),
        }
    }

    /// Returns the shape of an index of the table: its columns, followed by the other columns of the primary key.
    pub(super) fn with_index(mut self, client: &Client, index: &str) -> Result<Self> {
        let path = client.of_table(&format!("/indexes/{}", encoded(index)));
        let index = client.parse(&client.get(&path)?)?;
        let mut key = key_columns(&index["key"]);
        self.key
            .retain(|(name, _)| !key.iter().any(|(other, _)| other == name));
        key.append(&mut self.key);
        Ok(Self { key, ..self })
    }

    fn key_type(&self, name: &str) -> Option<&str> {
        let found = self.key.iter().find(|(column, _)| column == name);
        found.map(|(_, of)| of.as_str())
    }

    pub(super) fn is_key(&self, name: &str) -> bool {
        self.key_type(name).is_some()
    }

    /// Returns the type of a key column, or of a column that is declared by name or by a pattern; `None` for other
    /// columns.
    pub(crate) fn type_of(&self, name: &str) -> Option<&str> {
        self.key_type(name).or_else(|| {
            let found = self.columns.iter().find(|(column, _)| column == name);
            let found = found.or_else(|| self.columns.iter().find(|(column, _)| matches(column, name)));
            found.map(|(_, of)| of.as_str())
        })
    }

    /// Returns the value of a column as JSON. A value of an undeclared column is parsed as JSON; if it is not valid
    /// JSON, it becomes a string.
    pub(super) fn value(&self, name: &str, text: &str) -> Box<RawValue> {
        let is_json = match self.type_of(name) {
            None | Some("json") => true,
            Some("bool") => matches!(text, "true" | "false"),
            Some("i64" | "u64" | "f64" | "timestamp") => is_number(text),
            Some(_) => false,
        };
        let raw = || RawValue::from_string(text.to_owned()).ok();
        let quoted = || RawValue::from_string(json!(text).to_string()).unwrap_or_default();
        is_json.then(raw).flatten().unwrap_or_else(quoted)
    }

    /// Splits `name=value`, and converts the value to JSON by the type of the column.
    pub(in crate::commands) fn pair<'t>(&self, text: &'t str) -> Result<(&'t str, Box<RawValue>)> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok((name, self.value(name, value))),
            _ => Err(CliError::usage(format!("{text}: expected NAME=VALUE"))),
        }
    }

    /// Returns the members `prefix` and `range` of a scan, from texts such as `name=value` and `name>=value`.
    pub(super) fn bounds(&self, texts: &[String]) -> Result<Map<String, Value>> {
        let (mut prefix, mut range) = (Map::new(), Map::new());
        for text in texts {
            let (name, comparison, value) = split(text).ok_or_else(|| {
                CliError::usage(format!(
                    "{text}: expected a value or a bound of a key column, such as customer=acme or 'placed>=2026-11-20T00:00:00Z'"
                ))
            })?;
            if !self.is_key(name) {
                let names: Vec<&str> = self.key.iter().map(|(name, _)| name.as_str()).collect();
                return Err(CliError::usage(format!(
                    "{name} is not a key column; the key columns are {}. Use --where for conditions on other columns",
                    names.join(", ")
                )));
            }
            let value = serde_json::to_value(self.value(name, value))
                .map_err(|error| CliError::usage(format!("{text}: {error}")))?;
            let (bound, exclusive) = match comparison {
                Comparison::Equal => {
                    if prefix.insert(name.to_owned(), value).is_some() {
                        return Err(CliError::usage(format!("{name} is given twice")));
                    }
                    continue;
                }
                Comparison::From => ("from", None),
                Comparison::After => ("from", Some("from_exclusive")),
                Comparison::To => ("to", Some("to_inclusive")),
                Comparison::Before => ("to", None),
            };
            let column = range.entry("column").or_insert_with(|| name.into());
            if column != name {
                return Err(CliError::usage(format!(
                    "bounds apply to one key column, and both {} and {name} have some",
                    column.as_str().unwrap_or_default()
                )));
            }
            if range.insert(bound.to_owned(), value).is_some() {
                return Err(CliError::usage(format!("{name} has two bounds on the same side")));
            }
            if let Some(exclusive) = exclusive {
                range.insert(exclusive.to_owned(), true.into());
            }
        }
        let mut body = Map::new();
        if !prefix.is_empty() {
            body.insert("prefix".into(), prefix.into());
        }
        if !range.is_empty() {
            body.insert("range".into(), range.into());
        }
        Ok(body)
    }
}

/// Returns the name and the type of a column.
fn named(column: &Value) -> (String, String) {
    let text = |member: &str| column[member].as_str().unwrap_or_default().to_owned();
    (text("name"), text("type"))
}

/// Returns the key columns whose values a user supplies, in key order: the source columns of `reverse` and `splice`
/// instead of the derived column, and no `hash_prefix` or `bucket` column.
fn key_columns(columns: &Value) -> Vec<(String, String)> {
    let mut key = Vec::new();
    for column in columns.as_array().into_iter().flatten() {
        if !column["type"].is_null() {
            key.push(named(column));
        } else if !column["generated"].is_null() {
            key.push((named(column).0, "i64".to_owned()));
        } else if !column["reverse"].is_null() {
            key.push(named(&column["reverse"]["of"]));
        }
        let spliced = column["splice"]["columns"].as_array().into_iter().flatten();
        key.extend(spliced.map(named));
    }
    key
}

/// Splits a comparison at its first operator.
fn split(text: &str) -> Option<(&str, Comparison, &str)> {
    let at = text.find(['=', '<', '>']).filter(|at| *at > 0)?;
    let (name, rest) = text.split_at(at);
    let operators = [
        (">=", Comparison::From),
        (">", Comparison::After),
        ("<=", Comparison::To),
        ("<", Comparison::Before),
        ("=", Comparison::Equal),
    ];
    let found = operators
        .iter()
        .find_map(|(symbol, comparison)| Some((*comparison, rest.strip_prefix(symbol)?)));
    found.map(|(comparison, value)| (name, comparison, value))
}

/// Returns true if a text is a JSON number.
fn is_number(text: &str) -> bool {
    serde_json::from_str::<serde_json::Number>(text).is_ok()
}

/// Returns true if `name` matches `pattern`, a declared name that may contain `*` and `?`.
fn matches(pattern: &str, name: &str) -> bool {
    let Some(first) = pattern.chars().next() else {
        return name.is_empty();
    };
    let rest = &pattern[first.len_utf8()..];
    match first {
        '*' => (0..=name.len())
            .filter(|at| name.is_char_boundary(*at))
            .any(|at| matches(rest, &name[at..])),
        '?' => name
            .chars()
            .next()
            .is_some_and(|own| matches(rest, &name[own.len_utf8()..])),
        first => name.strip_prefix(first).is_some_and(|name| matches(rest, name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> TableShape {
        let owned = |pairs: &[(&str, &str)]| {
            let pairs = pairs.iter();
            pairs
                .map(|(name, of)| ((*name).to_owned(), (*of).to_owned()))
                .collect()
        };
        TableShape {
            key: owned(&[
                ("customer", "string"),
                ("placed", "timestamp"),
                ("amount", "decimal"),
            ]),
            columns: owned(&[("total", "decimal"), ("paid", "bool"), ("seen_*", "timestamp")]),
        }
    }

    #[test]
    fn values_become_json_by_their_types() {
        let shape = shape();
        for (name, text, json) in [
            ("customer", "5", "\"5\""),
            ("placed", "2026-11-20", "\"2026-11-20\""),
            ("placed", "17", "17"),
            ("total", "5.320", "\"5.320\""),
            ("total", "1234567890123456.76", "\"1234567890123456.76\""),
            ("total", "much", "\"much\""),
            ("paid", "true", "true"),
            ("seen_web", "17", "17"),
            ("note", "red", "\"red\""),
            ("note", "5", "5"),
            ("note", "\"5\"", "\"5\""),
        ] {
            assert_eq!(shape.value(name, text).get(), json, "{name}={text}");
        }
    }

    #[test]
    fn bounds_become_members_of_a_scan() {
        let shape = shape();
        let bounds = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            shape.bounds(&texts)
        };
        let scan = bounds(&["customer=a=b", "placed>1", "placed<=9"]).expect("valid");
        assert_eq!(
            Value::from(scan),
            json!({"prefix": {"customer": "a=b"},
                "range": {"column": "placed", "from": 1, "from_exclusive": true, "to": 9, "to_inclusive": true}})
        );
        let scan = bounds(&["amount>=1234567890123456.76", "amount<18446744073709551617"]).expect("valid");
        assert_eq!(
            Value::from(scan),
            json!({"range": {"column": "amount", "from": "1234567890123456.76", "to": "18446744073709551617"}})
        );
        for wrong in [
            &["total=1"][..],
            &["customer"],
            &["=1"],
            &["placed>1", "placed>=2"],
            &["placed>1", "customer<b"],
            &["customer=a", "customer=b"],
        ] {
            assert_eq!(bounds(wrong).expect_err("wrong").exit_status(), 2, "{wrong:?}");
        }
    }
}
