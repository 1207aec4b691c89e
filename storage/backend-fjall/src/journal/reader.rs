//! Walks the frames of one journal file, and tells a torn end from damage.

use std::fs::File;
use std::io::{BufReader, Read};

use tideline_backend::{BackendError, Result};
use tideline_model::SequenceNumber;

use super::frame::{FRAME_HEADER_BYTES, FileId, FrameHeader, HEADER_BYTES, HeaderCheck, synced_after};
use crate::error::{During, from_io};

/// Read from the file at once.
const BUFFER_BYTES: usize = 256 << 10;

/// What a walk found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Walk {
    /// Bytes up to the end of the last intact frame; `0` if not even the header is intact.
    pub(crate) intact_bytes: u64,
    /// Bytes that the last intact frame knew to be durable.
    pub(crate) synced_bytes: u64,
    /// Sequence of the last intact frame.
    pub(crate) last: Option<SequenceNumber>,
    /// Whether there is something after the last intact frame that a write left half done.
    pub(crate) is_torn: bool,
}

/// Hands every intact frame of the first `length` bytes to `visit`, which may take the payload.
///
/// Damage that no torn write explains is `Corrupt`. Memory: one buffer and one payload.
pub(crate) fn walk(
    id: FileId,
    file: &File,
    length: u64,
    visit: &mut dyn FnMut(SequenceNumber, &mut Vec<u8>) -> Result<()>,
) -> Result<Walk> {
    let failed = |error| from_io(&error, &id.name(), During::Read);
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, file.take(length));
    let seed = id.seed();
    let mut walk = Walk {
        intact_bytes: 0,
        synced_bytes: 0,
        last: None,
        is_torn: false,
    };
    if !read_header(id, &mut reader)? {
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).map_err(failed)?;
        return without_header(id, walk, &rest);
    }
    walk.intact_bytes = HEADER_BYTES as u64;
    let mut payload = Vec::new();
    let mut head = [0; FRAME_HEADER_BYTES];
    while walk.intact_bytes < length {
        let left = length - walk.intact_bytes;
        let mut read = 0;
        if left >= FRAME_HEADER_BYTES as u64 {
            reader.read_exact(&mut head).map_err(failed)?;
            read = FRAME_HEADER_BYTES;
            let frame = FrameHeader::parse(&head);
            let frame_bytes = FRAME_HEADER_BYTES as u64 + u64::from(frame.length);
            payload.clear();
            if frame.is_plausible(walk.intact_bytes, walk.last) && frame_bytes <= left {
                payload.resize(frame.length as usize, 0);
                reader.read_exact(&mut payload).map_err(failed)?;
                if frame.is_intact(seed, &payload) {
                    visit(frame.sequence, &mut payload)?;
                    walk.intact_bytes += frame_bytes;
                    walk.synced_bytes = frame.synced;
                    walk.last = Some(frame.sequence);
                    continue;
                }
            }
        }
        let mut rest = [&head[..read], &payload].concat();
        reader.read_to_end(&mut rest).map_err(failed)?;
        let known = synced_after(&rest, walk.intact_bytes, seed, walk.last);
        if known.is_some_and(|synced| synced > walk.intact_bytes) {
            return Err(BackendError::corrupt(format!(
                "{} is damaged at byte {}, before intact entries",
                id.name(),
                walk.intact_bytes
            )));
        }
        walk.is_torn = true;
        break;
    }
    Ok(walk)
}

/// Reads and checks the header; `false` if it is not intact.
fn read_header(id: FileId, reader: &mut impl Read) -> Result<bool> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    reader
        .take(HEADER_BYTES as u64)
        .read_to_end(&mut header)
        .map_err(|error| from_io(&error, &id.name(), During::Read))?;
    match id.check_header(&header) {
        HeaderCheck::Intact => Ok(true),
        HeaderCheck::Damaged => Ok(false),
        HeaderCheck::Version(version) => Err(BackendError::Misconfigured {
            reason: format!("{} has format {version}, which this build cannot read", id.name()),
        }),
        HeaderCheck::Misnamed => Err(BackendError::corrupt(format!("{} is another file", id.name()))),
    }
}

/// Judges a file whose header is not intact by what comes after it. The first write puts the header and the first
/// frame's beginning into one sector, so an intact first frame had an intact header.
fn without_header(id: FileId, walk: Walk, rest: &[u8]) -> Result<Walk> {
    let start = HEADER_BYTES as u64;
    let is_first_intact = rest.first_chunk().is_some_and(|header| {
        let frame = FrameHeader::parse(header);
        let payload = rest.get(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + frame.length as usize);
        payload.is_some_and(|payload| frame.is_intact(id.seed(), payload))
    });
    if is_first_intact || synced_after(rest, start, id.seed(), None).is_some_and(|synced| synced > 0) {
        return Err(BackendError::corrupt(format!(
            "the header of {} is damaged",
            id.name()
        )));
    }
    Ok(Walk {
        is_torn: true,
        ..walk
    })
}
