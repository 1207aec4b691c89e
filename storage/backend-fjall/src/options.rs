//! How the embedded store is set up.

use std::path::PathBuf;
use std::time::Duration;

use tideline_model::Tier;
use tideline_runtime::Supervisor;

/// Settings of a [`FjallBackend`](crate::FjallBackend), with units and defaults.
#[derive(Debug, Clone)]
pub struct FjallOptions {
    /// Block cache of rows and hot segments, in bytes. Default 64 MiB.
    pub cache_bytes: u64,
    /// Block cache of cold segments, in bytes. Default 32 MiB.
    pub cold_cache_bytes: u64,
    /// The folder of cold segments, which must be there: better a folder on a disk than its mount point, so that a
    /// disk that is not mounted is noticed. Default `None`: `cold` inside the data folder.
    ///
    /// To move it: stop, move the folder with all that is in it, name its new place.
    pub cold_dir: Option<PathBuf>,
    /// Size of a memtable at which it is flushed, in bytes. Rows are few. Default 16 MiB.
    pub memtable_bytes: u64,
    /// Threads that flush and compact. Cold segments have one of their own. Default 2.
    pub worker_threads: usize,
    /// Most files that fjall keeps open, a third of them cold ones. Default 900.
    pub open_files_max: usize,
    /// Writes are refused below this many free bytes of the disk that they go to … Default 1 GiB.
    pub free_bytes_min: u64,
    /// … or below this many thousandths of the disk, whichever is more. Default 50.
    pub free_per_mille_min: u64,
    /// How old the known free space may be before it is looked up again. Default 1 s.
    pub free_check_interval: Duration,
    /// How long an acknowledged write may be missing from the high-water mark. Default 1 s.
    pub high_water_interval: Duration,
    /// Longest pause between two attempts to reopen a store after a failed write. Attempts never end; the first pauses
    /// are shorter, and when space returns the next attempt comes at once. Default 10 s.
    pub reopen_pause_max: Duration,
    /// Start with what is there, although acknowledged writes are missing. Default false.
    pub accept_loss: bool,
    /// Starts the maintenance thread, and records whether it has panicked.
    pub supervisor: Supervisor,
}

impl Default for FjallOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            cold_cache_bytes: 32 << 20,
            cold_dir: None,
            memtable_bytes: 16 << 20,
            worker_threads: 2,
            open_files_max: 900,
            free_bytes_min: 1 << 30,
            free_per_mille_min: 50,
            free_check_interval: Duration::from_secs(1),
            high_water_interval: Duration::from_secs(1),
            reopen_pause_max: Duration::from_secs(10),
            accept_loss: false,
            supervisor: Supervisor::default(),
        }
    }
}

/// How the store of one tier is set up: its share of the [`FjallOptions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) tier: Tier,
    pub(crate) cache_bytes: u64,
    pub(crate) memtable_bytes: u64,
    pub(crate) worker_threads: usize,
    pub(crate) open_files_max: usize,
    pub(crate) reopen_pause_max: Duration,
    pub(crate) accept_loss: bool,
}

impl Setup {
    /// The share of a tier.
    pub(crate) fn of(tier: Tier, options: &FjallOptions) -> Self {
        let cold_files = options.open_files_max / 3;
        let (cache_bytes, worker_threads, open_files_max) = match tier {
            Tier::Hot => (
                options.cache_bytes,
                options.worker_threads,
                options.open_files_max - cold_files,
            ),
            // What is cold is loaded seldom and dropped whole: one thread has little to do.
            Tier::Cold | Tier::Archive => (options.cold_cache_bytes, 1, cold_files),
        };
        Self {
            tier,
            cache_bytes,
            memtable_bytes: options.memtable_bytes,
            worker_threads,
            open_files_max,
            reopen_pause_max: options.reopen_pause_max,
            accept_loss: options.accept_loss,
        }
    }
}
