//! Round-trip tests: a decoder that follows Prometheus' implementation reads the chunks back.
//!
//! The decoder is independent of the encoder except for varints.

use tideline_histogram::{STALE_NAN_BITS, Span};
use tideline_wire::varint;

use super::*;

/// Reader of bits.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, count: u32) -> u64 {
        (0..count).fold(0, |value, _| {
            let bit = self.bytes[self.at / 8] >> (7 - self.at % 8) & 1;
            self.at += 1;
            value << 1 | u64::from(bit)
        })
    }

    /// Reads set bits up to the first unset one, at most `most`; returns their number.
    fn ones(&mut self, most: u32) -> u32 {
        (0..most).take_while(|_| self.take(1) == 1).count() as u32
    }

    fn signed(&mut self, count: u32) -> i64 {
        let value = self.take(count);
        match count {
            64 => value as i64,
            _ if value > 1 << (count - 1) => value as i64 - (1 << count),
            _ => value as i64,
        }
    }

    fn sized(&mut self) -> Option<u32> {
        match self.ones(8) {
            0 => None,
            ones => Some([3, 6, 9, 12, 18, 25, 56, 64][ones as usize - 1]),
        }
    }

    fn varbit_signed(&mut self) -> i64 {
        self.sized().map_or(0, |size| self.signed(size))
    }

    fn varbit_unsigned(&mut self) -> u64 {
        self.sized().map_or(0, |size| self.take(size))
    }

    fn varint(&mut self) -> u64 {
        let mut bytes = Vec::new();
        while bytes.last().is_none_or(|byte| *byte >= 0x80) {
            bytes.push(self.take(8) as u8);
        }
        varint::take(&mut &bytes[..]).expect("a varint")
    }

    fn xor(&mut self, state: &mut (u64, u32, u32)) -> f64 {
        if self.take(1) == 1 {
            if self.take(1) == 1 {
                state.1 = self.take(5) as u32;
                let count = match self.take(6) as u32 {
                    0 => 64,
                    count => count,
                };
                state.2 = 64 - state.1 - count;
            }
            state.0 ^= self.take(64 - state.1 - state.2) << state.2;
        }
        f64::from_bits(state.0)
    }
}

fn read_numbers(data: &[u8]) -> Vec<(i64, u64)> {
    let count = u16::from_be_bytes([data[0], data[1]]);
    let mut reader = Reader { bytes: data, at: 16 };
    let (mut time, mut distance, mut state) = (0_i64, 0_i64, (0, 0, 0));
    (0..count)
        .map(|at| {
            match at {
                0 => {
                    let first = reader.varint();
                    time = (first >> 1) as i64 ^ -((first & 1) as i64);
                    state.0 = reader.take(64);
                    return (time, state.0);
                }
                1 => distance = reader.varint() as i64,
                _ => {
                    let size = [0, 14, 17, 20, 64][reader.ones(4) as usize];
                    let change = if size == 0 { 0 } else { reader.signed(size) };
                    distance = distance.wrapping_add(change);
                }
            }
            time = time.wrapping_add(distance);
            (time, reader.xor(&mut state).to_bits())
        })
        .collect()
}

fn read_histograms(data: &[u8]) -> Vec<(i64, Histogram)> {
    let count = u16::from_be_bytes([data[0], data[1]]);
    let mut reader = Reader { bytes: data, at: 24 };
    let zero_threshold = match reader.take(8) {
        0 => 0.0,
        255 => f64::from_bits(reader.take(64)),
        power => 0.5 * 2.0_f64.powi(power as i32 - 243),
    };
    let schema = reader.varbit_signed() as i32;
    let spans = |reader: &mut Reader<'_>| -> Vec<Span> {
        let count = reader.varbit_unsigned();
        let span = |_| Span {
            length: reader.varbit_unsigned() as u32,
            offset: reader.varbit_signed() as i32,
        };
        (0..count).map(span).collect()
    };
    let positive_spans = spans(&mut reader);
    let negative_spans = spans(&mut reader);
    let bounds = if schema == CUSTOM_SCHEMA {
        reader.varbit_unsigned()
    } else {
        0
    };
    let custom_values: Vec<f64> = (0..bounds)
        .map(|_| match reader.varbit_unsigned() {
            0 => f64::from_bits(reader.take(64)),
            thousandths => (thousandths - 1) as f64 / 1e3,
        })
        .collect();
    let of = |spans: &[Span]| spans.iter().map(|span| span.length as usize).sum::<usize>();
    let (positive, negative) = (of(&positive_spans), of(&negative_spans));
    let mut states = vec![(0, 0, 0); 3 + positive + negative];
    let (mut time, mut distance) = (0_i64, 0_i64);
    (0..count)
        .map(|at| {
            let numbers: Vec<f64> = if at == 0 {
                time = reader.varbit_signed();
                let whole = states.iter_mut().map(|state| {
                    state.0 = reader.take(64);
                    f64::from_bits(state.0)
                });
                whole.collect()
            } else {
                distance += reader.varbit_signed();
                time += distance;
                states.iter_mut().map(|state| reader.xor(state)).collect()
            };
            let reset_hint = match (data[2] >> 6, at) {
                (3, _) => ResetHint::Gauge,
                (_, 1..) => ResetHint::NotReset,
                (2, 0) => ResetHint::Reset,
                _ => ResetHint::Unknown,
            };
            let histogram = Histogram {
                reset_hint,
                schema,
                zero_threshold,
                count: numbers[0],
                zero_count: numbers[1],
                sum: numbers[2],
                positive_spans: positive_spans.clone(),
                negative_spans: negative_spans.clone(),
                positive_buckets: numbers[3..3 + positive].to_vec(),
                negative_buckets: numbers[3 + positive..].to_vec(),
                custom_values: custom_values.clone(),
            };
            (time, histogram)
        })
        .collect()
}

fn noise(seed: &mut u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *seed >> 7
}

#[test]
fn numbers_read_back_bit_for_bit() {
    let mut seed = tideline_testkit::seed("chunks of numbers");
    for round in 0..60_u64 {
        let count = 1 + noise(&mut seed) as usize % 400;
        let mut time = noise(&mut seed) as i64 % 4_000_000_000_000 - 2_000_000_000_000;
        let mut samples = Vec::new();
        for at in 0..count {
            let step = match round % 4 {
                0 => 15_000,
                1 => 1 + noise(&mut seed) as i64 % 30_000,
                2 => 1 + noise(&mut seed) as i64 % 2_000_000,
                _ => 1 + noise(&mut seed) as i64 % 100_000_000_000,
            };
            time += step;
            let value = match noise(&mut seed) % 6 {
                0 => f64::from_bits(STALE_NAN_BITS),
                1 => at as f64,
                2 => f64::from_bits(noise(&mut seed) << 7 | at as u64),
                3 => f64::NEG_INFINITY,
                _ => 0.1 * at as f64,
            };
            samples.push((time, value));
        }
        let (times, values): (Vec<i64>, Vec<f64>) = samples.iter().copied().unzip();
        let chunks: Vec<Chunk> = of_numbers(&times, &values).collect();
        assert_eq!(chunks.len(), count.div_ceil(SAMPLES_MAX));
        let read: Vec<(i64, u64)> = chunks
            .iter()
            .flat_map(|chunk| read_numbers(&chunk.data))
            .collect();
        let wanted: Vec<(i64, u64)> = samples
            .iter()
            .map(|(time, value)| (*time, value.to_bits()))
            .collect();
        assert_eq!(read, wanted, "round {round}");
        assert_eq!((chunks[0].first, chunks[0].encoding), (times[0], Encoding::Xor));
        assert_eq!(chunks[chunks.len() - 1].last, times[count - 1]);
    }
}

/// A chunk has a header, a full first sample, a time difference, and then two bits per sample.
#[test]
fn regular_series_are_small() {
    let times: Vec<i64> = (0..120).map(|at| 1_000_000 + at * 15_000).collect();
    let chunks: Vec<Chunk> = of_numbers(&times, &[1.0; 120]).collect();
    let [chunk] = chunks.as_slice() else {
        panic!("one chunk")
    };
    assert_eq!(chunk.data[..2], [0, 120]);
    assert_eq!(chunk.data.len(), 2 + 3 + 8 + 2 + (1 + 118 * 2_usize).div_ceil(8));
}

#[test]
fn histograms_read_back_with_what_is_known_of_resets() {
    let span = |offset, length| Span { offset, length };
    let plain = Histogram {
        schema: 3,
        zero_threshold: 2.0_f64.powi(-128),
        zero_count: 1.0,
        count: 14.5,
        sum: -3.25,
        positive_spans: vec![span(-2, 2), span(3, 1)],
        negative_spans: vec![span(7, 1)],
        positive_buckets: vec![1.0, 5.5, 4.0],
        negative_buckets: vec![3.0],
        ..Histogram::default()
    };
    let grown = Histogram {
        reset_hint: ResetHint::NotReset,
        count: 16.5,
        positive_buckets: vec![1.0, 6.5, 5.0],
        ..plain.clone()
    };
    let custom = Histogram {
        schema: CUSTOM_SCHEMA,
        count: 6.0,
        sum: 3.0,
        positive_spans: vec![span(0, 3)],
        positive_buckets: vec![1.0, 2.0, 3.0],
        custom_values: vec![0.005, -1.5, 1e9],
        ..Histogram::default()
    };
    let marker = Histogram {
        sum: f64::from_bits(STALE_NAN_BITS),
        ..Histogram::default()
    };
    let with = |hint, histogram: &Histogram| Histogram {
        reset_hint: hint,
        ..histogram.clone()
    };
    let odd_threshold = Histogram {
        zero_threshold: 0.001,
        ..plain.clone()
    };
    let all = [
        plain.clone(),
        grown.clone(),
        grown.clone(),
        with(ResetHint::Reset, &plain),
        with(ResetHint::Gauge, &plain),
        with(ResetHint::Gauge, &grown),
        odd_threshold,
        custom,
        marker,
        plain.clone(),
        plain,
    ];
    let times: Vec<i64> = (0..all.len() as i64).map(|at| at * at * 1_000 - 5_000).collect();
    let chunks: Vec<Chunk> = of_histograms(&times, &all).collect();
    assert_eq!(chunks.len(), 8, "those that follow without a reset share a chunk");
    let read: Vec<(i64, Histogram)> = chunks
        .iter()
        .flat_map(|chunk| read_histograms(&chunk.data))
        .collect();
    assert_eq!(read.len(), all.len());
    for ((time, histogram), (wanted_time, wanted)) in read.iter().zip(times.iter().zip(&all)) {
        assert_eq!(time, wanted_time);
        if is_stale(wanted.sum) {
            assert!(is_stale(histogram.sum) && histogram.positive_buckets.is_empty());
        } else {
            assert_eq!(histogram, wanted);
        }
    }
}
