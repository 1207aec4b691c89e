//! Golden bytes of tuple keys. Stored keys have this form, so it may never change.
//!
//! Each value is checked in an ascending and in a descending column.

use super::*;

/// Checks the key of one value in an ascending column and in a descending column.
#[track_caller]
fn assert_bytes(value: impl Into<OwnedValue>, ascending: &str, descending: &str) {
    let value = value.into();
    for (order, expected) in [
        (ColumnOrder::Ascending, ascending),
        (ColumnOrder::Descending, descending),
    ] {
        let key = encoded(&schema_of(&[(value.kind(), order)]), std::slice::from_ref(&value));
        assert_eq!(shown(&key), expected, "{value:?} {order:?}");
    }
}

/// Formats bytes as hexadecimal pairs.
fn shown(bytes: &[u8]) -> String {
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    pairs.join(" ")
}

#[test]
fn golden_bytes_of_text_and_binary() {
    assert_bytes("", "00 01", "ff fe");
    assert_bytes("ab", "61 62 00 01", "9e 9d ff fe");
    assert_bytes("a\0", "61 00 ff 00 01", "9e ff 00 ff fe");
    assert_bytes("ÿ", "c3 bf 00 01", "3c 40 ff fe");
    assert_bytes(
        b"\x00\x01\xff\x00".as_slice(),
        "00 ff 01 ff 00 ff 00 01",
        "ff 00 fe 00 ff 00 ff fe",
    );
}

#[test]
fn golden_bytes_of_numbers() {
    assert_bytes(i64::MIN, "00 00 00 00 00 00 00 00", "ff ff ff ff ff ff ff ff");
    assert_bytes(-1_i64, "7f ff ff ff ff ff ff ff", "80 00 00 00 00 00 00 00");
    assert_bytes(258_i64, "80 00 00 00 00 00 01 02", "7f ff ff ff ff ff fe fd");
    assert_bytes(1_u64, "00 00 00 00 00 00 00 01", "ff ff ff ff ff ff ff fe");
    assert_bytes(u64::MAX, "ff ff ff ff ff ff ff ff", "00 00 00 00 00 00 00 00");
    assert_bytes(
        Timestamp::EPOCH,
        "80 00 00 00 00 00 00 00",
        "7f ff ff ff ff ff ff ff",
    );
    assert_bytes(
        Timestamp::MIN,
        "00 00 00 00 00 00 00 02",
        "ff ff ff ff ff ff ff fd",
    );
    assert_bytes(false, "00", "ff");
    assert_bytes(true, "01", "fe");
}

#[test]
fn golden_bytes_of_decimals() {
    let decimal = |mantissa, scale| Decimal::new(mantissa, scale).expect("the scale is in range");
    assert_bytes(Decimal::ZERO, "80", "7f");
    assert_bytes(decimal(12_345, 3), "a8 19 45 64", "57 e6 ba 9b");
    assert_bytes(decimal(-12_345, 3), "57 e6 ba 9b", "a8 19 45 64");
    assert_bytes(decimal(100, 0), "a9 14", "56 eb");
    assert_bytes(decimal(7, 0), "a7 8c", "58 73");
    assert_bytes(decimal(1_001, 2), "a8 15 02", "57 ea fd");
    assert_bytes(decimal(1, 38), "81 14", "7e eb");
    assert_bytes(decimal(-1, 38), "7e eb", "81 14");
    assert_bytes(
        decimal(i128::MAX, 0),
        "cd 23 03 53 25 45 79 5d b9 3f 93 21 af 3d 4b 1f b1 53 0b 91 8c",
        "32 dc fc ac da ba 86 a2 46 c0 6c de 50 c2 b4 e0 4e ac f4 6e 73",
    );
    assert_bytes(
        decimal(i128::MIN, 38),
        "58 dc fc ac da ba 86 a2 46 c0 6c de 50 c2 b4 e0 4e ac f4 6e 5f",
        "a7 23 03 53 25 45 79 5d b9 3f 93 21 af 3d 4b 1f b1 53 0b 91 a0",
    );
}

#[test]
fn golden_bytes_of_a_tuple() {
    let columns = [
        (KeyKind::String, ColumnOrder::Ascending),
        (KeyKind::Signed, ColumnOrder::Descending),
        (KeyKind::Unsigned, ColumnOrder::Ascending),
        (KeyKind::Binary, ColumnOrder::Descending),
        (KeyKind::Timestamp, ColumnOrder::Descending),
        (KeyKind::Decimal, ColumnOrder::Ascending),
        (KeyKind::Boolean, ColumnOrder::Descending),
        (KeyKind::String, ColumnOrder::Descending),
    ];
    let values = [
        "h1".into(),
        5_i64.into(),
        6_u64.into(),
        b"\x00".as_slice().into(),
        Timestamp::from_nanos(1_700_000_000_000_000_000)
            .expect("in range")
            .into(),
        Decimal::new(532, 2).expect("in range").into(),
        true.into(),
        "z".into(),
    ];
    let parts = [
        "68 31 00 01",
        "7f ff ff ff ff ff ff fa",
        "00 00 00 00 00 00 00 06",
        "ff 00 ff fe",
        "68 68 63 01 c9 d5 ff ff",
        "a7 6b 28",
        "fe",
        "85 ff fe",
    ];
    assert_eq!(shown(&encoded(&schema_of(&columns), &values)), parts.join(" "));
}
