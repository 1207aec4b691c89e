//! Resume file: records which byte ranges of the inputs the server has acknowledged. For Parquet files these
//! are ranges of rows.
//!
//! Each line is JSON. The first line contains the run, the server, the table and the options that determine how
//! inputs are read: a run with times in milliseconds must not skip a range that was sent with times in seconds.
//! Each further line is one range, appended when its batch is acknowledged. Ranges have a hash of their bytes, so
//! that a changed file is sent again from the change on. An incomplete line, left by a crash, is ignored. The batch of
//! this line is sent again under the same idempotency key, so that nothing is stored twice.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::cutter::RecordBlock;
use crate::client::Client;
use crate::error::{CliError, Result};

/// Version of the file format.
const VERSION: u32 = 2;
/// Longest accepted range, in bytes or rows. Every batch is smaller.
const RANGE_BYTES_MAX: u64 = 32 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    tideline_write: u32,
    run: String,
    server: String,
    table: String,
    /// Options that determine how inputs are read, by name.
    #[serde(default)]
    reading: Map<String, Value>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    file: String,
    start: u64,
    end: u64,
    hash: String,
    /// Number of rows in the range that were not stored.
    #[serde(default, skip_serializing_if = "is_zero")]
    rejected: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Open resume file.
pub(super) struct ResumeLog {
    path: PathBuf,
    file: Mutex<File>,
    run: String,
}

/// Ranges that earlier runs sent, by input.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    files: HashMap<String, Ranges>,
}

/// Ranges of one input that earlier runs sent, by start.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u64, Range>);

/// Acknowledged range of an input.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) hash: u64,
    /// Number of rows in the range that were not stored.
    pub(super) rejected: u64,
}

impl Range {
    pub(super) fn len(&self) -> usize {
        usize::try_from(self.end - self.start).unwrap_or(usize::MAX)
    }
}

impl Ranges {
    /// Returns the first range that starts at `offset` or later; `None` without such a range. Drops the ranges that
    /// start before `offset`.
    pub(super) fn next_from(&mut self, offset: u64) -> Option<Range> {
        self.0 = self.0.split_off(&offset);
        self.0.first_key_value().map(|(_, range)| *range)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Acknowledged {
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Takes the acknowledged ranges of an input.
    pub(super) fn take(&mut self, path: &str) -> Ranges {
        self.files.remove(path).unwrap_or_default()
    }
}

impl ResumeLog {
    /// Opens the file, or creates it for `run`.
    ///
    /// Fails with a usage error if the file is not a resume file, is in use, or was written by a run with another
    /// version, table, server or reading options.
    pub(super) fn open(
        path: &Path,
        client: &Client,
        reading: Map<String, Value>,
        run: String,
    ) -> Result<(Self, Acknowledged)> {
        let failed = |error| CliError::file(path, error);
        let mut acknowledged = Acknowledged::default();
        let header = match File::open(path) {
            Ok(file) => read(path, BufReader::new(file), client, &reading, &mut acknowledged)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(failed)?;
        if file.try_lock().is_err() {
            return Err(CliError::usage(format!(
                "{} is in use by another run; use another file, or wait for its end",
                path.display()
            )));
        }
        let run = match header {
            Some(header) => {
                // Ends a line that a crash has left incomplete.
                file.write_all(b"\n").map_err(failed)?;
                header.run
            }
            None => {
                let header = Header {
                    tideline_write: VERSION,
                    run: run.clone(),
                    server: client.base().to_owned(),
                    table: client.table().to_owned(),
                    reading,
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

    /// Returns the name of the run that created the file.
    pub(super) fn run(&self) -> &str {
        &self.run
    }

    /// Appends an acknowledged block. `rejected` is the number of its rows that were not stored.
    pub(super) fn acknowledge(
        &self,
        path: &str,
        block: &RecordBlock,
        hash: u64,
        rejected: u64,
    ) -> Result<()> {
        let entry = Entry {
            file: path.to_owned(),
            start: block.start,
            end: block.end,
            hash: format!("{hash:016x}"),
            rejected,
        };
        let line = format!("{}\n", serde_json::json!(entry));
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes())
            .map_err(|error| CliError::file(&self.path, error))
    }
}

/// Reads the file. Returns `None` if its first line is missing or incomplete. Fails with a usage error if it is not a
/// resume file, or belongs to a run with another version, server, table or reading options.
fn read(
    path: &Path,
    mut lines: impl BufRead,
    client: &Client,
    reading: &Map<String, Value>,
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
        // A crash interrupted the first write. Any other content is not a resume file.
        Err(_) if line.is_empty() || (line.starts_with(b"{\"r") && !line.ends_with(b"\n")) => {
            return Ok(None);
        }
        Err(_) => {
            return Err(CliError::usage(format!(
                "{} is not a resume file of `tideline write`",
                path.display()
            )));
        }
    };
    if header.tideline_write != VERSION || header.server != client.base() || header.table != client.table() {
        return Err(CliError::usage(format!(
            "{} belongs to a run into table {} of {}; use another file, or delete it to start over",
            path.display(),
            header.table,
            header.server
        )));
    }
    let names = header.reading.keys().chain(reading.keys());
    let other = |name: &&String| header.reading.get(*name) != reading.get(*name);
    if let Some(name) = names.into_iter().find(other) {
        let shown = |of: &Map<String, Value>| match of.get(name) {
            None => "nothing".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        return Err(CliError::usage(format!(
            "{} belongs to a run with {} for --{name}, and this one has {}; use the same options or \
             another file, or delete it to start over",
            path.display(),
            shown(&header.reading),
            shown(reading)
        )));
    }
    while next(&mut line)? > 0 {
        let Ok(entry) = serde_json::from_slice::<Entry>(&line) else {
            continue;
        };
        let is_sound = entry.start < entry.end && entry.end - entry.start <= RANGE_BYTES_MAX;
        if let (true, Ok(hash)) = (is_sound, u64::from_str_radix(&entry.hash, 16)) {
            let ranges = acknowledged.files.entry(entry.file).or_default();
            let range = Range {
                start: entry.start,
                end: entry.end,
                hash,
                rejected: entry.rejected,
            };
            ranges.0.insert(entry.start, range);
        }
    }
    Ok(Some(header))
}
