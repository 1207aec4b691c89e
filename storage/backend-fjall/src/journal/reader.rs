//! Reader of the frames of one journal file, which distinguishes a torn end from damage.
//!
//! A bad frame before an intact frame is damage if it was durable when the intact frame was written. Otherwise the bad
//! frame and all frames after it are the torn end of unsynced writes.

use std::io::{BufReader, Read};

use tideline_backend::{BackendError, Result};
use tideline_model::SequenceNumber;

use super::frame::{FRAME_HEADER_BYTES, FileId, FrameHeader, HEADER_BYTES, HeaderCheck, Rest};
use crate::error::{During, from_io};

/// Buffer size of reads, in bytes.
const BUFFER_BYTES: usize = 256 << 10;

/// Result of a walk over the frames of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Walk {
    /// Offset of the end of the last intact frame; `0` if not even the header is intact.
    pub(crate) intact_bytes: u64,
    /// Number of intact frames before the first bad frame.
    pub(crate) entries: u64,
    /// Number of bytes of the file that were durable when the last intact frame was written.
    pub(crate) synced_bytes: u64,
    /// Sequence of the last intact frame.
    pub(crate) last: Option<SequenceNumber>,
    /// True if an incomplete write follows the last intact frame.
    pub(crate) is_torn: bool,
    /// Description of the damage after the last intact frame, if a torn write does not explain it.
    pub(crate) damage: Option<String>,
}

impl Walk {
    /// Returns an error if the file is damaged.
    pub(crate) fn undamaged(self) -> Result<Self> {
        match self.damage {
            Some(reason) => Err(BackendError::corrupt(reason)),
            None => Ok(self),
        }
    }
}

/// Passes the intact frames within the first `length` bytes to `visit`, up to the first bad frame. `visit` may take the
/// payload. Reads all `length` bytes. Needs memory for one buffer, one payload, and all bytes from the first bad frame
/// on.
pub(crate) fn walk(
    id: FileId,
    file: impl Read,
    length: u64,
    visit: &mut dyn FnMut(SequenceNumber, &mut Vec<u8>) -> Result<()>,
) -> Result<Walk> {
    let failed = |error| from_io(&error, &id.name(), During::Read);
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, file.take(length));
    let seed = id.seed();
    let mut walk = Walk::default();
    if let Some(reason) = read_header(id, &mut reader)? {
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).map_err(failed)?;
        return Ok(without_header(id, walk, reason, &rest));
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
                    walk.entries += 1;
                    walk.synced_bytes = frame.synced;
                    walk.last = Some(frame.sequence);
                    continue;
                }
            }
        }
        let mut rest = [&head[..read], &payload].concat();
        reader.read_to_end(&mut rest).map_err(failed)?;
        let rest = Rest::search(&rest, walk.intact_bytes, seed, walk.last);
        if rest.synced.is_some_and(|synced| synced > walk.intact_bytes) {
            walk.damage = Some(format!(
                "{} is damaged at byte {}, before intact entries",
                id.name(),
                walk.intact_bytes
            ));
        } else {
            walk.is_torn = true;
        }
        break;
    }
    Ok(walk)
}

/// Reads and checks the header. Returns its fault, if there is one. Fails for a header of another format version.
fn read_header(id: FileId, reader: &mut impl Read) -> Result<Option<BadHeader>> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    reader
        .take(HEADER_BYTES as u64)
        .read_to_end(&mut header)
        .map_err(|error| from_io(&error, &id.name(), During::Read))?;
    match id.check_header(&header) {
        HeaderCheck::Intact => Ok(None),
        HeaderCheck::Damaged => Ok(Some(BadHeader::Damaged)),
        HeaderCheck::Version(version) => Err(BackendError::Misconfigured {
            reason: format!("{} has format {version}, which this build cannot read", id.name()),
        }),
        HeaderCheck::Misnamed => Ok(Some(BadHeader::Misnamed)),
    }
}

/// Fault in the header of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BadHeader {
    Damaged,
    Misnamed,
}

/// Classifies a file without an intact header by the frames after the header. The first write puts the header and the
/// start of the first frame into one sector. So if the first frame is intact, the header was intact as well.
fn without_header(id: FileId, mut walk: Walk, header: BadHeader, rest: &[u8]) -> Walk {
    let start = HEADER_BYTES as u64;
    let found = Rest::search(rest, start, id.seed(), None);
    let is_first_intact =
        found.entries > 0 && found.unreadable.first().is_none_or(|range| range.start > start);
    walk.damage = match header {
        BadHeader::Misnamed => Some(format!("{} has the header of another file", id.name())),
        BadHeader::Damaged if is_first_intact || found.synced.is_some_and(|synced| synced > 0) => {
            Some(format!("the header of {} is damaged", id.name()))
        }
        BadHeader::Damaged => None,
    };
    walk.is_torn = walk.damage.is_none();
    walk
}
