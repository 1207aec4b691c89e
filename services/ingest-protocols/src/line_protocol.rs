//! InfluxDB line protocol: `measurement[,tag=value…] field=value[,field=value…] [timestamp]`.
//!
//! This is the hot path of the product. [`decode`] reads a body in one pass and allocates nothing for a line whose
//! shape it has seen; [`write()`] is the way back, for the sampler, the command line and tests.
//!
//! # Dialect
//!
//! The grammar is that of InfluxDB 2 as the published corpus of cases states it, with what InfluxDB 1 agents rely
//! on: line ends are LF or CRLF, lines may be indented by spaces and tabs, comments and blank lines are skipped,
//! `.5` and `5.` are floats, a name given twice among the fields counts once with its last value, a field named
//! `time` is left out. Refused are `+5`, hexadecimal, NaN, infinities and what overflows to one, duplicate tags, a
//! tag named `time`, invalid UTF-8, control characters in names, and times outside ±(2⁶³−2) ns. One byte-order mark
//! at the start of a body is skipped. A quoted string may hold line ends; one that is never closed swallows the
//! rest of the body, as in InfluxDB: to resume inside it would read its text as points.

mod decode;
mod scan;
mod write;

pub use decode::{Decoded, decode, decode_counted};
pub use write::write;

/// The error text of InfluxDB for a line that it cannot read; agents look for `unable to parse`.
pub fn unable_to_parse(excerpt: &str, reason: &str) -> String {
    format!("unable to parse '{excerpt}': {reason}")
}

/// The error text of InfluxDB for a body of which the good lines are stored; agents look for `partial write`.
///
/// `details` are the texts of the lines, one below the other; `dropped` counts points that were readable and yet
/// not stored.
pub fn partial_write(details: &str, dropped: usize) -> String {
    format!("partial write: {details} dropped={dropped}")
}
