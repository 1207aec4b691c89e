//! How many samples an evaluation holds.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use crate::error::{PromqlError, Result};
use crate::labels::Labels;

/// Counts samples that are held, against a limit. Shared by all threads of an evaluation.
#[derive(Debug)]
pub(crate) struct Budget {
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

impl Budget {
    /// Of at most so many samples.
    pub(crate) fn new(max: usize) -> Self {
        Self {
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
        self.fits(held)
    }

    /// Fails where so many samples are too many, whatever else is held.
    fn fits(&self, samples: usize) -> Result<()> {
        if samples > self.max {
            return Err(PromqlError::TooMany(
                "query processing would load too many samples into memory in query execution".to_owned(),
            ));
        }
        Ok(())
    }

    /// Room for a column that a thread makes: what it costs is known, and held, only when it is made. Waits until all
    /// that are made at once fit beside what is held; one can always be made.
    pub(crate) fn room(&self, samples: usize) -> Room<'_> {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        while rooms.samples > 0 && self.held() + rooms.samples + samples > self.max {
            rooms.waiting += 1;
            rooms = self.is_freed.wait(rooms).unwrap_or_else(PoisonError::into_inner);
            rooms.waiting -= 1;
        }
        rooms.samples += samples;
        Room {
            budget: self,
            samples,
        }
    }

    /// Gives samples back that are held.
    pub(crate) fn release(&self, samples: usize) {
        self.held.fetch_sub(samples, Ordering::Relaxed);
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

/// Room for a column in the making.
#[derive(Debug)]
pub(crate) struct Room<'a> {
    budget: &'a Budget,
    samples: usize,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let budget = self.budget;
        let mut rooms = budget.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        rooms.samples -= self.samples;
        if rooms.waiting > 0 {
            budget.is_freed.notify_all();
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
#[derive(Debug)]
pub(crate) struct Making<'a> {
    budget: &'a Budget,
    cost: usize,
    /// As many more series come out for nothing.
    free: usize,
}

impl<'a> Making<'a> {
    /// Out of so many series.
    pub(crate) fn of(budget: &'a Budget, series: usize) -> Self {
        Self {
            budget,
            cost: 0,
            free: series,
        }
    }

    /// Takes more values, by what they cost.
    pub(crate) fn take(&mut self, cost: usize) -> Result<()> {
        self.cost = self.cost.saturating_add(cost);
        self.budget.fits(self.cost)
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
