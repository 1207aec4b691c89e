//! Tests of decoding: each encoding, damaged bodies and decompression bombs.
//!
//! They check that limits hold and that the budget is released.

use std::io::Write;

use super::*;

fn received(sent: &[u8], encoding: Encoding, budget: usize) -> ReceivedBody {
    received_within(sent, encoding, &Shares::new(budget))
}

fn received_within(sent: &[u8], encoding: Encoding, budget: &Shares) -> ReceivedBody {
    let budget = Budget {
        bytes: budget.clone(),
        client: Client::UNKNOWN,
    };
    let mut buffer = Buffer::new(&budget, 4 << 20);
    buffer.extend(sent).expect("fits the budget");
    ReceivedBody {
        sent: buffer,
        encoding,
        limits: BodyLimits {
            wire_bytes: 4 << 20,
            decoded_bytes: 4 << 20,
        },
        budget,
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).expect("writes to memory");
    writer.finish().expect("writes to memory")
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).expect("writes to memory");
    writer.finish().expect("writes to memory")
}

fn refused(result: Result<BodyBytes>) -> BodyError {
    result.expect_err("refused")
}

#[test]
fn a_snappy_block_is_believed_only_as_far_as_it_can_reach() {
    let text = b"cpu value=1\n".repeat(10_000);
    let block = snap::raw::Encoder::new().compress_vec(&text).expect("compresses");
    let decoded = received(&block, Encoding::Snappy, 4 << 20)
        .decode()
        .expect("a block");
    assert_eq!(&*decoded, &text);
    // The header declares 3 MiB; the block has six bytes.
    let bomb = [0x80, 0x80, 0xc0, 0x01, 0x00, b'a'];
    let failure = received(&bomb, Encoding::Snappy, 4 << 20)
        .decode()
        .expect_err("a bomb");
    assert!(failure.to_string().contains("cannot hold 3145728"), "{failure}");
    let huge = [0xff, 0xff, 0xff, 0xff, 0x0f, 0x00, b'a'];
    let failure = received(&huge, Encoding::Snappy, 4 << 20)
        .decode()
        .expect_err("too large");
    assert!(matches!(failure, BodyError::TooLarge { .. }), "{failure}");
    for end in 0..block.len() - 1 {
        let cut = received(&block[..end], Encoding::Snappy, 4 << 20).decode();
        assert!(cut.is_err(), "{end}");
    }
}

#[test]
fn every_encoding_reads_back_and_damage_is_refused() {
    let text: Vec<u8> = (0..200_000u32)
        .flat_map(|n| format!("cpu v={n}\n").into_bytes())
        .collect();
    let zstd = zstd::stream::encode_all(text.as_slice(), 1).expect("writes to memory");
    for (sent, encoding) in [
        (gzip(&text), Encoding::Gzip),
        (zlib(&text), Encoding::Deflate),
        (zstd, Encoding::Zstd),
    ] {
        let decoded = received(&sent, encoding, 64 << 20).decode().expect("sound");
        assert!(*decoded == *text, "{encoding:?}");
        let budget = decoded.0.budget.bytes.clone();
        assert!(budget.used() > 0);
        drop(decoded);
        assert_eq!(budget.used(), 0, "the budget is whole again");
        let garbage = [sent.as_slice(), b"garbage"].concat();
        assert!(
            matches!(
                refused(received(&garbage, encoding, 64 << 20).decode()),
                BodyError::Invalid(_)
            ),
            "{encoding:?}"
        );
        let cut = &sent[..sent.len() / 2];
        assert!(
            matches!(
                refused(received(cut, encoding, 64 << 20).decode()),
                BodyError::Invalid(_)
            ),
            "{encoding:?}"
        );
    }
    let members = [gzip(b"one "), gzip(b"two")].concat();
    assert_eq!(
        &*received(&members, Encoding::Gzip, 1 << 20)
            .decode()
            .expect("sound"),
        b"one two"
    );
}

#[test]
fn bombs_are_refused_by_size_ratio_and_budget() {
    let bomb = zstd::stream::encode_all(vec![0; 17 << 20].as_slice(), 1).expect("writes to memory");
    // The budget has no room for the decoded bytes: the ratio is checked before they are stored.
    let mut received_bomb = received(&bomb, Encoding::Zstd, 2 << 20);
    received_bomb.limits.decoded_bytes = 64 << 20;
    let failure = refused(received_bomb.decode());
    assert!(
        matches!(failure, BodyError::TooLarge { limit, .. } if limit == 16 << 20),
        "{failure}"
    );
    assert!(failure.to_string().contains("100 times"), "{failure}");
    let mut noise = Vec::new();
    let mut state = 1u32;
    while noise.len() < 5 << 20 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        noise.push((state >> 24) as u8 & 0x0f);
    }
    let failure = received(&gzip(&noise), Encoding::Gzip, 64 << 20)
        .decode()
        .expect_err("too large");
    assert!(
        matches!(failure, BodyError::TooLarge { limit, .. } if limit == 4 << 20),
        "{failure}"
    );
    let text = gzip(&noise[..2 << 20]);
    let budget = text.len() * 2 + (64 << 10);
    let failure = refused(received(&text, Encoding::Gzip, budget).decode());
    assert!(matches!(failure, BodyError::Overloaded { .. }), "{failure}");
}

#[test]
fn every_ratio_is_accepted_up_to_16_mib_within_the_budget() {
    let packed = zstd::stream::encode_all(vec![0; 16 << 20].as_slice(), 1).expect("writes to memory");
    let budget = Shares::new(24 << 20);
    let decode = || {
        let mut body = received_within(&packed, Encoding::Zstd, &budget);
        body.limits.decoded_bytes = 64 << 20;
        body.decode()
    };
    let decoded = decode().expect("the ratio is not checked");
    assert_eq!(decoded.len(), 16 << 20);
    assert!(budget.used() >= 16 << 20, "the budget counts the decoded bytes");
    let failure = refused(decode());
    assert!(matches!(failure, BodyError::Overloaded { .. }), "{failure}");
    drop(decoded);
    assert_eq!(budget.used(), 0, "the budget is whole again");
    decode().expect("the budget has room again");
}
