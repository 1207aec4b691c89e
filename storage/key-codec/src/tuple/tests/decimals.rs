//! Tests of decimals: normal form, range, order, refused bytes, formatting and parsing.
//!
//! The order is compared with the order of the decimal digits as text.

use super::*;

/// Compares two decimals by their text: sign, 39 digits before the point, 38 after it.
pub(super) fn cmp_digits(left: Decimal, right: Decimal) -> Ordering {
    let digits = |number: Decimal| {
        let zeros = usize::from(DECIMAL_SCALE_MAX - number.scale());
        let text = format!("{}{}", number.mantissa().unsigned_abs(), "0".repeat(zeros));
        format!("{text:0>77}")
    };
    let (left_sign, right_sign) = (left.mantissa().signum(), right.mantissa().signum());
    left_sign.cmp(&right_sign).then_with(|| match left_sign {
        -1 => digits(right).cmp(&digits(left)),
        _ => digits(left).cmp(&digits(right)),
    })
}

/// Returns the key of a decimal in an ascending column.
fn key(number: Decimal) -> Vec<u8> {
    encoded(&ascending(), &[number.into()])
}

fn ascending() -> KeySchema {
    schema_of(&[(KeyKind::Decimal, ColumnOrder::Ascending)])
}

fn decimal(mantissa: i128, scale: u8) -> Decimal {
    Decimal::new(mantissa, scale).expect("the scale is in range")
}

/// Decodes the bytes of a decimal column.
fn decoded(bytes: &[u8]) -> Result<Decimal, KeyError> {
    let values = ascending().decode(bytes)?;
    let [KeyValue::Decimal(number)] = values[..] else {
        panic!("{values:?} is not a decimal");
    };
    Ok(number)
}

proptest! {
    #![proptest_config(tideline_testkit::proptest_config(4_000))]

    #[test]
    fn decimals_and_their_keys_sort_as_numbers(left in decimals(), right in decimals()) {
        let order = cmp_digits(left, right);
        prop_assert_eq!(left.cmp(&right), order);
        prop_assert_eq!(key(left).cmp(&key(right)), order);
    }

    #[test]
    fn neighbors_sort_as_numbers(number in decimals(), step in 1_i128..200) {
        let next = decimal(number.mantissa().saturating_add(step), number.scale());
        prop_assert_eq!(number.cmp(&next), cmp_digits(number, next));
        prop_assert_eq!(key(number).cmp(&key(next)), cmp_digits(number, next));
    }

    #[test]
    fn every_mantissa_and_scale_reads_back(mantissa in any::<i128>(), shift in 0_u32..127, scale in 0..=DECIMAL_SCALE_MAX) {
        let number = decimal(mantissa >> shift, scale);
        prop_assert_eq!(decoded(&key(number)), Ok(number));
    }

    #[test]
    fn zeros_at_the_end_change_nothing(digits in -1_000_000_i128..1_000_000, scale in 0_u8..10, zeros in 0_u8..29) {
        let longer = decimal(digits * 10_i128.pow(zeros.into()), scale + zeros);
        prop_assert_eq!(longer, decimal(digits, scale));
        prop_assert_eq!(key(longer), key(decimal(digits, scale)));
    }
}

#[test]
fn the_ends_of_the_range_read_back() {
    let powers = (0..39).map(|exponent| 10_i128.pow(exponent));
    let around = powers.flat_map(|power| [power - 1, power, power + 1]);
    let ends = [i128::MAX, i128::MAX - 1, i128::MIN, i128::MIN + 1];
    for mantissa in around.flat_map(|number| [number, -number]).chain(ends) {
        for scale in 0..=DECIMAL_SCALE_MAX {
            let number = decimal(mantissa, scale);
            let key = key(number);
            assert!(key.len() <= 21, "{number:?}");
            assert_eq!(decoded(&key), Ok(number));
        }
    }
}

#[test]
fn a_decimal_has_the_smallest_scale() {
    let normal = |mantissa, scale| {
        let number = decimal(mantissa, scale);
        (number.mantissa(), number.scale())
    };
    assert_eq!(normal(1_500, 3), (15, 1));
    assert_eq!(normal(-1_500, 2), (-15, 0));
    assert_eq!(normal(100, 0), (100, 0));
    assert_eq!(normal(0, 38), (0, 0));
    assert_eq!(decimal(0, 7), Decimal::ZERO);
    assert_eq!(Decimal::from(-7), decimal(-70, 1));
    assert_eq!(Decimal::new(1, 39), Err(KeyError::DecimalScale { actual: 39 }));
}

#[test]
fn bytes_out_of_range_or_not_in_the_one_form_are_refused() {
    let damaged = Err(KeyError::Damaged {
        column: 0,
        damage: KeyDamage::Decimal,
    });
    let refused: [&[u8]; 10] = [
        // The exponent needs a scale over 38, or a mantissa over 128 bits.
        &[0x80 ^ 0xff, 0x14 ^ 0xff],
        &[0xce, 0x14],
        &[0xff, 0x14],
        &[0x00, 0x14 ^ 0xff],
        // 0.11 × 10^-37 has 39 digits after the point.
        &[0x81, 22],
        // 2 × 10^38 is over 2^127.
        &[0xcd, 40],
        // The first digit is 0; the last pair is 0; a pair is over 99.
        &[0xa7, 2],
        &[0xa7, 21, 0],
        &[0xa7, 200],
        // More digits than a mantissa holds.
        &[
            0xa7, 199, 199, 199, 199, 199, 199, 199, 199, 199, 199, 199, 199, 199, 199, 199, 199, 199, 199,
            199, 199, 198,
        ],
    ];
    for bytes in refused {
        assert_eq!(decoded(bytes), damaged, "{bytes:02x?}");
    }
}

#[test]
fn every_sequence_of_two_bytes_is_refused_or_canonical() {
    for bytes in (0..=u16::MAX).map(u16::to_be_bytes) {
        if let Ok(number) = decoded(&bytes) {
            assert_eq!(key(number), bytes, "{number:?}");
        }
    }
}

#[test]
fn a_decimal_as_text_has_no_superfluous_zeros() {
    let text = |mantissa, scale| {
        let number = decimal(mantissa, scale);
        let mut pushed = b"x".to_vec();
        number.push_text(&mut pushed);
        assert_eq!(pushed, format!("x{number}").into_bytes());
        number.to_string()
    };
    assert_eq!(text(0, 5), "0");
    assert_eq!(text(12_345, 3), "12.345");
    assert_eq!(text(-12_340, 3), "-12.34");
    assert_eq!(text(5, 2), "0.05");
    assert_eq!(text(-5, 38), "-0.00000000000000000000000000000000000005");
    assert_eq!(text(100, 0), "100");
    assert_eq!(
        text(u64::MAX.into(), 38),
        "0.00000000000000000018446744073709551615"
    );
    assert_eq!(text(-i128::from(u64::MAX), 1), "-1844674407370955161.5");
    assert_eq!(text(i128::from(u64::MAX) + 1, 20), "0.18446744073709551616");
    assert_eq!(text(i128::MIN, 0), i128::MIN.to_string());
}

#[test]
fn texts_are_parsed_exactly_or_not_at_all() {
    for (text, mantissa, scale) in [
        ("5.32", 532, 2),
        ("-0.050", -5, 2),
        ("+7", 7, 0),
        ("1e3", 1_000, 0),
        ("1.5E-3", 15, 4),
        ("120e-1", 12, 0),
        ("0e99", 0, 0),
        ("0.00000000000000000000000000000000000001", 1, 38),
        ("-170141183460469231731687303715884105728", i128::MIN, 0),
        ("170141183460469231731687303715884105727.000", i128::MAX, 0),
    ] {
        assert_eq!(Decimal::parse(text), Some(decimal(mantissa, scale)), "{text}");
        let shown = decimal(mantissa, scale).to_string();
        assert_eq!(Decimal::parse(&shown), Some(decimal(mantissa, scale)), "{shown}");
    }
    for text in [
        "",
        "-",
        ".5",
        "5.",
        "1e",
        "1e1.5",
        "0x1",
        " 1",
        "1 ",
        "NaN",
        "1e39",
        "1e-39",
        "1e99999999999",
        "170141183460469231731687303715884105728",
        "0.000000000000000000000000000000000000001",
    ] {
        assert_eq!(Decimal::parse(text), None, "{text}");
    }
}
