//! Tests of logarithms and powers.
//!
//! The results must be close to the platform's functions, exact for powers of two, and identical on every platform.

use tideline_histogram::logarithm::{exp2, ln, log2};

/// Returns the distance of two doubles in units in the last place.
fn distance(left: f64, right: f64) -> u64 {
    left.to_bits().abs_diff(right.to_bits())
}

#[test]
fn powers_of_two_are_exact() {
    for exponent in -1074..=1023 {
        let power = f64::from(exponent);
        let number = match exponent {
            ..-1022 => f64::from_bits(1 << (exponent + 1074)),
            _ => 2f64.powi(exponent),
        };
        assert_eq!((log2(number), exp2(power)), (power, number));
    }
}

#[test]
fn they_are_near_the_platforms() {
    let mut bits = tideline_testkit::seed("logarithms").max(1);
    for _ in 0..100_000 {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        let number = f64::from_bits(bits >> 1);
        if !number.is_finite() {
            continue;
        }
        assert!(distance(ln(number), number.ln()) <= 2, "{number:e}");
        let power = (bits >> 11) as f64 / 2f64.powi(53) * 2000.0 - 1000.0;
        assert!(distance(exp2(power), power.exp2()) <= 2, "{power}");
    }
}

#[test]
fn what_has_no_logarithm() {
    assert_eq!((ln(0.0), log2(0.0)), (f64::NEG_INFINITY, f64::NEG_INFINITY));
    assert_eq!(
        (log2(f64::INFINITY), exp2(f64::INFINITY)),
        (f64::INFINITY, f64::INFINITY)
    );
    assert_eq!((exp2(f64::NEG_INFINITY), exp2(-1075.0)), (0.0, 0.0));
    assert!(ln(-1.0).is_nan() && log2(f64::NAN).is_nan() && exp2(f64::NAN).is_nan());
}

/// Compares the results with those of `math.Log`, `math.Log2` and `math.Exp2` of Go 1.26 on x86-64.
#[test]
fn they_are_gos() {
    for (number, natural, binary) in [
        (3.0, 0x3ff1_93ea_7aad_030a, 0x3ff9_5c01_a39f_bd69),
        (0.1, 0xc002_6bb1_bbb5_5515, 0xc00a_934f_0979_a371),
        (1.7, 0x3fe0_fae8_1914_a991, 0x3fe8_7f42_b972_949d),
        (1e300, 0x4085_9634_47f8_7fb5, 0x408f_24a0_9f1a_8b89),
        (123456.789, 0x4027_7281_cad8_a844, 0x4030_e9e4_bf2a_1cb2),
        (0.9999999, 0xbe7a_d7f2_b104_9b9f, 0xbe83_5d10_0a80_09b2),
    ] {
        let found: (f64, f64) = (ln(number), log2(number));
        assert_eq!(
            (found.0.to_bits(), found.1.to_bits()),
            (natural, binary),
            "{number}"
        );
    }
    for (power, expected) in [
        (0.5, 0x3ff6_a09e_667f_3bcc),
        (0.1, 0x3ff1_25fb_ee25_0664),
        (-0.3, 0x3fe9_fdf8_bcce_533e),
        (10.7, 0x4099_fdf8_bcce_533a),
        (-1073.5, 0x1),
        (1023.9, 0x7fed_db68_0117_aa8e),
        (3.3333, 0x4024_2884_7364_069f_u64),
    ] {
        assert_eq!(exp2(power).to_bits(), expected, "{power}");
    }
}

/// Compares hashes of the results: `ln` and `log2` for almost 200,000 arguments, half of any magnitude and half below
/// 8, and `exp2` for 100,000 arguments between -1,000 and 1,000. The test detects changed results after an update of
/// `libm`.
#[test]
fn they_stay_as_they_are() {
    let mix =
        |hash: u64, value: f64| (hash.rotate_left(5) ^ value.to_bits()).wrapping_mul(0x517c_c1b7_2722_0a95);
    let (mut bits, mut hashes) = (0x2545_f491_4f6c_dd1d_u64, [0; 3]);
    for _ in 0..100_000 {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        let (any, near) = (f64::from_bits(bits >> 1), (bits >> 11) as f64 / 2f64.powi(50));
        for number in [any, near] {
            if number.is_finite() {
                hashes[0] = mix(hashes[0], ln(number));
                hashes[1] = mix(hashes[1], log2(number));
            }
        }
        hashes[2] = mix(hashes[2], exp2(near * 250.0 - 1000.0));
    }
    let first = [
        0x18d0_d6b5_ff81_00f8,
        0x432c_548a_356b_775e,
        0x4953_d1c0_9e37_4b76,
    ];
    assert_eq!(hashes, first);
}
