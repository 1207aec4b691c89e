//! Limits on the samples and bytes that an evaluation holds.
//!
//! Samples are counted as in Prometheus, against a limit per evaluation. The bytes of the samples are reported to the
//! source, which checks the bytes against the memory account of the process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use crate::error::{PromqlError, Result};
use crate::labels::Labels;
use crate::source::Source;
use crate::value::Point;

/// Bytes counted per held sample. In a column, a step takes 8 bytes and costs at least half a sample. In a
/// result, a sample takes 16 bytes.
const SAMPLE_BYTES: usize = 16;

/// Counter of held samples with a limit. All threads of an evaluation share it.
pub(crate) struct Budget<'s> {
    source: &'s dyn Source,
    held: AtomicUsize,
    peak: AtomicUsize,
    max: usize,
    reservations: Mutex<Reservations>,
    is_freed: Condvar,
}

/// Reservations of threads for columns under construction.
#[derive(Debug, Default)]
struct Reservations {
    samples: usize,
    waiting: usize,
}

impl<'s> Budget<'s> {
    /// Creates a budget of `max` samples.
    pub(crate) fn new(source: &'s dyn Source, max: usize) -> Self {
        Self {
            source,
            held: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            max,
            reservations: Mutex::default(),
            is_freed: Condvar::new(),
        }
    }

    /// Adds samples. Fails with Prometheus' message if the limit is exceeded, and with the source's error if no
    /// memory is available.
    pub(crate) fn hold(&self, samples: usize) -> Result<()> {
        // The counter cannot overflow: the first excess over the limit ends the evaluation.
        let held = self
            .held
            .fetch_add(samples, Ordering::Relaxed)
            .saturating_add(samples);
        self.peak.fetch_max(held, Ordering::Relaxed);
        fits(held, self.max)?;
        self.source.hold(0, bytes_of(samples))
    }

    /// Reserves bytes until the returned value is dropped.
    pub(crate) fn bytes(&self, bytes: usize) -> Result<HeldBytes<'_>> {
        let mut held = HeldBytes {
            source: self.source,
            bytes: 0,
        };
        held.grow(bytes)?;
        Ok(held)
    }

    /// Reserves the bytes of a series' labels until the evaluation ends.
    pub(crate) fn hold_labels(&self, labels: &Labels) -> Result<()> {
        self.source.hold(0, (labels.size() + SERIES_BYTES) as u64)
    }

    /// Reserves the bytes by which the labels of a series grow, until the evaluation ends. The bytes of the previous
    /// labels stay reserved as well.
    pub(crate) fn hold_longer_labels(&self, previous: &Labels, labels: &Labels) -> Result<()> {
        self.source
            .hold(0, labels.size().saturating_sub(previous.size()) as u64)
    }

    /// Reserves room for a column under construction. The cost of the column is known and held only when the column is
    /// complete. Blocks until the column, the held samples and the other columns under construction fit the limit
    /// together. A column is always admitted if no other column is under construction.
    pub(crate) fn reserve_column(&self, samples: usize) -> Result<ColumnReservation<'_>> {
        let mut reservations = self.reservations.lock().unwrap_or_else(PoisonError::into_inner);
        while reservations.samples > 0 && self.held() + reservations.samples + samples > self.max {
            reservations.waiting += 1;
            reservations = self
                .is_freed
                .wait(reservations)
                .unwrap_or_else(PoisonError::into_inner);
            reservations.waiting -= 1;
        }
        reservations.samples += samples;
        drop(reservations);
        let mut reservation = ColumnReservation {
            reservations: &self.reservations,
            is_freed: &self.is_freed,
            samples,
            held: HeldBytes {
                source: self.source,
                bytes: 0,
            },
        };
        reservation.held.grow(samples * size_of::<f64>())?;
        Ok(reservation)
    }

    /// Releases held samples.
    pub(crate) fn release(&self, samples: usize) {
        self.held.fetch_sub(samples, Ordering::Relaxed);
        // Releasing cannot fail.
        let _ = self.source.hold(bytes_of(samples), 0);
    }

    /// Holds samples and releases them immediately, so that the limit and the peak include them.
    pub(crate) fn pass(&self, samples: usize) -> Result<()> {
        self.hold(samples)?;
        self.release(samples);
        Ok(())
    }

    /// Returns the number of held samples.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns the peak number of held samples.
    pub(crate) fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }
}

/// Bytes of a column in addition to its values and labels, including its entries in lookup tables.
const SERIES_BYTES: usize = 160;

fn fits(samples: usize, max: usize) -> Result<()> {
    if samples > max {
        return Err(PromqlError::TooMany(
            "query processing would load too many samples into memory in query execution".to_owned(),
        ));
    }
    Ok(())
}

fn bytes_of(samples: usize) -> u64 {
    (samples as u64).saturating_mul(SAMPLE_BYTES as u64)
}

/// Reservation of bytes, released on drop.
pub(crate) struct HeldBytes<'a> {
    source: &'a dyn Source,
    bytes: u64,
}

impl HeldBytes<'_> {
    /// Reserves more bytes.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<()> {
        // A failed reservation must be released as well.
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.source.hold(0, bytes as u64)
    }
}

impl Drop for HeldBytes<'_> {
    fn drop(&mut self) {
        // Releasing cannot fail.
        let _ = self.source.hold(self.bytes, 0);
    }
}

/// Reservation for a column under construction, released on drop.
pub(crate) struct ColumnReservation<'a> {
    reservations: &'a Mutex<Reservations>,
    is_freed: &'a Condvar,
    samples: usize,
    /// Bytes of the column's values.
    held: HeldBytes<'a>,
}

impl Drop for ColumnReservation<'_> {
    fn drop(&mut self) {
        let mut reservations = self.reservations.lock().unwrap_or_else(PoisonError::into_inner);
        reservations.samples -= self.samples;
        if reservations.waiting > 0 {
            self.is_freed.notify_all();
        }
    }
}

/// Cost, in samples, of the labels and the lookup-table entries of an output series. Only output series in excess of
/// the number of input series have this cost.
const SERIES_COST: usize = 64;

/// Number of bytes of a series' labels without extra cost; further bytes have a cost.
const LABELS_FREE: usize = 1 << 10;

/// Cost of the output series of an operation. The budget holds this cost only when all series are complete, so
/// that inputs and outputs are not counted together. Until then, the output alone must fit the limit.
pub(crate) struct Making<'a> {
    max: usize,
    cost: usize,
    /// Bytes of the output, until the budget holds them.
    held: HeldBytes<'a>,
    /// Number of further output series that are exempt from [`SERIES_COST`].
    free: usize,
}

impl<'a> Making<'a> {
    /// Starts the output of an operation with `series` input series. The first `series` output series are exempt from
    /// [`SERIES_COST`].
    pub(crate) fn of(budget: &'a Budget<'_>, series: usize) -> Self {
        Self {
            max: budget.max,
            cost: 0,
            held: HeldBytes {
                source: budget.source,
                bytes: 0,
            },
            free: series,
        }
    }

    /// Adds values with a total cost of `cost` samples.
    pub(crate) fn take(&mut self, cost: usize) -> Result<()> {
        self.cost = self.cost.saturating_add(cost);
        fits(self.cost, self.max)?;
        self.held.grow(cost.saturating_mul(SAMPLE_BYTES))
    }

    /// Adds a value of a column under construction. Only a histogram has a cost here, because
    /// [`Budget::reserve_column`] reserves the floats.
    pub(crate) fn take_point(&mut self, point: &Point) -> Result<()> {
        match point {
            Point::Float(_) => Ok(()),
            Point::Histogram(histogram) => self.take(histogram.sample_size()),
        }
    }

    /// Adds a series without its values.
    pub(crate) fn take_series(&mut self, labels: &Labels) -> Result<()> {
        let of_labels = labels.size().saturating_sub(LABELS_FREE) / size_of::<f64>();
        match self.free.checked_sub(1) {
            Some(free) => {
                self.free = free;
                self.take(of_labels)
            }
            None => self.take(SERIES_COST + of_labels),
        }
    }
}
