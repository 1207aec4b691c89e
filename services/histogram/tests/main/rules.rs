//! Tests of the validity rules of histograms, and of the conversion of integer deltas.
//!
//! Cases pair an invalid histogram with the expected error.

use tideline_histogram::{Histogram, HistogramError, IntegerHistogram, LayoutError, SCHEMA_MAX, Side, Span};

fn span(offset: i32, length: u32) -> Span {
    Span { offset, length }
}

fn integers() -> IntegerHistogram {
    IntegerHistogram {
        schema: 1,
        zero_threshold: 0.001,
        zero_count: 4,
        count: 19,
        sum: 12.5,
        positive_spans: vec![span(0, 2), span(1, 2)],
        positive_deltas: vec![1, 1, -1, 0],
        negative_spans: vec![span(0, 3)],
        negative_deltas: vec![2, 2, 0],
        ..IntegerHistogram::default()
    }
}

fn custom() -> Histogram {
    Histogram {
        schema: -53,
        count: 3.0,
        positive_spans: vec![span(0, 3)],
        positive_buckets: vec![1.0, 1.0, 1.0],
        custom_values: vec![1.0, 2.0],
        ..Histogram::default()
    }
}

#[test]
fn differences_become_counts() {
    let histogram = Histogram::from_integer_deltas(integers()).expect("it keeps to all rules");
    assert_eq!(histogram.positive_buckets, [1.0, 2.0, 1.0, 1.0]);
    assert_eq!(histogram.negative_buckets, [2.0, 4.0, 4.0]);
    assert_eq!(
        (histogram.count, histogram.zero_count, histogram.sum),
        (19.0, 4.0, 12.5)
    );
}

#[test]
fn the_count_of_whole_histograms_is_that_of_its_buckets() {
    let few = IntegerHistogram {
        count: 18,
        ..integers()
    };
    assert_eq!(
        Histogram::from_integer_deltas(few),
        Err(HistogramError::CountMismatch {
            observed: 19,
            count: 18
        })
    );
    // No bucket contains the observations that are NaN.
    let with_nan = IntegerHistogram {
        count: 20,
        sum: f64::NAN,
        ..integers()
    };
    assert!(Histogram::from_integer_deltas(with_nan).is_ok());
    let few = IntegerHistogram {
        count: 18,
        sum: f64::NAN,
        ..integers()
    };
    assert_eq!(
        Histogram::from_integer_deltas(few),
        Err(HistogramError::CountNotBigEnough {
            observed: 19,
            count: 18
        })
    );
}

#[test]
fn differences_that_leave_their_range_are_refused() {
    let negative = IntegerHistogram {
        positive_deltas: vec![1, 1, -3, 0],
        ..integers()
    };
    let expected = HistogramError::NegativeBucketCount {
        side: Side::Positive,
        number: 3,
        count: -1.0,
    };
    assert_eq!(Histogram::from_integer_deltas(negative), Err(expected));
    let large = IntegerHistogram {
        negative_deltas: vec![i64::MAX, 1, 0],
        ..integers()
    };
    let expected = HistogramError::CountTooLarge {
        side: Side::Negative,
        number: 2,
    };
    assert_eq!(Histogram::from_integer_deltas(large), Err(expected));
}

#[test]
fn a_finer_schema_than_any_stored_is_reduced() {
    let fine = Histogram {
        schema: 9,
        count: 10.0,
        positive_spans: vec![span(1, 4)],
        positive_buckets: vec![1.0, 2.0, 3.0, 4.0],
        ..Histogram::default()
    };
    let stored = fine.checked().expect("schema 9 is known");
    assert_eq!(stored.schema, SCHEMA_MAX);
    assert_eq!(
        (stored.positive_spans, stored.positive_buckets),
        (vec![span(1, 2)], vec![3.0, 7.0])
    );
    let unknown = Histogram {
        schema: 53,
        ..Histogram::default()
    };
    assert_eq!(unknown.checked(), Err(HistogramError::UnknownSchema(53)));
    let coarse = Histogram {
        schema: -5,
        ..Histogram::default()
    };
    assert_eq!(coarse.checked(), Err(HistogramError::InvalidSchema(-5)));
}

#[test]
fn rules_of_all_schemas() {
    let cases = [
        (
            Histogram {
                count: -1.0,
                ..Histogram::default()
            },
            HistogramError::NegativeCount(-1.0),
        ),
        (
            Histogram {
                zero_count: -1.0,
                ..Histogram::default()
            },
            HistogramError::NegativeZeroCount(-1.0),
        ),
        (
            Histogram {
                positive_spans: vec![span(0, 2)],
                positive_buckets: vec![1.0],
                ..Histogram::default()
            },
            HistogramError::Layout {
                side: Side::Positive,
                error: LayoutError::Mismatch { needed: 2, found: 1 },
            },
        ),
        (
            Histogram {
                negative_spans: vec![span(-3, 1), span(-1, 1)],
                negative_buckets: vec![1.0, 2.0],
                ..Histogram::default()
            },
            HistogramError::Layout {
                side: Side::Negative,
                error: LayoutError::NegativeOffset {
                    number: 2,
                    offset: -1,
                },
            },
        ),
        (
            Histogram {
                custom_values: vec![1.0],
                ..Histogram::default()
            },
            HistogramError::ExponentialSchemaCustomBounds,
        ),
    ];
    for (histogram, expected) in cases {
        assert_eq!(histogram.validate(), Err(expected));
    }
}

#[test]
fn rules_of_custom_buckets() {
    assert_eq!(custom().validate(), Ok(()));
    let negative = (vec![span(0, 1)], vec![1.0]);
    let cases = [
        (
            Histogram {
                custom_values: vec![1.0],
                ..custom()
            },
            HistogramError::CustomBucketsMismatch { bounds: 1, needed: 3 },
        ),
        (
            Histogram {
                custom_values: vec![2.0, 2.0],
                ..custom()
            },
            HistogramError::CustomBucketsInvalid {
                before: 2.0,
                bound: 2.0,
            },
        ),
        (
            Histogram {
                custom_values: vec![1.0, f64::NAN],
                ..custom()
            },
            HistogramError::CustomBucketsNan,
        ),
        (
            Histogram {
                custom_values: vec![1.0, f64::INFINITY],
                ..custom()
            },
            HistogramError::CustomBucketsInfinite,
        ),
        (
            Histogram {
                zero_count: 1.0,
                ..custom()
            },
            HistogramError::CustomBucketsZeroCount,
        ),
        (
            Histogram {
                zero_threshold: 1.0,
                ..custom()
            },
            HistogramError::CustomBucketsZeroThreshold,
        ),
        (
            Histogram {
                negative_spans: negative.0,
                ..custom()
            },
            HistogramError::CustomBucketsNegativeSpans,
        ),
        (
            Histogram {
                negative_buckets: negative.1,
                ..custom()
            },
            HistogramError::CustomBucketsNegativeBuckets,
        ),
        (
            Histogram {
                positive_spans: vec![span(-1, 3)],
                ..custom()
            },
            HistogramError::Layout {
                side: Side::Positive,
                error: LayoutError::NegativeOffset {
                    number: 1,
                    offset: -1,
                },
            },
        ),
    ];
    for (histogram, expected) in cases {
        assert_eq!(histogram.validate(), Err(expected));
    }
}
