//! Bits, one after another, and the numbers that Prometheus' chunks make of them.

use tideline_wire::varint;

/// Sizes of the payloads that a number of variable size may have, each behind one more bit that is set.
const SIZES: [u32; 7] = [3, 6, 9, 12, 18, 25, 56];

/// Bits from the highest of the first byte on.
#[derive(Debug, Default)]
pub(super) struct Bits {
    bytes: Vec<u8>,
    /// Bits of the last byte that are free.
    free: u32,
}

impl Bits {
    /// Behind whole bytes.
    pub(super) fn after(bytes: Vec<u8>) -> Self {
        Self { bytes, free: 0 }
    }

    /// The bytes, the last one filled up with zeros.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// The lowest `count` bits of a value, at most 64.
    pub(super) fn put(&mut self, value: u64, count: u32) {
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

    /// A bit.
    pub(super) fn put_bit(&mut self, is_set: bool) {
        self.put(u64::from(is_set), 1);
    }

    /// A signed number: zero in one bit, small ones in few.
    pub(super) fn put_signed(&mut self, value: i64) {
        match value {
            0 => self.put_bit(false),
            _ => self.put_sized(value as u64, |size| is_within(value, size)),
        }
    }

    /// A number without sign: zero in one bit, small ones in few.
    pub(super) fn put_unsigned(&mut self, value: u64) {
        match value {
            0 => self.put_bit(false),
            _ => self.put_sized(value, |size| value >> size == 0),
        }
    }

    fn put_sized(&mut self, value: u64, fits: impl Fn(u32) -> bool) {
        let place = SIZES.iter().position(|size| fits(*size));
        match place {
            Some(place) => {
                let ones = place as u32 + 1;
                // The bits that are set, and the one that ends them.
                self.put(((1 << ones) - 1) << 1, ones + 1);
                self.put(value, SIZES[place]);
            }
            None => {
                self.put(0xff, 8);
                self.put(value, 64);
            }
        }
    }

    /// A varint of Protocol Buffers.
    pub(super) fn put_varint(&mut self, value: u64) {
        varint::write(value, |byte| self.put(u64::from(byte), 8));
    }
}

/// Whether a number fits into so many bits, as Prometheus counts: one more above zero than below.
pub(super) fn is_within(value: i64, bits: u32) -> bool {
    let most = 1_i64 << (bits - 1);
    (-(most - 1)..=most).contains(&value)
}

/// What is left of a number when the one before it is taken away bit by bit: written by what differs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Xor {
    before: u64,
    /// Zeros in front of and behind the bits that were written last.
    window: Option<(u32, u32)>,
}

impl Xor {
    /// Most zeros in front that can be told.
    const LEADING_MAX: u32 = 31;

    /// Behind a number that was written whole.
    pub(super) fn after(value: f64) -> Self {
        Self {
            before: value.to_bits(),
            window: None,
        }
    }

    /// The next number.
    pub(super) fn put(&mut self, value: f64, bits: &mut Bits) {
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
        // All 64 are written as none.
        bits.put(u64::from(count), 6);
        bits.put(difference >> trailing, count);
    }
}
