//! Fuzz target: arbitrary text as statements of `/query`. Parsing returns a list and never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tideline_ingest_protocols::influx_query;

fuzz_target!(|text: &str| {
    let _ = influx_query::parse(text);
});
