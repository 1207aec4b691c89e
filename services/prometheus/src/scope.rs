//! The timelines of a selection, and when they have points.

use hashbrown::HashMap;
use tideline_model::{Ordinal, TimelineId};
use tideline_promql::{Matcher, PromqlError, Result};
use tideline_search_index::{Condition, Subject, Test};
use tideline_series_store::Seen;
use tideline_timeline_catalog::{AttributeValue, Entry};

use crate::matching::Split;
use crate::names::{Measurement, measurements};
use crate::time::Span;
use crate::view::SeriesView;

/// Timelines that are looked at under one lock of the catalog: below a millisecond.
const LOCKED_GROUP: usize = 2_048;
/// Most measurements that a condition names; of more, each timeline is looked at.
const MEASUREMENTS_NAMED_MAX: usize = 2_000;

/// The timelines of a selection.
#[derive(Debug)]
pub(crate) struct Scope {
    /// Measurements with a metric that is selected, by name.
    pub(crate) measurements: Vec<Measurement>,
    /// Timelines of these measurements.
    pub(crate) timelines: Vec<Found>,
}

/// A timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) id: TimelineId,
    pub(crate) ordinal: Ordinal,
    /// Position in [`Scope::measurements`].
    pub(crate) measurement: u32,
}

impl Scope {
    /// The timelines that meet all matchers, in the order in which they were registered.
    pub(crate) fn select(view: &SeriesView<'_>, matchers: &[Matcher]) -> Result<Self> {
        let mut split = Split::new(matchers);
        let mut scope = Self {
            measurements: measurements(view.table, &split.names),
            timelines: Vec::new(),
        };
        if scope.measurements.is_empty() {
            return Ok(scope);
        }
        if !split.names.is_empty() && scope.measurements.len() <= MEASUREMENTS_NAMED_MAX {
            split.conditions.push(scope.condition());
        }
        let condition = Condition::And(std::mem::take(&mut split.conditions));
        let found = view.engine().select(view.table, &condition);
        let found = found.map_err(|error| crate::failure::of_engine(&error))?;
        let ordinals: Vec<Ordinal> = found.iter().map(Ordinal).collect();
        let positions: HashMap<&str, u32> = scope.measurements.iter().map(|of| &*of.name).zip(0..).collect();
        let mut timelines = Vec::with_capacity(ordinals.len());
        for_each_entry(view, &ordinals, |entry| {
            let Some(measurement) = positions.get(entry.measurement()) else {
                return;
            };
            if split.takes(entry) {
                timelines.push(Found {
                    id: entry.id(),
                    ordinal: entry.ordinal(),
                    measurement: *measurement,
                });
            }
        })?;
        drop(positions);
        scope.timelines = timelines;
        Ok(scope)
    }

    /// The metrics of a timeline.
    pub(crate) fn measurement(&self, timeline: &Found) -> &Measurement {
        &self.measurements[timeline.measurement as usize]
    }

    /// Leaves out metrics of which `keep`, told their measurement and name, is false, and timelines that have no other.
    pub(crate) fn retain_metrics(&mut self, keep: impl Fn(&str, &str) -> bool) {
        for of in &mut self.measurements {
            of.metrics.retain(|metric| keep(&of.name, &metric.name));
        }
        let measurements = &self.measurements;
        let has_metric = |timeline: &Found| !measurements[timeline.measurement as usize].metrics.is_empty();
        self.timelines.retain(has_metric);
    }

    /// Leaves out timelines without a point in a span.
    pub(crate) fn retain_seen(&mut self, view: &SeriesView<'_>, span: Option<Span>) -> Result<()> {
        let Some(span) = span else {
            return Ok(());
        };
        let mut kept = Vec::with_capacity(self.timelines.len());
        for group in self.timelines.chunks(LOCKED_GROUP) {
            let ids: Vec<TimelineId> = group.iter().map(|timeline| timeline.id).collect();
            let seen = seen(view, &ids)?;
            let inside = group.iter().zip(seen).filter(|(_, seen)| span.meets(*seen));
            kept.extend(inside.map(|(timeline, _)| *timeline));
        }
        self.timelines = kept;
        Ok(())
    }

    /// The condition that timelines are of these measurements.
    fn condition(&self) -> Condition {
        let names = self.measurements.iter();
        let names = names.map(|of| AttributeValue::Text((*of.name).to_owned()));
        Condition::leaf(Subject::Measurement, Test::In(names.collect()))
    }
}

/// Hands each of some timelines that are visible to `visit`.
pub(crate) fn for_each_entry(
    view: &SeriesView<'_>,
    ordinals: &[Ordinal],
    mut visit: impl FnMut(&Entry<'_>),
) -> Result<()> {
    for group in ordinals.chunks(LOCKED_GROUP) {
        view.check()?;
        let reader = view.table.catalog().reader();
        for ordinal in group {
            if let Some(entry) = reader.entry(*ordinal) {
                visit(&entry);
            }
        }
    }
    Ok(())
}

/// When timelines have points.
pub(crate) fn seen(view: &SeriesView<'_>, ids: &[TimelineId]) -> Result<Vec<Option<Seen>>> {
    view.check()?;
    let seen = view.engine().store().seen(view.table.points(), ids);
    seen.map_err(|error| PromqlError::Storage {
        message: error.to_string(),
        is_overloaded: false,
    })
}
