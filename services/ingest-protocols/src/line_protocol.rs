//! InfluxDB line protocol: `measurement[,tag=value…] field=value[,field=value…] [timestamp]`.
//!
//! This is the hot path of the database. [`mod@decode`] reads a body in one pass and allocates for a line with a known
//! shape only if a column grows. [`write()`] encodes points, for exports of the command line and for tests.
//!
//! # Dialect
//!
//! The grammar is that of InfluxDB 2 as defined by the published test corpus, plus the extensions of InfluxDB 1 that
//! agents rely on:
//!
//! - Lines end with LF or CRLF and may be indented by spaces and tabs. Comments and blank lines are skipped.
//! - `.5` and `5.` are floats.
//! - If a field name occurs twice, the last value counts. A field named `time` is dropped; a line without other fields
//!   is rejected.
//! - The decoder rejects `+5`, hexadecimal numbers, NaN, infinities and numbers that overflow to infinity.
//! - The decoder also rejects duplicate tags, a tag named `time`, invalid UTF-8, control characters in names, and
//!   timestamps outside ±(2⁶³−2) ns.
//! - One byte-order mark at the start of a body is skipped.
//! - A quoted string may contain line ends. If a string is never closed, the rest of the body is rejected, as in
//!   InfluxDB: a decoder that resumed inside the string would read its text as points.

mod decode;
mod scan;
mod write;

pub use decode::{Decoded, decode, decode_counted};
pub use write::write;

/// Returns the InfluxDB error text for an invalid line. Agents search for `unable to parse`.
pub fn unable_to_parse(excerpt: &str, reason: &str) -> String {
    format!("unable to parse '{excerpt}': {reason}")
}

/// Returns the InfluxDB error text for a body whose invalid lines were not stored. Agents search for `partial
/// write`.
///
/// `details` are the error texts of the lines, one per line. `dropped` is the number of points that were decoded but
/// not stored.
pub fn partial_write(details: &str, dropped: usize) -> String {
    format!("partial write: {details} dropped={dropped}")
}
