//! Series of a table as the data source of the PromQL evaluator.
//!
//! A selection is a parallel scan over timelines. One read of a timeline returns all its wanted metrics. The worker
//! that read the timeline passes its series to the evaluator. Exceptions: metrics whose name occurs in several
//! measurements are passed after the scan, and timelines whose windows cannot be computed without samples are read
//! twice.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tideline_engine::model::FieldId;
use tideline_promql::source::{OverTime, Select, SeriesData, Source, Visit};
use tideline_promql::{Labels, PromqlError, Result};
use tideline_query::{PointReader, QueryError, Scan};

use crate::failure;
use crate::held_bytes::{AccountBytes, HeldBytes};
use crate::labels;
use crate::names::START_FIELD;
use crate::samples::{Gathered, Layout};
use crate::scope::{Found, Scope};
use crate::series_merge::{SeriesMerge, shared_names};
use crate::steps::Steps;
use crate::time::Span;
use crate::view::SeriesView;

/// Milliseconds by which the scan starts earlier if histograms are wanted: the preceding histogram determines whether
/// the first wanted one is a reset.
pub(crate) const BEFORE_HISTOGRAMS: i64 = 300_000;

/// Description, in memory-limit errors, of the sample buffers of the timelines being read.
pub(crate) const GATHERED: &str = "bytes of samples gathered from timelines at once";

/// Series of a table, for the evaluation of an expression.
///
/// Each selection reads the snapshot of the table at its start. The budget and the cancellation flag of the view apply.
#[derive(Debug, Clone, Copy)]
pub struct TableSource<'v> {
    view: &'v SeriesView<'v>,
}

impl SeriesView<'_> {
    /// Returns the table as a source of series.
    pub fn source(&self) -> TableSource<'_> {
        TableSource { view: self }
    }
}

impl Source for TableSource<'_> {
    fn select(&self, select: &Select<'_>, visit: &Visit<'_>) -> Result<()> {
        let mut scope = Scope::select(self.view, select.matchers)?;
        if scope.timelines.is_empty() || select.start > select.end {
            return Ok(());
        }
        self.view.check_timelines(scope.timelines.len())?;
        scope.timelines.sort_unstable_by_key(|timeline| timeline.id);
        let reading = Reading::new(self.view, &scope, select, visit);
        let first = match reading.has_histograms {
            true => select.start.saturating_sub(BEFORE_HISTOGRAMS),
            false => select.start,
        };
        let range = Span::of_millis((first, select.end)).range();
        let scanned = self
            .view
            .querier
            .scan(self.view.table, range, &self.view.watch, |scan| {
                reading.scan(scan)
            });
        reading.end(scanned)
    }

    fn check(&self) -> Result<()> {
        self.view.check()
    }

    fn hold(&self, before: u64, now: u64) -> Result<()> {
        let held = self.view.watch.hold_limited_elsewhere(before, now);
        held.map_err(|error| failure::of_query(&error))
    }
}

/// State of one selection.
struct Reading<'r> {
    view: &'r SeriesView<'r>,
    scope: &'r Scope<'r>,
    /// Layouts by measurement.
    layouts: Vec<Layout>,
    /// Flags by measurement and metric: true if another measurement has a metric of the same name.
    shared: Vec<Vec<bool>>,
    fields: Vec<FieldId>,
    /// First requested millisecond.
    start: i64,
    /// True if some metric has histograms; reading then starts earlier.
    has_histograms: bool,
    over_time: Option<OverTime>,
    visit: &'r Visit<'r>,
    merge: SeriesMerge<'r>,
    /// Timelines whose windows cannot be computed without their samples.
    doubtful: Mutex<Vec<Found>>,
    /// True if timestamps were found that are not whole milliseconds; summaries cannot be used then.
    has_fractions: AtomicBool,
    /// Error that ended the selection and cannot be expressed as a query error.
    failure: Mutex<Option<PromqlError>>,
}

/// Buffers that a worker reuses from timeline to timeline.
struct WorkerBuffers<'w> {
    gathered: Gathered,
    held: HeldBytes<'w>,
    steps: Steps,
    /// Bytes of `steps`.
    steps_held: AccountBytes<'w>,
}

impl<'r> Reading<'r> {
    fn new(
        view: &'r SeriesView<'r>,
        scope: &'r Scope<'r>,
        select: &Select<'_>,
        visit: &'r Visit<'r>,
    ) -> Self {
        let start = select
            .with_starts
            .then(|| view.table.points().schema().field(START_FIELD));
        let start = start.flatten();
        let measurements = &scope.measurements;
        let metrics = measurements.iter().flat_map(|of| &of.metrics);
        let has_histograms = metrics.clone().any(|metric| metric.histogram.is_some());
        let mut fields: Vec<FieldId> = metrics.flat_map(|metric| metric.fields()).chain(start).collect();
        fields.sort_unstable();
        fields.dedup();
        Self {
            view,
            scope,
            layouts: measurements.iter().map(|of| Layout::new(of, start)).collect(),
            shared: shared_names(measurements),
            fields,
            start: select.start,
            has_histograms,
            over_time: select.over_time.filter(Steps::can_compute),
            visit,
            merge: SeriesMerge::new(&view.watch),
            doubtful: Mutex::default(),
            has_fractions: AtomicBool::new(false),
            failure: Mutex::default(),
        }
    }

    fn buffers(&self) -> WorkerBuffers<'r> {
        WorkerBuffers {
            gathered: Gathered::default(),
            held: HeldBytes::new(&self.view.watch, GATHERED),
            steps: Steps::default(),
            steps_held: AccountBytes::empty(&self.view.watch),
        }
    }

    fn scan(&self, scan: &Scan<'_>) -> std::result::Result<(), QueryError> {
        let id = |found: &Found| found.id;
        scan.shares(&self.scope.timelines, id, &self.fields, |share, reader| {
            let mut buffers = self.buffers();
            share.iter().try_for_each(|found| {
                let is_computed = match &self.over_time {
                    Some(over_time) if self.has_steps(found) => {
                        self.steps(found, over_time, reader, &mut buffers)?
                    }
                    _ => false,
                };
                match is_computed {
                    true => Ok(()),
                    false => self.samples(found, reader, &mut buffers),
                }
            })
        })?;
        let mut doubtful = std::mem::take(&mut *self.doubtful.lock());
        if doubtful.is_empty() {
            return Ok(());
        }
        doubtful.sort_unstable_by_key(|found| found.id);
        scan.shares(&doubtful, id, &self.fields, |share, reader| {
            let mut buffers = self.buffers();
            share
                .iter()
                .try_for_each(|found| self.samples(found, reader, &mut buffers))
        })
    }

    /// Returns the error of the selection, or passes the series of several measurements to the evaluator.
    fn end(self, scanned: std::result::Result<(), QueryError>) -> Result<()> {
        if let Some(failure) = self.failure.into_inner() {
            return Err(failure);
        }
        scanned.map_err(|error| failure::of_query(&error))?;
        self.merge.finish(self.visit)
    }

    /// Returns true if the windows of a timeline's series can be computed here: the metrics have no histograms, and no
    /// other measurement has a metric of the same name.
    fn has_steps(&self, found: &Found) -> bool {
        let at = found.measurement as usize;
        let is_numbers = self.scope.measurements[at]
            .metrics
            .iter()
            .all(|metric| metric.histogram.is_none());
        is_numbers && self.shared[at].iter().all(|shared| !shared)
    }

    /// Computes the window results of a timeline's series and passes them to the evaluator. A timeline whose windows
    /// cannot be computed without samples is added to `doubtful` and read again later. Returns true in both cases, and
    /// false without reading if the windows would take too much memory.
    fn steps(
        &self,
        found: &Found,
        over_time: &OverTime,
        reader: &mut PointReader<'_>,
        buffers: &mut WorkerBuffers<'_>,
    ) -> std::result::Result<bool, QueryError> {
        let layout = &self.layouts[found.measurement as usize];
        let Some(bytes) = Steps::bytes(over_time, layout.metrics) else {
            return Ok(false);
        };
        buffers.steps_held.grow_to(bytes)?;
        let steps = &mut buffers.steps;
        steps.begin(over_time, layout.metrics);
        let flow = |go_on| match go_on {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        };
        let grid = steps
            .grid()
            .filter(|_| !self.has_fractions.load(Ordering::Relaxed));
        match grid {
            Some(grid) => reader.timeline_summarized(found.id, grid, &mut |part| {
                Ok(flow(steps.take_part(part, layout)))
            })?,
            None => reader.timeline(found.id, &mut |run| Ok(flow(steps.take(run, layout))))?,
        }
        if !steps.finish() {
            // Other timelines of the table are likely to have fractions of milliseconds too.
            self.has_fractions
                .fetch_or(steps.has_fractions, Ordering::Relaxed);
            self.doubtful.lock().push(*found);
            return Ok(true);
        }
        self.deliver(found, |reading, metric, labels| {
            let results = steps.of(metric)?;
            let labels = labels();
            Some(labels.map_or(Ok(()), |labels| (reading.visit)(&labels, results)))
        })?;
        Ok(true)
    }

    /// Reads a timeline and passes the samples of its series to the evaluator. Series with shared
    /// metric names are kept for the merge.
    fn samples(
        &self,
        found: &Found,
        reader: &mut PointReader<'_>,
        buffers: &mut WorkerBuffers<'_>,
    ) -> std::result::Result<(), QueryError> {
        let layout = &self.layouts[found.measurement as usize];
        let WorkerBuffers { gathered, held, .. } = buffers;
        gathered.begin(layout.metrics);
        reader.timeline(found.id, &mut |run| {
            gathered.take(run, layout).map_err(|error| self.fail(error))?;
            held.set(gathered.bytes())?;
            Ok(ControlFlow::Continue(()))
        })?;
        if self.has_histograms {
            gathered.forget_before(self.start);
        }
        self.deliver(found, |reading, metric, labels| {
            let series = &mut gathered.series[metric];
            if series.is_empty() {
                return None;
            }
            let labels = labels()?;
            Some(match reading.shared[found.measurement as usize][metric] {
                true => {
                    let put = reading.merge.put(labels, found.ordinal, series);
                    put.map_err(|error| failure::of_query(&error))
                }
                false => (reading.visit)(&labels, SeriesData::Samples(series.samples())),
            })
        })
    }

    /// Calls `pass` for each metric of a timeline, with a function that returns the labels of the series (`None` if
    /// the timeline was removed). `pass` returns `None` if there is no data to pass. Stops at the first error that
    /// `pass` returns.
    fn deliver(
        &self,
        found: &Found,
        mut pass: impl FnMut(&Self, usize, &dyn Fn() -> Option<Labels>) -> Option<Result<()>>,
    ) -> std::result::Result<(), QueryError> {
        let metrics = &self.scope.measurement(found).metrics;
        for (at, metric) in metrics.iter().enumerate() {
            let labels = || {
                // A timeline that was removed in the meantime has no labels.
                let reader = self.view.table.reader();
                let entry = reader.entry(found.ordinal)?;
                Some(labels::of_entry(&entry, &metric.name))
            };
            if let Some(Err(error)) = pass(self, at, &labels) {
                return Err(self.fail(error));
            }
        }
        Ok(())
    }

    /// Stores the error that ended the selection; the returned error stops the query.
    fn fail(&self, error: PromqlError) -> QueryError {
        self.failure.lock().get_or_insert(error);
        QueryError::Cancelled
    }
}
