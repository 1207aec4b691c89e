//! Alphabet of an entropy-coded column: each bin is a range of residuals that share a symbol.
//!
//! If the residuals vary little, each value near the median has a separate bin. Farther from the median, each power of
//! two is divided into four bins, and extra bits identify a residual within its bin. Series with small steps need no
//! extra bits. Wide and long-tailed distributions lose about a hundredth of a bit per value, because density varies
//! little within a bin.

use crate::bitpack::bits;

/// Maximum number of bins of a column.
pub(super) const BINS_MAX: usize = 256;

/// Number of classes on each side of the center: one for each shifted magnitude below 8, and four for each larger power
/// of two (exponents 3 to 62).
const SIDE: usize = 8 + 4 * 60;
/// Number of classes of residuals, ordered from the lowest to the highest.
const CLASSES: usize = 2 * SIDE;

/// Number of residuals that are sampled to estimate center and spread.
pub(super) const SAMPLE: usize = 64;

/// Bin of the residuals `lower..lower + 2^extra`, which share a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Bin {
    pub(super) lower: i64,
    pub(super) extra: u8,
}

/// Assignment of the residuals of a column to bins. Buffers are reused for the next column.
#[derive(Debug, Default)]
pub(super) struct Alphabet {
    /// Non-empty bins in increasing order of their residuals.
    pub(super) bins: Vec<Bin>,
    /// Number of residuals in each bin.
    pub(super) frequencies: Vec<u32>,
    /// Bin of each residual.
    pub(super) symbols: Vec<u16>,
}

impl Alphabet {
    /// Chooses bins for `residuals`. `sample` holds a sample of the residuals and is overwritten. Returns true if there
    /// are at most [`BINS_MAX`] bins.
    pub(super) fn choose(&mut self, residuals: &[i64], sample: &mut [i64]) -> bool {
        sample.sort_unstable();
        let center = sample.get(sample.len() / 2).copied().unwrap_or(0);
        for residual in &mut *sample {
            *residual = magnitude(residual.wrapping_sub(center)).1 as i64;
        }
        sample.sort_unstable();
        let usual = sample.get(sample.len() / 2).copied().unwrap_or(0);
        // After the shift, the median distance from the center takes at most four bits.
        let shift = bits(usual as u64).saturating_sub(4);
        self.classify(residuals, center, shift);
        self.bins.len() <= BINS_MAX
    }

    fn classify(&mut self, residuals: &[i64], center: i64, shift: usize) {
        let mut frequencies = [0u32; CLASSES];
        let (mut lows, mut highs) = ([i64::MAX; CLASSES], [i64::MIN; CLASSES]);
        // The bounds of classes with a single distance are set in advance.
        let single = if shift == 0 { SIDE - 8..SIDE + 8 } else { 0..0 };
        for class in single.clone() {
            let distance = class as i64 - SIDE as i64;
            (lows[class], highs[class]) = (distance, distance);
        }
        self.symbols.clear();
        self.symbols.extend(residuals.iter().map(|residual| {
            let distance = residual.wrapping_sub(center);
            let class = class_of(distance, shift);
            frequencies[class] += 1;
            if !single.contains(&class) {
                lows[class] = lows[class].min(distance);
                highs[class] = highs[class].max(distance);
            }
            class as u16
        }));
        self.bins.clear();
        self.frequencies.clear();
        let mut bin_of = [0; CLASSES];
        for (class, frequency) in frequencies.iter().enumerate() {
            if *frequency > 0 {
                bin_of[class] = self.bins.len() as u16;
                self.frequencies.push(*frequency);
                self.bins.push(Bin {
                    lower: center.wrapping_add(lows[class]),
                    extra: bits(highs[class].wrapping_sub(lows[class]) as u64) as u8,
                });
            }
        }
        for symbol in &mut self.symbols {
            *symbol = bin_of[usize::from(*symbol)];
        }
    }
}

/// Returns the sign of a distance (true if negative), and its magnitude, in one's complement if negative.
fn magnitude(distance: i64) -> (bool, u64) {
    let is_negative = distance < 0;
    (is_negative, (distance ^ (distance >> 63)) as u64)
}

fn class_of(distance: i64, shift: usize) -> usize {
    let (is_negative, magnitude) = magnitude(distance);
    let magnitude = magnitude >> shift;
    let side = if magnitude < 8 {
        magnitude as usize
    } else {
        let exponent = magnitude.ilog2() as usize;
        (exponent - 1) * 4 + (magnitude >> (exponent - 2)) as usize % 4
    };
    if is_negative { SIDE - 1 - side } else { SIDE + side }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alphabet(residuals: &[i64]) -> Alphabet {
        let mut alphabet = Alphabet::default();
        assert!(alphabet.choose(residuals, &mut residuals.to_vec()));
        for (residual, symbol) in residuals.iter().zip(&alphabet.symbols) {
            let bin = alphabet.bins[usize::from(*symbol)];
            let above = residual.wrapping_sub(bin.lower) as u64;
            assert!(bits(above) <= bin.extra.into(), "{residual} in {bin:?}");
        }
        let total: u32 = alphabet.frequencies.iter().sum();
        assert_eq!(total as usize, residuals.len());
        alphabet
    }

    #[test]
    fn small_residuals_have_bins_of_their_own() {
        let walk: Vec<i64> = (0..100).map(|n| n % 7 - 3).collect();
        let alphabet = alphabet(&walk);
        assert_eq!(alphabet.bins.len(), 7);
        assert!(alphabet.bins.iter().all(|bin| bin.extra == 0));
    }

    #[test]
    fn a_lone_value_far_out_needs_no_extra_bits() {
        let codes: Vec<i64> = (0..100).map(|n| if n % 9 == 0 { 404 } else { 200 }).collect();
        let alphabet = alphabet(&codes);
        let wanted = [200, 404].map(|lower| Bin { lower, extra: 0 });
        assert_eq!(alphabet.bins, wanted);
    }

    #[test]
    fn any_residuals_find_a_bin() {
        alphabet(&[]);
        alphabet(&[i64::MIN, i64::MAX, 0, -1, 1]);
        alphabet(&(0..64).map(|n| 1 << n).collect::<Vec<i64>>());
        let wide: Vec<i64> = (0..1_000i64)
            .map(|n| n.wrapping_mul(0x5851_f42d_4c95_7f2d) >> 30)
            .collect();
        assert!(alphabet(&wide).bins.len() < 80);
    }
}
