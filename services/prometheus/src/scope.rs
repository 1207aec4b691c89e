//! Selection of timelines by matchers, and the time ranges of their points.
//!
//! The search index finds candidates; remaining matchers are applied to the catalog entries of the candidates
//! in groups, so that the catalog is never locked for long.

use std::ops::ControlFlow;

use hashbrown::HashMap;
use tideline_engine::catalog::Entry;
use tideline_engine::condition::operators::In;
use tideline_engine::condition::{Condition, Literal, Subject};
use tideline_engine::model::{Ordinal, TimelineId};
use tideline_engine::points::Seen;
use tideline_promql::{Matcher, PromqlError, Result};

use crate::held_bytes::AccountBytes;
use crate::matching::Split;
use crate::names::{Measurement, measurements};
use crate::time::Span;
use crate::view::SeriesView;

/// Maximum number of timelines visited under one lock of the catalog. The visit takes less than a
/// millisecond.
const LOCKED_GROUP: usize = 2_048;
/// Maximum number of measurements in a condition; for more, each timeline is checked instead.
const MEASUREMENTS_NAMED_MAX: usize = 2_000;

/// Candidates of a selection, before their catalog entries are read.
#[derive(Debug)]
pub(crate) struct Selection<'m> {
    /// Measurements with a selected metric, sorted by name.
    pub(crate) measurements: Vec<Measurement>,
    /// Matchers; those that the index does not support are applied to the timelines later.
    split: Split<'m>,
    /// Timelines found by the index, in order of registration.
    ordinals: Vec<Ordinal>,
}

/// Timelines of a selection.
#[derive(Debug)]
pub(crate) struct Scope<'v> {
    /// Measurements with a selected metric, sorted by name.
    pub(crate) measurements: Vec<Measurement>,
    /// Timelines of these measurements.
    pub(crate) timelines: Vec<Found>,
    /// Bytes of `timelines`, and of the lists that are derived from them for reading.
    _held: AccountBytes<'v>,
}

/// Selected timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) id: TimelineId,
    pub(crate) ordinal: Ordinal,
    /// Index in [`Scope::measurements`].
    pub(crate) measurement: u32,
}

impl<'m> Selection<'m> {
    /// Searches the index for the timelines that match all matchers that the index supports.
    pub(crate) fn new(view: &SeriesView<'_>, matchers: &'m [Matcher]) -> Result<Self> {
        let split = Split::new(matchers);
        split.compile(&|bytes| {
            view.check()?;
            // Compiled expressions are kept in their matchers until the request ends.
            let held = view.watch.hold_limited_elsewhere(0, bytes);
            held.map_err(|error| crate::failure::of_query(&error))
        })?;
        let mut selection = Self {
            measurements: measurements(view.table, &split.names),
            split,
            ordinals: Vec::new(),
        };
        if selection.measurements.is_empty() {
            return Ok(selection);
        }
        let split = &mut selection.split;
        let mut conditions = std::mem::take(&mut split.conditions);
        if !split.names.is_empty() && selection.measurements.len() <= MEASUREMENTS_NAMED_MAX {
            conditions.push(is_of(&selection.measurements));
        }
        let is_over = || view.check().is_err();
        let found = view
            .engine()
            .select(view.table, &Condition::And(conditions), &is_over);
        // If the watch stopped the search, the error of the watch is returned.
        view.check()?;
        let found = found.map_err(|error| crate::failure::of_engine(&error))?;
        selection.ordinals = found.iter().map(Ordinal).collect();
        Ok(selection)
    }

    /// Returns an upper bound of the number of timelines.
    pub(crate) fn timelines_max(&self) -> usize {
        self.ordinals.len()
    }

    /// Calls `take` with the timelines that match all matchers, in groups of at most `group` and in order of
    /// registration, until `take` breaks or fails.
    pub(crate) fn groups(
        &self,
        view: &SeriesView<'_>,
        group: usize,
        mut take: impl FnMut(Vec<Found>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let named = self.measurements.iter().map(|of| &*of.name);
        let positions: HashMap<&str, u32> = named.zip(0..).collect();
        for ordinals in self.ordinals.chunks(group) {
            let mut timelines = Vec::with_capacity(ordinals.len());
            for_each_entry(view, ordinals, |entry| {
                let measurement = positions.get(entry.measurement());
                if let Some(measurement) = measurement.filter(|_| self.split.takes(entry)) {
                    timelines.push(Found {
                        id: entry.id(),
                        ordinal: entry.ordinal(),
                        measurement: *measurement,
                    });
                }
            })?;
            if take(timelines)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Returns the measurement of a timeline with its selected metrics.
    pub(crate) fn measurement(&self, timeline: &Found) -> &Measurement {
        &self.measurements[timeline.measurement as usize]
    }
}

/// Returns the condition that a timeline belongs to one of the measurements.
fn is_of(measurements: &[Measurement]) -> Condition {
    let names = measurements.iter();
    let names = names.map(|of| Literal::Text((*of.name).to_owned()));
    Condition::leaf(Subject::Measurement, In(names.collect()))
}

impl<'v> Scope<'v> {
    /// Returns the timelines that match all matchers, in order of registration.
    pub(crate) fn select(view: &'v SeriesView<'_>, matchers: &[Matcher]) -> Result<Self> {
        let selection = Selection::new(view, matchers)?;
        let each = size_of::<Ordinal>() + size_of::<Found>() + 2 * size_of::<TimelineId>();
        let bytes = (selection.timelines_max() * each) as u64;
        let held = AccountBytes::new(&view.watch, bytes).map_err(|error| crate::failure::of_query(&error))?;
        let mut timelines = Vec::with_capacity(selection.timelines_max());
        selection.groups(view, LOCKED_GROUP, |mut group| {
            timelines.append(&mut group);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(Self {
            measurements: selection.measurements,
            timelines,
            _held: held,
        })
    }

    /// Returns the measurement of a timeline with its selected metrics.
    pub(crate) fn measurement(&self, timeline: &Found) -> &Measurement {
        &self.measurements[timeline.measurement as usize]
    }

    /// Removes the metrics for which `keep` returns false, given measurement and metric name, and then the
    /// timelines without a remaining metric.
    pub(crate) fn retain_metrics(&mut self, keep: impl Fn(&str, &str) -> bool) {
        for of in &mut self.measurements {
            of.metrics.retain(|metric| keep(&of.name, &metric.name));
        }
        let measurements = &self.measurements;
        let has_metric = |timeline: &Found| !measurements[timeline.measurement as usize].metrics.is_empty();
        self.timelines.retain(has_metric);
    }
}

/// Removes timelines whose time range does not overlap a span; `None` keeps all timelines.
pub(crate) fn retain_seen(
    view: &SeriesView<'_>,
    timelines: &mut Vec<Found>,
    span: Option<Span>,
) -> Result<()> {
    if let Some(span) = span {
        let ids: Vec<TimelineId> = timelines.iter().map(|timeline| timeline.id).collect();
        let mut seen = seen(view, &ids)?.into_iter();
        timelines.retain(|_| seen.next().is_some_and(|seen| span.overlaps(seen)));
    }
    Ok(())
}

/// Calls `visit` for those of the timelines that are still in the catalog.
pub(crate) fn for_each_entry(
    view: &SeriesView<'_>,
    ordinals: &[Ordinal],
    mut visit: impl FnMut(&Entry<'_>),
) -> Result<()> {
    for group in ordinals.chunks(LOCKED_GROUP) {
        view.check()?;
        let reader = view.table.reader();
        for ordinal in group {
            if let Some(entry) = reader.entry(*ordinal) {
                visit(&entry);
            }
        }
    }
    Ok(())
}

/// Returns the time ranges in which timelines have points, in the order of `ids`; `None` for a
/// timeline without points.
pub(crate) fn seen(view: &SeriesView<'_>, ids: &[TimelineId]) -> Result<Vec<Option<Seen>>> {
    view.check()?;
    let seen = view.engine().store().seen(view.table.points(), ids);
    seen.map_err(|error| PromqlError::Storage {
        message: error.to_string(),
        is_overloaded: false,
    })
}
