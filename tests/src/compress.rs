//! Compressed request bodies, and decompression bombs.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

/// Compresses a body with gzip.
pub fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).expect("memory takes every write");
    encoder.finish().expect("memory takes every write")
}

/// Compresses a body with zstd.
pub fn zstd(body: &[u8]) -> Vec<u8> {
    zstd::encode_all(body, 3).expect("memory takes every write")
}

/// Compresses a body as a snappy block, without framing.
pub fn snappy(body: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new()
        .compress_vec(body)
        .expect("bodies are far below 4 GiB")
}

/// Compression of a bomb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    /// gzip, ratio about 1:1000.
    Gzip,
    /// zstd, ratio 1:10,000 or more.
    Zstd,
}

/// Returns a small body that decompresses to a line protocol comment of `len` bytes, rounded up to a multiple of
/// 64 KiB. The server would store nothing but would have to decompress everything.
pub fn bomb(packing: Packing, len: u64) -> Vec<u8> {
    let block = [b'#'; 1 << 16];
    let blocks = len.div_ceil(block.len() as u64);
    match packing {
        Packing::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            for _ in 0..blocks {
                encoder.write_all(&block).expect("memory takes every write");
            }
            encoder.finish().expect("memory takes every write")
        }
        Packing::Zstd => {
            let mut encoder = zstd::Encoder::new(Vec::new(), 3).expect("level 3 exists");
            for _ in 0..blocks {
                encoder.write_all(&block).expect("memory takes every write");
            }
            encoder.finish().expect("memory takes every write")
        }
    }
}
