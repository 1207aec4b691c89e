//! Newtypes of ids. Unlike integer aliases, they cannot be mixed up.
//!
//! Ids of segments and parts contain the shard that assigned them, so shards assign ids without coordination.

use std::fmt;
use std::str::FromStr;

/// Permanent id of one timeline of a table.
///
/// ```text
///  byte  0                       8                      16
///        +-----------------------+-----------------------+
///        | first 8 of MD5(source)| xxh3-64(meas. + tags) |
///        +-----------------------+-----------------------+
///         ^^ bytes 0–1 are the *prefix*: it selects bucket and shard
/// ```
///
/// The timelines of one source (machine) have adjacent ids, sources are spread evenly, and ids need no coordination.
/// The table is not part of the hash, so a restored or attached copy keeps its ids. Only `key-codec` derives ids from
/// identities.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimelineId(pub [u8; 16]);

impl TimelineId {
    /// Lowest id, a bound of scans.
    pub const MIN: Self = Self([0; 16]);
    /// Highest id, a bound of scans.
    pub const MAX: Self = Self([0xff; 16]);

    /// Returns the first two bytes, big-endian. Shards and buckets are ranges of prefixes.
    pub fn prefix(&self) -> u16 {
        u16::from_be_bytes([self.0[0], self.0[1]])
    }

    /// Returns the lower half as a number. These numbers are evenly distributed, even among the timelines of one
    /// machine. They therefore distribute the timelines of a table over the locked shards of the head, and serve as
    /// hashes within a shard.
    pub fn low(&self) -> u64 {
        let mut low = [0; 8];
        low.copy_from_slice(&self.0[8..]);
        u64::from_be_bytes(low)
    }
}

impl fmt::Display for TimelineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 32];
        for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 0xf)];
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for TimelineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimelineId({self})")
    }
}

/// Error of a text that is not 32 hexadecimal digits.
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
    /// Number of a table within one store; never reused after a drop. Table 0 holds data that belongs to no table.
    TableId(u32)
}
number_id! {
    /// Number of a field *name* within one table; chunks store it instead of the name.
    FieldId(u32)
}
number_id! {
    /// Dense number of a timeline within one table, stored in its catalog row and never reused. In-memory structures of
    /// the indexer are arrays indexed by ordinals. Storage crates pass ordinals on without interpreting them.
    Ordinal(u32)
}
number_id! {
    /// Position of an entry in the journal. The number increases with every entry and never decreases across restarts.
    /// Numbers can be skipped. If two entries write the same (timeline, timestamp, field), the higher number wins.
    SequenceNumber(u64)
}
number_id! {
    /// Id of a segment: rows that are loaded once and never changed. Never reused; unique across all shards.
    SegmentId(u64)
}
number_id! {
    /// Id of a part of a table: rows that are changed in place and dropped together. Never reused; unique across all
    /// shards.
    PartId(u64)
}

/// Width in bits of the number that a shard assigns; the number of the shard is stored above these bits.
const NUMBER_BITS: u32 = 48;

macro_rules! shard_id {
    ($name:ident) => {
        impl $name {
            /// Builds the id from a shard and its `number`, which must be below 2^48.
            pub const fn of(shard: u16, number: u64) -> Self {
                Self(((shard as u64) << NUMBER_BITS) | number)
            }

            /// Returns the shard that assigned the id.
            pub const fn shard(self) -> u16 {
                (self.0 >> NUMBER_BITS) as u16
            }
        }
    };
}

shard_id!(SegmentId);
shard_id!(PartId);

number_id! {
    /// Id of a set of segments that a backend may store and drop as one unit (a keyspace in fjall).
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
