//! The published line-protocol corpus: 6,615 bodies to decode and 115 points to encode.
//!
//! `tideline_testkit::corpus` returns its location.

use serde_json::Value as Json;
use tideline_ingest_protocols::{DecodeOptions, line_protocol};
use tideline_model::{Precision, Timestamp, Value};

use crate::support::{NumberingResolver, Row, rows};

/// Keys of the cases in which the decoder intentionally deviates from the corpus and follows InfluxDB 1, with the
/// reasons.
const DEVIATIONS: [(&str, &str); 5] = [
    (
        "2be024ca70163a7068b08f5e8ef57ffa",
        "lines may be indented by tabs, as in InfluxDB 1",
    ),
    (
        "a02aab4c616a523b89c419dc100e70fd",
        "a line of tabs is blank, as in InfluxDB 1",
    ),
    (
        "c0ce359f018a4255f4152ca2bc156ca7",
        "a line of tabs is blank, as in InfluxDB 1",
    ),
    (
        "2a6fa6f9c4bd199a093f88e94b542430",
        "a tag named time rejects the point, as in InfluxDB 1",
    ),
    (
        "5f10c11304f37e8f65e1d9fc36c6fde3",
        "a tag named time rejects the point, as in InfluxDB 1",
    ),
];

#[test]
fn every_case_of_the_corpus_decodes_as_published() {
    let Some(corpus) = corpus() else { return };
    let cases = corpus["decode"].as_object().expect("decode cases");
    let mut wrong = Vec::new();
    let mut deviations = 0;
    for (key, case) in cases {
        let outcome = decode_case(case);
        match (outcome, DEVIATIONS.iter().find(|(deviation, _)| deviation == key)) {
            (Ok(()), None) => {}
            (Err(_), Some(_)) => deviations += 1,
            (Ok(()), Some((_, reason))) => wrong.push(format!("{key} does not deviate any more: {reason}")),
            (Err(difference), None) => wrong.push(format!("{key}: {difference}")),
        }
    }
    println!(
        "line-protocol corpus: {} bodies decoded, {deviations} of them deviate on purpose",
        cases.len()
    );
    assert_eq!(cases.len(), 6_615);
    assert_eq!(deviations, DEVIATIONS.len());
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_point_of_the_corpus_encodes_as_published() {
    let Some(corpus) = corpus() else { return };
    let cases = corpus["encode"].as_object().expect("encode cases");
    for (key, case) in cases {
        let (expected, point) = (&case["output"], &case["input"]["point"]);
        let tags = pairs(&point["tags"], |value| {
            value.as_str().expect("a tag value").to_owned()
        });
        let fields = pairs(&point["fields"], value_of);
        let mut line = Vec::new();
        let written = line_protocol::write(
            &mut line,
            point["name"].as_str().expect("a name"),
            tags.iter().map(|(key, value)| (key.as_str(), value.as_str())),
            fields.iter().map(|(name, value)| (name.as_str(), value)),
            Timestamp::from_nanos(point["time"].as_i64().expect("a time")).expect("in range"),
        );
        match expected["result"].as_str() {
            Some(text) => {
                assert_eq!(written, Ok(()), "{key}");
                assert_eq!(String::from_utf8_lossy(&line).trim_end(), text, "{key}");
            }
            None => assert!(written.is_err() && line.is_empty(), "{key} must fail: {expected}"),
        }
    }
    println!("line-protocol corpus: {} points encoded", cases.len());
    assert_eq!(cases.len(), 115);
}

fn corpus() -> Option<Json> {
    let path = tideline_testkit::corpus("line-protocol-corpus")?.join("corpus.json");
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Some(serde_json::from_slice(&bytes).expect("the corpus is JSON"))
}

/// Decodes one body; on a difference from the published result, returns a description.
fn decode_case(case: &Json) -> Result<(), String> {
    let input = &case["input"];
    let body = match &input["text"] {
        Json::String(text) => text.clone().into_bytes(),
        other => base64(other["binary"].as_str().expect("base64")),
    };
    let precision = input["precision"]
        .as_str()
        .and_then(|text| text.strip_prefix('1'));
    let default_time = input["defaultTime"]
        .as_i64()
        .and_then(|nanos| Timestamp::from_nanos(nanos).ok());
    let options = DecodeOptions {
        precision: precision.and_then(Precision::parse).expect("a precision"),
        ..DecodeOptions::new(default_time.expect("a default time"))
    };
    let mut resolver = NumberingResolver::default();
    let batch = line_protocol::decode(&body, options, &mut resolver);
    let shown = String::from_utf8_lossy(&body);
    match case["output"]["result"].as_array() {
        None if batch.rejects.is_empty() => {
            Err(format!("{shown:?} must be rejected: {}", case["output"]["error"]))
        }
        None => Ok(()),
        Some(_) if !batch.rejects.is_empty() => Err(format!("{shown:?} was rejected: {:?}", batch.rejects)),
        Some(points) => {
            let rows = rows(&batch, &resolver);
            let same =
                rows.len() == points.len() && rows.iter().zip(points).all(|(row, point)| is_same(row, point));
            same.then_some(())
                .ok_or_else(|| format!("{shown:?} gave {rows:?}, not {points:?}"))
        }
    }
}

fn is_same(row: &Row, point: &Json) -> bool {
    let tags = pairs(&point["tags"], |value| {
        value.as_str().expect("a tag value").to_owned()
    });
    let fields = pairs(&point["fields"], value_of);
    let is_same_value = |(name, value): &(String, Value), (other_name, other): &(String, Value)| {
        // The corpus does not keep the sign of zero, and `serde_json` may round the last bit of a float differently.
        let same_float = matches!((value, other), (Value::Float(a), Value::Float(b))
            if a == b || a.to_bits().abs_diff(b.to_bits()) == 1);
        name == other_name && (value == other || same_float)
    };
    Some(row.nanos) == point["time"].as_i64()
        && Some(row.identity.measurement()) == point["name"].as_str()
        && row.identity.tags() == tags
        && row.fields.len() == fields.len()
        && row.fields.iter().zip(&fields).all(|(a, b)| is_same_value(a, b))
}

/// Returns the key and value of each entry. All names are UTF-8 in the cases with a result.
fn pairs<T>(entries: &Json, value_of: impl Fn(&Json) -> T) -> Vec<(String, T)> {
    let entries = entries.as_array().expect("a list");
    entries
        .iter()
        .map(|entry| {
            (
                entry["key"].as_str().expect("a key").to_owned(),
                value_of(&entry["value"]),
            )
        })
        .collect()
}

fn value_of(typed: &Json) -> Value {
    let (kind, value) = typed
        .as_object()
        .and_then(|typed| typed.iter().next())
        .expect("one typed value");
    match kind.as_str() {
        "float" => Value::Float(value.as_f64().expect("a float")),
        "int" => Value::Signed(value.as_i64().expect("an integer")),
        "uint" => Value::Unsigned(value.as_u64().expect("an unsigned integer")),
        "bool" => Value::Boolean(value.as_bool().expect("a boolean")),
        "string" => Value::String(value.as_str().expect("a string").into()),
        other => panic!("unknown kind {other}"),
    }
}

fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut bits, mut held) = (0u32, 0);
    for symbol in text.bytes().filter(|symbol| *symbol != b'=') {
        let six = ALPHABET
            .iter()
            .position(|known| *known == symbol)
            .expect("base64");
        bits = (bits << 6 | six as u32) & 0xff_ffff;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    bytes
}
