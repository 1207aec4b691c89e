//! Parser of one point of a JSON body.
//!
//! Strings without escapes borrow from the body. Members are kept in their order with duplicates, so that the caller
//! can reject duplicates.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use tideline_model::{Precision, Timestamp};

use crate::grouping::FieldValue;
use crate::number;
use crate::reject::{Reason, quote};

/// Members of a point. Measurement and tags are decoded; time and field values are raw JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Point<'a> {
    #[serde(borrow)]
    pub(super) measurement: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) tags: Members<'a, Text<'a>>,
    #[serde(borrow, default)]
    pub(super) time: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) fields: Members<'a, &'a RawValue>,
}

/// JSON string; borrows from the body if it has no escapes.
#[derive(Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// Members of an object in their order, including duplicates. The caller checks for duplicates.
pub(super) struct Members<'a, V>(pub(super) Vec<(Cow<'a, str>, V)>);

impl<V> Default for Members<'_, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de: 'a, 'a, V: Deserialize<'de>> Deserialize<'de> for Members<'a, V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect<'a, V>(PhantomData<(&'a (), V)>);

        impl<'de: 'a, 'a, V: Deserialize<'de>> Visitor<'de> for Collect<'a, V> {
            type Value = Members<'a, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Text(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Collect(PhantomData))
    }
}

/// Number with an explicit type.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Typed<'a> {
    Float(#[serde(borrow)] &'a RawValue),
    Signed(#[serde(borrow)] &'a RawValue),
    Unsigned(#[serde(borrow)] &'a RawValue),
}

/// Field value. A string with escapes owns its text.
pub(super) enum Parsed<'a> {
    Plain(FieldValue<'a>),
    Text(Cow<'a, str>),
}

impl Parsed<'_> {
    pub(super) fn value(&self) -> FieldValue<'_> {
        match self {
            Self::Plain(value) => *value,
            Self::Text(text) => FieldValue::String(text),
        }
    }
}

/// Parses the value of field `name`.
pub(super) fn field_value<'a>(name: &str, raw: &'a RawValue) -> Result<Parsed<'a>, Reason> {
    let text = raw.get();
    let wrong = |what: &str| -> Reason {
        format!(
            "{what} {} in field {}",
            quote(text.as_bytes()),
            quote(name.as_bytes())
        )
        .into()
    };
    let value = match text.as_bytes() {
        [b'"', ..] => return Ok(Parsed::Text(string(text).ok_or_else(|| wrong("invalid string"))?)),
        b"true" => FieldValue::Boolean(true),
        b"false" => FieldValue::Boolean(false),
        [b'-' | b'0'..=b'9', ..] => number(text).ok_or_else(|| wrong("number out of range:"))?,
        [b'{', ..] => typed_number(text).map_err(|reason| wrong(&reason))?,
        _ => return Err(wrong("invalid field value")),
    };
    Ok(Parsed::Plain(value))
}

/// Parses the timestamp of a point; `None` if the point has no timestamp.
pub(super) fn time(raw: Option<&RawValue>, precision: Precision) -> Result<Option<i64>, Reason> {
    let Some(raw) = raw else { return Ok(None) };
    let wrong = |reason: &str| -> Reason { format!("{reason} {}", quote(raw.get().as_bytes())).into() };
    let text = match raw.get().starts_with('"') {
        true => string(raw.get()).ok_or_else(|| wrong("bad timestamp"))?,
        false => Cow::Borrowed(raw.get()),
    };
    if let Some(instant) = Timestamp::parse_rfc3339(&text) {
        return Ok(Some(instant.nanos()));
    }
    number::timestamp(text.as_bytes(), precision)
        .map(Some)
        .map_err(wrong)
}

/// Returns the text of a JSON string; `None` if the text has no quotes or an invalid escape.
fn string(quoted: &str) -> Option<Cow<'_, str>> {
    let inner = quoted.strip_prefix('"')?.strip_suffix('"')?;
    match inner.contains('\\') {
        false => Some(Cow::Borrowed(inner)),
        true => serde_json::from_str(quoted).ok().map(Cow::Owned),
    }
}

/// Parses a JSON number; its notation determines the type. `None` if the number is out of range. `serde_json` would
/// turn integers over `u64` into floats.
fn number(text: &str) -> Option<FieldValue<'static>> {
    if text.contains(['.', 'e', 'E']) {
        return number::float(text.as_bytes()).map(FieldValue::Float);
    }
    let signed = number::signed(text.as_bytes()).map(FieldValue::Signed);
    signed.or_else(|| number::unsigned(text.as_bytes()).map(FieldValue::Unsigned))
}

/// Parses a typed number such as `{"float": …}`.
fn typed_number(text: &str) -> Result<FieldValue<'static>, String> {
    let typed: Typed<'_> = serde_json::from_str(text).map_err(|error| super::reason_of(&error))?;
    let (raw, kind) = match &typed {
        Typed::Float(raw) => (raw, "float"),
        Typed::Signed(raw) => (raw, "signed"),
        Typed::Unsigned(raw) => (raw, "unsigned"),
    };
    let inner = raw.get();
    let digits = string(inner).unwrap_or(Cow::Borrowed(inner));
    let value = match typed {
        Typed::Float(_) => match &*digits {
            "NaN" => Some(FieldValue::Float(f64::NAN)),
            "Inf" | "+Inf" => Some(FieldValue::Float(f64::INFINITY)),
            "-Inf" => Some(FieldValue::Float(f64::NEG_INFINITY)),
            digits => number::float(digits.as_bytes()).map(FieldValue::Float),
        },
        Typed::Signed(_) => number::signed(digits.as_bytes()).map(FieldValue::Signed),
        Typed::Unsigned(_) => number::unsigned(digits.as_bytes()).map(FieldValue::Unsigned),
    };
    value.ok_or_else(|| format!("invalid {kind}"))
}
