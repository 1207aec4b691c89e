//! Native histograms in remote write. All forms are stored, an invalid histogram does not affect the others, and the
//! stored size is limited by the size of the request.

use tideline_fleet::remote_write::{Histogram, Series, WriteRequest};
use tideline_model::{ColumnData, Value};

use crate::remote_write::{BOTH, MILLIS, STALE, Version, labels, read, reasons, request, sent};
use crate::support::{Row, words};

/// Returns a histogram with integer counts: one observation of zero, then buckets with 1, 3 and 2 observations, with a
/// gap before the last bucket.
pub(crate) fn integer_histogram() -> Histogram {
    Histogram {
        count: 7.0,
        sum: 18.4,
        schema: 1,
        zero_threshold: 0.001,
        zero_count: 1.0,
        positive_spans: vec![(0, 2), (1, 1)],
        positive: vec![1.0, 2.0, -1.0],
        millis: MILLIS,
        ..Histogram::default()
    }
}

fn with_histograms(histograms: Vec<Histogram>) -> WriteRequest {
    request(vec![Series {
        labels: labels(&[("__name__", "latency")]),
        histograms,
        ..Series::default()
    }])
}

#[test]
fn native_histograms_of_each_form_are_kept() {
    let float = Histogram {
        is_float: true,
        positive: vec![1.0, 3.0, 2.0],
        ..integer_histogram()
    };
    let custom = Histogram {
        schema: -53,
        zero_threshold: 0.0,
        zero_count: 0.0,
        count: 6.0,
        positive_spans: vec![(0, 3)],
        custom_values: vec![1.0, 2.0],
        millis: MILLIS + 1,
        start: 5,
        reset_hint: 2,
        ..integer_histogram()
    };
    let stale = Histogram {
        sum: f64::from_bits(STALE),
        millis: MILLIS + 2,
        ..Histogram::default()
    };
    for version in BOTH {
        let (decoded, rows) = sent(
            version,
            &with_histograms(vec![
                integer_histogram(),
                float.clone(),
                custom.clone(),
                stale.clone(),
            ]),
        );
        assert_eq!(reasons(&decoded), []);
        assert_eq!(decoded.counts.histograms, 4);
        let stored = |row: &Row| match &row.fields[0] {
            (name, Value::Histogram(bytes)) if name == "histogram" => {
                tideline_histogram::Histogram::from_bytes(bytes).expect("a histogram")
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(
            stored(&rows[0]),
            stored(&rows[1]),
            "integer and double counts are stored alike"
        );
        assert_eq!(stored(&rows[0]).positive_buckets, [1.0, 3.0, 2.0]);
        assert_eq!(stored(&rows[2]).custom_values, [1.0, 2.0]);
        assert_eq!(
            stored(&rows[2]).reset_hint,
            tideline_histogram::ResetHint::NotReset
        );
        let start = rows[2].fields.get(1).map(|(_, value)| value.clone());
        assert_eq!(start, (version == Version::V2).then_some(Value::Signed(5)));
        assert_eq!(stored(&rows[3]).sum.to_bits(), STALE);
    }
}

#[test]
fn a_wrong_histogram_rejects_itself_alone() {
    let wrong = |change: fn(&mut Histogram)| {
        let mut histogram = integer_histogram();
        change(&mut histogram);
        histogram
    };
    let all = vec![
        wrong(|histogram| histogram.count = 8.0),
        wrong(|histogram| histogram.positive.truncate(1)),
        wrong(|histogram| histogram.schema = 1_000),
        wrong(|histogram| histogram.positive = vec![1.0, -2.0, 3.0]),
        wrong(|histogram| histogram.positive_spans = vec![(0, u64::MAX)]),
        wrong(|histogram| histogram.positive = vec![0.0; 100_000]),
        integer_histogram(),
    ];
    for version in BOTH {
        let (decoded, rows) = sent(version, &with_histograms(all.clone()));
        assert_eq!(rows.len(), 1);
        let lines: Vec<u32> = decoded.batch.rejects.iter().map(|reject| reject.line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5, 6]);
        assert!(words(&decoded.batch.rejects[5]).starts_with("histogram too large"));
        assert!(
            words(&decoded.batch.rejects[0]).contains("count"),
            "{:?}",
            decoded.batch.rejects[0]
        );
    }
}

#[test]
fn stored_histograms_stay_within_the_size_of_the_body() {
    // If one bucket count is 2^53 or more, all bucket counts are stored as doubles: one byte of the body becomes eight
    // bytes.
    let buckets = 60_000;
    let mut deltas = vec![0.0; buckets];
    deltas[0] = (1_u64 << 53) as f64 * 2.0;
    deltas[1] = -deltas[0];
    let large = |at: i64| Histogram {
        count: deltas[0],
        sum: f64::NAN,
        zero_count: 0.0,
        positive_spans: vec![(0, buckets as u64)],
        positive: deltas.clone(),
        millis: MILLIS + at,
        ..integer_histogram()
    };
    let all: Vec<Histogram> = (0..20).map(large).chain([integer_histogram()]).collect();
    for version in BOTH {
        let request = with_histograms(all.clone());
        let body = match version {
            Version::V1 => request.to_v1(),
            Version::V2 => request.to_v2(),
        };
        let (decoded, _) = read(version, &body).expect("a message");
        let stored: usize = decoded
            .batch
            .groups
            .iter()
            .flat_map(|group| &group.columns)
            .map(|column| match column {
                ColumnData::Histogram(histograms) => {
                    (0..histograms.len()).map(|row| histograms.get(row).len()).sum()
                }
                _ => 0,
            })
            .sum();
        assert!(
            stored <= 2 * body.len() + (64 << 10),
            "{stored} of {}",
            body.len()
        );
        let reason = "histograms too large for the size of the request";
        assert!(decoded.batch.rejects.iter().all(|reject| words(reject) == reason));
        assert!(
            decoded.batch.rejects.len() >= 15,
            "{}",
            decoded.batch.rejects.len()
        );
        assert_eq!(
            decoded.counts.histograms as usize,
            all.len() - decoded.batch.rejects.len(),
            "a small histogram still fits"
        );
    }
}
