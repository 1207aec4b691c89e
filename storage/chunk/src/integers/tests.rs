//! Tests of all forms: each form decodes correctly, and the smallest form is chosen.
//!
//! Truncated columns must fail to open. Changed columns must either fail to open or decode to some values; they never
//! cause a panic.

use super::coded::FRAME;
use super::packed::{CONSTANT, DELTAS, OFFSETS};
use super::*;

fn encoded<T: PackedInt>(values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::new();
    IntegerEncoder::default().encode(values, &mut bytes);
    bytes
}

fn tightly<T: PackedInt>(values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = IntegerEncoder::default();
    encoder.allow_coding(true);
    encoder.encode(values, &mut bytes);
    assert_eq!(encoder.wrote_coded(), bytes[0] == CODED);
    bytes
}

/// Returns a walk of `count` values. `noise` converts random 64-bit words to steps.
fn walk(count: usize, noise: impl Fn(u64) -> i64) -> Vec<i64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut value = 0i64;
    let mut values = Vec::new();
    for _ in 0..count {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        value = value.wrapping_add(noise(state ^ (state >> 29)));
        values.push(value);
    }
    values
}

fn decoded<T: PackedInt>(bytes: &[u8], count: usize, rows: Range<usize>) -> Vec<T> {
    let mut reader = Reader::new(bytes);
    let column = Integers::open(&mut reader, count).expect("it was just written");
    assert_eq!(reader.finish(), Ok(()));
    let mut values = Vec::new();
    column.decode(rows, &mut values);
    values
}

#[test]
fn extremes_read_back_in_any_range() {
    let columns: [Vec<i64>; 5] = [
        vec![],
        vec![i64::MIN, i64::MAX, 0, -1, 1],
        vec![7; 1_000],
        (0..1_000).map(|n| n * 3).collect(),
        (0..300)
            .map(|n: i64| n.wrapping_mul(0x5851_f42d_4c95_7f2d))
            .collect(),
    ];
    for values in columns {
        let bytes = encoded(&values);
        let count = values.len();
        for rows in [0..count, 0..count / 2, count / 3..count, count / 2..count / 2] {
            assert_eq!(decoded::<i64>(&bytes, count, rows.clone()), values[rows]);
        }
    }
    let unsigned = [u64::MAX, 0, u64::MAX / 2 + 1, 5];
    assert_eq!(decoded::<u64>(&encoded(&unsigned), 4, 0..4), unsigned);
}

#[test]
fn the_cheapest_form_is_taken() {
    assert_eq!(encoded(&[7i64; 500]), [CONSTANT, 14]);
    let line: Vec<i64> = (0..540).map(|n| n * 1_000).collect();
    assert_eq!(encoded(&line)[0], DELTAS);
    assert!(encoded(&line).len() < 30);
    let noise: Vec<i64> = (0..540).map(|n| (n * 37) % 101).collect();
    assert_eq!(encoded(&noise)[0], OFFSETS);
}

#[test]
fn a_rising_column_is_searched_by_its_heads() {
    for values in [
        (0..1_000).map(|n| n * 3).collect::<Vec<i64>>(),
        (0..1_000).map(|n| n * n).collect(),
        vec![4],
    ] {
        let bytes = encoded(&values);
        let column = Integers::open(&mut Reader::new(&bytes), values.len()).expect("it was just written");
        for bound in [-1, 0, 1, 4, 5, 380, 384, 385, 2_997, 2_998, 999_999] {
            assert_eq!(
                column.partition_point(|value| value < bound),
                values.partition_point(|value| *value < bound)
            );
        }
    }
}

#[test]
fn coded_columns_read_back_in_any_range() {
    let triangle = |word: u64| ((word & 3) + (word >> 8 & 3)) as i64 - 3;
    let columns: [(&str, Vec<i64>); 8] = [
        ("small steps", walk(5_000, triangle)),
        ("one value in the last frame", walk(FRAME + 1, triangle)),
        ("whole frames", walk(2 * FRAME, triangle)),
        ("multiples", walk(3_000, |word| triangle(word) * 4_096)),
        (
            "wide steps",
            walk(3_000, |word| (word >> 50) as i64 * (word >> 3 & 7) as i64),
        ),
        (
            "few far out",
            walk(3_000, |word| if word & 127 == 0 { word as i64 } else { 1 }),
        ),
        (
            "codes",
            walk(3_000, triangle)
                .iter()
                .map(|v| [200, 200, 200, 404][(v & 3) as usize])
                .collect(),
        ),
        (
            "long tails",
            walk(3_000, |word| {
                1i64.wrapping_shl((word >> 33 & word >> 43 & 63) as u32)
            }),
        ),
    ];
    for (name, values) in columns {
        let bytes = tightly(&values);
        assert_eq!(bytes[0], CODED, "{name}");
        assert!(bytes.len() < encoded(&values).len(), "{name}");
        let count = values.len();
        let near = [
            0,
            1,
            127,
            128,
            129,
            FRAME - 1,
            FRAME,
            FRAME + 1,
            count / 2,
            count - 1,
            count,
        ];
        for start in near {
            for end in near {
                let rows = start.min(count)..end.min(count).max(start.min(count));
                assert_eq!(
                    decoded::<i64>(&bytes, count, rows.clone()),
                    values[rows],
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn columns_that_gain_nothing_stay_packed() {
    assert_eq!(tightly(&[7i64; 5_000])[0], CONSTANT);
    assert_eq!(tightly(&(0..500i64).collect::<Vec<_>>())[0], DELTAS);
    assert_eq!(tightly(&walk(63, |word| word as i64 & 3))[0], DELTAS);
    assert_eq!(tightly(&walk(100, |word| word as i64))[0], OFFSETS);
}

#[test]
fn a_rising_coded_column_is_searched_by_its_heads() {
    let values = walk(5_000, |word| 10 - (word & word >> 9 & 7) as i64);
    let bytes = tightly(&values);
    assert_eq!(bytes[0], CODED);
    let column = Integers::open(&mut Reader::new(&bytes), values.len()).expect("it was just written");
    for row in [0, 1, 127, 128, 2_000, FRAME - 1, FRAME, FRAME + 1, 4_999] {
        for bound in [values[row] - 1, values[row], values[row] + 1] {
            assert_eq!(
                column.partition_point(|value| value < bound),
                values.partition_point(|value| *value < bound)
            );
        }
    }
    assert_eq!(column.partition_point(|_| true), 5_000);
    assert_eq!(column.partition_point(|_| false), 0);
}

#[test]
fn damage_is_an_error() {
    let bytes = encoded(&(0..300i64).map(|n| n % 7).collect::<Vec<_>>());
    for length in 0..bytes.len() {
        assert!(Integers::open(&mut Reader::new(&bytes[..length]), 300).is_err());
    }
    assert!(Integers::open(&mut Reader::new(&[9, 0, 0]), 3).is_err());
    // The bytes 0x82, 0x01 are the width 65 as a signed varint, which exceeds 64 bits.
    assert!(Integers::open(&mut Reader::new(&[OFFSETS, 0x82, 0x01, 0, 0, 0]), 1).is_err());
    let bytes = tightly(&walk(1_000, |word| (word & word >> 9 & 7) as i64));
    assert_eq!(bytes[0], CODED);
    for length in 0..bytes.len() {
        assert!(Integers::open(&mut Reader::new(&bytes[..length]), 1_000).is_err());
    }
    for at in 0..bytes.len() {
        for byte in [0, 1, 0x7f, 0x80, 0xff, bytes[at] ^ 1] {
            let mut bytes = bytes.clone();
            bytes[at] = byte;
            if let Ok(column) = Integers::open(&mut Reader::new(&bytes), 1_000) {
                let mut values: Vec<i64> = Vec::new();
                column.decode(0..1_000, &mut values);
                assert_eq!(values.len(), 1_000);
            }
        }
    }
}
