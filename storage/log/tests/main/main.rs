//! Tests of the log: with a minimal data model (named counters), and with several processes that own the shard in turn.

mod copy;
mod counters;
mod owners;
