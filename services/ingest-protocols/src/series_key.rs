//! Raw series keys of the form `measurement[,tag=value…]`, by which decoders identify a timeline.
//!
//! In line protocol, the key is exactly the bytes before the first unescaped space of a line. The engine therefore uses
//! these bytes as cache key, and [`parse`] runs only for new keys. The JSON decoders build keys with [`write()`]; the
//! keys of Prometheus series have another encoding, see [`parse`].
//!
//! # Escaping
//!
//! - A backslash escapes a comma, a space and (in tags and field names) an equals sign. Before any other character,
//!   including another backslash, it is literal: `a\\ b` is `a\ b`. A name can therefore not *end* in a backslash.
//! - Quotes have no special meaning.
//! - Measurements, tag keys and field names contain no control characters. Tag values contain no NUL, CR or LF.

use tideline_model::identity::IdentityError;
use tideline_model::{Identity, SeriesError};

use crate::prometheus::labels;
use crate::reject::{Reason, quote, too_large};

/// Maximum size of a whole raw key, in bytes.
pub const KEY_BYTES_MAX: usize = 64 << 10;

/// Maximum number of tags of one timeline. The published line-protocol corpus has up to 255.
pub const TAGS_MAX: usize = 256;

/// Maximum size of a measurement, tag key, tag value or field name after unescaping, in bytes.
pub const NAME_BYTES_MAX: usize = 4 << 10;

/// Reserved tag name: such a tag would hide the timestamp of the point in every query.
pub(crate) const TIME: &str = "time";

/// Parses a raw key into an identity. A key that begins with a line feed, which never happens in line protocol, holds
/// the labels of a Prometheus series; see `prometheus::labels`.
///
/// Allocates the identity; intended for keys that are not cached.
///
/// # Errors
///
/// Returns an error for a missing measurement, tag key or tag value, duplicate tags, invalid UTF-8, control
/// characters, a tag named `time`, and parts over the limits of this module. If InfluxDB defines a text for the
/// error, the returned text begins with it: `missing measurement`, `missing tag key`, `missing tag value`, `duplicate
/// tags`.
///
/// # Examples
///
/// ```
/// use tideline_ingest_protocols::series_key;
///
/// let identity = series_key::parse(br"disk\ io,path=/var\ lib,host=web-1")?;
/// assert_eq!(identity.measurement(), "disk io");
/// assert_eq!(identity.tag("path"), Some("/var lib"));
/// assert_eq!(series_key::parse(b"cpu,host=").unwrap_err().to_string(), "missing tag value");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn parse(key: &[u8]) -> Result<Identity, SeriesError> {
    parse_parts(key).map_err(|reason| SeriesError(reason.to_string()))
}

/// Appends the raw key of a measurement and tags, in the given order.
///
/// # Errors
///
/// Returns an error for an empty part, a part that ends in a backslash, and control characters that the part must not
/// contain. `out` is then unchanged. Limits, duplicates and the tag name `time` are not checked; [`parse`] checks them.
pub fn write<'a>(
    measurement: &str,
    tags: impl IntoIterator<Item = (&'a str, &'a str)>,
    out: &mut Vec<u8>,
) -> Result<(), SeriesError> {
    let start = out.len();
    let written = write_parts(measurement, tags, out);
    if written.is_err() {
        out.truncate(start);
    }
    written.map_err(|reason| SeriesError(reason.to_string()))
}

/// Kinds of names; line protocol escapes each kind differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    Measurement,
    TagKey,
    TagValue,
    FieldKey,
}

impl Name {
    /// Returns true if a backslash before `byte` is an escape.
    fn escapes(self, byte: u8) -> bool {
        matches!(byte, b',' | b' ') || (byte == b'=' && self != Self::Measurement)
    }

    /// Returns true if `byte` can be part of the name without a backslash.
    fn allows(self, byte: u8) -> bool {
        match self {
            Self::Measurement => byte > b' ' && byte != 0x7f && byte != b',',
            Self::TagKey | Self::FieldKey => byte > b' ' && byte != 0x7f && byte != b',' && byte != b'=',
            Self::TagValue => !matches!(byte, b',' | b'=' | b' ' | b'\n' | b'\r' | 0),
        }
    }

    /// Returns the name of the kind for messages.
    fn noun(self) -> &'static str {
        match self {
            Self::Measurement => "measurement",
            Self::TagKey => "tag key",
            Self::TagValue => "tag value",
            Self::FieldKey => "field key",
        }
    }

    /// Returns the length of the raw name at the start of `bytes`.
    pub(crate) fn raw_len(self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            if byte == b'\\' && bytes.get(at + 1).is_some_and(|next| self.escapes(*next)) {
                at += 2;
            } else if self.allows(byte) {
                at += 1;
            } else {
                break;
            }
        }
        at
    }

    /// Appends a raw name without its escapes.
    pub(crate) fn unescape(self, raw: &[u8], out: &mut Vec<u8>) {
        let mut rest = raw;
        while let Some(at) = memchr::memchr(b'\\', rest) {
            let is_escape = rest.get(at + 1).is_some_and(|next| self.escapes(*next));
            out.extend_from_slice(&rest[..at + usize::from(!is_escape)]);
            rest = &rest[at + 1..];
            if let (true, Some((escaped, tail))) = (is_escape, rest.split_first()) {
                out.push(*escaped);
                rest = tail;
            }
        }
        out.extend_from_slice(rest);
    }

    /// Checks that line protocol can represent a name.
    pub(crate) fn check(self, name: &str) -> Result<(), Reason> {
        if name.is_empty() {
            return Err(self.missing());
        }
        if name.ends_with('\\') {
            return Err(format!("{} {} ends in a backslash", self.noun(), quote(name.as_bytes())).into());
        }
        match name.bytes().all(|byte| self.allows(byte) || self.escapes(byte)) {
            true => Ok(()),
            false => Err(self.control_character(name.as_bytes())),
        }
    }

    /// Appends a name with escapes; returns the reason if line protocol cannot represent it.
    pub(crate) fn escape(self, name: &str, out: &mut Vec<u8>) -> Result<(), Reason> {
        self.check(name)?;
        for byte in name.bytes() {
            if self.escapes(byte) {
                out.push(b'\\');
            }
            out.push(byte);
        }
        Ok(())
    }

    fn missing(self) -> Reason {
        match self {
            Self::Measurement => "missing measurement".into(),
            Self::TagKey => "missing tag key".into(),
            Self::TagValue => "missing tag value".into(),
            Self::FieldKey => "missing field key".into(),
        }
    }

    fn control_character(self, near: &[u8]) -> Reason {
        format!("control character in {} near {}", self.noun(), quote(near)).into()
    }
}

/// Returns the raw measurement of a raw key: all bytes before the first unescaped comma.
pub(crate) fn raw_measurement(key: &[u8]) -> &[u8] {
    let mut from = 0;
    while let Some(comma) = key.get(from..).and_then(|rest| memchr::memchr(b',', rest)) {
        let at = from + comma;
        if at == 0 || key[at - 1] != b'\\' {
            return &key[..at];
        }
        from = at + 1;
    }
    key
}

/// Checks the bytes of a raw measurement as [`parse`] does, except for UTF-8 and size.
pub(crate) fn check_measurement(raw: &[u8]) -> Result<(), Reason> {
    let taken = Name::Measurement.raw_len(raw);
    if raw.is_empty() {
        Err(Name::Measurement.missing())
    } else if taken < raw.len() {
        Err(Name::Measurement.control_character(&raw[taken..]))
    } else {
        Ok(())
    }
}

fn parse_parts(key: &[u8]) -> Result<Identity, Reason> {
    if key.first() == Some(&labels::LABEL) {
        return labels::identity(key);
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(too_large("series key", key.len(), KEY_BYTES_MAX));
    }
    let (measurement, mut rest) = take_name(Name::Measurement, key)?;
    let mut tags = Vec::new();
    while let Some((separator, tag)) = rest.split_first() {
        if *separator != b',' {
            return Err(unexpected(*separator, key));
        }
        let (name, tail) = take_name(Name::TagKey, tag)?;
        let Some((b'=', value)) = tail.split_first() else {
            return Err(format!("missing tag value of tag {}", quote(name.as_bytes())).into());
        };
        let (value, tail) = take_name(Name::TagValue, value)?;
        if name == TIME {
            let measurement = quote(measurement.as_bytes());
            return Err(format!(
                "invalid tag key: input tag \"time\" on measurement {measurement} is invalid"
            )
            .into());
        }
        tags.push((name, value));
        rest = tail;
    }
    if tags.len() > TAGS_MAX {
        return Err(format!("too many tags: limit {TAGS_MAX}, actual {}", tags.len()).into());
    }
    Identity::new(measurement, tags).map_err(|error| match error {
        IdentityError::DuplicateTag(tag) => format!("duplicate tags: {}", quote(tag.as_bytes())).into(),
        other => other.to_string().into(),
    })
}

/// Returns the unescaped name at the start of `bytes` and the bytes after it.
fn take_name(kind: Name, bytes: &[u8]) -> Result<(String, &[u8]), Reason> {
    let (raw, rest) = bytes.split_at(kind.raw_len(bytes));
    if raw.is_empty() {
        return Err(match rest.first() {
            Some(byte) if byte.is_ascii_control() => kind.control_character(rest),
            _ => kind.missing(),
        });
    }
    let mut name = Vec::with_capacity(raw.len());
    kind.unescape(raw, &mut name);
    if name.len() > NAME_BYTES_MAX {
        return Err(too_large(kind.noun(), name.len(), NAME_BYTES_MAX));
    }
    match String::from_utf8(name) {
        Ok(name) => Ok((name, rest)),
        Err(_) => Err(format!("invalid UTF-8 in {} {}", kind.noun(), quote(raw)).into()),
    }
}

fn unexpected(byte: u8, key: &[u8]) -> Reason {
    format!(
        "unexpected character {} in series key {}",
        quote(&[byte]),
        quote(key)
    )
    .into()
}

fn write_parts<'a>(
    measurement: &str,
    tags: impl IntoIterator<Item = (&'a str, &'a str)>,
    out: &mut Vec<u8>,
) -> Result<(), Reason> {
    Name::Measurement.escape(measurement, out)?;
    for (key, value) in tags {
        out.push(b',');
        Name::TagKey.escape(key, out)?;
        out.push(b'=');
        Name::TagValue.escape(value, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags_of(key: &str) -> Vec<(String, String)> {
        parse(key.as_bytes()).expect(key).tags().to_vec()
    }

    #[test]
    fn escapes_mean_something_only_before_a_separator() {
        let identity = parse(br"c\,p\ u\=\x,a\ b=c\\ d,e\==\f\,").expect("valid");
        assert_eq!(identity.measurement(), r"c,p u\=\x");
        assert_eq!(identity.tag("a b"), Some(r"c\ d"));
        assert_eq!(identity.tag("e="), Some(r"\f,"));
        assert_eq!(
            tags_of("m,b=2,a=1"),
            [("a".into(), "1".into()), ("b".into(), "2".into())]
        );
        assert_eq!(raw_measurement(br"a\,b,c=d"), br"a\,b");
        assert_eq!(raw_measurement(b"abc"), b"abc");
    }

    #[test]
    fn wrong_keys_are_refused_with_a_reason() {
        for (key, reason) in [
            ("", "missing measurement"),
            (",a=b", "missing measurement"),
            ("m,", "missing tag key"),
            ("m,=b", "missing tag key"),
            ("m,a", "missing tag value of tag \"a\""),
            ("m,a=", "missing tag value"),
            ("m,a=b=c", "unexpected character \"=\" in series key \"m,a=b=c\""),
            ("m,a=b,a=c", "duplicate tags: \"a\""),
            (
                "m,time=b",
                "invalid tag key: input tag \"time\" on measurement \"m\" is invalid",
            ),
            ("m\u{0}", "unexpected character \"\\0\" in series key \"m\\0\""),
            ("m,a=\u{0}", "control character in tag value near \"\\0\""),
        ] {
            assert_eq!(parse(key.as_bytes()), Err(SeriesError(reason.into())), "{key:?}");
        }
        let error = parse(b"m,a=\xff").expect_err("not UTF-8");
        assert_eq!(error.0, "invalid UTF-8 in tag value \"\u{fffd}\"");
        let long = format!("m,a={}", "x".repeat(NAME_BYTES_MAX + 1));
        let error = parse(long.as_bytes()).expect_err("too long");
        assert_eq!(error.0, "tag value too large: limit 4096, actual 4097");
        let many: String = (0..=TAGS_MAX).map(|tag| format!(",t{tag}=v")).collect();
        let error = parse(format!("m{many}").as_bytes()).expect_err("too many");
        assert_eq!(error.0, "too many tags: limit 256, actual 257");
    }

    #[test]
    fn a_written_key_reads_back_and_a_failed_write_leaves_nothing() {
        let mut out = b"before ".to_vec();
        let tags = [("t=1", r"v\ ,=x"), ("u", "\t")];
        write("m, =", tags, &mut out).expect("can be written");
        let identity = parse(&out[7..]).expect("reads back");
        assert_eq!(identity.measurement(), "m, =");
        assert_eq!(identity.tag("t=1"), Some(r"v\ ,=x"));
        for bad in ["", "x\\", "a\nb"] {
            let mut out = b"before ".to_vec();
            assert!(write("m", [("k", bad)], &mut out).is_err());
            assert_eq!(out, b"before ");
        }
    }
}
