//! Fuzz target: arbitrary bytes as JSON and NDJSON points. Decoding returns rows and rejected points, or an error, and
//! never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tideline_ingest_protocols::{DecodeOptions, json, ndjson, series_key};
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
    let options = DecodeOptions::new(Timestamp::EPOCH);
    let _ = json::decode(body, options, &mut Parse);
    let _ = ndjson::decode(body, options, &mut Parse);
});
