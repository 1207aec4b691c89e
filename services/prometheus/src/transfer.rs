//! Samples of however many series, handed on encoded: what export and remote read write.
//!
//! They are read page by page. A page is as many series as fit into some megabytes, or a part of one series; it is encoded
//! where it is read, by the workers of its lane, and written when it is whole. Between pages nothing is held, neither
//! samples nor a place among those who read: a slow reader of the answer keeps nobody waiting. A series that is larger
//! than a page goes on in the next one, at the instant where it was cut.

use std::ops::ControlFlow;

use tideline_promql::{Labels, Matcher, Result, Samples};

use crate::failure;
use crate::held::Held;
use crate::labels;
use crate::names::Measurement;
use crate::page::Page;
use crate::scope::{Found, Selection, for_each_entry, retain_seen};
use crate::time::Span;
use crate::union::shared_names;
use crate::view::SeriesView;

/// Timelines that are at hand at once; they are looked up group by group.
const GROUP_TIMELINES: usize = 16_384;
/// Units of the first page. Then it depends on how large they are.
const UNITS_FIRST: usize = 64;
/// Pages that the budget would have room for. One is read at a time; the rest is for what workers gather beyond its end, and
/// for labels.
const PAGES_HELD: u64 = 16;
/// Most units of a page.
const UNITS_MAX: usize = 4_096;
/// What a failure calls the series that are put in order.
const ORDERED: &str = "bytes of labels of series that are put in order";
/// What a series takes beside its labels while it is in order, in bytes.
const NAMED_BYTES: usize = size_of::<Named>() + size_of::<Unit<'_>>() + 32;

/// Encodes samples of a series, by rising instants: all of them, or a part of a long one. Called from several threads.
pub type Encode<'a> = dyn Fn(&Labels, Samples<'_>, &mut Vec<u8>) -> Result<()> + Sync + 'a;

/// A piece of a series, encoded.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'p> {
    /// The series.
    pub labels: &'p Labels,
    /// Its samples; none where the series has none in this piece.
    pub bytes: &'p [u8],
    /// Whether it is the last of its series.
    pub is_last: bool,
}

/// One series of one timeline.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) labels: Labels,
    pub(crate) found: Found,
    /// Position among the metrics of its measurement.
    pub(crate) metric: usize,
}

/// What is written together.
#[derive(Debug)]
pub(crate) enum Unit<'u> {
    /// The series that are of a timeline alone.
    Timeline(Found),
    /// One series, of one timeline or several.
    Series(&'u [Named]),
}

/// What all pages have in common.
pub(crate) struct Transfer<'t> {
    pub(crate) view: &'t SeriesView<'t>,
    pub(crate) measurements: &'t [Measurement],
    /// By measurement and metric, whether other measurements spell its name too.
    pub(crate) shared: Vec<Vec<bool>>,
    /// Milliseconds, both ends included.
    pub(crate) range: (i64, i64),
    pub(crate) encode: &'t Encode<'t>,
    /// Selectors whose series were written before.
    earlier: &'t [Vec<Matcher>],
    /// Bytes of samples and of what is made of them at which a page is full. What is being read then is cut.
    pub(crate) page_bytes: u64,
}

/// Takes what is encoded of a unit, its labels where it is one series, and whether it is whole now.
pub(crate) type Write<'w> = dyn FnMut(Option<&Labels>, &[u8], bool) -> Result<()> + 'w;

impl SeriesView<'_> {
    /// Encodes the samples in a range (milliseconds, both ends included) of each series that meets all matchers of one of the
    /// selectors, and hands them to `write`, on this thread. Each series comes once, in no order; a large one in several
    /// pieces, which others may come between, by rising instants.
    ///
    /// Each page sees the table as it is when it is read. Holds some megabytes of samples, however many there are. Series that are of several measurements are put in order
    /// first: then their labels are held, and the call fails where these are more than the budget allows.
    pub fn transfer(
        &self,
        selectors: &[Vec<Matcher>],
        range: (i64, i64),
        encode: &Encode<'_>,
        write: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut write = |_: Option<&Labels>, bytes: &[u8], _| match bytes {
            [] => Ok(()),
            bytes => write(bytes),
        };
        for (at, matchers) in selectors.iter().enumerate() {
            let selection = Selection::new(self, matchers)?;
            let transfer = Transfer::new(self, &selection.measurements, range, encode, &selectors[..at]);
            let mut joined = Vec::new();
            let mut held = Held::new(&self.watch, ORDERED);
            selection.groups(self, GROUP_TIMELINES, |mut group| {
                transfer.name(&group, true, &mut joined, &mut held)?;
                group.retain(|found| transfer.shared[found.measurement as usize].contains(&false));
                group.sort_unstable_by_key(|found| found.id);
                let units: Vec<Unit<'_>> = group.into_iter().map(Unit::Timeline).collect();
                transfer.run(&units, &mut write)?;
                Ok(ControlFlow::Continue(()))
            })?;
            transfer.run_ordered(joined, &mut write)?;
        }
        Ok(())
    }

    /// The same of one selector with the series by rising labels, the pieces of one behind each other.
    ///
    /// Holds besides the labels of all series; fails where these are more than the budget allows.
    pub fn transfer_sorted(
        &self,
        matchers: &[Matcher],
        range: (i64, i64),
        encode: &Encode<'_>,
        write: &mut dyn FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<()> {
        let selection = Selection::new(self, matchers)?;
        let transfer = Transfer::new(self, &selection.measurements, range, encode, &[]);
        let mut all = Vec::new();
        let mut held = Held::new(&self.watch, ORDERED);
        let span = Some(Span::of_millis(range));
        selection.groups(self, GROUP_TIMELINES, |mut group| {
            retain_seen(self, &mut group, span)?;
            transfer.name(&group, false, &mut all, &mut held)?;
            Ok(ControlFlow::Continue(()))
        })?;
        transfer.run_ordered(all, &mut |labels, bytes, is_last| match labels {
            Some(labels) => write(Piece {
                labels,
                bytes,
                is_last,
            }),
            None => Ok(()),
        })
    }
}

impl<'t> Transfer<'t> {
    fn new(
        view: &'t SeriesView<'t>,
        measurements: &'t [Measurement],
        range: (i64, i64),
        encode: &'t Encode<'t>,
        earlier: &'t [Vec<Matcher>],
    ) -> Self {
        Self {
            view,
            measurements,
            shared: shared_names(measurements),
            range,
            encode,
            earlier,
            page_bytes: view.watch.budget().held_bytes_max / PAGES_HELD,
        }
    }

    /// Whether the series was written before.
    pub(crate) fn is_written(&self, labels: &Labels) -> bool {
        let meets = |matcher: &Matcher| matcher.matches(labels.get(&matcher.name).unwrap_or(""));
        self.earlier.iter().any(|matchers| matchers.iter().all(meets))
    }

    /// Adds the series of some timelines to a list; those that no other measurement has only where all are wanted.
    fn name(
        &self,
        timelines: &[Found],
        only_shared: bool,
        list: &mut Vec<Named>,
        held: &mut Held<'_>,
    ) -> Result<()> {
        let is_wanted =
            |found: &Found, metric: usize| !only_shared || self.shared[found.measurement as usize][metric];
        if only_shared && !self.shared.iter().flatten().any(|shared| *shared) {
            return Ok(());
        }
        let ordinals: Vec<_> = timelines.iter().map(|found| found.ordinal).collect();
        let mut rest = timelines.iter();
        let mut bytes = 0;
        for_each_entry(self.view, &ordinals, |entry| {
            let Some(found) = rest.find(|found| found.ordinal == entry.ordinal()) else {
                return;
            };
            let metrics = &self.measurements[found.measurement as usize].metrics;
            for (at, metric) in metrics.iter().enumerate().filter(|(at, _)| is_wanted(found, *at)) {
                let labels = labels::of_entry(entry, &metric.name);
                if self.is_written(&labels) {
                    continue;
                }
                let texts: usize = labels.iter().map(|(name, value)| name.len() + value.len()).sum();
                bytes += texts + NAMED_BYTES;
                list.push(Named {
                    labels,
                    found: *found,
                    metric: at,
                });
            }
        })?;
        let held = held.add(bytes as u64);
        held.map_err(|error| failure::of_query(&error))
    }

    /// Writes series by rising labels.
    fn run_ordered(&self, mut series: Vec<Named>, write: &mut Write<'_>) -> Result<()> {
        series.sort_unstable_by(|a, b| {
            let by_labels = a.labels.cmp(&b.labels);
            by_labels.then(a.found.ordinal.cmp(&b.found.ordinal))
        });
        let units = series.chunk_by(|a, b| a.labels == b.labels).map(Unit::Series);
        self.run(&units.collect::<Vec<_>>(), write)
    }

    /// Writes units one after another.
    fn run(&self, units: &[Unit<'_>], write: &mut Write<'_>) -> Result<()> {
        let (start, end) = self.range;
        if start > end {
            return Ok(());
        }
        let (mut next, mut from, mut count) = (0, start, UNITS_FIRST);
        while next < units.len() {
            // What goes on with a unit is read for that one alone.
            let now = if from > start { 1 } else { count }.min(units.len() - next);
            let page = Page::read(self, &units[next..next + now], from)?;
            let bytes = page.bytes();
            let (done, cut) = page.write(write)?;
            next += done;
            from = cut.unwrap_or(start);
            count = match (done < now, bytes < self.page_bytes / 2) {
                (true, _) => done.max(1),
                (false, true) => (count * 2).min(UNITS_MAX),
                (false, false) => count,
            };
        }
        Ok(())
    }
}

impl Unit<'_> {
    /// How many series of timelines it is read from.
    pub(crate) fn parts(&self) -> usize {
        match self {
            Self::Timeline(_) => 1,
            Self::Series(parts) => parts.len(),
        }
    }

    /// Its labels, where it is one series.
    pub(crate) fn labels(&self) -> Option<&Labels> {
        match self {
            Self::Timeline(_) => None,
            Self::Series(parts) => parts.first().map(|part| &part.labels),
        }
    }
}
