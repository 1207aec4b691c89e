//! Fuzz target: arbitrary bytes as a decompressed remote read request. Decoding returns queries or an error and never
//! panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tideline_ingest_protocols::prometheus::decode_read;

fuzz_target!(|body: &[u8]| {
    let _ = decode_read(body);
});
