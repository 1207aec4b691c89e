//! Entropy coding: a symbol of probability p costs −log₂ p bits, whole or not.
//!
//! The code is tANS (Duda, "Asymmetric numeral systems", 2013) as FSE arranges it (Collet, 2013). A table of
//! `2^log` slots gives every symbol as many slots as its count says. A decoder stands in a slot, which names the
//! symbol, how many bits to read, and the slot from which these bits count to the next; an encoder walks the
//! same way backwards, so that the bits of a sequence are found from its last symbol to its first.

/// Slots of the largest table, as a power of two. With more, sequences of ten thousand symbols shrink by a
/// thousandth, and a table takes longer to build than it saves.
pub(crate) const LOG_MAX: usize = 10;

/// Slots of the largest table.
pub(crate) const SLOTS_MAX: usize = 1 << LOG_MAX;

/// The slots of all symbols: those of the first symbol, those of the second, and so on, dealt out so that the
/// slots of each are spread evenly.
fn deal(counts: impl Iterator<Item = usize>, log: usize, mut take: impl FnMut(usize, usize)) {
    let slots = 1usize << log;
    // Odd and close to 5/8 of the slots: it visits every slot once.
    let step = (slots >> 1) + (slots >> 3) + 3;
    let mut slot = 0;
    for (symbol, count) in counts.enumerate() {
        for _ in 0..count {
            take(slot, symbol);
            slot = (slot + step) & (slots - 1);
        }
    }
}

/// Scales frequencies to counts of at least one that together are `2^log`; there must be twice as many slots as
/// symbols, or one symbol and one slot.
pub(crate) fn scale(frequencies: &[u32], log: usize, counts: &mut Vec<u16>) {
    let slots = 1u64 << log;
    let total: u64 = frequencies.iter().map(|frequency| u64::from(*frequency)).sum();
    // One slot for each symbol; the others are shared by what a symbol should have beyond one.
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

/// How to walk backwards from symbol to symbol.
#[derive(Debug, Default)]
pub(crate) struct EncodeTable {
    log: usize,
    symbols: Vec<EncodeSymbol>,
    /// The slots of the first symbol, rising, those of the second, and so on.
    slots: Vec<u16>,
    dealt: Vec<u16>,
}

#[derive(Debug, Clone, Copy)]
struct EncodeSymbol {
    /// Added to a state, it has the number of bits to write above bit 16.
    bits: u32,
    /// Added to what these bits leave of the state, it is a place in `slots`.
    place: u32,
}

/// Bits that one step writes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Step(u16);

impl Step {
    /// How many bits, at most [`LOG_MAX`].
    pub(crate) fn width(self) -> usize {
        usize::from(self.0 >> 12)
    }

    /// The bits.
    pub(crate) fn bits(self) -> u64 {
        u64::from(self.0 & 0xfff)
    }
}

impl EncodeTable {
    /// Prepares for symbols with these counts, whose sum is `2^log`.
    pub(crate) fn build(&mut self, counts: &[u16], log: usize) {
        self.log = log;
        self.symbols.clear();
        let mut start = 0u32;
        for count in counts.iter().map(|count| u32::from(*count)) {
            // A state lies in slots..2·slots. Cut to count..2·count it loses so many bits, or one less.
            let most = log as u32 - (count - 1).checked_ilog2().unwrap_or(0);
            self.symbols.push(EncodeSymbol {
                bits: (most << 16).wrapping_sub(count << most),
                place: start.wrapping_sub(count),
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
            *next = symbol.place.wrapping_add(u32::from(*count));
        }
        for (slot, symbol) in self.dealt.iter().enumerate() {
            let next = &mut next[usize::from(*symbol)];
            self.slots[*next as usize] = slot as u16;
            *next += 1;
        }
    }

    /// Where a walk begins: in the slot in which the decoder ends.
    pub(crate) fn start(&self) -> u32 {
        1 << self.log
    }

    /// Moves `state` over `symbol`.
    pub(crate) fn step(&self, state: &mut u32, symbol: usize) -> Step {
        let symbol = self.symbols[symbol];
        let width = state.wrapping_add(symbol.bits) >> 16;
        let step = Step((*state & ((1 << width) - 1)) as u16 | (width << 12) as u16);
        let place = (*state >> width).wrapping_add(symbol.place);
        *state = u32::from(self.slots[place as usize]) + (1 << self.log);
        step
    }

    /// The slot of a state: what a decoder has to be told.
    pub(crate) fn slot(&self, state: u32) -> u64 {
        u64::from(state - (1 << self.log))
    }
}

/// What a decoder finds in a slot.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Slot {
    /// What the slot's symbol stands for.
    pub(crate) value: i32,
    /// The slot that bits of zero lead to.
    pub(crate) next: u16,
    /// How many bits to read.
    pub(crate) bits: u8,
    /// How many bits of the value's own follow.
    pub(crate) extra: u8,
}

/// The table of a decoder; as large as the largest, so that any slot of ten bits is inside.
pub(crate) type DecodeTable = [Slot; SLOTS_MAX];

/// Fills the first `2^log` slots for symbols with these counts, whose sum is `2^log`; `stands_for` gives value and
/// extra bits of a symbol.
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
            // A rare symbol has a slot of few at least.
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
