//! Lists of series, label names and label values.
//!
//! With a range, only series of timelines with points in the range are listed; a point of any field counts. For label
//! names and values, the time range of a timeline is looked up only if the timeline would add an item to the list.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use hashbrown::HashSet;
use tideline_engine::catalog::{Entry, NameSelection};
use tideline_engine::points::Seen;
use tideline_promql::labels::METRIC_NAME;
use tideline_promql::{Labels, Matcher, Result};

use crate::failure;
use crate::held_bytes::HeldBytes;
use crate::labels;
use crate::names::measurements;
use crate::scope::{Found, Scope, Selection, for_each_entry, retain_seen, seen};
use crate::time::Span;
use crate::view::SeriesView;

/// Maximum number of timelines whose time ranges are looked up in one call.
const GROUP_TIMELINES: usize = 1_024;
/// Estimated memory of a list entry in bytes, without its texts.
const ENTRY_BYTES: usize = 64;
/// Description of the held bytes in errors.
const LISTED: &str = "bytes of a list of series, names or values";

/// Sorted list without duplicates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed<T> {
    /// Items, up to the limit.
    pub items: Vec<T>,
    /// True if items were omitted because of the limit.
    pub is_cut: bool,
}

impl<T: Ord> Listed<T> {
    fn new(all: impl IntoIterator<Item = T>, limit: Option<usize>) -> Self {
        let mut items: Vec<T> = all.into_iter().collect();
        items.sort_unstable();
        items.dedup();
        let is_cut = limit.is_some_and(|limit| items.len() > limit);
        items.truncate(limit.unwrap_or(usize::MAX));
        Self { items, is_cut }
    }
}

impl SeriesView<'_> {
    /// Returns the series that match all matchers of at least one selector. With a range (milliseconds, both ends
    /// included), only series of timelines that have points in it are returned. With a limit, the search stops
    /// after one more series than the limit; which of the matching series are found is then unspecified.
    ///
    /// Costs about a microsecond per found series.
    ///
    /// # Errors
    ///
    /// [`PromqlError::TooMany`](crate::PromqlError::TooMany) if the list takes more memory than the budget allows
    /// or, without a limit, if there are too many timelines. Also errors of storage, cancellation and timeout.
    pub fn series(
        &self,
        selectors: &[Vec<Matcher>],
        range: Option<(i64, i64)>,
        limit: Option<usize>,
    ) -> Result<Listed<Labels>> {
        let span = range.map(Span::of_millis);
        let mut series = FoundSeries {
            all: HashSet::new(),
            held: HeldBytes::new(&self.watch, LISTED),
            count_max: limit.map_or(usize::MAX, |limit| limit.saturating_add(1)),
        };
        for matchers in selectors {
            let selection = Selection::new(self, matchers)?;
            let mut timelines = 0;
            selection.groups(self, GROUP_TIMELINES, |mut group| {
                retain_seen(self, &mut group, span)?;
                timelines += group.len();
                if limit.is_none() {
                    self.check_timelines(timelines)?;
                }
                series.take(self, &selection, &group)
            })?;
        }
        self.keep(series.held.bytes())?;
        Ok(Listed::new(series.all, limit))
    }

    /// Returns the names of the labels of the selected series, or of all series if there are no selectors. With
    /// selectors or a range, each selected timeline is visited and takes some bytes of memory.
    ///
    /// # Errors
    ///
    /// [`PromqlError::TooMany`](crate::PromqlError::TooMany) if the names take more memory than the budget allows.
    /// Also errors of storage, cancellation and timeout.
    pub fn label_names(
        &self,
        selectors: &[Vec<Matcher>],
        range: Option<(i64, i64)>,
        limit: Option<usize>,
    ) -> Result<Listed<String>> {
        if selectors.is_empty() && range.is_none() {
            let all = self.table.reader().tag_keys(&everything());
            let mut names: Vec<String> = all.into_iter().map(|key| key.name).collect();
            self.hold_list(&names)?;
            if !names.is_empty() || !self.metric_names().is_empty() {
                names.push(METRIC_NAME.to_owned());
            }
            return Ok(Listed::new(names, limit));
        }
        let names = self.gather(selectors, range, |_, entry, take| {
            take(METRIC_NAME);
            entry.tags().for_each(|(key, _)| take(key));
        })?;
        Ok(Listed::new(names, limit))
    }

    /// Returns the values of a label of the selected series, or of all series if there are no selectors. Costs as much
    /// as [`label_names`](Self::label_names).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`label_names`](Self::label_names).
    pub fn label_values(
        &self,
        name: &str,
        selectors: &[Vec<Matcher>],
        range: Option<(i64, i64)>,
        limit: Option<usize>,
    ) -> Result<Listed<String>> {
        let is_all = selectors.is_empty() && range.is_none();
        if name == METRIC_NAME {
            if is_all {
                let names: Vec<String> = self.metric_names().into_iter().collect();
                self.hold_list(&names)?;
                return Ok(Listed::new(names, limit));
            }
            let names = self.gather(selectors, range, |metrics, _, take| {
                metrics.iter().for_each(|metric| take(&metric.name));
            })?;
            return Ok(Listed::new(names, limit));
        }
        if is_all {
            let values = self.table.reader().tag_values(name, &everything());
            let values: Vec<String> = values.into_iter().map(|value| value.name).collect();
            self.hold_list(&values)?;
            return Ok(Listed::new(values, limit));
        }
        let values = self.gather(selectors, range, |_, entry, take| {
            entry.tag(name).into_iter().for_each(take);
        })?;
        Ok(Listed::new(values, limit))
    }

    /// Charges a list that is held until the request ends.
    fn hold_list(&self, list: &[String]) -> Result<()> {
        let bytes: usize = list.iter().map(|text| text.len() + ENTRY_BYTES).sum();
        self.keep(bytes as u64)
    }

    /// Charges bytes that are held until the request ends.
    fn keep(&self, bytes: u64) -> Result<()> {
        let held = self.watch.hold_limited_elsewhere(0, bytes);
        held.map_err(|error| failure::of_query(&error))
    }

    /// Returns the names of the metrics that some timeline may have.
    fn metric_names(&self) -> BTreeSet<String> {
        let all = measurements(self.table, &[]);
        let reader = self.table.reader();
        let live = all.iter().filter(|of| reader.has_measurement(&of.name));
        let names = live.flat_map(|of| of.metrics.iter().map(|metric| String::from(&*metric.name)));
        names.collect()
    }

    /// Returns the distinct texts that `texts` passes to its callback for the selected timelines.
    fn gather(
        &self,
        selectors: &[Vec<Matcher>],
        range: Option<(i64, i64)>,
        texts: impl Fn(&[crate::names::Metric], &Entry<'_>, &mut dyn FnMut(&str)),
    ) -> Result<HashSet<String>> {
        let span = range.map(Span::of_millis);
        let of_all = [Vec::new()];
        let selectors = if selectors.is_empty() { &of_all } else { selectors };
        let mut gathered = Gathered {
            known: HashSet::new(),
            held: HeldBytes::new(&self.watch, LISTED),
            waiting: Vec::new(),
        };
        for matchers in selectors {
            let scope = Scope::select(self, matchers)?;
            for group in scope.timelines.chunks(GROUP_TIMELINES) {
                for_each_of(self, group, |found, entry| {
                    gathered.offer(found, |take| {
                        texts(&scope.measurement(found).metrics, entry, take);
                    });
                })?;
                gathered.settle(self, span)?;
            }
        }
        self.keep(gathered.held.bytes())?;
        Ok(gathered.known)
    }
}

/// Series found so far.
struct FoundSeries<'w> {
    all: HashSet<Labels>,
    held: HeldBytes<'w>,
    /// Number of series at which the search stops.
    count_max: usize,
}

impl FoundSeries<'_> {
    fn take(
        &mut self,
        view: &SeriesView<'_>,
        selection: &Selection<'_>,
        timelines: &[Found],
    ) -> Result<ControlFlow<()>> {
        let mut bytes = 0;
        for_each_of(view, timelines, |found, entry| {
            for metric in &selection.measurement(found).metrics {
                if self.all.len() >= self.count_max {
                    return;
                }
                let labels = labels::of_entry(entry, &metric.name);
                let texts: usize = labels.iter().map(|(name, value)| name.len() + value.len()).sum();
                if self.all.insert(labels) {
                    bytes += texts + ENTRY_BYTES;
                }
            }
        })?;
        let held = self.held.add(bytes as u64);
        held.map_err(|error| failure::of_query(&error))?;
        Ok(match self.all.len() < self.count_max {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        })
    }
}

/// Texts found so far, and texts of timelines whose time range has not been looked up yet.
struct Gathered<'w> {
    known: HashSet<String>,
    held: HeldBytes<'w>,
    waiting: Vec<(Found, Vec<String>)>,
}

impl Gathered<'_> {
    fn offer(&mut self, found: &Found, texts: impl Fn(&mut dyn FnMut(&str))) {
        let mut new = Vec::new();
        texts(&mut |text| {
            if !self.known.contains(text) {
                new.push(text.to_owned());
            }
        });
        if !new.is_empty() {
            self.waiting.push((*found, new));
        }
    }

    /// Adds the waiting texts of timelines that have points in a span; without a span, all waiting
    /// texts.
    fn settle(&mut self, view: &SeriesView<'_>, span: Option<Span>) -> Result<()> {
        let ids: Vec<_> = self.waiting.iter().map(|(found, _)| found.id).collect();
        let seen: Vec<Option<Seen>> = match span {
            Some(_) if !ids.is_empty() => seen(view, &ids)?,
            _ => vec![None; ids.len()],
        };
        let mut bytes = 0;
        for ((_, texts), seen) in self.waiting.drain(..).zip(seen) {
            if span.is_none_or(|span| span.overlaps(seen)) {
                for text in texts {
                    let length = text.len();
                    if self.known.insert(text) {
                        bytes += length + ENTRY_BYTES;
                    }
                }
            }
        }
        let held = self.held.add(bytes as u64);
        held.map_err(|error| failure::of_query(&error))
    }
}

/// Calls `visit` for timelines with their catalog entries.
fn for_each_of(
    view: &SeriesView<'_>,
    timelines: &[Found],
    mut visit: impl FnMut(&Found, &Entry<'_>),
) -> Result<()> {
    let ordinals: Vec<_> = timelines.iter().map(|found| found.ordinal).collect();
    let mut rest = timelines.iter();
    for_each_entry(view, &ordinals, |entry| {
        // Timelines that were removed in the meantime are skipped.
        if let Some(found) = rest.find(|found| found.ordinal == entry.ordinal()) {
            visit(found, entry);
        }
    })
}

pub(crate) fn everything() -> NameSelection<'static> {
    NameSelection {
        limit: usize::MAX,
        ..NameSelection::default()
    }
}
