//! Logarithms and powers that come out the same on every machine, to the last bit.
//!
//! The standard library leaves them to the platform. Quantiles and fractions are made of them, and are
//! compared across machines and with what Prometheus answers; so these are the classic polynomials that
//! fdlibm has (Sun, 1993: `e_log.c`, `e_exp.c`) and that Go computes with, step by step.

#![expect(clippy::excessive_precision, reason = "as published")]

use std::f64::consts::{FRAC_1_SQRT_2, LN_2};

use crate::schema::scale;

/// ln 2 in two parts: the first has zeros at its end, so that its products with whole numbers are exact.
const LN2_HIGH: f64 = 6.93147180369123816490e-01;
const LN2_LOW: f64 = 1.90821492927058770002e-10;

/// The natural logarithm, less than one unit in the last place off.
///
/// 1. The number is 2^k · (1 + f), where 1 + f lies between the roots of 1/2 and 2.
/// 2. With s = f / (2 + f), ln (1 + f) = 2s + s·R, where R is a polynomial in s².
/// 3. k · ln 2 is added in two parts.
pub fn ln(number: f64) -> f64 {
    const L: [f64; 7] = [
        6.666666666666735130e-01,
        3.999999999940941908e-01,
        2.857142874366239149e-01,
        2.222219843214978396e-01,
        1.818357216161805012e-01,
        1.531383769920937332e-01,
        1.479819860511658591e-01,
    ];
    if number.is_nan() || number == f64::INFINITY {
        return number;
    }
    if number <= 0.0 {
        return if number < 0.0 { f64::NAN } else { f64::NEG_INFINITY };
    }
    let (mut fraction, mut exponent) = parts(number);
    if fraction < FRAC_1_SQRT_2 {
        fraction *= 2.0;
        exponent -= 1;
    }
    let (f, k) = (fraction - 1.0, f64::from(exponent));
    let s = f / (2.0 + f);
    let s2 = s * s;
    let s4 = s2 * s2;
    let odd = s2 * (L[0] + s4 * (L[2] + s4 * (L[4] + s4 * L[6])));
    let even = s4 * (L[1] + s4 * (L[3] + s4 * L[5]));
    let half_square = 0.5 * f * f;
    k * LN2_HIGH - ((half_square - (s * (half_square + (odd + even)) + k * LN2_LOW)) - f)
}

/// The logarithm to the base of 2; exact for powers of two.
pub fn log2(number: f64) -> f64 {
    if !number.is_finite() || number <= 0.0 {
        return ln(number);
    }
    let (fraction, exponent) = parts(number);
    match fraction == 0.5 {
        true => f64::from(exponent - 1),
        false => ln(fraction) * (1.0 / LN_2) + f64::from(exponent),
    }
}

/// Two to the power of a number, less than one unit in the last place off.
///
/// 1. The power is k + t, k whole and t at most one half; r = t · ln 2 in two parts.
/// 2. exp r = 1 + r + r·c / (2 − c), where c is r less a polynomial in r².
/// 3. That is scaled by 2^k.
pub fn exp2(power: f64) -> f64 {
    const P: [f64; 5] = [
        1.66666666666666657415e-01,
        -2.77777777770155933842e-03,
        6.61375632143793436117e-05,
        -1.65339022054652515390e-06,
        4.13813679705723846039e-08,
    ];
    /// From here on, results are infinite.
    const ABOVE_ALL: f64 = 1.0239999999999999e+03;
    /// Below, they are zero.
    const BELOW_ALL: f64 = -1.0740e+03;
    if power.is_nan() {
        return power;
    }
    if power > ABOVE_ALL {
        return f64::INFINITY;
    }
    if power < BELOW_ALL {
        return 0.0;
    }
    let whole = if power > 0.0 {
        (power + 0.5).trunc()
    } else {
        (power - 0.5).trunc()
    };
    let t = power - whole;
    let (high, low) = (t * LN2_HIGH, -t * LN2_LOW);
    let r = high - low;
    let square = r * r;
    let c = r - square * (P[0] + square * (P[1] + square * (P[2] + square * (P[3] + square * P[4]))));
    scale(1.0 - ((low - (r * c) / (2.0 - c)) - high), whole as i64)
}

/// A positive finite number as a fraction from 1/2 to below 1, and the power of two that it is multiplied
/// with.
fn parts(number: f64) -> (f64, i32) {
    /// Makes every number a normal one.
    const LIFT: i32 = 54;
    let (number, lifted) = match number < f64::MIN_POSITIVE {
        true => (scale(number, LIFT.into()), LIFT),
        false => (number, 0),
    };
    let bits = number.to_bits();
    let exponent = (bits >> 52) as i32 - 1022;
    let fraction = f64::from_bits(bits & !(0x7ff << 52) | 1022 << 52);
    (fraction, exponent - lifted)
}
