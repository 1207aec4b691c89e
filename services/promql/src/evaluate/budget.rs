//! Samples and bytes that an evaluation holds.
//!
//! Samples are counted as Prometheus counts them, against a limit of the evaluation. The bytes that they take are reported
//! to the source, which has the memory account of the process behind it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use crate::error::{PromqlError, Result};
use crate::labels::Labels;
use crate::source::Source;

/// Bytes that a sample takes: eight in a column, where a place without a value costs half a sample, and sixteen in an answer.
const SAMPLE_BYTES: usize = 16;

/// Counts samples that are held, against a limit. Shared by all threads of an evaluation.
pub(crate) struct Budget<'s> {
    source: &'s dyn Source,
    held: AtomicUsize,
    peak: AtomicUsize,
    max: usize,
    rooms: Mutex<Rooms>,
    is_freed: Condvar,
}

/// Room that threads have taken for columns that they are making.
#[derive(Debug, Default)]
struct Rooms {
    samples: usize,
    waiting: usize,
}

impl<'s> Budget<'s> {
    /// Of at most so many samples.
    pub(crate) fn new(source: &'s dyn Source, max: usize) -> Self {
        Self {
            source,
            held: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            max,
            rooms: Mutex::default(),
            is_freed: Condvar::new(),
        }
    }

    /// Takes more samples; fails in Prometheus' words where they are too many.
    pub(crate) fn hold(&self, samples: usize) -> Result<()> {
        // Counts stay far below the end of the number: the first that passes the limit ends the evaluation.
        let held = self
            .held
            .fetch_add(samples, Ordering::Relaxed)
            .saturating_add(samples);
        self.peak.fetch_max(held, Ordering::Relaxed);
        fits(held, self.max)?;
        self.source.hold(0, bytes_of(samples))
    }

    /// Takes bytes for as long as what this returns lives.
    pub(crate) fn bytes(&self, bytes: usize) -> Result<HeldBytes<'_>> {
        let mut held = HeldBytes {
            source: self.source,
            bytes: 0,
        };
        held.grow(bytes)?;
        Ok(held)
    }

    /// Takes bytes of series: their labels stay, shared, until the evaluation ends.
    pub(crate) fn hold_labels(&self, labels: &Labels) -> Result<()> {
        self.source.hold(0, (labels.size() + SERIES_BYTES) as u64)
    }

    /// Room for a column that a thread makes: what it costs is known, and held, only when it is made. Waits until all
    /// that are made at once fit beside what is held; one can always be made.
    pub(crate) fn room(&self, samples: usize) -> Result<Room<'_>> {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        while rooms.samples > 0 && self.held() + rooms.samples + samples > self.max {
            rooms.waiting += 1;
            rooms = self.is_freed.wait(rooms).unwrap_or_else(PoisonError::into_inner);
            rooms.waiting -= 1;
        }
        rooms.samples += samples;
        drop(rooms);
        let mut room = Room {
            rooms: &self.rooms,
            is_freed: &self.is_freed,
            samples,
            held: HeldBytes {
                source: self.source,
                bytes: 0,
            },
        };
        room.held.grow(samples * size_of::<f64>())?;
        Ok(room)
    }

    /// Gives samples back that are held.
    pub(crate) fn release(&self, samples: usize) {
        self.held.fetch_sub(samples, Ordering::Relaxed);
        // To give back cannot fail.
        let _ = self.source.hold(bytes_of(samples), 0);
    }

    /// Samples are held for a moment, beside all others.
    pub(crate) fn pass(&self, samples: usize) -> Result<()> {
        self.hold(samples)?;
        self.release(samples);
        Ok(())
    }

    /// How many are held.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// How many were held at most.
    pub(crate) fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }
}

/// Bytes of a column beside its values and labels, with the places in tables by which it is found.
const SERIES_BYTES: usize = 160;

/// Fails where so many samples are too many, whatever else is held.
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

/// Bytes that are held for a while.
pub(crate) struct HeldBytes<'a> {
    source: &'a dyn Source,
    bytes: u64,
}

impl HeldBytes<'_> {
    /// Takes more.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<()> {
        // A failed reservation is given back too.
        self.bytes = self.bytes.saturating_add(bytes as u64);
        self.source.hold(0, bytes as u64)
    }
}

impl Drop for HeldBytes<'_> {
    fn drop(&mut self) {
        // To give back cannot fail.
        let _ = self.source.hold(self.bytes, 0);
    }
}

/// Room for a column in the making.
pub(crate) struct Room<'a> {
    rooms: &'a Mutex<Rooms>,
    is_freed: &'a Condvar,
    samples: usize,
    /// The bytes of its values.
    held: HeldBytes<'a>,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.samples -= self.samples;
        if rooms.waiting > 0 {
            self.is_freed.notify_all();
        }
    }
}

/// What a series costs, in samples, besides its values where more come out than have gone in: its labels, and the
/// places in tables by which it is found.
const SERIES_COST: usize = 64;

/// Bytes of labels that cost nothing more.
const LABELS_FREE: usize = 1 << 10;

/// Series that are made of others: the budget holds them only when all are made, so that the values of both do not
/// count twice. Until then they must be no more than would fit alone.
pub(crate) struct Making<'a> {
    max: usize,
    cost: usize,
    /// Their bytes, until the budget holds them.
    held: HeldBytes<'a>,
    /// As many more series come out for nothing.
    free: usize,
}

impl<'a> Making<'a> {
    /// Out of so many series.
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

    /// Takes more values, by what they cost.
    pub(crate) fn take(&mut self, cost: usize) -> Result<()> {
        self.cost = self.cost.saturating_add(cost);
        fits(self.cost, self.max)?;
        self.held.grow(cost.saturating_mul(SAMPLE_BYTES))
    }

    /// Takes one more series, without its values.
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
