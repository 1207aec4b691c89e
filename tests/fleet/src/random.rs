//! Seeded random number generator, implemented here so that no upgrade of a dependency changes a fleet.

/// SplitMix64 generator: a counter whose values are mixed.
///
/// The generator is fast and has 8 bytes of state. Its quality is sufficient for simulated load. Never use it
/// where predictable numbers are a security risk.
///
/// The mixing constants are those of Steele, Lea and Flood, "Fast splittable pseudorandom number generators"
/// (OOPSLA 2014), in Vigna's variant.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates the generator of `seed`. Every seed is equally good.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns an index below `len`, or 0 if `len` is 0. The bias is below `len` / 2⁶⁴.
    pub const fn index(&mut self, len: usize) -> usize {
        ((self.bits() as u128 * len as u128) >> 64) as usize
    }

    /// Returns a uniform value in `[0, 1)`, in steps of 2⁻⁵³.
    pub const fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns an approximately normal value with mean 0 and deviation 1, within ±6.
    ///
    /// The value is the sum of twelve uniform values of 16 bits, scaled to `[0, 1)`, minus six. Without a logarithm
    /// the function is fast and identical on every machine.
    pub const fn normal(&mut self) -> f64 {
        const LOW_HALVES: u64 = 0x0000_ffff_0000_ffff;
        let mut halves = 0;
        let mut draw = 0;
        while draw < 3 {
            let bits = self.bits();
            halves += (bits & LOW_HALVES) + ((bits >> 16) & LOW_HALVES);
            draw += 1;
        }
        let sum = (halves & 0xffff_ffff) + (halves >> 32);
        // Half a step for each of the twelve values makes the mean exactly zero.
        (sum as f64 + 6.0) / 65_536.0 - 6.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_yields_its_sequence() {
        // Published first outputs of SplitMix64 for this seed.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn normal_has_mean_zero_and_deviation_one() {
        let mut random = Random::new(7);
        let draws: Vec<f64> = (0..100_000).map(|_| random.normal()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!(mean.abs() < 0.02, "mean is {mean}");
        assert!((variance - 1.0).abs() < 0.02, "variance is {variance}");
        assert!(draws.iter().all(|draw| draw.abs() <= 6.0));
    }

    #[test]
    fn index_reaches_every_entry_and_no_other() {
        let mut random = Random::new(11);
        let mut hits = [0; 5];
        for _ in 0..1_000 {
            hits[random.index(5)] += 1;
        }
        assert!(hits.iter().all(|count| *count > 100), "{hits:?}");
        assert_eq!(random.index(0), 0);
    }
}
