//! Any bytes as a delta, deletes included: an error or a delta, never a panic; and what decodes encodes to what
//! decodes to the same.
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
