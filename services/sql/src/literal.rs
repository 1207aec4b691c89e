//! Values of statements and parameters.
//!
//! A value is converted to the JSON form of the rows crate. This JSON is then parsed according to the declared type of
//! the column. SQL and JSON requests therefore accept the same values. SQL also accepts numbers such as `.5`, bytes as
//! `X'00ff'`, and UTC times such as `'2026-11-20 12:00:00'`.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;
use tideline_engine::condition::Literal as ConditionLiteral;
use tideline_engine::condition::literal::TypedLiteral;
use tideline_engine::key_codec::tuple::{KeyKind, KeyValue};
use tideline_engine::model::ColumnType;
use tideline_rows::value::{parse_key, type_of, utc};

use crate::error::{Position, Result, SqlError};

/// Value in a statement.
#[derive(Debug, Clone)]
pub struct Literal {
    /// The value.
    pub value: LiteralValue,
    /// Position in the statement.
    pub at: Position,
    /// True if the value is a parameter.
    pub is_parameter: bool,
}

/// Form of a value.
#[derive(Debug, Clone)]
pub enum LiteralValue {
    /// `NULL`.
    Null,
    /// Boolean.
    Boolean(bool),
    /// Number in the syntax of JSON.
    Number(String),
    /// Text.
    Text(String),
    /// Bytes.
    Binary(Vec<u8>),
    /// Object or list of a parameter.
    Json(Box<RawValue>),
}

impl Literal {
    /// Converts a parameter.
    pub fn from_parameter(json: &RawValue, at: Position) -> Self {
        let text = json.get();
        let value = match text.as_bytes().first() {
            Some(b'"') => serde_json::from_str(text).map_or(LiteralValue::Null, LiteralValue::Text),
            Some(b't' | b'f') => LiteralValue::Boolean(text == "true"),
            Some(b'{' | b'[') => LiteralValue::Json(json.to_owned()),
            Some(b'n') | None => LiteralValue::Null,
            Some(_) => LiteralValue::Number(text.to_owned()),
        };
        Self {
            value,
            at,
            is_parameter: true,
        }
    }

    /// Returns true for `NULL`.
    pub fn is_null(&self) -> bool {
        matches!(self.value, LiteralValue::Null)
    }

    /// Returns the JSON form of the value for a column; `declared` is the type of the column, if it is declared.
    /// Returns `None` for `NULL`.
    ///
    /// # Errors
    ///
    /// [`SqlError::Invalid`] if the column has the type `json` and the text is not a JSON document, or if the value is
    /// bytes and the column has another type.
    pub fn to_column(&self, declared: Option<ColumnType>) -> Result<Option<Box<RawValue>>> {
        let json = match (&self.value, declared) {
            (LiteralValue::Null, _) => return Ok(None),
            (LiteralValue::Json(json), _) => return Ok(Some(json.clone())),
            (LiteralValue::Text(text), Some(ColumnType::Json)) if !self.is_parameter => {
                let document: &RawValue = serde_json::from_str(text).map_err(|error| {
                    SqlError::invalid(self.at, format!("the text is not a JSON document: {error}"))
                })?;
                // Use the typed form, because the document itself may have the syntax of a typed form.
                format!("{{\"type\":\"json\",\"value\":{document}}}")
            }
            (LiteralValue::Binary(bytes), None) => {
                format!("{{\"type\":\"binary\",\"value\":\"{}\"}}", STANDARD.encode(bytes))
            }
            (_, declared) => self.plain(declared)?,
        };
        Ok(Some(raw(json)))
    }

    /// Returns the JSON form of the value of a key column, for a request with keys.
    ///
    /// # Errors
    ///
    /// [`SqlError::Invalid`] for `NULL` and for values that keys cannot hold.
    pub fn to_key_json(&self, column: &str, kind: KeyKind) -> Result<Box<RawValue>> {
        if self.is_null() {
            return Err(SqlError::invalid(
                self.at,
                format!("key column {column:?} cannot be NULL; give a value of type {kind}"),
            ));
        }
        Ok(raw(self.plain(Some(type_of(kind)))?))
    }

    /// Parses the value of a key column.
    ///
    /// # Errors
    ///
    /// [`SqlError::Invalid`] if the value does not have the type of the column.
    pub fn to_key(&self, column: &str, kind: KeyKind) -> Result<KeyValue<'static>> {
        let json = self.to_key_json(column, kind)?;
        parse_key(json.get(), kind).map_err(|found| {
            SqlError::invalid(
                self.at,
                format!("key column {column:?} has the type {kind}; {found}"),
            )
        })
    }

    /// Returns the value with which a column is compared. An undeclared column is compared with bytes as such. A parameter
    /// may be an object with the type and the value.
    ///
    /// # Errors
    ///
    /// [`SqlError::Invalid`] for `NULL`, for other JSON objects and lists, and for bytes if the column has another type.
    pub fn to_condition(&self, declared: Option<ColumnType>) -> Result<ConditionLiteral> {
        let text = |json: String| match serde_json::from_str(&json) {
            Ok(serde_json::Value::String(text)) => ConditionLiteral::Text(text),
            _ => ConditionLiteral::Text(json),
        };
        Ok(match (&self.value, declared) {
            (LiteralValue::Null, _) => return Err(self.compared_with_null()),
            (LiteralValue::Boolean(value), _) => ConditionLiteral::Boolean(*value),
            (LiteralValue::Number(digits), Some(ColumnType::Decimal)) => {
                ConditionLiteral::Text(digits.clone())
            }
            (LiteralValue::Number(digits), _) => number(digits),
            (LiteralValue::Binary(bytes), None) => ConditionLiteral::Typed(Box::new(TypedLiteral {
                column_type: ColumnType::Binary,
                value: ConditionLiteral::Text(STANDARD.encode(bytes)),
            })),
            (LiteralValue::Json(json), _) => match ConditionLiteral::of_column(json.get()) {
                Ok(typed) => typed,
                Err(_) => text(self.plain(declared)?),
            },
            (LiteralValue::Text(_) | LiteralValue::Binary(_), _) => text(self.plain(declared)?),
        })
    }

    /// Returns the error of a comparison with `NULL`.
    pub fn compared_with_null(&self) -> SqlError {
        SqlError::invalid(self.at, "no value is equal to NULL; use IS NULL or IS NOT NULL")
    }

    /// Returns the integer of an increment; `None` if the value is not an integer of 64 bits.
    pub fn to_i64(&self) -> Option<i64> {
        match &self.value {
            LiteralValue::Number(digits) => digits.parse().ok(),
            _ => None,
        }
    }

    /// Returns a non-negative integer; `None` for other values.
    pub fn to_u64(&self) -> Option<u64> {
        match &self.value {
            LiteralValue::Number(digits) => digits.parse().ok(),
            _ => None,
        }
    }

    /// Returns the plain JSON form. A parameter may be an object with the declared type and the value.
    fn plain(&self, declared: Option<ColumnType>) -> Result<String> {
        let text = |text: &str| serde_json::Value::from(text).to_string();
        Ok(match (&self.value, declared) {
            (LiteralValue::Null, _) => "null".to_owned(),
            (LiteralValue::Boolean(value), _) => value.to_string(),
            (LiteralValue::Number(digits), _) => digits.clone(),
            (LiteralValue::Text(given), Some(ColumnType::Timestamp)) => {
                text(&utc(given).unwrap_or_else(|| given.clone()))
            }
            (LiteralValue::Text(given), _) => text(given),
            (LiteralValue::Binary(bytes), None | Some(ColumnType::Binary)) => text(&STANDARD.encode(bytes)),
            (LiteralValue::Binary(_), Some(declared)) => {
                return Err(SqlError::invalid(
                    self.at,
                    format!("the column has the type {declared}; found bytes"),
                ));
            }
            (LiteralValue::Json(json), _) => match (ConditionLiteral::of_column(json.get()), declared) {
                (Ok(ConditionLiteral::Typed(typed)), Some(declared)) if typed.column_type == declared => {
                    serde_json::to_string(&typed.value).unwrap_or_default()
                }
                (Ok(ConditionLiteral::Typed(typed)), Some(declared)) => {
                    return Err(SqlError::invalid(
                        self.at,
                        format!(
                            "the column has the type {declared}; found a value of type {}",
                            typed.column_type
                        ),
                    ));
                }
                _ => {
                    return Err(SqlError::invalid(
                        self.at,
                        format!("the parameter {json} is an object or a list; give one value"),
                    ));
                }
            },
        })
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            LiteralValue::Null => f.write_str("NULL"),
            LiteralValue::Boolean(value) => write!(f, "{}", if *value { "TRUE" } else { "FALSE" }),
            LiteralValue::Number(digits) => f.write_str(digits),
            LiteralValue::Text(text) => write!(f, "'{}'", text.replace('\'', "''")),
            LiteralValue::Binary(bytes) => {
                f.write_str("X'")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str("'")
            }
            LiteralValue::Json(json) => write!(f, "{json}"),
        }
    }
}

/// Converts JSON text that this module has built. Returns `null` if the text is not valid JSON.
fn raw(json: String) -> Box<RawValue> {
    RawValue::from_string(json).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn number(digits: &str) -> ConditionLiteral {
    let float = |_| ConditionLiteral::Float(digits.parse().unwrap_or(f64::NAN));
    ConditionLiteral::of_column(digits).unwrap_or_else(float)
}

/// Converts a number from SQL syntax to JSON syntax; `None` if it is not a decimal number.
pub(crate) fn json_number(text: &str, is_negative: bool) -> Option<String> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let are_digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits(whole) || !are_digits(fraction) || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    let mut json = String::new();
    json.push_str(if is_negative { "-" } else { "" });
    json.push_str(if whole.is_empty() { "0" } else { whole });
    if !fraction.is_empty() {
        json.push('.');
        json.push_str(fraction);
    }
    if let Some(exponent) = exponent {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if digits.is_empty() || !are_digits(digits) {
            return None;
        }
        json.push('e');
        json.push_str(exponent);
    }
    Some(json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_sql_become_numbers_of_json() {
        for (sql, json) in [
            ("1", "1"),
            ("007", "7"),
            (".5", "0.5"),
            ("5.", "5"),
            ("1.50", "1.50"),
            ("1E5", "1e5"),
            ("1e-05", "1e-05"),
            ("0", "0"),
        ] {
            assert_eq!(json_number(sql, false).as_deref(), Some(json), "{sql}");
        }
        assert_eq!(json_number("12", true).as_deref(), Some("-12"));
        for wrong in ["", ".", "1e", "1e+", "0x1f", "1_000"] {
            assert_eq!(json_number(wrong, false), None, "{wrong}");
        }
    }
}
