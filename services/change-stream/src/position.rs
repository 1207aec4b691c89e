//! Cursors of change streams, and the partitions that share a stream.
//!
//! A cursor is opaque to clients: the shard, the sequence of a journal entry and the number of a change in hexadecimal.

use std::fmt;
use std::str::FromStr;

use tideline_engine::changes::SLOTS;
use tideline_engine::model::SequenceNumber;

use crate::error::ChangesError;

/// Number of the shard of the process.
const SHARD: u16 = 0;
/// Maximum number of partitions of a stream.
pub const PARTITIONS_MAX: u16 = 256;

/// Position in the changes of all tables: a journal entry, and the number of its first change after the position. The
/// text form is opaque to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Sequence of the journal entry.
    pub sequence: SequenceNumber,
    /// Number of changes of the entry before the position.
    pub change: u64,
}

impl Position {
    /// Returns the position before the first change of an entry.
    pub const fn before(sequence: SequenceNumber) -> Self {
        Self { sequence, change: 0 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SHARD:x}-{:x}-{:x}", self.sequence.0, self.change)
    }
}

impl FromStr for Position {
    type Err = ChangesError;

    fn from_str(text: &str) -> Result<Self, ChangesError> {
        let invalid = || {
            ChangesError::Invalid(format!(
                "{text:?} is not a cursor of a change stream; use `next` or the `cursor` of a record unchanged"
            ))
        };
        let mut numbers = text.split('-').map(|digits| u64::from_str_radix(digits, 16));
        let mut next = || numbers.next().and_then(Result::ok).ok_or_else(invalid);
        let (shard, sequence, change) = (next()?, next()?, next()?);
        let position = Self {
            sequence: SequenceNumber(sequence),
            change,
        };
        match shard == u64::from(SHARD) && position.to_string() == text {
            true => Ok(position),
            false => Err(invalid()),
        }
    }
}

/// Partition of a stream: a range of key slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    number: u16,
    count: u16,
}

impl Partition {
    /// Returns the partition with this number, of `count` partitions.
    ///
    /// # Errors
    ///
    /// [`ChangesError::OverLimit`] for more than [`PARTITIONS_MAX`] partitions, and [`ChangesError::Invalid`] for no
    /// partitions and for a number that is not below `count`.
    pub fn new(number: u16, count: u16) -> Result<Self, ChangesError> {
        if count > PARTITIONS_MAX {
            return Err(ChangesError::OverLimit {
                what: "number of partitions",
                limit: PARTITIONS_MAX.into(),
                actual: count.into(),
            });
        }
        if count == 0 {
            return Err(ChangesError::Invalid(
                "the number of partitions is 0; it must be at least 1".into(),
            ));
        }
        if number >= count {
            return Err(ChangesError::Invalid(format!(
                "partition {number} does not exist; the partitions are 0 to {}",
                count - 1
            )));
        }
        Ok(Self { number, count })
    }

    /// Returns true if the partition has the changes of a slot. `None`, for a change without a slot, is in every
    /// partition.
    pub fn has(self, slot: Option<u16>) -> bool {
        let at = |slot: u16| u32::from(slot) * u32::from(self.count) / SLOTS;
        slot.is_none_or(|slot| at(slot) == u32::from(self.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_read_back() {
        let position = Position {
            sequence: SequenceNumber(0x1a2b),
            change: 10,
        };
        assert_eq!(position.to_string(), "0-1a2b-a");
        assert_eq!("0-1a2b-a".parse::<Position>().expect("a cursor"), position);
        for text in ["", "0-1a2b", "0-1a2b-a-0", "1-1a2b-a", "0-1A2B-a", "0--1", "x"] {
            text.parse::<Position>().expect_err(text);
        }
    }

    #[test]
    fn each_slot_is_in_one_partition() {
        for count in [1, 2, 3, 7, 256] {
            let partitions: Vec<_> = (0..count)
                .map(|number| Partition::new(number, count).expect("it exists"))
                .collect();
            for slot in (0..=u16::MAX).step_by(97).chain([u16::MAX]) {
                assert_eq!(
                    partitions
                        .iter()
                        .filter(|partition| partition.has(Some(slot)))
                        .count(),
                    1
                );
            }
            assert!(partitions.iter().all(|partition| partition.has(None)));
        }
        Partition::new(1, 1).expect_err("there is only one");
        Partition::new(0, 0).expect_err("no partition exists");
        Partition::new(0, 257).expect_err("too many");
    }
}
