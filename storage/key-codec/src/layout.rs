//! Keys of wide tables, computed from the columns that users write and read.
//!
//! Users write and read *logical* columns. Rows are sorted by *stored* columns, which a [`KeyColumnSpec`] declares: a
//! logical column itself, or a column that is computed from logical columns to spread load or to combine values.
//! [`KeyLayout`] is the compiled form of the declarations. A layout:
//!
//! - checks the declarations, and refuses keys that send all writes to the same end of the table, unless this is
//!   allowed;
//! - encodes logical values as a stored key, and decodes and verifies a stored key;
//! - plans scans: computes the ranges of stored keys for a prefix and bounds on the next logical column;
//! - computes the partition of a key, and the points at which an empty table can be split.
//!
//! The last two columns of this table show whether a scan can select rows by a value (equality) or by bounds (range):
//!
//! | stored column | holds | used for | equality | range |
//! |---|---|---|---|---|
//! | `type` | the value of a logical column | | yes | yes |
//! | `generated` | an id that the server assigns | | yes | yes |
//! | `hash_prefix` | first hexadecimal digits of an MD5 | spreading load | if all hashed columns are fixed | if all hashed columns are fixed |
//! | `bucket` | hash modulo a number; only as first column | spreading load, with ordered scans | one bucket, if all hashed columns are fixed | yes, in every bucket |
//! | `reverse` | a text with its characters in reverse order | values that differ at their end | yes | refused |
//! | `splice` | several values, joined by a delimiter | partitions by several values | yes, also of its first values | yes, on the next value |
//!
//! The bytes are described under [Key modifiers](mod@crate::tuple#key-modifiers). Stored rows are found by these bytes
//! and hashes, so neither may ever change.
//!
//! ```
//! use std::ops::Bound;
//!
//! use tideline_key_codec::layout::KeyLayout;
//! use tideline_key_codec::tuple::KeyValue;
//! use tideline_model::wide::{Bucket, KeyColumnSpec, KeyOrder, KeySource};
//! use tideline_model::ColumnType;
//!
//! let column = |name: &str, source| KeyColumnSpec {
//!     name: name.to_owned(),
//!     source,
//!     order: KeyOrder::Ascending,
//! };
//! let layout = KeyLayout::new(
//!     &[
//!         column("spread", KeySource::Bucket(Bucket { of: vec!["order".to_owned()], count: 4 })),
//!         column("order", KeySource::Type(ColumnType::U64)),
//!     ],
//!     false,
//! )?;
//!
//! let mut keys = Vec::new();
//! for order in 0..10_u64 {
//!     let mut key = Vec::new();
//!     layout.encode(&[order.into()], &mut key)?;
//!     assert_eq!(layout.decode(&key)?, [KeyValue::from(order)]);
//!     keys.push(key);
//! }
//!
//! // One range per bucket; a merge by `merge_key` puts their rows in order.
//! let from_7 = layout.ranges(&[], (Bound::Included(7_u64.into()), Bound::Unbounded))?;
//! assert_eq!(from_7.ranges.len(), 4);
//! let mut found: Vec<&Vec<u8>> = keys.iter().filter(|key| from_7.contains(key)).collect();
//! found.sort_by_key(|key| layout.merge_key(key));
//! assert_eq!(found, [&keys[7], &keys[8], &keys[9]]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`KeyColumnSpec`]: tideline_model::KeyColumnSpec

mod columns;
mod compile;
mod decode;
mod encode;
mod error;
mod named;
mod product;
mod ranges;
mod split;
mod spread;
mod text;

pub use columns::{ColumnOrigin, LogicalKeyColumn, StoredKeyColumn};
pub use error::{LayoutError, StoredKeyDamage};
pub use product::{Combinations, KeyProduct};
pub use ranges::Ranges;
pub use spread::shard_of;

use columns::Form;

use crate::tuple::KeyKind;

/// Maximum length of the name of a key column, in bytes.
pub const COLUMN_NAME_BYTES_MAX: usize = 255;
/// Maximum number of digits of a hash prefix.
pub const HASH_DIGITS_MAX: u8 = 8;
/// Minimum number of buckets.
pub const BUCKETS_MIN: u16 = 2;
/// Maximum number of buckets: the number of values of the byte that stores a bucket.
pub const BUCKETS_MAX: u16 = 256;
/// Minimum number of columns of a splice.
pub const SPLICE_COLUMNS_MIN: usize = 2;
/// Maximum number of columns of a splice.
pub const SPLICE_COLUMNS_MAX: usize = 8;
/// Maximum number of digits to which an integer of a splice is padded: the digits of the largest `u64`.
pub const PAD_DIGITS_MAX: u8 = 20;

/// Compiled key columns of a wide table.
///
/// Logical values are given and returned in the order of [`Self::logical`]. Keys are encoded without a prefix such as a
/// table id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyLayout {
    logical: Box<[LogicalKeyColumn]>,
    stored: Box<[StoredKeyColumn]>,
    /// Numbers of the logical columns that determine the partition, ascending.
    partition: Box<[usize]>,
}

impl KeyLayout {
    /// Returns the logical columns in the order of the stored columns. The columns of a splice are at the position of
    /// the splice.
    pub fn logical(&self) -> &[LogicalKeyColumn] {
        &self.logical
    }

    /// Returns the stored columns in the order in which keys are compared.
    pub fn stored(&self) -> &[StoredKeyColumn] {
        &self.stored
    }

    /// Returns the numbers of the logical columns that determine the partition of a row, ascending:
    ///
    /// - the logical columns in the first stored column that is neither a hash prefix nor a bucket;
    /// - the logical columns that the hashes before this stored column are computed from.
    pub fn partition_columns(&self) -> &[usize] {
        &self.partition
    }

    /// Returns the number of the logical column whose values the server assigns; `None` if there is no such column.
    pub fn generated(&self) -> Option<usize> {
        self.logical.iter().position(|column| column.is_generated)
    }

    /// Returns the number of the stored column that holds the logical column `name`; `None` if the key has no such
    /// column, or if its values are not times. Generated ids are times in nanoseconds.
    pub fn time_column(&self, name: &str) -> Option<usize> {
        let column = self.logical.iter().find(|column| column.name == name)?;
        (column.kind == KeyKind::Timestamp || column.is_generated).then_some(column.stored)
    }

    /// Returns the number of the stored column that holds the logical column `name`; `None` if the key has no such
    /// column.
    pub fn stored_column(&self, name: &str) -> Option<usize> {
        let column = self.logical.iter().find(|column| column.name == name)?;
        Some(column.stored)
    }

    /// Returns the names of the logical columns from which the stored column `name` is computed; `None` if the key has
    /// no computed column of this name.
    pub fn computed_from(&self, name: &str) -> Option<Vec<&str>> {
        let stored = self.stored.iter().find(|column| column.name() == name)?;
        if !stored.is_computed() {
            return None;
        }
        let numbers = match stored.hashed() {
            Some(hashed) => hashed.to_vec(),
            None => stored.logical().collect(),
        };
        let name_of = |number: &usize| self.logical[*number].name.as_str();
        Some(numbers.iter().map(name_of).collect())
    }

    /// Returns the number of buckets over which rows are spread; `None` if the key does not begin with a bucket.
    pub fn buckets(&self) -> Option<u16> {
        match self.stored.first()?.form {
            Form::Bucket { count, .. } => Some(count),
            _ => None,
        }
    }

    /// Returns the part of a stored key by which a merge of all buckets orders rows: the key without its bucket. In a
    /// layout without buckets, returns the whole key.
    ///
    /// The order applies to forward scans; a backward scan merges by the reverse order. Rows of different buckets never
    /// have equal merge keys.
    pub fn merge_key<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        match self.buckets() {
            Some(_) => key.get(1..).unwrap_or_default(),
            None => key,
        }
    }
}

#[cfg(test)]
mod tests;
