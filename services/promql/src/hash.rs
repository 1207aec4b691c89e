//! Hash of labels, by which `limit_ratio` selects series. The hash equals that of Prometheus, so `limit_ratio` selects
//! the same series as in Prometheus.
//!
//! The algorithm is XXH64 with seed 0 over Prometheus' in-memory representation of labels: each text after its length.
//! A length below 255 takes one byte. A longer one takes the byte 255 and three bytes, little-endian.

use xxhash_rust::xxh64::xxh64;

use crate::labels::Labels;

/// Prometheus' seed.
const SEED: u64 = 0;

/// Hashes all labels.
pub(crate) fn of_labels(labels: &Labels) -> u64 {
    let mut bytes = Vec::with_capacity(256);
    for (name, value) in labels.iter() {
        for text in [name, value] {
            match u8::try_from(text.len()) {
                Ok(length) if length < 255 => bytes.push(length),
                _ => {
                    bytes.push(255);
                    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes()[..3]);
                }
            }
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    xxh64(&bytes, SEED)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks hashes against another implementation of XXH64, whose results equal those of the specification.
    #[test]
    fn hashes_of_labels_stay_as_they_are() {
        let of = |length: usize| {
            let value = "x".repeat(length);
            of_labels(&Labels::from_sorted([
                ("__name__", "up"),
                ("job", value.as_str()),
            ]))
        };
        let expected = [
            0x886c_d16f_f985_9d82,
            0x9d1d_bd03_ae71_bc24,
            0x8639_e821_0b02_25a0,
            0x45fc_a7f2_8f6b_2457,
            0xefc5_cb6e_fef3_77c4,
        ];
        assert_eq!([1, 40, 254, 255, 1_000].map(of), expected);
    }
}
