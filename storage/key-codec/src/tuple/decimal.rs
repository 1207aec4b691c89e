//! Exact decimal numbers with a mantissa of 128 bits.
//!
//! A value is always normalized, so that equal numbers are equal values and have one key.

use std::cmp::Ordering;
use std::fmt;

use super::KeyError;

/// Maximum scale of a decimal, which is its number of decimal places.
pub const DECIMAL_SCALE_MAX: u8 = 38;

/// Exact number `mantissa × 10^-scale`, with a scale of 0 to [`DECIMAL_SCALE_MAX`].
///
/// A decimal is always normalized to the smallest scale, so that equal numbers are equal values. For example, 1.50 has
/// mantissa 15 and scale 1, 0.00 has scale 0, and 100 has mantissa 100 and scale 0.
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

    /// Normalizes `mantissa × 10^-scale`.
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

    /// Returns the nearest double.
    pub fn to_f64(self) -> f64 {
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    /// Appends the text that [`Display`](fmt::Display) formats. For mantissas of up to 19 digits, takes a fraction of
    /// the time of `Display`.
    pub fn push_text(self, out: &mut Vec<u8>) {
        let Ok(mut rest) = u64::try_from(self.mantissa.unsigned_abs()) else {
            return out.extend_from_slice(self.to_string().as_bytes());
        };
        // At most 38 digits after the point and 20 before it.
        let mut text = [0; 64];
        let mut start = text.len();
        let mut put = |byte| {
            start -= 1;
            text[start] = byte;
        };
        let mut places = 0;
        loop {
            put(b'0' + (rest % 10) as u8);
            rest /= 10;
            places += 1;
            if rest == 0 && places > self.scale {
                break;
            }
            if places == self.scale {
                put(b'.');
            }
        }
        if self.mantissa < 0 {
            put(b'-');
        }
        out.extend_from_slice(&text[start..]);
    }

    /// Parses a number such as `-12.50` or `1.5e-3`: an optional sign, digits, an optional fraction, and an optional
    /// exponent. Returns `None` if the text has another form, or if the digits or the scale do not fit: numbers are
    /// never rounded.
    pub fn parse(text: &str) -> Option<Self> {
        let (digits, exponent) = match text.split_once(['e', 'E']) {
            Some((digits, exponent)) => (digits, exponent.parse::<i32>().ok()?),
            None => (text, 0),
        };
        let unsigned = digits.strip_prefix(['-', '+']).unwrap_or(digits);
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(fraction) {
            return None;
        }
        let fraction = fraction.trim_end_matches('0');
        // The digits are accumulated as a negative number, because the smallest mantissa has no positive counterpart.
        let mut mantissa = whole
            .bytes()
            .chain(fraction.bytes())
            .try_fold(0_i128, |sum, byte| {
                sum.checked_mul(10)?.checked_sub(i128::from(byte - b'0'))
            })?;
        if mantissa == 0 {
            return Some(Self::ZERO);
        }
        if !digits.starts_with('-') {
            mantissa = mantissa.checked_neg()?;
        }
        let mut scale = i32::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
        while scale > 0 && mantissa % 10 == 0 {
            mantissa /= 10;
            scale -= 1;
        }
        // Ends after at most 38 steps, because a larger product overflows `i128`.
        while scale < 0 {
            mantissa = mantissa.checked_mul(10)?;
            scale += 1;
        }
        Self::new(mantissa, u8::try_from(scale).ok()?).ok()
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
