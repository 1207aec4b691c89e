//! The resume file: which ranges of bytes of which files the server has acknowledged.
//!
//! A line of JSON each, appended as acknowledgements come; the first line names the run, the server and the table.
//! Ranges bear a hash of their bytes, so a file that was changed is sent again from the changed place on. A line that
//! a crash cut short is left aside: its batch is sent again, which is safe, and under the same key, which stores
//! nothing twice.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::error::{CliError, Result};

/// The form of the file.
const VERSION: u32 = 1;
/// Most bytes of a range that is believed; no batch is as large.
const RANGE_BYTES_MAX: u64 = 32 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    tideline_write: u32,
    run: String,
    server: String,
    table: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    file: String,
    start: u64,
    end: u64,
    hash: String,
}

/// The open file.
pub(super) struct ResumeLog {
    path: PathBuf,
    file: Mutex<File>,
    run: String,
}

/// What earlier runs sent.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    files: HashMap<String, Ranges>,
}

/// What they sent of one file, by the start of the range.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u64, (u64, u64)>);

/// Bytes that were acknowledged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) start: u64,
    end: u64,
    pub(super) hash: u64,
}

impl Range {
    pub(super) fn len(&self) -> usize {
        usize::try_from(self.end - self.start).unwrap_or(usize::MAX)
    }
}

impl Ranges {
    /// The first range that begins at `offset` or behind; those before it are forgotten.
    pub(super) fn next_from(&mut self, offset: u64) -> Option<Range> {
        self.0 = self.0.split_off(&offset);
        let (&start, &(end, hash)) = self.0.first_key_value()?;
        Some(Range { start, end, hash })
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Acknowledged {
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// What was sent of a file.
    pub(super) fn take(&mut self, path: &str) -> Ranges {
        self.files.remove(path).unwrap_or_default()
    }
}

impl ResumeLog {
    /// Opens the file, or begins it as that of `run`.
    pub(super) fn open(path: &Path, client: &Client, run: String) -> Result<(Self, Acknowledged)> {
        let failed = |error| CliError::file(path, error);
        let mut acknowledged = Acknowledged::default();
        let header = match File::open(path) {
            Ok(file) => read(path, BufReader::new(file), client, &mut acknowledged)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(failed)?;
        let run = match header {
            Some(header) => {
                // Behind a line that was cut short.
                file.write_all(b"\n").map_err(failed)?;
                header.run
            }
            None => {
                let header = Header {
                    tideline_write: VERSION,
                    run: run.clone(),
                    server: client.base().to_owned(),
                    table: client.table().to_owned(),
                };
                file.set_len(0).map_err(failed)?;
                writeln!(file, "{}", serde_json::json!(header)).map_err(failed)?;
                run
            }
        };
        let log = Self {
            path: path.to_owned(),
            file: Mutex::new(file),
            run,
        };
        Ok((log, acknowledged))
    }

    /// The name of the run that the file belongs to.
    pub(super) fn run(&self) -> &str {
        &self.run
    }

    /// Notes a range.
    pub(super) fn acknowledge(&self, path: &str, start: u64, end: u64, hash: u64) -> Result<()> {
        let entry = Entry {
            file: path.to_owned(),
            start,
            end,
            hash: format!("{hash:016x}"),
        };
        let line = format!("{}\n", serde_json::json!(entry));
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes())
            .map_err(|error| CliError::file(&self.path, error))
    }
}

/// Reads the file; `None` where not even its first line is whole.
fn read(
    path: &Path,
    mut lines: impl BufRead,
    client: &Client,
    acknowledged: &mut Acknowledged,
) -> Result<Option<Header>> {
    let mut line = Vec::new();
    let mut next = |line: &mut Vec<u8>| {
        line.clear();
        lines
            .read_until(b'\n', line)
            .map_err(|error| CliError::file(path, error))
    };
    next(&mut line)?;
    let header: Header = match serde_json::from_slice(&line) {
        Ok(header) => header,
        // A crash in the very first write; anything else is somebody's file.
        Err(_) if line.is_empty() || (line.starts_with(b"{\"run\"") && !line.ends_with(b"\n")) => {
            return Ok(None);
        }
        Err(_) => {
            return Err(CliError::usage(format!(
                "{} is no resume file of `tideline write`",
                path.display()
            )));
        }
    };
    if header.tideline_write != VERSION || header.server != client.base() || header.table != client.table() {
        return Err(CliError::usage(format!(
            "{} belongs to a run into table {} of {}; take another file, or delete it to begin anew",
            path.display(),
            header.table,
            header.server
        )));
    }
    while next(&mut line)? > 0 {
        let Ok(entry) = serde_json::from_slice::<Entry>(&line) else {
            continue;
        };
        let is_sound = entry.start < entry.end && entry.end - entry.start <= RANGE_BYTES_MAX;
        if let (true, Ok(hash)) = (is_sound, u64::from_str_radix(&entry.hash, 16)) {
            let ranges = acknowledged.files.entry(entry.file).or_default();
            ranges.0.insert(entry.start, (entry.end, hash));
        }
    }
    Ok(Some(header))
}
