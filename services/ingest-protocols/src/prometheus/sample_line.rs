//! Parser of a sample line: `name{label="value",…} value [time] [# {exemplar labels} value [time]]`.
//!
//! The name may also be a quoted text inside the braces. Quoted names, and quoted label names, can be any text. Both
//! text formats are parsed by the same rules; white space is accepted as freely as in the classic format.

use std::borrow::Cow;

use crate::reject::{Reason, quote};

/// Unescaped text of the line.
type Text<'a> = Cow<'a, [u8]>;

/// Parsed sample line.
#[derive(Debug, Default)]
pub(crate) struct SampleLine<'a> {
    pub(crate) name: Text<'a>,
    pub(crate) labels: Vec<(Text<'a>, Text<'a>)>,
    pub(crate) value: f64,
    /// Text of the timestamp, if there is one.
    pub(crate) time: Option<&'a [u8]>,
    pub(crate) exemplar: Option<ExemplarPart<'a>>,
}

/// Exemplar of a sample.
#[derive(Debug, Default)]
pub(crate) struct ExemplarPart<'a> {
    pub(crate) labels: Vec<(Text<'a>, Text<'a>)>,
    pub(crate) value: f64,
    pub(crate) time: Option<&'a [u8]>,
}

/// NaN that Prometheus stores for the text `NaN`.
const NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0001);

impl<'a> SampleLine<'a> {
    /// Parses a line that is neither empty nor a comment. If `with_exemplar` is false, text after the timestamp is an
    /// error: only OpenMetrics has exemplars.
    pub(crate) fn read(line: &'a [u8], with_exemplar: bool) -> Result<Self, Reason> {
        let mut cursor = Cursor { rest: line };
        let mut sample = Self::default();
        cursor.skip_space();
        sample.name = Cow::Borrowed(cursor.take_while(is_name_byte(b':')));
        cursor.skip_space();
        if cursor.take(b'{') {
            read_labels(&mut cursor, Some(&mut sample.name), &mut sample.labels)?;
        }
        if sample.name.is_empty() {
            return Err(cursor.expected("a metric name"));
        }
        if sample.name[0].is_ascii_digit()
            && matches!(sample.name, Cow::Borrowed(_))
            && line.first() != Some(&b'{')
        {
            return Err(format!("metric name {} begins with a digit", quote(&sample.name)).into());
        }
        sample.value = cursor.number("a value")?;
        sample.time = cursor.time();
        cursor.skip_space();
        if with_exemplar && cursor.take(b'#') {
            sample.exemplar = Some(cursor.exemplar()?);
        }
        cursor.skip_space();
        match cursor.rest {
            [] => Ok(sample),
            _ => Err(cursor.expected("the end of the line")),
        }
    }
}

/// Parses labels up to the closing brace. If `name` is given, a quoted text without a value is the metric name.
fn read_labels<'a>(
    cursor: &mut Cursor<'a>,
    mut name: Option<&mut Text<'a>>,
    labels: &mut Vec<(Text<'a>, Text<'a>)>,
) -> Result<(), Reason> {
    loop {
        cursor.skip_space();
        if cursor.take(b'}') {
            return Ok(());
        }
        let is_quoted = cursor.rest.first() == Some(&b'"');
        let key = match is_quoted {
            true => cursor.quoted()?,
            false => Cow::Borrowed(cursor.take_while(is_name_byte(b'_'))),
        };
        if key.is_empty() || (!is_quoted && key[0].is_ascii_digit()) {
            return Err(cursor.expected("a label name"));
        }
        cursor.skip_space();
        match (&mut name, cursor.rest.first()) {
            (Some(name), Some(b',' | b'}')) if is_quoted => {
                if !name.is_empty() {
                    return Err("the metric has two names".into());
                }
                **name = key;
            }
            _ => {
                if !cursor.take(b'=') {
                    return Err(cursor.expected("\"=\" after a label name"));
                }
                cursor.skip_space();
                if cursor.rest.first() != Some(&b'"') {
                    return Err(cursor.expected("a label value in quotes"));
                }
                labels.push((key, cursor.quoted()?));
            }
        }
        cursor.skip_space();
        cursor.take(b',');
    }
}

/// Returns a predicate for the bytes of unquoted names: letters, digits, `_` and `extra`.
const fn is_name_byte(extra: u8) -> impl Fn(u8) -> bool {
    move |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == extra
}

/// Rest of a line.
struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn take(&mut self, byte: u8) -> bool {
        match self.rest.split_first() {
            Some((first, rest)) if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn take_while(&mut self, accept: impl Fn(u8) -> bool) -> &'a [u8] {
        let length = self.rest.iter().take_while(|byte| accept(**byte)).count();
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    /// Parses a quoted text with the escapes `\\`, `\"` and `\n`.
    fn quoted(&mut self) -> Result<Text<'a>, Reason> {
        let inner = &self.rest[1..];
        let mut end = 0;
        loop {
            match memchr::memchr2(b'"', b'\\', &inner[end..]) {
                None => return Err("a quote is not closed".into()),
                Some(at) if inner[end + at] == b'"' => {
                    end += at;
                    break;
                }
                Some(at) => end = (end + at + 2).min(inner.len()),
            }
        }
        self.rest = &inner[end + 1..];
        Ok(unescape(&inner[..end]))
    }

    fn word(&mut self) -> &'a [u8] {
        self.skip_space();
        self.take_while(|byte| !byte.is_ascii_whitespace())
    }

    fn number(&mut self, what: &str) -> Result<f64, Reason> {
        self.skip_space();
        if self.rest.is_empty() {
            return Err(format!("expected {what}, found the end of the line").into());
        }
        let word = self.word();
        match fast_float2::parse::<f64, _>(word) {
            Ok(value) if value.is_nan() => Ok(NAN),
            Ok(value) => Ok(value),
            Err(_) => Err(format!("{} is not a number", quote(word)).into()),
        }
    }

    fn time(&mut self) -> Option<&'a [u8]> {
        self.skip_space();
        match self.rest.first() {
            None | Some(b'#') => None,
            Some(_) => Some(self.word()),
        }
    }

    fn exemplar(&mut self) -> Result<ExemplarPart<'a>, Reason> {
        let mut exemplar = ExemplarPart::default();
        self.skip_space();
        if !self.take(b'{') {
            return Err(self.expected("the labels of an exemplar"));
        }
        read_labels(self, None, &mut exemplar.labels)?;
        exemplar.value = self.number("the value of an exemplar")?;
        exemplar.time = self.time();
        Ok(exemplar)
    }

    fn expected(&self, what: &str) -> Reason {
        match self.rest {
            [] => format!("expected {what}, found the end of the line").into(),
            rest => format!("expected {what}, found {}", quote(&rest[..rest.len().min(16)])).into(),
        }
    }
}

/// Replaces the escapes `\\`, `\"` and `\n`. A backslash before any other character is literal.
pub(crate) fn unescape(raw: &[u8]) -> Text<'_> {
    if memchr::memchr(b'\\', raw).is_none() {
        return Cow::Borrowed(raw);
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut bytes = raw.iter();
    while let Some(&byte) = bytes.next() {
        let escaped = match (byte, bytes.as_slice().first()) {
            (b'\\', Some(b'n')) => b'\n',
            (b'\\', Some(&escaped @ (b'\\' | b'"'))) => escaped,
            _ => {
                out.push(byte);
                continue;
            }
        };
        out.push(escaped);
        bytes.next();
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> String {
        match SampleLine::read(line.as_bytes(), true) {
            Ok(sample) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let labels = |labels: &[(Text<'_>, Text<'_>)]| -> Vec<String> {
                    labels
                        .iter()
                        .map(|(name, value)| format!("{}={}", text(name), text(value)))
                        .collect()
                };
                let time =
                    |time: Option<&[u8]>| time.map_or_else(String::new, |time| format!(" @{}", text(time)));
                let exemplar = sample.exemplar.map_or_else(String::new, |exemplar| {
                    format!(
                        " # {:?} {}{}",
                        labels(&exemplar.labels),
                        exemplar.value,
                        time(exemplar.time)
                    )
                });
                format!(
                    "{} {:?} {}{}{exemplar}",
                    text(&sample.name),
                    labels(&sample.labels),
                    sample.value,
                    time(sample.time)
                )
            }
            Err(reason) => reason.to_string(),
        }
    }

    #[test]
    fn lines_are_read_as_freely_as_prometheus_reads_them() {
        for (line, expected) in [
            ("up 1", "up [] 1"),
            ("up\t 1  1700000000000 ", "up [] 1 @1700000000000"),
            (
                r#"go_gc { quantile = "2.0" a = "b", } 8.3835e-05"#,
                r#"go_gc ["quantile=2.0", "a=b"] 0.000083835"#,
            ),
            (
                "some:aggregate:rate5m{a_b=\"c\"} 1",
                "some:aggregate:rate5m [\"a_b=c\"] 1",
            ),
            (
                r#"m{label="\"bar\" \\ \n \x"} +Inf"#,
                "m [\"label=\\\"bar\\\" \\\\ \\n \\\\x\"] inf",
            ),
            (r#"{"go.gc", quantile="0.9"} 99"#, r#"go.gc ["quantile=0.9"] 99"#),
            (r#"{ "a b",} NaN 5"#, "a b [] NaN @5"),
            (r#"m{"any label"="x"} 1"#, r#"m ["any label=x"] 1"#),
            (r#"{"1"} 1"#, "1 [] 1"),
            ("m{} 1", "m [] 1"),
            (
                r#"foo_bucket{le="0.1"} 8 # {trace_id="abc"} 0.05 1520879607.789"#,
                r#"foo_bucket ["le=0.1"] 8 # ["trace_id=abc"] 0.05 @1520879607.789"#,
            ),
            (
                "foo_total 17.0 1520879607.789 # {} 1",
                "foo_total [] 17 @1520879607.789 # [] 1",
            ),
        ] {
            assert_eq!(shown(line), expected, "{line}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, reason) in [
            ("a", "expected a value, found the end of the line"),
            ("a{b='c'} 1", "expected a label value in quotes, found \"'c'} 1\""),
            (
                "a{b=",
                "expected a label value in quotes, found the end of the line",
            ),
            ("a{b=\"c", "a quote is not closed"),
            ("a{b=\"c\\", "a quote is not closed"),
            (
                "a{\u{1}=\"foo\"} 1",
                "expected a label name, found \"\\u{1}=\\\"foo\\\"} 1\"",
            ),
            (
                r#"{"a", "b = "c"}"#,
                "expected \"=\" after a label name, found \"c\\\"}\"",
            ),
            ("a true", "\"true\" is not a number"),
            ("a 1_2", "\"1_2\" is not a number"),
            ("a 0x1p-3", "\"0x1p-3\" is not a number"),
            ("empty{=\"\"} 0", "expected a label name, found \"=\\\"\\\"} 0\""),
            ("{A}0", "expected \"=\" after a label name, found \"}0\""),
            (r#"{a="ok"} 1"#, "expected a metric name, found \" 1\""),
            (r#"a{"b"} 1"#, "the metric has two names"),
            ("1a 1", "metric name \"1a\" begins with a digit"),
            ("a 1 2 3", "expected the end of the line, found \"3\""),
            ("a 1 # 5", "expected the labels of an exemplar, found \"5\""),
            ("a.b 1", "\".b\" is not a number"),
        ] {
            assert_eq!(shown(line), reason, "{line}");
        }
        assert!(SampleLine::read(b"a 1 # {} 1", false).is_err());
    }
}
