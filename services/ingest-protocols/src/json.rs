//! Native JSON body. Numbers, booleans and strings are represented without loss.
//!
//! ```json
//! {"precision": "ms", "points": [
//!   {"measurement": "cpu", "tags": {"host": "a"}, "time": "2026-11-20T12:00:00Z",
//!    "fields": {"usage": 1.5, "n": 3, "big": {"unsigned": "18446744073709551615"}, "ok": true, "s": "text"}}
//! ]}
//! ```
//!
//! The outer object may be omitted: `[point, …]`. `tags`, `time` and `precision` are optional.
//!
//! - `time` is an RFC 3339 string or an integer in units of the precision. The integer may also be a string, for
//!   writers that only have doubles. Without `time`, or with `null`, the point gets the default time.
//! - A number with a fraction or an exponent is a float. An integer is signed, or unsigned if it exceeds `i64`. The
//!   typed forms `{"float": …}`, `{"signed": …}` and `{"unsigned": …}` set the type explicitly and take a number or a
//!   string that contains one. `{"float": …}` also accepts `"NaN"`, `"Inf"`, `"+Inf"` and `"-Inf"`.
//! - A point is rejected if it has an unknown member, a duplicate key, `null` as a tag or field value, or a field named
//!   `time`.
//!
//! The body is checked to be valid JSON as a whole before any point is decoded. After that, an invalid element is
//! rejected alone; the other elements are kept. Elements are read in place one after the other; no tree of the body is
//! built, regardless of its nesting depth.

mod point;
mod writer;

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tideline_model::{PointBatch, Precision, SeriesResolver};

use crate::error::IngestError;
use crate::options::DecodeOptions;
pub(crate) use writer::PointWriter;

/// Decodes a JSON body. A `precision` in the body overrides the precision of the options.
///
/// Bad elements become rejects with their index, starting at 1.
///
/// # Errors
///
/// Returns [`IngestError::Json`] if the body is not one JSON document, or if the document is neither an array nor an
/// object with an array `points`. Also returns this error for an unknown member or precision. No point is decoded then.
pub fn decode(
    body: &[u8],
    options: DecodeOptions,
    resolver: &mut impl SeriesResolver,
) -> Result<PointBatch, IngestError> {
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    // Checks the whole document first: no part of a truncated body may be stored.
    let document: &RawValue = serde_json::from_slice(body).map_err(|error| whole_body_error(&error))?;
    let mut options = options;
    let points = match document.get().as_bytes().first() {
        Some(b'[') => document,
        Some(b'{') => {
            let envelope: Envelope<'_> =
                serde_json::from_slice(body).map_err(|error| whole_body_error(&error))?;
            if let Some(name) = envelope.precision {
                options.precision =
                    Precision::parse(&name).ok_or_else(|| refused(format!("unknown precision {name:?}")))?;
            }
            envelope.points
        }
        _ => return Err(refused("expected an object with points or an array of points")),
    };
    if !points.get().starts_with('[') {
        return Err(refused("points must be an array"));
    }
    let mut writer = PointWriter::new(options, resolver);
    let mut elements = serde_json::Deserializer::from_str(points.get());
    Elements(&mut writer)
        .deserialize(&mut elements)
        .map_err(|error| whole_body_error(&error))?;
    Ok(writer.finish())
}

/// Outer object of a body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    #[serde(borrow)]
    points: &'a RawValue,
    #[serde(borrow, default)]
    precision: Option<Cow<'a, str>>,
}

/// Passes each element of an array to the writer as it is parsed.
struct Elements<'w, 'r, R>(&'w mut PointWriter<'r, R>);

impl<'de, R: SeriesResolver> DeserializeSeed<'de> for Elements<'_, '_, R> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, R: SeriesResolver> Visitor<'de> for Elements<'_, '_, R> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of points")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let mut index = 0u32;
        while let Some(element) = elements.next_element::<&'de RawValue>()? {
            index = index.saturating_add(1);
            self.0.write(index, element.get());
        }
        Ok(())
    }
}

fn refused(reason: impl Into<String>) -> IngestError {
    IngestError::Json {
        line: 1,
        column: 1,
        reason: reason.into(),
    }
}

fn whole_body_error(error: &serde_json::Error) -> IngestError {
    IngestError::Json {
        line: error.line(),
        column: error.column(),
        reason: reason_of(error),
    }
}

/// Returns the text of an error without its position. [`IngestError::Json`] stores the position separately, and the
/// reject of an element does not need it.
fn reason_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&position).unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests;
