//! Tests of histogram arithmetic, case by case.
//!
//! The tests cover sums, differences, coarser schemas, resets, trims, conversion of classic histograms, text, and the
//! limits of bounds and indices.

use tideline_histogram::{
    ClassicError, ClassicHistogram, Histogram, HistogramError, Outcome, ResetHint, Span,
};

use crate::{assert_same, compacted, parse};

fn added(left: &str, right: &str) -> (Histogram, Outcome) {
    let mut sum = parse(left);
    let outcome = sum.add(&parse(right)).expect("the histograms are compatible");
    (compacted(sum), outcome)
}

#[test]
fn buckets_of_one_layout_are_added() {
    let (sum, outcome) = added(
        "{{schema:1 count:30 sum:23 z_bucket:7 z_bucket_w:0.01 buckets:[1 0 3 4] offset:-2 n_buckets:[3 1 5 6]}}",
        "{{schema:1 count:21 sum:1.5 z_bucket:5 z_bucket_w:0.01 buckets:[0 2 2 3] offset:-2 n_buckets:[1 0 3 5]}}",
    );
    assert_eq!(outcome, Outcome::default());
    assert_eq!(
        sum.notation(),
        "{{schema:1 count:51 sum:24.5 z_bucket:12 z_bucket_w:0.01 offset:-2 buckets:[1 2 5 7] n_buckets:[4 1 8 11]}}"
    );
}

#[test]
fn buckets_are_put_between_others() {
    let cases = [
        (
            "offset:0 buckets:[1 2]",
            "offset:4 buckets:[3]",
            "buckets:[1 2 0 0 3]",
        ),
        (
            "offset:4 buckets:[3]",
            "offset:0 buckets:[1 2]",
            "buckets:[1 2 0 0 3]",
        ),
        (
            "offset:-3 buckets:[1 0 0 5]",
            "offset:-2 buckets:[4 0 0 7]",
            "offset:-3 buckets:[1 4 0 5 7]",
        ),
        ("", "offset:7 buckets:[1]", "offset:7 buckets:[1]"),
        ("offset:7 buckets:[1]", "", "offset:7 buckets:[1]"),
    ];
    for (left, right, expected) in cases {
        let (sum, _) = added(&format!("{{{{{left}}}}}"), &format!("{{{{{right}}}}}"));
        assert_eq!(sum.notation(), format!("{{{{{expected}}}}}"));
    }
}

#[test]
fn the_coarser_schema_is_that_of_the_sum() {
    let fine = "{{schema:1 count:10 sum:5 offset:1 buckets:[1 2 3 4]}}";
    let coarse = "{{schema:0 count:3 sum:1 offset:1 buckets:[1 2]}}";
    for (left, right) in [(fine, coarse), (coarse, fine)] {
        assert_eq!(
            added(left, right).0.notation(),
            "{{count:13 sum:6 offset:1 buckets:[4 9]}}"
        );
    }
}

#[test]
fn the_wider_zero_bucket_takes_what_lies_within() {
    // Bounds at schema 0: bucket -2 is (0.125, 0.25], -1 is (0.25, 0.5].
    let narrow = "{{count:10 z_bucket:1 z_bucket_w:0.125 offset:-2 buckets:[2 3] n_offset:-2 n_buckets:[4]}}";
    let wide = "{{count:7 z_bucket:7 z_bucket_w:0.25}}";
    for (left, right) in [(narrow, wide), (wide, narrow)] {
        let sum = added(left, right).0.notation();
        assert_eq!(
            sum,
            "{{count:17 z_bucket:14 z_bucket_w:0.25 offset:-1 buckets:[3]}}"
        );
    }
    // A threshold within a nonempty bucket moves to the end of this bucket, on both sides.
    let within = "{{count:7 z_bucket:7 z_bucket_w:0.2}}";
    for (left, right) in [(narrow, within), (within, narrow)] {
        let sum = added(left, right).0.notation();
        assert_eq!(
            sum,
            "{{count:17 z_bucket:14 z_bucket_w:0.25 offset:-1 buckets:[3]}}"
        );
    }
}

#[test]
fn a_zero_threshold_of_nan_ends() {
    let mut odd = parse("{{count:1 z_bucket:1 z_bucket_w:NaN buckets:[1]}}");
    assert!(
        odd.add(&parse("{{count:1 z_bucket:1 z_bucket_w:0.5 buckets:[1]}}"))
            .is_ok()
    );
}

#[test]
fn different_bounds_are_reduced_to_common_ones() {
    let left = "{{schema:-53 count:10 sum:1 custom_values:[1 2 3 4] buckets:[1 2 3 4 0]}}";
    let right = "{{schema:-53 count:6 sum:2 custom_values:[2 4 8] buckets:[1 2 3]}}";
    let (sum, outcome) = added(left, right);
    assert!(outcome.bounds_reconciled);
    assert_eq!(
        sum.notation(),
        "{{schema:-53 count:16 sum:3 custom_values:[2 4] buckets:[4 9 3]}}"
    );
    let mut difference = parse(left);
    difference
        .sub(&parse(right))
        .expect("both have bounds of their own");
    assert_eq!(
        difference.notation(),
        "{{schema:-53 count:4 sum:-1 custom_values:[2 4] buckets:[2 5 -3]}}"
    );
    let (sum, _) = added(
        left,
        "{{schema:-53 count:6 sum:2 custom_values:[7] buckets:[1 5]}}",
    );
    assert_eq!(
        sum.notation(),
        "{{schema:-53 count:16 sum:3 custom_values:[] buckets:[16]}}"
    );
}

#[test]
fn bounds_of_their_own_and_a_schema_do_not_go_together() {
    let mut custom = parse("{{schema:-53 count:1 custom_values:[1] buckets:[1]}}");
    let exponential = parse("{{count:1 buckets:[1]}}");
    assert_eq!(custom.add(&exponential), Err(HistogramError::IncompatibleSchema));
    assert_eq!(
        exponential.clone().sub(&custom),
        Err(HistogramError::IncompatibleSchema)
    );
}

#[test]
fn what_is_known_of_resets_is_joined() {
    use ResetHint::{Gauge, NotReset, Reset, Unknown};
    let cases = [
        (Reset, Reset, Reset, false),
        (Gauge, Reset, Gauge, false),
        (NotReset, Gauge, Gauge, false),
        (Unknown, Gauge, Gauge, false),
        (Unknown, Reset, Unknown, false),
        (NotReset, Unknown, Unknown, false),
        (Reset, NotReset, Unknown, true),
        (NotReset, Reset, Unknown, true),
    ];
    for (left, right, expected, collides) in cases {
        let mut sum = Histogram {
            reset_hint: left,
            ..Histogram::default()
        };
        let outcome = sum.add(&Histogram {
            reset_hint: right,
            ..Histogram::default()
        });
        assert_eq!(
            outcome.map(|outcome| outcome.counter_reset_collision),
            Ok(collides)
        );
        assert_eq!(sum.reset_hint, expected, "{left:?} and {right:?}");
    }
}

#[test]
fn compensation_keeps_what_rounding_takes() {
    let mut sum = parse("{{count:1 sum:1e100 z_bucket:1 buckets:[1e100]}}");
    let mut compensation = None;
    for text in [
        "{{count:1 sum:1 buckets:[1 2]}}",
        "{{count:1 sum:-1e100 buckets:[-1e100]}}",
    ] {
        sum.kahan_add(&parse(text), &mut compensation)
            .expect("all are exponential");
    }
    sum.add(&compensation.expect("made at the first addition"))
        .expect("it has the sum's layout");
    assert_eq!(sum.notation(), "{{count:3 sum:1 z_bucket:1 buckets:[1 2]}}");
}

#[test]
fn resets_are_seen() {
    let before = "{{schema:1 count:20 z_bucket:2 z_bucket_w:0.01 offset:1 buckets:[1 2 3] n_buckets:[4]}}";
    let cases = [
        // Equal or increased.
        (before, false),
        (
            "{{schema:1 count:21 z_bucket:2 z_bucket_w:0.01 offset:1 buckets:[1 2 3 1] n_buckets:[4]}}",
            false,
        ),
        // Decreased: the count, a bucket, a missing bucket, a negative bucket, the zero bucket.
        (
            "{{schema:1 count:19 z_bucket:2 z_bucket_w:0.01 offset:1 buckets:[1 2 3] n_buckets:[4]}}",
            true,
        ),
        (
            "{{schema:1 count:21 z_bucket:2 z_bucket_w:0.01 offset:1 buckets:[1 1 5] n_buckets:[4]}}",
            true,
        ),
        (
            "{{schema:1 count:21 z_bucket:2 z_bucket_w:0.01 offset:2 buckets:[9 9] n_buckets:[4]}}",
            true,
        ),
        (
            "{{schema:1 count:21 z_bucket:2 z_bucket_w:0.01 offset:1 buckets:[1 2 3] n_buckets:[3 9]}}",
            true,
        ),
        (
            "{{schema:1 count:21 z_bucket:1 z_bucket_w:0.01 offset:1 buckets:[1 2 3] n_buckets:[4]}}",
            true,
        ),
        // A coarser schema is a reset only if a count has decreased; a finer schema is always a reset.
        (
            "{{schema:0 count:21 z_bucket:2 z_bucket_w:0.01 offset:1 buckets:[3 3] n_buckets:[4]}}",
            false,
        ),
        (
            "{{schema:0 count:21 z_bucket:2 z_bucket_w:0.01 offset:1 buckets:[2 3] n_buckets:[4]}}",
            true,
        ),
        (
            "{{schema:2 count:21 z_bucket:2 z_bucket_w:0.01 offset:1 buckets:[9 9 9 9 9 9] n_buckets:[4]}}",
            true,
        ),
        // A wider zero bucket is a reset only if its count has decreased or its edge cuts a nonempty bucket; a narrower
        // zero bucket is always a reset. 1 is the lower bound of bucket 1.
        (
            "{{schema:1 count:21 z_bucket:6 z_bucket_w:1 offset:1 buckets:[1 2 3]}}",
            false,
        ),
        (
            "{{schema:1 count:21 z_bucket:5 z_bucket_w:1 offset:1 buckets:[1 2 3]}}",
            true,
        ),
        (
            "{{schema:1 count:21 z_bucket:6 z_bucket_w:1.2 offset:1 buckets:[1 2 3]}}",
            true,
        ),
        (
            "{{schema:1 count:21 z_bucket:2 z_bucket_w:0.001 offset:1 buckets:[1 2 3] n_buckets:[4]}}",
            true,
        ),
        // A hint determines the result. A change to custom buckets is a reset.
        (
            "{{schema:1 count:1 z_bucket:0 z_bucket_w:0.01 counter_reset_hint:not_reset}}",
            false,
        ),
        (
            "{{schema:1 count:21 z_bucket:2 z_bucket_w:0.01 counter_reset_hint:reset offset:1 buckets:[1 2 3] \
             n_buckets:[4]}}",
            true,
        ),
        ("{{schema:-53 count:30 custom_values:[1] buckets:[30]}}", true),
    ];
    for (now, expected) in cases {
        assert_eq!(parse(now).detect_reset(&parse(before)), expected, "{now}");
    }
}

#[test]
fn resets_of_different_bounds_are_seen_at_those_that_both_have() {
    let before = parse("{{schema:-53 count:10 custom_values:[1 2 3] buckets:[1 2 3 4]}}");
    let grown = parse("{{schema:-53 count:10 custom_values:[2 3 5] buckets:[3 3 4]}}");
    assert!(!grown.detect_reset(&before));
    let less = parse("{{schema:-53 count:10 custom_values:[2 3 5] buckets:[2 4 4]}}");
    assert!(less.detect_reset(&before));
    assert!(
        parse("{{schema:-53 count:30 custom_values:[1] buckets:[30]}}").detect_reset(&parse("{{count:1}}"))
    );
}

#[test]
fn a_bound_cuts_buckets_where_interpolation_says() {
    let custom = "{{schema:-53 count:15 sum:40 custom_values:[5 10 15 20] buckets:[1 2 4 8]}}";
    let mut below = parse(custom);
    below.trim_upper(12.5);
    assert_eq!(
        below.notation(),
        "{{schema:-53 count:5 sum:40 custom_values:[5 10 15 20] buckets:[1 2 2]}}"
    );
    let mut above = parse(custom);
    above.trim_lower(12.5);
    assert_eq!(
        above.notation(),
        "{{schema:-53 count:10 sum:167.5 custom_values:[5 10 15 20] offset:2 buckets:[2 8]}}"
    );
    // Exponential interpolation: √8 halves the bucket from 2 to 4.
    let mut exponential = parse("{{count:4 sum:10 offset:2 buckets:[4]}}");
    exponential.trim_upper(8f64.sqrt());
    assert!((exponential.count - 2.0).abs() < 1e-12, "{exponential}");
    // If the bound cuts no bucket, nothing changes, not even the sum.
    let mut whole = parse(custom);
    whole.trim_upper(100.0);
    assert_eq!(whole, parse(custom));
}

#[test]
fn classic_histograms_become_native() {
    let mut classic = ClassicHistogram::default();
    for (upper, count) in [
        (1.0, 2.0),
        (f64::INFINITY, 9.0),
        (0.5, 2.0),
        (2.0, 5.0),
        (2.0, 1.0),
    ] {
        classic.set_bucket(upper, count);
    }
    classic.set_sum(7.5);
    let native = classic.clone().to_histogram().expect("its buckets rise");
    assert_eq!(
        native.notation(),
        "{{schema:-53 count:9 sum:7.5 custom_values:[0.5 1 2] buckets:[2 0 3 4]}}"
    );
    classic.set_count(10.0);
    let refused = classic.clone().to_histogram();
    assert_eq!(
        refused,
        Err(ClassicError::CountMismatch {
            count: 10.0,
            observed: 9.0
        })
    );
}

#[test]
fn the_error_of_counts_that_are_not_cumulative_names_the_contradicting_bucket() {
    let mut classic = ClassicHistogram::default();
    classic.set_bucket(2.0, 5.0);
    classic.set_bucket(8.0, 9.0);
    let refused = |upper, count| {
        let mut classic = classic.clone();
        classic.set_bucket(upper, count);
        classic.to_histogram().expect_err("not cumulative").to_string()
    };
    assert_eq!(
        refused(4.0, 4.0),
        "bucket counts are not cumulative: 4 has 4, less than the bucket below, 5"
    );
    assert_eq!(
        refused(4.0, 10.0),
        "bucket counts are not cumulative: 4 has 10, more than the bucket above, 9"
    );
    assert_eq!(
        refused(1.0, 6.0),
        "bucket counts are not cumulative: 1 has 6, more than the bucket above, 5"
    );
    classic.set_bucket(4.0, 5.0);
    assert!(classic.to_histogram().is_ok(), "equal counts are cumulative");
}

#[test]
fn a_histogram_is_shown_as_its_buckets() {
    let shown =
        parse("{{count:9 sum:-2.5 z_bucket:1 z_bucket_w:0.001 offset:1 buckets:[2 0 1] n_buckets:[4 1]}}");
    assert_eq!(
        shown.to_string(),
        "{count:9, sum:-2.5, [-2,-1):1, [-1,-0.5):4, [-0.001,0.001]:1, (1,2]:2, (4,8]:1}"
    );
    let listed: Vec<_> = shown
        .listed_buckets()
        .map(|(boundaries, ..)| boundaries)
        .collect();
    assert_eq!(listed, [1, 1, 3, 0, 0]);
    let custom = parse("{{schema:-53 count:3 custom_values:[1] buckets:[1 2]}}");
    assert_eq!(custom.to_string(), "{count:3, sum:0, [-Inf,1]:1, (1,+Inf]:2}");
}

#[test]
fn bounds_end_where_doubles_do() {
    // The last bucket of finite numbers ends at the largest double; the next bucket is for infinities.
    let last = parse("{{schema:8 count:3 offset:262144 buckets:[1 2]}}");
    let bounds: Vec<_> = last.buckets().map(|bucket| bucket.upper).collect();
    assert_eq!(bounds, [f64::MAX, f64::INFINITY]);
    let coarse = parse("{{schema:-4 count:3 offset:64 buckets:[1 2]}}");
    let bounds: Vec<_> = coarse.buckets().map(|bucket| bucket.upper).collect();
    assert_eq!(bounds, [f64::MAX, f64::INFINITY]);
    let small = parse("{{count:1 offset:-1074 buckets:[1]}}")
        .buckets()
        .next()
        .expect("it has one");
    assert_eq!(small.upper, f64::from_bits(1));
}

#[test]
fn far_buckets_do_not_fill_the_memory() {
    let far = Histogram {
        count: 2.0,
        positive_spans: vec![
            Span {
                offset: -100_000_000,
                length: 1,
            },
            Span {
                offset: 200_000_000,
                length: 1,
            },
        ],
        positive_buckets: vec![1.0, 1.0],
        ..Histogram::default()
    };
    // Each gap has 900 empty buckets. Gaps are written as zeros as long as the text has at most 10,000 empty buckets
    // and 65,536 buckets in total; all other gaps become `0*900`.
    for (buckets, gaps_written_out) in [(50_000, 11), (65_000, 0), (65_536, 0)] {
        let scattered = Histogram {
            positive_spans: vec![
                Span {
                    offset: 900,
                    length: 1
                };
                buckets
            ],
            positive_buckets: vec![1.0; buckets],
            ..Histogram::default()
        };
        let text = scattered.notation();
        assert!(text.len() < 600_000, "{}", text.len());
        assert_eq!(text.matches(" 0 0").count(), gaps_written_out * 450);
        assert_same(&crate::compacted(parse(&text)), &scattered);
    }
    let text = far.notation();
    assert_eq!(text, "{{count:2 offset:-100000000 buckets:[1 0*200000000 1]}}");
    assert_same(&parse(&text), &far);
    for bad in [
        "{{buckets:[0*4000000000 1]}}",
        "{{offset:2147483647 buckets:[1 1]}}",
        "{{schema:9}}",
        "{{",
        "{{sum}}",
    ] {
        assert!(Histogram::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_series_reports_what_was_compared() {
    use ResetHint::{Gauge, NotReset, Reset, Unknown};
    let stale = Histogram {
        sum: f64::from_bits(tideline_histogram::STALE_NAN_BITS),
        ..Histogram::default()
    };
    let first = parse("{{count:3 buckets:[1 2]}}");
    let cases = [
        (parse("{{count:4 buckets:[1 3]}}"), Some(&first), NotReset),
        (parse("{{count:4 buckets:[1 3]}}"), None, Unknown),
        // Decreased counts, other buckets, or a stale marker as the previous histogram: the reader must compare.
        (parse("{{count:2 buckets:[1 1]}}"), Some(&first), Unknown),
        (parse("{{schema:1 count:4 buckets:[1 3]}}"), Some(&first), Unknown),
        (
            parse("{{schema:-53 count:4 custom_values:[1] buckets:[1 3]}}"),
            Some(&first),
            Unknown,
        ),
        (parse("{{count:4 buckets:[1 3]}}"), Some(&stale), Unknown),
        (
            parse("{{count:1 buckets:[1] counter_reset_hint:gauge}}"),
            Some(&first),
            Gauge,
        ),
        (
            parse("{{count:4 buckets:[1 3] counter_reset_hint:reset}}"),
            Some(&first),
            Reset,
        ),
    ];
    for (histogram, previous, expected) in cases {
        assert_eq!(
            histogram.reset_hint_after(previous),
            expected,
            "{}",
            histogram.notation()
        );
    }
}
