//! Any bytes as a chunk, with the checksum ignored: an error or a run, never a panic; and what decodes encodes
//! to something that decodes to the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tideline_chunk::{Chunk, encode_chunk};

fuzz_target!(|bytes: &[u8]| {
    let Ok(chunk) = Chunk::open_trusted(bytes) else { return };
    let Ok(run) = chunk.to_run() else { return };
    let mut again = Vec::new();
    if encode_chunk(&run, chunk.sequences(), &mut again).is_ok() {
        let chunk = Chunk::open(&again).expect("what was encoded opens");
        assert_eq!(chunk.to_run().expect("what was encoded decodes"), run);
    }
});
