//! Bloom filter of the keys of a block. Reads of most keys without a row need not decompress the block.
//!
//! With 10 bits per key, about 1 % of the absent keys are not recognized as absent.

use xxhash_rust::xxh3::xxh3_64;

/// Number of bits per key.
const KEY_BITS: usize = 10;
/// Number of bits that a key sets.
const PROBES: u32 = 6;

/// Returns the hash of a key.
pub(super) fn hash_of(key: &[u8]) -> u64 {
    xxh3_64(key)
}

/// Returns the filter of the keys with these hashes.
pub(super) fn build(hashes: &[u64]) -> Vec<u8> {
    let mut filter = vec![0; (hashes.len() * KEY_BITS).div_ceil(8)];
    for hash in hashes {
        for bit in bits_of(*hash, filter.len()) {
            filter[bit / 8] |= 1 << (bit % 8);
        }
    }
    filter
}

/// Returns false if the filter certainly does not contain the key.
pub(super) fn may_contain(filter: &[u8], key: &[u8]) -> bool {
    filter.is_empty() || bits_of(hash_of(key), filter.len()).all(|bit| filter[bit / 8] >> (bit % 8) & 1 == 1)
}

/// Returns the bits that a hash sets in a filter of this number of bytes.
fn bits_of(hash: u64, bytes: usize) -> impl Iterator<Item = usize> {
    let (start, step) = (hash as u32, (hash >> 32) as u32 | 1);
    // A division of numbers of 64 bits takes several times as long. No block has a filter of 512 MiB.
    let bits = u32::try_from(bytes * 8).unwrap_or(u32::MAX);
    (0..PROBES).map(move |probe| (start.wrapping_add(probe.wrapping_mul(step)) % bits) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_contains_its_keys_and_few_others() {
        let key = |number: u32| number.to_string().into_bytes();
        let hashes: Vec<u64> = (0..1_000).map(|number| hash_of(&key(number))).collect();
        let filter = build(&hashes);
        assert_eq!(filter.len(), 1_250);
        assert!((0..1_000).all(|number| may_contain(&filter, &key(number))));
        let others = (1_000..11_000).filter(|number| may_contain(&filter, &key(*number)));
        let others = others.count();
        assert!((1..300).contains(&others), "{others} of 10,000");
    }
}
