//! Data points of each type, and their rows.
//!
//! | data point | rows |
//! |---|---|
//! | number | one float sample |
//! | histogram | `_bucket` series with cumulative counts, `_count`, `_sum`; or one native histogram |
//! | exponential histogram | one native histogram |
//! | summary | `_sum`, `_count`, a series per quantile |
//!
//! An exemplar is stored with the series of its point, or of its bucket. A point with the flag "no recorded value" is a
//! stale marker in all of its series.

use tideline_histogram::{BUCKETS_MAX, Histogram, IntegerHistogram, ResetHint, STALE_NAN_BITS};
use tideline_model::SeriesResolver;

use super::super::decoded::SampleKind;
use super::super::labels;
use super::super::samples::Series;
use super::super::wire::{Fields, Payload, Read};
use super::any_value;
use super::attributes::{self, key_value};
use super::buckets::{self, Resolution};
use super::request::{Part, Request};
use crate::reject::{Reason, too_large};
use crate::series_key::TAGS_MAX;

const NANOS_PER_MILLISECOND: u64 = 1_000_000;
/// Flag of a point without a recorded value.
const NO_RECORDED_VALUE: u64 = 1;
/// Maximum number of exemplars of a data point; further ones are dropped. Senders keep about as many as there are
/// buckets.
const EXEMPLARS_MAX: usize = 1_024;
/// Maximum number of quantiles of a summary; a summary with more quantiles is rejected.
const QUANTILES_MAX: usize = 1_024;
/// Maximum number of characters of the labels of an exemplar. Above this number, only the ids are kept, as in
/// Prometheus.
const EXEMPLAR_CHARS_MAX: usize = 128;
/// Label names of trace ids and span ids, with the lengths of the ids in bytes.
const TRACE_ID: (&str, usize) = ("trace_id", 16);
const SPAN_ID: (&str, usize) = ("span_id", 8);

/// Buffers for the buckets of histograms.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    bounds: Vec<f64>,
    counts: Vec<u64>,
    /// Bounds whose labels are in `labels`. Data points of a metric usually have the same bounds.
    labelled: Vec<f64>,
    /// Encoded labels `le` of all bounds and of `+Inf`, one after another.
    labels: Vec<u8>,
    /// End of each label in `labels`.
    ends: Vec<usize>,
}

/// Timestamps of a data point.
#[derive(Debug, Clone, Copy)]
struct Times {
    millis: i64,
    start: Option<i64>,
}

/// Fields of a data point. `count` and `sum` are used only for histograms and summaries.
#[derive(Debug, Default)]
struct Common {
    /// Start time in nanoseconds; 0 if unknown.
    start: u64,
    /// Time in nanoseconds; 0 if missing.
    time: u64,
    flags: u64,
    count: u64,
    sum: Option<f64>,
}

impl Common {
    #[inline]
    fn times(&self) -> Result<Times, Reason> {
        if self.time == 0 {
            return Err("the data point has no time".into());
        }
        let millis = |nanos: u64| (nanos / NANOS_PER_MILLISECOND).cast_signed();
        Ok(Times {
            millis: millis(self.time),
            start: (self.start != 0).then(|| millis(self.start)),
        })
    }

    #[inline]
    fn is_stale(&self) -> bool {
        self.flags & NO_RECORDED_VALUE != 0
    }

    /// Returns `value`, or the stale marker if the point has no recorded value.
    #[inline]
    fn value(&self, value: f64) -> f64 {
        match self.is_stale() {
            true => f64::from_bits(STALE_NAN_BITS),
            false => value,
        }
    }
}

/// Result of writing a data point, or the reason to reject it.
type Written = Result<(), Reason>;

impl<'a, R: SeriesResolver> Request<'a, '_, '_, R> {
    /// Decodes a data point of a metric, and writes or rejects it. `kind` is the field number of the data in `Metric`.
    #[inline]
    pub(super) fn point(&mut self, kind: u32, message: &'a [u8]) -> Read<()> {
        self.attributes.clear();
        self.exemplars.clear();
        self.writer.open_point();
        let written = match kind {
            5 | 7 => self.number(message),
            9 => self.histogram(message),
            10 => self.exponential(message),
            _ => self.summary(message),
        }?;
        if let Err(reason) = written {
            self.refuse(reason);
        }
        self.is_full = self.reaches_limit();
        Ok(())
    }

    /// Rejects the current data point.
    #[cold]
    fn refuse(&mut self, reason: Reason) {
        let name = &self.metric.names[Part::Whole as usize];
        self.key.clear();
        self.key.extend_from_slice(&name.label);
        self.key.extend_from_slice(&self.labels.encoded);
        self.writer.reject_kind(SampleKind::Sample, reason, &self.key);
    }

    #[inline]
    fn take_attribute(&mut self, payload: Payload<'a>) -> Read<()> {
        if self.attributes.len() <= TAGS_MAX {
            self.attributes.push(key_value(payload.bytes()?)?);
        }
        Ok(())
    }

    fn take_exemplar(&mut self, payload: Payload<'a>) -> Read<()> {
        if self.exemplars.len() < EXEMPLARS_MAX {
            self.exemplars.push(payload.bytes()?);
        }
        Ok(())
    }

    /// Encodes the labels of the current data point.
    #[inline]
    fn set_labels(&mut self) -> Read<Written> {
        self.labels.set_point(&self.attributes)
    }

    /// Returns the series of a part of the current metric with the labels of the current data point and a further
    /// encoded label.
    #[inline]
    fn series(&mut self, part: Part, further: &[u8]) -> Result<Series, Reason> {
        let name = &self.metric.names[part as usize];
        let key = &mut self.key;
        key.clear();
        key.extend_from_slice(&name.label);
        key.extend_from_slice(&self.labels.encoded);
        key.extend_from_slice(further);
        self.key_bytes += key.len();
        let expected = self
            .writer
            .expected_of(name.text.as_bytes(), |expected| expected == &**key);
        match expected {
            Some(series) => Ok(series),
            None => self.writer.series(key),
        }
    }

    /// Writes a float sample and returns its series.
    #[inline]
    fn sample(&mut self, part: Part, further: &[u8], value: f64, times: Times) -> Result<Series, Reason> {
        let series = self.series(part, further)?;
        self.writer.number(series, times.millis, value, times.start)?;
        Ok(series)
    }

    /// Records the times of a stored data point, and stores the metadata of its metric.
    #[inline]
    fn stored(&mut self, series: Series, times: Times) {
        self.describe(series);
        let (first, last) = self.stored.unwrap_or((times.millis, times.millis));
        self.stored = Some((first.min(times.millis), last.max(times.millis)));
    }

    #[inline]
    fn number(&mut self, message: &'a [u8]) -> Read<Written> {
        let (mut common, mut value) = (Common::default(), None);
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            match number {
                2 => common.start = payload.fixed64()?,
                3 => common.time = payload.fixed64()?,
                4 => value = Some(payload.double()?),
                5 => self.take_exemplar(payload)?,
                6 => value = Some(payload.fixed64()?.cast_signed() as f64),
                7 => self.take_attribute(payload)?,
                8 => common.flags = payload.varint()?,
                _ => {}
            }
        }
        if let Err(reason) = self.set_labels()? {
            return Ok(Err(reason));
        }
        let written = common.times().and_then(|times| {
            if value.is_none() && !common.is_stale() {
                return Err("the data point has no value".into());
            }
            let value = common.value(value.unwrap_or_default());
            let series = self.sample(Part::Whole, b"", value, times)?;
            self.stored(series, times);
            Ok((series, times))
        });
        self.with_exemplars(written)
    }

    /// Writes the exemplars of a data point that has one series. If the point was not written, returns the reason.
    #[inline]
    fn with_exemplars(&mut self, written: Result<(Series, Times), Reason>) -> Read<Written> {
        match written {
            Err(reason) => return Ok(Err(reason)),
            Ok((series, times)) if !self.exemplars.is_empty() => {
                self.writer.close_point();
                for at in 0..self.exemplars.len() {
                    let (value, millis) = self.read_exemplar(self.exemplars[at])?;
                    self.put_exemplar(series, value, millis, times);
                }
            }
            Ok(_) => {}
        }
        Ok(Ok(()))
    }

    fn histogram(&mut self, message: &'a [u8]) -> Read<Written> {
        let mut common = Common::default();
        self.buckets.bounds.clear();
        self.buckets.counts.clear();
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            match number {
                2 => common.start = payload.fixed64()?,
                3 => common.time = payload.fixed64()?,
                4 => common.count = payload.fixed64()?,
                5 => common.sum = Some(payload.double()?),
                6 => buckets::push_counts(payload, &mut self.buckets.counts)?,
                7 => {
                    let bounds = &mut self.buckets.bounds;
                    payload.each_double(|bound| {
                        if bounds.len() <= BUCKETS_MAX {
                            bounds.push(bound);
                        }
                    })?;
                }
                8 => self.take_exemplar(payload)?,
                9 => self.take_attribute(payload)?,
                10 => common.flags = payload.varint()?,
                _ => {}
            }
        }
        if let Err(reason) = self.set_labels()? {
            return Ok(Err(reason));
        }
        if let Err(reason) = self.buckets.check(&common) {
            return Ok(Err(reason));
        }
        if self.settings.convert_histograms_to_nhcb {
            let made = buckets::custom(&self.buckets.bounds, &self.buckets.counts);
            let written = made.and_then(|histogram| self.native(histogram, &common));
            return self.with_exemplars(written);
        }
        let times = match common.times() {
            Ok(times) => times,
            Err(reason) => return Ok(Err(reason)),
        };
        let mut labels = std::mem::take(&mut self.buckets);
        labels.label();
        let written = self.classic(&labels, &common, times);
        self.buckets = labels;
        match written {
            Err(reason) => Ok(Err(reason)),
            Ok(()) if self.exemplars.is_empty() => Ok(Ok(())),
            Ok(()) => self.classic_exemplars(times),
        }
    }

    /// Writes the classic series of a histogram.
    fn classic(&mut self, buckets: &Buckets, common: &Common, times: Times) -> Written {
        let (mut from, mut cumulative) = (0, 0_u64);
        for (at, end) in buckets.ends.iter().enumerate() {
            // The last bucket has the bound `+Inf`.
            cumulative = match at < buckets.bounds.len() {
                true => cumulative.saturating_add(buckets.counts[at]),
                false => common.count,
            };
            let value = common.value(cumulative as f64);
            let series = self.sample(Part::Bucket, &buckets.labels[from..*end], value, times)?;
            from = *end;
            self.stored(series, times);
        }
        let count = common.value(common.count as f64);
        self.sample(Part::Count, b"", count, times)?;
        if let Some(sum) = common.sum {
            self.sample(Part::Sum, b"", common.value(sum), times)?;
        }
        Ok(())
    }

    /// Writes each exemplar of a histogram with the series of the bucket that contains it.
    fn classic_exemplars(&mut self, times: Times) -> Read<Written> {
        self.writer.close_point();
        for at in 0..self.exemplars.len() {
            let (value, millis) = self.read_exemplar(self.exemplars[at])?;
            let observed = *value.as_ref().unwrap_or(&f64::INFINITY);
            let buckets = std::mem::take(&mut self.buckets);
            let bucket = buckets.bounds.partition_point(|bound| *bound < observed);
            let from = bucket.checked_sub(1).map_or(0, |before| buckets.ends[before]);
            let series = self.series(Part::Bucket, &buckets.labels[from..buckets.ends[bucket]]);
            self.buckets = buckets;
            match series {
                Ok(series) => self.put_exemplar(series, value, millis, times),
                Err(reason) => self.writer.reject_kind(SampleKind::Exemplar, reason, &self.key),
            }
        }
        Ok(Ok(()))
    }

    fn exponential(&mut self, message: &'a [u8]) -> Read<Written> {
        let mut common = Common::default();
        let (mut scale, mut zero_count, mut zero_threshold) = (0, 0, 0.0);
        let (mut positive, mut negative) = (&b""[..], &b""[..]);
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            match number {
                1 => self.take_attribute(payload)?,
                2 => common.start = payload.fixed64()?,
                3 => common.time = payload.fixed64()?,
                4 => common.count = payload.fixed64()?,
                5 => common.sum = Some(payload.double()?),
                6 => scale = payload.zigzag()?,
                7 => zero_count = payload.fixed64()?,
                8 => positive = payload.bytes()?,
                9 => negative = payload.bytes()?,
                10 => common.flags = payload.varint()?,
                11 => self.take_exemplar(payload)?,
                14 => zero_threshold = payload.double()?,
                _ => {}
            }
        }
        if let Err(reason) = self.set_labels()? {
            return Ok(Err(reason));
        }
        let checked = Resolution::of_scale(scale)
            .and_then(|resolution| Ok((resolution, buckets::zero_threshold(zero_threshold)?)));
        let (resolution, zero_threshold) = match checked {
            Ok(checked) => checked,
            Err(reason) => return Ok(Err(reason)),
        };
        let sides = (
            buckets::exponential(positive, resolution)?,
            buckets::exponential(negative, resolution)?,
        );
        let written = match sides {
            (Ok(positive), Ok(negative)) => {
                let histogram = IntegerHistogram {
                    schema: resolution.schema,
                    zero_threshold,
                    zero_count,
                    positive_spans: positive.spans,
                    positive_deltas: positive.deltas,
                    negative_spans: negative.spans,
                    negative_deltas: negative.deltas,
                    ..IntegerHistogram::default()
                };
                self.native(histogram, &common)
            }
            (Err(reason), _) | (_, Err(reason)) => Err(reason),
        };
        self.with_exemplars(written)
    }

    /// Writes a native histogram with the count and sum of its data point, or a stale marker. Returns the series and
    /// the times of the row.
    fn native(
        &mut self,
        mut histogram: IntegerHistogram,
        common: &Common,
    ) -> Result<(Series, Times), Reason> {
        let times = common.times()?;
        match common.is_stale() {
            true => histogram = buckets::stale(histogram.schema),
            false => {
                histogram.count = common.count;
                histogram.sum = common.sum.unwrap_or_default();
            }
        }
        if self.metric.is_delta {
            histogram.reset_hint = ResetHint::Gauge;
        }
        let histogram = Histogram::from_integer_deltas(histogram);
        let histogram = histogram.map_err(|error| Reason::from(error.to_string()))?;
        let series = self.series(Part::Whole, b"")?;
        self.writer
            .histogram(series, times.millis, &histogram, times.start)?;
        self.stored(series, times);
        Ok((series, times))
    }

    fn summary(&mut self, message: &'a [u8]) -> Read<Written> {
        let (mut common, mut quantiles) = (Common::default(), Vec::new());
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            match number {
                2 => common.start = payload.fixed64()?,
                3 => common.time = payload.fixed64()?,
                4 => common.count = payload.fixed64()?,
                5 => common.sum = Some(payload.double()?),
                6 if quantiles.len() <= QUANTILES_MAX => quantiles.push(quantile(payload.bytes()?)?),
                7 => self.take_attribute(payload)?,
                8 => common.flags = payload.varint()?,
                _ => {}
            }
        }
        if let Err(reason) = self.set_labels()? {
            return Ok(Err(reason));
        }
        if quantiles.len() > QUANTILES_MAX {
            return Ok(Err(too_large(
                "list of quantiles",
                quantiles.len(),
                QUANTILES_MAX,
            )));
        }
        Ok(common
            .times()
            .and_then(|times| self.write_summary(&common, &quantiles, times)))
    }

    fn write_summary(&mut self, common: &Common, quantiles: &[(f64, f64)], times: Times) -> Written {
        let mut label = Vec::new();
        for (quantile, value) in quantiles {
            label.clear();
            labels::push(b"quantile", decimal(*quantile).as_bytes(), &mut label);
            self.sample(Part::Whole, &label, common.value(*value), times)?;
        }
        let sum = common.value(common.sum.unwrap_or_default());
        self.sample(Part::Sum, b"", sum, times)?;
        let count = common.value(common.count as f64);
        let series = self.sample(Part::Count, b"", count, times)?;
        self.stored(series, times);
        Ok(())
    }

    /// Decodes `Exemplar { 2: fixed64 time, 3: double, 4: bytes span_id, 5: bytes trace_id, 6: sfixed64, 7: KeyValue*
    /// }` into the text under construction. Returns the value (or the reason to reject the exemplar) and the time in
    /// milliseconds; the time is 0 if it is missing.
    fn read_exemplar(&mut self, message: &'a [u8]) -> Read<(Result<f64, Reason>, i64)> {
        let (mut value, mut nanos) = (Err(Reason::from("an exemplar has no value")), 0);
        let (mut span, mut trace) = (&b""[..], &b""[..]);
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            match number {
                2 => nanos = payload.fixed64()?,
                3 => value = Ok(payload.double()?),
                4 => span = payload.bytes()?,
                5 => trace = payload.bytes()?,
                6 => value = Ok(payload.fixed64()?.cast_signed() as f64),
                _ => {}
            }
        }
        let millis = (nanos / NANOS_PER_MILLISECOND).cast_signed();
        let text = &mut self.exemplar;
        text.start();
        let mut chars = 0;
        for ((name, length), id) in [(TRACE_ID, trace), (SPAN_ID, span)] {
            if id.iter().all(|byte| *byte == 0) {
                continue;
            }
            if id.len() != length {
                let reason = format!(
                    "{name} of an exemplar must have {length} bytes, actual {}",
                    id.len()
                );
                return Ok((Err(reason.into()), millis));
            }
            let hexadecimal: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
            text.label(name.as_bytes(), hexadecimal.as_bytes());
            chars += name.len() + hexadecimal.len();
        }
        let mut further = Vec::new();
        for attribute in attributes::list(message, 7)? {
            let (key, mut text) = (attribute.key_text(), Vec::new());
            let is_id = [TRACE_ID.0, SPAN_ID.0].iter().any(|id| id.as_bytes() == key);
            if let (false, Ok(())) = (is_id, any_value::push_text(attribute.value, &mut text)?) {
                let count = |text: &[u8]| text.iter().filter(|byte| **byte & 0xc0 != 0x80).count();
                chars += count(key) + count(&text);
                further.push((key, text));
            }
        }
        if chars <= EXEMPLAR_CHARS_MAX {
            further.sort();
            further.dedup_by(|later, earlier| later.0 == earlier.0);
            for (key, value) in &further {
                text.label(key, value);
            }
        }
        Ok((value, millis))
    }

    /// Stores the exemplar that was read last. An exemplar that cannot be stored does not reject its data point.
    fn put_exemplar(&mut self, series: Series, value: Result<f64, Reason>, millis: i64, times: Times) {
        let millis = if millis == 0 { times.millis } else { millis };
        let written = value
            .and_then(|value| self.exemplar.finish(value))
            .and_then(|text| self.writer.exemplar(series, millis, text));
        if let Err(reason) = written {
            self.writer.reject_kind(SampleKind::Exemplar, reason, &self.key);
        }
    }
}

impl Buckets {
    /// Checks bounds and counts. A last bound of `+Inf`, which some senders write, is removed. Without counts, all
    /// bounds are removed.
    ///
    /// The counts must not sum to more than the count of the point, which is the value of the bucket `+Inf`. A smaller
    /// sum, which OTLP forbids too, is accepted as in Prometheus: the classic series still rise.
    fn check(&mut self, common: &Common) -> Written {
        let Self { bounds, counts, .. } = self;
        if bounds.len() > BUCKETS_MAX || counts.len() > BUCKETS_MAX {
            return Err(format!("histogram too large: limit {BUCKETS_MAX} buckets").into());
        }
        let sum = counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
        if sum > common.count && !common.is_stale() {
            return Err(format!(
                "the bucket counts of a histogram sum to {sum}, which is more than its count {}",
                common.count
            )
            .into());
        }
        if counts.is_empty() {
            bounds.clear();
        } else if bounds.last() == Some(&f64::INFINITY) {
            bounds.pop();
            // The bucket above the removed bound `+Inf` is empty or missing.
            if counts.len() > bounds.len() + 1 {
                counts.truncate(bounds.len() + 1);
            }
        }
        if !counts.is_empty() && counts.len() != bounds.len() + 1 {
            return Err(format!(
                "a histogram with {} bounds must have {} bucket counts, actual {}",
                bounds.len(),
                bounds.len() + 1,
                counts.len()
            )
            .into());
        }
        match bounds.is_sorted_by(|one, next| one < next) && !bounds.iter().any(|bound| bound.is_nan()) {
            true => Ok(()),
            false => Err("the bounds of a histogram must rise".into()),
        }
    }

    /// Encodes the labels of all buckets, unless the bounds are those of the previous histogram.
    fn label(&mut self) {
        let is_same = self.bounds.len() == self.labelled.len()
            && !self.ends.is_empty()
            && self
                .bounds
                .iter()
                .zip(&self.labelled)
                .all(|(one, other)| one.to_bits() == other.to_bits());
        if is_same {
            return;
        }
        self.labelled.clone_from(&self.bounds);
        self.labels.clear();
        self.ends.clear();
        let bounds = self.bounds.iter().map(|bound| decimal(*bound));
        for bound in bounds.chain(["+Inf".to_owned()]) {
            labels::push(b"le", bound.as_bytes(), &mut self.labels);
            self.ends.push(self.labels.len());
        }
    }
}

/// Decodes `ValueAtQuantile { 1: double quantile, 2: double value }`.
fn quantile(message: &[u8]) -> Read<(f64, f64)> {
    let (mut quantile, mut value) = (0.0, 0.0);
    let mut fields = Fields::new(message);
    while let Some((number, payload)) = fields.next()? {
        match number {
            1 => quantile = payload.double()?,
            2 => value = payload.double()?,
            _ => {}
        }
    }
    Ok((quantile, value))
}

/// Formats a bound or quantile with the fewest digits and without an exponent, as Prometheus formats it.
fn decimal(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    number.to_string()
}
