//! What others rely on: both formats keep everything, and refuse whatever is not whole.

mod chunks;
mod damage;
mod deltas;
mod goldens;
mod samples;
mod summaries;
mod workload;
