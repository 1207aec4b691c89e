//! Fuzz target: arbitrary bytes as a body of line protocol. Decoding returns rows and rejected lines, at most one row
//! per line, and never panics. All columns of a group have the same length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tideline_ingest_protocols::{DecodeOptions, line_protocol, series_key};
use tideline_model::{Ordinal, RejectReason, SeriesResolver, Timestamp};

/// Series resolver that validates each series key like the engine and maps all keys to one timeline.
struct Parse;

impl SeriesResolver for Parse {
    fn resolve(&mut self, key: &[u8]) -> Result<Ordinal, RejectReason> {
        series_key::parse(key)?;
        Ok(Ordinal(0))
    }
}

fuzz_target!(|body: &[u8]| {
    let batch = line_protocol::decode(body, DecodeOptions::new(Timestamp::EPOCH), &mut Parse);
    let lines = body.iter().filter(|byte| **byte == b'\n').count() + 1;
    assert!(batch.rows() <= lines);
    for group in &batch.groups {
        assert!(group.columns.iter().all(|column| column.len() == group.rows()));
    }
});
