//! Lines that were not stored: all of them in a file, each below a comment that names its place and the reason, or the
//! first few shown at the end. Mended, a file of rejected line protocol can be written as it is.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::error::{CliError, Result};

/// Rejects that are shown at the end.
const SHOWN_MAX: usize = 5;
/// Most bytes of a reason that is shown.
const SHOWN_BYTES_MAX: usize = 300;

/// Where rejects go.
pub(super) struct Rejects {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    file: Option<BufWriter<std::fs::File>>,
    first: Vec<String>,
}

/// A line or row that was not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RejectedRow<'a> {
    /// The number of its line in the input.
    pub(super) line: u64,
    pub(super) reason: String,
    /// The row as it stands there.
    pub(super) row: &'a [u8],
}

impl Rejects {
    /// Begins the file, or goes on with it.
    pub(super) fn open(path: Option<&Path>, goes_on: bool) -> Result<Self> {
        let file = path.map(|path| {
            let mut options = OpenOptions::new();
            options
                .create(true)
                .write(true)
                .append(goes_on)
                .truncate(!goes_on);
            options.open(path).map_err(|error| CliError::file(path, error))
        });
        Ok(Self {
            path: path.map(Path::to_owned).unwrap_or_default(),
            state: Mutex::new(State {
                file: file.transpose()?.map(BufWriter::new),
                first: Vec::new(),
            }),
        })
    }

    /// Adds those of one batch, and what lies behind them if the server did not name all: then `unnamed` says how many of
    /// these rows it has rejected. The others are stored; those that bear a time may be stored again.
    pub(super) fn add(
        &self,
        input: &str,
        rejected: &[RejectedRow<'_>],
        unnamed: u64,
        behind: &[u8],
    ) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for reject in rejected {
            let place = format!(
                "{input}:{}: {}",
                reject.line,
                reject.reason.replace(['\n', '\r'], " ")
            );
            if let Some(file) = &mut state.file {
                let row = reject.row.trim_ascii_end();
                let written = writeln!(file, "# {place}")
                    .and_then(|()| file.write_all(row))
                    .and_then(|()| file.write_all(b"\n"));
                written.map_err(|error| CliError::file(&self.path, error))?;
            }
            if state.first.len() < SHOWN_MAX {
                state.first.push(place.chars().take(SHOWN_BYTES_MAX).collect());
            }
        }
        let line = rejected.last().map_or(0, |reject| reject.line);
        if let (Some(file), true) = (&mut state.file, unnamed > 0) {
            let written = writeln!(
                file,
                "# {input}: {unnamed} of these behind line {line}, which the server did not name"
            )
            .and_then(|()| file.write_all(behind.trim_ascii_end()))
            .and_then(|()| file.write_all(b"\n"));
            written.map_err(|error| CliError::file(&self.path, error))?;
        }
        // Before the batch counts as acknowledged.
        match &mut state.file {
            Some(file) => file.flush().map_err(|error| CliError::file(&self.path, error)),
            None => Ok(()),
        }
    }

    /// Whether there is a file for them.
    pub(super) fn has_file(&self) -> bool {
        !self.path.as_os_str().is_empty()
    }

    /// The first of all.
    pub(super) fn first(&self) -> Vec<String> {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .first
            .clone()
    }
}
