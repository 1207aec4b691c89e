//! Decoder of the text exposition format, classic and OpenMetrics.
//!
//! Each line is decoded separately: a bad line is rejected with its number, and the valid lines are kept. In
//! OpenMetrics, timestamps are in seconds, exemplars are kept, and `_created` lines become the start timestamps of the
//! samples of their metric.

use std::borrow::Cow;

use hashbrown::HashMap;
use tideline_model::SeriesResolver;

use super::decoded::DecodedSamples;
use super::exemplar::ExemplarText;
use super::import::{ImportOptions, spell_bound, spell_key};
use super::labels::{self, METRIC_NAME};
use super::metadata::{KINDS, kind_of_word};
use super::sample_line::{ExemplarPart, SampleLine, unescape};
use super::samples::{SampleWriter, Series};
use crate::options::{DecodeOptions, or_unknown};
use crate::reject::{Reason, quote, too_large};

/// Text format of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    /// Version 0.0.4: timestamps are in milliseconds.
    Classic,
    /// OpenMetrics: timestamps are in seconds, and the last line is `# EOF`.
    OpenMetrics,
}

/// Decodes a body of text.
///
/// A bad line becomes a reject with its number and its first bytes. An OpenMetrics body without a final `# EOF` was
/// truncated: it gets one more reject, and the received samples are kept.
pub fn decode_text(
    body: &[u8],
    format: TextFormat,
    import: &ImportOptions,
    options: &DecodeOptions,
    resolver: &mut impl SeriesResolver,
) -> DecodedSamples {
    let mut reader = TextReader {
        format,
        import,
        default_millis: import.default_millis(options),
        writer: SampleWriter::new(body.len().saturating_mul(BYTES_FOR_TEXT), 0, options, resolver),
        family: Family::default(),
        created: HashMap::new(),
        key: Vec::new(),
        exemplar: ExemplarText::default(),
    };
    if format == TextFormat::OpenMetrics && memchr::memmem::find(body, CREATED.as_bytes()).is_some() {
        reader.find_created(body, options.limits.line_bytes);
    }
    reader.read(body, options.limits.line_bytes);
    import.write_extra_samples(reader.default_millis, &mut reader.writer, &mut reader.key);
    reader.writer.finish()
}

const CREATED: &str = "_created";
/// Maximum number of metrics of one body whose start timestamps are kept; each takes at least a hundred bytes of
/// memory.
const CREATED_MAX: usize = 1 << 20;
/// Factor from text bytes to the body size that [`SampleWriter`] expects. A sample takes at least four bytes of text;
/// the writer allows one row per eight bytes.
const BYTES_FOR_TEXT: usize = 2;

/// Returns the non-empty lines of a body, trimmed, with their numbers.
fn lines(body: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let lines = body.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines
        .zip(1..)
        .map(|(line, number)| (number, line))
        .filter(|(_, line)| !line.is_empty())
}

struct TextReader<'b, 'r, R> {
    format: TextFormat,
    import: &'b ImportOptions,
    default_millis: Option<i64>,
    writer: SampleWriter<'r, R>,
    /// Family of the most recent comments.
    family: Family,
    /// Start timestamps in milliseconds by metric key, see [`metric_key`].
    created: HashMap<Vec<u8>, i64>,
    key: Vec<u8>,
    exemplar: ExemplarText,
}

impl<R: SeriesResolver> TextReader<'_, '_, R> {
    fn read(&mut self, body: &[u8], line_bytes_max: usize) {
        let mut last = 0;
        let mut has_ended = false;
        let mut lines = lines(body);
        while let Some((number, line)) = lines.next() {
            last = number;
            let read = if has_ended {
                Err("text after # EOF".into())
            } else if line.len() > line_bytes_max {
                Err(too_large("line", line.len(), line_bytes_max))
            } else if line[0] == b'#' {
                has_ended = self.format == TextFormat::OpenMetrics && line == b"# EOF";
                self.comment(line)
            } else {
                self.sample(line)
            };
            if let Err(reason) = read
                && !self.writer.reject_line(number, reason, line)
            {
                let unread = lines.count();
                if unread > 0 {
                    self.writer.reject_unread(unread);
                }
                return;
            }
        }
        if self.format == TextFormat::OpenMetrics && !has_ended {
            let reason = "the text does not end with # EOF: it was cut off";
            self.writer.reject_line(last, reason.into(), b"");
        }
    }

    fn comment(&mut self, line: &[u8]) -> Result<(), Reason> {
        let Some(comment) = Comment::read(line, self.format)? else {
            return Ok(());
        };
        self.family.turn_to(&comment);
        let name = &*comment.name;
        match comment.said {
            Said::Help(help) => {
                let help = unescape(help.as_bytes());
                self.writer
                    .metadata
                    .set_help(name, &String::from_utf8_lossy(&help));
            }
            Said::Unit(unit) => self.writer.metadata.set_unit(name, unit),
            Said::Kind(word) => {
                let kind = kind_of_word(word);
                let kind =
                    kind.ok_or_else(|| Reason::from(format!("unknown type {}", quote(word.as_bytes()))))?;
                self.writer.metadata.set_kind(name, kind);
            }
        }
        Ok(())
    }

    fn sample(&mut self, line: &[u8]) -> Result<(), Reason> {
        let sample = SampleLine::read(line, self.format == TextFormat::OpenMetrics)?;
        if self.is_created(&sample) {
            return Ok(());
        }
        let millis = match sample.time {
            None => or_unknown(self.default_millis)?,
            Some(text) => self.time(text)?,
        };
        let start = self.start_of(&sample);
        self.spell(&sample)?;
        let series = self.writer.series(&self.key)?;
        self.writer.number(series, millis, sample.value, start)?;
        match &sample.exemplar {
            None => Ok(()),
            Some(exemplar) => self.exemplar(series, millis, exemplar),
        }
    }

    fn exemplar(&mut self, series: Series, millis: i64, exemplar: &ExemplarPart<'_>) -> Result<(), Reason> {
        let millis = exemplar.time.map_or(Ok(millis), |text| self.time(text))?;
        self.exemplar.start();
        for (name, value) in &exemplar.labels {
            self.exemplar.label(name, value);
        }
        let text = self.exemplar.finish(exemplar.value)?;
        self.writer.exemplar(series, millis, text)
    }

    /// Writes the key of a sample's series to `self.key`.
    fn spell(&mut self, sample: &SampleLine<'_>) -> Result<(), Reason> {
        let kind = match self.family.has(&sample.name) {
            true => self.family.kind,
            false => KINDS[0],
        };
        let own = sample
            .labels
            .iter()
            .map(|(name, value)| (&**name, normal_value(kind, name, value)));
        let name = std::iter::once((METRIC_NAME, Cow::Borrowed(&*sample.name)));
        spell_key(name.chain(own), &self.import.extra_labels, &mut self.key)
    }

    /// Parses a timestamp; returns milliseconds.
    fn time(&self, text: &[u8]) -> Result<i64, Reason> {
        match self.format {
            TextFormat::Classic => {
                let text = std::str::from_utf8(text).ok();
                text.and_then(|text| text.parse().ok())
            }
            TextFormat::OpenMetrics => {
                let seconds = fast_float2::parse::<f64, _>(text).ok();
                seconds.filter(|seconds| seconds.is_finite()).map(to_millis)
            }
        }
        .ok_or_else(|| format!("time {} is not a number", quote(text)).into())
    }

    /// Returns true if the line only holds the start timestamp of its metric.
    fn is_created(&self, sample: &SampleLine<'_>) -> bool {
        let of_family = || self.family.part(&sample.name) == Some(CREATED.as_bytes());
        self.format == TextFormat::OpenMetrics && self.family.has_start() && of_family()
    }

    /// Reads all `_created` lines in a first pass, because they come after the samples of their metric.
    fn find_created(&mut self, body: &[u8], line_bytes_max: usize) {
        for (_, line) in lines(body).filter(|(_, line)| line.len() <= line_bytes_max) {
            if line[0] == b'#' {
                if let Ok(Some(comment)) = Comment::read(line, self.format) {
                    self.family.turn_to(&comment);
                }
                continue;
            }
            let is_candidate =
                self.family.has_start() && memchr::memmem::find(line, CREATED.as_bytes()).is_some();
            if !is_candidate {
                continue;
            }
            if let Ok(sample) = SampleLine::read(line, true)
                && self.is_created(&sample)
                && sample.value.is_finite()
                && self.created.len() < CREATED_MAX
            {
                metric_key(self.family.name.as_bytes(), &sample, &mut self.key);
                self.created.insert(self.key.clone(), to_millis(sample.value));
            }
        }
        self.family = Family::default();
    }

    /// Returns the start timestamp of a sample's metric in milliseconds, if the body has one.
    fn start_of(&mut self, sample: &SampleLine<'_>) -> Option<i64> {
        if self.created.is_empty() || !self.family.has_start() || !self.family.has(&sample.name) {
            return None;
        }
        metric_key(self.family.name.as_bytes(), sample, &mut self.key);
        self.created.get(&self.key).copied()
    }
}

/// Comment with metadata of a metric family.
struct Comment<'a> {
    name: Cow<'a, str>,
    said: Said<'a>,
}

enum Said<'a> {
    Help(&'a str),
    /// Metric type, as written in the comment.
    Kind(&'a str),
    Unit(&'a str),
}

impl<'a> Comment<'a> {
    /// Parses `# HELP name text`, `# TYPE name type` and, in OpenMetrics, `# UNIT name unit`. Returns `None` for any
    /// other comment. Fails if the comment is not UTF-8 or has no valid name.
    fn read(line: &'a [u8], format: TextFormat) -> Result<Option<Self>, Reason> {
        let Ok(text) = std::str::from_utf8(&line[1..]) else {
            return Err("invalid UTF-8 in a comment".into());
        };
        let Some((keyword, rest)) = text.trim_start().split_once([' ', '\t']) else {
            return Ok(None);
        };
        let said = match keyword {
            "HELP" => Said::Help,
            "TYPE" => Said::Kind,
            "UNIT" if format == TextFormat::OpenMetrics => Said::Unit,
            _ => return Ok(None),
        };
        let (name, rest) = family_name(rest.trim_start())?;
        let said = said(rest);
        Ok(Some(Self { name, said }))
    }
}

/// Family of the most recent comments. Its type applies only to samples of the family.
struct Family {
    name: String,
    kind: &'static str,
}

impl Default for Family {
    fn default() -> Self {
        Self {
            name: String::new(),
            kind: KINDS[0],
        }
    }
}

impl Family {
    /// Updates the family from a comment. If the comment starts another family, the type is reset to unknown.
    fn turn_to(&mut self, comment: &Comment<'_>) {
        if self.name != *comment.name {
            self.kind = KINDS[0];
            (*comment.name).clone_into(&mut self.name);
        }
        if let Said::Kind(word) = comment.said {
            self.kind = kind_of_word(word).unwrap_or(KINDS[0]);
        }
    }

    /// Returns true if metrics of this type can have a start timestamp.
    fn has_start(&self) -> bool {
        matches!(self.kind, "counter" | "histogram" | "summary")
    }

    /// Returns the suffix of a sample's name after the family name; `None` if the name does not begin with the family
    /// name.
    fn part<'a>(&self, sample: &'a [u8]) -> Option<&'a [u8]> {
        match self.name.as_str() {
            "" => None,
            name => sample.strip_prefix(name.as_bytes()),
        }
    }

    /// Returns true if a sample name belongs to the family.
    fn has(&self, sample: &[u8]) -> bool {
        let parts: &[&[u8]] = match self.kind {
            "counter" => &[b"", b"_total"],
            "histogram" => &[b"", b"_bucket", b"_count", b"_sum"],
            "summary" => &[b"", b"_count", b"_sum"],
            _ => &[b""],
        };
        self.part(sample).is_some_and(|part| parts.contains(&part))
    }
}

/// Writes the key of a metric: the family and the labels, without `le` and `quantile`, which distinguish the parts of
/// one metric.
fn metric_key(family: &[u8], sample: &SampleLine<'_>, key: &mut Vec<u8>) {
    key.clear();
    labels::push(b"", family, key);
    let own = sample
        .labels
        .iter()
        .filter(|(name, _)| &**name != b"le" && &**name != b"quantile");
    own.for_each(|(name, value)| labels::push(name, value, key));
}

/// Returns a label value. The bounds of buckets and the quantiles are reformatted as Prometheus formats them.
fn normal_value<'a>(kind: &str, name: &[u8], value: &'a [u8]) -> Cow<'a, [u8]> {
    let is_bound = matches!((kind, name), ("histogram", b"le") | ("summary", b"quantile"));
    let bound = is_bound
        .then(|| fast_float2::parse::<f64, _>(value).ok())
        .flatten();
    let Some(bound) = bound else {
        return Cow::Borrowed(value);
    };
    let mut text = String::new();
    spell_bound(bound, &mut text);
    Cow::Owned(text.into_bytes())
}

fn to_millis(seconds: f64) -> i64 {
    (seconds * 1_000.0) as i64
}

/// Parses the family name, quoted or not; returns it with the rest of the text.
fn family_name(text: &str) -> Result<(Cow<'_, str>, &str), Reason> {
    if let Some(inner) = text.strip_prefix('"') {
        let mut from = 0;
        while let Some(at) = inner[from..].find(['"', '\\']) {
            let at = from + at;
            if inner.as_bytes()[at] == b'"' {
                let name = String::from_utf8_lossy(&unescape(&inner.as_bytes()[..at])).into_owned();
                return Ok((name.into(), after_space(&inner[at + 1..])));
            }
            from = inner
                .len()
                .min(at + 1 + inner[at + 1..].chars().next().map_or(0, char::len_utf8));
        }
        return Err("a quote is not closed".into());
    }
    let end = text.find([' ', '\t']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let is_name = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':'));
    if name.is_empty() || !is_name {
        return Err(format!("expected a metric name, found {}", quote(name.as_bytes())).into());
    }
    Ok((name.into(), after_space(rest)))
}

fn after_space(text: &str) -> &str {
    text.strip_prefix([' ', '\t']).unwrap_or(text)
}
