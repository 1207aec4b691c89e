//! Selection of the content of a dictionary.
//!
//! The algorithm follows COVER: it chooses the pieces of the samples that contain the most frequent phrases.

use xxhash_rust::xxh3::xxh3_64;

/// Length of the phrases that are counted, in bytes.
const PHRASE_BYTES: usize = 8;
/// Length of a piece of the samples that is taken as a whole, in bytes.
pub(super) const PIECE_BYTES: usize = 256;
/// First bytes of a dictionary of zstd that has tables.
pub(super) const MAGIC: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];
/// Number of counters of phrases; a power of two.
const COUNTERS: usize = 1 << 19;
/// Memory of a selection besides the samples, in bytes.
pub(super) const SELECT_BYTES: usize = COUNTERS * size_of::<u16>();

/// Selects the pieces of `samples` whose phrases are most frequent, up to `bytes_max` bytes. The best pieces are at the
/// end, where zstd refers to them with small offsets.
///
/// 1. Each phrase of 8 bytes is counted.
/// 2. The samples are divided into as many epochs as the dictionary has pieces. From each epoch, the piece with the
///    highest score is taken. The score is the sum of the counts of its phrases, without the phrases of earlier pieces.
///
/// This is the idea of COVER (Liao, Petri, Moffat, Wirth: "Effective Construction of Relative Lempel-Ziv Dictionaries",
/// 2016), which zstd's own trainer also uses.
pub(super) fn select(samples: &[u8], bytes_max: usize) -> Vec<u8> {
    let phrase_of = |phrase: &[u8]| xxh3_64(phrase) as usize % COUNTERS;
    let mut counts = vec![0_u16; COUNTERS];
    for phrase in samples.windows(PHRASE_BYTES) {
        let count = &mut counts[phrase_of(phrase)];
        *count = count.saturating_add(1);
    }
    let pieces: Vec<&[u8]> = samples.chunks_exact(PIECE_BYTES).collect();
    let epochs = (bytes_max / PIECE_BYTES).clamp(1, pieces.len().max(1));
    let mut taken: Vec<(u64, &[u8])> = Vec::with_capacity(epochs);
    for epoch in pieces.chunks((pieces.len() / epochs).max(1)) {
        let scored = epoch.iter().map(|piece| {
            let phrases = piece.windows(PHRASE_BYTES);
            // A phrase that occurs once is of no use.
            let score: u64 = phrases
                .map(|phrase| u64::from(counts[phrase_of(phrase)].saturating_sub(1)))
                .sum();
            (score, *piece)
        });
        if let Some(best) = scored.max_by_key(|(score, _)| *score) {
            for phrase in best.1.windows(PHRASE_BYTES) {
                counts[phrase_of(phrase)] = 0;
            }
            taken.push(best);
        }
    }
    taken.sort_by_key(|(score, _)| *score);
    let surplus = taken.len().saturating_sub(bytes_max / PIECE_BYTES);
    taken.drain(..surplus);
    taken
        .iter()
        .flat_map(|(_, piece)| piece.iter().copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequent_phrases_are_selected() {
        // Each piece is either noise or the same sentence with a number.
        let mut state = 1_u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let mut samples = Vec::new();
        for number in 0..400 {
            let mut piece = match number % 4 {
                0 => format!("The quick brown fox number {number} jumps over the lazy dog. ")
                    .repeat(4)
                    .into_bytes(),
                _ => (0..PIECE_BYTES).map(|_| noise()).collect(),
            };
            piece.resize(PIECE_BYTES, b' ');
            samples.extend(piece);
        }
        let selected = select(&samples, 16 * PIECE_BYTES);
        assert_eq!(selected.len(), 16 * PIECE_BYTES);
        let last = &selected[15 * PIECE_BYTES..];
        assert!(last.starts_with(b"The quick brown fox number"));
        assert!(select(&samples[..100], 1_000).is_empty());
    }
}
