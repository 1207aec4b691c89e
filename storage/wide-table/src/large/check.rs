//! Offline check of large values: all pieces of each value that a flushed row references exist and are unchanged.
//!
//! Pieces that no row references are not damage. An interrupted upload leaves them, and garbage collection removes
//! them. Missing pieces of rows that were attached from the archive of another database are counted, and are not
//! damage.

use bytes::Bytes;
use tideline_backend::Backend;
use tideline_log::LogError;
use tideline_model::TableId;
use xxhash_rust::xxh3::Xxh3;

use super::{LargeValue, named_in, open_piece, partition, piece_key};
use crate::check::{CheckedRows, JournalChanges, StoredParts};
use crate::codec;
use crate::error::Damage;
use crate::state::Part;

/// Checks the large values of the flushed rows of a table. Rows that `journal` changes are skipped, because the values
/// that they referenced before may already have been removed. Reads every piece.
///
/// # Errors
///
/// The errors of the backend.
pub fn check_large(
    backend: &dyn Backend,
    parts: &StoredParts,
    table: TableId,
    journal: &JournalChanges,
) -> Result<CheckedRows, LogError> {
    let mut checked = CheckedRows::default();
    parts.each_row(backend, table, &mut |key, row| {
        if journal.changes(table, key) {
            return Ok(true);
        }
        // Damage of the row itself is reported by the check of the rows.
        let Ok(row) = row else { return Ok(true) };
        let Ok(columns) = codec::decode(&row) else {
            return Ok(true);
        };
        for value in named_in(&columns) {
            checked.rows += 1;
            let damage = match parts.large_part(table, key) {
                Some(part) => match check_value(backend, part, &value)? {
                    Ok(()) => {
                        checked.bytes += value.bytes;
                        continue;
                    }
                    Err(damage) => damage,
                },
                None => Damage("no part holds its pieces"),
            };
            match parts.is_elsewhere(table, key, value.id) {
                true => checked.not_archived += 1,
                false => checked.find("large value of row", key, &damage),
            }
        }
        Ok(checked.may_go_on("large values"))
    })?;
    Ok(checked)
}

/// Reads all pieces of a value, and compares their checksums and the checksum of the value.
fn check_value(
    backend: &dyn Backend,
    part: &Part,
    value: &LargeValue,
) -> Result<Result<(), Damage>, LogError> {
    let mut hash = Xxh3::new();
    for piece in 0..value.pieces() {
        let stored: Option<Bytes> = backend.get(partition(part.at), &piece_key(value.id, piece))?;
        let content = stored
            .ok_or(Damage("a piece of a large value is missing"))
            .and_then(|stored| open_piece(value, piece, &stored));
        match content {
            Ok(content) => hash.update(&content),
            Err(damage) => return Ok(Err(damage)),
        }
    }
    Ok(match hash.digest() == value.checksum {
        true => Ok(()),
        false => Err(Damage("a large value does not match its checksum")),
    })
}
