//! Text of an attribute value, as the Go library of OpenTelemetry formats it.
//!
//! ```text
//! AnyValue { 1: string | 2: bool | 3: int64 | 4: double | 5: ArrayValue { 1: AnyValue* }
//!          | 6: KeyValueList { 1: KeyValue* } | 7: bytes }
//! ```
//!
//! Numbers are decimal, bytes are base64, and lists and maps are JSON with sorted keys. The text becomes the value of a
//! label, so its size is limited, and so is the nesting of lists and maps.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::super::wire::{Fields, Payload, Read};
use super::attributes::key_value;
use crate::reject::{Reason, quote, too_large};
use crate::series_key::NAME_BYTES_MAX;

/// Maximum nesting of lists and maps; a value with deeper nesting is rejected.
const DEPTH_MAX: usize = 16;

/// Tag of a string value.
const STRING: u8 = 0x0a;

/// Returns a string value with its encoded length in front. Returns `None` for a value of another type, and for a
/// message that contains more than this one field.
#[inline]
pub(super) fn string(value: &[u8]) -> Option<&[u8]> {
    let (tag, spelt) = value.split_first()?;
    let mut fields = Fields::new(spelt);
    let length = fields.varint().ok()?;
    (*tag == STRING && fields.rest().len() as u64 == length).then_some(spelt)
}

/// Appends the text of a value. The text of a value of unknown type is empty. A value that is too large, nested too
/// deep or not UTF-8 has no text; the inner result is then the reason.
///
/// A plain string is not checked to be UTF-8 here, but when its series is registered.
pub(super) fn push_text(value: &[u8], out: &mut Vec<u8>) -> Read<Result<(), Reason>> {
    let start = out.len();
    Ok(match kind(value)? {
        Some((1, Payload::Bytes(text))) => {
            out.extend_from_slice(text);
            Ok(())
        }
        Some((7, Payload::Bytes(bytes))) => push_base64(bytes, out),
        Some((4, Payload::Word64(bits))) => {
            push_double(f64::from_bits(bits), out);
            Ok(())
        }
        Some((5 | 6, _)) => match push_json(value, 0, out)? {
            // JSON cannot represent NaN and infinities. Go's library then returns an empty text.
            Err(Unfit::NotFinite) => {
                out.truncate(start);
                Ok(())
            }
            Err(Unfit::Refused(reason)) => Err(reason),
            Ok(()) => Ok(()),
        },
        _ => match push_json(value, 0, out)? {
            Err(Unfit::Refused(reason)) => Err(reason),
            Err(Unfit::NotFinite) | Ok(()) => Ok(()),
        },
    }
    .and_then(|()| match out.len() - start {
        length if length > NAME_BYTES_MAX => Err(too_large("attribute value", length, NAME_BYTES_MAX)),
        _ => Ok(()),
    }))
}

/// Returns the last known field of a value: its number is the type, its payload the content. `None` without a known
/// field.
fn kind(value: &[u8]) -> Read<Option<(u32, Payload<'_>)>> {
    let mut kind = None;
    let mut fields = Fields::new(value);
    while let Some(field) = fields.next()? {
        if (1..=7).contains(&field.0) {
            kind = Some(field);
        }
    }
    Ok(kind)
}

/// Reason why a value has no JSON form.
enum Unfit {
    /// The value contains NaN or an infinity.
    NotFinite,
    Refused(Reason),
}

/// Appends a value as JSON. A missing value is `null` within a list or map, and empty otherwise.
fn push_json(value: &[u8], depth: usize, out: &mut Vec<u8>) -> Read<Result<(), Unfit>> {
    if depth > DEPTH_MAX {
        let reason = format!("an attribute value is nested more than {DEPTH_MAX} levels deep");
        return Ok(Err(Unfit::Refused(reason.into())));
    }
    if out.len() > 2 * NAME_BYTES_MAX {
        let reason = too_large("attribute value", out.len(), NAME_BYTES_MAX);
        return Ok(Err(Unfit::Refused(reason)));
    }
    match kind(value)? {
        Some((1, payload)) => return Ok(push_string(payload.bytes()?, out)),
        Some((2, payload)) => out.extend_from_slice(match payload.varint()? {
            0 => b"false",
            _ => b"true",
        }),
        Some((3, payload)) => out.extend_from_slice(payload.int64()?.to_string().as_bytes()),
        Some((4, payload)) => {
            let double = payload.double()?;
            if !double.is_finite() {
                return Ok(Err(Unfit::NotFinite));
            }
            push_double(double, out);
        }
        Some((5, payload)) => return push_list(payload.bytes()?, depth, out),
        Some((6, payload)) => return push_map(payload.bytes()?, depth, out),
        Some((_, payload)) => {
            out.push(b'"');
            if let Err(reason) = push_base64(payload.bytes()?, out) {
                return Ok(Err(Unfit::Refused(reason)));
            }
            out.push(b'"');
        }
        None if depth > 0 => out.extend_from_slice(b"null"),
        None => {}
    }
    Ok(Ok(()))
}

fn push_list(list: &[u8], depth: usize, out: &mut Vec<u8>) -> Read<Result<(), Unfit>> {
    out.push(b'[');
    let mut is_first = true;
    let mut fields = Fields::new(list);
    while let Some((number, payload)) = fields.next()? {
        if number != 1 {
            continue;
        }
        if !is_first {
            out.push(b',');
        }
        is_first = false;
        if let Err(unfit) = push_json(payload.bytes()?, depth + 1, out)? {
            return Ok(Err(unfit));
        }
    }
    out.push(b']');
    Ok(Ok(()))
}

/// Appends a map with sorted keys. The last value of a key counts.
fn push_map(map: &[u8], depth: usize, out: &mut Vec<u8>) -> Read<Result<(), Unfit>> {
    let mut members = Vec::new();
    let mut fields = Fields::new(map);
    while let Some((number, payload)) = fields.next()? {
        if number == 1 {
            let member = key_value(payload.bytes()?)?;
            members.push((member.key_text(), member.value));
        }
    }
    members.sort_by_key(|(key, _)| *key);
    out.push(b'{');
    let mut is_first = true;
    for (at, (key, value)) in members.iter().enumerate() {
        if members.get(at + 1).is_some_and(|(next, _)| next == key) {
            continue;
        }
        if !is_first {
            out.push(b',');
        }
        is_first = false;
        if let Err(unfit) = push_string(key, out) {
            return Ok(Err(unfit));
        }
        out.push(b':');
        if let Err(unfit) = push_json(value, depth + 1, out)? {
            return Ok(Err(unfit));
        }
    }
    out.push(b'}');
    Ok(Ok(()))
}

/// Appends a JSON string. Like Go, escapes the characters that have a meaning in HTML.
fn push_string(text: &[u8], out: &mut Vec<u8>) -> Result<(), Unfit> {
    let Ok(text) = std::str::from_utf8(text) else {
        return Err(Unfit::Refused(
            format!("invalid UTF-8 in attribute value {}", quote(text)).into(),
        ));
    };
    if text.len() > NAME_BYTES_MAX {
        return Err(Unfit::Refused(too_large(
            "attribute value",
            text.len(),
            NAME_BYTES_MAX,
        )));
    }
    let json = serde_json::to_string(text).expect("a text always serialises");
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.extend_from_slice(format!("\\u{:04x}", u32::from(c)).as_bytes());
            }
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Ok(())
}

fn push_base64(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Reason> {
    if bytes.len() > NAME_BYTES_MAX {
        return Err(too_large("attribute value", bytes.len(), NAME_BYTES_MAX));
    }
    out.extend_from_slice(STANDARD.encode(bytes).as_bytes());
    Ok(())
}

/// Appends a double as JavaScript and Go's JSON format it: with an exponent below 1e-6 and from 1e21 on. NaN and
/// infinities become the text of Go's error.
fn push_double(double: f64, out: &mut Vec<u8>) {
    let magnitude = double.abs();
    let text = if double.is_nan() {
        "json: unsupported value: NaN".to_owned()
    } else if double.is_infinite() {
        let sign = if double > 0.0 { '+' } else { '-' };
        format!("json: unsupported value: {sign}Inf")
    } else if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        let text = format!("{double:e}");
        match text.contains("e-") {
            true => text,
            false => text.replace('e', "e+"),
        }
    } else {
        double.to_string()
    };
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use tideline_wire::protobuf::PutFields;

    use super::*;

    fn text(value: &[u8]) -> Result<String, String> {
        let mut out = Vec::new();
        let pushed = push_text(value, &mut out).expect("a message");
        let text = || String::from_utf8(out).expect("text");
        pushed.map(|()| text()).map_err(|reason| reason.to_string())
    }

    fn of_string(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_bytes(1, text.as_bytes());
        out
    }

    fn list(values: &[Vec<u8>]) -> Vec<u8> {
        let (mut inner, mut out) = (Vec::new(), Vec::new());
        values.iter().for_each(|value| inner.put_bytes(1, value));
        out.put_bytes(5, &inner);
        out
    }

    fn map(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let (mut inner, mut out) = (Vec::new(), Vec::new());
        for (key, value) in members {
            let mut member = Vec::new();
            member.put_bytes(1, key.as_bytes());
            member.put_bytes(2, value);
            inner.put_bytes(1, &member);
        }
        out.put_bytes(6, &inner);
        out
    }

    fn double(value: f64) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_fixed64(4, value.to_bits());
        out
    }

    #[test]
    fn each_type_has_a_text() {
        let bytes = [&[0x3a, 3][..], b"\0\xffa"].concat();
        let negative = [&[0x18][..], &[0xff; 9], &[1]].concat();
        for (value, expected) in [
            (of_string("a\"b"), "a\"b"),
            (of_string(""), ""),
            (Vec::new(), ""),
            (vec![0x10, 1], "true"),
            (vec![0x10, 0], "false"),
            (vec![0x18, 42], "42"),
            (negative, "-1"),
            (double(1.0), "1"),
            (double(0.1), "0.1"),
            (double(1e21), "1e+21"),
            (double(1.5e-7), "1.5e-7"),
            (double(123_456_789.0), "123456789"),
            (double(f64::NEG_INFINITY), "json: unsupported value: -Inf"),
            (bytes, "AP9h"),
            (
                list(&[of_string("<a>"), vec![0x18, 1], Vec::new()]),
                "[\"\\u003ca\\u003e\",1,null]",
            ),
            (
                map(&[("b", list(&[])), ("a", vec![0x10, 1]), ("b", double(2.5))]),
                "{\"a\":true,\"b\":2.5}",
            ),
            (list(&[double(f64::NAN)]), ""),
            // The last member of a `oneof` counts.
            ([of_string("first"), vec![0x18, 2]].concat(), "2"),
        ] {
            assert_eq!(text(&value).as_deref(), Ok(expected), "{value:?}");
        }
        assert_eq!(string(&of_string("ab")), Some(&b"\x02ab"[..]));
        assert_eq!(string(&[of_string("ab"), vec![0x18, 2]].concat()), None);
        assert_eq!(string(&[0x18, 2]), None);
    }

    #[test]
    fn deep_and_large_values_are_refused() {
        let nested = |depth: usize| (0..depth).fold(of_string("x"), |value, _| list(&[value]));
        assert!(text(&nested(DEPTH_MAX)).is_ok());
        let refused = text(&nested(DEPTH_MAX + 1)).expect_err("too deep");
        assert!(refused.contains("16 levels"), "{refused}");
        assert!(text(&nested(10_000)).is_err());
        assert!(text(&of_string(&"x".repeat(NAME_BYTES_MAX))).is_ok());
        assert!(text(&of_string(&"x".repeat(NAME_BYTES_MAX + 1))).is_err());
        assert!(text(&list(&vec![of_string(&"x".repeat(1_000)); 10_000])).is_err());
        assert!(text(&list(&[of_string("x"), vec![0x0a, 1, 0xff]])).is_err());
        assert!(push_text(&[0x0a, 9], &mut Vec::new()).is_err());
    }
}
