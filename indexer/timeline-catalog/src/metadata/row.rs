//! The row of a metric, as `FORMAT.md` draws it.

use xxhash_rust::xxh3::xxh3_64;

use super::{Known, MetricKind};

/// The layout of rows.
const VERSION: u8 = 1;

pub(super) fn encode(name: &str, known: &Known) -> Vec<u8> {
    let mut row = vec![VERSION, known.kind as u8, known.unit.len() as u8];
    row.extend_from_slice(known.unit.as_bytes());
    row.extend_from_slice(known.help.as_bytes());
    let checksum = checksum(name, &row);
    row.extend_from_slice(&checksum);
    row
}

/// What a row says of the metric of this name; `None` where it is not what was written.
pub(super) fn decode(name: &str, row: &[u8]) -> Option<Known> {
    let (content, stored) = row.split_last_chunk::<4>()?;
    if checksum(name, content) != *stored {
        return None;
    }
    let ([VERSION, kind, unit], texts) = content.split_first_chunk::<3>()? else {
        return None;
    };
    let (unit, help) = texts.split_at_checked(usize::from(*unit))?;
    Some(Known {
        kind: *MetricKind::ALL.get(usize::from(*kind))?,
        help: std::str::from_utf8(help).ok()?.into(),
        unit: std::str::from_utf8(unit).ok()?.into(),
        replaced: None,
    })
}

/// Ties a row to its name.
fn checksum(name: &str, content: &[u8]) -> [u8; 4] {
    let all = [name.as_bytes(), content].concat();
    (xxh3_64(&all) as u32).to_le_bytes()
}
