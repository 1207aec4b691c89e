//! Tests of the stored bytes.
//!
//! Round trips are exact, golden bytes stay readable, and damaged input is rejected or read without a panic.

use proptest::prelude::*;
use tideline_histogram::{BUCKETS_MAX, CodecError, Histogram, ResetHint, STALE_NAN_BITS, Span};

fn bytes(histogram: &Histogram) -> Vec<u8> {
    let mut out = Vec::new();
    histogram.to_bytes(&mut out);
    out
}

/// Asserts bit-for-bit equality, including NaN payloads and the sign of zeros.
fn assert_same(left: &Histogram, right: &Histogram) {
    let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let numbers = |h: &Histogram| bits(&[h.count, h.sum, h.zero_count, h.zero_threshold]);
    assert_eq!(numbers(left), numbers(right));
    assert_eq!(bits(&left.positive_buckets), bits(&right.positive_buckets));
    assert_eq!(bits(&left.negative_buckets), bits(&right.negative_buckets));
    assert_eq!(bits(&left.custom_values), bits(&right.custom_values));
    assert_eq!((left.schema, left.reset_hint), (right.schema, right.reset_hint));
    assert_eq!(left.positive_spans, right.positive_spans);
    assert_eq!(left.negative_spans, right.negative_spans);
}

fn span(offset: i32, length: u32) -> Span {
    Span { offset, length }
}

/// Returns a histogram as client libraries write it: whole counts, usual zero threshold.
fn of_a_library() -> Histogram {
    Histogram {
        reset_hint: ResetHint::NotReset,
        schema: 3,
        zero_threshold: (2f64).powi(-128),
        zero_count: 2.0,
        count: 21.0,
        sum: 18.4,
        positive_spans: vec![span(-4, 2), span(3, 3)],
        positive_buckets: vec![1.0, 4.0, 9.0, 0.0, 3.0],
        negative_spans: vec![span(1, 1)],
        negative_buckets: vec![2.0],
        ..Histogram::default()
    }
}

/// Returns a histogram with custom bounds, as converted from a classic histogram.
fn of_bounds() -> Histogram {
    Histogram {
        schema: -53,
        count: 7.0,
        sum: 2.0,
        positive_spans: vec![span(0, 3)],
        positive_buckets: vec![2.0, 1.0, 4.0],
        custom_values: vec![0.005, 0.25, 10.0],
        ..Histogram::default()
    }
}

/// Returns a histogram as a recording rule computes it: fractions, a NaN with a payload, a negative zero.
fn computed() -> Histogram {
    Histogram {
        reset_hint: ResetHint::Gauge,
        schema: -4,
        zero_threshold: 0.001,
        zero_count: -0.0,
        count: 1.5,
        sum: f64::from_bits(0x7ff8_0000_0000_0abc),
        positive_spans: vec![span(0, 2)],
        positive_buckets: vec![0.5, 1.0],
        ..Histogram::default()
    }
}

/// Returns the stale marker, which ends a series.
fn stale() -> Histogram {
    Histogram {
        sum: f64::from_bits(STALE_NAN_BITS),
        ..Histogram::default()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks the examples of `FORMAT.md` and two more. Databases contain these bytes, so a change requires a new
/// version.
#[test]
fn bytes_once_written_stay_readable() {
    let golden = [
        (
            of_a_library(),
            "01ee03062a66666666666632400402070206030502060a11060102010104",
        ),
        (of_bounds(), "01bc18690e040001000303040106030aea03ac9801"),
        (
            computed(),
            "01830407000000000000f83fbc0a00000000f87f0000000000000080fca9f1d24d62503f01000202000000000000e03f\
             000000000000f03f",
        ),
        (stale(), "012c0000020000000000f07f000000"),
    ];
    for (histogram, expected) in golden {
        let written = bytes(&histogram);
        assert_eq!(hex(&written), expected);
        assert_same(
            &Histogram::from_bytes(&written).expect("it was just written"),
            &histogram,
        );
    }
}

#[test]
fn whole_counts_are_small() {
    let histogram = Histogram {
        schema: 3,
        zero_threshold: (2f64).powi(-128),
        count: 16_000.0,
        sum: 12.5,
        positive_spans: vec![span(-80, 160)],
        positive_buckets: (0..160).map(|at| f64::from(at % 60)).collect(),
        ..Histogram::default()
    };
    assert!(bytes(&histogram).len() < 190, "{}", bytes(&histogram).len());
}

#[test]
fn damage_is_refused() {
    let written = bytes(&of_a_library());
    for end in 0..written.len() {
        assert!(Histogram::from_bytes(&written[..end]).is_err(), "cut at {end}");
    }
    let mut longer = written.clone();
    longer.push(0);
    assert_eq!(Histogram::from_bytes(&longer), Err(CodecError::Rest(1)));
    let mut other = written.clone();
    other[0] = 2;
    assert_eq!(Histogram::from_bytes(&other), Err(CodecError::Version(2)));
}

#[test]
fn a_number_has_one_form() {
    let mut written = bytes(&of_bounds());
    // The count 7 in one byte, then in two bytes.
    assert_eq!(written[4], 14);
    written.splice(4..5, [14 | 0x80, 0]);
    assert_eq!(Histogram::from_bytes(&written), Err(CodecError::Bad("count")));
}

#[test]
fn too_many_buckets_are_refused_before_room_is_made() {
    // Version; flags: all numbers whole; schema, count, sum, zero count: 0; then 2^62 spans.
    let mut written = vec![1, 0x3c, 0, 0, 0, 0];
    written.extend([0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x40]);
    let refused = Histogram::from_bytes(&written);
    assert_eq!(
        refused,
        Err(CodecError::TooMany {
            part: "spans",
            found: 1 << 62
        })
    );
    let wide = Histogram {
        positive_spans: vec![span(0, BUCKETS_MAX as u32 + 1)],
        positive_buckets: vec![0.0; BUCKETS_MAX + 1],
        ..Histogram::default()
    };
    let refused = Histogram::from_bytes(&bytes(&wide));
    assert_eq!(
        refused,
        Err(CodecError::TooMany {
            part: "buckets",
            found: BUCKETS_MAX as u64 + 1
        })
    );
}

#[test]
fn spans_that_do_not_fit_are_refused() {
    for spans in [
        vec![span(0, 1)],
        vec![span(i32::MAX, 2)],
        vec![span(0, 1), span(-1, 1)],
        vec![span(0, u32::MAX)],
    ] {
        let histogram = Histogram {
            positive_spans: spans,
            positive_buckets: vec![1.0, 2.0],
            ..Histogram::default()
        };
        let refused = Histogram::from_bytes(&bytes(&histogram));
        assert!(matches!(refused, Err(CodecError::Layout(_))), "{refused:?}");
    }
}

fn double() -> impl Strategy<Value = f64> {
    prop_oneof![
        (0..1_000_000u32).prop_map(f64::from),
        any::<u64>().prop_map(f64::from_bits),
        (-5i64..5).prop_map(|near| ((1i64 << 53) + near) as f64),
        Just(-0.0),
        Just(f64::from_bits(STALE_NAN_BITS)),
    ]
}

prop_compose! {
    fn side()(
        lengths in prop::collection::vec((0i32..2000, 0u32..6), 0..6),
        first in -3000i32..3000,
        whole in any::<bool>(),
    )(
        buckets in match whole {
            true => prop::collection::vec((0u32..100_000).prop_map(f64::from).boxed(), total(&lengths)),
            false => prop::collection::vec(double().boxed(), total(&lengths)),
        },
        lengths in Just(lengths),
        first in Just(first),
    ) -> (Vec<Span>, Vec<f64>) {
        let offset = |at: usize| if at == 0 { first } else { lengths[at].0 };
        let spans = (0..lengths.len()).map(|at| span(offset(at), lengths[at].1));
        (spans.collect(), buckets)
    }
}

fn total(lengths: &[(i32, u32)]) -> usize {
    lengths.iter().map(|(_, length)| *length as usize).sum()
}

prop_compose! {
    fn histogram()(
        hint in prop::sample::select(vec![ResetHint::Unknown, ResetHint::Reset, ResetHint::NotReset, ResetHint::Gauge]),
        schema in prop_oneof![Just(-53), -4i32..=8],
        numbers in prop::array::uniform4(double()),
        positive in side(),
        negative in side(),
        custom_values in prop_oneof![
            Just(vec![]),
            prop::collection::vec(double(), 0..9),
            prop::collection::vec((-9_000_000i64..9_000_000).prop_map(|all| all as f64 / 1000.0), 0..9),
        ],
    ) -> Histogram {
        let [zero_threshold, zero_count, count, sum] = numbers;
        Histogram {
            reset_hint: hint, schema, zero_threshold, zero_count, count, sum, custom_values,
            positive_spans: positive.0, positive_buckets: positive.1,
            negative_spans: negative.0, negative_buckets: negative.1,
        }
    }
}

/// Runs most operations on a decoded histogram. Results may be meaningless, but no operation panics.
fn use_all(mut read: Histogram, other: &Histogram) {
    let _ = (
        read.validate(),
        read.to_string(),
        read.notation(),
        read.detect_reset(other),
        other.detect_reset(&read),
    );
    let mut sum = other.clone();
    let _ = (sum.add(&read), sum.kahan_add(&read, &mut None), sum.sub(&read));
    read.reduce_resolution(-4);
    read.trim_upper(1.0);
    read.trim_lower(-1.0);
    read.compact(2);
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(256))]

    #[test]
    fn every_double_comes_back(histogram in histogram()) {
        let read = Histogram::from_bytes(&bytes(&histogram)).expect("it was just written");
        assert_same(&read, &histogram);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Histogram::from_bytes(&bytes);
    }

    #[test]
    fn a_changed_byte_is_read_or_refused(
        histogram in histogram(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut written = bytes(&histogram);
        let at = at.index(written.len());
        written[at] = byte;
        if let Ok(read) = Histogram::from_bytes(&written) {
            assert_same(&Histogram::from_bytes(&bytes(&read)).expect("it was just written"), &read);
            use_all(read, &histogram);
        }
    }
}
