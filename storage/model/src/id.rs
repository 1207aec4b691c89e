//! Newtypes for identities. An alias for an integer is not a type: these cannot be mixed up.

use std::fmt;
use std::str::FromStr;

/// Names one timeline of a table, for ever.
///
/// ```text
///  byte  0                       8                      16
///        +-----------------------+-----------------------+
///        | first 8 of MD5(source)| xxh3-64(meas. + tags) |
///        +-----------------------+-----------------------+
///         ^^ bytes 0–1 are the *prefix*: they choose bucket and shard
/// ```
///
/// All timelines of one machine lie together, machines spread evenly, and ids need no coordination. The table
/// is not hashed, so a restored or attached copy keeps its ids. Only `key-codec` derives one from an identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimelineId(pub [u8; 16]);

impl TimelineId {
    /// The lowest and the highest id, as scan bounds.
    pub const MIN: Self = Self([0; 16]);
    /// See [`TimelineId::MIN`].
    pub const MAX: Self = Self([0xff; 16]);

    /// The first two bytes, big-endian: the unit that shards and buckets are ranges of.
    pub fn prefix(&self) -> u16 {
        u16::from_be_bytes([self.0[0], self.0[1]])
    }

    /// The low half as a number: evenly spread even inside one machine, so it chooses head shards and is a
    /// ready-made hash.
    pub fn low(&self) -> u64 {
        let mut low = [0; 8];
        low.copy_from_slice(&self.0[8..]);
        u64::from_be_bytes(low)
    }
}

impl fmt::Display for TimelineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TimelineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimelineId({self})")
    }
}

/// The text is not 32 hexadecimal digits.
#[derive(Debug, thiserror::Error)]
#[error("a timeline id is 32 hexadecimal digits")]
pub struct TimelineIdError;

impl FromStr for TimelineId {
    type Err = TimelineIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.as_bytes();
        if text.len() != 32 {
            return Err(TimelineIdError);
        }
        let mut id = [0; 16];
        for (byte, pair) in id.iter_mut().zip(text.chunks_exact(2)) {
            let digit = |c: u8| char::from(c).to_digit(16).ok_or(TimelineIdError);
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Ok(Self(id))
    }
}

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $int);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number_id! {
    /// Numbers a table inside one store; never used again after a drop. Table 0 holds what belongs to no table.
    TableId(u32)
}
number_id! {
    /// Numbers a field *name* inside one table; chunks hold it instead of the name.
    FieldId(u32)
}
number_id! {
    /// The catalog's dense number of a timeline inside one table, stored with its row and never used again.
    /// Memory structures of the indexer are arrays over it; nothing under `storage/` depends on it.
    Ordinal(u32)
}
number_id! {
    /// The place of a delta in the journal. It rises without a gap inside one process and never goes back
    /// across restarts; where two writes meet on one (timeline, timestamp, field) the higher one wins.
    SequenceNumber(u64)
}
number_id! {
    /// Names what one load wrote. Never used again, and unique over all shards.
    SegmentId(u64)
}
number_id! {
    /// Names a part of a table: rows that are changed in place and dropped together. Never used again, and unique over
    /// all shards.
    PartId(u64)
}

/// Bits of the number that a shard gives; the shard is above them.
const NUMBER_BITS: u32 = 48;

macro_rules! shard_id {
    ($name:ident) => {
        impl $name {
            /// The id that the owner of a shard gives as its `number`, which is below 2^48.
            pub const fn of(shard: u16, number: u64) -> Self {
                Self(((shard as u64) << NUMBER_BITS) | number)
            }

            /// The shard whose owner has given it.
            pub const fn shard(self) -> u16 {
                (self.0 >> NUMBER_BITS) as u16
            }
        }
    };
}

shard_id!(SegmentId);
shard_id!(PartId);

number_id! {
    /// Names a set of segments that a backend may store, and drop, as one unit (in fjall a keyspace).
    GroupId(u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_and_parts_are_of_the_shard_that_numbered_them() {
        for (shard, number) in [(0, 1), (3, 7), (u16::MAX, (1 << 48) - 1)] {
            assert_eq!(SegmentId::of(shard, number).shard(), shard);
            assert_eq!(PartId::of(shard, number).shard(), shard);
            assert_eq!(PartId::of(shard, number).0, SegmentId::of(shard, number).0);
        }
        assert_eq!(PartId::of(1, 2).0, 0x0001_0000_0000_0002);
    }

    #[test]
    fn a_timeline_id_reads_back_from_its_text() {
        let id = TimelineId(*b"0123456789abcdef");
        assert_eq!(id.to_string().parse::<TimelineId>().ok(), Some(id));
        assert!("30".parse::<TimelineId>().is_err());
        assert!("zz".repeat(16).parse::<TimelineId>().is_err());
    }
}
