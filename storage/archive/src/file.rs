//! Columns and writers of Parquet files.
//!
//! | module | holds |
//! |---|---|
//! | [`columns`] | columns of a file of one measurement, and their names |
//! | [`buffer`] | buffered values of one column of a row group |
//! | [`writer`] | writer of one file from buffered row groups |
//! | [`sums`] | checksums of the blocks of a file |
//! | [`wide`] | rows of one measurement: one column per tag and field |
//! | [`shared`] | rows of many small measurements: one row per value |

pub(crate) mod buffer;
pub(crate) mod columns;
pub(crate) mod shared;
pub(crate) mod sums;
pub(crate) mod wide;
pub(crate) mod writer;
