//! Encoding of the labels of a series as the raw key of its timeline.
//!
//! Remote write encodes labels as repeated messages `Label { name = 1, value = 2 }` in field 1. These bytes, as they
//! are in the request, are the raw key of the series. A known series therefore costs one hash and one comparison
//! without escaping or copying, and only a new key is parsed by [`identity`]. The first byte is a line feed, with which
//! no line-protocol key begins. Decoders of other formats build the same encoding with [`push`].
//!
//! Unlike a line-protocol key, the encoding can hold any text without NUL, including line ends and trailing
//! backslashes.

use tideline_model::Identity;
use tideline_model::identity::IdentityError;
use tideline_wire::varint;

use super::wire::{Fields, Payload, Read};
use crate::reject::{Reason, quote, too_large};
use crate::series_key::{KEY_BYTES_MAX, NAME_BYTES_MAX, TAGS_MAX, TIME};

/// Label that holds the metric name.
pub(crate) const METRIC_NAME: &[u8] = b"__name__";

/// First byte of every label: field 1 with length-delimited bytes.
pub(crate) const LABEL: u8 = 0x0a;
const VALUE: u8 = 0x12;

/// Size in bytes after which a text of labels ends with an ellipsis.
const SHOWN_BYTES_MAX: usize = 240;

/// Appends a label.
pub(crate) fn push(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let (name_length, value_length) = (name.len() as u64, value.len() as u64);
    let heads = 2 + varint::len(name_length) + varint::len(value_length);
    let length = heads as u64 + name_length + value_length;
    out.push(LABEL);
    varint::put(length, out);
    out.push(LABEL);
    varint::put(name_length, out);
    out.extend_from_slice(name);
    out.push(VALUE);
    varint::put(value_length, out);
    out.extend_from_slice(value);
}

/// Appends a label whose name and value already start with their encoded lengths.
#[inline]
pub(crate) fn push_spelt(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let length = 2 + name.len() + value.len();
    out.reserve(length + 6);
    out.push(LABEL);
    varint::put(length as u64, out);
    out.push(LABEL);
    out.extend_from_slice(name);
    out.push(VALUE);
    out.extend_from_slice(value);
}

/// Strips a label from the start of a key; `None` if the key does not begin with this label. `name` and `value` include
/// their encoded lengths. Labels of 16 KiB or more are not compared and return `None`.
#[inline]
pub(crate) fn strip_spelt<'a>(key: &'a [u8], name: &[u8], value: &[u8]) -> Option<&'a [u8]> {
    let rest = key.strip_prefix(&[LABEL])?;
    let length = 2 + name.len() + value.len();
    let rest = match length {
        0..0x80 => rest.strip_prefix(&[length as u8])?,
        0x80..0x4000 => rest.strip_prefix(&[length as u8 | 0x80, (length >> 7) as u8])?,
        _ => return None,
    };
    let rest = rest.strip_prefix(&[LABEL])?.strip_prefix(name)?;
    rest.strip_prefix(&[VALUE])?.strip_prefix(value)
}

/// Decodes the name and value of a `Label` message. If a field is repeated, the last one counts.
pub(crate) fn label(message: &[u8]) -> Read<(&[u8], &[u8])> {
    let (mut name, mut value) = (&b""[..], &b""[..]);
    let mut fields = Fields::new(message);
    while let Some((number, payload)) = fields.next()? {
        match number {
            1 => name = payload.bytes()?,
            2 => value = payload.bytes()?,
            _ => {}
        }
    }
    Ok((name, value))
}

/// Returns the labels of a key in their order, and an error for each field that is not a valid label.
pub(crate) fn each(key: &[u8]) -> impl Iterator<Item = Read<(&[u8], &[u8])>> {
    let mut fields = Fields::new(key);
    std::iter::from_fn(move || match fields.next() {
        Ok(Some((1, Payload::Bytes(message)))) => Some(label(message)),
        Ok(None) => None,
        Ok(Some(_)) => Some(Err(super::wire::Malformed("not a label"))),
        Err(malformed) => {
            fields = Fields::new(b"");
            Some(Err(malformed))
        }
    })
}

/// Returns the metric name of a key; `None` if no label holds one. Fast path: the first label holds the name, and the
/// lengths take one byte each.
#[inline]
pub(crate) fn metric_name(key: &[u8]) -> Option<&[u8]> {
    if let Some((head, rest)) = key.split_first_chunk::<14>()
        && head[1] < 0x80
        && head[2..13] == *b"\x0a\x08__name__\x12"
        && head[1] == head[13].wrapping_add(12)
    {
        return rest.get(..usize::from(head[13]));
    }
    any_metric_name(key)
}

fn any_metric_name(key: &[u8]) -> Option<&[u8]> {
    each(key)
        .filter_map(Read::ok)
        .find(|(name, _)| *name == METRIC_NAME)
        .map(|(_, value)| value)
}

/// Parses a key into an identity. The metric name becomes the measurement.
pub(crate) fn identity(key: &[u8]) -> Result<Identity, Reason> {
    if key.len() > KEY_BYTES_MAX {
        return Err(too_large("labels", key.len(), KEY_BYTES_MAX));
    }
    let mut measurement = None;
    let mut tags = Vec::new();
    for label in each(key) {
        let (name, value) = label.map_err(|malformed| Reason::from(malformed.0))?;
        let (name, value) = (text("label name", name)?, text("label value", value)?);
        if name.is_empty() {
            return Err("a label has no name".into());
        }
        if name.as_bytes() == METRIC_NAME {
            if measurement.replace(value).is_some() {
                return Err("duplicate label \"__name__\"".into());
            }
            continue;
        }
        if value.is_empty() {
            return Err(format!("label {} has an empty value", quote(name.as_bytes())).into());
        }
        if name == TIME {
            return Err("a label named \"time\" would hide the time of its samples".into());
        }
        tags.push((name, value));
    }
    if tags.len() > TAGS_MAX {
        return Err(format!("too many labels: limit {TAGS_MAX}, actual {}", tags.len()).into());
    }
    let measurement = measurement.filter(|name| !name.is_empty());
    let measurement = measurement.ok_or("the metric has no name (label \"__name__\")")?;
    Identity::new(measurement, tags).map_err(|error| match error {
        IdentityError::DuplicateTag(tag) => format!("duplicate label {}", quote(tag.as_bytes())).into(),
        other => other.to_string().into(),
    })
}

fn text(what: &'static str, bytes: &[u8]) -> Result<String, Reason> {
    if bytes.len() > NAME_BYTES_MAX {
        return Err(too_large(what, bytes.len(), NAME_BYTES_MAX));
    }
    if bytes.contains(&0) {
        return Err(format!("NUL in {what} {}", quote(bytes)).into());
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err(format!("invalid UTF-8 in {what} {}", quote(bytes)).into()),
    }
}

/// Formats the labels for messages, truncated: `{__name__="up", job="node"}`.
pub(crate) fn shown(key: &[u8]) -> String {
    let mut out = String::from("{");
    for (name, value) in each(key).filter_map(Read::ok) {
        if out.len() > SHOWN_BYTES_MAX {
            out.push_str(", …");
            break;
        }
        if out.len() > 1 {
            out.push_str(", ");
        }
        out.push_str(&String::from_utf8_lossy(name));
        out.push('=');
        out.push_str(&quote(value));
    }
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(labels: &[(&str, &str)]) -> Vec<u8> {
        let mut key = Vec::new();
        for (name, value) in labels {
            push(name.as_bytes(), value.as_bytes(), &mut key);
        }
        key
    }

    #[test]
    fn a_label_is_told_from_others_without_spelling_it() {
        let spelt = |text: &str| {
            let mut out = Vec::new();
            varint::put(text.len() as u64, &mut out);
            out.extend_from_slice(text.as_bytes());
            out
        };
        for length in [0, 1, 119, 120, 121, 127, 128, 300, 16_000] {
            let (name, value) = (spelt("host"), spelt(&"x".repeat(length)));
            let mut key = Vec::new();
            push_spelt(&name, &value, &mut key);
            key.push(LABEL);
            assert_eq!(strip_spelt(&key, &name, &value), Some(&[LABEL][..]), "{length}");
            assert_eq!(strip_spelt(&key, &name, &spelt(&"x".repeat(length + 1))), None);
            assert_eq!(strip_spelt(&key, &spelt("rack"), &value), None);
            assert_eq!(strip_spelt(&key[..key.len() - 2], &name, &value), None);
        }
        let long = spelt(&"x".repeat(20_000));
        let mut key = Vec::new();
        push_spelt(&spelt("host"), &long, &mut key);
        assert_eq!(strip_spelt(&key, &spelt("host"), &long), None);
    }

    #[test]
    fn every_text_can_be_a_label() {
        let long = "x".repeat(300);
        let labels = [
            ("__name__", "http.requests – total"),
            ("path", r"C:\"),
            ("long", &long),
            ("text", "two\nlines, a=b"),
        ];
        let identity = identity(&key(&labels)).expect("valid");
        assert_eq!(identity.measurement(), "http.requests – total");
        assert_eq!(identity.tag("path"), Some(r"C:\"));
        assert_eq!(identity.tag("text"), Some("two\nlines, a=b"));
        assert_eq!(identity.tag("long"), Some(&*long));
        assert_eq!(
            metric_name(&key(&labels)),
            Some("http.requests – total".as_bytes())
        );
        assert_eq!(
            shown(&key(&labels[..2])),
            r#"{__name__="http.requests – total", path="C:\\"}"#
        );
    }

    #[test]
    fn wrong_labels_are_refused_with_a_reason() {
        for (labels, reason) in [
            (&[("job", "a")][..], "the metric has no name (label \"__name__\")"),
            (&[("__name__", "")], "the metric has no name (label \"__name__\")"),
            (
                &[("__name__", "m"), ("a", "1"), ("a", "2")],
                "duplicate label \"a\"",
            ),
            (
                &[("__name__", "m"), ("__name__", "n")],
                "duplicate label \"__name__\"",
            ),
            (&[("__name__", "m"), ("a", "")], "label \"a\" has an empty value"),
            (&[("__name__", "m"), ("", "a")], "a label has no name"),
            (&[("__name__", "m"), ("a", "\0")], "NUL in label value \"\\0\""),
            (
                &[("__name__", "m"), ("time", "a")],
                "a label named \"time\" would hide the time of its samples",
            ),
        ] {
            assert_eq!(identity(&key(labels)).expect_err(reason), reason.into());
        }
        let mut bytes = key(&[("__name__", "m")]);
        push(b"a", b"\xff", &mut bytes);
        assert_eq!(
            identity(&bytes).expect_err("not UTF-8"),
            "invalid UTF-8 in label value \"\u{fffd}\"".into()
        );
        assert_eq!(
            identity(&bytes[..bytes.len() - 1]).expect_err("cut"),
            "message cut off".into()
        );
    }
}
