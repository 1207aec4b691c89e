//! Decodes a delta, section by section.
//!
//! Every count is checked against the remaining bytes or a limit before memory is allocated, so damaged bytes cannot
//! cause a panic or a large allocation.

use tideline_model::{ColumnData, Measurements, Ordinal, TableId, TimeRange, TimelineId};

use super::{
    DELETE_TIMELINES_MAX, DELTA_VALUES_MAX, DeleteRecord, Delta, DeltaError, DeltaGroup, MAGIC, NewTimeline,
    RequestRecord, VERSION, checksum, section,
};
use crate::column::{self, ColumnView};
use crate::integers::Integers;
use crate::timestamps::PackedTimestamps;
use crate::wire::{Damaged, Reader};

impl Delta {
    /// Decodes the delta in `bytes`, which must hold nothing else.
    ///
    /// # Errors
    ///
    /// [`DeltaError::NotADelta`], [`DeltaError::UnknownVersion`], [`DeltaError::UnknownSection`] or
    /// [`DeltaError::UnknownType`] for bytes of another format or a newer version; [`DeltaError::Checksum`] or
    /// [`DeltaError::Damaged`] for damaged bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, DeltaError> {
        let mut reader = Reader::new(bytes);
        let table = read_prefix(&mut reader)?;
        let mut delta = Self {
            table,
            ..Self::default()
        };
        let mut budget = DELTA_VALUES_MAX;
        let mut previous = 0;
        while reader.remaining() > 0 {
            let kind = reader.byte()?;
            let length = reader.count(reader.remaining())?;
            let mut body = reader.split(length)?;
            let is_group = matches!(kind, section::GROUP | section::MIXED_GROUP);
            let order = if is_group { section::GROUP } else { kind };
            if order < previous || (order == previous && !is_group) {
                return Err(Damaged("sections out of order").into());
            }
            previous = order;
            match kind {
                section::REQUEST => delta.request = Some(read_request(&mut body)?),
                section::NEW_TIMELINES => delta.new_timelines = read_new_timelines(&mut body)?,
                section::TIMELINES => delta.timelines = read_ids(&mut body)?,
                section::GROUP | section::MIXED_GROUP => {
                    let is_mixed = kind == section::MIXED_GROUP;
                    let group = read_group(&mut body, is_mixed, delta.timelines.len(), &mut budget)?;
                    delta.groups.push(group);
                }
                section::DELETE => delta.delete = Some(read_delete(&mut body)?),
                section::REMOVED => delta.removed = read_removed(&mut body, delta.delete.as_ref())?,
                _ => return Err(DeltaError::UnknownSection(kind)),
            }
            body.finish()?;
        }
        Ok(delta)
    }

    /// Returns the table of an encoded delta. Checks only the magic and the version.
    ///
    /// # Errors
    ///
    /// [`DeltaError::NotADelta`] or [`DeltaError::UnknownVersion`] if the magic or the version does not match,
    /// [`DeltaError::Damaged`] if the bytes are too short.
    pub fn table_of(bytes: &[u8]) -> Result<TableId, DeltaError> {
        let mut reader = Reader::new(bytes);
        read_version(&mut reader)?;
        reader.take(4)?;
        Ok(TableId(u32::from_le_bytes(reader.array()?)))
    }
}

fn read_version(reader: &mut Reader<'_>) -> Result<(), DeltaError> {
    if reader.array() != Ok(MAGIC) {
        return Err(DeltaError::NotADelta);
    }
    match reader.byte() {
        Ok(VERSION) => Ok(()),
        Ok(version) => Err(DeltaError::UnknownVersion(version)),
        Err(_) => Err(DeltaError::NotADelta),
    }
}

fn read_prefix(reader: &mut Reader<'_>) -> Result<TableId, DeltaError> {
    read_version(reader)?;
    let stored: [u8; 4] = reader.array()?;
    let mut content = *reader;
    let content = content.take(reader.remaining())?;
    if stored != checksum(content) {
        return Err(DeltaError::Checksum);
    }
    Ok(TableId(u32::from_le_bytes(reader.array()?)))
}

fn read_request(body: &mut Reader<'_>) -> Result<RequestRecord, Damaged> {
    Ok(RequestRecord {
        key: body.array()?,
        outcome: body.take(body.remaining())?.to_vec(),
    })
}

fn read_ids(body: &mut Reader<'_>) -> Result<Vec<TimelineId>, Damaged> {
    // Each id takes at least the eight bytes of its second half, which is always stored.
    let count = body.count(body.remaining() / 8)?;
    let mut repeats: Vec<bool> = Vec::new();
    Integers::open(body, count)?.decode(0..count, &mut repeats);
    let distinct = repeats.iter().filter(|repeated| !**repeated).count();
    let mut firsts = body.take(8 * distinct)?.chunks_exact(8);
    let seconds = body.take(8 * count)?.chunks_exact(8);
    let mut id = [0; 16];
    Ok(repeats
        .iter()
        .zip(seconds)
        .map(|(repeated, second)| {
            if !repeated && let Some(first) = firsts.next() {
                id[..8].copy_from_slice(first);
            }
            id[8..].copy_from_slice(second);
            TimelineId(id)
        })
        .collect())
}

fn read_delete(body: &mut Reader<'_>) -> Result<DeleteRecord, Damaged> {
    let removes_timelines = match body.byte()? {
        0 => false,
        1 => true,
        _ => return Err(Damaged("delete with unknown flags")),
    };
    let range = TimeRange::new(body.signed()?, body.signed()?);
    let timelines = read_ids(body)?;
    if timelines.len() > DELETE_TIMELINES_MAX {
        return Err(Damaged("count exceeds its limit"));
    }
    if !timelines.is_sorted_by(|a, b| a < b) {
        return Err(Damaged("deleted timelines out of order"));
    }
    Ok(DeleteRecord {
        timelines,
        range,
        removes_timelines,
    })
}

/// Reads one identity for each deleted timeline.
fn read_removed(body: &mut Reader<'_>, delete: Option<&DeleteRecord>) -> Result<Vec<Vec<u8>>, Damaged> {
    let removed = delete.filter(|delete| delete.removes_timelines && !delete.timelines.is_empty());
    let removed = removed.ok_or(Damaged("identities without removed timelines"))?;
    removed
        .timelines
        .iter()
        .map(|_| {
            let length = body.count(body.remaining())?;
            Ok(body.take(length)?.to_vec())
        })
        .collect()
}

fn read_new_timelines(body: &mut Reader<'_>) -> Result<Vec<NewTimeline>, Damaged> {
    let ids = read_ids(body)?;
    let mut ordinals: Vec<u32> = Vec::new();
    Integers::open(body, ids.len())?.decode(0..ids.len(), &mut ordinals);
    let mut lengths: Vec<u64> = Vec::new();
    Integers::open(body, ids.len())?.decode(0..ids.len(), &mut lengths);
    ids.into_iter()
        .zip(ordinals)
        .zip(lengths)
        .map(|((id, ordinal), length)| {
            let length = usize::try_from(length).map_err(|_| Damaged("identity exceeds the delta"))?;
            Ok(NewTimeline {
                id,
                ordinal: Ordinal(ordinal),
                identity: body.take(length)?.to_vec(),
            })
        })
        .collect()
}

/// Reads one group. `budget` is the number of values that this group and all later groups may have together. The values
/// of this group are subtracted from `budget`.
fn read_group(
    body: &mut Reader<'_>,
    is_mixed: bool,
    timelines: usize,
    budget: &mut usize,
) -> Result<DeltaGroup, DeltaError> {
    let names = if is_mixed {
        body.count(body.remaining())?
    } else {
        1
    };
    let names = (0..names)
        .map(|_| Ok(body.text()?.into()))
        .collect::<Result<Vec<_>, Damaged>>()?;
    let rows = body.count(*budget)?;
    // A column takes at least four bytes: name length, type, form and constant.
    let count = body.count(body.remaining() / 4)?;
    *budget = rows
        .checked_mul(count + 2)
        .and_then(|values| budget.checked_sub(values))
        .ok_or(Damaged("count exceeds its limit"))?;
    let mut of_rows: Vec<u32> = Vec::new();
    if is_mixed {
        Integers::open(body, rows)?.decode(0..rows, &mut of_rows);
        if names.is_empty() || of_rows.iter().any(|order| *order as usize >= names.len()) {
            return Err(Damaged("a row has no measurement").into());
        }
    }
    let mut group = DeltaGroup {
        measurements: Measurements::of_rows(names, of_rows),
        fields: Vec::with_capacity(count),
        columns: Vec::with_capacity(count),
        timelines: Vec::new(),
        timestamps: Vec::new(),
    };
    Integers::open(body, rows)?.decode(0..rows, &mut group.timelines);
    if group.timelines.iter().any(|index| *index as usize >= timelines) {
        return Err(Damaged("a row has no timeline").into());
    }
    PackedTimestamps::open(body, rows)?.decode(0..rows, &mut group.timestamps);
    for _ in 0..count {
        group.fields.push(body.text()?.into());
        let value_type = column::value_type(body.byte()?)?;
        let mut values = ColumnData::new(value_type);
        ColumnView::open(body, value_type, rows)?.decode(0..rows, &mut values)?;
        group.columns.push(values);
    }
    Ok(group)
}
