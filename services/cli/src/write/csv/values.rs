//! Values of CSV fields, by the type of an option or of the scanned column.

use serde_json::{Value, json};

use crate::error::{CliError, Result};

/// Type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::write) enum Kind {
    Auto,
    Float,
    Int,
    Uint,
    Bool,
    String,
}

/// Converts a cell to a field value in JSON. Fails if the cell is not of the type.
pub(super) fn value(name: &str, kind: Kind, cell: &str) -> std::result::Result<Value, String> {
    let text = cell.trim();
    let wrong = |what: &str| Err(format!("column {name}: {cell:?} is not {what}"));
    Ok(match kind {
        Kind::Float if is_float(text) => match text.trim_start_matches('+') {
            "nan" | "-nan" | "-NaN" => json!({"float": "NaN"}),
            "inf" => json!({"float": "Inf"}),
            "-inf" => json!({"float": "-Inf"}),
            number => json!({"float": number}),
        },
        Kind::Float => return wrong("a number"),
        Kind::Int if text.parse::<i64>().is_ok() => json!({"signed": text}),
        Kind::Int => return wrong("an integer"),
        Kind::Uint if text.parse::<u64>().is_ok() => json!({"unsigned": text}),
        Kind::Uint => return wrong("an unsigned integer"),
        Kind::String => cell.into(),
        Kind::Bool => match (boolean(text), text) {
            (Some(value), _) => value.into(),
            (None, "1" | "t" | "T") => true.into(),
            (None, "0" | "f" | "F") => false.into(),
            _ => return wrong("a boolean: use true or false"),
        },
        // The type is undetermined only for a stream whose first batch has no value of the column.
        Kind::Auto => match boolean(text) {
            Some(value) => value.into(),
            None if text.parse::<i64>().is_ok() => json!({"signed": text}),
            None if is_float(text) => return value(name, Kind::Float, cell),
            None => cell.into(),
        },
    })
}

/// Splits `COLUMN[:TYPE]`. Fails with a usage error if the type is unknown.
pub(super) fn split_field(field: &str) -> Result<(&str, Kind)> {
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
                "--field {field}: invalid type {kind:?}; use float, int, uint, bool or string"
            )));
        }
    };
    Ok((name, kind))
}

/// Returns true if a text is a decimal number, NaN or an infinity.
pub(super) fn is_float(text: &str) -> bool {
    let is_word = matches!(text.trim_start_matches(['+', '-']), "NaN" | "nan" | "Inf" | "inf");
    is_word || (text.parse::<f64>().is_ok() && text.bytes().any(|byte| byte.is_ascii_digit()))
}

pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}
