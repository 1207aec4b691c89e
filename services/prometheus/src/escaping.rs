//! Escaping of metric and label names for clients that support only plain names.
//!
//! A metric or label may have any name. A name is plain if it consists of ASCII letters, digits and `_` (for metrics
//! also `:`) and does not begin with a digit. The text format quotes a name that is not plain. Older scrapers cannot
//! parse quoted names; they receive an escaped name, in the escaping that their `Accept` header requests. In the path
//! of a request, a name that is not plain is escaped by [`Escaping::Values`].

use std::borrow::Cow;
use std::fmt::Write as _;

/// Encoding of names that are not plain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Escaping {
    /// Each character that is not plain becomes `_`. The default.
    Underscores,
    /// A dot becomes `_dot_`, and each other character that is not plain becomes `__`. `_` becomes `__`, also in plain
    /// names.
    Dots,
    /// A name that is not plain is written after `U__`. In the name, each character that is not plain becomes its
    /// hexadecimal code, such as `_2e_`, and `_` becomes `__`.
    Values,
    /// Names are quoted and not escaped.
    AllowUtf8,
}

impl Escaping {
    /// Reads the parameter `escaping` of an `Accept` header. The media types are examined in descending order of
    /// quality, up to and including the first one that Prometheus' federation supports. If several examined types have
    /// the parameter, the last one counts. Without the parameter, the default is returned.
    pub(crate) fn from_accept(accept: &str) -> Self {
        let mut kinds: Vec<Accepted<'_>> = accept.split(',').map(Accepted::read).collect();
        kinds.sort_by(|a, b| b.quality.total_cmp(&a.quality));
        let mut asked = Self::Underscores;
        for kind in kinds {
            asked = kind.escaping().unwrap_or(asked);
            if kind.is_written() {
                break;
            }
        }
        asked
    }

    /// Returns the content type of a page in the classic text format.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Underscores => "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
            Self::Dots => "text/plain; version=0.0.4; charset=utf-8; escaping=dots",
            Self::Values => "text/plain; version=0.0.4; charset=utf-8; escaping=values",
            Self::AllowUtf8 => "text/plain; version=0.0.4; charset=utf-8; escaping=allow-utf-8",
        }
    }

    /// Escapes the name of a metric or a label.
    pub(crate) fn escape<'a>(self, name: &'a str, is_plain: fn(&str) -> bool) -> Cow<'a, str> {
        if self == Self::AllowUtf8 || (self != Self::Dots && is_plain(name)) {
            return Cow::Borrowed(name);
        }
        let mut out = String::with_capacity(name.len() + 8);
        if self == Self::Values {
            out.push_str("U__");
        }
        let mut text = [0; 4];
        for (at, character) in name.char_indices() {
            // A digit is allowed everywhere except at the start.
            let is_plain =
                is_plain(character.encode_utf8(&mut text)) || (at > 0 && character.is_ascii_digit());
            match (self, character) {
                (Self::Dots | Self::Values, '_') => out.push_str("__"),
                (_, character) if is_plain => out.push(character),
                (Self::Dots, '.') => out.push_str("_dot_"),
                (Self::Dots, _) => out.push_str("__"),
                (Self::Values, character) => {
                    write!(out, "_{:x}_", u32::from(character)).expect("writing to a string cannot fail");
                }
                (Self::Underscores | Self::AllowUtf8, _) => out.push('_'),
            }
        }
        Cow::Owned(out)
    }
}

/// Media type that a client accepts.
struct Accepted<'a> {
    kind: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    quality: f64,
}

impl<'a> Accepted<'a> {
    fn read(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let quality = parameters.iter().find(|(name, _)| *name == "q");
        let quality = quality.and_then(|(_, value)| value.parse().ok()).unwrap_or(1.0);
        Self {
            kind,
            parameters,
            quality,
        }
    }

    fn parameter(&self, name: &str) -> &'a str {
        let found = self.parameters.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, value)| value)
    }

    fn escaping(&self) -> Option<Escaping> {
        Some(match self.parameter("escaping") {
            "underscores" => Escaping::Underscores,
            "dots" => Escaping::Dots,
            "values" => Escaping::Values,
            "allow-utf-8" => Escaping::AllowUtf8,
            _ => return None,
        })
    }

    /// Returns true if Prometheus' federation supports this type.
    fn is_written(&self) -> bool {
        match self.kind {
            "text/plain" => matches!(self.parameter("version"), "" | "0.0.4"),
            "application/vnd.google.protobuf" => {
                self.parameter("proto") == "io.prometheus.client.MetricFamily"
                    && matches!(self.parameter("encoding"), "delimited" | "text" | "compact-text")
            }
            _ => false,
        }
    }
}

/// Reverses [`Escaping::Values`]: after `U__`, `__` becomes `_`, and `_HEX_` becomes the character with this code.
/// Returns `None` if the name is not in this form.
pub(crate) fn unescape(name: &str) -> Option<String> {
    let mut rest = name.strip_prefix("U__")?;
    let mut plain = String::with_capacity(rest.len());
    while let Some((before, after)) = rest.split_once('_') {
        plain.push_str(before);
        let (code, after) = after.split_once('_')?;
        if code.is_empty() {
            plain.push('_');
        } else if code.len() > 6 || !code.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        } else {
            plain.push(char::from_u32(u32::from_str_radix(code, 16).ok()?)?);
        }
        rest = after;
    }
    plain.push_str(rest);
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unescaped_as_prometheus_escapes_them() {
        for (escaped, plain) in [
            ("U__http_2e_status", Some("http.status")),
            ("U__a__b", Some("a_b")),
            ("U____leading", Some("_leading")),
            ("U__caf_e9_", Some("café")),
            ("U___1f600_x", Some("😀x")),
            ("U__plain", Some("plain")),
            ("region", None),
            ("U__open_2e", None),
            ("U__bad_xyz_", None),
            ("U__long_0000001_", None),
            ("U__surrogate_d800_", None),
        ] {
            assert_eq!(unescape(escaped).as_deref(), plain, "{escaped}");
        }
    }

    fn is_word(name: &str) -> bool {
        let mut bytes = name.bytes();
        let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        bytes.next().is_some_and(is_letter) && bytes.all(|byte| is_letter(byte) || byte.is_ascii_digit())
    }

    #[test]
    fn names_are_escaped_as_prometheus_escapes_them() {
        for (name, underscores, dots, values) in [
            ("up", "up", "up", "up"),
            ("a_b", "a_b", "a__b", "a_b"),
            (
                "http.status",
                "http_status",
                "http_dot_status",
                "U__http_2e_status",
            ),
            ("a_b.c", "a_b_c", "a__b_dot_c", "U__a__b_2e_c"),
            ("1st", "_st", "__st", "U___31_st"),
            ("x1 y", "x1_y", "x1__y", "U__x1_20_y"),
            ("café", "caf_", "caf__", "U__caf_e9_"),
        ] {
            for (escaping, escaped) in [
                (Escaping::Underscores, underscores),
                (Escaping::Dots, dots),
                (Escaping::Values, values),
                (Escaping::AllowUtf8, name),
            ] {
                assert_eq!(escaping.escape(name, is_word), escaped, "{escaping:?}");
            }
            assert_eq!(unescape(values).as_deref().unwrap_or(values), name);
        }
    }

    #[test]
    fn a_scraper_gets_the_names_that_it_requests() {
        for (accept, escaping) in [
            ("", Escaping::Underscores),
            ("text/plain;version=0.0.4;escaping=dots", Escaping::Dots),
            ("text/plain; escaping=allow-utf-8 ; q=0.5", Escaping::AllowUtf8),
            ("text/plain;escaping=yolo", Escaping::Underscores),
            // Headers of Prometheus 3, with and without UTF-8 names.
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                 application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                 text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                Escaping::AllowUtf8,
            ),
            (
                "text/plain;version=0.0.4;q=0.3,application/openmetrics-text;version=1.0.0;escaping=underscores;q=0.6",
                Escaping::Underscores,
            ),
            // Media types after the used one are ignored.
            (
                "text/plain;escaping=values,text/html;escaping=dots;q=0.9",
                Escaping::Values,
            ),
        ] {
            assert_eq!(Escaping::from_accept(accept), escaping, "{accept}");
        }
    }
}
