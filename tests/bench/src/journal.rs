//! Bytes written to the journal. Journal files are created and deleted during a run, so their sizes are
//! polled.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::wait::pause;

/// Running poll of the journal folder.
#[derive(Debug)]
pub(crate) struct JournalWatch {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

/// Journal folder inside the data folder.
const JOURNAL: &str = "journal";
/// Polling interval. Bytes appended to a file between its last poll and its deletion are not counted.
const LOOK_EVERY: Duration = Duration::from_millis(10);

impl JournalWatch {
    /// Starts polling.
    pub(crate) fn begin(data: &Path) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (folder, stop) = (data.join(JOURNAL), Arc::clone(&is_over));
        let thread = thread::spawn(move || {
            let mut largest = HashMap::new();
            loop {
                let is_last = stop.load(Ordering::Acquire);
                survey(&folder, &mut largest);
                if is_last {
                    return largest.values().sum();
                }
                pause(LOOK_EVERY);
            }
        });
        Self { is_over, thread }
    }

    /// Stops polling; returns the sum of the largest seen size of each file.
    pub(crate) fn end(self) -> u64 {
        self.is_over.store(true, Ordering::Release);
        self.thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn survey(folder: &Path, largest: &mut HashMap<PathBuf, u64>) {
    // A file deleted during the scan was counted by the previous poll.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if let Ok(metadata) = entry.metadata() {
            let seen = largest.entry(entry.path()).or_default();
            *seen = metadata.len().max(*seen);
        }
    }
}
