//! How the embedded store is set up.

use std::time::Duration;

/// Settings of a [`FjallBackend`](crate::FjallBackend), with units and defaults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FjallOptions {
    /// Block cache, in bytes. Default 64 MiB.
    pub cache_bytes: u64,
    /// Size of a memtable at which it is flushed, in bytes. Rows are few. Default 16 MiB.
    pub memtable_bytes: u64,
    /// Threads that flush and compact. Default 2.
    pub worker_threads: usize,
    /// Most files that fjall keeps open. Default 900.
    pub open_files_max: usize,
    /// Writes are refused below this many free bytes … Default 1 GiB.
    pub free_bytes_min: u64,
    /// … or below this many thousandths of the disk, whichever is more. Default 50.
    pub free_per_mille_min: u64,
    /// How old the known free space may be before it is looked up again. Default 1 s.
    pub free_check_interval: Duration,
    /// How long an acknowledged write may be missing from the high-water mark. Default 1 s.
    pub high_water_interval: Duration,
    /// How often the store is reopened after a failed write before it gives up. Default 10.
    pub reopen_tries_max: u32,
    /// Start with what is there, although acknowledged writes are missing. Default false.
    pub accept_loss: bool,
}

impl Default for FjallOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            memtable_bytes: 16 << 20,
            worker_threads: 2,
            open_files_max: 900,
            free_bytes_min: 1 << 30,
            free_per_mille_min: 50,
            free_check_interval: Duration::from_secs(1),
            high_water_interval: Duration::from_secs(1),
            reopen_tries_max: 10,
            accept_loss: false,
        }
    }
}
