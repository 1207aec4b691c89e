//! Any bytes as a request of remote read, decompressed: queries or an error, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tideline_ingest_protocols::prometheus::decode_read;

fuzz_target!(|body: &[u8]| {
    let _ = decode_read(body);
});
