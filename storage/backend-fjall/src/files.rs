//! Small durable file operations, and the free space of a disk.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::options::FjallOptions;

/// Makes the names in a folder durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Replaces files as a whole, in order: of each the old content or the new one is there, never a part.
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

/// Suffix of a file that is complete and durable before it replaces the file of that name.
pub(crate) const NEW: &str = ".new";
/// Bytes copied at once.
const COPY_BYTES: usize = 256 << 10;

/// A copy of a file, made while the file is read, that replaces it.
///
/// After a failed write-back Linux marks pages clean: they stay readable and are not on the disk, and no sync of that
/// file writes them. A copy in a new file is written whole, with its metadata and its entry in the folder. The bytes
/// pass through memory, since `copy_file_range` may share the blocks on the disk instead, which are the doubtful ones.
///
/// Dropped before [`finish`](Self::finish), it removes the copy, so that a full disk gets back its room.
#[derive(Debug)]
pub(crate) struct Renewal<R> {
    reader: R,
    fresh: PathBuf,
    /// `None` once it is finished.
    copy: Option<BufWriter<File>>,
}

impl<R: Read> Renewal<R> {
    /// Starts the copy of the file at `path`. `reader` yields the part of it that is kept.
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

    /// Syncs the copy of the first `length` bytes, all of which have been read. [`put_in_place`] does the rest.
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

/// A path with a suffix after its name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Removes a file if it is there.
pub(crate) fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a folder if it is there.
pub(crate) fn remove_folder(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The paths in a folder; none if it is missing.
pub(crate) fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Free space, looked up at most once an interval.
#[derive(Debug)]
pub(crate) struct FreeSpace {
    folder: PathBuf,
    bytes_min: u64,
    per_mille_min: u64,
    interval: Duration,
    last: Mutex<Option<(Instant, Space)>>,
}

/// What is free and what must be.
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

    /// Makes the disk seem full, or what it is.
    #[cfg(test)]
    pub(crate) fn seem_full(&self, is_full: bool) {
        let full = Space {
            free_bytes: 0,
            watermark_bytes: 1,
        };
        let far = Instant::now() + Duration::from_secs(86_400);
        *self.last.lock() = is_full.then_some((far, full));
    }

    /// The space now, or less than an interval ago. A disk that cannot be asked counts as having space: the write
    /// itself will tell.
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
