//! Tests of the public API: chunks and deltas preserve all content, and damaged bytes are rejected.

mod chunks;
mod damage;
mod deltas;
mod goldens;
mod samples;
mod summaries;
mod workload;
