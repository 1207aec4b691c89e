//! Any text as statements of `/query`: a list, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tideline_ingest_protocols::influx_query;

fuzz_target!(|text: &str| {
    let _ = influx_query::parse(text);
});
