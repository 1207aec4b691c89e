//! Decoder of VictoriaMetrics JSON lines. Each line is a series or a part of one.
//!
//! ```json
//! {"metric":{"__name__":"up","job":"node"},"values":[1,null],"timestamps":[1700000000000,1700000015000]}
//! ```
//!
//! Timestamps are in milliseconds. `null` is NaN. A value can also be a string that contains a number, such as
//! `"Infinity"` and `"-Infinity"`.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use tideline_model::SeriesResolver;

use super::decoded::DecodedSamples;
use super::import::{ImportOptions, spell_key};
use super::samples::SampleWriter;
use crate::options::DecodeOptions;
use crate::reject::{Reason, too_large};

/// Maximum size of a line, in bytes: more than three days of a series with one sample per second.
const LINE_BYTES_MAX: usize = 10 << 20;
/// Factor from JSON bytes to the body size that [`SampleWriter`] expects. A value and its timestamp take at least four
/// bytes; the writer allows one row per eight bytes.
const BYTES_FOR_JSON: usize = 2;

/// Decodes a body of lines. A bad line becomes a reject with its number and its first bytes.
pub fn decode_json_lines(
    body: &[u8],
    import: &ImportOptions,
    options: &DecodeOptions,
    resolver: &mut impl SeriesResolver,
) -> DecodedSamples {
    let mut writer = SampleWriter::new(body.len().saturating_mul(BYTES_FOR_JSON), 0, options, resolver);
    let mut key = Vec::new();
    let lines = body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let mut lines = lines.zip(1..).filter(|(line, _)| !line.is_empty());
    while let Some((line, number)) = lines.next() {
        let goes_on = match one_line((line, number), import, &mut writer, &mut key) {
            Ok(goes_on) => goes_on,
            Err(reason) => writer.reject_line(number, reason, line),
        };
        if !goes_on {
            let unread = lines.count();
            if unread > 0 {
                writer.reject_unread(unread);
            }
            break;
        }
    }
    writer.finish()
}

/// Decodes one line; returns `false` if reading must stop. A sample that cannot be stored is rejected alone; any other
/// error rejects the whole line.
fn one_line<R: SeriesResolver>(
    (text, number): (&[u8], usize),
    import: &ImportOptions,
    writer: &mut SampleWriter<'_, R>,
    key: &mut Vec<u8>,
) -> Result<bool, Reason> {
    if text.len() > LINE_BYTES_MAX {
        return Err(too_large("line", text.len(), LINE_BYTES_MAX));
    }
    let line: Line<'_> = serde_json::from_slice(text).map_err(|error| Reason::from(error.to_string()))?;
    let values = line.values.iter().map(|value| to_number(value.get()));
    let values: Vec<f64> = values.collect::<Result<_, _>>()?;
    let times = &line.timestamps;
    if values.len() != times.len() {
        return Err(format!("{} values and {} timestamps", values.len(), times.len()).into());
    }
    let labels = line.metric.0.iter();
    let labels = labels.map(|(name, value)| (name.as_bytes(), Cow::Borrowed(value.as_bytes())));
    spell_key(labels, &import.extra_labels, key)?;
    let series = writer.series(key)?;
    for (value, millis) in values.iter().zip(times) {
        if let Err(reason) = writer.number(series, *millis, *value, None)
            && !writer.reject_line(number, reason, text)
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// JSON line. Unknown members are ignored, because other exporters add some.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    metric: Labels<'a>,
    #[serde(borrow)]
    values: Vec<&'a RawValue>,
    timestamps: Vec<i64>,
}

/// Labels in their order; duplicates are detected later.
struct Labels<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

/// String that borrows from the body if it has no escapes.
#[derive(Deserialize)]
struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Labels<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Labels<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of labels")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
                let mut labels = Vec::new();
                while let Some((name, value)) =
                    members.next_entry::<BorrowedText<'de>, BorrowedText<'de>>()?
                {
                    labels.push((name.0, value.0));
                }
                Ok(Labels(labels))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

/// Parses a value from its JSON text. Uses `fast_float2`, because `serde_json` may not return the nearest double.
fn to_number(value: &str) -> Result<f64, Reason> {
    let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match (value, quoted) {
        ("null", _) => Ok(f64::NAN),
        (_, text) => fast_float2::parse(text.unwrap_or(value)).map_err(|_| {
            format!("value {value} is not a number, null or a string that contains a number").into()
        }),
    }
}
