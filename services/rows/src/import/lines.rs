//! Lines of JSON: rows in the form of exports, or flat objects.
//!
//! A line with an object `key` has the form of a row, `{"key": {…}, "columns": {…}}`, and may contain versions. Every
//! other object is flat: its members are treated like the columns of a file.

use std::io::{BufRead, BufReader, Read};

use serde::Deserialize;
use tideline_openapi::plain;
use tideline_openapi::row::Members;

use super::columns::{FileColumns, FileValue};
use super::{RECORD_BYTES_MAX, Record};
use crate::error::{Result, RowsError};

/// Line in the form of a row.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RowLine {
    key: Members,
    #[serde(default)]
    columns: Members,
}

/// Reads lines and passes each record with its size to `take`. Empty lines are skipped.
pub(super) fn read(
    input: impl Read,
    columns: &FileColumns<'_>,
    take: &mut dyn FnMut(Record, usize) -> Result<()>,
) -> Result<()> {
    let mut reader = BufReader::with_capacity(64 << 10, input);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut bounded = (&mut reader).take(RECORD_BYTES_MAX as u64 + 1);
        let read = bounded.read_until(b'\n', &mut line).map_err(RowsError::Input)?;
        if read == 0 {
            return Ok(());
        }
        if line.len() > RECORD_BYTES_MAX {
            return Err(RowsError::over(
                "size of a line in bytes",
                RECORD_BYTES_MAX as u64,
                line.len() as u64,
            ));
        }
        if !line.trim_ascii().is_empty() {
            take(record(&line, columns), line.len())?;
        }
    }
}

fn record(line: &[u8], columns: &FileColumns<'_>) -> Record {
    let members: Members = plain::read(line).map_err(|fault| fault.message)?;
    let has_key = members.get("key").is_some_and(|json| json.starts_with('{'));
    if has_key {
        let row: RowLine = plain::read(line).map_err(|fault| fault.message)?;
        return Ok(columns.write(row.key, row.columns));
    }
    let mut builder = columns.record();
    for (name, json) in members.iter() {
        if json != "null" {
            builder.add(&columns.target(name), FileValue::Json(json.to_owned()));
        }
    }
    builder.end().0
}
