//! Row of a metric, as specified in `FORMAT.md`.

use xxhash_rust::xxh3::xxh3_64;

use super::{MetricKind, StoredMetadata};

/// Version of the row layout.
const VERSION: u8 = 1;

pub(super) fn encode(name: &str, known: &StoredMetadata) -> Vec<u8> {
    let mut row = vec![VERSION, known.kind as u8, known.unit.len() as u8];
    row.extend_from_slice(known.unit.as_bytes());
    row.extend_from_slice(known.help.as_bytes());
    let checksum = checksum(name, &row);
    row.extend_from_slice(&checksum);
    row
}

/// Decodes the row of the metric with this name; `None` if it is damaged.
pub(super) fn decode(name: &str, row: &[u8]) -> Option<StoredMetadata> {
    let (content, stored) = row.split_last_chunk::<4>()?;
    if checksum(name, content) != *stored {
        return None;
    }
    let ([VERSION, kind, unit], texts) = content.split_first_chunk::<3>()? else {
        return None;
    };
    let (unit, help) = texts.split_at_checked(usize::from(*unit))?;
    Some(StoredMetadata {
        kind: *MetricKind::ALL.get(usize::from(*kind))?,
        help: std::str::from_utf8(help).ok()?.into(),
        unit: std::str::from_utf8(unit).ok()?.into(),
        replaced: None,
    })
}

/// Returns a checksum that binds a row to its name.
fn checksum(name: &str, content: &[u8]) -> [u8; 4] {
    let all = [name.as_bytes(), content].concat();
    (xxh3_64(&all) as u32).to_le_bytes()
}
