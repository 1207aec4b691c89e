//! Disk usage of a folder, in total and per entry, and the removal of the search index.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{BenchError, Result};

/// Disk usage of a folder.
#[derive(Debug, Clone, Default)]
pub(crate) struct Usage {
    /// Allocated file system blocks in bytes, as `du` counts them.
    pub(crate) bytes: u64,
    /// Allocated bytes of each entry, largest first.
    pub(crate) parts: Vec<(String, u64)>,
}

/// Entry of a data folder that holds the search index.
pub(crate) const INDEX: &str = "index";
/// Unit of `st_blocks` in bytes; it does not depend on the block size of the file system.
const BLOCK_BYTES: u64 = 512;

/// Measures a folder recursively. A missing folder and files that vanish during the walk count as zero.
pub(crate) fn usage(folder: &Path) -> Result<Usage> {
    let mut parts = Vec::new();
    for path in entries(folder)? {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        parts.push((name, disk_bytes(&path)?));
    }
    parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    Ok(Usage {
        bytes: parts.iter().map(|(_, bytes)| bytes).sum(),
        parts,
    })
}

/// Removes the search index of a data folder; the server rebuilds it at the next start.
pub(crate) fn remove_index(data: &Path) -> Result<()> {
    let path = data.join(INDEX);
    fs::remove_dir_all(&path).map_err(|source| BenchError::File { path, source })
}

fn disk_bytes(path: &Path) -> Result<u64> {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return Ok(0);
    };
    let mut bytes = metadata.blocks() * BLOCK_BYTES;
    if metadata.is_dir() {
        for entry in entries(path)? {
            bytes += disk_bytes(&entry)?;
        }
    }
    Ok(bytes)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = |source| BenchError::File {
        path: folder.to_owned(),
        source,
    };
    let read = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        read => read.map_err(failed)?,
    };
    read.map(|entry| Ok(entry.map_err(failed)?.path())).collect()
}
