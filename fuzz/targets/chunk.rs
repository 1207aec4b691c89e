//! Fuzz target: arbitrary bytes as a chunk of either version, with the checksum ignored. Opening and decoding return an
//! error or a run, and never panic. A column with summaries has one summary per bucket. If a decoded run can be
//! encoded, the new chunk decodes to the same run. Encoding uses the default options, then tight effort with hourly
//! summaries.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tideline_chunk::{Chunk, ChunkEncoder, ChunkOptions, Effort};

const COLD: ChunkOptions = ChunkOptions {
    effort: Effort::Tight,
    summaries: Some(3_600_000_000_000),
};

fn read_summaries(chunk: &Chunk<'_>) {
    let Some(summaries) = chunk.summaries() else { return };
    let mut found = Vec::new();
    for column in chunk.columns() {
        if summaries.column(column.field(), column.value_type(), &mut found) {
            assert_eq!(found.len(), summaries.buckets().len());
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(chunk) = Chunk::open_trusted(bytes) else { return };
    let _ = (chunk.first_timestamp(), chunk.last_timestamp());
    read_summaries(&chunk);
    let Ok(run) = chunk.to_run() else { return };
    for options in [ChunkOptions::default(), COLD] {
        let mut again = Vec::new();
        let encoded = ChunkEncoder::default().encode(&run, chunk.sequences(), &options, &mut again);
        if encoded.is_ok() {
            let chunk = Chunk::open(&again).expect("what was encoded opens");
            assert_eq!(chunk.to_run().expect("what was encoded decodes"), run);
            read_summaries(&chunk);
        }
    }
});
