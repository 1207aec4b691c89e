//! Decoder of `MetricFamily` messages, the default push format of client libraries.
//!
//! ```text
//! body         (length MetricFamily)*
//! MetricFamily { 1: name, 2: help, 3: type, 4: Metric*, 5: unit }
//! Metric       { 1: LabelPair*, 2: Gauge, 3: Counter, 4: Summary, 5: Untyped, 6: int64 timestamp_ms, 7: Histogram }
//! ```
//!
//! The samples are the same as in the text formats: buckets, sums and counts are separate series. A histogram with
//! native buckets is stored as a native histogram. A histogram that also has classic buckets is stored in both forms.

use std::borrow::Cow;

use tideline_model::SeriesResolver;

use super::decoded::DecodedSamples;
use super::exemplar::ExemplarText;
use super::histogram;
use super::import::{ImportOptions, spell_bound, spell_key};
use super::labels::{self, METRIC_NAME};
use super::metadata::KINDS;
use super::samples::{SampleWriter, Series};
use super::wire::{Fields, Malformed, Payload, Read};
use crate::error::IngestError;
use crate::options::{DecodeOptions, or_unknown};
use crate::reject::Reason;

/// Factor from body bytes to the body size that [`SampleWriter`] expects. With this factor, the writer allows one row
/// per four bytes. A bucket or quantile with a number takes at least four bytes; an empty one takes only two.
const BYTES_FOR_FAMILIES: usize = 2;
/// Maximum total size of the keys of all series of one body, in bytes. The labels of a histogram occur once in the body
/// and are repeated in the key of each bucket. Without a limit, the decoding of a body of empty buckets would take
/// minutes.
const KEYS_BYTES_MAX: usize = 1 << 30;

/// Decodes a body of length-delimited `io.prometheus.client.MetricFamily` messages.
///
/// The families are checked to be complete before any of them is decoded. An invalid metric is rejected alone. A family
/// without a name or with an unknown type is rejected with all its metrics.
///
/// # Errors
///
/// Returns [`IngestError::Protobuf`] if the body is not a sequence of such messages. No sample is returned then.
pub fn decode_metric_families(
    body: &[u8],
    import: &ImportOptions,
    options: &DecodeOptions,
    resolver: &mut impl SeriesResolver,
) -> Result<DecodedSamples, IngestError> {
    read(body, import, options, resolver).map_err(|Malformed(reason)| IngestError::Protobuf {
        message: "io.prometheus.client.MetricFamily",
        reason,
    })
}

fn read(
    body: &[u8],
    import: &ImportOptions,
    options: &DecodeOptions,
    resolver: &mut impl SeriesResolver,
) -> Read<DecodedSamples> {
    let mut unread = 0;
    let mut families = Fields::new(body);
    while let Some(family) = families.delimited()? {
        unread += super::count_messages(family, 4)?;
    }
    let default_millis = import.default_millis(options);
    let mut reader = FamilyReader {
        import,
        default_millis,
        writer: SampleWriter::new(
            body.len().saturating_mul(BYTES_FOR_FAMILIES),
            0,
            options,
            resolver,
        ),
        unread,
        name: Vec::new(),
        labels: Vec::new(),
        bound: String::new(),
        key: Vec::new(),
        key_bytes: 0,
        exemplar: ExemplarText::default(),
    };
    let mut families = Fields::new(body);
    while let Some(family) = families.delimited()? {
        if !reader.one_family(family)? {
            reader.writer.reject_unread(reader.unread);
            break;
        }
    }
    import.write_extra_samples(default_millis, &mut reader.writer, &mut reader.key);
    Ok(reader.writer.finish())
}

/// Type of a family. Except for gauge histograms, the discriminant is the number of the field of `Metric` that holds
/// the value; see [`Kind::field`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gauge = 2,
    Counter = 3,
    Summary = 4,
    Untyped = 5,
    Histogram = 7,
    GaugeHistogram = 8,
}

impl Kind {
    fn of_number(number: u64) -> Option<Self> {
        Some(match number {
            0 => Self::Counter,
            1 => Self::Gauge,
            2 => Self::Summary,
            3 => Self::Untyped,
            4 => Self::Histogram,
            5 => Self::GaugeHistogram,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Summary => "summary",
            Self::Untyped => KINDS[0],
            Self::Histogram => "histogram",
            Self::GaugeHistogram => "gaugehistogram",
        }
    }

    /// Returns the number of the field of a `Metric` message that holds the value.
    fn field(self) -> u32 {
        match self {
            Self::GaugeHistogram => Self::Histogram as u32,
            other => other as u32,
        }
    }
}

/// Fields of a family that apply to all its metrics.
#[derive(Debug, Default)]
struct Head<'b> {
    name: &'b [u8],
    help: &'b [u8],
    unit: &'b [u8],
    kind: u64,
}

impl<'b> Head<'b> {
    fn read(message: &'b [u8]) -> Read<Self> {
        let mut head = Self::default();
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            match number {
                1 => head.name = payload.bytes()?,
                2 => head.help = payload.bytes()?,
                3 => head.kind = payload.varint()?,
                5 => head.unit = payload.bytes()?,
                _ => {}
            }
        }
        Ok(head)
    }

    /// Validates the name, texts and type, stores the metadata unless it is empty, and returns the type.
    fn describe<R>(&self, writer: &mut SampleWriter<'_, R>) -> Result<Kind, Reason> {
        let text = |what: &str, bytes: &'b [u8]| {
            let text = std::str::from_utf8(bytes);
            text.map_err(|_| Reason::from(format!("invalid UTF-8 in the {what} of a metric family")))
        };
        let (name, help, unit) = (
            text("name", self.name)?,
            text("help", self.help)?,
            text("unit", self.unit)?,
        );
        if name.is_empty() {
            return Err("the metric family has no name".into());
        }
        let kind = Kind::of_number(self.kind);
        let kind = kind.ok_or_else(|| Reason::from(format!("unknown type {}", self.kind)))?;
        if (kind.name(), help, unit) != (KINDS[0], "", "") {
            writer.metadata.set(name, kind.name(), help, unit);
        }
        Ok(kind)
    }
}

/// Timestamp of a metric, and its start timestamp if known, both in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Times {
    millis: i64,
    start: Option<i64>,
}

/// Label that distinguishes the parts of a metric (`le` or `quantile`), with its numeric value; `None` for series
/// without such a label.
type PartLabel = Option<(&'static [u8], f64)>;

struct FamilyReader<'b, 'r, R> {
    import: &'b ImportOptions,
    default_millis: Option<i64>,
    writer: SampleWriter<'r, R>,
    /// Number of metrics that are still to be read.
    unread: usize,
    /// Name of the current series.
    name: Vec<u8>,
    /// Labels of the current metric.
    labels: Vec<(&'b [u8], &'b [u8])>,
    /// Formatted bound or quantile.
    bound: String,
    /// Key of the current series.
    key: Vec<u8>,
    /// Total bytes of all keys so far.
    key_bytes: usize,
    exemplar: ExemplarText,
}

impl<'b, R: SeriesResolver> FamilyReader<'b, '_, R> {
    /// Decodes a family. Returns `false` if reading must stop because a limit is reached. The same holds for all
    /// following methods with this result type.
    fn one_family(&mut self, message: &'b [u8]) -> Read<bool> {
        let head = Head::read(message)?;
        let kind = match head.describe(&mut self.writer) {
            Ok(kind) => kind,
            Err(reason) => {
                self.unread -= super::count_messages(message, 4)?;
                self.key.clear();
                labels::push(METRIC_NAME, head.name, &mut self.key);
                return Ok(self.writer.reject(reason, &self.key));
            }
        };
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            if number == 4 {
                let metric = payload.bytes()?;
                self.unread -= 1;
                if !self.one_metric(head.name, kind, metric)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn one_metric(&mut self, family: &[u8], kind: Kind, message: &'b [u8]) -> Read<bool> {
        let (mut millis, mut value) = (0, None);
        self.labels.clear();
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            match number {
                1 => self.labels.push(labels::label(payload.bytes()?)?),
                6 => millis = payload.int64()?,
                number if number == kind.field() => value = Some(payload.bytes()?),
                _ => {}
            }
        }
        let millis = match millis {
            0 => or_unknown(self.default_millis),
            millis => Ok(millis),
        };
        let times = match millis {
            Ok(millis) => Times { millis, start: None },
            Err(reason) => {
                let _ = self.spell(family, "", None);
                return Ok(self.writer.reject(reason, &self.key));
            }
        };
        let Some(value) = value else {
            let reason = format!("a metric of type {} has no value of this type", kind.name());
            let _ = self.spell(family, "", None);
            return Ok(self.writer.reject(reason.into(), &self.key));
        };
        match kind {
            Kind::Gauge | Kind::Counter | Kind::Untyped => self.single(family, kind, times, value),
            Kind::Summary => self.summary(family, times, value),
            Kind::Histogram | Kind::GaugeHistogram => self.histogram(family, kind, times, value),
        }
    }

    /// Decodes `Gauge`, `Untyped { 1: value }` or `Counter { 1: value, 2: Exemplar, 3: created }`.
    fn single(&mut self, family: &[u8], kind: Kind, mut times: Times, message: &[u8]) -> Read<bool> {
        let (mut value, mut exemplar) = (0.0, None);
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            match (number, kind) {
                (1, _) => value = payload.double()?,
                (2, Kind::Counter) => exemplar = Some(payload.bytes()?),
                (3, Kind::Counter) => times.start = start(payload)?,
                _ => {}
            }
        }
        self.number((family, "", None), times, value, exemplar)
    }

    /// Decodes `Summary { 1: count, 2: sum, 3: Quantile* { 1: quantile, 2: value }, 4: created }`.
    fn summary(&mut self, family: &[u8], mut times: Times, message: &[u8]) -> Read<bool> {
        let (mut count, mut sum) = (0, 0.0);
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            match number {
                1 => count = payload.varint()?,
                2 => sum = payload.double()?,
                4 => times.start = start(payload)?,
                _ => {}
            }
        }
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            if number != 3 {
                continue;
            }
            let (mut quantile, mut value) = (0.0, 0.0);
            let mut fields = Fields::new(payload.bytes()?);
            while let Some((number, payload)) = fields.next()? {
                match number {
                    1 => quantile = payload.double()?,
                    2 => value = payload.double()?,
                    _ => {}
                }
            }
            let label: PartLabel = Some((b"quantile", quantile));
            if !self.number((family, "", label), times, value, None)? {
                return Ok(false);
            }
        }
        Ok(self.number((family, "_sum", None), times, sum, None)?
            && self.number((family, "_count", None), times, count as f64, None)?)
    }

    /// Decodes `Histogram { 1: count, 2: sum, 3: Bucket*, 4: count as a double, 15: created, 16: Exemplar* }` and its
    /// native buckets.
    fn histogram(&mut self, family: &[u8], kind: Kind, mut times: Times, message: &[u8]) -> Read<bool> {
        let (mut count, mut exact_count, mut sum, mut has_buckets) = (0, 0.0, 0.0, false);
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            match number {
                1 => count = payload.varint()?,
                2 => sum = payload.double()?,
                3 => has_buckets = true,
                4 => exact_count = payload.double()?,
                15 => times.start = start(payload)?,
                _ => {}
            }
        }
        if let Some(native) = histogram::read_of_client(message, kind == Kind::GaugeHistogram)? {
            if !self.native(family, times, native, message)? {
                return Ok(false);
            }
            if !has_buckets {
                return Ok(true);
            }
        }
        let count = if exact_count > 0.0 {
            exact_count
        } else {
            count as f64
        };
        Ok(self.buckets(family, times, message, count)?
            && self.number((family, "_sum", None), times, sum, None)?
            && self.number((family, "_count", None), times, count, None)?)
    }

    /// Writes a native histogram and its exemplars (field 16).
    fn native(
        &mut self,
        family: &[u8],
        times: Times,
        native: Result<tideline_histogram::Histogram, Reason>,
        message: &[u8],
    ) -> Read<bool> {
        let written = native.and_then(|histogram| {
            let series = self.series((family, "", None))?;
            self.writer
                .histogram(series, times.millis, &histogram, times.start)?;
            Ok(series)
        });
        let series = match written {
            Ok(series) => series,
            Err(reason) => {
                let _ = self.spell(family, "", None);
                return Ok(self.writer.reject(reason, &self.key));
            }
        };
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            if number == 16
                && let Err(reason) = self.exemplar(series, times.millis, payload.bytes()?)?
                && !self.writer.reject(reason, &self.key)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Decodes `Bucket { 1: count, 2: upper bound, 3: Exemplar, 4: count as a double }`. A missing `+Inf` bucket is
    /// added.
    fn buckets(&mut self, family: &[u8], times: Times, message: &[u8], count: f64) -> Read<bool> {
        let mut has_last = false;
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            if number != 3 {
                continue;
            }
            let (mut below, mut exact_below, mut bound, mut exemplar) = (0, 0.0, 0.0, None);
            let mut fields = Fields::new(payload.bytes()?);
            while let Some((number, payload)) = fields.next()? {
                match number {
                    1 => below = payload.varint()?,
                    2 => bound = payload.double()?,
                    3 => exemplar = Some(payload.bytes()?),
                    4 => exact_below = payload.double()?,
                    _ => {}
                }
            }
            has_last |= bound == f64::INFINITY;
            let below = if exact_below > 0.0 {
                exact_below
            } else {
                below as f64
            };
            let label: PartLabel = Some((b"le", bound));
            if !self.number((family, "_bucket", label), times, below, exemplar)? {
                return Ok(false);
            }
        }
        let last: PartLabel = Some((b"le", f64::INFINITY));
        Ok(has_last || self.number((family, "_bucket", last), times, count, None)?)
    }

    /// Writes a float sample and its exemplar.
    fn number(
        &mut self,
        part: (&[u8], &str, PartLabel),
        times: Times,
        value: f64,
        exemplar: Option<&[u8]>,
    ) -> Read<bool> {
        let written = self.series(part).and_then(|series| {
            self.writer.number(series, times.millis, value, times.start)?;
            Ok(series)
        });
        let written = match (written, exemplar) {
            (Ok(series), Some(message)) => self.exemplar(series, times.millis, message)?,
            (written, _) => written.map(drop),
        };
        let goes_on = match written {
            Ok(()) => true,
            Err(reason) => self.writer.reject(reason, &self.key),
        };
        Ok(goes_on && self.key_bytes <= KEYS_BYTES_MAX)
    }

    /// Resolves the series of a part of the current metric.
    fn series(&mut self, (family, suffix, label): (&[u8], &str, PartLabel)) -> Result<Series, Reason> {
        self.spell(family, suffix, label)?;
        self.key_bytes += self.key.len();
        self.writer.series(&self.key)
    }

    fn spell(&mut self, family: &[u8], suffix: &str, label: PartLabel) -> Result<(), Reason> {
        self.name.clear();
        self.name.extend_from_slice(family);
        self.name.extend_from_slice(suffix.as_bytes());
        let name = std::iter::once((METRIC_NAME, Cow::Borrowed(self.name.as_slice())));
        let own = self
            .labels
            .iter()
            .map(|(name, value)| (*name, Cow::Borrowed(*value)));
        let label = label.map(|(name, number)| {
            spell_bound(number, &mut self.bound);
            (name, Cow::Borrowed(self.bound.as_bytes()))
        });
        let all = name.chain(own).chain(label);
        spell_key(all, &self.import.extra_labels, &mut self.key)
    }

    /// Decodes `Exemplar { 1: LabelPair*, 2: value, 3: time }`. An exemplar without a time gets the timestamp of its
    /// sample.
    fn exemplar(&mut self, series: Series, mut millis: i64, message: &[u8]) -> Read<Result<(), Reason>> {
        let mut value = 0.0;
        self.exemplar.start();
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            match number {
                1 => {
                    let (name, value) = labels::label(payload.bytes()?)?;
                    self.exemplar.label(name, value);
                }
                2 => value = payload.double()?,
                3 => millis = time(payload)?,
                _ => {}
            }
        }
        let text = self.exemplar.finish(value);
        Ok(text.and_then(|text| self.writer.exemplar(series, millis, text)))
    }
}

/// Decodes a start timestamp. Returns `None` for the epoch itself, which means that the start is unknown.
fn start(payload: Payload<'_>) -> Read<Option<i64>> {
    time(payload).map(|millis| (millis != 0).then_some(millis))
}

/// Decodes `google.protobuf.Timestamp { 1: int64 seconds, 2: int32 nanos }` to milliseconds. Saturates on overflow;
/// such a timestamp is rejected later.
fn time(payload: Payload<'_>) -> Read<i64> {
    let (mut seconds, mut nanos) = (0_i64, 0_i64);
    let mut fields = Fields::new(payload.bytes()?);
    while let Some((number, payload)) = fields.next()? {
        match number {
            1 => seconds = payload.int64()?,
            2 => nanos = payload.int64()?,
            _ => {}
        }
    }
    Ok(seconds.saturating_mul(1_000).saturating_add(nanos / 1_000_000))
}
