//! Fuzz target: arbitrary bytes as a delta, including deletes. Decoding returns an error or a delta and never panics.
//! If a decoded delta can be encoded, its bytes decode to the same delta.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tideline_chunk::Delta;

fuzz_target!(|bytes: &[u8]| {
    let Ok(delta) = Delta::decode(bytes) else { return };
    let mut again = Vec::new();
    if delta.encode(&mut again).is_ok() {
        assert_eq!(Delta::decode(&again).expect("what was encoded decodes"), delta);
    }
});
