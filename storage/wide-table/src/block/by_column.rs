//! All rows of a block, column by column.
//!
//! A part that moves to the archive is read block by block. Values are read from the columns of the block, without
//! building rows.

use smallvec::SmallVec;
use tideline_wire::varint::unzigzag;

use super::Block;
use super::columns::ColumnReader;
use super::decode::{Body, KeyReader};
use crate::error::Damage;
use crate::value::number;

/// Rows of a block that stores all of their values in columns.
pub(crate) struct BlockColumns<'b> {
    body: Body<'b>,
    /// Position in the list of shapes, for each row. A shape is a list of columns.
    shapes: SmallVec<[usize; 128]>,
}

impl Block<'_> {
    /// Decompresses the block, and passes its columns to `read`. Returns `None` if a row of the block is stored whole,
    /// for example because it has several versions.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the block is damaged, and the errors of `read`.
    pub(crate) fn by_column<T>(
        &self,
        read: impl FnOnce(BlockColumns<'_>) -> Result<T, Damage>,
    ) -> Result<Option<T>, Damage> {
        self.with_body(|mut body| {
            let mut shapes = SmallVec::with_capacity(self.rows);
            for _ in 0..self.rows {
                match body.shape()? {
                    Some(shape) => shapes.push(shape),
                    None => return Ok(None),
                }
            }
            read(BlockColumns { body, shapes }).map(Some)
        })
    }
}

impl<'b> BlockColumns<'b> {
    /// Returns the number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.shapes.len()
    }

    /// Returns the columns, in any order.
    pub(crate) fn columns(&self) -> &[ColumnReader<'b>] {
        &self.body.columns
    }

    /// Returns the shapes of the rows: lists of positions of columns.
    pub(crate) fn shapes(&self) -> &[Vec<usize>] {
        &self.body.shapes
    }

    /// Returns for each row whether it has the column; `None` if all rows have it.
    pub(crate) fn presence(&self, column: usize) -> Option<impl ExactSizeIterator<Item = bool>> {
        let has = self.body.shapes.iter().map(|shape| shape.contains(&column));
        let has: SmallVec<[bool; 64]> = has.collect();
        let is_everywhere = self.shapes.iter().all(|shape| has[*shape]);
        (!is_everywhere).then(|| self.shapes.iter().map(move |shape| has[*shape]))
    }

    /// Calls `each` with the keys, ascending.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the keys are damaged, and the errors of `each`.
    pub(crate) fn keys(&self, mut each: impl FnMut(&[u8]) -> Result<(), Damage>) -> Result<(), Damage> {
        let mut keys = KeyReader::new(&self.body);
        (0..self.rows()).try_for_each(|_| each(keys.next()?))
    }

    /// Calls `each` with the times of the rows.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the times are cut off.
    pub(crate) fn times(&self, mut each: impl FnMut(i64)) -> Result<(), Damage> {
        let (mut times, mut time) = (self.body.times, 0_i64);
        (0..self.rows()).try_for_each(|_| {
            time = time.wrapping_add(unzigzag(number(&mut times)?));
            each(time);
            Ok(())
        })
    }
}
