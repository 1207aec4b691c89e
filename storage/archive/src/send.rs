//! Sending of files, and verification at the target before a file is used.
//!
//! A file is read back completely after the put, and it is used only if the target has stored it correctly.

use bytes::Bytes;
use parquet::file::metadata::ParquetMetaDataReader;

use crate::copy::ArchiveFile;
use crate::digest::sha256_hex;
use crate::error::{ArchiveError, Result};
use crate::file::writer::FinishedFile;
use crate::layout::{DESCRIPTION_BYTES_MAX, DIGITS, file_name};
use crate::target::Target;

/// Sends a file under a name derived from its content, and verifies it at the target.
pub(crate) fn send(
    target: &Target,
    file: &FinishedFile,
    times: (i64, i64),
    shared: bool,
    name: impl FnOnce(&str) -> String,
) -> Result<ArchiveFile> {
    let content = std::fs::read(file.file.path()).map_err(ArchiveError::local("reading"))?;
    let content = Bytes::from(content);
    let summed = content.get(..file.sums.end() as usize);
    if summed.is_none_or(|summed| file.sums.first_wrong(0, summed).is_some()) {
        // Without this check, bytes damaged on the disk would get a valid checksum and be accepted.
        let changed = std::io::Error::other("the disk returned bytes that differ from those written");
        return Err(ArchiveError::local("reading")(changed));
    }
    let about = ContentOfFile {
        index_from: file.index_from(),
        rows: file.rows,
        times,
        shared,
    };
    let sent = about.described(&content, name);
    target.put_new(&sent.key, &content)?;
    drop(content);
    verify_file(target, &sent)?;
    Ok(sent)
}

/// Sends a file from memory under a name derived from its content. Reads the object back and compares it with the sent
/// bytes.
pub(crate) fn send_content(
    target: &Target,
    content: &Bytes,
    about: &ContentOfFile,
    name: impl FnOnce(&str) -> String,
) -> Result<ArchiveFile> {
    let sent = about.described(content, name);
    target.put_new(&sent.key, content)?;
    match target.get(&sent.key, sent.bytes)? == *content {
        true => Ok(sent),
        false => Err(target.damaged(&sent.key, "the target returned bytes that differ from those sent")),
    }
}

/// Metadata of a file to be sent.
pub(crate) struct ContentOfFile {
    /// Offset of the page indexes and footer.
    pub(crate) index_from: u64,
    pub(crate) rows: u64,
    /// First and last timestamp.
    pub(crate) times: (i64, i64),
    pub(crate) shared: bool,
}

impl ContentOfFile {
    /// Returns the description of a file with its checksums.
    fn described(&self, content: &Bytes, name: impl FnOnce(&str) -> String) -> ArchiveFile {
        let sha256 = sha256_hex(content);
        let index = content.get(self.index_from as usize..).unwrap_or_default();
        ArchiveFile {
            key: name(&sha256),
            bytes: content.len() as u64,
            index_from: self.index_from,
            index_sha256: sha256_hex(index),
            rows: self.rows,
            sha256,
            first: self.times.0,
            last: self.times.1,
            shared: self.shared,
        }
    }
}

/// Reads a description and verifies its content with the checksum in its name.
pub(crate) fn verify_name(target: &Target, key: &str) -> Result<()> {
    let content = target.get(key, DESCRIPTION_BYTES_MAX)?;
    match file_name(key).contains(&sha256_hex(&content)[..DIGITS]) {
        true => Ok(()),
        false => Err(target.damaged(key, "its checksum does not match")),
    }
}

/// Reads a file and verifies its size, checksum, number of rows, and the range of timestamps in its statistics.
pub(crate) fn verify_file(target: &Target, file: &ArchiveFile) -> Result<()> {
    let content = target.get(&file.key, file.bytes)?;
    let damaged = |reason: String| target.damaged(&file.key, reason);
    if content.len() as u64 != file.bytes {
        return Err(damaged(format!(
            "it has {} bytes instead of {}",
            content.len(),
            file.bytes
        )));
    }
    if sha256_hex(&content) != file.sha256 {
        return Err(damaged("its checksum does not match".into()));
    }
    let metadata = ParquetMetaDataReader::new()
        .parse_and_finish(&content)
        .map_err(|error| damaged(error.to_string()))?;
    let rows = metadata.file_metadata().num_rows();
    if u64::try_from(rows) != Ok(file.rows) {
        return Err(damaged(format!(
            "its footer declares {rows} rows instead of {}",
            file.rows
        )));
    }
    let columns = metadata.row_groups().iter().flat_map(|group| group.columns());
    let times = columns.filter(|column| column.column_path().string() == crate::file::columns::TIME);
    for times in times {
        let outside = |bound: Option<&[u8]>| {
            let time = bound
                .and_then(|bytes| bytes.first_chunk())
                .map(|bytes| i64::from_le_bytes(*bytes));
            time.is_some_and(|time| time < file.first || time > file.last)
        };
        if let Some(statistics) = times.statistics()
            && (outside(statistics.min_bytes_opt()) || outside(statistics.max_bytes_opt()))
        {
            return Err(damaged(
                "its timestamps are outside the range recorded for it".into(),
            ));
        }
    }
    Ok(())
}
