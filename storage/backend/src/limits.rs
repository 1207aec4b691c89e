//! Argument checks that every backend runs before a call takes effect.
//!
//! All backends share the checks, so that limits and their errors are the same everywhere.

use bytes::Bytes;
use tideline_model::SequenceNumber;

use crate::contract::*;
use crate::error::{BackendError, Result};

/// Checks that the keys of groups of changes strictly increase.
///
/// # Errors
///
/// [`BackendError::Refused`] if they do not.
pub fn check_sorted(groups: &[Vec<RowChange>]) -> Result<()> {
    let is_sorted = groups
        .iter()
        .flatten()
        .is_sorted_by(|one, next| one.key < next.key);
    is_sorted.then_some(()).ok_or_else(|| BackendError::Refused {
        reason: "the keys of a sorted write must rise".to_owned(),
    })
}

/// Checks the length of a key.
fn check_key(key: &[u8]) -> Result<()> {
    check("key", key.len(), KEY_BYTES_MAX)
}

/// Checks a row to be loaded.
///
/// # Errors
///
/// `TooLarge` if the key or value exceeds its limit.
pub fn check_row(row: &Row) -> Result<()> {
    check_key(&row.key)?;
    check("value", row.value.len(), VALUE_BYTES_MAX)
}

/// Checks the target and sizes of a [`Backend::write`].
///
/// # Errors
///
/// `Misconfigured` if the partition is a bucket of a segment, `TooLarge` if a limit is exceeded.
pub fn check_write(partition: Partition, changes: &[RowChange]) -> Result<()> {
    if let Unit::Segment(segment) = partition.unit {
        return Err(BackendError::Misconfigured {
            reason: format!("segment {} can be loaded, not written", segment.segment),
        });
    }
    let mut bytes = 0;
    for change in changes {
        check_key(&change.key)?;
        let value_bytes = change.value.as_ref().map_or(0, Bytes::len);
        check("value", value_bytes, VALUE_BYTES_MAX)?;
        bytes += change.key.len() + value_bytes;
    }
    check("rows of a write", changes.len(), WRITE_ROWS_MAX)?;
    check("bytes of a write", bytes, WRITE_BYTES_MAX)
}

/// Checks the sizes of journal entries, and that their sequence numbers increase. The first sequence number must be
/// above `acknowledged`, the highest acknowledged sequence number of the epoch.
///
/// # Errors
///
/// `TooLarge` if an entry exceeds its limit, `Refused` if the sequence numbers do not increase.
pub fn check_entries(entries: &[JournalEntry], acknowledged: Option<SequenceNumber>) -> Result<()> {
    let mut last = acknowledged;
    for entry in entries {
        check("journal entry", entry.value.len(), VALUE_BYTES_MAX)?;
        if last.is_some_and(|last| entry.sequence <= last) {
            return Err(BackendError::Refused {
                reason: format!("journal sequence {} does not rise", entry.sequence),
            });
        }
        last = Some(entry.sequence);
    }
    Ok(())
}

/// Checks the sizes of an edit.
///
/// # Errors
///
/// `TooLarge` if a limit is exceeded.
pub fn check_edit(changes: &[ManifestChange]) -> Result<()> {
    let mut bytes = 0;
    for change in changes {
        let (name, detail_bytes) = match change {
            ManifestChange::Put(row) => (&row.name, row.detail.len()),
            ManifestChange::Remove(_, name) => (name, 0),
        };
        check("name of a manifest row", name.len(), KEY_BYTES_MAX)?;
        check("manifest row", name.len() + detail_bytes, MANIFEST_ROW_BYTES_MAX)?;
        bytes += name.len() + detail_bytes;
    }
    check("changes of an edit", changes.len(), WRITE_ROWS_MAX)?;
    check("bytes of an edit", bytes, WRITE_BYTES_MAX)
}

/// Checks that an epoch can be closed.
///
/// # Errors
///
/// `Refused` if `epoch` is the epoch of the owner or a later one, because the owner may still append to its epoch.
pub fn check_older(epoch: Epoch, owner: Epoch) -> Result<()> {
    if epoch < owner {
        return Ok(());
    }
    Err(BackendError::Refused {
        reason: format!("epoch {} is not older than the owner's, {}", epoch.0, owner.0),
    })
}

fn check(what: &'static str, actual: usize, limit: usize) -> Result<()> {
    if actual <= limit {
        return Ok(());
    }
    Err(BackendError::TooLarge { what, limit, actual })
}
