//! Samples gathered into a batch while a body is read, whatever form it has.
//!
//! There are five shapes: numbers and native histograms, either with or without the time at which they started to count,
//! and exemplars. Each is one group, whatever the names of its metrics: a real request has hundreds of them, with a few
//! series each. A name is found by one lookup for each series, and not at all where the series before had the same.
//!
//! Each sample, histogram and exemplar has a number of its own, as the `line` of its row: that is how the writer of a
//! request learns how many of each kind were stored when some were not.

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

/// Bytes of the body for each item that it may have. A number with its time takes nine and more; only bodies made to
/// fill the memory, of numbers without either, have less.
const ITEM_BYTES_MIN: usize = 8;
/// Items that a body may have however short it is.
const ITEMS_FREE: usize = 16;

/// Stored bytes of the histograms of a body for each of its bytes. What whole counts take in a message they take here,
/// about; only such that are made to fill the memory become eight times as large, as doubles.
const HISTOGRAM_BYTES_MAX: usize = 2;
/// Stored bytes of histograms that a body may have however short it is.
const HISTOGRAM_BYTES_FREE: usize = 64 << 10;

/// Why an item beyond those that the body may have is not stored.
const TOO_MANY_ITEMS: &str = "too many samples for the size of the request";

/// Bytes of a line of text that a reject shows.
const EXCERPT_BYTES: usize = 100;

/// A name, and its place among those of each group.
#[derive(Debug)]
struct Name {
    text: Box<str>,
    places: [u32; SHAPES],
}

/// A series that samples can be written to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Series {
    timeline: Ordinal,
    name: u32,
}

/// Gathers samples.
#[derive(Debug)]
pub(crate) struct SampleWriter<'r, R> {
    resolver: &'r mut R,
    /// In the order in which they were opened.
    groups: Vec<OpenGroup>,
    /// The place of each shape's group.
    group_of_shape: [u32; SHAPES],
    name_limit: usize,
    /// Places in `names`.
    by_name: HashTable<u32>,
    hasher: DefaultHashBuilder,
    names: Vec<Name>,
    /// The name of the series before.
    last_name: u32,
    rejects: Rejects,
    pub(crate) metadata: MetadataList,
    counts: SampleCounts,
    kinds: Vec<(u32, SampleKind)>,
    /// The number of the last item.
    line: u32,
    /// How many items the body probably has.
    items_expected: usize,
    /// Most rows that the body may have.
    row_limit: usize,
    /// The stored bytes of a histogram, before it is known whether there is room for them.
    histogram: Vec<u8>,
    /// Stored bytes that further histograms may have.
    histogram_bytes: usize,
}

impl<'r, R: SeriesResolver> SampleWriter<'r, R> {
    /// A writer for a body of `body_bytes`, which has `items_expected` items or about so many; 0 where nothing is known.
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
            line: 0,
            items_expected,
            row_limit: body_bytes / ITEM_BYTES_MIN + ITEMS_FREE,
            histogram: Vec::new(),
            histogram_bytes: body_bytes.saturating_mul(HISTOGRAM_BYTES_MAX) + HISTOGRAM_BYTES_FREE,
        }
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
        }
    }

    /// The series that a key of [`labels`] names, or why there is none.
    pub(crate) fn series(&mut self, key: &[u8]) -> Result<Series, Reason> {
        let timeline = self.resolver.resolve(key)?;
        self.named(timeline, key)
    }

    /// The series whose labels `message` begins with, and their length, where it is the one that is expected now.
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

    /// The series of a metric that is expected now, where `is_it` says so of its key.
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
            let known = self.by_name.find(hash, |place| {
                self.names[*place as usize].text.as_bytes() == metric
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
            places: [NONE; SHAPES],
        });
        let (names, hasher) = (&self.names, &self.hasher);
        self.by_name.insert_unique(hash, index, |place| {
            hasher.hash_one(names[*place as usize].text.as_bytes())
        });
        Ok(index)
    }

    /// The metric's name of a series, and the number of that name in this body.
    pub(crate) fn name(&self, series: Series) -> (&str, usize) {
        let number = series.name as usize;
        (&self.names[number].text, number)
    }

    /// Notes metadata of the family that a series belongs to, unless that is known.
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

    /// Appends a number at `millis` since the epoch; `start` is when it began to count, where that is known.
    #[inline]
    pub(crate) fn number(
        &mut self,
        series: Series,
        millis: i64,
        value: f64,
        start: Option<i64>,
    ) -> Result<(), Reason> {
        let nanos = self.admit(millis)?;
        let shape = match start {
            None => Shape::Number,
            Some(_) => Shape::NumberStart,
        };
        let group = self.start_row(series, shape, nanos, SampleKind::Sample);
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

    /// Appends an exemplar as its stored text.
    pub(crate) fn exemplar(&mut self, series: Series, millis: i64, text: &str) -> Result<(), Reason> {
        let nanos = self.admit(millis)?;
        let group = self.start_row(series, Shape::Exemplar, nanos, SampleKind::Exemplar);
        if let Some(ColumnData::String(texts)) = group.columns.first_mut() {
            texts.push(text);
        }
        Ok(())
    }

    /// The time of one more row, where there is room for it.
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

    /// How many more rows the body may have.
    #[inline]
    fn rows_left(&self) -> usize {
        self.row_limit.saturating_sub(self.line as usize)
    }

    /// Begins a row, whose values are still to be pushed, in its group.
    #[inline]
    fn start_row(&mut self, series: Series, shape: Shape, nanos: i64, kind: SampleKind) -> &mut PointGroup {
        let rows_left = self.rows_left();
        let line = self.next_line();
        *self.counts.of(kind) += 1;
        if self.kinds.last().is_none_or(|(_, last)| *last != kind) {
            self.kinds.push((line, kind));
        }
        let at = &mut self.group_of_shape[shape as usize];
        if *at == NONE {
            *at = self.groups.len() as u32;
            self.groups.push(OpenGroup::new(shape));
        }
        let group = &mut self.groups[*at as usize];
        if group.rows.timelines.len() == group.rows.timelines.capacity() {
            group.make_room(self.items_expected, rows_left);
        }
        let Name { text, places } = &mut self.names[series.name as usize];
        group.name_row(text, &mut places[shape as usize]);
        let rows = &mut group.rows;
        rows.timelines.push(series.timeline);
        rows.timestamps.push(nanos);
        rows.lines.push(line);
        rows
    }

    fn next_line(&mut self) -> u32 {
        self.line = self.line.saturating_add(1);
        self.line
    }

    /// Notes why something was not stored; `false` when nothing more may be read.
    pub(crate) fn reject(&mut self, reason: Reason, key: &[u8]) -> bool {
        let line = self.next_line();
        self.rejects.push(line, reason, labels::shown(key).as_bytes());
        !self.is_full()
    }

    /// The same for a line of text; says its number.
    pub(crate) fn reject_line(&mut self, number: usize, reason: Reason, text: &[u8]) -> bool {
        let line = self.next_line();
        let mut excerpt = format!("line {number}: ").into_bytes();
        excerpt.extend_from_slice(&text[..text.len().min(EXCERPT_BYTES)]);
        self.rejects.push(line, reason, &excerpt);
        !self.is_full()
    }

    /// Whether nothing that is read from here on could be stored, or told of.
    fn is_full(&self) -> bool {
        self.rejects.is_full() || self.rows_left() == 0
    }

    /// Notes that `unread` series were not looked at: the body is full, or spells more labels than one may.
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
