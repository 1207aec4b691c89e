//! Codec of columns of doubles. All values are restored bit for bit.
//!
//! Most measured values are short decimals. Such values are multiplied by a power of ten and stored as integers. If
//! division by the power does not restore a value exactly (NaN, infinities, −0.0, long fractions), the value is an
//! exception and is stored separately. The method is that of ALP (Afroozeh, Kuffo, Boncz, "ALP: Adaptive Lossless
//! floating-Point Compression", 2023), but divides instead of multiplying by the inverse, so that every decimal of up
//! to 15 digits is exact.
//!
//! The values of other columns are packed as 64-bit integers with the same bits, because neighboring values share
//! sign and exponent. Doubles converted from narrower floats also share trailing zeros, which are shifted out.

use std::ops::Range;

use crate::integers::{IntegerEncoder, Integers};
use crate::packed_array::PackedArray;
use crate::wire::{Damaged, Reader, put_varint};

/// Base of the form byte of scaled decimals. The exponent, 0 to [`EXPONENT_MAX`], is added.
const DECIMAL: u8 = 0;
/// Base of the form byte of shifted bits. The shift, 0 to 63, is added.
const BITS: u8 = 64;

/// Maximum exponent of the power of ten. Larger exponents restore no further values.
pub(crate) const EXPONENT_MAX: usize = 18;

const POWERS: [f64; EXPONENT_MAX + 1] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
];

/// Rounding constant (1.5·2⁵²). Adding it to a double below 2⁵¹ in magnitude rounds the double to an integer, which the
/// low mantissa bits then hold. This addition, and the subtraction of the bits of the constant, vectorize on every
/// architecture.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

/// Exclusive upper bound of the magnitudes that [`ROUNDER`] can round.
const SCALED_MAX: f64 = 2_251_799_813_685_248.0;

/// Maximum number of values that are sampled to choose the exponent.
const SAMPLE: usize = 32;

/// Encoded size of decimals, in bytes per value, above which shifted bits are also tried. For the entire column, the
/// threshold is this size times the number of values, plus 16 bytes.
pub(crate) const DECIMAL_WIDE_BYTES: usize = 5;

/// Encoder of float columns with reusable buffers.
#[derive(Debug, Default)]
pub(crate) struct FloatEncoder {
    integers: Vec<i64>,
    exceptions: Vec<u32>,
    trial: Vec<u8>,
}

impl FloatEncoder {
    /// Appends `values`.
    pub(crate) fn encode(&mut self, values: &[f64], integers: &mut IntegerEncoder, out: &mut Vec<u8>) {
        let start = out.len();
        let decimal = choose_exponent(values).is_some_and(|exponent| {
            self.scale(values, exponent);
            let worthwhile = self.exceptions.len() * 8 <= values.len();
            if worthwhile {
                self.encode_decimals(values, exponent, integers, out);
            }
            worthwhile
        });
        if !decimal {
            self.encode_bits(values, integers, out);
        } else if out.len() - start > values.len() * DECIMAL_WIDE_BYTES + 16 {
            let mut trial = std::mem::take(&mut self.trial);
            trial.clear();
            self.encode_bits(values, integers, &mut trial);
            if trial.len() < out.len() - start {
                out.truncate(start);
                out.extend_from_slice(&trial);
            }
            self.trial = trial;
        }
    }

    /// Fills `integers` with the scaled values, and `exceptions` with the rows that scaling does not restore.
    fn scale(&mut self, values: &[f64], exponent: usize) {
        let power = POWERS[exponent];
        self.integers.clear();
        self.exceptions.clear();
        self.integers
            .extend(values.iter().map(|value| scaled(*value, power)));
        let mut fill = 0;
        for (row, (value, integer)) in values.iter().zip(&mut self.integers).enumerate() {
            if restores(*value, *integer, power) {
                fill = *integer;
            } else {
                self.exceptions.push(row as u32);
                // An exception repeats the previous integer (initially 0), so that it does not increase the width.
                *integer = fill;
            }
        }
    }

    fn encode_decimals(
        &self,
        values: &[f64],
        exponent: usize,
        integers: &mut IntegerEncoder,
        out: &mut Vec<u8>,
    ) {
        out.push(DECIMAL + exponent as u8);
        put_varint(self.exceptions.len() as u64, out);
        if !self.exceptions.is_empty() {
            PackedArray::encode(self.exceptions.iter().map(|row| i64::from(*row)), out);
            for row in &self.exceptions {
                out.extend_from_slice(&values[*row as usize].to_bits().to_le_bytes());
            }
        }
        integers.encode(&self.integers, out);
    }

    fn encode_bits(&mut self, values: &[f64], integers: &mut IntegerEncoder, out: &mut Vec<u8>) {
        let all = values.iter().fold(0, |all, value| all | value.to_bits());
        let shift = all.trailing_zeros() % u64::BITS;
        out.push(BITS + shift as u8);
        self.integers.clear();
        self.integers
            .extend(values.iter().map(|value| (value.to_bits() >> shift) as i64));
        integers.encode(&self.integers, out);
    }
}

/// Returns the integer nearest to `value · power`. The result is arbitrary if the product is 2⁵¹ or more in magnitude.
fn scaled(value: f64, power: f64) -> i64 {
    let rounded = value * power + ROUNDER;
    (rounded.to_bits() as i64).wrapping_sub(ROUNDER.to_bits() as i64)
}

/// Inverts [`scaled`]. Exact below 2⁵¹; larger integers are never stored.
pub(crate) fn unscaled(integer: i64, power: f64) -> f64 {
    (f64::from_bits((ROUNDER.to_bits() as i64).wrapping_add(integer) as u64) - ROUNDER) / power
}

fn restores(value: f64, integer: i64, power: f64) -> bool {
    (value * power).abs() < SCALED_MAX && unscaled(integer, power).to_bits() == value.to_bits()
}

/// Returns ten to the power of `exponent`, which must be at most [`EXPONENT_MAX`].
pub(crate) fn power_of(exponent: usize) -> f64 {
    POWERS[exponent]
}

/// Returns the integer below 2⁵¹ in magnitude that [`unscaled`] converts to exactly `value`; `None` if there is no
/// such integer.
pub(crate) fn restored(value: f64, power: f64) -> Option<i64> {
    let integer = scaled(value, power);
    restores(value, integer, power).then_some(integer)
}

/// Returns the integer whose [`unscaled`] double is close to `value`, and the difference of `value` from that
/// double. Returns `None` if `value · power` is 2⁵¹ or more in magnitude, or NaN.
pub(crate) fn near(value: f64, power: f64) -> Option<(i64, f64)> {
    let integer = scaled(value, power);
    ((value * power).abs() < SCALED_MAX).then(|| (integer, value - unscaled(integer, power)))
}

/// Returns the exponent with the lowest cost in a sample; `None` if fewer than 7/8 of the sampled values are decimals.
pub(crate) fn choose_exponent(values: &[f64]) -> Option<usize> {
    let mut needing = [0usize; EXPONENT_MAX + 1];
    let stride = values.len().div_ceil(SAMPLE).max(1);
    let (mut seen, mut decimals) = (0, 0);
    for value in values.iter().step_by(stride) {
        seen += 1;
        let exponent = POWERS
            .iter()
            .position(|power| restores(*value, scaled(*value, *power), *power));
        if let Some(exponent) = exponent {
            needing[exponent] += 1;
            decimals += 1;
        } else if seen == 8 && decimals == 0 {
            return None;
        }
    }
    if decimals * 8 < seen * 7 {
        return None;
    }
    // One more digit costs 10/3 bits per value. An exception costs about 80 bits.
    let mut exceptions = seen;
    let costs = needing.iter().enumerate().map(|(exponent, count)| {
        exceptions -= count;
        (exceptions * 80 + exponent * seen * 10 / 3, exponent)
    });
    costs.min().map(|(_, exponent)| exponent)
}

/// View of a stored column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Floats<'a> {
    integers: Integers<'a>,
    form: Form<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Form<'a> {
    Decimal {
        power: f64,
        exceptions: Option<Exceptions<'a>>,
    },
    Bits {
        shift: u32,
    },
}

#[derive(Debug, Clone, Copy)]
struct Exceptions<'a> {
    /// Rows of the exceptions, strictly increasing.
    rows: PackedArray<'a>,
    /// Values of the exceptions, eight bytes each.
    values: &'a [u8],
}

impl<'a> Exceptions<'a> {
    fn open(reader: &mut Reader<'a>, count: usize, column: usize) -> Result<Self, Damaged> {
        let rows = PackedArray::open(reader, count)?;
        let mut last = -1;
        for index in 0..count {
            let row = rows.get(index);
            if row <= last || row >= column as i64 {
                return Err(Damaged("exceptions out of order"));
            }
            last = row;
        }
        let values = reader.take(count * 8)?;
        Ok(Self { rows, values })
    }

    /// Overwrites the exceptions among `rows` in `out`, which holds the values of `rows`.
    fn apply(&self, rows: &Range<usize>, out: &mut [f64]) {
        let (values, _) = self.values.as_chunks::<8>();
        let first = self.rows.partition_point(|row| (row as usize) < rows.start);
        for (index, value) in values.iter().enumerate().skip(first) {
            let row = self.rows.get(index) as usize;
            if row >= rows.end {
                break;
            }
            out[row - rows.start] = f64::from_bits(u64::from_le_bytes(*value));
        }
    }
}

impl<'a> Floats<'a> {
    /// Opens the next column, which has `count` values.
    pub(crate) fn open(reader: &mut Reader<'a>, count: usize) -> Result<Self, Damaged> {
        let code = reader.byte()?;
        let form = match code {
            BITS..=127 => Form::Bits {
                shift: u32::from(code - BITS),
            },
            _ => {
                let power = *POWERS
                    .get(usize::from(code - DECIMAL))
                    .ok_or(Damaged("unknown form of floats"))?;
                let exceptions = match reader.count(count)? {
                    0 => None,
                    exceptions => Some(Exceptions::open(reader, exceptions, count)?),
                };
                Form::Decimal { power, exceptions }
            }
        };
        let integers = Integers::open(reader, count)?;
        Ok(Self { integers, form })
    }

    /// Appends the values of `rows`, which must be within the column.
    pub(crate) fn decode(&self, rows: Range<usize>, out: &mut Vec<f64>) {
        out.reserve(rows.len());
        match self.form {
            Form::Bits { shift } => self.integers.for_each_block(rows, |integers| {
                out.extend(
                    integers
                        .iter()
                        .map(|integer| f64::from_bits((*integer as u64) << shift)),
                );
            }),
            Form::Decimal { power, exceptions } => {
                let start = out.len();
                self.integers.for_each_block(rows.clone(), |integers| {
                    out.extend(integers.iter().map(|integer| unscaled(*integer, power)));
                });
                if let Some(exceptions) = exceptions {
                    exceptions.apply(&rows, &mut out[start..]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(values: &[f64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        FloatEncoder::default().encode(values, &mut IntegerEncoder::default(), &mut bytes);
        let mut reader = Reader::new(&bytes);
        let column = Floats::open(&mut reader, values.len()).expect("it was just written");
        assert_eq!(reader.finish(), Ok(()));
        let middle = values.len() / 2;
        for rows in [0..values.len(), 0..middle, middle..values.len()] {
            let mut read = Vec::new();
            column.decode(rows.clone(), &mut read);
            let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&read), bits(&values[rows]));
        }
        bytes
    }

    #[test]
    fn decimals_become_small_integers() {
        let values: Vec<f64> = (0..512)
            .map(|n| f64::from(2_000 + (n * 37) % 100) / 100.0)
            .collect();
        assert!(round_trip(&values).len() < 512);
        let whole: Vec<f64> = (0..512).map(f64::from).collect();
        assert!(round_trip(&whole).len() < 40);
    }

    #[test]
    fn a_few_odd_values_are_exceptions() {
        let mut values: Vec<f64> = (0..512).map(|n| f64::from(n % 50) / 10.0).collect();
        values[3] = f64::from_bits(0x7ff8_dead_beef_0001);
        values[200] = -0.0;
        values[201] = f64::NEG_INFINITY;
        values[511] = 1.0 / 3.0;
        let bytes = round_trip(&values);
        assert!(bytes.len() < 512, "{}", bytes.len());
    }

    #[test]
    fn every_other_double_keeps_its_bits() {
        round_trip(&[]);
        round_trip(&[f64::NAN]);
        round_trip(&[-0.0, 0.0, f64::MAX, f64::MIN_POSITIVE, 5e-324, f64::INFINITY]);
        round_trip(&[-0.0; 10]);
        round_trip(&[0.0; 10]);
        round_trip(&[
            9_007_199_254_740_993.0,
            2_251_799_813_685_248.0,
            -2_251_799_813_685_247.0,
        ]);
        let sines: Vec<f64> = (0..300).map(|n| f64::from(n).sin()).collect();
        round_trip(&sines);
        let narrow: Vec<f64> = sines.iter().map(|value| f64::from(*value as f32)).collect();
        assert!(round_trip(&narrow).len() < 300 * 5);
    }
}
