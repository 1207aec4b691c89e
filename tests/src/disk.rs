//! Disk that runs out of space below the file system, and whose power can be cut.
//!
//! [`ThinDisk`] is ext4 on a loop device. The file behind the device is sparse and stored on a small tmpfs.
//! While the tmpfs is full, blocks that were written before can be rewritten and new blocks fail with ENOSPC,
//! like on a full thin volume. The file contains only blocks that were written to the device, not the page cache,
//! so a copy of the file is the state after a power cut.
//!
//! Requires root, loop devices and ext4; the error of [`ThinDisk::make`] describes the missing prerequisite.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// Size of the tmpfs, in bytes.
const POOL_BYTES: u64 = 192 << 20;
/// Size of the file system, in bytes. Its sparse file takes only the space of written blocks.
const DISK_BYTES: u64 = 1 << 30;

/// Block size of the file system, in bytes.
const BLOCK_BYTES: u64 = 4_096;

/// Journal mode of the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ext4 {
    /// Metadata is always consistent (mode `ordered`). The space of the journal, bitmaps and inode tables is
    /// reserved in advance. Without this reservation, a failing write of metadata would abort the journal, and
    /// Linux 6.18 then loses the size of a file whose sync has just succeeded.
    Journaled,
    /// Metadata reaches the disk in any order. [`ThinDisk::cut_power`] therefore writes all metadata but no
    /// data; otherwise `e2fsck` would find damaged metadata.
    Plain,
}

/// Disk with a mounted file system; dropping it unmounts and removes it.
#[derive(Debug)]
pub struct ThinDisk {
    kind: Ext4,
    /// Declared before the pool, so that it is unmounted first.
    disk: Mount,
    pool: Mount,
    _folder: TempDir,
}

/// Mounted file system; dropping it unmounts it.
#[derive(Debug)]
struct Mount(PathBuf);

impl ThinDisk {
    /// Creates an empty disk.
    ///
    /// # Errors
    ///
    /// Returns a message if a prerequisite is missing on this machine.
    pub fn make(kind: Ext4) -> Result<Self, String> {
        Self::make_with(kind, |image| {
            let file = fs::File::create(image).map_err(|error| error.to_string())?;
            file.set_len(DISK_BYTES).map_err(|error| error.to_string())?;
            let feature = match kind {
                Ext4::Journaled => "has_journal",
                Ext4::Plain => "^has_journal",
            };
            // Few inodes and a small journal, initialised immediately, so that later writes to them need no
            // new blocks.
            let now = "lazy_itable_init=0,lazy_journal_init=0";
            let options = [
                "-q", "-F", "-b", "4096", "-O", feature, "-N", "8192", "-J", "size=16", "-E", now,
            ];
            match kind {
                Ext4::Journaled => {
                    run("mkfs.ext4", options, image)?;
                    back_metadata(image)
                }
                Ext4::Plain => run(
                    "mkfs.ext4",
                    ["-q", "-F", "-O", feature, "-N", "8192", "-E", now],
                    image,
                ),
            }
        })
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.disk.0
    }

    /// Uses up all space below the file system: writes of new blocks then fail.
    ///
    /// # Panics
    ///
    /// Panics if the tmpfs cannot be filled.
    pub fn exhaust(&self) {
        let filler = fs::File::create(self.filler()).expect("the tmpfs can be written");
        let mut left = POOL_BYTES;
        // The disk may take free pages concurrently, so the last pages are taken in small steps.
        while left >= 4_096 {
            let length = filler.metadata().expect("metadata").len();
            match rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), length, left) {
                Ok(()) => {}
                Err(rustix::io::Errno::NOSPC) => left /= 2,
                Err(error) => panic!("the tmpfs cannot be filled: {error}"),
            }
        }
    }

    /// Frees the space again.
    ///
    /// # Panics
    ///
    /// Panics if the tmpfs was not exhausted.
    pub fn relieve(&self) {
        fs::remove_file(self.filler()).expect("the disk is exhausted");
    }

    /// Returns true if the file system is read-only. A file system with a journal becomes read-only when its
    /// metadata cannot be written; only a new mount repairs it.
    pub fn is_read_only(&self) -> bool {
        // The mount flags do not show this state.
        let probe = self.path().join("probe");
        let made = fs::File::create(&probe);
        let _ = fs::remove_file(&probe);
        made.is_err_and(|error| error.kind() == std::io::ErrorKind::ReadOnlyFilesystem)
    }

    /// Simulates a power cut: returns a new disk with the blocks that had reached this disk. The server on this disk
    /// must have ended.
    ///
    /// # Panics
    ///
    /// Panics if the copy cannot be made or mounted.
    pub fn cut_power(self) -> Self {
        if self.kind == Ext4::Plain {
            run("sync", [], &self.device()).expect("the device can be synced");
        }
        let cut = Self::make_with(self.kind, |image| {
            let from = self.pool.0.join("image");
            run("cp", ["--sparse=always", &from.to_string_lossy()], image)?;
            // Status 1: errors were corrected, as at boot.
            let checked = Command::new("e2fsck").args(["-fy"]).arg(image).output();
            let checked = checked.map_err(|error| format!("e2fsck: {error}"))?;
            match checked.status.code() {
                Some(0 | 1) => Ok(()),
                _ => Err(format!("e2fsck: {checked:?}")),
            }
        });
        cut.expect("the state after the power cut can be mounted")
    }

    /// Returns the loop device.
    fn device(&self) -> PathBuf {
        let mounts = fs::read_to_string("/proc/self/mounts").expect("the mounts can be read");
        let words = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let mut mounted = words.filter(|words| words.get(1).is_some_and(|at| Path::new(at) == self.disk.0));
        let words = mounted.next().expect("the disk is mounted");
        PathBuf::from(words[0])
    }

    fn make_with(kind: Ext4, fill: impl FnOnce(&Path) -> Result<(), String>) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("tideline-disk-").tempdir();
        let folder = folder.map_err(|error| error.to_string())?;
        let [pool, disk] = ["pool", "disk"].map(|name| folder.path().join(name));
        for path in [&pool, &disk] {
            fs::create_dir(path).map_err(|error| error.to_string())?;
        }
        let size = format!("size={POOL_BYTES}");
        let pool = Mount::make(["-t", "tmpfs", "-o", &size, "tmpfs"], pool)?;
        let image = pool.0.join("image");
        fill(&image)?;
        let image = image.to_string_lossy();
        let disk = Mount::make(["-o", "loop", "-t", "ext4", &image], disk)?;
        let made = Self {
            kind,
            disk,
            pool,
            _folder: folder,
        };
        made.write_page_by_page()?;
        Ok(made)
    }

    /// Limits block requests to one page. The tmpfs may take only the first pages of a larger request. The loop
    /// driver then still reports success, and a sync would succeed without the data, which no real disk does.
    fn write_page_by_page(&self) -> Result<(), String> {
        let device = self.device();
        let name = device.file_name().unwrap_or_default().to_string_lossy();
        let limit = format!("/sys/block/{name}/queue/max_sectors_kb");
        fs::write(&limit, "4").map_err(|error| format!("{limit}: {error}"))
    }

    fn filler(&self) -> PathBuf {
        self.pool.0.join("filler")
    }
}

/// Small file system in memory; dropping it unmounts it. Requires root.
#[derive(Debug)]
pub struct SmallDisk {
    disk: Mount,
    _folder: TempDir,
}

impl SmallDisk {
    /// Creates an empty file system of `bytes`.
    ///
    /// # Errors
    ///
    /// Returns a message if it cannot be mounted on this machine.
    pub fn make(bytes: u64) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("tideline-disk-").tempdir();
        let folder = folder.map_err(|error| error.to_string())?;
        let disk = folder.path().join("disk");
        fs::create_dir(&disk).map_err(|error| error.to_string())?;
        let size = format!("size={bytes}");
        Ok(Self {
            disk: Mount::make(["-t", "tmpfs", "-o", &size, "tmpfs"], disk)?,
            _folder: folder,
        })
    }

    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.disk.0
    }
}

impl Mount {
    fn make<const N: usize>(arguments: [&str; N], at: PathBuf) -> Result<Self, String> {
        run("mount", arguments, &at)?;
        Ok(Self(at))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // The unmount is lazy, because a server that is about to end may still have files open.
        let _ = run("umount", ["-l"], &self.0);
    }
}

/// Reserves space for the journal, the bitmaps and the inode tables of a new file system.
fn back_metadata(image: &Path) -> Result<(), String> {
    let groups = read("dumpe2fs", &[], image)?;
    let journal = read("debugfs", &["-R", "stat <8>"], image)?;
    // "Inode table at 67-98 (+67)", "(0-4095):131072-135167"
    let tables = groups.split(" at ").skip(1);
    let extents = journal.split("):").skip(1);
    let file = fs::File::options().write(true).open(image);
    let file = file.map_err(|error| error.to_string())?;
    for blocks in tables.chain(extents) {
        let end = blocks
            .find(|letter: char| !letter.is_ascii_digit() && letter != '-')
            .unwrap_or(blocks.len());
        let (first, last) = blocks[..end]
            .split_once('-')
            .unwrap_or((&blocks[..end], &blocks[..end]));
        // Some lines of the summary have other words after " at ".
        let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse::<u64>()) else {
            continue;
        };
        let flags = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(
            &file,
            flags,
            first * BLOCK_BYTES,
            (last - first + 1) * BLOCK_BYTES,
        )
        .map_err(|error| format!("blocks {first} to {last} of the disk: {error}"))?;
    }
    Ok(())
}

/// Returns the standard output of a program that is run on a file.
fn read(program: &str, arguments: &[&str], path: &Path) -> Result<String, String> {
    let output = Command::new(program).args(arguments).arg(path).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr))),
    }
}

fn run<const N: usize>(program: &str, arguments: [&str; N], path: &Path) -> Result<(), String> {
    let output = Command::new(program).args(arguments).arg(path).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "{program} {arguments:?} {}: {}",
        path.display(),
        text.trim()
    ))
}
