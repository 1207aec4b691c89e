//! Fuzz target: arbitrary bytes as a decompressed remote write request of both versions. Decoding returns rows and
//! rejected samples, or an error, and never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tideline_ingest_protocols::prometheus::{decode_write, decode_write_v2};
use tideline_ingest_protocols::{DecodeOptions, series_key};
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
    let _ = decode_write(body, &options, &mut Parse);
    let _ = decode_write_v2(body, &options, &mut Parse, &|_, _, _, _| false);
});
