//! Golden bytes of computed columns. Stored rows are found by these bytes, so they may never change.
//!
//! The test vectors come from `FORMAT.md`. Their hashes were computed by `md5sum` and by the Python package `xxhash`.

use tideline_model::Timestamp;

use super::*;
use crate::tuple::Decimal;

const FORMAT: &str = include_str!("../../../FORMAT.md");

/// Checks that `FORMAT.md` contains the line.
#[track_caller]
fn assert_documented(line: &str) {
    assert!(
        FORMAT.lines().any(|other| other == line),
        "FORMAT.md lacks {line}"
    );
}

/// Declares plain columns `c0`, `c1`, … for values, after a first column that is computed from all plain columns.
fn layout_before(values: &[OwnedValue], first: impl Fn(&[&str]) -> KeyColumnSpec) -> KeyLayout {
    let names: Vec<String> = (0..values.len()).map(|number| format!("c{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut columns = vec![first(&names)];
    for (name, value) in names.iter().zip(values) {
        let column_type = KEY_TYPES.into_iter().find(|other| kind(*other) == value.kind());
        columns.push(plain(name, column_type.expect("a type of keys")));
    }
    layout_of(&columns)
}

/// Returns the hashed values of `FORMAT.md`, each with its description in that file.
fn vectors() -> [(&'static str, Vec<OwnedValue>); 7] {
    let time = Timestamp::from_nanos(1_700_000_000_000_000_000).expect("in range");
    let price = Decimal::new(-12_340, 3).expect("in range");
    [
        ("u64 200001", vec![200_001_u64.into()]),
        ("string `10.10.0.1`", vec!["10.10.0.1".into()]),
        ("string `card-7`, i64 −5", vec!["card-7".into(), (-5_i64).into()]),
        ("string `a,b`, string `c`", vec!["a,b".into(), "c".into()]),
        (
            "timestamp 2023-11-14T22:13:20Z, decimal −12.340, bool true",
            vec![time.into(), price.into(), true.into()],
        ),
        (
            "binary `00 ff`, string `x`",
            vec![b"\x00\xff".as_slice().into(), "x".into()],
        ),
        ("string of no characters", vec!["".into()]),
    ]
}

#[test]
fn golden_hash_prefixes() {
    let expected = [
        ("`200001`", "ee8f208b"),
        ("`10.10.0.1`", "7e4abb77"),
        ("`card-7,-5`", "b2969dee"),
        ("`a,b,c`", "a44c56c8"),
        ("`1700000000000000000,-12.34,true`", "3cb180cc"),
        ("`00 ff 2c 78`", "542b722b"),
        ("", "d41d8cd9"),
    ];
    for ((name, values), (text, digits)) in vectors().into_iter().zip(expected) {
        for hex in 1..=8 {
            let layout = layout_before(&values, |names| hash("h", names, hex));
            let key = encoded(&layout, &values);
            assert_eq!(key[..hex.into()], digits.as_bytes()[..hex.into()], "{name}");
        }
        let text = format!(" {text} ").replace("  ", " ");
        assert_documented(&format!("| {name} |{text}| `{digits}` |"));
    }
}

#[test]
fn golden_buckets() {
    let expected = [
        (0, 0xbe28_aa3c_f949_ce52_u64, 2, 82),
        (1, 0x896b_f671_3483_4c1d, 13, 29),
        (2, 0xca49_f53b_3f2f_cbd4, 4, 212),
        (4, 0x39ca_1de0_240e_046a, 10, 106),
    ];
    let vectors = vectors();
    for (number, hash, of_16, of_256) in expected {
        let (name, values) = &vectors[number];
        let mut tuple = String::new();
        for (count, expected) in [(16, of_16), (256, of_256)] {
            let layout = layout_before(values, |names| bucket("b", names, count));
            let key = encoded(&layout, values);
            assert_eq!(key[0], expected, "{name}");
            assert_eq!(xxh3_64(&key[1..]), hash, "{name}");
            let bytes: Vec<String> = key[1..].iter().map(|byte| format!("{byte:02x}")).collect();
            tuple = bytes.join(" ");
        }
        assert_documented(&format!(
            "| {name} | `{tuple}` | `{hash:016x}` | {of_16} | {of_256} |"
        ));
    }
}

/// Checks the key of a layout of one stored column that holds a text.
#[track_caller]
fn assert_text(column: KeyColumnSpec, values: &[KeyValue<'_>], text: &str) {
    let mut expected = text.as_bytes().to_vec();
    expected.extend([0, 1]);
    assert_eq!(
        encoded(&layout_of(std::slice::from_ref(&column)), values),
        expected
    );
    let complement: Vec<u8> = expected.iter().map(|byte| !byte).collect();
    assert_eq!(encoded(&layout_of(&[descending(column)]), values), complement);
}

#[test]
fn golden_reversed_texts() {
    let cases: [(&str, ColumnType, OwnedValue, &str); 3] = [
        (
            "string `device-12`",
            ColumnType::String,
            "device-12".into(),
            "21-ecived",
        ),
        ("i64 7", ColumnType::I64, 7_i64.into(), "7000000000000000000"),
        ("u64 12", ColumnType::U64, 12_u64.into(), "21000000000000000000"),
    ];
    for (name, column_type, value, text) in cases {
        assert_text(reverse("r", "x", column_type), &[value], text);
        assert_documented(&format!("| {name} | `{text}` |"));
    }
    assert_text(reverse("r", "x", ColumnType::String), &["aé€𝄞".into()], "𝄞€éa");
}

#[test]
fn golden_spliced_texts() {
    let seller = [("s", ColumnType::String, None), ("n", ColumnType::U64, Some(3))];
    assert_text(
        splice("j", ',', &seller),
        &["seller".into(), 54_u64.into()],
        "seller,054",
    );
    assert_documented("| string, u64 padded to 3 digits | `seller`, 54 | `seller,054` |");
    let three = [
        ("n", ColumnType::U64, Some(2)),
        ("s", ColumnType::String, None),
        ("t", ColumnType::String, None),
    ];
    assert_text(
        splice("j", ',', &three),
        &[7_u64.into(), "a".into(), "".into()],
        "07,a,",
    );
    assert_documented(
        "| u64 padded to 2 digits, string, string | 7, `a`, a text of no characters | `07,a,` |",
    );
}

#[test]
fn golden_bytes_of_a_key() {
    let layout = layout_of(&[
        descending(bucket("b", &["card"], 16)),
        descending(hash("h", &["card"], 4)),
        plain("card", ColumnType::String),
        descending(plain("no", ColumnType::U64)),
    ]);
    let key = encoded(&layout, &["10.10.0.1".into(), 1_u64.into()]);
    let bucket = [!13_u8];
    let digits = b"7e4a".map(|digit| !digit);
    let expected = [&bucket[..], &digits, b"10.10.0.1\0\x01", &[0xff; 7], &[0xfe]].concat();
    assert_eq!(key, expected);
    assert_eq!(layout.merge_key(&key), &key[1..]);
    assert_eq!(layout.partition_len(&key), Ok(16));
    assert_eq!(layout.partition_columns(), [0]);
    assert_eq!(layout.buckets(), Some(16));
}
