//! Text exposition, OpenMetrics and JSON lines: accepted input, and rejects with their line numbers.
//!
//! Truncated bodies, import options and metadata of families are covered too.

use proptest::prelude::*;
use tideline_ingest_protocols::prometheus::{
    DecodedSamples, ImportOptions, TextFormat, decode_json_lines, decode_text,
};
use tideline_model::Value;

use crate::support::{DEFAULT_TIME, NumberingResolver, Row, options, rows, shown, words};

fn text(format: TextFormat, body: &str, import: &ImportOptions) -> (DecodedSamples, Vec<Row>) {
    let mut resolver = NumberingResolver::default();
    let decoded = decode_text(body.as_bytes(), format, import, &options(), &mut resolver);
    let rows = rows(&decoded.batch, &resolver);
    (decoded, rows)
}

fn classic(body: &str) -> (DecodedSamples, Vec<Row>) {
    text(TextFormat::Classic, body, &ImportOptions::default())
}

fn open_metrics(body: &str) -> (DecodedSamples, Vec<Row>) {
    text(TextFormat::OpenMetrics, body, &ImportOptions::default())
}

fn json_lines(body: &str, import: &ImportOptions) -> (DecodedSamples, Vec<Row>) {
    let mut resolver = NumberingResolver::default();
    let decoded = decode_json_lines(body.as_bytes(), import, &options(), &mut resolver);
    let rows = rows(&decoded.batch, &resolver);
    (decoded, rows)
}

fn refused(decoded: &DecodedSamples) -> Vec<String> {
    let rejects = decoded.batch.rejects.iter();
    rejects
        .map(|reject| format!("{} – {}", reject.excerpt, reject.reason))
        .collect()
}

#[test]
fn a_classic_page_becomes_samples_and_metadata() {
    let (decoded, rows) = classic(
        "# HELP http_requests_total The total number of \\\\ HTTP\\nrequests.\n\
         # TYPE http_requests_total counter\n\
         http_requests_total{method=\"post\",code=\"200\"} 1027 1395066363000\n\
         \n\
         # a comment\n\
         #nothing\n\
         # TYPE latency histogram\n\
         latency_bucket{le=\"1\"} 3\r\n\
         latency_bucket{le=\"+Inf\",empty=\"\"} 5\n\
         # TYPE size summary\n\
         size{quantile=\"0\"} NaN",
    );
    let default = DEFAULT_TIME;
    assert_eq!(
        shown(&rows),
        [
            "http_requests_total{code=200,method=post} value=1027 @1395066363000000000".to_owned(),
            format!("latency_bucket{{le=1.0}} value=3 @{default}"),
            format!("latency_bucket{{le=+Inf}} value=5 @{default}"),
            format!("size{{quantile=0.0}} value=NaN @{default}"),
        ]
    );
    assert_eq!(refused(&decoded), [] as [String; 0]);
    let metadata: Vec<(&str, &str, &str)> = decoded
        .metadata
        .iter()
        .map(|one| (&*one.name, one.kind, &*one.help))
        .collect();
    assert_eq!(
        metadata,
        [
            (
                "http_requests_total",
                "counter",
                "The total number of \\ HTTP\nrequests."
            ),
            ("latency", "histogram", ""),
            ("size", "summary", ""),
        ]
    );
}

#[test]
fn a_wrong_line_is_refused_by_its_number() {
    let (decoded, rows) = classic("a 1\nb\nc{x=1} 1\n\nd 1 yesterday\n# TYPE e kind\n{x=\"1\"} 1\nf 2\n");
    assert_eq!(rows.len(), 2);
    assert_eq!(
        refused(&decoded),
        [
            "line 2: b – expected a value, found the end of the line",
            "line 3: c{x=1} 1 – expected a label value in quotes, found \"1} 1\"",
            "line 5: d 1 yesterday – time \"yesterday\" is not a number",
            "line 6: # TYPE e kind – unknown type \"kind\"",
            "line 7: {x=\"1\"} 1 – expected a metric name, found \" 1\"",
        ]
    );
}

#[test]
fn open_metrics_has_seconds_exemplars_units_and_start_times() {
    let (decoded, rows) = open_metrics(
        "# TYPE requests_seconds counter\n\
         # UNIT requests_seconds seconds\n\
         requests_seconds_total{a=\"b\"} 17.0 1520879607.789 # {trace_id=\"x\"} 0.5 1520879607.5\n\
         requests_seconds_created{a=\"b\"} 1520872607.123\n\
         requests_seconds_total{a=\"c\"} 1 1520879607 # {} 2\n\
         # TYPE latency histogram\n\
         latency_bucket{le=\"1\"} 3 5\n\
         latency_count 3 5\n\
         latency_created 1\n\
         # TYPE built_created gauge\n\
         built_created 4 5\n\
         # EOF\n",
    );
    assert_eq!(
        shown(&rows),
        [
            "requests_seconds_total{a=b} value=17 _start=1520872607123i @1520879607789000000",
            "requests_seconds_total{a=b} _exemplar=String(\"{\\\"labels\\\":{\\\"trace_id\\\":\\\"x\\\"},\\\"value\\\":0.5}\") @1520879607500000000",
            "requests_seconds_total{a=c} value=1 @1520879607000000000",
            "requests_seconds_total{a=c} _exemplar=String(\"{\\\"labels\\\":{},\\\"value\\\":2.0}\") @1520879607000000000",
            "latency_bucket{le=1.0} value=3 _start=1000i @5000000000",
            "latency_count{} value=3 _start=1000i @5000000000",
            "built_created{} value=4 @5000000000",
        ]
    );
    assert_eq!(refused(&decoded), [] as [String; 0]);
    assert_eq!(decoded.metadata[0].unit, "seconds");
    assert_eq!((decoded.counts.samples, decoded.counts.exemplars), (5, 2));
}

#[test]
fn truncated_open_metrics_is_reported_and_its_lines_are_stored() {
    let (decoded, rows) = open_metrics("a 1\nb 2");
    assert_eq!(rows.len(), 2);
    assert_eq!(
        refused(&decoded),
        ["line 2:  – the text does not end with # EOF: it was cut off"]
    );
    let (decoded, rows) = open_metrics("a 1\n# EOF\nb 2\n");
    assert_eq!(rows.len(), 1);
    assert_eq!(refused(&decoded), ["line 3: b 2 – text after # EOF"]);
}

#[test]
fn any_text_can_be_a_name_in_quotes() {
    let (decoded, rows) = classic(
        "# TYPE \"go.gc \\\"x\\\"\" gauge\n\
         {\"Heizölrückstoßabdämpfung 10€ {character\\nchoices}\",\"strange©™\\n'quoted' \\\"name\\\"\"=\"6\"} 10.0\n",
    );
    assert_eq!(decoded.metadata[0].name, "go.gc \"x\"");
    assert_eq!(
        rows[0].identity.measurement(),
        "Heizölrückstoßabdämpfung 10€ {character\nchoices}"
    );
    assert_eq!(rows[0].identity.tag("strange©™\n'quoted' \"name\""), Some("6"));
}

#[test]
fn a_request_may_say_the_time_and_labels_of_all() {
    let import = ImportOptions {
        millis: Some(7),
        extra_labels: vec![
            ("job".into(), "b".into()),
            ("dc".into(), "x".into()),
            ("gone".into(), String::new()),
        ],
        extra_samples: vec![("pushed".into(), 3.0)],
    };
    let (_, rows) = text(
        TextFormat::Classic,
        "up{job=\"a\",gone=\"1\"} 1\nup 1 8\n",
        &import,
    );
    assert_eq!(
        shown(&rows),
        [
            "up{dc=x,job=b} value=1 @7000000",
            "up{dc=x,job=b} value=1 @8000000",
            "pushed{dc=x,job=b} value=3 @7000000",
        ]
    );
    let body = r#"{"metric":{"__name__":"up","job":"a"},"values":[1],"timestamps":[9]}"#;
    assert_eq!(
        shown(&json_lines(body, &import).1),
        ["up{dc=x,job=b} value=1 @9000000"]
    );
}

#[test]
fn json_lines_hold_what_victoria_metrics_exports() {
    let (decoded, rows) = json_lines(
        "{\"metric\":{\"__name__\":\"up\",\"job\":\"n\\u00f6de\"},\"values\":[1,0.5,null,\"Infinity\",\"-Infinity\"],\
         \"timestamps\":[1,2,3,4,5]}\n\
         {\"metric\":{\"job\":\"x\"},\"values\":[1],\"timestamps\":[1]}\n\
         {\"metric\":{\"__name__\":\"a\"},\"values\":[1,2],\"timestamps\":[1]}\n\
         {\"metric\":{\"__name__\":\"a\"},\"values\":[true],\"timestamps\":[1]}\n\n\
         {\"metric\":{\"__name__\":\"b\"},\"values\":[-3,0.000049290000000000004],\
         \"timestamps\":[1549891472010,1549891472011],\"more\":{}}\n",
        &ImportOptions::default(),
    );
    assert_eq!(
        shown(&rows),
        [
            "up{job=nöde} value=1 @1000000",
            "up{job=nöde} value=0.5 @2000000",
            "up{job=nöde} value=NaN @3000000",
            "up{job=nöde} value=inf @4000000",
            "up{job=nöde} value=-inf @5000000",
            "b{} value=-3 @1549891472010000000",
            "b{} value=0.000049290000000000004 @1549891472011000000",
        ]
    );
    let reasons: Vec<&str> = decoded.batch.rejects.iter().map(words).collect();
    assert_eq!(reasons.len(), 3);
    assert_eq!(
        reasons[..2],
        [
            "the metric has no name (label \"__name__\")",
            "2 values and 1 timestamps"
        ]
    );
    assert!(reasons[2].contains("is not a number"), "{}", reasons[2]);
    assert!(decoded.batch.rejects[0].excerpt.starts_with("line 2: {"));
}

#[test]
fn what_is_said_of_a_family_holds_for_its_own_samples_alone() {
    let (decoded, rows) = open_metrics(
        "# TYPE a counter\n\
         a_total 1 5\n\
         a_created 2\n\
         user_created 5 5\n\
         b_total 1 5\n\
         # TYPE lag histogram\n\
         lag_bucket{le=\"1\"} 3 5\n\
         log_bucket{le=\"1\"} 3 5\n\
         # HELP size Nothing is said of its type.\n\
         size_bucket{le=\"1\"} 3 5\n\
         size_created 4 5\n\
         # EOF\n",
    );
    assert_eq!(
        shown(&rows),
        [
            "a_total{} value=1 _start=2000i @5000000000",
            "user_created{} value=5 @5000000000",
            "b_total{} value=1 @5000000000",
            "lag_bucket{le=1.0} value=3 @5000000000",
            "log_bucket{le=1} value=3 @5000000000",
            "size_bucket{le=1} value=3 @5000000000",
            "size_created{} value=4 @5000000000",
        ]
    );
    assert_eq!(refused(&decoded), [] as [String; 0]);
}

#[test]
fn what_was_not_read_for_too_many_rejects_is_said() {
    let wrong = "wrong\n".repeat(100_000);
    let unread = "too many rejects (limit 100000): 2 more from here on were not read";
    let (decoded, rows) = classic(&format!("up 1\n{wrong}up 2\n\nup 3\n"));
    assert_eq!((rows.len(), decoded.batch.rejects.len()), (1, 100_001));
    assert_eq!(words(&decoded.batch.rejects[100_000]), unread);
    let up = r#"{"metric":{"__name__":"up"},"values":[1],"timestamps":[9]}"#;
    let (decoded, rows) = json_lines(&format!("{up}\n{wrong}{up}\n{up}\n"), &ImportOptions::default());
    assert_eq!((rows.len(), decoded.batch.rejects.len()), (1, 100_001));
    assert_eq!(words(&decoded.batch.rejects[100_000]), unread);
    // The last line is the last reject, so no unread lines are reported.
    let (decoded, _) = classic(&wrong);
    assert_eq!(decoded.batch.rejects.len(), 100_000);
}

#[test]
fn a_time_out_of_range_rejects_its_sample_alone() {
    let (decoded, rows) = json_lines(
        "{\"metric\":{\"__name__\":\"up\"},\"values\":[1,2,3,4],\
         \"timestamps\":[1,9223372036854775807,3,-9223372036854775808]}\n",
        &ImportOptions::default(),
    );
    assert_eq!(shown(&rows), ["up{} value=1 @1000000", "up{} value=3 @3000000"]);
    let reasons = decoded.batch.rejects.iter().map(words);
    assert_eq!(
        reasons.collect::<Vec<_>>(),
        [
            "time 9223372036854775807 ms is out of range",
            "time -9223372036854775808 ms is out of range"
        ]
    );
    assert!(decoded.batch.rejects[0].excerpt.starts_with("line 1: {"));
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(512))]

    /// Arbitrary text is decoded or rejected without a panic, and an encoded sample decodes to the same sample.
    #[test]
    fn no_text_does_harm_and_every_label_reads_back(
        noise in "[ -~\\n\"{}#]{0,80}",
        name in "\\PC{1,20}",
        value in "[^\\x00]{0,20}",
        number in any::<f64>(),
    ) {
        for format in [TextFormat::Classic, TextFormat::OpenMetrics] {
            let _ = text(format, &noise, &ImportOptions::default());
        }
        let _ = json_lines(&noise, &ImportOptions::default());
        let escape = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let line = format!("{{\"{}\",\"l\"=\"{}\"}} {number}", escape(&name), escape(&value));
        let (decoded, rows) = classic(&line);
        prop_assert_eq!(refused(&decoded), [] as [String; 0], "{}", line);
        prop_assert_eq!(rows[0].identity.measurement(), name);
        prop_assert_eq!(rows[0].identity.tag("l").unwrap_or_default(), value);
        if !number.is_nan() {
            prop_assert_eq!(&rows[0].fields[0].1, &Value::Float(number));
        }
    }
}
