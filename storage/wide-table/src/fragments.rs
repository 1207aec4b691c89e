//! Large rows: a head with the first column of each fragment, and fragments with the columns.
//!
//! A row above [`fragment_bytes`](crate::Settings::fragment_bytes) is split between its columns. A few of the hundreds
//! of thousands of columns of a row can then be read without the others. The head is stored under the key of the row.
//! The fragments are in a separate bucket, so a scan of the rows does not read them.
//!
//! A rewritten row gets fragments with the next *generation*, then a head that references them. The old fragments are
//! deleted once the new head is durable. An interrupted flush may leave fragments that no head references; the repeated
//! flush deletes them. A reader that does not find a fragment reads the head again, and continues with the new head.

use bytes::Bytes;
use tideline_backend::{
    Direction, PageLimit, PartRef, Partition, RowChange, WRITE_BYTES_MAX, WRITE_ROWS_MAX,
};
use tideline_model::KeyRange;
use tideline_wire::varint;

use crate::codec;
use crate::error::{Damage, Result, WideError};
use crate::mutation::{Column, ColumnName, Effect, Mutation};
use crate::store::WideStore;
use crate::value::number;

/// Bucket of a part that holds the fragments of large rows.
pub(crate) const FRAGMENTS_BUCKET: u16 = 1;
/// Default of [`crate::Settings::fragment_bytes`].
pub(crate) const FRAGMENT_BYTES: usize = 256 << 10;
/// Bytes of a fragment key after the key of its row: four bytes of generation, four bytes of fragment number.
const SUFFIX_BYTES: usize = 8;

/// Decoded head of a large row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// Time of the row.
    pub(crate) time: i64,
    /// Generation of the fragments: one more than that of the previous head, or 1 if the row had no head.
    pub(crate) generation: u32,
    /// Size of the joined row, in bytes.
    pub(crate) bytes: u64,
    /// First column of each fragment.
    pub(crate) firsts: Vec<ColumnName<'static>>,
}

impl Head {
    /// Returns the stored form.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![codec::HEAD];
        out.extend_from_slice(&self.time.to_le_bytes());
        varint::put(u64::from(self.generation), &mut out);
        varint::put(self.bytes, &mut out);
        varint::put(self.firsts.len() as u64, &mut out);
        self.firsts
            .iter()
            .for_each(|name| codec::encode_name(name, &mut out));
        out
    }

    /// Decodes a head; returns `None` if the bytes are a row.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the bytes begin like a head but are not a valid one.
    pub(crate) fn decode(bytes: &[u8]) -> std::result::Result<Option<Self>, Damage> {
        let Some(rest) = bytes.strip_prefix(&[codec::HEAD]) else {
            return Ok(None);
        };
        let (time, mut rest) = rest
            .split_first_chunk()
            .ok_or(Damage("the time of a head is cut off"))?;
        let generation =
            u32::try_from(number(&mut rest)?).map_err(|_| Damage("a generation is too large"))?;
        let bytes = number(&mut rest)?;
        let count = usize::try_from(number(&mut rest)?).ok();
        let count = count.filter(|count| *count <= rest.len());
        let count = count.ok_or(Damage("a head has more fragments than bytes"))?;
        let firsts = (0..count).map(|_| codec::decode_name(&mut rest).map(ColumnName::into_owned));
        let firsts = firsts.collect::<std::result::Result<_, _>>()?;
        if !rest.is_empty() {
            return Err(Damage("bytes follow a head"));
        }
        Ok(Some(Self {
            time: i64::from_le_bytes(*time),
            generation,
            bytes,
            firsts,
        }))
    }

    /// Returns the numbers of the fragments for which `is_wanted(first, end)` returns true. A fragment holds the
    /// columns from `first`, inclusive, to `end`, exclusive; `end` is `None` for the last fragment.
    pub(crate) fn holding(
        &self,
        is_wanted: impl Fn(&ColumnName<'static>, Option<&ColumnName<'static>>) -> bool,
    ) -> Vec<u32> {
        let ends = self.firsts.iter().skip(1).map(Some).chain([None]);
        let fragments = (0..).zip(self.firsts.iter().zip(ends));
        fragments
            .filter(|(_, (first, end))| is_wanted(first, *end))
            .map(|(number, _)| number)
            .collect()
    }
}

/// Splits a row into encoded fragments, each with the name of its first column. A column is never split. Also returns
/// the size of the largest column in bytes.
fn cut(row: &Mutation<'_>, fragment_bytes: usize) -> (Vec<(ColumnName<'static>, Vec<u8>)>, usize) {
    let encode = |columns: &[Column<'_>]| {
        let fragment = Mutation {
            effect: Effect::Replace,
            time: row.time,
            columns: columns.to_vec(),
        };
        let mut out = Vec::new();
        codec::encode(&fragment, &mut out);
        out
    };
    let (mut fragments, mut start, mut bytes, mut largest) = (Vec::new(), 0, 0, 0);
    for (at, column) in row.columns.iter().enumerate() {
        let size = codec::column_bytes(row.time, column);
        largest = largest.max(size);
        if at > start && bytes + size > fragment_bytes {
            fragments.push((start, at));
            (start, bytes) = (at, 0);
        }
        bytes += size;
    }
    fragments.push((start, row.columns.len()));
    let fragments = fragments.into_iter().filter_map(|(start, end)| {
        let columns = &row.columns[start..end];
        Some((columns.first()?.name.clone().into_owned(), encode(columns)))
    });
    (fragments.collect(), largest)
}

/// Returns the range of the fragment keys that begin with a row key, followed by a generation if one is given. Without
/// a generation, the range can also contain fragments of other rows whose keys begin with this row key.
pub(crate) fn range_of(key: &[u8], generation: Option<u32>) -> KeyRange {
    match generation {
        Some(generation) => KeyRange::prefix(&[key, &generation.to_be_bytes()].concat()),
        None => KeyRange::prefix(key),
    }
}

fn key_of(key: &[u8], generation: u32, number: u32) -> Bytes {
    [key, &generation.to_be_bytes(), &number.to_be_bytes()]
        .concat()
        .into()
}

impl WideStore {
    /// Writes the fragments of a row. Returns the new head, and the size of the largest column in bytes. `before` is
    /// the current head, if the row has one.
    pub(crate) fn write_fragments(
        &self,
        part: PartRef,
        key: &[u8],
        row: &[u8],
        before: Option<&Head>,
    ) -> Result<(Head, usize)> {
        let damaged = |reason| WideError::Damaged {
            table: part.table,
            reason,
        };
        let decoded = codec::decode(row).map_err(damaged)?;
        let generation = before.map_or(1, |head| head.generation.wrapping_add(1));
        let (fragments, largest) = cut(&decoded, self.settings.fragment_bytes);
        let mut batch = Vec::new();
        let mut bytes = 0;
        let mut firsts = Vec::with_capacity(fragments.len());
        for (number, (first, fragment)) in (0..).zip(fragments) {
            if bytes + fragment.len() > WRITE_BYTES_MAX / 2 {
                self.change_fragments(part, &std::mem::take(&mut batch))?;
                bytes = 0;
            }
            bytes += fragment.len();
            firsts.push(first);
            batch.push(RowChange {
                key: key_of(key, generation, number),
                value: Some(fragment.into()),
            });
        }
        self.change_fragments(part, &batch)?;
        let head = Head {
            time: decoded.time,
            generation,
            bytes: row.len() as u64,
            firsts,
        };
        Ok((head, largest))
    }

    /// Deletes the fragments of a row, except those of the generation `keep`.
    pub(crate) fn delete_fragments(&self, part: PartRef, key: &[u8], keep: Option<u32>) -> Result<()> {
        let kept = keep.map(|keep| key_of(key, keep, 0)[..key.len() + 4].to_vec());
        let is_of_row = |found: &[u8]| found.len() == key.len() + SUFFIX_BYTES;
        self.delete_fragments_of(part, range_of(key, None), &|found| {
            is_of_row(found) && kept.as_ref().is_none_or(|kept| !found.starts_with(kept))
        })
    }

    /// Deletes the fragments of one generation of a row.
    pub(crate) fn delete_generation(&self, part: PartRef, key: &[u8], generation: u32) -> Result<()> {
        self.delete_fragments_of(part, range_of(key, Some(generation)), &|_| true)
    }

    /// Deletes the fragments of all rows whose keys are in a range.
    pub(crate) fn delete_fragments_in(&self, part: PartRef, range: &KeyRange) -> Result<()> {
        self.delete_fragments_of(part, range.clone(), &|_| true)
    }

    fn delete_fragments_of(
        &self,
        part: PartRef,
        range: KeyRange,
        is_deleted: &dyn Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let limit = PageLimit {
            rows_max: WRITE_ROWS_MAX,
            bytes_max: WRITE_BYTES_MAX,
        };
        let mut rest = Some(range);
        while let Some(range) = rest {
            let page = self.scan_fragments(part, &range, limit)?;
            let found = page.rows.into_iter().map(|row| row.key);
            let changes: Vec<RowChange> = found
                .filter(|key| is_deleted(key))
                .map(|key| RowChange { key, value: None })
                .collect();
            self.change_fragments(part, &changes)?;
            rest = page.next;
        }
        Ok(())
    }

    fn change_fragments(&self, part: PartRef, changes: &[RowChange]) -> Result<()> {
        self.change_part(part, FRAGMENTS_BUCKET, changes)
    }

    fn scan_fragments(
        &self,
        part: PartRef,
        range: &KeyRange,
        limit: PageLimit,
    ) -> Result<tideline_backend::Page> {
        let partition = Partition::part(part, FRAGMENTS_BUCKET);
        let backend = self.log.backend();
        Ok(backend.scan(partition, range, Direction::Ascending, limit)?)
    }

    /// Returns the fragments of a row with these numbers, in the given order; `None` if one of them no longer exists.
    pub(crate) fn read_fragments(
        &self,
        part: PartRef,
        key: &[u8],
        head: &Head,
        numbers: &[u32],
    ) -> Result<Option<Vec<Bytes>>> {
        let limit = PageLimit {
            rows_max: 1,
            bytes_max: 1,
        };
        let mut fragments = Vec::with_capacity(numbers.len());
        for number in numbers {
            let key = key_of(key, head.generation, *number);
            let range = KeyRange::new(&key[..], [&key[..], &[0]].concat());
            match self.scan_fragments(part, &range, limit)?.rows.pop() {
                Some(row) => fragments.push(row.value),
                None => return Ok(None),
            }
        }
        Ok(Some(fragments))
    }
}

/// Joins the fragments of a row, in their order, into an encoded row.
///
/// # Errors
///
/// [`Damage`] if a fragment is damaged or not in order.
pub(crate) fn join(head: &Head, fragments: &[Bytes]) -> std::result::Result<Bytes, Damage> {
    let mut columns: Vec<Column<'_>> = Vec::new();
    for fragment in fragments {
        let fragment = codec::decode(fragment)?;
        let is_after = |last: &Column<'_>| {
            fragment
                .columns
                .first()
                .is_some_and(|first| first.name > last.name)
        };
        if !columns.last().is_none_or(is_after) {
            return Err(Damage("the fragments of a row are not sorted"));
        }
        columns.extend(fragment.columns);
    }
    let row = Mutation {
        effect: Effect::Replace,
        time: head.time,
        columns,
    };
    let mut out = Vec::new();
    codec::encode(&row, &mut out);
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::CellValue;

    #[test]
    fn the_bytes_of_a_head_never_change() {
        let head = Head {
            time: 1,
            generation: 2,
            bytes: 300,
            firsts: vec![ColumnName::Declared(1), ColumnName::Named("b".into())],
        };
        let bytes = [0x81, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0xac, 2, 2, 2, 3, b'b'];
        assert_eq!(head.encode(), bytes);
        assert_eq!(key_of(b"k", 2, 1).as_ref(), b"k\0\0\0\x02\0\0\0\x01");
    }

    #[test]
    fn a_head_and_its_fragments_are_the_row() {
        let columns: Vec<Column<'static>> = (0..60_000)
            .map(|number| {
                let name = ColumnName::Named(format!("c{number:06}").into());
                Column::with(name, 5 + number % 2, CellValue::I64(number))
            })
            .collect();
        let row = Mutation {
            effect: Effect::Replace,
            time: 6,
            columns,
        };
        let mut encoded = Vec::new();
        codec::encode(&row, &mut encoded);
        let (fragments, largest) = cut(&row, FRAGMENT_BYTES);
        assert!((8..24).contains(&largest), "{largest}");
        assert!(fragments.len() > 2, "{} fragments", fragments.len());
        let head = Head {
            time: 6,
            generation: 9,
            bytes: encoded.len() as u64,
            firsts: fragments.iter().map(|(first, _)| first.clone()).collect(),
        };
        assert_eq!(Head::decode(&head.encode()), Ok(Some(head.clone())));
        assert_eq!(Head::decode(&encoded), Ok(None));
        assert!(codec::decode(&head.encode()).is_err(), "a head is not a row");
        let fragments: Vec<Bytes> = fragments.into_iter().map(|(_, bytes)| bytes.into()).collect();
        assert!(fragments.iter().all(|bytes| bytes.len() <= FRAGMENT_BYTES + 64));
        assert_eq!(join(&head, &fragments), Ok(encoded.into()));
        let turned: Vec<Bytes> = fragments.into_iter().rev().collect();
        assert!(join(&head, &turned).is_err());
        for cut in 0..head.encode().len() {
            assert!(Head::decode(&head.encode()[..cut]).is_err() || cut == 0);
        }
    }
}
