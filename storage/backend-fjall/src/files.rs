//! Small durable file operations, and the free space of a disk.
//!
//! Files are replaced as a whole: a complete and synced copy is renamed over the old file, and the folder is synced.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::options::FjallOptions;

/// Syncs a folder, so that the names of its files are durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Replaces the content of all named files with `content`, in order. Each file always has either its old or its new
/// content.
pub(crate) fn replace(folder: &Path, names: &[&str], content: &[u8]) -> io::Result<()> {
    let fresh = |name: &str| with_suffix(&folder.join(name), NEW);
    for name in names {
        let mut file = File::create(fresh(name))?;
        file.write_all(content)?;
        file.sync_all()?;
    }
    for name in names {
        fs::rename(fresh(name), folder.join(name))?;
    }
    sync_folder(folder)
}

/// Suffix of a copy that is complete and durable before it replaces the file without the suffix.
pub(crate) const NEW: &str = ".new";
/// Buffer size of copies, in bytes.
const COPY_BYTES: usize = 256 << 10;

/// Copy of a file that is written while the file is read, and then replaces the file.
///
/// After a failed write-back, Linux marks pages as clean. The pages stay readable but are not on the disk, and no sync
/// of that file writes them. A copy in a new file is written completely, with its metadata and its entry in the folder.
/// The bytes pass through memory, because `copy_file_range` may share the doubtful blocks on the disk instead.
///
/// If the value is dropped before [`finish`](Self::finish), the copy is removed, so that a full disk gets its space
/// back.
#[derive(Debug)]
pub(crate) struct Renewal<R> {
    reader: R,
    fresh: PathBuf,
    /// `None` once the copy is finished.
    copy: Option<BufWriter<File>>,
}

impl<R: Read> Renewal<R> {
    /// Starts the copy of the file at `path`. `reader` yields the part of the file that is kept.
    pub(crate) fn start(path: &Path, reader: R) -> io::Result<Self> {
        let fresh = with_suffix(path, NEW);
        remove_file(&fresh)?;
        let copy = BufWriter::with_capacity(COPY_BYTES, File::create_new(&fresh)?);
        Ok(Self {
            reader,
            fresh,
            copy: Some(copy),
        })
    }

    /// Truncates the copy to `length` bytes, which must have been read, and syncs it. [`put_in_place`] completes the
    /// replacement.
    pub(crate) fn finish(mut self, length: u64) -> io::Result<()> {
        if let Some(copy) = &mut self.copy {
            copy.flush()?;
            copy.get_ref().set_len(length)?;
            copy.get_ref().sync_all()?;
        }
        self.copy = None;
        Ok(())
    }
}

impl<R: Read> Read for Renewal<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.reader.read(buffer)?;
        if let Some(copy) = &mut self.copy {
            copy.write_all(&buffer[..length])?;
        }
        Ok(length)
    }
}

impl<R> Drop for Renewal<R> {
    fn drop(&mut self) {
        if self.copy.take().is_some() {
            let _ = fs::remove_file(&self.fresh);
        }
    }
}

/// Renames a finished copy to the file that it replaces. The caller syncs the folder.
pub(crate) fn put_in_place(path: &Path) -> io::Result<()> {
    fs::rename(with_suffix(path, NEW), path)
}

/// Appends a suffix to a path.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Removes a file if it exists.
pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a folder if it exists.
pub(crate) fn remove_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns the paths in a folder; empty if the folder does not exist.
pub(crate) fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Free space of a disk, looked up at most once per interval.
#[derive(Debug)]
pub(crate) struct FreeSpace {
    folder: PathBuf,
    bytes_min: u64,
    per_mille_min: u64,
    interval: Duration,
    last: Mutex<Option<(Instant, Space)>>,
}

/// Free space and the required minimum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) free_bytes: u64,
    pub(crate) watermark_bytes: u64,
}

impl Space {
    pub(crate) fn is_low(self) -> bool {
        self.free_bytes < self.watermark_bytes
    }
}

impl FreeSpace {
    pub(crate) fn new(folder: &Path, options: &FjallOptions) -> Self {
        Self {
            folder: folder.to_owned(),
            bytes_min: options.free_bytes_min,
            per_mille_min: options.free_per_mille_min,
            interval: options.free_check_interval,
            last: Mutex::new(None),
        }
    }

    /// Simulates a full disk, or ends the simulation.
    #[cfg(test)]
    pub(crate) fn seem_full(&self, is_full: bool) {
        let full = Space {
            free_bytes: 0,
            watermark_bytes: 1,
        };
        let far = Instant::now() + Duration::from_secs(86_400);
        *self.last.lock() = is_full.then_some((far, full));
    }

    /// Returns the free space as of less than one interval ago. If the lookup fails, the disk counts as having space;
    /// the write itself then reports the error.
    pub(crate) fn get(&self) -> Space {
        let mut last = self.last.lock();
        if let Some((asked, space)) = *last
            && asked.elapsed() < self.interval
        {
            return space;
        }
        let space = match rustix::fs::statvfs(&self.folder) {
            Ok(stat) => Space {
                free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
                watermark_bytes: self
                    .bytes_min
                    .max(stat.f_blocks.saturating_mul(stat.f_frsize) / 1_000 * self.per_mille_min),
            },
            Err(_) => Space {
                free_bytes: u64::MAX,
                watermark_bytes: self.bytes_min,
            },
        };
        *last = Some((Instant::now(), space));
        space
    }
}
