//! How many samples an evaluation holds.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{PromqlError, Result};

/// Counts samples that are held, against a limit. Shared by all threads of an evaluation.
#[derive(Debug)]
pub(crate) struct Budget {
    held: AtomicUsize,
    peak: AtomicUsize,
    max: usize,
}

impl Budget {
    /// Of at most so many samples.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            held: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            max,
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
        if held > self.max {
            return Err(PromqlError::TooMany(
                "query processing would load too many samples into memory in query execution".to_owned(),
            ));
        }
        Ok(())
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
