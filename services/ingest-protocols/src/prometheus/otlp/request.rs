//! Resources, scopes and metrics of a request, and `target_info`.
//!
//! The fields of a message may have any order, so each message is read twice: first for the fields that apply to all of
//! its parts, then part by part. `target_info` has the attributes of a resource as labels. Its samples fill the time
//! range of the stored points of the resource, so that a query finds one near every point. Their number per resource is
//! limited; only the last part of a longer time range is filled.

use hashbrown::HashSet;
use tideline_model::{Ordinal, SeriesResolver};

use super::super::decoded::{DecodedSamples, SampleKind};
use super::super::exemplar::ExemplarText;
use super::super::labels::{self, METRIC_NAME};
use super::super::metadata::KnownMetadata;
use super::super::samples::{SampleWriter, Series};
use super::super::wire::{Fields, Payload, Read};
use super::attributes::{self, Attribute, Labels};
use super::metric_name::{self, NameKind};
use super::settings::{DeltaTemporality, OtlpSettings};
use crate::options::DecodeOptions;
use crate::reject::{Reason, quote};

/// Maximum total size of the keys of all series of one request, in bytes. The labels of a resource are part of the key
/// of each of its points. Without a limit, the decoding of a crafted body would take minutes.
const KEYS_BYTES_MAX: usize = 1 << 30;
/// Expected bytes of the body per row.
const ROW_BYTES: usize = 96;
/// Maximum number of `target_info` samples of one resource, in addition to its last sample. At the default interval
/// they fill 42 hours.
const TARGET_SAMPLES_MAX: i64 = 1_024;
/// Number of `target_info` samples of one request above which each further resource gets only its last sample.
const TARGET_SAMPLES_OF_ALL_MAX: usize = 1 << 16;
const TARGET_INFO: &str = "target_info";
const DELTA: u64 = 1;
const CUMULATIVE: u64 = 2;

/// Decodes a request.
pub(super) fn read(
    body: &[u8],
    settings: &OtlpSettings,
    options: &DecodeOptions,
    resolver: &mut impl SeriesResolver,
    is_known: &KnownMetadata<'_>,
) -> Read<DecodedSamples> {
    // Checks that the outermost message is complete.
    super::super::count_messages(body, 1)?;
    let mut request = Request {
        writer: SampleWriter::new(body.len(), body.len() / ROW_BYTES, options, resolver),
        labels: Labels::new(settings),
        settings,
        is_known,
        metric: Metric::default(),
        described: Vec::new(),
        key: Vec::new(),
        key_bytes: 0,
        attributes: Vec::new(),
        exemplars: Vec::new(),
        exemplar: ExemplarText::default(),
        buckets: Default::default(),
        stored: None,
        targets: HashSet::new(),
        points: 0,
        unlisted_points: 0,
        unread_points: 0,
        is_full: false,
    };
    let mut fields = Fields::new(body);
    while let Some((number, payload)) = fields.next()? {
        if number == 1 {
            request.resource(payload.bytes()?)?;
        }
    }
    Ok(request.finish())
}

/// Part of a metric. Each part has a separate series name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The metric itself.
    Whole = 0,
    Bucket = 1,
    Count = 2,
    Sum = 3,
}

/// Name of a series, and the same name as an encoded label.
#[derive(Debug, Default)]
pub(super) struct SeriesName {
    pub(super) text: String,
    pub(super) label: Vec<u8>,
}

/// Metric whose data points are being read.
#[derive(Debug, Default)]
pub(super) struct Metric<'a> {
    /// Translated name of the metric.
    family: String,
    /// Names of the series, indexed by [`Part`].
    pub(super) names: [SeriesName; 4],
    /// Metric type in the metadata.
    kind: &'static str,
    help: &'a str,
    unit: &'a str,
    pub(super) is_delta: bool,
    /// True if the metadata of the metric was handled.
    is_described: bool,
}

/// State of decoding one request.
pub(super) struct Request<'a, 'r, 's, R> {
    pub(super) writer: SampleWriter<'r, R>,
    pub(super) labels: Labels<'s>,
    pub(super) settings: &'s OtlpSettings,
    is_known: &'s KnownMetadata<'s>,
    pub(super) metric: Metric<'a>,
    /// Last handled metadata (type, help, unit), by index of the metric name.
    described: Vec<Option<(&'static str, &'a str, &'a str)>>,
    /// Key of the current series.
    pub(super) key: Vec<u8>,
    /// Total bytes of all keys so far.
    pub(super) key_bytes: usize,
    /// Attributes of the current data point.
    pub(super) attributes: Vec<Attribute<'a>>,
    /// Exemplars of the current data point.
    pub(super) exemplars: Vec<&'a [u8]>,
    pub(super) exemplar: ExemplarText,
    pub(super) buckets: super::points::Buckets,
    /// First and last timestamp of the stored points of the current resource, in milliseconds.
    pub(super) stored: Option<(i64, i64)>,
    /// Samples of `target_info` stored so far. Several resources of a request may be equal; their samples are stored
    /// once.
    targets: HashSet<(Ordinal, i64)>,
    /// Number of data points of the request.
    points: u64,
    /// Number of rejected data points that no reject lists individually.
    unlisted_points: u64,
    /// Number of data points that were not read because a limit was reached.
    unread_points: u64,
    /// True if a limit is reached.
    pub(super) is_full: bool,
}

impl<'a, R: SeriesResolver> Request<'a, '_, '_, R> {
    fn finish(mut self) -> DecodedSamples {
        if self.unread_points > 0 {
            self.writer.close_point();
            self.writer
                .reject_unread(usize::try_from(self.unread_points).unwrap_or(usize::MAX));
            // The reject itself counts as one of the unread points.
            self.unlisted_points += self.unread_points - 1;
        }
        let (points, unlisted_points) = (self.points, self.unlisted_points);
        DecodedSamples {
            points,
            unlisted_points,
            ..self.writer.finish()
        }
    }

    fn resource(&mut self, message: &'a [u8]) -> Read<()> {
        let mut list = Vec::new();
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            if number == 1 {
                list = attributes::list(payload.bytes()?, 1)?;
            }
        }
        let refused = self.labels.set_resource(&list)?.err();
        self.stored = None;
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            if number == 2 {
                self.scope(payload.bytes()?, refused.as_ref())?;
            }
        }
        match self.stored {
            Some((first, last)) if !self.is_full => self.target_info(&list, first, last),
            _ => Ok(()),
        }
    }

    fn scope(&mut self, message: &'a [u8], refused: Option<&Reason>) -> Read<()> {
        let (mut scope, mut schema) = (&b""[..], &b""[..]);
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            match number {
                1 => scope = payload.bytes()?,
                3 => schema = payload.bytes()?,
                _ => {}
            }
        }
        let (mut name, mut version) = (&b""[..], &b""[..]);
        let mut fields = Fields::new(scope);
        while let Some((number, payload)) = fields.next()? {
            match number {
                1 => name = payload.bytes()?,
                2 => version = payload.bytes()?,
                _ => {}
            }
        }
        let list = attributes::list(scope, 3)?;
        let own = self.labels.set_scope(name, version, schema, &list)?.err();
        let refused = refused.or(own.as_ref());
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            if number == 2 {
                self.metric(payload.bytes()?, refused)?;
            }
        }
        Ok(())
    }

    fn metric(&mut self, message: &'a [u8], refused: Option<&Reason>) -> Read<()> {
        let (mut name, mut help, mut unit, mut data) = (&b""[..], &b""[..], &b""[..], None);
        let mut fields = Fields::new(message);
        while let Some((number, payload)) = fields.next()? {
            match number {
                1 => name = payload.bytes()?,
                2 => help = payload.bytes()?,
                3 => unit = payload.bytes()?,
                5 | 7 | 9 | 10 | 11 => data = Some((number, payload.bytes()?)),
                _ => {}
            }
        }
        let Some((kind, data)) = data else { return Ok(()) };
        let (mut points, mut temporality, mut is_monotonic) = (0_u64, 0, false);
        let mut fields = Fields::new(data);
        while let Some((number, payload)) = fields.next()? {
            match number {
                1 => points += u64::from(matches!(payload, Payload::Bytes(_))),
                2 if matches!(kind, 7 | 9 | 10) => temporality = payload.varint()?,
                3 if kind == 7 => is_monotonic = payload.varint()? != 0,
                _ => {}
            }
        }
        self.points += points;
        if points == 0 {
            return Ok(());
        }
        if self.is_full {
            self.unread_points += points;
            return Ok(());
        }
        let begun = match refused {
            Some(reason) => Err(reason.clone()),
            None => self.begin_metric(name, help, unit, kind, (temporality, is_monotonic)),
        };
        if let Err(reason) = begun {
            self.reject_all(reason, name, points);
            return Ok(());
        }
        let mut left = points;
        let mut fields = Fields::new(data);
        while let Some((number, payload)) = fields.next()? {
            let (1, Payload::Bytes(point)) = (number, payload) else {
                continue;
            };
            left -= 1;
            self.point(kind, point)?;
            if self.is_full {
                self.unread_points += left;
                break;
            }
        }
        Ok(())
    }

    /// Rejects all data points of a metric with one reject.
    fn reject_all(&mut self, reason: Reason, name: &[u8], points: u64) {
        self.key.clear();
        labels::push(METRIC_NAME, name, &mut self.key);
        self.writer.open_point();
        self.writer.reject_kind(SampleKind::Sample, reason, &self.key);
        self.unlisted_points += points - 1;
        self.is_full = self.writer.is_full();
    }

    /// Checks a metric and prepares the names of its series.
    fn begin_metric(
        &mut self,
        name: &'a [u8],
        help: &'a [u8],
        unit: &'a [u8],
        kind: u32,
        (temporality, is_monotonic): (u64, bool),
    ) -> Result<(), Reason> {
        let text = |bytes: &'a [u8], what: &str| {
            std::str::from_utf8(bytes)
                .map_err(|_| Reason::from(format!("invalid UTF-8 in the {what} {}", quote(bytes))))
        };
        let (name, unit) = (text(name, "metric name")?, text(unit, "unit")?);
        let help = text(help, "description")?;
        let has_temporality = matches!(kind, 7 | 9 | 10);
        let is_delta = has_temporality && temporality == DELTA;
        if has_temporality && !matches!(temporality, DELTA | CUMULATIVE) {
            return Err("the metric has no valid aggregation temporality".into());
        }
        if is_delta && self.settings.delta_temporality == DeltaTemporality::Refuse {
            return Err(
                "the metric has delta temporality: let the sender use cumulative temporality, or set \
                 otlp.delta_temporality = \"store\""
                    .into(),
            );
        }
        let name_kind = match kind {
            5 => NameKind::Gauge,
            7 if is_monotonic => NameKind::Counter,
            _ => NameKind::Other,
        };
        let metric = &mut self.metric;
        let strategy = self.settings.translation_strategy;
        metric_name::translate(name, unit, name_kind, strategy, &mut metric.family)?;
        let has_parts = kind == 11 || (kind == 9 && !self.settings.convert_histograms_to_nhcb);
        let suffixes = ["", "_bucket", "_count", "_sum"];
        let count = if has_parts { suffixes.len() } else { 1 };
        for (name, suffix) in metric.names.iter_mut().zip(suffixes).take(count) {
            name.text.clear();
            name.text.push_str(&metric.family);
            name.text.push_str(suffix);
            name.label.clear();
            labels::push(METRIC_NAME, name.text.as_bytes(), &mut name.label);
        }
        metric.kind = match kind {
            _ if is_delta => "unknown",
            7 if is_monotonic => "counter",
            5 | 7 => "gauge",
            11 => "summary",
            _ => "histogram",
        };
        (metric.help, metric.unit, metric.is_delta) = (help, unit, is_delta);
        metric.is_described = false;
        Ok(())
    }

    /// Stores the metadata of the current metric once, after the first row of one of its series.
    #[inline]
    pub(super) fn describe(&mut self, series: Series) {
        if !self.metric.is_described {
            self.metric.is_described = true;
            self.describe_series(series);
        }
    }

    fn describe_series(&mut self, series: Series) {
        let Metric {
            family,
            kind,
            help,
            unit,
            ..
        } = &self.metric;
        let (_, number) = self.writer.name(series);
        if self.described.len() <= number {
            self.described.resize(number + 1, None);
        }
        let description = Some((*kind, *help, *unit));
        if self.described[number] == description {
            return;
        }
        self.described[number] = description;
        let unit = metric_name::translate_unit(unit);
        if !(self.is_known)(family, kind, help, &unit) {
            self.writer.metadata.set(family, kind, help, &unit);
        }
    }

    /// Stores samples of `target_info` from the first to the last point of a resource; only the last part of the time
    /// range if it is longer than [`TARGET_SAMPLES_MAX`] intervals.
    fn target_info(&mut self, list: &[Attribute<'_>], first: i64, last: i64) -> Read<()> {
        self.writer.close_point();
        self.key.clear();
        labels::push(METRIC_NAME, TARGET_INFO.as_bytes(), &mut self.key);
        let written = match self.labels.set_target(list)? {
            Ok(false) => return Ok(()),
            Ok(true) => self.target_samples(first, last),
            Err(reason) => Err(reason),
        };
        if let Err(reason) = written {
            self.writer.allow_row();
            self.writer.reject_kind(SampleKind::Target, reason, &self.key);
        }
        self.is_full = self.writer.is_full();
        Ok(())
    }

    fn target_samples(&mut self, first: i64, last: i64) -> Result<(), Reason> {
        self.key.extend_from_slice(&self.labels.encoded);
        self.key_bytes += self.key.len();
        let series = self.writer.series(&self.key)?;
        let interval = i64::try_from(self.settings.target_info_interval.as_millis());
        let interval = interval.unwrap_or(i64::MAX).max(1);
        let mut at = match self.targets.len() > TARGET_SAMPLES_OF_ALL_MAX {
            true => last,
            false => first.max(last.saturating_sub(interval.saturating_mul(TARGET_SAMPLES_MAX))),
        };
        loop {
            if self.targets.insert((SampleWriter::<R>::timeline(series), at)) {
                self.writer.allow_row();
                self.writer
                    .number_of_kind(series, at, 1.0, None, SampleKind::Target)?;
            }
            if at >= last {
                break;
            }
            at = at.saturating_add(interval).min(last);
        }
        if !(self.is_known)(TARGET_INFO, "gauge", "Target metadata", "") {
            self.writer
                .metadata
                .set(TARGET_INFO, "gauge", "Target metadata", "");
        }
        Ok(())
    }

    /// Returns true if a limit of rows, rejects or key bytes is reached.
    pub(super) fn reaches_limit(&self) -> bool {
        self.writer.is_full() || self.key_bytes > KEYS_BYTES_MAX
    }
}
