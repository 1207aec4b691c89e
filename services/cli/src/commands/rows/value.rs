//! `tideline rows put-value` and `get-value`: values of any size, streamed from and to files.
//!
//! A download to a file is written to `FILE.CHECKSUM.partial` first. A repeated command continues it, if the value
//! still has this checksum.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::RowsTable;
use super::shape::TableShape;
use crate::client::{Client, ValueResponse, encoded};
use crate::error::{CliError, Result};
use crate::output;

pub(super) const PUT_EXAMPLES: &str = "\
Examples:
  tideline rows put-value media video id=v1 --from harbour.mp4
  gzip -dc dump.gz | tideline rows put-value media log id=v1 --text
  tideline rows put-value media video id=v1 --from harbour.mp4 --if-checksum 5bd1e995c2b2ae35

The other columns of the row stay; a missing row is created. The value replaces the current one when it is
complete. A value has at most 1 GiB.";

pub(super) const GET_EXAMPLES: &str = "\
Examples:
  tideline rows get-value media video id=v1 --out harbour.mp4
  tideline rows get-value media log id=v1 | grep error
  tideline rows get-value media video id=v1 --range 0-1023 | xxd

With --out, the value is written to FILE.CHECKSUM.partial first. A repeated command continues an
interrupted download.";

/// Length of a checksum, in characters.
const CHECKSUM_CHARS: usize = 16;
/// Size of the buffer of a download, in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// Column of a row.
#[derive(Debug, Args)]
struct ValueAddress {
    #[command(flatten)]
    table: RowsTable,
    /// Name of the column
    #[arg(value_name = "COLUMN")]
    column: String,
    /// Values of all key columns as NAME=VALUE
    #[arg(value_name = "KEY", required = true)]
    key: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PutValueArguments {
    #[command(flatten)]
    address: ValueAddress,
    /// File with the value [default: standard input]
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// The value of an undeclared column is text [default: bytes]
    #[arg(long)]
    text: bool,
    /// Only if the row has no value in the column
    #[arg(long, conflicts_with = "if_checksum")]
    if_absent: bool,
    /// Only if the current value has this checksum
    #[arg(long, value_name = "CHECKSUM")]
    if_checksum: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct GetValueArguments {
    #[command(flatten)]
    address: ValueAddress,
    /// Output file [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Bytes to read, such as 0-1023, 1024- or -1024
    #[arg(
        long,
        value_name = "RANGE",
        conflicts_with = "out",
        allow_hyphen_values = true
    )]
    range: Option<String>,
}

impl ValueAddress {
    /// Returns the client, and the path of the value with the key as the first parameter.
    fn path(&self) -> Result<(Client, String)> {
        let client = self.table.client()?;
        let shape = TableShape::read(&client)?;
        let mut key = Vec::new();
        for text in &self.key {
            let (name, value) = shape.pair(text)?;
            key.push(format!("{}:{}", json!(name), value.get()));
        }
        let key = encoded(&format!("{{{}}}", key.join(",")));
        let path = client.of_table(&format!("/blobs/{}?key={key}", encoded(&self.column)));
        Ok((client, path))
    }
}

/// Writes a value from a file or from standard input.
pub(super) fn put(arguments: &PutValueArguments) -> Result<()> {
    let (client, mut path) = arguments.address.path()?;
    if arguments.if_absent {
        path.push_str("&if_absent=true");
    }
    if let Some(checksum) = &arguments.if_checksum {
        path.push_str(&format!("&if_checksum={}", encoded(checksum)));
    }
    let content_type = match arguments.text {
        true => "text/plain",
        false => "application/octet-stream",
    };
    let text = match &arguments.from {
        Some(from) => {
            let failed = |error| CliError::file(from, error);
            let mut file = File::open(from).map_err(failed)?;
            let metadata = file.metadata().map_err(failed)?;
            // A pipe or a device has no length.
            let length = metadata.is_file().then_some(metadata.len());
            client.put_stream(&path, content_type, length, &mut file)?
        }
        None if io::stdin().is_terminal() => {
            return Err(CliError::usage(
                "give a file with --from, or pass the value in a pipe",
            ));
        }
        None => client.put_stream(&path, content_type, None, &mut io::stdin().lock())?,
    };
    if arguments.address.table.connection.json {
        return output::print(&text);
    }
    let written = client.parse(&text)?;
    output::print(&format!(
        "{} bytes written, checksum {}",
        output::count(written["bytes"].as_u64().unwrap_or_default()),
        written["checksum"].as_str().unwrap_or_default()
    ))
}

/// Reads a value to a file or to standard output.
pub(super) fn get(arguments: &GetValueArguments) -> Result<()> {
    let (client, path) = arguments.address.path()?;
    let Some(out) = &arguments.out else {
        let range = arguments.range.as_ref().map(|range| format!("bytes={range}"));
        let mut response = client.get_value(&path, range.as_deref(), None)?;
        let mut stdout = io::stdout().lock();
        if !response.is_text && stdout.is_terminal() {
            return Err(CliError::usage(
                "refusing to write binary data to a terminal; use --out FILE or a pipe",
            ));
        }
        copy(&client, &mut response, &mut stdout).map_err(|error| error.at(Path::new("standard output")))?;
        return Ok(stdout.flush()?);
    };
    let (partial, mut response) = begin(&client, &path, out)?;
    let failed = |error| CliError::file(&partial, error);
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&partial)
        .map_err(failed)?;
    copy(&client, &mut response, &mut file).map_err(|error| error.at(&partial))?;
    file.sync_all().map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    std::fs::rename(&partial, out).map_err(failed)?;
    match arguments.address.table.connection.json {
        true => output::print(&json!({"bytes": bytes, "checksum": response.checksum}).to_string()),
        false => output::print(&format!(
            "{} bytes written to {}",
            output::count(bytes),
            out.display()
        )),
    }
}

/// Requests the value for a download to a file. If a partial file contains the first bytes of the value, requests only
/// the rest. Returns the partial file, to which the caller appends the response.
fn begin(client: &Client, path: &str, out: &Path) -> Result<(PathBuf, ValueResponse)> {
    if let Some((partial, checksum)) = partial_of(out)? {
        let length = std::fs::metadata(&partial)
            .map_err(|error| CliError::file(&partial, error))?
            .len();
        let tag = format!("\"{checksum}\"");
        // The last byte is requested again, because a range after the end of a complete file is refused.
        let kept = length.saturating_sub(1);
        let response = client.get_value(path, Some(&format!("bytes={kept}-")), Some(&tag))?;
        if response.is_partial {
            let file = OpenOptions::new().write(true).open(&partial);
            let cut = file.and_then(|file| file.set_len(kept));
            cut.map_err(|error| CliError::file(&partial, error))?;
            return Ok((partial, response));
        }
        std::fs::remove_file(&partial).map_err(|error| CliError::file(&partial, error))?;
        return Ok((partial_name(out, &response.checksum), response));
    }
    let response = client.get_value(path, None, None)?;
    Ok((partial_name(out, &response.checksum), response))
}

fn partial_name(out: &Path, checksum: &str) -> PathBuf {
    let mut name = OsString::from(out);
    name.push(format!(".{checksum}.partial"));
    name.into()
}

/// Returns the partial file of an interrupted download, and the checksum of its value.
fn partial_of(out: &Path) -> Result<Option<(PathBuf, String)>> {
    let folder = match out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let Some(name) = out.file_name().and_then(|name| name.to_str()) else {
        return Ok(None);
    };
    let failed = |error| CliError::file(folder, error);
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let found = entry.file_name();
        let checksum = found.to_str().and_then(|found| {
            found
                .strip_prefix(name)?
                .strip_prefix('.')?
                .strip_suffix(".partial")
        });
        let is_checksum =
            |text: &&str| text.len() == CHECKSUM_CHARS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if let Some(checksum) = checksum.filter(is_checksum) {
            return Ok(Some((entry.path(), checksum.to_owned())));
        }
    }
    Ok(None)
}

/// Failure of a download.
enum CopyError {
    Read(CliError),
    Write(io::Error),
}

impl CopyError {
    fn at(self, path: &Path) -> CliError {
        match self {
            Self::Read(error) => error,
            Self::Write(error) => CliError::file(path, error),
        }
    }
}

/// Copies the content of a response.
fn copy(
    client: &Client,
    response: &mut ValueResponse,
    out: &mut dyn Write,
) -> std::result::Result<(), CopyError> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match response.reader.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => out.write_all(&buffer[..length]).map_err(CopyError::Write)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                let reason = format!("the value ended early: {error}; repeat the command");
                return Err(CopyError::Read(client.strange(&reason)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_file_is_found_by_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let out = folder.path().join("a.bin");
        assert_eq!(partial_of(&out).expect("it is read"), None);
        for other in [
            "a.bin.partial",
            "a.bin.zz.partial",
            "b.bin.0123456789abcdef.partial",
        ] {
            std::fs::write(folder.path().join(other), b"x").expect("it is written");
        }
        assert_eq!(partial_of(&out).expect("it is read"), None);
        let partial = partial_name(&out, "0123456789abcdef");
        std::fs::write(&partial, b"x").expect("it is written");
        let found = partial_of(&out).expect("it is read");
        assert_eq!(found, Some((partial, "0123456789abcdef".to_owned())));
    }
}
