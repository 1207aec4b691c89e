//! Lines that were not stored. If there is a rejects file, all are written to it, each after a comment with
//! its position and the reason. The first few are shown at the end of the run.
//!
//! After correction, a rejects file of line protocol can be sent as it is.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::error::{CliError, Result};

/// Maximum number of rejects shown at the end.
const SHOWN_MAX: usize = 5;
/// Maximum number of characters shown of a reject.
const SHOWN_CHARACTERS_MAX: usize = 300;

/// Output of rejected lines.
pub(super) struct Rejects {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    file: Option<BufWriter<std::fs::File>>,
    first: Vec<String>,
}

/// Line or row that was not stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RejectedRow<'a> {
    /// Line number in the input.
    pub(super) line: u64,
    pub(super) reason: String,
    /// Bytes of the row in the input.
    pub(super) row: &'a [u8],
}

impl Rejects {
    /// Opens the rejects file, if `path` is given. The file is truncated unless `goes_on` is true.
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

    /// Adds the rejects of one batch. If the server did not list all of them, `rest` holds the rows after the last
    /// listed one; `unnamed` of these rows were rejected. The other rows in `rest` are already stored. Storing rows
    /// with a time again is harmless.
    pub(super) fn add(
        &self,
        input: &str,
        rejected: &[RejectedRow<'_>],
        unnamed: u64,
        rest: &[u8],
    ) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for reject in rejected {
            let position = format!(
                "{input}:{}: {}",
                reject.line,
                reject.reason.replace(['\n', '\r'], " ")
            );
            if let Some(file) = &mut state.file {
                let row = reject.row.trim_ascii_end();
                let written = writeln!(file, "# {position}")
                    .and_then(|()| file.write_all(row))
                    .and_then(|()| file.write_all(b"\n"));
                written.map_err(|error| CliError::file(&self.path, error))?;
            }
            if state.first.len() < SHOWN_MAX {
                state
                    .first
                    .push(position.chars().take(SHOWN_CHARACTERS_MAX).collect());
            }
        }
        let line = rejected.last().map_or(0, |reject| reject.line);
        if let (Some(file), true) = (&mut state.file, unnamed > 0) {
            let written = writeln!(
                file,
                "# {input}: {unnamed} of these rows after line {line}; the server did not report which"
            )
            .and_then(|()| file.write_all(rest.trim_ascii_end()))
            .and_then(|()| file.write_all(b"\n"));
            written.map_err(|error| CliError::file(&self.path, error))?;
        }
        // The batch counts as acknowledged only after this flush.
        match &mut state.file {
            Some(file) => file.flush().map_err(|error| CliError::file(&self.path, error)),
            None => Ok(()),
        }
    }

    /// Returns true if there is a rejects file.
    pub(super) fn has_file(&self) -> bool {
        !self.path.as_os_str().is_empty()
    }

    /// Returns the texts of the first rejects, at most [`SHOWN_MAX`].
    pub(super) fn first(&self) -> Vec<String> {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .first
            .clone()
    }
}
