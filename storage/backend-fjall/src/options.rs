//! Options of the embedded store: folders, budgets of caches and write buffers, free space, repair.
//!
//! The server sets them from its configuration. Each option has a default.

use std::path::PathBuf;
use std::time::Duration;

use tideline_model::Tier;
use tideline_runtime::Supervisor;

/// Settings of a [`FjallBackend`](crate::FjallBackend), with units and defaults.
#[derive(Debug, Clone)]
pub struct FjallOptions {
    /// Block cache of rows, manifests, hot segments and hot parts, in bytes. Default 64 MiB.
    pub cache_bytes: u64,
    /// Block cache of cold segments and cold parts, in bytes. Default 32 MiB.
    pub cold_cache_bytes: u64,
    /// Folder of cold segments and cold parts, which must exist. Use a folder on the disk instead of the mount point of
    /// the disk, so that a disk that is not mounted is detected. Default `None`: `cold` inside the data folder.
    ///
    /// To move the folder: stop the process, move the folder with its content, and set its new path.
    pub cold_dir: Option<PathBuf>,
    /// Size of a memtable of rows at which it is flushed, in bytes. Default 16 MiB.
    pub memtable_bytes: u64,
    /// Number of threads that flush and compact the hot store. The cold store has one additional thread. Default 2.
    pub worker_threads: usize,
    /// Maximum number of files that fjall keeps open. A third of this number applies to the cold store, the remainder
    /// to the hot store; each has at least 10. Default 900.
    pub open_files_max: usize,
    /// Number of free bytes on a disk below which writes that take space are refused. The larger of this limit and
    /// [`free_per_mille_min`](FjallOptions::free_per_mille_min) applies. Default 1 GiB.
    pub free_bytes_min: u64,
    /// Free share of a disk, in thousandths, below which writes that take space are refused. Default 50.
    pub free_per_mille_min: u64,
    /// Interval at which the free space is looked up again. Default 1 s.
    pub free_check_interval: Duration,
    /// Interval of the rounds of the maintenance thread, each of which writes the high-water mark. A durable write may
    /// be missing from the mark for this long. Default 1 s.
    pub high_water_interval: Duration,
    /// Maximum pause between two attempts to reopen a store after a failed write. The number of attempts is unlimited.
    /// The first pauses are shorter, and the next attempt follows at once when disk space becomes available again.
    /// Default 10 s.
    pub reopen_pause_max: Duration,
    /// True to start with the remaining data even if acknowledged writes are missing. Default false.
    pub accept_loss: bool,
    /// Starts the maintenance thread, and records its panic.
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

/// Options of the store of one tier: its share of the [`FjallOptions`].
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
    /// Returns the share of a tier.
    pub(crate) fn of(tier: Tier, options: &FjallOptions) -> Self {
        let cold_files = options.open_files_max / 3;
        let (cache_bytes, worker_threads, open_files_max) = match tier {
            Tier::Hot => (
                options.cache_bytes,
                options.worker_threads,
                options.open_files_max - cold_files,
            ),
            // Cold data is loaded rarely and dropped as a whole, so one thread is enough.
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
