//! How many bytes the server has given to its journal: its files come and go, so their growth is watched.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::wait::pause;

/// A running watch over the journal of a data folder.
#[derive(Debug)]
pub(crate) struct JournalWatch {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

/// The folder of the journal, inside the data folder.
const JOURNAL: &str = "journal";
/// From one look to the next: what is appended to a file after its last look, and before it goes, is missed.
const LOOK_EVERY: Duration = Duration::from_millis(10);

impl JournalWatch {
    /// Begins to watch.
    pub(crate) fn begin(data: &Path) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (folder, stop) = (data.join(JOURNAL), Arc::clone(&is_over));
        let thread = thread::spawn(move || {
            let mut largest = HashMap::new();
            loop {
                let is_last = stop.load(Ordering::Acquire);
                look(&folder, &mut largest);
                if is_last {
                    return largest.values().sum();
                }
                pause(LOOK_EVERY);
            }
        });
        Self { is_over, thread }
    }

    /// Ends the watch; the bytes of all files that were there, each at its largest.
    pub(crate) fn end(self) -> u64 {
        self.is_over.store(true, Ordering::Release);
        self.thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn look(folder: &Path, largest: &mut HashMap<PathBuf, u64>) {
    // A file that goes while we look was seen the last time.
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if let Ok(metadata) = entry.metadata() {
            let seen = largest.entry(entry.path()).or_default();
            *seen = metadata.len().max(*seen);
        }
    }
}
