//! Parquet files: their columns, writing them, and what of them is read first.
//!
//! | file | part |
//! |---|---|
//! | [`columns`] | which columns a file of a measurement has, and what they are called |
//! | [`buffer`] | the values of one column until their row group is written |
//! | [`writer`] | one file: row groups of buffers |
//! | [`sums`] | checksums of the blocks of a file |
//! | [`wide`] | rows of one measurement: a column for each tag and field |
//! | [`shared`] | rows of many small measurements: a row for each value |

pub(crate) mod buffer;
pub(crate) mod columns;
pub(crate) mod shared;
pub(crate) mod sums;
pub(crate) mod wide;
pub(crate) mod writer;
