//! Tests of the JSON forms of values: a written value is parsed back to the same value, and errors describe values that
//! do not have the declared type.
//!
//! The property tests cover all types, declared and undeclared columns, and documents that have the form of a typed
//! value.

use proptest::prelude::*;
use tideline_engine::key_codec::tuple::Decimal;
use tideline_engine::model::{ColumnType, Timestamp};
use tideline_engine::rows::CellValue;
use tideline_openapi::row::RowIntegers;
use tideline_rows::value::{GivenValue, parse_column, write_typed, write_value};

const NOW: Timestamp = Timestamp::EPOCH;

fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        ".*".prop_map(Into::into),
        // Documents that have the form of a typed value.
        Just(serde_json::json!({"type": "json", "value": 1})),
        Just(serde_json::json!([{"type": "json", "value": {"type": "json", "value": 2}}])),
    ];
    let document = leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(serde_json::Value::from),
            prop::collection::btree_map("[a-z]{1,3}", inner, 0..4)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    });
    document.prop_map(|document| document.to_string())
}

fn cell() -> impl Strategy<Value = CellValue<'static>> {
    prop_oneof![
        ".*".prop_map(|text| CellValue::String(text.into())),
        any::<i64>().prop_map(CellValue::I64),
        any::<u64>().prop_map(CellValue::U64),
        any::<f64>()
            .prop_filter("NaN differs from itself", |number| !number.is_nan())
            .prop_map(CellValue::F64),
        any::<bool>().prop_map(CellValue::Bool),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| CellValue::Binary(bytes.into())),
        (any::<i128>(), 0_u8..=38).prop_map(|(mantissa, scale)| {
            CellValue::Decimal(Decimal::new(mantissa, scale).expect("the scale fits"))
        }),
        json().prop_map(|text| CellValue::Json(text.into())),
        any::<i64>().prop_map(|nanos| CellValue::Timestamp(Timestamp::from_nanos_clamped(nanos))),
    ]
}

fn integers() -> impl Strategy<Value = RowIntegers> {
    prop_oneof![Just(RowIntegers::Number), Just(RowIntegers::Text)]
}

fn text(out: Vec<u8>) -> String {
    let text = String::from_utf8(out).expect("JSON is text");
    serde_json::from_str::<serde::de::IgnoredAny>(&text).expect("it is JSON");
    text
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(256))]

    #[test]
    fn a_value_is_parsed_as_it_was_written(
        value in cell(),
        declared in prop::option::of(prop::sample::select(ColumnType::ALL.as_slice())),
        integers in integers(),
    ) {
        let mut out = Vec::new();
        write_value(&value, declared, integers, &mut out);
        let json = text(out);
        // A value that does not have the declared type is written in the typed form. It is then parsed as a value of an
        // undeclared column, which accepts every typed form.
        let declared = declared.filter(|declared| *declared == value.column_type());
        let given = parse_column(&json, declared, NOW).map(|given| given.to_vec());
        prop_assert_eq!(given, Ok(vec![GivenValue { value, version: None }]), "{}", json);
    }

    #[test]
    fn versions_are_parsed_as_they_were_written(
        values in prop::collection::vec((cell(), any::<i64>()), 1..4),
        integers in integers(),
    ) {
        let mut out = vec![b'['];
        let mut expected = Vec::new();
        for (number, (value, time)) in values.into_iter().enumerate() {
            if number > 0 {
                out.push(b',');
            }
            write_typed(&value, Some(time), integers, &mut out);
            let version = Some(Timestamp::from_nanos_clamped(time));
            expected.push(GivenValue { value, version });
        }
        out.push(b']');
        let json = text(out);
        let given = parse_column(&json, None, NOW).map(|given| given.to_vec());
        prop_assert_eq!(given, Ok(expected), "{}", json);
    }
}

#[test]
fn the_plain_forms_of_each_type() {
    for (json, declared, expected) in [
        ("\"5.32\"", ColumnType::Decimal, "\"5.32\""),
        ("5.320", ColumnType::Decimal, "\"5.32\""),
        (
            "\"18446744073709551615\"",
            ColumnType::U64,
            "18446744073709551615",
        ),
        ("-7", ColumnType::I64, "-7"),
        ("5", ColumnType::F64, "5.0"),
        ("\"NaN\"", ColumnType::F64, "\"NaN\""),
        (
            "1000000001",
            ColumnType::Timestamp,
            "\"1970-01-01T00:00:01.000000001Z\"",
        ),
        ("\"AAE=\"", ColumnType::Binary, "\"AAE=\""),
        (
            "{ \"a b\" : [ 1.10, \"x\\\" y\" ] }",
            ColumnType::Json,
            "{\"a b\":[1.10,\"x\\\" y\"]}",
        ),
        ("null", ColumnType::Json, "null"),
        ("{\"value\": 3}", ColumnType::I64, "3"),
    ] {
        let given = parse_column(json, Some(declared), NOW).expect(json);
        let mut out = Vec::new();
        write_value(&given[0].value, Some(declared), RowIntegers::Number, &mut out);
        assert_eq!(text(out), expected, "{json}");
    }
}

#[test]
fn a_wrong_value_is_described() {
    for (json, declared, found) in [
        ("\"x\"", Some(ColumnType::I64), "found the text \"x\""),
        ("1.5", Some(ColumnType::U64), "found the number 1.5"),
        ("-1", Some(ColumnType::U64), "found the number -1"),
        (
            "9223372036854775808",
            Some(ColumnType::I64),
            "found the number 9223372036854775808",
        ),
        ("true", Some(ColumnType::String), "found true"),
        ("\"a\"", Some(ColumnType::Binary), "found the text \"a\""),
        ("1e999", Some(ColumnType::F64), "found the number 1e999"),
        ("\"soon\"", Some(ColumnType::Timestamp), "found the text \"soon\""),
        ("null", Some(ColumnType::Bool), "found null"),
        ("null", None, "found null"),
        ("[]", None, "found an empty list"),
        ("[1]", None, "found a list with the number 1"),
        ("{\"type\":\"i64\",\"value\":\"x\"}", None, "found the text \"x\""),
        (
            "{\"type\":\"i64\",\"value\":1}",
            Some(ColumnType::U64),
            "found a value of type i64",
        ),
        ("{\"a\":1}", None, "found an object that does not have the form"),
        (
            "99999999999999999999",
            None,
            "found the number 99999999999999999999",
        ),
    ] {
        let error = parse_column(json, declared, NOW).expect_err(json);
        assert!(error.contains(found), "{json}: {error}");
    }
}
