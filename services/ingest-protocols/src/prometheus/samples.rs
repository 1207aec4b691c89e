//! Collection of samples into a batch, shared by all Prometheus formats.
//!
//! Rows have five shapes: float samples and native histograms, each with or without a start timestamp, and exemplars.
//! Each shape is one group for all metric names, because a typical request has hundreds of names with a few series
//! each. A name costs one lookup per series, and none if the previous series has the same name.
//!
//! Each sample, histogram and exemplar has a separate number, the `line` of its row. From the rejected lines the caller
//! computes how many rows of each kind were stored. In formats with data points of several rows, the samples and
//! histograms of a data point have the same line; see [`SampleWriter::open_point`].

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use tideline_histogram::Histogram;
use tideline_model::{ColumnData, Ordinal, PointBatch, PointGroup, SeriesResolver, Timestamp};

use super::decoded::{DecodedSamples, SampleCounts, SampleKind};
use super::group::{NONE, OpenGroup, SHAPES, Shape, push_start};
use super::labels;
use super::metadata::{KnownMetadata, MetadataList, family};
use crate::options::DecodeOptions;
use crate::reject::{Reason, Rejects};

const NANOS_PER_MILLISECOND: i64 = 1_000_000;

/// Number of bytes of the body for each allowed item (row or reject). A value with its timestamp takes at least nine
/// bytes. Only a body of empty samples, crafted to exhaust the memory, has fewer bytes per item.
const ITEM_BYTES_MIN: usize = 8;
/// Number of items allowed in addition, regardless of the size of the body.
const ITEMS_FREE: usize = 16;

/// Number of stored bytes of histograms allowed per byte of the body. Integer counts take about the same space in the
/// message and in storage. Only histograms crafted to exhaust the memory become eight times as large, because they are
/// stored as doubles.
const HISTOGRAM_BYTES_MAX: usize = 2;
/// Number of stored bytes of histograms allowed in addition, regardless of the size of the body.
const HISTOGRAM_BYTES_FREE: usize = 64 << 10;

/// Reject reason of an item over the limit for the size of the body.
const TOO_MANY_ITEMS: &str = "too many samples for the size of the request";

/// Maximum number of bytes of a text line that a reject shows; a longer line is truncated.
const EXCERPT_BYTES: usize = 100;

/// Metric name, with its index in each group.
#[derive(Debug)]
struct Name {
    text: Box<str>,
    indices: [u32; SHAPES],
}

/// Handle of a resolved series, to which samples can be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Series {
    timeline: Ordinal,
    name: u32,
}

/// Writer that collects samples into a batch.
#[derive(Debug)]
pub(crate) struct SampleWriter<'r, R> {
    resolver: &'r mut R,
    /// Groups in the order in which they were opened.
    groups: Vec<OpenGroup>,
    /// Index of the group of each shape; [`NONE`] if it was not opened.
    group_of_shape: [u32; SHAPES],
    name_limit: usize,
    /// Indexes into `names` by name.
    by_name: HashTable<u32>,
    hasher: DefaultHashBuilder,
    names: Vec<Name>,
    /// Index of the name of the previous series.
    last_name: u32,
    rejects: Rejects,
    pub(crate) metadata: MetadataList,
    counts: SampleCounts,
    kinds: Vec<(u32, SampleKind)>,
    /// Number of rows and rejects.
    items: u32,
    /// Line of the last row or reject. Equal to `items` in formats without data points.
    line: u32,
    /// True if further rows and rejects belong to the data point with the number `line`.
    is_point_open: bool,
    /// Estimated number of items in the body.
    items_expected: usize,
    /// Maximum number of rows and rejects of the body.
    row_limit: usize,
    /// Buffer for the stored bytes of a histogram, to check their size before they are added.
    histogram: Vec<u8>,
    /// Remaining bytes for further histograms.
    histogram_bytes: usize,
}

impl<'r, R: SeriesResolver> SampleWriter<'r, R> {
    /// Creates a writer for a body of `body_bytes`. `items_expected` is the estimated number of items; 0 if it is
    /// unknown.
    pub(crate) fn new(
        body_bytes: usize,
        items_expected: usize,
        options: &DecodeOptions,
        resolver: &'r mut R,
    ) -> Self {
        Self {
            resolver,
            groups: Vec::new(),
            group_of_shape: [NONE; SHAPES],
            name_limit: options.limits.shapes,
            by_name: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            names: Vec::new(),
            last_name: 0,
            rejects: Rejects::new(options.limits.rejects),
            metadata: MetadataList::default(),
            counts: SampleCounts::default(),
            kinds: Vec::new(),
            items: 0,
            line: 0,
            is_point_open: false,
            items_expected,
            row_limit: body_bytes / ITEM_BYTES_MIN + ITEMS_FREE,
            histogram: Vec::new(),
            histogram_bytes: body_bytes.saturating_mul(HISTOGRAM_BYTES_MAX) + HISTOGRAM_BYTES_FREE,
        }
    }

    /// Begins a data point: until [`Self::close_point`], rows and rejects get one common line.
    pub(crate) fn open_point(&mut self) {
        self.line = self.line.saturating_add(1);
        self.is_point_open = true;
    }

    /// Raises the row limit by one, for a row that the decoder adds and that is not in the body. The decoder limits the
    /// number of such rows.
    pub(crate) fn allow_row(&mut self) {
        self.row_limit = self.row_limit.saturating_add(1);
    }

    /// Ends the current data point. Each further row or reject has a separate line again.
    pub(crate) fn close_point(&mut self) {
        self.is_point_open = false;
    }

    pub(crate) fn finish(self) -> DecodedSamples {
        DecodedSamples {
            batch: PointBatch {
                groups: self.groups.into_iter().map(OpenGroup::close).collect(),
                rejects: self.rejects.stored,
            },
            metadata: self.metadata.into_list(),
            counts: self.counts,
            kinds: self.kinds,
            points: 0,
            unlisted_points: 0,
        }
    }

    /// Resolves the series of a key, see [`labels`]; returns the reject reason if that fails.
    pub(crate) fn series(&mut self, key: &[u8]) -> Result<Series, Reason> {
        let timeline = self.resolver.resolve(key)?;
        self.named(timeline, key)
    }

    /// Returns the series that the resolver guesses as the next one, and the length of its key. Returns `None` unless
    /// `message` begins with that key and no label follows.
    pub(crate) fn expected(&mut self, message: &[u8]) -> Option<(Series, usize)> {
        let mut length = 0;
        let timeline = self.resolver.guess(|key| {
            length = key.len();
            message.starts_with(key)
        })?;
        if message.get(length) == Some(&labels::LABEL) {
            return None;
        }
        let series = self.named(timeline, &message[..length]).ok()?;
        Some((series, length))
    }

    /// Returns the series that the resolver guesses as the next one, if `is_it` returns true for its key; otherwise
    /// `None`. `metric` is the metric name of that series.
    pub(crate) fn expected_of(&mut self, metric: &[u8], is_it: impl FnOnce(&[u8]) -> bool) -> Option<Series> {
        let timeline = self.resolver.guess(is_it)?;
        self.of_metric(timeline, metric).ok()
    }

    fn named(&mut self, timeline: Ordinal, key: &[u8]) -> Result<Series, Reason> {
        let metric = labels::metric_name(key).ok_or("the metric has no name (label \"__name__\")")?;
        self.of_metric(timeline, metric)
    }

    fn of_metric(&mut self, timeline: Ordinal, metric: &[u8]) -> Result<Series, Reason> {
        let last = self.names.get(self.last_name as usize);
        if last.is_none_or(|last| last.text.as_bytes() != metric) {
            let hash = self.hasher.hash_one(metric);
            let known = self.by_name.find(hash, |index| {
                self.names[*index as usize].text.as_bytes() == metric
            });
            self.last_name = match known {
                Some(known) => *known,
                None => self.add_name(metric, hash)?,
            };
        }
        Ok(Series {
            timeline,
            name: self.last_name,
        })
    }

    fn add_name(&mut self, name: &[u8], hash: u64) -> Result<u32, Reason> {
        if self.names.len() >= self.name_limit {
            return Err(format!(
                "too many different metrics in one request (limit {})",
                self.name_limit
            )
            .into());
        }
        let text = std::str::from_utf8(name).map_err(|_| "invalid UTF-8 in label value")?;
        let index = self.names.len() as u32;
        self.names.push(Name {
            text: text.into(),
            indices: [NONE; SHAPES],
        });
        let (names, hasher) = (&self.names, &self.hasher);
        self.by_name.insert_unique(hash, index, |index| {
            hasher.hash_one(names[*index as usize].text.as_bytes())
        });
        Ok(index)
    }

    /// Returns the metric name of a series and the index of that name in this body.
    pub(crate) fn name(&self, series: Series) -> (&str, usize) {
        let number = series.name as usize;
        (&self.names[number].text, number)
    }

    /// Stores metadata of the family of a series, unless it is already known.
    pub(crate) fn describe(
        &mut self,
        series: Series,
        (kind, help, unit): (&'static str, &str, &str),
        is_known: &KnownMetadata<'_>,
    ) {
        let family = family(&self.names[series.name as usize].text, kind);
        if !is_known(family, kind, help, unit) {
            self.metadata.set(family, kind, help, unit);
        }
    }

    /// Returns the timeline of a series.
    pub(crate) fn timeline(series: Series) -> Ordinal {
        series.timeline
    }

    /// Appends a float sample. `millis` is the timestamp and `start` the optional start timestamp, both in milliseconds
    /// since the epoch.
    #[inline]
    pub(crate) fn number(
        &mut self,
        series: Series,
        millis: i64,
        value: f64,
        start: Option<i64>,
    ) -> Result<(), Reason> {
        self.number_of_kind(series, millis, value, start, SampleKind::Sample)
    }

    /// Appends a float sample that is counted as `kind`.
    #[inline]
    pub(crate) fn number_of_kind(
        &mut self,
        series: Series,
        millis: i64,
        value: f64,
        start: Option<i64>,
        kind: SampleKind,
    ) -> Result<(), Reason> {
        let nanos = self.admit(millis)?;
        let shape = match start {
            None => Shape::Number,
            Some(_) => Shape::NumberStart,
        };
        let group = self.start_row(series, shape, nanos, kind);
        if let Some(ColumnData::Float(values)) = group.columns.first_mut() {
            values.push(value);
        }
        push_start(group, start);
        Ok(())
    }

    /// Appends a native histogram.
    pub(crate) fn histogram(
        &mut self,
        series: Series,
        millis: i64,
        histogram: &Histogram,
        start: Option<i64>,
    ) -> Result<(), Reason> {
        let nanos = self.admit(millis)?;
        let mut stored = std::mem::take(&mut self.histogram);
        stored.clear();
        histogram.to_bytes(&mut stored);
        let written = self.stored_histogram(series, nanos, &stored, start);
        self.histogram = stored;
        written
    }

    fn stored_histogram(
        &mut self,
        series: Series,
        nanos: i64,
        stored: &[u8],
        start: Option<i64>,
    ) -> Result<(), Reason> {
        let left = self.histogram_bytes.checked_sub(stored.len());
        self.histogram_bytes = left.ok_or("histograms too large for the size of the request")?;
        let shape = match start {
            None => Shape::Histogram,
            Some(_) => Shape::HistogramStart,
        };
        let group = self.start_row(series, shape, nanos, SampleKind::Histogram);
        if let Some(ColumnData::Histogram(histograms)) = group.columns.first_mut() {
            histograms.push(stored);
        }
        push_start(group, start);
        Ok(())
    }

    /// Appends an exemplar in its stored text form.
    pub(crate) fn exemplar(&mut self, series: Series, millis: i64, text: &str) -> Result<(), Reason> {
        let nanos = self.admit(millis)?;
        let group = self.start_row(series, Shape::Exemplar, nanos, SampleKind::Exemplar);
        if let Some(ColumnData::String(texts)) = group.columns.first_mut() {
            texts.push(text);
        }
        Ok(())
    }

    /// Returns the timestamp of a new row in nanoseconds; fails if the body has too many rows or the timestamp is out
    /// of range.
    #[inline]
    fn admit(&self, millis: i64) -> Result<i64, Reason> {
        if self.rows_left() == 0 {
            return Err(TOO_MANY_ITEMS.into());
        }
        let nanos = millis.checked_mul(NANOS_PER_MILLISECOND);
        match nanos.map(Timestamp::from_nanos) {
            Some(Ok(instant)) => Ok(instant.nanos()),
            _ => Err(format!("time {millis} ms is out of range").into()),
        }
    }

    /// Returns the number of rows and rejects that the body may still have.
    #[inline]
    fn rows_left(&self) -> usize {
        self.row_limit.saturating_sub(self.items as usize)
    }

    /// Starts a row in its group; the caller appends the values.
    #[inline]
    fn start_row(&mut self, series: Series, shape: Shape, nanos: i64, kind: SampleKind) -> &mut PointGroup {
        let rows_left = self.rows_left();
        let line = self.next_line();
        *self.counts.of(kind) += 1;
        self.note_kind(line, kind);
        let at = &mut self.group_of_shape[shape as usize];
        if *at == NONE {
            *at = self.groups.len() as u32;
            self.groups.push(OpenGroup::new(shape));
        }
        let group = &mut self.groups[*at as usize];
        if group.rows.timelines.len() == group.rows.timelines.capacity() {
            group.make_room(self.items_expected, rows_left);
        }
        let Name { text, indices } = &mut self.names[series.name as usize];
        group.name_row(text, &mut indices[shape as usize]);
        let rows = &mut group.rows;
        rows.timelines.push(series.timeline);
        rows.timestamps.push(nanos);
        rows.lines.push(line);
        rows
    }

    /// Returns the line of the next row or reject.
    #[inline]
    fn next_line(&mut self) -> u32 {
        self.items = self.items.saturating_add(1);
        if !self.is_point_open {
            self.line = self.line.saturating_add(1);
        }
        self.line
    }

    #[inline]
    fn note_kind(&mut self, line: u32, kind: SampleKind) {
        if self.kinds.last().is_none_or(|(_, last)| *last != kind) {
            self.kinds.push((line, kind));
        }
    }

    /// Adds a reject for a row of the given kind.
    pub(crate) fn reject_kind(&mut self, kind: SampleKind, reason: Reason, key: &[u8]) {
        let line = self.next_line();
        self.note_kind(line, kind);
        self.rejects.push(line, reason, labels::shown(key).as_bytes());
    }

    /// Adds a reject; returns `false` if reading must stop.
    pub(crate) fn reject(&mut self, reason: Reason, key: &[u8]) -> bool {
        let line = self.next_line();
        self.rejects.push(line, reason, labels::shown(key).as_bytes());
        !self.is_full()
    }

    /// Adds a reject for a line of text with its number; returns `false` if reading must stop.
    pub(crate) fn reject_line(&mut self, number: usize, reason: Reason, text: &[u8]) -> bool {
        let line = self.next_line();
        let mut excerpt = format!("line {number}: ").into_bytes();
        excerpt.extend_from_slice(&text[..text.len().min(EXCERPT_BYTES)]);
        self.rejects.push(line, reason, &excerpt);
        !self.is_full()
    }

    /// Returns true if no more rows or no more rejects can be stored.
    pub(crate) fn is_full(&self) -> bool {
        self.rejects.is_full() || self.rows_left() == 0
    }

    /// Adds a reject which reports that `unread` lines, series, metrics or data points were not read, because the limit
    /// of rows, rejects or key bytes is reached.
    pub(crate) fn reject_unread(&mut self, unread: usize) {
        let line = self.next_line();
        if self.rejects.is_full() {
            self.rejects.push_unread(line, unread);
            return;
        }
        let cause = match self.rows_left() {
            0 => TOO_MANY_ITEMS,
            _ => "the labels of all series are too large for one request",
        };
        self.rejects.push_unread_for(cause, line, unread);
    }
}
