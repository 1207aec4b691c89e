//! Decoding of stored keys. No input causes a panic, and only keys that the encoder writes are accepted.
//!
//! Once the logical values have been read, hash prefixes and buckets are recomputed and compared with the stored ones.

use std::ops::RangeInclusive;

use tideline_model::{KeyRange, Timestamp};

use super::columns::Form;
use super::text::{parse, reversed};
use super::{KeyLayout, StoredKeyColumn, StoredKeyDamage};
use crate::from_ordered_i64;
use crate::tuple::{ColumnOrder, KeyColumn, KeyDamage, KeyKind, KeyValue, TUPLE_BYTES_MAX, split_column};

impl KeyLayout {
    /// Decodes a stored key. Returns the values of the logical columns, in the order of [`Self::logical`]. Strings and
    /// binary values whose stored bytes are the value itself are borrowed from `key`.
    ///
    /// Hashes are verified, which costs an MD5 per hash prefix (a few hundred nanoseconds) and an xxh3 per bucket.
    ///
    /// # Errors
    ///
    /// [`StoredKeyDamage`] if [`Self::encode`] does not write this key.
    pub fn decode<'k>(&self, key: &'k [u8]) -> Result<Vec<KeyValue<'k>>, StoredKeyDamage> {
        if key.len() > TUPLE_BYTES_MAX {
            return Err(StoredKeyDamage::TooLong { actual: key.len() });
        }
        let mut values = Vec::with_capacity(self.logical.len());
        let mut hashes = Vec::new();
        let mut rest = key;
        for column in &self.stored {
            let (value, after) = column.split(rest)?;
            match value {
                Some(value) => self.push_logical(column, value, &mut values)?,
                None => hashes.push((column, &rest[..rest.len() - after.len()])),
            }
            rest = after;
        }
        if !rest.is_empty() {
            return Err(StoredKeyDamage::TrailingBytes { bytes: rest.len() });
        }
        for (column, stored) in hashes {
            self.verify(column, stored, &values)?;
        }
        Ok(values)
    }

    /// Decodes the leading columns of a bound of a range of stored keys. Returns the values of the logical columns that
    /// the bytes hold completely; hashes are not verified.
    pub fn decode_leading<'k>(&self, bound: &'k [u8]) -> Vec<KeyValue<'k>> {
        let mut values = Vec::new();
        let mut rest = bound;
        for column in &self.stored {
            let Ok((value, after)) = column.split(rest) else {
                break;
            };
            if let Some(value) = value
                && self.push_logical(column, value, &mut values).is_err()
            {
                break;
            }
            rest = after;
        }
        values
    }

    /// Returns the length in bytes of the part of a stored key that identifies its partition: the first column that is
    /// neither a hash prefix nor a bucket, together with the hash prefixes and buckets before it. Rows whose keys begin
    /// with the same part form one partition, the unit of transactions.
    ///
    /// Reads only these columns. `key` may be a whole key, or the first columns of a key.
    ///
    /// # Errors
    ///
    /// [`StoredKeyDamage::Column`] if the columns are damaged or incomplete.
    pub fn partition_len(&self, key: &[u8]) -> Result<usize, StoredKeyDamage> {
        let mut rest = key;
        for column in &self.stored {
            let (value, after) = column.split(rest)?;
            rest = after;
            if value.is_some() {
                break;
            }
        }
        Ok(key.len() - rest.len())
    }

    /// Returns the timestamp that a stored key has in the stored column with this number; see
    /// [`time_column`](Self::time_column). Reads no columns after it.
    ///
    /// # Errors
    ///
    /// [`StoredKeyDamage::Column`] if one of these columns is damaged, or if the last of them holds no time.
    pub fn time_at(&self, key: &[u8], column: usize) -> Result<Timestamp, StoredKeyDamage> {
        let mut rest = key;
        let mut last = None;
        for column in self.stored.iter().take(column + 1) {
            (last, rest) = column.split(rest)?;
        }
        match last {
            Some(KeyValue::Timestamp(time)) => Ok(time),
            // A generated id.
            Some(KeyValue::Signed(nanos)) => Ok(Timestamp::from_nanos_clamped(nanos)),
            _ => Err(StoredKeyDamage::Column {
                column: self
                    .stored
                    .get(column)
                    .map_or_else(String::new, |column| column.name.clone()),
                damage: KeyDamage::Truncated,
            }),
        }
    }

    /// Returns the value of the last stored column of a key; `None` if that column is a hash prefix or a bucket. Does
    /// not verify hashes, so it is cheaper than [`decode`](Self::decode).
    ///
    /// # Errors
    ///
    /// [`StoredKeyDamage::Column`] if a column is damaged or incomplete, and [`StoredKeyDamage::TrailingBytes`] if
    /// bytes follow the last one.
    pub fn last_value<'k>(&self, key: &'k [u8]) -> Result<Option<KeyValue<'k>>, StoredKeyDamage> {
        let mut rest = key;
        let mut last = None;
        for column in &self.stored {
            (last, rest) = column.split(rest)?;
        }
        match rest.len() {
            0 => Ok(last),
            bytes => Err(StoredKeyDamage::TrailingBytes { bytes }),
        }
    }

    /// Returns inclusive bounds, in nanoseconds, of the timestamps that the keys of a range can have in a stored
    /// column; see [`time_column`](Self::time_column). A bound may be one nanosecond too wide. If the keys of the range
    /// can differ in the columns before this column, the bounds are the whole range of `i64`.
    pub fn times_in(&self, range: &KeyRange, column: usize) -> RangeInclusive<i64> {
        const ALL: RangeInclusive<i64> = i64::MIN..=i64::MAX;
        let mut rest = &range.start[..];
        for before in self.stored.iter().take(column) {
            match before.split(rest) {
                Ok((_, after)) => rest = after,
                Err(_) => return ALL,
            }
        }
        let (prefix, first) = range.start.split_at(range.start.len() - rest.len());
        let last = match &range.end {
            Some(end) => match end.strip_prefix(prefix) {
                Some(last) => Some(last),
                None if KeyRange::prefix(prefix).end.as_ref() == Some(end) => None,
                None => return ALL,
            },
            None if prefix.is_empty() => None,
            None => return ALL,
        };
        let order = self.stored[column].order;
        let low = time_bound(order, first);
        let high = last.map(|last| time_bound(order, last));
        match order {
            ColumnOrder::Ascending => low..=high.unwrap_or(i64::MAX),
            ColumnOrder::Descending => high.unwrap_or(i64::MIN)..=low,
        }
    }

    /// Appends the logical values of a stored column.
    fn push_logical<'k>(
        &self,
        column: &StoredKeyColumn,
        value: KeyValue<'k>,
        values: &mut Vec<KeyValue<'k>>,
    ) -> Result<(), StoredKeyDamage> {
        let KeyValue::String(text) = value else {
            values.push(value);
            return Ok(());
        };
        let damaged = |found: &str| StoredKeyDamage::Text {
            column: column.name.clone(),
            found: found.to_owned(),
        };
        match &column.form {
            Form::Reverse { logical, digits } => {
                let kind = self.logical[*logical].kind;
                let parsed = parse(reversed(&text).into(), kind, *digits);
                values.push(parsed.ok_or_else(|| damaged(&text))?);
            }
            Form::Splice { first, splice } => {
                let kinds = self.logical[*first..].iter().map(|column| column.kind);
                values.extend(splice.split(&text, kinds).ok_or_else(|| damaged(&text))?);
            }
            Form::Value { .. } | Form::HashPrefix { .. } | Form::Bucket { .. } => {
                values.push(KeyValue::String(text));
            }
        }
        Ok(())
    }

    /// Compares the stored bytes of a hash with the hash of the logical values.
    fn verify(
        &self,
        column: &StoredKeyColumn,
        stored: &[u8],
        values: &[KeyValue<'_>],
    ) -> Result<(), StoredKeyDamage> {
        let mut expected = Vec::with_capacity(stored.len());
        // Never fails: a hash can be computed from any values.
        let is_computed = self.push_column(column, values, &mut expected).is_ok();
        if is_computed && expected == stored {
            return Ok(());
        }
        Err(StoredKeyDamage::Hash {
            column: column.name.clone(),
            expected: column.hash_text(&expected),
            found: column.hash_text(stored),
        })
    }
}

/// Returns the timestamp whose stored bytes begin with `bytes`, and continue with zeros.
fn time_bound(order: ColumnOrder, bytes: &[u8]) -> i64 {
    let mut whole = [0; 8];
    let length = bytes.len().min(8);
    whole[..length].copy_from_slice(&bytes[..length]);
    from_ordered_i64(whole.map(|byte| byte ^ order.mask()))
}

impl StoredKeyColumn {
    /// Splits the column off the bytes of a key. Returns its value and the bytes after it. The value is `None` for a
    /// hash.
    fn split<'k>(&self, key: &'k [u8]) -> Result<(Option<KeyValue<'k>>, &'k [u8]), StoredKeyDamage> {
        let damaged = |damage| StoredKeyDamage::Column {
            column: self.name.clone(),
            damage,
        };
        let after_hash = |bytes: usize| key.get(bytes..).ok_or_else(|| damaged(KeyDamage::Truncated));
        let kind = match &self.form {
            Form::HashPrefix { digits, .. } => return Ok((None, after_hash(usize::from(*digits))?)),
            Form::Bucket { .. } => return Ok((None, after_hash(1)?)),
            Form::Value { kind, .. } => *kind,
            Form::Reverse { .. } | Form::Splice { .. } => KeyKind::String,
        };
        let column = KeyColumn {
            kind,
            order: self.order,
        };
        let (value, after) = split_column(column, key).map_err(damaged)?;
        Ok((Some(value), after))
    }

    /// Formats the stored bytes of a hash: the digits, or the number of the bucket.
    fn hash_text(&self, stored: &[u8]) -> String {
        let ascending: Vec<u8> = stored.iter().map(|byte| byte ^ self.order.mask()).collect();
        match (&self.form, ascending.as_slice()) {
            (Form::Bucket { .. }, [bucket]) => bucket.to_string(),
            _ => ascending.escape_ascii().to_string(),
        }
    }
}
