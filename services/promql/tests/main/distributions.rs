//! Tests of quantiles, fractions and averages of distributions.
//!
//! The tests cover floats, classic histograms and native histograms.

use tideline_histogram::Histogram;
use tideline_promql::histogram_functions::{
    Bucket, average, bucket_fraction, bucket_quantile, histogram_fraction, histogram_quantile, quantile,
    variance,
};
use tideline_promql::note::Note;

const INFINITY: f64 = f64::INFINITY;

fn buckets(counts: &[(f64, f64)]) -> Vec<Bucket> {
    counts
        .iter()
        .map(|(upper, count)| Bucket {
            upper: *upper,
            count: *count,
        })
        .collect()
}

fn native(text: &str) -> Histogram {
    Histogram::parse(text).unwrap()
}

fn quiet(note: Note) {
    panic!("{note:?}");
}

#[test]
fn quantiles_of_numbers_lie_between_them() {
    let numbers = [3.0, 1.0, 4.0, 1.0, 5.0];
    for (phi, expected) in [
        (0.0, 1.0),
        (0.25, 1.0),
        (0.5, 3.0),
        (0.625, 3.5),
        (1.0, 5.0),
        (-0.1, -INFINITY),
        (2.0, INFINITY),
    ] {
        assert_eq!(quantile(phi, &mut numbers.to_vec()), expected, "{phi}");
    }
    assert!(quantile(0.5, &mut []).is_nan() && quantile(f64::NAN, &mut numbers.to_vec()).is_nan());
    // NaN is smaller than all numbers.
    assert_eq!(quantile(0.5, &mut [2.0, f64::NAN, 1.0]), 1.0);
}

#[test]
fn quantiles_of_classic_histograms() {
    let counts = [(1.0, 2.0), (INFINITY, 10.0), (2.0, 4.0), (4.0, 8.0)];
    for (phi, expected) in [
        (0.1, 0.5),
        (0.2, 1.0),
        (0.3, 1.5),
        (0.6, 3.0),
        (0.9, 4.0),
        (1.0, 4.0),
        (-1.0, -INFINITY),
        (1.1, INFINITY),
    ] {
        assert_eq!(
            bucket_quantile(phi, &mut buckets(&counts), &mut quiet),
            expected,
            "{phi}"
        );
    }
    for bad in [&counts[..1], &[(INFINITY, 3.0)], &[(1.0, 0.0), (INFINITY, 0.0)]] {
        assert!(
            bucket_quantile(0.5, &mut buckets(bad), &mut quiet).is_nan(),
            "{bad:?}"
        );
    }
    // The lowest bucket begins at zero only if its bound is positive.
    let negative = [(-1.0, 5.0), (INFINITY, 10.0)];
    assert_eq!(bucket_quantile(0.1, &mut buckets(&negative), &mut quiet), -1.0);
    // Buckets with equal bounds are merged.
    let double = [(1.0, 1.0), (1.0, 1.0), (INFINITY, 4.0)];
    assert_eq!(bucket_quantile(0.25, &mut buckets(&double), &mut quiet), 0.5);
}

#[test]
fn falling_counts_are_raised_and_reported() {
    let mut notes = Vec::new();
    let falling = [(1.0, 4.0), (2.0, 3.0), (3.0, 1.0), (INFINITY, 8.0)];
    assert_eq!(
        bucket_quantile(0.25, &mut buckets(&falling), &mut |note| notes.push(note)),
        0.5
    );
    let told = Note::ForcedMonotonicity {
        bucket_min: 2.0,
        bucket_max: 3.0,
        difference_max: 3.0,
    };
    assert_eq!(notes, [told]);
    // Differences within rounding error are not noted.
    let rounded = [(1.0, 4.0), (2.0, 4.0 - 1e-13), (INFINITY, 8.0)];
    assert_eq!(bucket_quantile(0.25, &mut buckets(&rounded), &mut quiet), 0.5);
}

#[test]
fn fractions_of_classic_histograms() {
    let counts = [(1.0, 2.0), (2.0, 4.0), (4.0, 8.0), (INFINITY, 10.0)];
    for (lower, upper, expected) in [
        (0.0, 1.0, 0.2),
        (0.0, 0.5, 0.1),
        (1.0, 3.0, 0.4),
        (-INFINITY, INFINITY, 1.0),
        (4.0, INFINITY, 0.2),
        (100.0, 200.0, 0.0),
        (2.0, 1.0, 0.0),
    ] {
        let fraction = bucket_fraction(lower, upper, &mut buckets(&counts));
        assert!(
            (fraction - expected).abs() < 1e-12,
            "{lower} to {upper}: {fraction}"
        );
    }
    assert!(bucket_fraction(f64::NAN, 1.0, &mut buckets(&counts)).is_nan());
}

#[test]
fn quantiles_of_native_histograms() {
    // Buckets (0.5, 1], (1, 2], (2, 4]; the exponential middle of (1, 2] is √2.
    let exponential = native("{{schema:0 count:12 sum:20 buckets:[4 4 4]}}");
    for (phi, expected) in [(0.0, 0.5), (0.5, 2f64.sqrt()), (1.0, 4.0), (1.0 / 3.0, 1.0)] {
        let found = histogram_quantile(phi, &exponential, &mut quiet);
        assert!((found - expected).abs() < 1e-12, "{phi} gives {found}");
    }
    let mirrored = native("{{schema:0 count:12 sum:-20 n_buckets:[4 4 4]}}");
    let found = histogram_quantile(0.5, &mirrored, &mut quiet);
    assert!((found + 2f64.sqrt()).abs() < 1e-12, "{found}");
    // The zero bucket extends only to the side that has buckets, and is uniform.
    let zero = native("{{schema:0 count:8 sum:1 z_bucket:4 z_bucket_w:0.5 buckets:[4]}}");
    assert_eq!(histogram_quantile(0.25, &zero, &mut quiet), 0.25);
    let custom = native("{{schema:-53 count:12 sum:20 custom_values:[5 10] buckets:[4 4 4]}}");
    for (phi, expected) in [(0.25, 3.75), (0.5, 7.5), (0.9, 10.0)] {
        assert_eq!(histogram_quantile(phi, &custom, &mut quiet), expected, "{phi}");
    }
    assert!(histogram_quantile(0.5, &Histogram::default(), &mut quiet).is_nan());
    assert_eq!(histogram_quantile(-0.1, &exponential, &mut quiet), -INFINITY);
}

#[test]
fn observations_of_nan_are_above_all_buckets() {
    let with_nan = native("{{schema:0 count:10 sum:NaN buckets:[4 4]}}");
    let mut notes = Vec::new();
    let low = histogram_quantile(0.4, &with_nan, &mut |note| notes.push(note));
    assert!(
        (low - 1.0).abs() < 1e-12 && notes == [Note::QuantileNanSkew],
        "{low} {notes:?}"
    );
    notes.clear();
    assert!(histogram_quantile(0.9, &with_nan, &mut |note| notes.push(note)).is_nan());
    assert_eq!(notes, [Note::QuantileNanResult]);
    notes.clear();
    let all = histogram_fraction(-INFINITY, INFINITY, &with_nan, &mut |note| notes.push(note));
    assert!(
        (all - 0.8).abs() < 1e-12 && notes == [Note::FractionNans],
        "{all} {notes:?}"
    );
}

#[test]
fn fractions_are_quantiles_the_other_way_round() {
    let histograms = [
        "{{schema:1 count:20 sum:9 z_bucket:2 z_bucket_w:0.01 buckets:[1 4 0 3] n_buckets:[5 5]}}",
        "{{schema:-53 count:10 sum:9 custom_values:[1 5 20] buckets:[2 5 3]}}",
        "{{schema:8 count:10 sum:9 offset:-40 buckets:[2 5 3]}}",
    ];
    for text in histograms {
        let histogram = native(text);
        for step in 1..20 {
            let phi = f64::from(step) / 20.0;
            let bound = histogram_quantile(phi, &histogram, &mut quiet);
            let fraction = histogram_fraction(-INFINITY, bound, &histogram, &mut quiet);
            assert!(
                (fraction - phi).abs() < 1e-9,
                "{text}: quantile {phi} is {bound}, but the fraction below it is {fraction}"
            );
        }
    }
}

#[test]
fn averages_and_their_spread() {
    let histogram = native("{{schema:0 count:4 sum:10 offset:1 buckets:[2 0 2]}}");
    assert_eq!(average(&histogram), 2.5);
    // The exponential middles of (1, 2] and (4, 8] are √2 and √32.
    let expected = ((2f64.sqrt() - 2.5).powi(2) + (32f64.sqrt() - 2.5).powi(2)) / 2.0;
    assert!((variance(&histogram) - expected).abs() < 1e-12);
}
