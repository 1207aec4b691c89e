//! Federation: the newest samples in the classic text format.
//!
//! The format requires all series of a name in one group, so the newest samples are collected before they are written.
//! The bytes of the collected samples count in the memory account.

use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::time::Duration;

use parking_lot::Mutex;
use tideline_histogram::{BucketIndex, Histogram, Slot, is_stale};
use tideline_promql::source::SeriesData;
use tideline_promql::{Labels, Matcher, Result, Samples, Select, Source};

use crate::error;
use crate::escaping::Escaping;
use crate::json::pass;
use crate::number::{NumberForm, put_plain_number};
use crate::parameters::Parameters;
use crate::request::SeriesRequest;
use crate::settings::Settings;
use crate::view::SeriesView;

/// Estimated memory of an entry in the set of found series, in bytes, without its labels.
const SEEN_BYTES: usize = 32;
/// Estimated memory of a series in the list and as text, in bytes, without its labels.
const SERIES_BYTES: usize = 256;
/// Estimated memory of a histogram in the list and as text, in bytes per unit of its `sample_size`.
const HISTOGRAM_SAMPLE_BYTES: usize = 64;

/// Request for newest samples.
#[derive(Debug)]
pub struct Federation {
    selectors: Vec<Vec<Matcher>>,
    /// Time range of the samples in milliseconds, both ends included.
    range: (i64, i64),
    escaping: Escaping,
    text: String,
}

impl Federation {
    /// Reads a request that arrived at `now`, in milliseconds. `accept` is the value of its `Accept` header.
    ///
    /// # Errors
    ///
    /// `RequestError` if a selector is not valid, or if a regular expression is too large.
    pub fn read(parameters: &Parameters, accept: &str, settings: &Settings, now: i64) -> error::Result<Self> {
        Ok(Self {
            selectors: parameters.any_selectors()?,
            range: (now.saturating_sub(settings.lookback_millis()), now),
            escaping: Escaping::from_accept(accept),
            text: parameters.selectors_text(),
        })
    }

    /// Returns the content type of the response.
    pub fn content_type(&self) -> &'static str {
        self.escaping.content_type()
    }

    /// Calls `take` once for each series that matches at least one selector and has samples in the range. The calls are
    /// in unspecified order and from several threads.
    fn each_series(
        &self,
        view: &SeriesView<'_>,
        take: &(dyn Fn(&Labels, Samples<'_>) -> Result<()> + Sync),
    ) -> Result<()> {
        let source = view.source();
        let (start, end) = self.range;
        let seen = Mutex::new(HashSet::new());
        for matchers in &self.selectors {
            let select = Select {
                matchers,
                start,
                end,
                over_time: None,
                with_starts: false,
            };
            source.select(&select, &|labels, data| {
                let SeriesData::Samples(samples) = data else {
                    return Ok(());
                };
                if self.selectors.len() > 1 {
                    let texts: usize = labels.iter().map(|(name, value)| name.len() + value.len()).sum();
                    source.hold(0, (texts + SEEN_BYTES) as u64)?;
                }
                let is_new = self.selectors.len() == 1 || seen.lock().insert(labels.clone());
                if is_new { take(labels, samples) } else { Ok(()) }
            })?;
        }
        Ok(())
    }
}

impl SeriesRequest for Federation {
    fn text(&self) -> String {
        self.text.clone()
    }

    fn read_range(&self) -> Option<(i64, i64)> {
        Some(self.range)
    }

    fn write(&self, view: &SeriesView<'_>, _: Duration, out: &mut dyn Write) -> Result<()> {
        let families: Mutex<BTreeMap<String, BTreeMap<Labels, Newest>>> = Mutex::default();
        self.each_series(view, &|labels, samples| {
            let (Some(name), Some(newest)) = (labels.metric_name(), Newest::new(&samples)) else {
                return Ok(());
            };
            view.source().hold(0, newest.bytes(labels))?;
            let mut families = families.lock();
            let family = families.entry(name.to_owned()).or_default();
            family.insert(labels.clone(), newest);
            Ok(())
        })?;
        let mut text = Vec::new();
        for (name, series) in &families.into_inner() {
            put_family(name, series, self.escaping, &mut text);
            pass(&mut text, out)?;
        }
        Ok(())
    }
}

/// Newest sample of a series.
#[derive(Debug)]
struct Newest {
    time: i64,
    value: Value,
}

#[derive(Debug)]
enum Value {
    Number(f64),
    /// Histogram with custom buckets.
    Histogram(Histogram),
}

impl Newest {
    /// Returns the newest sample. Returns `None` if there are no samples, if the newest sample is a stale marker, or if
    /// it is a histogram without custom buckets, which the format cannot hold.
    fn new(samples: &Samples<'_>) -> Option<Self> {
        let number = samples.times.last().copied().zip(samples.values.last());
        let histogram = samples
            .histogram_times
            .last()
            .copied()
            .zip(samples.histograms.last());
        match (number, histogram) {
            (Some((time, value)), None) => Self::number(time, *value),
            (Some((time, value)), Some((other, _))) if time >= other => Self::number(time, *value),
            (_, Some((time, histogram))) => {
                let value = Value::Histogram(histogram.clone());
                (histogram.uses_custom_buckets() && !is_stale(histogram.sum)).then_some(Self { time, value })
            }
            (None, None) => None,
        }
    }

    /// Returns the estimated memory of the sample and its labels, in the list and as text, in bytes.
    fn bytes(&self, labels: &Labels) -> u64 {
        let texts: usize = labels.iter().map(|(name, value)| name.len() + value.len()).sum();
        let value = match &self.value {
            Value::Number(_) => 0,
            Value::Histogram(histogram) => HISTOGRAM_SAMPLE_BYTES * histogram.sample_size(),
        };
        (SERIES_BYTES + 2 * texts + value) as u64
    }

    fn number(time: i64, value: f64) -> Option<Self> {
        let number = Value::Number(value);
        (!is_stale(value)).then_some(Self { time, value: number })
    }
}

/// Writes the series of a name: first numbers, then histograms, each kind under its own `# TYPE`.
fn put_family(name: &str, series: &BTreeMap<Labels, Newest>, escaping: Escaping, out: &mut Vec<u8>) {
    let name = &*escaping.escape(name, is_plain_name);
    let mut has_head = false;
    for (labels, newest) in series {
        if let Value::Number(value) = newest.value {
            if !has_head {
                put_head(name, b"untyped", out);
                has_head = true;
            }
            put_sample((name, ""), (labels, None), (value, newest.time), escaping, out);
        }
    }
    has_head = false;
    for (labels, newest) in series {
        if let Value::Histogram(histogram) = &newest.value {
            if !has_head {
                put_head(name, b"histogram", out);
                has_head = true;
            }
            put_buckets(name, labels, histogram, newest.time, escaping, out);
        }
    }
}

fn put_head(name: &str, kind: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"# TYPE ");
    match is_plain_name(name) {
        true => out.extend_from_slice(name.as_bytes()),
        false => put_quoted(name, out),
    }
    out.push(b' ');
    out.extend_from_slice(kind);
    out.push(b'\n');
}

/// Writes a histogram with custom buckets as a classic histogram, with cumulative counts.
fn put_buckets(
    name: &str,
    labels: &Labels,
    histogram: &Histogram,
    time: i64,
    escaping: Escaping,
    out: &mut Vec<u8>,
) {
    let mut put = |suffix: &str, bound: Option<&str>, value: f64| {
        put_sample((name, suffix), (labels, bound), (value, time), escaping, out);
    };
    let mut below = 0.0;
    let mut counts = histogram.positive_slots().peekable();
    for (at, bound) in histogram.custom_values.iter().enumerate() {
        let is_below = |slot: &Slot| matches!(slot.index, BucketIndex::Positive(index) if index <= at as i32);
        while let Some(slot) = counts.next_if(is_below) {
            below += slot.count;
        }
        let mut text = Vec::new();
        put_plain_number(*bound, NumberForm::Short, &mut text);
        let text = String::from_utf8_lossy(&text);
        put("_bucket", Some(&text), below);
    }
    put("_bucket", Some("+Inf"), histogram.count);
    put("_sum", None, histogram.sum);
    put("_count", None, histogram.count);
}

/// Writes a line. A series without the label `instance` gets an empty one; otherwise the scraper would add its own
/// label `instance`.
fn put_sample(
    (name, suffix): (&str, &str),
    (labels, bound): (&Labels, Option<&str>),
    (value, time): (f64, i64),
    escaping: Escaping,
    out: &mut Vec<u8>,
) {
    let whole = format!("{name}{suffix}");
    let is_plain = is_plain_name(&whole);
    if is_plain {
        out.extend_from_slice(whole.as_bytes());
    }
    out.push(b'{');
    if !is_plain {
        put_quoted(&whole, out);
    }
    let mut is_first = is_plain;
    let mut put = |key: &str, value: &str, out: &mut Vec<u8>| {
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        let key = escaping.escape(key, is_plain_label);
        match is_plain_label(&key) {
            true => out.extend_from_slice(key.as_bytes()),
            false => put_quoted(&key, out),
        }
        out.push(b'=');
        put_quoted(value, out);
    };
    for (key, value) in labels.iter().filter(|(key, _)| *key != "__name__") {
        put(key, value, out);
    }
    if labels.get("instance").is_none() {
        put("instance", "", out);
    }
    if let Some(bound) = bound {
        put("le", bound, out);
    }
    out.extend_from_slice(b"} ");
    put_plain_number(value, NumberForm::Short, out);
    out.push(b' ');
    out.extend_from_slice(itoa::Buffer::new().format(time).as_bytes());
    out.push(b'\n');
}

fn put_quoted(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'"' => out.extend_from_slice(b"\\\""),
            b'\n' => out.extend_from_slice(b"\\n"),
            byte => out.push(byte),
        }
    }
    out.push(b'"');
}

/// Returns true if the name of a metric needs no quotes.
fn is_plain_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || byte == b':';
    bytes.next().is_some_and(is_letter) && bytes.all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

/// Returns true if the name of a label needs no quotes.
fn is_plain_label(name: &str) -> bool {
    is_plain_name(name) && !name.contains(':')
}

#[cfg(test)]
mod tests {
    use tideline_histogram::Span;

    use super::*;

    fn family(name: &str, escaping: Escaping, series: Vec<(Labels, Newest)>) -> String {
        let mut out = Vec::new();
        put_family(name, &series.into_iter().collect(), escaping, &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn numbers_and_custom_histograms_are_written_in_the_text_format() {
        let number = |value| Newest {
            time: 1_000,
            value: Value::Number(value),
        };
        let plain = Labels::from_sorted([("__name__", "lag"), ("instance", "a:1"), ("path", "C:\\\"x\"\n")]);
        let other = Labels::from_sorted([("__name__", "lag"), ("http.status", "200")]);
        let histogram = Histogram {
            schema: -53,
            count: 6.0,
            sum: 4.5,
            positive_spans: vec![Span { offset: 1, length: 2 }],
            positive_buckets: vec![2.0, 4.0],
            custom_values: vec![0.1, 1.0],
            ..Histogram::default()
        };
        let buckets = Newest {
            time: 2_000,
            value: Value::Histogram(histogram),
        };
        let named = Labels::from_sorted([("__name__", "lag"), ("instance", "b")]);
        assert_eq!(
            family(
                "lag",
                Escaping::AllowUtf8,
                vec![(named, buckets), (plain, number(1e-7)), (other, number(f64::NAN))]
            ),
            "# TYPE lag untyped\n\
             lag{http.status=\"200\",instance=\"\"} NaN 1000\n\
             lag{instance=\"a:1\",path=\"C:\\\\\\\"x\\\"\\n\"} 1e-07 1000\n\
             # TYPE lag histogram\n\
             lag_bucket{instance=\"b\",le=\"0.1\"} 0 2000\n\
             lag_bucket{instance=\"b\",le=\"1\"} 2 2000\n\
             lag_bucket{instance=\"b\",le=\"+Inf\"} 6 2000\n\
             lag_sum{instance=\"b\"} 4.5 2000\n\
             lag_count{instance=\"b\"} 6 2000\n"
                .replace("http.status", "\"http.status\"")
        );
    }

    #[test]
    fn names_are_written_as_the_scraper_can_read_them() {
        let labels = Labels::from_sorted([("__name__", "lag.s"), ("http.status", "2.0"), ("instance", "a")]);
        let page = |escaping| {
            let newest = Newest {
                time: 1,
                value: Value::Number(2.0),
            };
            family("lag.s", escaping, vec![(labels.clone(), newest)])
        };
        assert_eq!(
            page(Escaping::Underscores),
            "# TYPE lag_s untyped\nlag_s{http_status=\"2.0\",instance=\"a\"} 2 1\n"
        );
        assert_eq!(
            page(Escaping::AllowUtf8),
            "# TYPE \"lag.s\" untyped\n{\"lag.s\",\"http.status\"=\"2.0\",instance=\"a\"} 2 1\n"
        );
    }
}
