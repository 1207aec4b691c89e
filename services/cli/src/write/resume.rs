//! The resume file: which ranges of bytes of which files the server has acknowledged; of Parquet files, ranges of rows.
//!
//! A line of JSON each, appended as acknowledgements come; the first line names the run, the server, the table and
//! how the inputs are read: a range that was sent in seconds is not done for a run that means milliseconds.
//! Ranges bear a hash of their bytes, so a file that was changed is sent again from the changed place on. A line that
//! a crash cut short is left aside: its batch is sent again, which is safe, and under the same key, which stores
//! nothing twice.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::cutter::Piece;
use crate::client::Client;
use crate::error::{CliError, Result};

/// The form of the file.
const VERSION: u32 = 2;
/// Most bytes of a range that is believed; no batch is as large.
const RANGE_BYTES_MAX: u64 = 32 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    tideline_write: u32,
    run: String,
    server: String,
    table: String,
    /// How inputs are read, by the names of options.
    #[serde(default)]
    reading: Map<String, Value>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    file: String,
    start: u64,
    end: u64,
    hash: String,
    /// Rows of it that were not stored.
    #[serde(default, skip_serializing_if = "is_zero")]
    rejected: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(count: &u64) -> bool {
    *count == 0
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
pub(super) struct Ranges(BTreeMap<u64, Range>);

/// Bytes that were acknowledged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) hash: u64,
    /// Rows of it that were not stored.
    pub(super) rejected: u64,
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

    /// What was sent of a file.
    pub(super) fn take(&mut self, path: &str) -> Ranges {
        self.files.remove(path).unwrap_or_default()
    }
}

impl ResumeLog {
    /// Opens the file, or begins it as that of `run`.
    ///
    /// A usage error where it belongs to a run into another table, or one that read its inputs in another way.
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
                "{} is in use by another run; take another file, or wait for its end",
                path.display()
            )));
        }
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

    /// The name of the run that the file belongs to.
    pub(super) fn run(&self) -> &str {
        &self.run
    }

    /// Notes that a piece was acknowledged, of which so many rows were not stored.
    pub(super) fn acknowledge(&self, path: &str, piece: &Piece, hash: u64, rejected: u64) -> Result<()> {
        let entry = Entry {
            file: path.to_owned(),
            start: piece.start,
            end: piece.end,
            hash: format!("{hash:016x}"),
            rejected,
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
        // A crash in the very first write; anything else is somebody's file.
        Err(_) if line.is_empty() || (line.starts_with(b"{\"r") && !line.ends_with(b"\n")) => {
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
    let names = header.reading.keys().chain(reading.keys());
    let other = |name: &&String| header.reading.get(*name) != reading.get(*name);
    if let Some(name) = names.into_iter().find(other) {
        let shown = |of: &Map<String, Value>| match of.get(name) {
            None => "nothing".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        return Err(CliError::usage(format!(
            "{} belongs to a run with {} for --{name}, and this one has {}; give the same options, take another file, \
             or delete it to begin anew",
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
