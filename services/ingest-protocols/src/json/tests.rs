//! Tests of the native JSON body.
//!
//! Covers all value types, timestamps, rejects of single elements, errors of whole bodies, and very deep nesting.

use tideline_model::{ColumnData, Ordinal, RejectReason, Timestamp};

use super::*;
use crate::series_key;

/// Resolver that returns a new number for each call and rejects invalid keys.
#[derive(Default)]
struct Keys(Vec<Vec<u8>>);

impl SeriesResolver for Keys {
    fn resolve(&mut self, key: &[u8]) -> Result<Ordinal, RejectReason> {
        series_key::parse(key)?;
        self.0.push(key.to_vec());
        Ok(Ordinal(self.0.len() as u32 - 1))
    }
}

fn decode_text(body: &str) -> Result<PointBatch, IngestError> {
    let default_time = Timestamp::from_nanos(42_000_000_000).expect("in range");
    decode(
        body.as_bytes(),
        DecodeOptions::new(default_time),
        &mut Keys::default(),
    )
}

/// Returns the index and the reason of each rejected element of a valid body.
fn reasons(body: &str) -> Vec<(u32, String)> {
    let batch = decode_text(body).expect("readable");
    batch
        .rejects
        .into_iter()
        .map(|reject| (reject.line, reject.reason.to_string()))
        .collect()
}

#[test]
fn every_type_reads_as_it_is_written() {
    let body = r#" {"points":[{"measurement":"cpu","tags":{"host":"a b","dc":"x"},"time":"1970-01-01T00:00:07Z",
        "fields":{"usage":1.5,"n":3,"big":{"unsigned":"18446744073709551615"},"wide":18446744073709551615,
        "ok":true,"s":"text \"q\" \u00e4","plain":"x","low":{"signed":"-9223372036854775808"},"whole":{"float":1},
        "exp":1e3,"nan":{"float":"NaN"},"inf":{"float":"-Inf"},"exact":{"float":"0.1"},"bits":17976931348623157e37}}]}"#;
    let batch = decode_text(body).expect("readable");
    assert_eq!(batch.rejects, []);
    let group = &batch.groups[0];
    assert!(group.measurements.are("cpu"));
    assert_eq!(
        (group.timestamps.as_slice(), group.lines.as_slice()),
        (&[7_000_000_000][..], &[1][..])
    );
    let expected = [
        ("usage", ColumnData::Float(vec![1.5])),
        ("n", ColumnData::Signed(vec![3])),
        ("big", ColumnData::Unsigned(vec![u64::MAX])),
        ("wide", ColumnData::Unsigned(vec![u64::MAX])),
        ("ok", ColumnData::Boolean(vec![true])),
        ("s", ColumnData::String(["text \"q\" ä"].into_iter().collect())),
        ("plain", ColumnData::String(["x"].into_iter().collect())),
        ("low", ColumnData::Signed(vec![i64::MIN])),
        ("whole", ColumnData::Float(vec![1.0])),
        ("exp", ColumnData::Float(vec![1_000.0])),
        ("nan", ColumnData::Float(vec![f64::NAN])),
        ("inf", ColumnData::Float(vec![f64::NEG_INFINITY])),
        ("exact", ColumnData::Float(vec![0.1])),
        ("bits", ColumnData::Float(vec![1.797_693_134_862_315_7e53])),
    ];
    for ((name, column), (expected_name, expected)) in group.fields.iter().zip(&group.columns).zip(expected) {
        assert_eq!((&**name, column), (expected_name, &expected));
    }
}

#[test]
fn times_are_text_integers_or_missing() {
    let body = r#"{"points":[
        {"measurement":"m","time":7,"fields":{"f":1}},
        {"measurement":"m","time":"-7","fields":{"f":1}},
        {"measurement":"m","time":null,"fields":{"f":1}},
        {"fields":{"f":1},"measurement":"m"},
        {"measurement":"m","time":1.5,"fields":{"f":1}},
        {"measurement":"m","time":"yesterday","fields":{"f":1}},
        {"measurement":"m","time":9223372036854775,"fields":{"f":1}}
    ],"precision":"s"}"#;
    let batch = decode_text(body).expect("readable");
    assert_eq!(
        batch.groups[0].timestamps,
        [7_000_000_000, -7_000_000_000, 42_000_000_000, 42_000_000_000]
    );
    let lines: Vec<_> = batch.rejects.iter().map(|reject| reject.line).collect();
    assert_eq!(lines, [5, 6, 7]);
    assert_eq!(
        batch.rejects[1].reason.to_string(),
        "bad timestamp \"\\\"yesterday\\\"\""
    );
}

#[test]
fn a_bare_array_is_a_body_and_shapes_part() {
    let body = r#"[{"measurement":"m","fields":{"f":1}},{"measurement":"m","fields":{"f":1.0}},
                   {"measurement":"m","tags":{},"fields":{"f":2}}]"#;
    let batch = decode_text(body).expect("readable");
    let rows: Vec<_> = batch.groups.iter().map(|group| group.lines.clone()).collect();
    assert_eq!(rows, [vec![1, 3], vec![2]]);
    assert_eq!(decode_text("[]"), Ok(PointBatch::default()));
}

#[test]
fn names_reach_the_resolver_escaped() {
    let mut keys = Keys::default();
    let body = r#"[{"measurement":"a b","tags":{"k,":"v="},"fields":{"f":1}}]"#;
    decode(body.as_bytes(), DecodeOptions::new(Timestamp::EPOCH), &mut keys).expect("readable");
    assert_eq!(keys.0, [br"a\ b,k\,=v\=".to_vec()]);
}

#[test]
fn a_bad_element_rejects_itself_alone() {
    for (element, reason) in [
        (r#"{"fields":{"f":1}}"#, "missing field `measurement`"),
        (r#"{"measurement":"m"}"#, "missing field `fields`"),
        (r#"{"measurement":"m","fields":{}}"#, "missing fields"),
        (r#"{"measurement":"","fields":{"f":1}}"#, "missing measurement"),
        (
            r#"{"measurement":"m","fields":{"f":1},"host":"a"}"#,
            "unknown field `host`, expected one of `measurement`, `tags`, `time`, `fields`",
        ),
        (
            r#"{"measurement":"m","measurement":"n","fields":{"f":1}}"#,
            "duplicate field `measurement`",
        ),
        (
            r#"{"measurement":"m","fields":{"f":1,"f":2}}"#,
            "duplicate field \"f\"",
        ),
        (
            r#"{"measurement":"m","tags":{"a":"1","a":"2"},"fields":{"f":1}}"#,
            "duplicate tags: \"a\"",
        ),
        (
            r#"{"measurement":"m","tags":{"a":""},"fields":{"f":1}}"#,
            "missing tag value",
        ),
        (
            r#"{"measurement":"m","tags":{"a":1},"fields":{"f":1}}"#,
            "invalid type: integer `1`, expected a string",
        ),
        (
            r#"{"measurement":"m","tags":{"p":"C:\\"},"fields":{"f":1}}"#,
            "tag value \"C:\\\\\" ends in a backslash",
        ),
        (
            r#"{"measurement":"m","fields":{"f":null}}"#,
            "invalid field value \"null\" in field \"f\"",
        ),
        (
            r#"{"measurement":"m","fields":{"f":[1]}}"#,
            "invalid field value \"[1]\" in field \"f\"",
        ),
        (
            r#"{"measurement":"m","fields":{"f":18446744073709551616}}"#,
            "number out of range: \"18446744073709551616\" in field \"f\"",
        ),
        (
            r#"{"measurement":"m","fields":{"f":-9223372036854775809}}"#,
            "number out of range: \"-9223372036854775809\" in field \"f\"",
        ),
        (
            r#"{"measurement":"m","fields":{"f":1e400}}"#,
            "number out of range: \"1e400\" in field \"f\"",
        ),
        (
            r#"{"measurement":"m","fields":{"f":{"int":1}}}"#,
            "unknown variant `int`, expected one of `float`, `signed`, `unsigned` \"{\\\"int\\\":1}\" in field \"f\"",
        ),
        (
            r#"{"measurement":"m","fields":{"f":{"signed":1.5}}}"#,
            "invalid signed \"{\\\"signed\\\":1.5}\" in field \"f\"",
        ),
        (
            r#"{"measurement":"m","fields":{"time":1}}"#,
            "invalid field name: a field cannot be named \"time\"",
        ),
        (
            r#"{"measurement":"m","fields":{"f\u0000":1}}"#,
            "control character in field key near \"f\\0\"",
        ),
        (r#"["m",{},1,{"f":1}]"#, "a point must be an object"),
        ("5", "a point must be an object"),
    ] {
        let good = r#"{"measurement":"m","fields":{"f":1}}"#;
        let body = format!("[{good},{element},{good}]");
        assert_eq!(reasons(&body), [(2, reason.to_owned())], "{element}");
        assert_eq!(decode_text(&body).expect("readable").rows(), 2);
    }
}

#[test]
fn a_body_that_is_no_write_is_refused_as_a_whole() {
    for (body, reason) in [
        ("", "EOF while parsing a value"),
        ("cpu f=1", "expected value"),
        ("5", "expected an object with points or an array of points"),
        ("{}", "missing field `points`"),
        (r#"{"points":{}}"#, "points must be an array"),
        (
            r#"{"points":[],"point":[]}"#,
            "unknown field `point`, expected `points` or `precision`",
        ),
        (
            r#"{"points":[],"precision":"fortnight"}"#,
            "unknown precision \"fortnight\"",
        ),
        ("[] []", "trailing characters"),
        (
            r#"[{"measurement":"m","fields":{"f":1}},"#,
            "EOF while parsing a value",
        ),
    ] {
        match decode_text(body) {
            Err(IngestError::Json { reason: given, .. }) => assert_eq!(given, reason, "{body}"),
            other => panic!("{body}: {other:?}"),
        }
    }
    let error = decode_text("[\n  oops]").expect_err("no JSON");
    assert_eq!(
        error.to_string(),
        "invalid JSON at line 2, column 3: expected value"
    );
}

#[test]
fn deep_documents_cost_neither_stack_nor_patience() {
    let deep = |count: usize| format!("{}{}", "[".repeat(count), "]".repeat(count));
    assert_eq!(
        reasons(&deep(100_000)),
        [(1, "a point must be an object".to_owned())]
    );
    let field = format!(r#"[{{"measurement":"m","fields":{{"f":{}}}}}]"#, deep(100_000));
    assert_eq!(reasons(&field).len(), 1);
    let objects = format!(r#"{}1{}"#, r#"{"points":"#.repeat(100_000), "}".repeat(100_000));
    assert!(decode_text(&objects).is_err());
    assert!(decode_text(&"[".repeat(100_000)).is_err());
}
