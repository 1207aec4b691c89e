//! Samples gathered into a batch while a body is read, whatever form it has.
//!
//! A series has up to five shapes, all of its metric's name: numbers and native histograms, either with or without
//! the time at which they started to count, and exemplars. A real request has hundreds of names, so the groups of a
//! name are found by one lookup for each series, and not at all where the series before had the same name.
//!
//! Each sample, histogram and exemplar has a number of its own, as the `line` of its row: that is how the writer of a
//! request learns how many of each kind were stored when some were not.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use tideline_histogram::Histogram;
use tideline_model::{ColumnData, Ordinal, PointBatch, PointGroup, SeriesResolver, Timestamp, ValueType};

use super::labels;
use super::metadata::{KnownMetadata, MetadataList, MetricMetadata, family};
use crate::options::DecodeOptions;
use crate::reject::{Reason, Rejects};

/// The field of a number.
pub const VALUE_FIELD: &str = "value";
/// The field of a native histogram.
pub const HISTOGRAM_FIELD: &str = "histogram";
/// The field of the time at which a counter or histogram started to count, in milliseconds since the epoch.
pub const START_FIELD: &str = "_start";
/// The field of an exemplar: `{"labels":{…},"value":…}` at the exemplar's own time.
pub const EXEMPLAR_FIELD: &str = "_exemplar";

const NANOS_PER_MILLISECOND: i64 = 1_000_000;

/// Bytes of the body for each item that it may have. A number with its time takes nine and more; only bodies made to
/// fill the memory, of numbers without either, have less.
const ITEM_BYTES_MIN: usize = 8;
/// Items that a body may have however short it is.
const ITEMS_FREE: usize = 16;

/// Bytes of a line of text that a reject shows.
const EXCERPT_BYTES: usize = 100;

/// What is written at one instant of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SampleKind {
    /// A number.
    Sample,
    /// A native histogram.
    Histogram,
    /// An exemplar.
    Exemplar,
}

/// How many of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SampleCounts {
    /// Numbers.
    pub samples: u64,
    /// Native histograms.
    pub histograms: u64,
    /// Exemplars.
    pub exemplars: u64,
}

impl SampleCounts {
    fn of(&mut self, kind: SampleKind) -> &mut u64 {
        match kind {
            SampleKind::Sample => &mut self.samples,
            SampleKind::Histogram => &mut self.histograms,
            SampleKind::Exemplar => &mut self.exemplars,
        }
    }
}

/// What a body held.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DecodedSamples {
    /// The rows and rejects. The line of a row counts everything in the body: samples, histograms and exemplars.
    pub batch: PointBatch,
    /// What is said about metrics, each name once.
    pub metadata: Vec<MetricMetadata>,
    /// How many rows of each kind the batch has.
    pub counts: SampleCounts,
    /// Where runs of one kind begin, as the line of their first row.
    kinds: Vec<(u32, SampleKind)>,
}

impl DecodedSamples {
    /// Of what kind a row is, by its line.
    pub fn kind_of(&self, line: u32) -> SampleKind {
        let after = self.kinds.partition_point(|(first, _)| *first <= line);
        after
            .checked_sub(1)
            .map_or(SampleKind::Sample, |run| self.kinds[run].1)
    }

    /// How many of each kind are stored, where of the rows of the batch those of `refused` lines were not.
    pub fn stored(&self, refused: impl IntoIterator<Item = u32>) -> SampleCounts {
        let mut counts = self.counts;
        for line in refused {
            let count = counts.of(self.kind_of(line));
            *count = count.saturating_sub(1);
        }
        counts
    }
}

/// The shapes of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Number = 0,
    NumberStart = 1,
    Exemplar = 2,
    Histogram = 3,
    HistogramStart = 4,
}

const SHAPES: usize = 5;
/// Rows that a group has room for from the start: a name usually has some series in a request.
const ROWS_FIRST: usize = 8;
/// The place of a group that was not opened.
const NONE: u32 = u32::MAX;

/// The groups of one name, by shape.
type GroupsOfName = [u32; SHAPES];

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
    groups: Vec<PointGroup>,
    name_limit: usize,
    /// Places in `names`.
    by_name: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// Each name with its groups.
    names: Vec<(Box<str>, GroupsOfName)>,
    /// The name of the series before.
    last_name: u32,
    rejects: Rejects,
    pub(crate) metadata: MetadataList,
    counts: SampleCounts,
    kinds: Vec<(u32, SampleKind)>,
    /// The number of the last item.
    line: u32,
    /// Most rows that the body may have.
    row_limit: u64,
}

impl<'r, R: SeriesResolver> SampleWriter<'r, R> {
    /// A writer for a body of `body_bytes`.
    pub(crate) fn new(body_bytes: usize, options: &DecodeOptions, resolver: &'r mut R) -> Self {
        Self {
            resolver,
            groups: Vec::new(),
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
            row_limit: (body_bytes / ITEM_BYTES_MIN + ITEMS_FREE) as u64,
        }
    }

    pub(crate) fn finish(self) -> DecodedSamples {
        DecodedSamples {
            batch: PointBatch {
                groups: self.groups,
                rejects: self.rejects.stored,
            },
            metadata: self.metadata.into_list(),
            counts: self.counts,
            kinds: self.kinds,
        }
    }

    /// The series that a key of [`labels`] names, or why there is none.
    pub(crate) fn series(&mut self, key: &[u8]) -> Result<Series, Reason> {
        let timeline = self
            .resolver
            .resolve(key)
            .map_err(|error| Reason::from(error.0))?;
        let name = labels::metric_name(key).ok_or("the metric has no name (label \"__name__\")")?;
        let last = self.names.get(self.last_name as usize);
        if last.is_none_or(|(last, _)| last.as_bytes() != name) {
            let hash = self.hasher.hash_one(name);
            let known = self
                .by_name
                .find(hash, |place| self.names[*place as usize].0.as_bytes() == name);
            self.last_name = match known {
                Some(known) => *known,
                None => self.add_name(name, hash)?,
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
        self.names.push((text.into(), [NONE; SHAPES]));
        let (names, hasher) = (&self.names, &self.hasher);
        self.by_name.insert_unique(hash, index, |place| {
            hasher.hash_one(names[*place as usize].0.as_bytes())
        });
        Ok(index)
    }

    /// The metric's name of a series, and the number of that name in this body.
    pub(crate) fn name(&self, series: Series) -> (&str, usize) {
        let number = series.name as usize;
        (&self.names[number].0, number)
    }

    /// Notes metadata of the family that a series belongs to, unless that is known.
    pub(crate) fn describe(
        &mut self,
        series: Series,
        (kind, help, unit): (&'static str, &str, &str),
        is_known: &KnownMetadata<'_>,
    ) {
        let family = family(&self.names[series.name as usize].0, kind);
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
        let shape = match start {
            None => Shape::Histogram,
            Some(_) => Shape::HistogramStart,
        };
        let group = self.start_row(series, shape, nanos, SampleKind::Histogram);
        if let Some(ColumnData::Histogram(histograms)) = group.columns.first_mut() {
            histograms.push_with(|bytes| histogram.to_bytes(bytes));
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
        if u64::from(self.line) >= self.row_limit {
            return Err("too many samples for the size of the request".into());
        }
        let nanos = millis.checked_mul(NANOS_PER_MILLISECOND);
        match nanos.map(Timestamp::from_nanos) {
            Some(Ok(instant)) => Ok(instant.nanos()),
            _ => Err(format!("time {millis} ms is out of range").into()),
        }
    }

    /// Begins a row, whose values are still to be pushed, in its group.
    #[inline]
    fn start_row(&mut self, series: Series, shape: Shape, nanos: i64, kind: SampleKind) -> &mut PointGroup {
        let line = self.next_line();
        *self.counts.of(kind) += 1;
        if self.kinds.last().is_none_or(|(_, last)| *last != kind) {
            self.kinds.push((line, kind));
        }
        let (name, groups) = &mut self.names[series.name as usize];
        let at = &mut groups[shape as usize];
        if *at == NONE {
            *at = self.groups.len() as u32;
            self.groups.push(open(name, shape));
        }
        let group = &mut self.groups[*at as usize];
        group.timelines.push(series.timeline);
        group.timestamps.push(nanos);
        group.lines.push(line);
        group
    }

    fn next_line(&mut self) -> u32 {
        self.line = self.line.saturating_add(1);
        self.line
    }

    /// Notes why something was not stored; `false` when nothing more may be read.
    pub(crate) fn reject(&mut self, reason: Reason, key: &[u8]) -> bool {
        let line = self.next_line();
        self.rejects.push(line, reason, labels::shown(key).as_bytes());
        !self.rejects.is_full()
    }

    /// The same for a line of text; says its number.
    pub(crate) fn reject_line(&mut self, number: usize, reason: Reason, text: &[u8]) -> bool {
        let line = self.next_line();
        let mut excerpt = format!("line {number}: ").into_bytes();
        excerpt.extend_from_slice(&text[..text.len().min(EXCERPT_BYTES)]);
        self.rejects.push(line, reason, &excerpt);
        !self.rejects.is_full()
    }

    /// Notes that `unread` series were not looked at.
    pub(crate) fn reject_unread(&mut self, unread: usize) {
        let line = self.next_line();
        self.rejects.push_unread(line, unread);
    }
}

/// The start time of a row, in the second column where its shape has one.
#[inline]
fn push_start(group: &mut PointGroup, start: Option<i64>) {
    if let (Some(start), Some(ColumnData::Signed(starts))) = (start, group.columns.get_mut(1)) {
        starts.push(start);
    }
}

fn open(name: &str, shape: Shape) -> PointGroup {
    let fields: &[(&str, ValueType)] = match shape {
        Shape::Number => &[(VALUE_FIELD, ValueType::Float)],
        Shape::NumberStart => &[(VALUE_FIELD, ValueType::Float), (START_FIELD, ValueType::Signed)],
        Shape::Histogram => &[(HISTOGRAM_FIELD, ValueType::Histogram)],
        Shape::HistogramStart => &[
            (HISTOGRAM_FIELD, ValueType::Histogram),
            (START_FIELD, ValueType::Signed),
        ],
        Shape::Exemplar => &[(EXEMPLAR_FIELD, ValueType::String)],
    };
    PointGroup {
        measurement: name.into(),
        fields: fields.iter().map(|(field, _)| (*field).into()).collect(),
        columns: fields.iter().map(|(_, kind)| ColumnData::new(*kind)).collect(),
        timelines: Vec::with_capacity(ROWS_FIRST),
        timestamps: Vec::with_capacity(ROWS_FIRST),
        lines: Vec::with_capacity(ROWS_FIRST),
    }
}
