//! Inputs to send: finds and opens files and folders, and decompresses them as they are read.
//!
//! The format is taken from the file name or an option; compression is detected from the first bytes.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use super::csv::CsvArguments;
use super::record::Framing;
use crate::error::{CliError, Result};

/// Maximum number of bytes per read of a file.
const READ_BYTES: usize = 256 << 10;
/// Interval at which a read that waits for bytes checks whether the run has failed: 200 ms.
const LOOK_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 200_000_000,
};
/// Largest accepted window of a zstd stream, as a power of two: 128 MiB.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// Format of an input, by its option name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FormatName {
    /// InfluxDB line protocol
    Lp,
    /// CSV
    Csv,
    /// One JSON object per line
    Ndjson,
    /// Parquet, files only
    Parquet,
}

/// One input to send.
#[derive(Debug)]
pub(super) struct Input {
    /// Path of the input, `-` for standard input.
    pub(super) path: PathBuf,
    pub(super) format: FormatName,
    pub(super) framing: Framing,
    /// Bytes on disk; `None` unless it is a regular file.
    pub(super) bytes: Option<u64>,
}

/// Opened input.
pub(super) struct Opened {
    /// Decompressed bytes.
    pub(super) reader: Box<dyn Read>,
    /// Number of bytes read so far, before decompression.
    pub(super) read: Rc<Cell<u64>>,
}

impl Input {
    fn new(path: &Path, format: FormatName, csv: &CsvArguments) -> Result<Self> {
        let is_standard = path == Path::new("-");
        let bytes = if is_standard {
            None
        } else {
            let metadata = fs::metadata(path).map_err(|error| CliError::file(path, error))?;
            metadata.is_file().then_some(metadata.len())
        };
        Ok(Self {
            path: path.to_owned(),
            format,
            framing: match format {
                FormatName::Lp => Framing::Lines,
                FormatName::Csv => Framing::Csv {
                    delimiter: csv.delimiter(),
                },
                // Each row is converted to a line of JSON.
                FormatName::Ndjson | FormatName::Parquet => Framing::Ndjson,
            },
            bytes,
        })
    }

    /// Opens the input. A read from a pipe fails once `stopped` is set, even while it waits for bytes.
    pub(super) fn open(&self, stopped: &Arc<AtomicBool>) -> io::Result<Opened> {
        let file = if self.path == Path::new("-") {
            File::from(io::stdin().as_fd().try_clone_to_owned()?)
        } else {
            File::open(&self.path)?
        };
        let source: Box<dyn Read> = match self.bytes {
            Some(_) => Box::new(file),
            None => Box::new(Waiting {
                file,
                stopped: Arc::clone(stopped),
            }),
        };
        let read = Rc::new(Cell::new(0));
        let counted = Counted {
            inner: source,
            read: Rc::clone(&read),
        };
        let mut buffered = BufReader::with_capacity(READ_BYTES, counted);
        // The first bytes determine the compression, because a stream has no name and a name may be wrong.
        let head = buffered.fill_buf()?;
        let reader: Box<dyn Read> = if head.starts_with(&[0x1f, 0x8b]) {
            Box::new(flate2::bufread::MultiGzDecoder::new(buffered))
        } else if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(buffered)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            Box::new(decoder)
        } else {
            Box::new(buffered)
        };
        Ok(Opened { reader, read })
    }
}

/// Pipe or similar file whose reads wait for the other end.
struct Waiting {
    file: File,
    stopped: Arc<AtomicBool>,
}

impl Read for Waiting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.stopped.load(Ordering::Acquire) {
                return Err(io::Error::other("nothing more can be sent"));
            }
            let mut waited = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut waited, Some(&LOOK_INTERVAL)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return self.file.read(buffer),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Reader that counts the bytes read.
struct Counted {
    inner: Box<dyn Read>,
    read: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read.set(self.read.get() + read as u64);
        Ok(read)
    }
}

/// Finds all inputs of the paths. Fails with a usage error if a folder contains no input, a format is unknown, standard
/// input is a terminal or is to be read as Parquet, or an option does not apply.
pub(super) fn find(paths: &[PathBuf], format: Option<FormatName>, csv: &CsvArguments) -> Result<Vec<Input>> {
    let mut inputs = Vec::new();
    for path in paths {
        if path == Path::new("-") {
            if io::stdin().is_terminal() {
                return Err(CliError::usage(
                    "nothing to send: pass files or folders, or pipe lines to standard input",
                ));
            }
            if format == Some(FormatName::Parquet) {
                return Err(CliError::usage(
                    "Parquet is read from files only, because its metadata is at the end; use a file",
                ));
            }
            inputs.push(Input::new(path, format.unwrap_or(FormatName::Lp), csv)?);
        } else if path.is_dir() {
            let before = inputs.len();
            below(path, format, csv, &mut inputs)?;
            if inputs.len() == before {
                return Err(CliError::usage(format!(
                    "{}: the folder contains no .lp, .txt, .csv, .ndjson, .jsonl or .parquet file",
                    path.display()
                )));
            }
        } else {
            let format = format.or_else(|| format_of(path)).ok_or_else(|| {
                CliError::usage(format!(
                    "{}: unknown file ending; use --format lp, csv, ndjson or parquet",
                    path.display()
                ))
            })?;
            inputs.push(Input::new(path, format, csv)?);
        }
    }
    let has = |format| inputs.iter().any(|input| input.format == format);
    csv.check(has(FormatName::Csv) || has(FormatName::Parquet))?;
    if has(FormatName::Parquet) {
        csv.check_for_parquet()?;
    }
    Ok(inputs)
}

/// Adds the files with a known ending in a folder and its subfolders, sorted by name. Links to folders are not
/// followed.
fn below(
    folder: &Path,
    format: Option<FormatName>,
    csv: &CsvArguments,
    inputs: &mut Vec<Input>,
) -> Result<()> {
    let failed = |error| CliError::file(folder, error);
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut entries = entries.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_type().map_err(failed)?.is_dir() {
            below(&path, format, csv, inputs)?;
        } else if let (Some(named), true) = (format_of(&path), path.is_file()) {
            inputs.push(Input::new(&path, format.unwrap_or(named), csv)?);
        }
    }
    Ok(())
}

/// Returns the format of a file's ending; `None` for an unknown ending.
fn format_of(path: &Path) -> Option<FormatName> {
    let name = path.file_name()?.to_str()?.to_ascii_lowercase();
    let is_plain = name.ends_with(".parquet");
    let name = name
        .strip_suffix(".gz")
        .or_else(|| name.strip_suffix(".zst"))
        .unwrap_or(&name);
    match name.rsplit_once('.')?.1 {
        "lp" | "txt" => Some(FormatName::Lp),
        "csv" => Some(FormatName::Csv),
        "ndjson" | "jsonl" => Some(FormatName::Ndjson),
        // Parquet files are compressed internally, and are not read sequentially.
        "parquet" if is_plain => Some(FormatName::Parquet),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_formats() {
        for (name, format) in [
            ("a.lp", Some(FormatName::Lp)),
            ("a.b.TXT.gz", Some(FormatName::Lp)),
            ("a.csv.zst", Some(FormatName::Csv)),
            ("a.jsonl", Some(FormatName::Ndjson)),
            ("a.Parquet", Some(FormatName::Parquet)),
            ("a.parquet.gz", None),
            ("a.gz", None),
            ("lp", None),
        ] {
            assert_eq!(format_of(Path::new(name)), format, "{name}");
        }
    }
}
