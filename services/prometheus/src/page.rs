//! Page of a transfer: series that are read together. If the page becomes full, the last series may be written only in
//! part.
//!
//! A page is read by parallel workers, which also encode the samples, and is written afterwards on the thread of the
//! caller. Series of several timelines are merged and encoded when the page is written.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tideline_engine::model::{FieldId, Ordinal};
use tideline_promql::{Labels, PromqlError, Result, Samples};
use tideline_query::{PointReader, QueryError};

use crate::failure;
use crate::held_bytes::HeldBytes;
use crate::labels;
use crate::samples::{Gathered, Layout, SampleBuffer, between};
use crate::scope::Found;
use crate::series_merge::merge_buffers;
use crate::source::{BEFORE_HISTOGRAMS, GATHERED};
use crate::time::Span;
use crate::transfer::{Transfer, Unit, Write};

/// Units of a transfer that are read together.
pub(crate) struct Page<'p> {
    transfer: &'p Transfer<'p>,
    units: &'p [Unit<'p>],
    /// First requested millisecond.
    from: i64,
    /// Layouts by measurement.
    layouts: BTreeMap<u32, Layout>,
    bytes: AtomicU64,
    outcomes: Vec<Mutex<Outcome<'p>>>,
    /// Error that ended the page and cannot be expressed as a query error.
    failure: Mutex<Option<PromqlError>>,
}

/// Result of reading a unit.
struct Outcome<'p> {
    encoded: Vec<u8>,
    /// Samples of a series with several timelines, held until all these timelines are read.
    samples: Vec<(Ordinal, SampleBuffer)>,
    /// Number of parts of the unit that were read.
    parts: usize,
    /// First millisecond that was not read completely; `None` if the read parts are complete.
    cut: Option<i64>,
    held: HeldBytes<'p>,
}

/// Part of a unit that is read from one timeline.
#[derive(Debug, Clone, Copy)]
struct ReadPart {
    found: Found,
    /// Index of the unit.
    unit: usize,
    /// Index of the metric in its measurement; `None` = all metrics of the measurement whose names no other measurement
    /// has.
    metric: Option<usize>,
}

impl<'p> Page<'p> {
    /// Reads the samples of units from the millisecond `from`, until all units are read or the page is full. A full
    /// page cuts or omits some units, but at least one unit is read, at least in part.
    pub(crate) fn read(transfer: &'p Transfer<'p>, units: &'p [Unit<'p>], from: i64) -> Result<Self> {
        let read_parts = read_parts(units);
        let (layouts, fields, has_histograms) = layouts(transfer, &read_parts);
        let outcome = |_| {
            Mutex::new(Outcome {
                encoded: Vec::new(),
                samples: Vec::new(),
                parts: 0,
                cut: None,
                held: HeldBytes::new(&transfer.view.watch, GATHERED),
            })
        };
        let page = Self {
            transfer,
            units,
            from,
            layouts,
            bytes: AtomicU64::new(0),
            outcomes: units.iter().map(outcome).collect(),
            failure: Mutex::default(),
        };
        let first = match has_histograms {
            true => from.saturating_sub(BEFORE_HISTOGRAMS),
            false => from,
        };
        let range = Span::of_millis((first, transfer.range.1)).range();
        let view = transfer.view;
        let timelines: Vec<&[ReadPart]> = read_parts.chunk_by(|a, b| a.found.id == b.found.id).collect();
        let scanned = view.querier.scan(view.table, range, &view.watch, |scan| {
            let id = |read_parts: &&[ReadPart]| read_parts[0].found.id;
            scan.shares(&timelines, id, &fields, |share, reader| {
                let mut gathered = Gathered::default();
                let mut held = HeldBytes::new(&view.watch, GATHERED);
                share
                    .iter()
                    .try_for_each(|read_parts| page.timeline(read_parts, reader, &mut gathered, &mut held))
            })
        });
        if let Some(failure) = page.failure.lock().take() {
            return Err(failure);
        }
        scanned.map_err(|error| failure::of_query(&error))?;
        Ok(page)
    }

    /// Returns the size of the page in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Passes the complete units to `write`, up to the first incomplete unit. If that unit was cut, its read part is
    /// also passed. Returns the number of complete units and, after a cut, the millisecond at which the cut unit
    /// continues.
    pub(crate) fn write(self, write: &mut Write<'_>) -> Result<(usize, Option<i64>)> {
        let mut done = 0;
        for (unit, outcome) in self.units.iter().zip(self.outcomes) {
            let mut outcome = outcome.into_inner();
            if outcome.parts < unit.parts() {
                break;
            }
            if let Some(labels) = unit.labels().filter(|_| !outcome.samples.is_empty()) {
                // For equal timestamps the timeline that was registered later wins.
                outcome.samples.sort_by_key(|(ordinal, _)| *ordinal);
                let mut merged = merge_buffers(outcome.samples.into_iter().map(|(_, samples)| samples));
                if let Some(samples) = between(merged.samples(), self.from, outcome.cut) {
                    (self.transfer.encode)(labels, samples, &mut outcome.encoded)?;
                }
            }
            write(unit.labels(), &outcome.encoded, outcome.cut.is_none())?;
            if outcome.cut.is_some() {
                return Ok((done, outcome.cut));
            }
            done += 1;
        }
        Ok((done, None))
    }

    fn is_full(&self) -> bool {
        self.bytes() > self.transfer.page_bytes
    }

    /// Reads a timeline for all units that need it.
    fn timeline(
        &self,
        read_parts: &[ReadPart],
        reader: &mut PointReader<'_>,
        gathered: &mut Gathered,
        held: &mut HeldBytes<'_>,
    ) -> std::result::Result<(), QueryError> {
        // A unit that is alone on its page is read even if the page is full; otherwise the transfer would not advance.
        if self.is_full() && self.units.len() > 1 {
            return Ok(());
        }
        let found = read_parts[0].found;
        let layout = &self.layouts[&found.measurement];
        gathered.begin(layout.metrics);
        let (kept, mut grown, mut cut) = (gathered.bytes(), 0, None);
        reader.timeline(found.id, &mut |run| {
            gathered.take(run, layout).map_err(|error| self.fail(error))?;
            if self.is_full() && gathered.last() < Some(self.from) {
                gathered.keep_last();
            }
            let bytes = gathered.bytes();
            held.set(bytes)?;
            self.bytes.fetch_sub(grown, Ordering::Relaxed);
            grown = bytes.saturating_sub(kept);
            self.bytes.fetch_add(grown, Ordering::Relaxed);
            // More samples may follow in the last millisecond of the run.
            cut = gathered.last().filter(|last| self.is_full() && *last > self.from);
            Ok(match cut {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            })
        })?;
        for part in read_parts {
            self.take(part, gathered, cut)?;
        }
        self.bytes.fetch_sub(grown, Ordering::Relaxed);
        Ok(())
    }

    /// Adds the gathered samples that a unit needs.
    fn take(
        &self,
        part: &ReadPart,
        gathered: &mut Gathered,
        cut: Option<i64>,
    ) -> std::result::Result<(), QueryError> {
        let mut outcome = self.outcomes[part.unit].lock();
        let outcome = &mut *outcome;
        let series = &mut gathered.series;
        match &self.units[part.unit] {
            Unit::Timeline(found) => {
                let measurement = found.measurement as usize;
                let metrics = self.transfer.measurements[measurement].metrics.iter();
                let shared = &self.transfer.shared[measurement];
                for (at, metric) in metrics.enumerate().filter(|(at, _)| !shared[*at]) {
                    if series[at].is_empty() {
                        continue;
                    }
                    // If there are no labels, the timeline was removed in the meantime, or the series has already been
                    // written.
                    if let Some(labels) = self.labels(found, &metric.name) {
                        self.encode(&labels, series[at].samples(), cut, &mut outcome.encoded)?;
                    }
                }
            }
            Unit::Series([one]) => {
                let samples = series[one.metric].samples();
                self.encode(&one.labels, samples, cut, &mut outcome.encoded)?;
            }
            Unit::Series(_) => {
                let samples = part.metric.map(|metric| series[metric].clone());
                let found = samples.map(|samples| (part.found.ordinal, samples));
                outcome.samples.extend(found);
            }
        }
        outcome.parts += 1;
        outcome.cut = outcome.cut.into_iter().chain(cut).min();
        let samples: u64 = outcome.samples.iter().map(|(_, samples)| samples.bytes()).sum();
        let bytes = outcome.encoded.capacity() as u64 + samples;
        self.bytes
            .fetch_add(bytes - outcome.held.bytes(), Ordering::Relaxed);
        outcome.held.set(bytes)
    }

    fn labels(&self, found: &Found, name: &str) -> Option<Labels> {
        let reader = self.transfer.view.table.reader();
        let labels = labels::of_entry(&reader.entry(found.ordinal)?, name);
        Some(labels).filter(|labels| !self.transfer.is_written(labels))
    }

    fn encode(
        &self,
        labels: &Labels,
        samples: Samples<'_>,
        cut: Option<i64>,
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), QueryError> {
        let Some(samples) = between(samples, self.from, cut) else {
            return Ok(());
        };
        (self.transfer.encode)(labels, samples, out).map_err(|error| self.fail(error))
    }

    /// Stores the error that ended the page; the returned error stops the query.
    fn fail(&self, error: PromqlError) -> QueryError {
        self.failure.lock().get_or_insert(error);
        QueryError::Cancelled
    }
}

/// Returns the parts of the units, in ascending order of timeline id.
fn read_parts(units: &[Unit<'_>]) -> Vec<ReadPart> {
    let mut read_parts = Vec::with_capacity(units.len());
    for (at, unit) in units.iter().enumerate() {
        match unit {
            Unit::Timeline(found) => read_parts.push(ReadPart {
                found: *found,
                unit: at,
                metric: None,
            }),
            Unit::Series(parts) => read_parts.extend(parts.iter().map(|part| ReadPart {
                found: part.found,
                unit: at,
                metric: Some(part.metric),
            })),
        }
    }
    read_parts.sort_unstable_by_key(|part| part.found.id);
    read_parts
}

/// Returns the layouts of the wanted metrics by measurement, their fields, and true if some have histograms.
fn layouts(transfer: &Transfer<'_>, read_parts: &[ReadPart]) -> (BTreeMap<u32, Layout>, Vec<FieldId>, bool) {
    let mut wanted: BTreeMap<u32, Vec<bool>> = BTreeMap::new();
    for part in read_parts {
        let shared = &transfer.shared[part.found.measurement as usize];
        let metrics = || match part.metric {
            Some(_) => vec![false; shared.len()],
            None => shared.iter().map(|shared| !shared).collect(),
        };
        let metrics = wanted.entry(part.found.measurement).or_insert_with(metrics);
        if let Some(metric) = part.metric {
            metrics[metric] = true;
        }
    }
    let (mut fields, mut has_histograms) = (Vec::new(), false);
    let mut layouts = BTreeMap::new();
    for (at, wanted) in wanted {
        let measurement = &transfer.measurements[at as usize];
        for (metric, _) in measurement
            .metrics
            .iter()
            .zip(&wanted)
            .filter(|(_, wanted)| **wanted)
        {
            fields.extend(metric.fields());
            has_histograms |= metric.histogram.is_some();
        }
        layouts.insert(at, Layout::of_some(measurement, None, |metric| wanted[metric]));
    }
    fields.sort_unstable();
    fields.dedup();
    (layouts, fields, has_histograms)
}
