//! Writing of the file of timelines of a segment: location, identity and attributes of each timeline.
//!
//! The local store also holds the locations, in the form of extents; the catalog also holds the identities. Both can be
//! restored from this file, and other tools use the file to look up timeline ids.

use std::collections::BTreeSet;
use std::path::Path;

use parquet::basic::Repetition;

use crate::copy::ArchiveFile;
use crate::error::Result;
use crate::file::buffer::Buffer;
use crate::file::columns;
use crate::file::writer::{FileWriter, FinishedFile};
use crate::layout::SegmentTarget;
use crate::spool::Extents;
use crate::timeline_metadata::TimelineMetadata;

/// Names of the integer columns, in column order.
pub(crate) const NUMBERS: [&str; 7] = [
    "file",
    "row",
    "rows",
    "points",
    "values",
    "lowest_sequence",
    "highest_sequence",
];

/// Writes the file of timelines. Returns the file and the measurements of its timelines.
pub(crate) fn write_timelines(
    directory: &Path,
    segment_target: &SegmentTarget,
    files: &[ArchiveFile],
    extents: &mut Extents,
    metadata: &dyn TimelineMetadata,
) -> Result<(FinishedFile, BTreeSet<String>)> {
    let format = columns::format;
    let mut leaves = vec![
        columns::id(columns::TIMELINE).map_err(format)?,
        columns::time("first").map_err(format)?,
        columns::time("last").map_err(format)?,
    ];
    let mut buffers = vec![
        Buffer::ids(),
        Buffer::Integers(Vec::new()),
        Buffer::Integers(Vec::new()),
    ];
    for name in NUMBERS {
        leaves.push(columns::integer(name).map_err(format)?);
        buffers.push(Buffer::Integers(Vec::new()));
    }
    leaves.push(columns::text("object", Repetition::REQUIRED).map_err(format)?);
    leaves.push(columns::text("measurement", Repetition::OPTIONAL).map_err(format)?);
    leaves.push(columns::map("tags")?);
    leaves.push(columns::text("attributes", Repetition::OPTIONAL).map_err(format)?);
    buffers.extend([
        Buffer::required_strings(),
        Buffer::strings(),
        Buffer::maps(),
        Buffer::strings(),
    ]);
    let schema = columns::root(leaves)?;
    let mut file = FileWriter::new(directory, &schema, buffers, &[0, 1], &[], segment_target.notes())?;
    let mut measurements = BTreeSet::new();
    for next in extents {
        let (id, extent) = next?;
        let identity = metadata.identity(id);
        if let Some(name) = identity.as_deref().map(|identity| identity.measurement())
            && !measurements.contains(name)
        {
            measurements.insert(name.to_owned());
        }
        let object = files
            .get(extent.file as usize)
            .map_or("", |file| file.key.as_str());
        let numbers = [
            i64::from(extent.file),
            extent.row as i64,
            i64::from(extent.rows),
            i64::from(extent.points),
            i64::from(extent.values),
            extent.sequences.lowest.0 as i64,
            extent.sequences.highest.0 as i64,
        ];
        let buffers = file.buffers();
        buffers[0].push_id(id, 1);
        buffers[1].push_integers(&[extent.first]);
        buffers[2].push_integers(&[extent.last]);
        for (buffer, number) in buffers[3..].iter_mut().zip(numbers) {
            buffer.push_integers(&[number]);
        }
        let texts = &mut buffers[3 + NUMBERS.len()..];
        texts[0].push_text(Some(object), 1);
        texts[1].push_text(identity.as_deref().map(|identity| identity.measurement()), 1);
        texts[2].push_map(identity.as_deref().map_or(&[][..], |identity| identity.tags()), 1);
        texts[3].push_text(metadata.attributes(id).as_deref(), 1);
        file.pushed(1)?;
    }
    Ok((file.finish()?, measurements))
}
