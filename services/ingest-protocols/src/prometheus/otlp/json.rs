//! Conversion of an OTLP/JSON request to Protocol Buffers.
//!
//! The dialect differs from the JSON form of Protocol Buffers: names are lowerCamelCase only, enums are integers only,
//! and trace and span ids are hexadecimal. Integers of 64 bits are numbers or strings. Unknown members are ignored.
//! `null` in place of a message is an empty message; any other `null` is a missing value.
//!
//! The messages are described by tables of their fields, so that the conversion does not depend on their meaning. The
//! conversion reads the body once and builds no tree. The result is at most 4.5 times as large as the body: a bound of
//! one digit takes two bytes of the body and nine of the result.

use std::borrow::Cow;
use std::fmt;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tideline_wire::protobuf::{PutFields, WireType};

use crate::error::IngestError;

/// Size of the encoded length of a nested message, in bytes. The length is written after the content, so it has a
/// fixed size.
const LENGTH_BYTES: usize = 5;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Field of a message: its name in JSON, its number and its type.
struct Field(&'static str, u32, Kind);

/// Type of a field.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Bool,
    Fixed64,
    SFixed64,
    Double,
    Int64,
    UInt32,
    SInt32,
    /// Number of an enum.
    Enum,
    /// Bytes in hexadecimal.
    Hex,
    Base64,
    /// List of integers, written as one varint each.
    Integers,
    Doubles,
    Message(&'static [Field]),
    Messages(&'static [Field]),
}

static REQUEST: [Field; 1] = [Field("resourceMetrics", 1, Kind::Messages(&RESOURCE_METRICS))];
static RESOURCE_METRICS: [Field; 3] = [
    Field("resource", 1, Kind::Message(&RESOURCE)),
    Field("scopeMetrics", 2, Kind::Messages(&SCOPE_METRICS)),
    Field("schemaUrl", 3, Kind::Text),
];
static RESOURCE: [Field; 1] = [Field("attributes", 1, Kind::Messages(&KEY_VALUE))];
static SCOPE_METRICS: [Field; 3] = [
    Field("scope", 1, Kind::Message(&SCOPE)),
    Field("metrics", 2, Kind::Messages(&METRIC)),
    Field("schemaUrl", 3, Kind::Text),
];
static SCOPE: [Field; 3] = [
    Field("name", 1, Kind::Text),
    Field("version", 2, Kind::Text),
    Field("attributes", 3, Kind::Messages(&KEY_VALUE)),
];
static METRIC: [Field; 8] = [
    Field("name", 1, Kind::Text),
    Field("description", 2, Kind::Text),
    Field("unit", 3, Kind::Text),
    Field("gauge", 5, Kind::Message(&GAUGE)),
    Field("sum", 7, Kind::Message(&SUM)),
    Field("histogram", 9, Kind::Message(&HISTOGRAM)),
    Field("exponentialHistogram", 10, Kind::Message(&EXPONENTIAL)),
    Field("summary", 11, Kind::Message(&SUMMARY)),
];
static GAUGE: [Field; 1] = [Field("dataPoints", 1, Kind::Messages(&NUMBER_POINT))];
static SUM: [Field; 3] = [
    Field("dataPoints", 1, Kind::Messages(&NUMBER_POINT)),
    Field("aggregationTemporality", 2, Kind::Enum),
    Field("isMonotonic", 3, Kind::Bool),
];
static HISTOGRAM: [Field; 2] = [
    Field("dataPoints", 1, Kind::Messages(&HISTOGRAM_POINT)),
    Field("aggregationTemporality", 2, Kind::Enum),
];
static EXPONENTIAL: [Field; 2] = [
    Field("dataPoints", 1, Kind::Messages(&EXPONENTIAL_POINT)),
    Field("aggregationTemporality", 2, Kind::Enum),
];
static SUMMARY: [Field; 1] = [Field("dataPoints", 1, Kind::Messages(&SUMMARY_POINT))];
static NUMBER_POINT: [Field; 7] = [
    Field("attributes", 7, Kind::Messages(&KEY_VALUE)),
    Field("startTimeUnixNano", 2, Kind::Fixed64),
    Field("timeUnixNano", 3, Kind::Fixed64),
    Field("asDouble", 4, Kind::Double),
    Field("asInt", 6, Kind::SFixed64),
    Field("exemplars", 5, Kind::Messages(&EXEMPLAR)),
    Field("flags", 8, Kind::UInt32),
];
static HISTOGRAM_POINT: [Field; 9] = [
    Field("attributes", 9, Kind::Messages(&KEY_VALUE)),
    Field("startTimeUnixNano", 2, Kind::Fixed64),
    Field("timeUnixNano", 3, Kind::Fixed64),
    Field("count", 4, Kind::Fixed64),
    Field("sum", 5, Kind::Double),
    Field("bucketCounts", 6, Kind::Integers),
    Field("explicitBounds", 7, Kind::Doubles),
    Field("exemplars", 8, Kind::Messages(&EXEMPLAR)),
    Field("flags", 10, Kind::UInt32),
];
static EXPONENTIAL_POINT: [Field; 12] = [
    Field("attributes", 1, Kind::Messages(&KEY_VALUE)),
    Field("startTimeUnixNano", 2, Kind::Fixed64),
    Field("timeUnixNano", 3, Kind::Fixed64),
    Field("count", 4, Kind::Fixed64),
    Field("sum", 5, Kind::Double),
    Field("scale", 6, Kind::SInt32),
    Field("zeroCount", 7, Kind::Fixed64),
    Field("positive", 8, Kind::Message(&BUCKETS)),
    Field("negative", 9, Kind::Message(&BUCKETS)),
    Field("flags", 10, Kind::UInt32),
    Field("exemplars", 11, Kind::Messages(&EXEMPLAR)),
    Field("zeroThreshold", 14, Kind::Double),
];
static BUCKETS: [Field; 2] = [
    Field("offset", 1, Kind::SInt32),
    Field("bucketCounts", 2, Kind::Integers),
];
static SUMMARY_POINT: [Field; 7] = [
    Field("attributes", 7, Kind::Messages(&KEY_VALUE)),
    Field("startTimeUnixNano", 2, Kind::Fixed64),
    Field("timeUnixNano", 3, Kind::Fixed64),
    Field("count", 4, Kind::Fixed64),
    Field("sum", 5, Kind::Double),
    Field("quantileValues", 6, Kind::Messages(&QUANTILE)),
    Field("flags", 8, Kind::UInt32),
];
static QUANTILE: [Field; 2] = [
    Field("quantile", 1, Kind::Double),
    Field("value", 2, Kind::Double),
];
static EXEMPLAR: [Field; 6] = [
    Field("filteredAttributes", 7, Kind::Messages(&KEY_VALUE)),
    Field("timeUnixNano", 2, Kind::Fixed64),
    Field("asDouble", 3, Kind::Double),
    Field("asInt", 6, Kind::SFixed64),
    Field("spanId", 4, Kind::Hex),
    Field("traceId", 5, Kind::Hex),
];
static KEY_VALUE: [Field; 2] = [
    Field("key", 1, Kind::Text),
    Field("value", 2, Kind::Message(&ANY_VALUE)),
];
static ANY_VALUE: [Field; 7] = [
    Field("stringValue", 1, Kind::Text),
    Field("boolValue", 2, Kind::Bool),
    Field("intValue", 3, Kind::Int64),
    Field("doubleValue", 4, Kind::Double),
    Field("arrayValue", 5, Kind::Message(&ARRAY)),
    Field("kvlistValue", 6, Kind::Message(&KEY_VALUES)),
    Field("bytesValue", 7, Kind::Base64),
];
static ARRAY: [Field; 1] = [Field("values", 1, Kind::Messages(&ANY_VALUE))];
static KEY_VALUES: [Field; 1] = [Field("values", 1, Kind::Messages(&KEY_VALUE))];

/// Converts a request.
///
/// # Errors
///
/// Returns [`IngestError::Json`] if the body is not valid JSON, is nested more than 127 levels deep, or a member has a
/// wrong type.
pub(super) fn to_protobuf(body: &[u8]) -> Result<Vec<u8>, IngestError> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    let mut out = Vec::with_capacity(body.len() / 2);
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let message = Message {
        fields: &REQUEST,
        out: &mut out,
    };
    let converted = message
        .deserialize(&mut deserializer)
        .and_then(|()| deserializer.end());
    match converted {
        Ok(()) => Ok(out),
        Err(error) => Err(IngestError::Json {
            line: error.line(),
            column: error.column(),
            reason: reason(&error),
        }),
    }
}

/// Returns the message of an error without its position, which the caller reports separately.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&position).unwrap_or(&text).to_owned()
}

/// Converts an object to the fields of a message.
struct Message<'o> {
    fields: &'static [Field],
    out: &'o mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Message<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// JSON string; borrows from the body if it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Visitor<'de> for Message<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(Text(name)) = map.next_key()? {
            let Some(Field(name, number, kind)) = self.fields.iter().find(|field| field.0 == name) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let out = &mut *self.out;
            match *kind {
                Kind::Message(fields) => map.next_value_seed(Nested {
                    number: *number,
                    fields,
                    out,
                })?,
                Kind::Messages(_) | Kind::Integers | Kind::Doubles => map.next_value_seed(List {
                    name,
                    number: *number,
                    kind: *kind,
                    out,
                })?,
                kind => {
                    let value: &RawValue = map.next_value()?;
                    put(name, *number, kind, value.get(), out).map_err(A::Error::custom)?;
                }
            }
        }
        Ok(())
    }
}

/// Converts an object to a nested message. `null` becomes an empty message.
struct Nested<'o> {
    number: u32,
    fields: &'static [Field],
    out: &'o mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Nested<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.out.put_tag(self.number, WireType::Bytes);
        let start = self.out.len() + LENGTH_BYTES;
        self.out.resize(start, 0x80);
        Message {
            fields: self.fields,
            out: self.out,
        }
        .deserialize(deserializer)?;
        let length = self.out.len() - start;
        for (at, byte) in self.out[start - LENGTH_BYTES..start].iter_mut().enumerate() {
            let continues = if at + 1 < LENGTH_BYTES { 0x80 } else { 0 };
            *byte = (length >> (7 * at)) as u8 & 0x7f | continues;
        }
        Ok(())
    }
}

/// Converts an array to a repeated field.
struct List<'o> {
    name: &'static str,
    number: u32,
    kind: Kind,
    out: &'o mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an array in {}", self.name)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let Self {
            name,
            number,
            kind,
            out,
        } = self;
        if let Kind::Messages(fields) = kind {
            let mut next = || elements.next_element_seed(Nested { number, fields, out });
            while next()?.is_some() {}
            return Ok(());
        }
        let kind = match kind {
            Kind::Doubles => Kind::Double,
            other => other,
        };
        while let Some(element) = elements.next_element::<&'de RawValue>()? {
            put(name, number, kind, element.get(), out).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

/// Converts a value that is not an object or array; `null` is omitted. On error, returns a message with the member name
/// and the expected type.
fn put(name: &str, number: u32, kind: Kind, value: &str, out: &mut Vec<u8>) -> Result<(), String> {
    if value == "null" {
        return Ok(());
    }
    let wrong = |expected: &str| {
        let shown: String = value.chars().take(48).collect();
        format!("{name} must be {expected}, actual {shown}")
    };
    match kind {
        Kind::Text => out.put_bytes(number, text(value).ok_or_else(|| wrong("a string"))?.as_bytes()),
        Kind::Bool => match value {
            "true" => out.put_integer(number, 1),
            "false" => out.put_integer(number, 0),
            _ => return Err(wrong("true or false")),
        },
        Kind::Double => {
            let double =
                double(value).ok_or_else(|| wrong("a number, \"NaN\", \"Infinity\" or \"-Infinity\""))?;
            out.put_fixed64(number, double.to_bits());
        }
        Kind::Fixed64 | Kind::Integers => {
            let integer = integer(value).and_then(|integer| u64::try_from(integer).ok());
            let integer = integer.ok_or_else(|| wrong("an integer from 0 to 2^64-1"))?;
            match kind {
                Kind::Fixed64 => out.put_fixed64(number, integer),
                _ => out.put_integer(number, integer),
            }
        }
        Kind::SFixed64 | Kind::Int64 => {
            let integer = integer(value).and_then(|integer| i64::try_from(integer).ok());
            let integer = integer
                .ok_or_else(|| wrong("an integer of 64 bits"))?
                .cast_unsigned();
            match kind {
                Kind::SFixed64 => out.put_fixed64(number, integer),
                _ => out.put_integer(number, integer),
            }
        }
        Kind::UInt32 => {
            let integer = integer(value).and_then(|integer| u32::try_from(integer).ok());
            let integer = integer.ok_or_else(|| wrong("an integer from 0 to 2^32-1"))?;
            out.put_integer(number, integer.into());
        }
        Kind::SInt32 => {
            let integer = integer(value).and_then(|integer| i32::try_from(integer).ok());
            let integer = integer.ok_or_else(|| wrong("an integer of 32 bits"))?;
            out.put_sint(number, integer.into());
        }
        Kind::Enum => {
            let integer = value.parse::<i32>().ok();
            let integer = integer.ok_or_else(|| wrong("the integer of an enum, not its name"))?;
            out.put_integer(number, i64::from(integer).cast_unsigned());
        }
        Kind::Hex => {
            let bytes = text(value).and_then(|text| hexadecimal(&text));
            let bytes = bytes.ok_or_else(|| wrong("hexadecimal digits"))?;
            out.put_bytes(number, &bytes);
        }
        Kind::Base64 => {
            let bytes = text(value).and_then(|text| {
                // The URL-safe alphabet is accepted too.
                let text = text.replace('-', "+").replace('_', "/");
                BASE64.decode(text).ok()
            });
            out.put_bytes(number, &bytes.ok_or_else(|| wrong("base64"))?);
        }
        Kind::Message(_) | Kind::Messages(_) | Kind::Doubles => {}
    }
    Ok(())
}

fn text(value: &str) -> Option<Cow<'_, str>> {
    let text: Text<'_> = serde_json::from_str(value).ok()?;
    Some(text.0)
}

/// Returns the text of a number, or of a string that holds a number.
fn digits(value: &str) -> &str {
    let inner = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or(value)
}

fn double(value: &str) -> Option<f64> {
    match digits(value) {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        digits => {
            let double: f64 = fast_float2::parse(digits).ok()?;
            let is_number = digits.starts_with(|c: char| c.is_ascii_digit() || c == '-');
            // A number beyond the range of doubles would become an infinity.
            (double.is_finite() && is_number).then_some(double)
        }
    }
}

/// Parses an integer. A fraction or an exponent, with which JavaScript writes large numbers, is accepted if the value
/// is whole and below 1e20. `None` for any other text.
fn integer(value: &str) -> Option<i128> {
    let digits = digits(value);
    if let Ok(integer) = digits.parse() {
        return Some(integer);
    }
    let double = double(value).filter(|double| double.fract() == 0.0 && double.abs() < 1e20)?;
    Some(double as i128)
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    let byte = |[high, low]: &[u8; 2]| Some((digit(*high)? << 4 | digit(*low)?) as u8);
    odd.is_empty().then(|| pairs.iter().map(byte).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(body: &str) -> String {
        to_protobuf(body.as_bytes()).expect_err(body).to_string()
    }

    fn in_point(member: &str) -> String {
        format!(
            r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"gauge":{{"dataPoints":[{{{member}}}]}}}}]}}]}}]}}"#
        )
    }

    #[test]
    fn numbers_are_exact_in_each_form() {
        for (value, bits) in [
            ("0.1", 0.1_f64.to_bits()),
            ("\"-2.5\"", (-2.5_f64).to_bits()),
            ("\"Infinity\"", f64::INFINITY.to_bits()),
            ("123456789012345680.0", 123_456_789_012_345_680_f64.to_bits()),
            ("2.2250738585072014e-308", f64::MIN_POSITIVE.to_bits()),
        ] {
            assert_eq!(double(value).map(f64::to_bits), Some(bits), "{value}");
        }
        for (value, expected) in [
            ("5", 5),
            ("\"18446744073709551615\"", i128::from(u64::MAX)),
            ("-9223372036854775808", i128::from(i64::MIN)),
            ("1.5e3", 1_500),
            ("2.0", 2),
        ] {
            assert_eq!(integer(value), Some(expected), "{value}");
        }
        for wrong in ["1e400", "\"\"", "true", "\"1 \"", "\"inf\"", "\"nan\"", "[1]"] {
            assert_eq!(double(wrong), None, "{wrong}");
            assert_eq!(integer(wrong), None, "{wrong}");
        }
        assert_eq!(integer("1.5"), None);
        assert_eq!(hexadecimal("0aFf"), Some(vec![0x0a, 0xff]));
        assert_eq!((hexadecimal("0a0"), hexadecimal("zz")), (None, None));
    }

    #[test]
    fn wrong_members_are_refused_with_their_place() {
        for (member, reason) in [
            (
                "\"asInt\": 1.5",
                "asInt must be an integer of 64 bits, actual 1.5",
            ),
            (
                "\"asInt\": 9223372036854775808",
                "asInt must be an integer of 64 bits",
            ),
            ("\"timeUnixNano\": -1", "timeUnixNano must be an integer from 0"),
            ("\"asDouble\": \"one\"", "asDouble must be a number"),
            ("\"flags\": \"x\"", "flags must be an integer"),
            ("\"attributes\": {}", "an array in attributes"),
            ("\"attributes\": [5]", "an object"),
            (
                "\"exemplars\": [{\"traceId\": \"xyz\"}]",
                "traceId must be hexadecimal digits",
            ),
            (
                "\"attributes\": [{\"value\": {\"boolValue\": 1}}]",
                "boolValue must be true or false",
            ),
        ] {
            let text = refused(&in_point(member));
            assert!(
                text.contains(reason) && text.starts_with("invalid JSON at line 1"),
                "{text}"
            );
        }
        for body in [
            "",
            "[]",
            "nonsense",
            "{\"resourceMetrics\": []} x",
            "{\"resourceMetrics\": {}}",
            "{",
        ] {
            refused(body);
        }
        let enumeration = r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"sum":{"aggregationTemporality":"AGGREGATION_TEMPORALITY_DELTA"}}]}]}]}"#;
        assert!(refused(enumeration).contains("aggregationTemporality must be the integer of an enum"));
    }

    #[test]
    fn unknown_and_missing_members_are_ignored() {
        let empty = to_protobuf(b"{}").expect("an empty request");
        assert_eq!(empty, b"");
        for member in [
            "\"asDouble\": null",
            "\"attributes\": null",
            "\"as_double\": 5",
            "\"new\": [{\"deep\": {}}]",
        ] {
            let with = to_protobuf(in_point(member).as_bytes()).expect("valid");
            assert_eq!(
                with,
                to_protobuf(in_point("").as_bytes()).expect("valid"),
                "{member}"
            );
        }
    }

    #[test]
    fn deep_bodies_are_refused() {
        let deep = r#"{"arrayValue":{"values":["#.repeat(10_000);
        let member = format!(r#""attributes":[{{"key":"a","value":{deep}"#);
        assert!(refused(&format!("{{\"resourceMetrics\":[{member}")).starts_with("invalid JSON"));
        let text = refused(&in_point(&member));
        assert!(text.contains("recursion limit"), "{text}");
    }
}
