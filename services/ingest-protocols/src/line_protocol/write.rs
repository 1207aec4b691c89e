//! Encoder of points as lines, for the sampler, the command line and tests.
//!
//! The output is canonical: timestamps in nanoseconds, and numbers as InfluxDB's own writers format them.

use std::io::Write as _;

use tideline_model::{SeriesError, Timestamp, Value};

use crate::error::IngestError;
use crate::series_key::{self, Name};

/// Appends one point as a line, with a timestamp in nanoseconds and a line end.
///
/// Tags and fields keep their order. [`super::decode()`] returns the same point, bit for bit, if it accepts the point
/// and no field is named `time`.
///
/// # Errors
///
/// Returns an error for a name that line protocol cannot represent (see [`series_key`]), a point without fields, a NaN,
/// an infinity or a histogram. `out` is then unchanged.
///
/// # Examples
///
/// ```
/// use tideline_ingest_protocols::line_protocol;
/// use tideline_model::{Timestamp, Value};
///
/// let mut lines = Vec::new();
/// let tags = [("host", "web 1")];
/// let fields = [("usage", &Value::Float(0.5)), ("cores", &Value::Signed(8))];
/// line_protocol::write(&mut lines, "cpu", tags, fields, Timestamp::from_nanos(1_000)?)?;
/// assert_eq!(lines, b"cpu,host=web\\ 1 usage=0.5,cores=8i 1000\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write<'a>(
    out: &mut Vec<u8>,
    measurement: &str,
    tags: impl IntoIterator<Item = (&'a str, &'a str)>,
    fields: impl IntoIterator<Item = (&'a str, &'a Value)>,
    time: Timestamp,
) -> Result<(), IngestError> {
    let start = out.len();
    let written = write_parts(out, measurement, tags, fields, time);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn write_parts<'a>(
    out: &mut Vec<u8>,
    measurement: &str,
    tags: impl IntoIterator<Item = (&'a str, &'a str)>,
    fields: impl IntoIterator<Item = (&'a str, &'a Value)>,
    time: Timestamp,
) -> Result<(), IngestError> {
    if measurement.starts_with('#') {
        let reason = "a line that starts with # is a comment";
        return Err(SeriesError(reason.into()).into());
    }
    series_key::write(measurement, tags, out)?;
    let mut separator = b' ';
    for (name, value) in fields {
        out.push(separator);
        separator = b',';
        Name::FieldKey
            .escape(name, out)
            .map_err(|_| IngestError::FieldName(name.into()))?;
        out.push(b'=');
        write_value(out, name, value)?;
    }
    if separator == b' ' {
        return Err(IngestError::MissingFields);
    }
    write_text(out, format_args!(" {}\n", time.nanos()));
    Ok(())
}

fn write_value(out: &mut Vec<u8>, name: &str, value: &Value) -> Result<(), IngestError> {
    match value {
        Value::Float(value) if !value.is_finite() => return Err(IngestError::NotFinite(name.into())),
        Value::Float(value) => write_float(out, *value),
        Value::Signed(value) => write_text(out, format_args!("{value}i")),
        Value::Unsigned(value) => write_text(out, format_args!("{value}u")),
        Value::Boolean(value) => write_text(out, format_args!("{value}")),
        Value::String(value) => {
            out.push(b'"');
            for byte in value.bytes() {
                if matches!(byte, b'"' | b'\\') {
                    out.push(b'\\');
                }
                out.push(byte);
            }
            out.push(b'"');
        }
        Value::Histogram(_) => return Err(IngestError::Histogram(name.into())),
    }
    Ok(())
}

/// Writes the shortest digits that parse to the same double, in the format of InfluxDB's own writers. Nonzero values
/// with a magnitude below 10⁻⁴ or of at least 10⁶ have an exponent of at least two digits.
fn write_float(out: &mut Vec<u8>, value: f64) {
    let scientific = format!("{value:e}");
    match scientific
        .split_once('e')
        .and_then(|(digits, exponent)| Some((digits, exponent.parse::<i32>().ok()?)))
    {
        Some((digits, exponent)) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            write_text(out, format_args!("{digits}e{sign}{:02}", exponent.unsigned_abs()));
        }
        _ => write_text(out, format_args!("{value}")),
    }
}

fn write_text(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to memory cannot fail");
}
