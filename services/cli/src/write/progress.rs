//! Progress of a run: an updated line on a terminal, otherwise a line every 10 s, and a summary at the end.
//!
//! Counters are atomic, because all threads of the run update them.

use std::fmt;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::csv::{COMPARED_MAX, Compared};
use super::input::Input;
use crate::output;

/// Update interval on a terminal.
const TERMINAL_INTERVAL: Duration = Duration::from_millis(250);
/// Update interval if standard error is not a terminal.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Counters of a run, shared by all its threads.
pub(super) struct Progress {
    begun: Instant,
    /// Bytes on disk of all inputs; `None` if the size of an input is unknown.
    total: Option<u64>,
    /// Bytes on disk that were acknowledged in this run or before.
    done: AtomicU64,
    files: AtomicU64,
    bytes: AtomicU64,
    skipped_bytes: AtomicU64,
    batches: AtomicU64,
    points: AtomicU64,
    values: AtomicU64,
    rejected: AtomicU64,
    replaced: AtomicU64,
    retries: AtomicU64,
    rejected_before: AtomicU64,
    histograms: AtomicU64,
    is_partly_compared: AtomicBool,
    /// Notes printed at the end.
    notes: Mutex<Vec<String>>,
    /// Warnings, which were printed immediately, for the JSON summary.
    warnings: Mutex<Vec<String>>,
}

/// Snapshot of the counters.
#[derive(Debug, Clone)]
pub(super) struct Figures {
    pub(super) files: u64,
    /// Decompressed bytes that were sent and acknowledged.
    pub(super) bytes: u64,
    /// Decompressed bytes that an earlier run had sent.
    pub(super) skipped_bytes: u64,
    pub(super) batches: u64,
    pub(super) points: u64,
    pub(super) values: u64,
    pub(super) rejected: u64,
    /// Number of CSV rows with the timeline and time of an earlier row of the same file.
    pub(super) replaced: u64,
    pub(super) retries: u64,
    /// Number of rows in the skipped bytes that an earlier run could not store.
    pub(super) rejected_before: u64,
    /// Number of native histograms that were skipped.
    pub(super) histograms: u64,
    pub(super) seconds: f64,
}

impl Progress {
    pub(super) fn new(inputs: &[Input]) -> Self {
        Self {
            begun: Instant::now(),
            total: inputs.iter().map(|input| input.bytes).sum(),
            done: AtomicU64::new(0),
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            skipped_bytes: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            points: AtomicU64::new(0),
            values: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            replaced: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            rejected_before: AtomicU64::new(0),
            histograms: AtomicU64::new(0),
            is_partly_compared: AtomicBool::new(false),
            notes: Mutex::default(),
            warnings: Mutex::default(),
        }
    }

    /// Counts an input that was read to its end.
    pub(super) fn file_read(&self) {
        self.files.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts native histograms of a file that are not sent, and adds a note.
    pub(super) fn passed_over(&self, path: &str, histograms: u64) {
        if histograms > 0 {
            self.histograms.fetch_add(histograms, Ordering::Relaxed);
            self.note(format!(
                "{path}: {} native histograms are skipped; use remote write or `tideline archive attach`",
                output::count(histograms)
            ));
        }
    }

    /// Adds counts of compared CSV rows.
    pub(super) fn compared(&self, path: &str, compared: Compared) {
        self.replaced.fetch_add(compared.replaced, Ordering::Relaxed);
        if compared.unknown > 0 && !self.is_partly_compared.swap(true, Ordering::Relaxed) {
            self.note(format!(
                "{path}: only the first {} points were compared; later ones may replace others, too",
                output::count(COMPARED_MAX as u64)
            ));
        }
    }

    /// Adds a note for the end of the run.
    pub(super) fn note(&self, note: String) {
        self.notes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(note);
    }

    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Prints a warning immediately, so that the run can still be stopped.
    pub(super) fn warn(&self, warning: String) {
        let mut out = std::io::stderr();
        let clear = if out.is_terminal() { "\r\x1b[K" } else { "" };
        // A failing standard error is ignored; the warning is also in the JSON summary.
        let _ = writeln!(out, "{clear}warning: {warning}");
        self.warnings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(warning);
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        self.warnings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Warns that most times of an input are near 1970.
    pub(super) fn warn_of_1970(&self, path: &str, unit: &str, likely: &str) {
        self.warn(format!(
            "{path}: most times are near 1970, because integers are read as {unit}; \
             did you mean --precision {likely}?"
        ));
    }

    /// Counts bytes that an earlier run had sent, and the rows in them that were not stored.
    pub(super) fn skipped(&self, bytes: u64, source_bytes: u64, rejected: u64) {
        self.rejected_before.fetch_add(rejected, Ordering::Relaxed);
        self.skipped_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.done.fetch_add(source_bytes, Ordering::Relaxed);
    }

    /// Counts an acknowledged batch.
    pub(super) fn acknowledged(
        &self,
        bytes: u64,
        source_bytes: u64,
        points: u64,
        values: u64,
        rejected: u64,
    ) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.done.fetch_add(source_bytes, Ordering::Relaxed);
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.points.fetch_add(points, Ordering::Relaxed);
        self.values.fetch_add(values, Ordering::Relaxed);
        self.rejected.fetch_add(rejected, Ordering::Relaxed);
    }

    pub(super) fn retried(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn figures(&self) -> Figures {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Figures {
            files: count(&self.files),
            bytes: count(&self.bytes),
            skipped_bytes: count(&self.skipped_bytes),
            batches: count(&self.batches),
            points: count(&self.points),
            values: count(&self.values),
            rejected: count(&self.rejected),
            replaced: count(&self.replaced),
            retries: count(&self.retries),
            rejected_before: count(&self.rejected_before),
            histograms: count(&self.histograms),
            seconds: self.begun.elapsed().as_secs_f64(),
        }
    }

    /// Prints the progress to standard error until `ended` is closed.
    pub(super) fn show(&self, ended: &Receiver<()>) {
        let mut out = std::io::stderr();
        let is_terminal = out.is_terminal();
        let interval = if is_terminal {
            TERMINAL_INTERVAL
        } else {
            LOG_INTERVAL
        };
        while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
            let line = self.line();
            let written = if is_terminal {
                write!(out, "\r{line}\x1b[K").and_then(|()| out.flush())
            } else {
                writeln!(out, "{line}")
            };
            if written.is_err() {
                return;
            }
        }
        if is_terminal {
            // A failing terminal is ignored, because the error could not be shown either.
            let _ = write!(out, "\r\x1b[K");
        }
    }

    fn line(&self) -> String {
        let figures = self.figures();
        let done = self.done.load(Ordering::Relaxed);
        let mut line = format!(
            "{} points, {}/s",
            output::count(figures.points),
            output::bytes((figures.bytes as f64 / figures.seconds.max(0.001)) as u64)
        );
        if let Some(total) = self.total.filter(|total| *total > 0) {
            let share = (done as f64 / total as f64).min(1.0);
            line = format!("{:5.1} %  {line}", share * 100.0);
            if share > 0.0 {
                line.push_str(&format!(
                    ", {} left",
                    left(figures.seconds * (1.0 - share) / share)
                ));
            }
        }
        for (count, what) in [(figures.rejected, "rejected"), (figures.retries, "retried")] {
            if count > 0 {
                line.push_str(&format!(", {} {what}", output::count(count)));
            }
        }
        line
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} points ({} values) of {} {}, {} in {:.1} s, {}/s",
            output::count(self.points),
            output::count(self.values),
            output::count(self.files),
            if self.files == 1 { "file" } else { "files" },
            output::bytes(self.bytes),
            self.seconds,
            output::bytes((self.bytes as f64 / self.seconds.max(0.001)) as u64)
        )?;
        if self.skipped_bytes > 0 {
            write!(
                f,
                "; {} were acknowledged before",
                output::bytes(self.skipped_bytes)
            )?;
        }
        if self.rejected_before > 0 {
            write!(
                f,
                ", {} rows of them rejected",
                output::count(self.rejected_before)
            )?;
        }
        if self.retries > 0 {
            write!(f, "; {} batches retried", output::count(self.retries))?;
        }
        if self.replaced > 0 {
            write!(
                f,
                "; {} have the timeline and time of another row of their file, of which one is kept",
                output::count(self.replaced)
            )?;
        }
        if self.rejected > 0 {
            write!(f, "; {} rejected", output::count(self.rejected))?;
        }
        Ok(())
    }
}

/// Formats a remaining time.
fn left(seconds: f64) -> String {
    let seconds = seconds as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_line_shows_rate_and_time_left() {
        let progress = Progress::new(&[]);
        progress.acknowledged(1_000, 1_000, 10, 20, 1);
        let line = progress.line();
        assert!(
            line.starts_with("10 points, ") && line.ends_with("/s, 1 rejected"),
            "{line}"
        );
        assert_eq!(
            (left(59.9), left(61.0), left(7_260.0)),
            ("59 s".into(), "1 min 1 s".into(), "2 h 1 min".into())
        );
    }
}
