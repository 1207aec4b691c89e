//! Tests of the public API: against a naive model, on every backend, across seals and restarts.

mod archived;
mod beside;
mod buckets;
mod buffered;
mod copies;
mod damaged_files;
mod faults;
mod fixture;
mod head;
mod many_files;
mod model;
mod moves;
mod ownership;
mod round_trips;
mod sequences;
mod soak;
mod sparse;
mod threads;
