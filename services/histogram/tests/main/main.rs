//! Tests of native histograms, in one binary.

mod arithmetic;
mod bytes;
mod logarithms;
mod oracle;
mod properties;
mod rules;

use tideline_histogram::Histogram;

fn parse(text: &str) -> Histogram {
    Histogram::parse(text).expect("the test writes the notation")
}

/// Asserts equal buckets, counts and sums, regardless of the partition into spans.
fn assert_same(left: &Histogram, right: &Histogram) {
    assert!(
        left.same_as(right),
        "{}\nis not\n{}",
        left.notation(),
        right.notation()
    );
}

fn compacted(mut histogram: Histogram) -> Histogram {
    histogram.compact(0);
    histogram
}
