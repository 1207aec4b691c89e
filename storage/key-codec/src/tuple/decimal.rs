//! Exact decimal numbers with a mantissa of 128 bits.
//!
//! A value is always normalised, so that equal numbers are equal values and have one key.

use std::cmp::Ordering;
use std::fmt;

use super::KeyError;

/// Maximum scale of a decimal, which is its number of decimal places.
pub const DECIMAL_SCALE_MAX: u8 = 38;

/// Exact number `mantissa × 10^-scale`, with a scale of 0 to [`DECIMAL_SCALE_MAX`].
///
/// It is always normalised to the smallest scale, so that equal numbers are equal values: 1.50 has mantissa 15 and
/// scale 1, 0.00 has scale 0, 100 has mantissa 100 and scale 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Decimal {
    mantissa: i128,
    scale: u8,
}

impl Decimal {
    /// The number 0.
    pub const ZERO: Self = Self {
        mantissa: 0,
        scale: 0,
    };

    /// Normalises `mantissa × 10^-scale`.
    ///
    /// # Errors
    ///
    /// [`KeyError::DecimalScale`] if `scale` exceeds [`DECIMAL_SCALE_MAX`].
    pub fn new(mut mantissa: i128, mut scale: u8) -> Result<Self, KeyError> {
        if scale > DECIMAL_SCALE_MAX {
            return Err(KeyError::DecimalScale { actual: scale });
        }
        while scale > 0 && mantissa % 10 == 0 {
            mantissa /= 10;
            scale -= 1;
        }
        Ok(Self { mantissa, scale })
    }

    /// Returns the signed digits of the number, without the decimal point.
    pub const fn mantissa(self) -> i128 {
        self.mantissa
    }

    /// Returns the number of digits after the decimal point.
    pub const fn scale(self) -> u8 {
        self.scale
    }

    /// Returns the exponent of the form `±0.d₁d₂… × 10^exponent`, where d₁ is not 0: −37 to 39. `None` for 0.
    pub(super) fn exponent(self) -> Option<i32> {
        let digits = self.mantissa.unsigned_abs().checked_ilog10()? + 1;
        Some(digits as i32 - i32::from(self.scale))
    }

    /// Compares the absolute values.
    fn cmp_magnitude(self, other: Self) -> Ordering {
        // 0 has no exponent, and `None` sorts before every exponent.
        self.exponent().cmp(&other.exponent()).then_with(|| {
            let (left, right) = (self.mantissa.unsigned_abs(), other.mantissa.unsigned_abs());
            if self.scale < other.scale {
                cmp_shifted(left, other.scale - self.scale, right)
            } else {
                cmp_shifted(right, self.scale - other.scale, left).reverse()
            }
        })
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let signs = self.mantissa.signum().cmp(&other.mantissa.signum());
        signs.then_with(|| match self.mantissa < 0 {
            true => other.cmp_magnitude(*self),
            false => self.cmp_magnitude(*other),
        })
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Formats the digits with a decimal point and without superfluous zeros: `-12.345`, `0.05`, `100`, `0`.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.mantissa < 0 {
            f.write_str("-")?;
        }
        // The scale of a decimal is at most 38, so the power fits.
        let unit = 10_u128.pow(self.scale.into());
        let magnitude = self.mantissa.unsigned_abs();
        let (whole, fraction) = (magnitude / unit, magnitude % unit);
        match usize::from(self.scale) {
            0 => write!(f, "{whole}"),
            digits => write!(f, "{whole}.{fraction:0digits$}"),
        }
    }
}

impl From<i64> for Decimal {
    fn from(number: i64) -> Self {
        Self {
            mantissa: number.into(),
            scale: 0,
        }
    }
}

/// Compares `left × 10^digits` with `right`.
fn cmp_shifted(left: u128, digits: u8, right: u128) -> Ordering {
    let shifted = 10_u128
        .checked_pow(digits.into())
        .and_then(|power| left.checked_mul(power));
    // A product that overflows is larger than every number of 128 bits.
    shifted.map_or(Ordering::Greater, |shifted| shifted.cmp(&right))
}
