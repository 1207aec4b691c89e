//! Text exposition: what targets show to a scraper and scripts push, in the classic format and in OpenMetrics.
//!
//! Lines stand for themselves: a wrong one is refused by its number, the others are kept. Of OpenMetrics, times are
//! seconds, exemplars are kept, and `_created` lines become the start time of the samples of their metric.

use std::borrow::Cow;

use hashbrown::HashMap;
use tideline_histogram::Shortest;
use tideline_model::SeriesResolver;

use super::exemplar::ExemplarText;
use super::labels::{self, METRIC_NAME};
use super::sample_line::{ExemplarPart, SampleLine, unescape};
use super::samples::{DecodedSamples, SampleWriter, Series};
use crate::options::DecodeOptions;
use crate::reject::{Reason, quote, too_large};

/// Which text format a body has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFormat {
    /// Version 0.0.4: times are milliseconds.
    Classic,
    /// Times are seconds, the last line is `# EOF`.
    OpenMetrics,
}

/// What a request says about all samples of a body of text or JSON lines.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ImportOptions {
    /// The time of samples that have none, in milliseconds since the epoch; `None` = the default time of the options.
    pub millis: Option<i64>,
    /// Labels that every series gets, in place of its own of the same name. An empty value only takes that away.
    pub extra_labels: Vec<(String, String)>,
    /// Samples besides those of a page, by name, at the time of those that have none, with the extra labels alone.
    pub extra_samples: Vec<(String, f64)>,
}

/// Reads a body of text.
///
/// A line that is wrong rejects itself; its number and beginning are what the reject shows. OpenMetrics that does not
/// end with `# EOF` was cut off: that is one reject more, and what came is kept.
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
        default_millis: import
            .millis
            .unwrap_or(options.default_time.nanos().div_euclid(1_000_000)),
        writer: SampleWriter::new(body.len().saturating_mul(BYTES_FOR_TEXT), options, resolver),
        kind: "unknown",
        created: HashMap::new(),
        key: Vec::new(),
        exemplar: ExemplarText::default(),
    };
    if format == TextFormat::OpenMetrics && memchr::memmem::find(body, CREATED.as_bytes()).is_some() {
        reader.find_created(body, options.limits.line_bytes);
    }
    reader.read(body, options.limits.line_bytes);
    reader.write_extra_samples();
    reader.writer.finish()
}

const CREATED: &str = "_created";
/// Metrics of one body whose start times are kept; each takes a hundred bytes and more.
const CREATED_MAX: usize = 1 << 20;
/// A sample may be four bytes of text, and a row is about as large as that of eight in a message.
const BYTES_FOR_TEXT: usize = 2;

/// The lines of a body with their numbers, without their ends; empty ones left out.
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
    default_millis: i64,
    writer: SampleWriter<'r, R>,
    /// The type that the last `# TYPE` said.
    kind: &'static str,
    /// Start times by metric, as [`metric_key`] spells it.
    created: HashMap<Vec<u8>, i64>,
    key: Vec<u8>,
    exemplar: ExemplarText,
}

impl<R: SeriesResolver> TextReader<'_, '_, R> {
    fn read(&mut self, body: &[u8], line_bytes_max: usize) {
        let mut last = 0;
        let mut has_ended = false;
        for (number, line) in lines(body) {
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
                return;
            }
        }
        if self.format == TextFormat::OpenMetrics && !has_ended {
            let reason = "the text does not end with # EOF: it was cut off";
            self.writer.reject_line(last, reason.into(), b"");
        }
    }

    /// `# HELP name text`, `# TYPE name type`, `# UNIT name unit`; any other comment means nothing.
    fn comment(&mut self, line: &[u8]) -> Result<(), Reason> {
        let Ok(text) = std::str::from_utf8(&line[1..]) else {
            return Err("invalid UTF-8 in a comment".into());
        };
        let Some((keyword, rest)) = text.trim_start().split_once([' ', '\t']) else {
            return Ok(());
        };
        let is_known = match keyword {
            "HELP" | "TYPE" => true,
            "UNIT" => self.format == TextFormat::OpenMetrics,
            _ => false,
        };
        if !is_known {
            return Ok(());
        }
        let (name, rest) = family_name(rest.trim_start())?;
        match keyword {
            "HELP" => {
                let help = unescape(rest.as_bytes());
                self.writer
                    .metadata
                    .set_help(&name, &String::from_utf8_lossy(&help));
            }
            "UNIT" => self.writer.metadata.set_unit(&name, rest),
            _ => {
                self.kind = kind_of_word(rest)
                    .ok_or_else(|| Reason::from(format!("unknown type {}", quote(rest.as_bytes()))))?;
                self.writer.metadata.set_kind(&name, self.kind);
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
            None => self.default_millis,
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

    fn write_extra_samples(&mut self) {
        for (name, value) in &self.import.extra_samples {
            let name = std::iter::once((METRIC_NAME, Cow::Borrowed(name.as_bytes())));
            let written = spell_key(name, &self.import.extra_labels, &mut self.key)
                .and_then(|()| self.writer.series(&self.key))
                .and_then(|series| self.writer.number(series, self.default_millis, *value, None));
            if let Err(reason) = written {
                self.writer.reject(reason, &self.key);
            }
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

    /// Spells the key of a sample's series.
    fn spell(&mut self, sample: &SampleLine<'_>) -> Result<(), Reason> {
        let kind = self.kind;
        let own = sample
            .labels
            .iter()
            .map(|(name, value)| (&**name, normal_value(kind, name, value)));
        let name = std::iter::once((METRIC_NAME, Cow::Borrowed(&*sample.name)));
        spell_key(name.chain(own), &self.import.extra_labels, &mut self.key)
    }

    /// Milliseconds.
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

    fn has_start(&self) -> bool {
        self.format == TextFormat::OpenMetrics && matches!(self.kind, "counter" | "histogram" | "summary")
    }

    /// Whether a line only says when its metric began to count.
    fn is_created(&self, sample: &SampleLine<'_>) -> bool {
        self.has_start() && sample.name.ends_with(CREATED.as_bytes())
    }

    /// Reads all `_created` lines: they follow the samples that they are about.
    fn find_created(&mut self, body: &[u8], line_bytes_max: usize) {
        for (_, line) in lines(body).filter(|(_, line)| line.len() <= line_bytes_max) {
            if let Some(kind) = line
                .strip_prefix(b"# TYPE ")
                .and_then(|rest| rest.rsplit(|byte| *byte == b' ').next())
            {
                self.kind = std::str::from_utf8(kind)
                    .ok()
                    .and_then(kind_of_word)
                    .unwrap_or("unknown");
            }
            let is_candidate = self.has_start()
                && line[0] != b'#'
                && memchr::memmem::find(line, CREATED.as_bytes()).is_some();
            if !is_candidate {
                continue;
            }
            if let Ok(sample) = SampleLine::read(line, true)
                && self.is_created(&sample)
                && sample.value.is_finite()
                && self.created.len() < CREATED_MAX
            {
                let family = &sample.name[..sample.name.len() - CREATED.len()];
                metric_key(family, &sample, &mut self.key);
                self.created.insert(self.key.clone(), to_millis(sample.value));
            }
        }
        self.kind = "unknown";
    }

    /// When a sample's metric began to count, where a line says so.
    fn start_of(&mut self, sample: &SampleLine<'_>) -> Option<i64> {
        if self.created.is_empty() || !self.has_start() {
            return None;
        }
        let suffixes: [&[u8]; 4] = [b"_total", b"_bucket", b"_count", b"_sum"];
        let stripped = suffixes
            .iter()
            .find_map(|suffix| sample.name.strip_suffix(*suffix));
        metric_key(stripped.unwrap_or(&sample.name), sample, &mut self.key);
        self.created.get(&self.key).copied()
    }
}

/// The metric that a line is part of: its family and its labels, those left out that tell its parts apart.
fn metric_key(family: &[u8], sample: &SampleLine<'_>, key: &mut Vec<u8>) {
    key.clear();
    labels::push(b"", family, key);
    let own = sample
        .labels
        .iter()
        .filter(|(name, _)| &**name != b"le" && &**name != b"quantile");
    own.for_each(|(name, value)| labels::push(name, value, key));
}

/// Spells a key of labels, extra ones in place of others of their names. Labels without a value are none.
pub(crate) fn spell_key<'a>(
    own: impl Iterator<Item = (&'a [u8], Cow<'a, [u8]>)>,
    extra: &[(String, String)],
    key: &mut Vec<u8>,
) -> Result<(), Reason> {
    key.clear();
    for (name, value) in own {
        let is_replaced = extra.iter().any(|(replaced, _)| replaced.as_bytes() == name);
        if !value.is_empty() && !is_replaced {
            labels::push(name, &value, key);
        }
    }
    for (name, value) in extra.iter().filter(|(_, value)| !value.is_empty()) {
        labels::push(name.as_bytes(), value.as_bytes(), key);
    }
    match key.is_empty() {
        true => Err("the series has no labels".into()),
        false => Ok(()),
    }
}

/// The value of a label; bounds of buckets and quantiles as Prometheus spells them, so that `1` and `1.0` are one.
fn normal_value<'a>(kind: &str, name: &[u8], value: &'a [u8]) -> Cow<'a, [u8]> {
    let is_number = matches!((kind, name), ("histogram", b"le") | ("summary", b"quantile"));
    let number = is_number
        .then(|| fast_float2::parse::<f64, _>(value).ok())
        .flatten();
    let Some(number) = number else {
        return Cow::Borrowed(value);
    };
    let mut text = Shortest(number).to_string();
    if number == 0.0 {
        text = "0.0".into();
    } else if number.is_finite() && !text.contains(['.', 'e']) {
        text.push_str(".0");
    }
    Cow::Owned(text.into_bytes())
}

fn to_millis(seconds: f64) -> i64 {
    (seconds * 1_000.0) as i64
}

/// The name of a family, in quotes or not, and the text that follows.
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

fn kind_of_word(word: &str) -> Option<&'static str> {
    let kinds = [
        "counter",
        "gauge",
        "histogram",
        "gaugehistogram",
        "summary",
        "info",
        "stateset",
        "unknown",
    ];
    let word = if word == "untyped" { "unknown" } else { word };
    kinds.into_iter().find(|kind| *kind == word)
}
