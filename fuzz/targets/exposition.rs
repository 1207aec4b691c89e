//! Fuzz target: arbitrary bytes as text exposition, OpenMetrics and JSON lines. Decoding returns rows and rejected
//! lines and never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tideline_ingest_protocols::prometheus::{ImportOptions, TextFormat, decode_json_lines, decode_text};
use tideline_ingest_protocols::{DecodeOptions, series_key};
use tideline_model::{Ordinal, RejectReason, SeriesResolver, Timestamp};

/// Series resolver that validates each name like the engine and maps all names to one timeline.
struct Parse;

impl SeriesResolver for Parse {
    fn resolve(&mut self, key: &[u8]) -> Result<Ordinal, RejectReason> {
        series_key::parse(key)?;
        Ok(Ordinal(0))
    }
}

fuzz_target!(|body: &[u8]| {
    let (options, import) = (DecodeOptions::new(Timestamp::EPOCH), ImportOptions::default());
    for format in [TextFormat::Classic, TextFormat::OpenMetrics] {
        let _ = decode_text(body, format, &import, &options, &mut Parse);
    }
    let _ = decode_json_lines(body, &import, &options, &mut Parse);
});
