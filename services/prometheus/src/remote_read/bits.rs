//! Bit writer with the integer and XOR encodings of Prometheus' chunks.
//!
//! Bits are appended from the highest bit of a byte to the lowest.

use tideline_wire::varint;

/// Payload sizes in bits of an integer of variable size. The prefix of each size has one more set bit than the prefix
/// of the previous size.
const SIZES: [u32; 7] = [3, 6, 9, 12, 18, 25, 56];

/// Writer of bits, from the highest bit of the first byte on.
#[derive(Debug, Default)]
pub(crate) struct Bits {
    bytes: Vec<u8>,
    /// Unused bits of the last byte.
    free: u32,
}

impl Bits {
    /// Creates a writer that appends to these bytes.
    pub(crate) fn after(bytes: Vec<u8>) -> Self {
        Self { bytes, free: 0 }
    }

    /// Returns the bytes; the last one is padded with zeros.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Appends the lowest `count` bits of a value, at most 64.
    pub(crate) fn put(&mut self, value: u64, count: u32) {
        let mut left = count;
        while left > 0 {
            if self.free == 0 {
                self.bytes.push(0);
                self.free = 8;
            }
            let taken = left.min(self.free);
            let part = (value >> (left - taken)) & (u64::MAX >> (64 - taken));
            let last = self.bytes.last_mut().expect("a byte has free bits");
            *last |= (part << (self.free - taken)) as u8;
            self.free -= taken;
            left -= taken;
        }
    }

    /// Appends a bit.
    pub(crate) fn put_bit(&mut self, is_set: bool) {
        self.put(u64::from(is_set), 1);
    }

    /// Appends a signed integer: one bit for zero, few bits for small values.
    pub(crate) fn put_signed(&mut self, value: i64) {
        match value {
            0 => self.put_bit(false),
            _ => self.put_sized(value as u64, |size| is_within(value, size)),
        }
    }

    /// Appends an unsigned integer: one bit for zero, few bits for small values.
    pub(crate) fn put_unsigned(&mut self, value: u64) {
        match value {
            0 => self.put_bit(false),
            _ => self.put_sized(value, |size| value >> size == 0),
        }
    }

    fn put_sized(&mut self, value: u64, fits: impl Fn(u32) -> bool) {
        let slot = SIZES.iter().position(|size| fits(*size));
        match slot {
            Some(slot) => {
                let ones = slot as u32 + 1;
                // The set bits and the terminating zero.
                self.put(((1 << ones) - 1) << 1, ones + 1);
                self.put(value, SIZES[slot]);
            }
            None => {
                self.put(0xff, 8);
                self.put(value, 64);
            }
        }
    }

    /// Appends a varint of Protocol Buffers.
    pub(crate) fn put_varint(&mut self, value: u64) {
        varint::write(value, |byte| self.put(u64::from(byte), 8));
    }
}

/// Returns true if a number fits into `bits` in Prometheus' encoding, which has one more value above zero than
/// below.
pub(crate) fn is_within(value: i64, bits: u32) -> bool {
    let most = 1_i64 << (bits - 1);
    (-(most - 1)..=most).contains(&value)
}

/// XOR encoder: writes the bits that differ from the previous number.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Xor {
    before: u64,
    /// Leading and trailing zeros of the differing bits that were last written with an explicit window.
    window: Option<(u32, u32)>,
}

impl Xor {
    /// Maximum number of leading zeros that five bits can hold.
    const LEADING_MAX: u32 = 31;

    /// Creates an encoder for the numbers after `value`, which was written in full.
    pub(crate) fn after(value: f64) -> Self {
        Self {
            before: value.to_bits(),
            window: None,
        }
    }

    /// Appends the next number.
    pub(crate) fn put(&mut self, value: f64, bits: &mut Bits) {
        let difference = value.to_bits() ^ self.before;
        self.before = value.to_bits();
        if difference == 0 {
            return bits.put_bit(false);
        }
        bits.put_bit(true);
        let leading = difference.leading_zeros().min(Self::LEADING_MAX);
        let trailing = difference.trailing_zeros();
        if let Some((first, last)) = self.window
            && leading >= first
            && trailing >= last
        {
            bits.put_bit(false);
            return bits.put(difference >> last, 64 - first - last);
        }
        self.window = Some((leading, trailing));
        let count = 64 - leading - trailing;
        bits.put_bit(true);
        bits.put(u64::from(leading), 5);
        // 64 is written as 0.
        bits.put(u64::from(count), 6);
        bits.put(difference >> trailing, count);
    }
}
