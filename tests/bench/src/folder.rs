//! How much disk a data folder takes, and where.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{BenchError, Result};

/// What a folder takes on disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct Usage {
    /// Blocks of the file system that are taken, as `du` counts them, in bytes.
    pub(crate) bytes: u64,
    /// The same for each entry of the folder, largest first.
    pub(crate) parts: Vec<(String, u64)>,
}

/// The entry of a data folder that holds the search index.
pub(crate) const INDEX: &str = "index";
/// Bytes of the unit in which file systems report blocks, whatever their own block size.
const BLOCK_BYTES: u64 = 512;

/// Measures a folder and all below it. Files that vanish meanwhile count as nothing.
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

/// Removes the search index of a data folder, as anybody may.
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
