//! Transfer of encoded samples of any number of series, for export and remote read.
//!
//! Samples are read page by page. A page holds as many series as fit into a few megabytes. The last series of a page
//! may be cut; it then continues on the next page at the timestamp of the cut. The workers that read a page also encode
//! it. Exceptions are series of several timelines, which are merged and encoded when the page is written. Between pages
//! neither samples nor a permit are held, so that a slow client delays no other query.

use std::ops::ControlFlow;

use tideline_promql::{Labels, Matcher, Result, Samples};

use crate::failure;
use crate::held_bytes::HeldBytes;
use crate::labels;
use crate::names::Measurement;
use crate::page::Page;
use crate::scope::{Found, Selection, for_each_entry, retain_seen};
use crate::series_merge::shared_names;
use crate::time::Span;
use crate::view::SeriesView;

/// Maximum number of timelines that are looked up and held at once.
const GROUP_TIMELINES: usize = 16_384;
/// Maximum number of units of the first page. For later pages, the number depends on the size of
/// the units.
const UNITS_FIRST: usize = 64;
/// Number of pages that the budget has room for. One page is read at a time. The remaining room is for samples
/// that workers gather beyond the end of the page, and for labels.
const PAGES_HELD: u64 = 16;
/// Maximum number of units of a page.
const UNITS_MAX: usize = 4_096;
/// Description of the held bytes in errors.
const ORDERED: &str = "bytes of labels of series to be sorted";
/// Bytes of a series to be sorted, in addition to its labels.
const NAMED_BYTES: usize = size_of::<Named>() + size_of::<Unit<'_>>() + 32;

/// Encoder of the samples of a series in ascending time order: all samples, or a part of a long series. Called
/// from several threads.
pub type Encode<'a> = dyn Fn(&Labels, Samples<'_>, &mut Vec<u8>) -> Result<()> + Sync + 'a;

/// Encoded fragment of a series.
#[derive(Debug, Clone, Copy)]
pub struct SeriesFragment<'p> {
    /// Labels of the series.
    pub labels: &'p Labels,
    /// Encoded samples; empty if the series has no samples in this fragment.
    pub bytes: &'p [u8],
    /// True if this is the last fragment of the series.
    pub is_last: bool,
}

/// One series of one timeline.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) labels: Labels,
    pub(crate) found: Found,
    /// Index of the metric in its measurement.
    pub(crate) metric: usize,
}

/// Series that are read and written together.
#[derive(Debug)]
pub(crate) enum Unit<'u> {
    /// All series of a timeline, except those whose metric name also occurs in another measurement.
    Timeline(Found),
    /// One series, of one timeline or several.
    Series(&'u [Named]),
}

/// State shared by all pages of a selector.
pub(crate) struct Transfer<'t> {
    pub(crate) view: &'t SeriesView<'t>,
    pub(crate) measurements: &'t [Measurement],
    /// Flags by measurement and metric: true if another measurement has a metric of the same name.
    pub(crate) shared: Vec<Vec<bool>>,
    /// Time range in milliseconds, both ends included.
    pub(crate) range: (i64, i64),
    pub(crate) encode: &'t Encode<'t>,
    /// Selectors whose series have already been written.
    earlier: &'t [Vec<Matcher>],
    /// Bytes of samples and encoded data at which a page is full; the current timelines are then cut.
    pub(crate) page_bytes: u64,
}

/// Consumer of encoded data. Its arguments are the labels if the unit is one series, the encoded data, and true
/// if the unit is complete with this data.
pub(crate) type Write<'w> = dyn FnMut(Option<&Labels>, &[u8], bool) -> Result<()> + 'w;

impl SeriesView<'_> {
    /// Encodes the samples in a range (milliseconds, both ends included) of each series that matches all matchers of at
    /// least one selector. Passes the encoded samples to `write` on this thread. Each series is written once, in
    /// unspecified order. A large series is written in several fragments in ascending time order. Fragments of other
    /// series may be written in between.
    ///
    /// Each page reads its own snapshot of the table. Memory is limited to a few megabytes of samples. Series whose
    /// metric names occur in several measurements are sorted by labels and written after the other series of their
    /// selector. The labels of the sorted series are held in memory.
    ///
    /// # Errors
    ///
    /// [`PromqlError::TooMany`](crate::PromqlError::TooMany) if the labels to be sorted exceed the budget. Also
    /// errors of `encode`, `write` and storage, cancellation and timeout.
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
            let mut held = HeldBytes::new(&self.watch, ORDERED);
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

    /// Transfers one selector with the series sorted by labels, and all fragments of a series in succession.
    ///
    /// Unlike in [`transfer`](Self::transfer), the labels of all series are held in memory.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`transfer`](Self::transfer).
    pub fn transfer_sorted(
        &self,
        matchers: &[Matcher],
        range: (i64, i64),
        encode: &Encode<'_>,
        write: &mut dyn FnMut(SeriesFragment<'_>) -> Result<()>,
    ) -> Result<()> {
        let selection = Selection::new(self, matchers)?;
        let transfer = Transfer::new(self, &selection.measurements, range, encode, &[]);
        let mut all = Vec::new();
        let mut held = HeldBytes::new(&self.watch, ORDERED);
        let span = Some(Span::of_millis(range));
        selection.groups(self, GROUP_TIMELINES, |mut group| {
            retain_seen(self, &mut group, span)?;
            transfer.name(&group, false, &mut all, &mut held)?;
            Ok(ControlFlow::Continue(()))
        })?;
        transfer.run_ordered(all, &mut |labels, bytes, is_last| match labels {
            Some(labels) => write(SeriesFragment {
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

    /// Returns true if an earlier selector matches the series, which has then already been written.
    pub(crate) fn is_written(&self, labels: &Labels) -> bool {
        let overlaps = |matcher: &Matcher| matcher.matches(labels.get(&matcher.name).unwrap_or(""));
        self.earlier.iter().any(|matchers| matchers.iter().all(overlaps))
    }

    /// Adds the series of some timelines to a list, except for series already written. If `only_shared` is true, adds
    /// only series whose metric name also occurs in another measurement.
    fn name(
        &self,
        timelines: &[Found],
        only_shared: bool,
        list: &mut Vec<Named>,
        held: &mut HeldBytes<'_>,
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

    /// Sorts series by labels and writes them.
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
            // The rest of a unit that was cut is read alone.
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
    /// Returns the number of parts that are read for the unit, one per timeline.
    pub(crate) fn parts(&self) -> usize {
        match self {
            Self::Timeline(_) => 1,
            Self::Series(parts) => parts.len(),
        }
    }

    /// Returns the labels if the unit is one series.
    pub(crate) fn labels(&self) -> Option<&Labels> {
        match self {
            Self::Timeline(_) => None,
            Self::Series(parts) => parts.first().map(|part| &part.labels),
        }
    }
}
