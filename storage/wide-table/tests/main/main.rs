//! Tests of wide tables through their public interface, on every kind of backend.

mod absent_rows;
mod archived;
mod blocks;
mod codecs;
mod database;
mod groups;
mod indexes;
mod large;
mod model;
mod moves;
mod paused;
mod reading;
mod search_queues;
mod survey;
mod transactions;
mod ttl;
mod versions;
mod why;
mod writing;
