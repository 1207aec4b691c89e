//! Keys inside fjall: keyspaces and prefixes. See `FORMAT.md`.
//!
//! Numbers in keys are big-endian, so that byte order is number order. A golden test pins the bytes of the keys of
//! parts.

use std::ops::Bound;

use bytes::Bytes;
use tideline_backend::{Epoch, KeyRange, ManifestKind, PartRef, Partition, SegmentRef, Shard, Space, Unit};
use tideline_model::{GroupId, PartId, SegmentId, TableId, Tier};

/// Bounds of whole keys in a keyspace.
pub(crate) type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Keyspace of all rows of key spaces.
pub(crate) const ROWS: &str = "rows";
/// Keyspace of manifests, owners and ends of closed epochs.
pub(crate) const MANIFEST: &str = "manifest";
/// Keyspace of all parts of a tier, created before the first write to a part.
pub(crate) const PARTS: &str = "parts";
/// Key of the row in [`MANIFEST`], [`ROWS`] and [`PARTS`] that counts commits. The key has one byte, fewer than every
/// prefix of a shard or partition. So no scan of a shard or partition returns the row.
pub(crate) const COMMITS: &[u8] = b"c";

const OWNER_TAG: u8 = 0;
const CLOSED_TAG: u8 = 0xfe;
const SEGMENT_BYTES: usize = 8;
const TABLE_BYTES: usize = 4;
const SHARD_BYTES: usize = 2;

/// Returns the name of a group's keyspace.
pub(crate) fn group_name(group: GroupId) -> String {
    format!("g{:016x}", group.0)
}

/// Returns the group of a keyspace; `None` for other keyspaces.
pub(crate) fn group_of(name: &str) -> Option<GroupId> {
    let digits = name.strip_prefix('g').filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok().map(GroupId)
}

/// Returns the common prefix of all keys of a unit, in all buckets.
fn unit_prefix(unit: Unit) -> Vec<u8> {
    match unit {
        Unit::Segment(SegmentRef { segment, .. }) => segment.0.to_be_bytes().to_vec(),
        Unit::Part(part) => part_prefix(part),
        Unit::Space(Space(space)) => space.to_be_bytes().to_vec(),
    }
}

/// Returns the common prefix of all keys of a partition.
pub(crate) fn partition_prefix(partition: Partition) -> Vec<u8> {
    let mut prefix = unit_prefix(partition.unit);
    prefix.extend_from_slice(&partition.bucket.to_be_bytes());
    prefix
}

/// Returns `prefix ‖ key`.
pub(crate) fn prefixed(prefix: &[u8], key: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(prefix.len() + key.len());
    whole.extend_from_slice(prefix);
    whole.extend_from_slice(key);
    whole
}

/// Returns the bounds of a partition's key range in its keyspace; `None` if the range is empty.
pub(crate) fn bounds(prefix: &[u8], range: &KeyRange) -> Option<Bounds> {
    if range.end.as_ref().is_some_and(|end| *end <= range.start) {
        return None;
    }
    let end = match &range.end {
        Some(end) => Some(prefixed(prefix, end)),
        None => KeyRange::prefix(prefix).end,
    };
    Some((
        Bound::Included(prefixed(prefix, &range.start)),
        end.map_or(Bound::Unbounded, Bound::Excluded),
    ))
}

/// Returns the bounds of all keys of a segment, in all buckets.
pub(crate) fn segment_bounds(segment: SegmentId) -> Bounds {
    let first = Bound::Included(segment.0.to_be_bytes().to_vec());
    (first, after_segment(segment))
}

/// Returns the upper bound of a segment's keys.
fn after_segment(segment: SegmentId) -> Bound<Vec<u8>> {
    match segment.0.checked_add(1) {
        Some(next) => Bound::Excluded(next.to_be_bytes().to_vec()),
        None => Bound::Unbounded,
    }
}

/// Returns the segment of a key in a group's keyspace; `None` if the key is too short.
pub(crate) fn segment_of(key: &[u8]) -> Option<SegmentId> {
    let id = key.first_chunk::<SEGMENT_BYTES>()?;
    Some(SegmentId(u64::from_be_bytes(*id)))
}

/// Returns the common prefix of all keys of a part.
fn part_prefix(part: PartRef) -> Vec<u8> {
    let mut prefix = part.table.0.to_be_bytes().to_vec();
    prefix.extend_from_slice(&part.part.0.to_be_bytes());
    prefix
}

/// Returns the bounds of all keys of a part, in all buckets.
pub(crate) fn part_bounds(part: PartRef) -> Bounds {
    let KeyRange { start, end } = KeyRange::prefix(&part_prefix(part));
    (
        Bound::Included(start),
        end.map_or(Bound::Unbounded, Bound::Excluded),
    )
}

/// Returns the part of a key in [`PARTS`]; `None` if the key is too short.
pub(crate) fn part_of(key: &[u8], tier: Tier) -> Option<PartRef> {
    let (table, rest) = key.split_first_chunk::<TABLE_BYTES>()?;
    Some(PartRef {
        part: PartId(u64::from_be_bytes(*rest.first_chunk()?)),
        table: TableId(u32::from_be_bytes(*table)),
        tier,
    })
}

/// Returns the upper bound of the keys of a unit, in all buckets.
pub(crate) fn unit_end(unit: Unit) -> Bound<Vec<u8>> {
    let end = KeyRange::prefix(&unit_prefix(unit)).end;
    end.map_or(Bound::Unbounded, Bound::Excluded)
}

/// Returns the bucket of a key of a unit; `None` if the key is too short.
pub(crate) fn bucket_of(unit: Unit, key: &[u8]) -> Option<u16> {
    let rest = key.get(unit_prefix(unit).len()..)?;
    Some(u16::from_be_bytes(*rest.first_chunk()?))
}

/// Returns the key of the row with a shard's epoch and manifest version.
pub(crate) fn owner_key(shard: Shard) -> Vec<u8> {
    tagged(shard, OWNER_TAG, &[])
}

/// Returns the key of the row with the end of a closed epoch.
pub(crate) fn closed_key(shard: Shard, epoch: Epoch) -> Vec<u8> {
    tagged(shard, CLOSED_TAG, &epoch.0.to_be_bytes())
}

/// Returns the key of a row of a shard's manifest.
pub(crate) fn manifest_key(shard: Shard, kind: ManifestKind, name: &[u8]) -> Vec<u8> {
    tagged(shard, kind as u8, name)
}

fn tagged(shard: Shard, tag: u8, name: &[u8]) -> Vec<u8> {
    let mut key = shard.0.to_be_bytes().to_vec();
    key.push(tag);
    key.extend_from_slice(name);
    key
}

/// Meaning of a key of [`MANIFEST`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ManifestKey {
    /// Count of commits.
    Commits,
    /// See [`owner_key`].
    Owner(Shard),
    /// See [`closed_key`].
    Closed(Shard, Epoch),
    /// See [`manifest_key`].
    Row(Shard, ManifestKind, Bytes),
}

impl ManifestKey {
    /// Parses a key; `None` if the key has another form.
    pub(crate) fn parse(key: &[u8]) -> Option<Self> {
        if key == COMMITS {
            return Some(Self::Commits);
        }
        let shard = Shard(u16::from_be_bytes(*key.first_chunk::<SHARD_BYTES>()?));
        let (&tag, name) = key.get(SHARD_BYTES..)?.split_first()?;
        match tag {
            OWNER_TAG => Some(Self::Owner(shard)),
            CLOSED_TAG => {
                let epoch = u64::from_be_bytes(name.try_into().ok()?);
                Some(Self::Closed(shard, Epoch(epoch)))
            }
            kind => {
                let kind = ManifestKind::from_code(kind)?;
                Some(Self::Row(shard, kind, Bytes::copy_from_slice(name)))
            }
        }
    }
}

/// Returns the common prefix of all rows of a shard, for a scan of its manifest.
pub(crate) fn shard_prefix(shard: Shard) -> [u8; SHARD_BYTES] {
    shard.0.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_keys_read_back() {
        let shard = Shard(0x6363);
        let row = manifest_key(shard, ManifestKind::Job, b"name");
        let name = Bytes::from_static(b"name");
        assert_eq!(
            ManifestKey::parse(&row),
            Some(ManifestKey::Row(shard, ManifestKind::Job, name))
        );
        assert_eq!(
            ManifestKey::parse(&owner_key(shard)),
            Some(ManifestKey::Owner(shard))
        );
        assert_eq!(
            ManifestKey::parse(&closed_key(shard, Epoch(9))),
            Some(ManifestKey::Closed(shard, Epoch(9)))
        );
        assert_eq!(ManifestKey::parse(COMMITS), Some(ManifestKey::Commits));
        for unused in [2, 4, 0x77] {
            assert_eq!(ManifestKey::parse(&[0, 0, unused]), None);
        }
    }

    #[test]
    fn the_keys_of_a_part_have_these_bytes() {
        let part = PartRef {
            part: PartId::of(3, 0x0a0b_0c0d),
            table: TableId(0x0102_0304),
            tier: Tier::Hot,
        };
        let prefix = partition_prefix(Partition::part(part, 0x0506));
        let golden = [1, 2, 3, 4, 0, 3, 0, 0, 10, 11, 12, 13, 5, 6];
        assert_eq!(prefix, golden);
        assert_eq!(part_of(&prefix, Tier::Hot), Some(part));
        assert_eq!(part_of(&golden[..11], Tier::Hot), None);
        assert_eq!(part_of(COMMITS, Tier::Hot), None);
        let (start, end) = part_bounds(part);
        assert_eq!(start, Bound::Included(golden[..12].to_vec()));
        assert_eq!(
            end,
            Bound::Excluded([1, 2, 3, 4, 0, 3, 0, 0, 10, 11, 12, 14].into())
        );
        let last = PartRef {
            part: PartId(u64::MAX),
            table: TableId(u32::MAX),
            ..part
        };
        assert_eq!(part_bounds(last).1, Bound::Unbounded);
    }

    #[test]
    fn groups_read_back_from_their_names() {
        for group in [0, 1, u64::MAX].map(GroupId) {
            assert_eq!(group_of(&group_name(group)), Some(group));
        }
        assert_eq!(group_of(ROWS), None);
    }
}
