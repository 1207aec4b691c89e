//! Tests of the engine through its public interface, over the in-memory backend.

mod basics;
mod changes;
mod cleaning;
mod clock;
mod copying;
mod deletes;
mod dropped_tables;
mod growth;
mod hot_ranges;
mod indexes;
mod lost_rows;
mod models;
mod open_edits;
mod read_ahead;
mod settings;
mod support;
mod system_tables;
mod threads;
mod watch;
