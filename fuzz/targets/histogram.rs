//! Fuzz target: arbitrary bytes as a stored histogram. Decoding returns an error or a histogram that encodes to stable
//! bytes. The text notation of this histogram can be parsed. Arithmetic and text output never panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tideline_histogram::Histogram;

fn bytes(histogram: &Histogram) -> Vec<u8> {
    let mut bytes = Vec::new();
    histogram.to_bytes(&mut bytes);
    bytes
}

fuzz_target!(|input: &[u8]| {
    let Ok(histogram) = Histogram::from_bytes(input) else {
        return;
    };
    let written = bytes(&histogram);
    let again = Histogram::from_bytes(&written).expect("what was written can be read");
    assert_eq!(bytes(&again), written);
    let _ = (histogram.validate(), histogram.to_string());
    assert!(Histogram::parse(&histogram.notation()).is_ok());
    let mut other = histogram.clone();
    other.reduce_resolution(-4);
    let mut sum = histogram.clone();
    let _ = (sum.add(&other), sum.sub(&histogram), sum.detect_reset(&other));
    sum.trim_upper(1.0);
    sum.trim_lower(-1.0);
    sum.compact(2);
});
