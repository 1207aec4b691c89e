//! Entropy coding with tANS: a symbol of probability p costs −log₂ p bits, which may be a fraction.
//!
//! The code is tANS (Duda, "Asymmetric numeral systems", 2013) in the arrangement of FSE (Collet, 2013). A table of
//! `2^log` slots assigns each symbol as many slots as its count. The state of a decoder is a slot. The slot
//! determines the symbol, the number of bits to read, and a base slot. The next state is the base slot plus the value
//! of these bits. An encoder computes the same transitions backwards, from the last symbol of a sequence to the first.

/// Binary logarithm of the maximum table size. With larger tables, sequences of ten thousand symbols shrink by only
/// another 0.1 %, which does not justify the cost of building the table.
pub(crate) const LOG_MAX: usize = 10;

/// Number of slots of the largest table.
pub(crate) const SLOTS_MAX: usize = 1 << LOG_MAX;

/// Assigns the slots of the table to the symbols in order, so that the slots of each symbol are spread evenly. Calls
/// `take` with each slot and its symbol.
fn deal(counts: impl Iterator<Item = usize>, log: usize, mut take: impl FnMut(usize, usize)) {
    let slots = 1usize << log;
    // The step is close to 5/8 of the slots. For a `log` of 0 or at least 4 it is odd, so every slot is visited once.
    let step = (slots >> 1) + (slots >> 3) + 3;
    let mut slot = 0;
    for (symbol, count) in counts.enumerate() {
        for _ in 0..count {
            take(slot, symbol);
            slot = (slot + step) & (slots - 1);
        }
    }
}

/// Scales frequencies to counts of at least one whose sum is `2^log`. Requires at least twice as many slots as
/// symbols, or one symbol and one slot.
pub(crate) fn scale(frequencies: &[u32], log: usize, counts: &mut Vec<u16>) {
    let slots = 1u64 << log;
    let total: u64 = frequencies.iter().map(|frequency| u64::from(*frequency)).sum();
    // Each symbol gets one slot. The spare slots are distributed in proportion to the part of each symbol's exact share
    // that exceeds one slot.
    let spare = slots - frequencies.len() as u64;
    let beyond = |frequency: u32| (u64::from(frequency) * slots).saturating_sub(total);
    let all: u64 = frequencies.iter().map(|frequency| beyond(*frequency)).sum();
    let (mut sum, mut given) = (0u128, 0);
    counts.clear();
    counts.extend(frequencies.iter().map(|frequency| {
        sum += u128::from(beyond(*frequency));
        let until = ((sum * u128::from(spare) + u128::from(all) / 2) / u128::from(all.max(1))) as u64;
        let count = 1 + until - given;
        given = until;
        count as u16
    }));
}

/// Transition table of the encoder.
#[derive(Debug, Default)]
pub(crate) struct EncodeTable {
    log: usize,
    symbols: Vec<EncodeSymbol>,
    /// Slots grouped by symbol; the slots of each symbol are increasing.
    slots: Vec<u16>,
    dealt: Vec<u16>,
}

#[derive(Debug, Clone, Copy)]
struct EncodeSymbol {
    /// `(state + bits) >> 16` is the number of bits to write.
    bits: u32,
    /// `(state >> width) + offset` is an index into `slots`, where `width` is the number of bits to write.
    offset: u32,
}

/// Bits written by one step.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Step(u16);

impl Step {
    /// Returns the number of bits, at most [`LOG_MAX`].
    pub(crate) fn width(self) -> usize {
        usize::from(self.0 >> 12)
    }

    /// Returns the bits.
    pub(crate) fn bits(self) -> u64 {
        u64::from(self.0 & 0xfff)
    }
}

impl EncodeTable {
    /// Builds the table for symbols with these counts, whose sum must be `2^log`.
    pub(crate) fn build(&mut self, counts: &[u16], log: usize) {
        self.log = log;
        self.symbols.clear();
        let mut start = 0u32;
        for count in counts.iter().map(|count| u32::from(*count)) {
            // A state is in the range slots..2·slots. Reducing it to the range count..2·count removes `most` or
            // `most - 1` bits.
            let most = log as u32 - (count - 1).checked_ilog2().unwrap_or(0);
            self.symbols.push(EncodeSymbol {
                bits: (most << 16).wrapping_sub(count << most),
                offset: start.wrapping_sub(count),
            });
            start += count;
        }
        self.dealt.clear();
        self.dealt.resize(1 << log, 0);
        let symbols = counts.iter().map(|count| usize::from(*count));
        deal(symbols, log, |slot, symbol| self.dealt[slot] = symbol as u16);
        self.slots.clear();
        self.slots.resize(1 << log, 0);
        let mut next: [u32; SLOTS_MAX] = [0; SLOTS_MAX];
        for (next, (symbol, count)) in next.iter_mut().zip(self.symbols.iter().zip(counts)) {
            *next = symbol.offset.wrapping_add(u32::from(*count));
        }
        for (slot, symbol) in self.dealt.iter().enumerate() {
            let next = &mut next[usize::from(*symbol)];
            self.slots[*next as usize] = slot as u16;
            *next += 1;
        }
    }

    /// Returns the initial state, which is slot 0. The decoder ends in this slot.
    pub(crate) fn start(&self) -> u32 {
        1 << self.log
    }

    /// Advances `state` by `symbol`, and returns the bits to write.
    pub(crate) fn step(&self, state: &mut u32, symbol: usize) -> Step {
        let symbol = self.symbols[symbol];
        let width = state.wrapping_add(symbol.bits) >> 16;
        let step = Step((*state & ((1 << width) - 1)) as u16 | (width << 12) as u16);
        let offset = (*state >> width).wrapping_add(symbol.offset);
        *state = u32::from(self.slots[offset as usize]) + (1 << self.log);
        step
    }

    /// Returns the slot of the final state, at which the decoder starts.
    pub(crate) fn slot(&self, state: u32) -> u64 {
        u64::from(state - (1 << self.log))
    }
}

/// Slot of a decode table.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Slot {
    /// Number that the symbol of the slot represents.
    pub(crate) value: i32,
    /// Next slot if the bits that are read are zero.
    pub(crate) next: u16,
    /// Number of bits to read.
    pub(crate) bits: u8,
    /// Number of extra bits of the value. They are stored after the first `bits` bits.
    pub(crate) extra: u8,
}

/// Decode table. It always has the maximum size, so any slot number of ten bits is in bounds.
pub(crate) type DecodeTable = [Slot; SLOTS_MAX];

/// Fills the first `2^log` slots for symbols with these counts, whose sum must be `2^log`. `stands_for` returns
/// value and extra bits of a symbol.
pub(crate) fn build_decode_table(
    counts: impl Iterator<Item = usize> + Clone,
    log: usize,
    stands_for: impl Fn(usize) -> (i32, u8),
    table: &mut DecodeTable,
) {
    let mut next = [0u16; SLOTS_MAX];
    for (next, count) in next.iter_mut().zip(counts.clone()) {
        *next = count as u16;
    }
    deal(counts, log, |slot, symbol| table[slot].next = symbol as u16);
    for slot in &mut table[..1 << log] {
        let symbol = usize::from(slot.next);
        let state = next[symbol];
        next[symbol] += 1;
        let bits = log as u32 - state.ilog2();
        let (value, extra) = stands_for(symbol);
        *slot = Slot {
            value,
            next: ((u32::from(state) << bits) - (1 << log)) as u16,
            bits: bits as u8,
            extra,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(symbols: &[usize], log: usize) -> usize {
        let mut frequencies = vec![0u32; symbols.iter().max().map_or(0, |most| most + 1)];
        symbols.iter().for_each(|symbol| frequencies[*symbol] += 1);
        assert!(frequencies.iter().all(|frequency| *frequency > 0));
        let mut counts = Vec::new();
        scale(&frequencies, log, &mut counts);
        assert_eq!(
            counts.iter().map(|count| usize::from(*count)).sum::<usize>(),
            1 << log
        );
        assert!(counts.iter().all(|count| *count > 0));

        let mut encoder = EncodeTable::default();
        encoder.build(&counts, log);
        let mut state = encoder.start();
        let mut steps: Vec<Step> = Vec::new();
        for symbol in symbols.iter().rev() {
            steps.push(encoder.step(&mut state, *symbol));
        }
        let mut table = [Slot::default(); SLOTS_MAX];
        let all = counts.iter().map(|count| usize::from(*count));
        build_decode_table(all, log, |symbol| (symbol as i32, 0), &mut table);
        let mut slot = encoder.slot(state) as usize;
        for (symbol, step) in symbols.iter().zip(steps.iter().rev()) {
            let entry = table[slot];
            assert_eq!(
                (entry.value as usize, usize::from(entry.bits)),
                (*symbol, step.width())
            );
            slot = usize::from(entry.next) + step.bits() as usize;
        }
        assert_eq!(slot, 0);
        steps.iter().map(|step| step.width()).sum()
    }

    #[test]
    fn a_walk_reads_back_and_costs_its_entropy() {
        let skewed: Vec<usize> = (0..4_096)
            .map(|n: usize| (n.wrapping_mul(0x9e37_79b9) >> 7 & 0xff).leading_zeros() as usize - 56)
            .collect();
        let mut frequencies = [0usize; 9];
        skewed.iter().for_each(|symbol| frequencies[*symbol] += 1);
        let entropy: f64 = frequencies
            .iter()
            .map(|frequency| *frequency as f64)
            .map(|frequency| frequency * (4_096.0 / frequency).log2())
            .sum();
        for log in 5..=LOG_MAX {
            let bits = round_trip(&skewed, log) as f64;
            // With few slots, rare symbols get more than their share.
            let most = entropy * if log < 7 { 1.06 } else { 1.01 };
            assert!(bits < most, "{bits} bits with {log}, entropy {entropy}");
        }
    }

    #[test]
    fn one_symbol_costs_nothing() {
        assert_eq!(round_trip(&[0; 100], 0), 0);
        assert_eq!(round_trip(&[0; 100], 5), 0);
    }

    #[test]
    fn rare_symbols_keep_a_slot() {
        let mut symbols = vec![0; 10_000];
        symbols.extend(1..=16);
        round_trip(&symbols, 5);
        round_trip(&(0..512).collect::<Vec<_>>(), LOG_MAX);
    }
}
