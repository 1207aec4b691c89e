//! Rejects of lines and elements: their excerpts, and a limit on their number per body.
//!
//! An excerpt lets the client find the line again. Number and size of excerpts are limited, because a body of invalid
//! lines would otherwise take a multiple of its size in memory.

use std::borrow::Cow;

use tideline_model::LineReject;
pub(crate) use tideline_model::RejectReason as Reason;

/// Maximum size of an excerpt, in bytes: enough to find the line again, and short enough for a log.
const EXCERPT_BYTES: usize = 120;

/// Maximum number of rejects of one body that get an excerpt; no response shows more.
const EXCERPTS_MAX: usize = 1_000;

/// Maximum size of a token quoted in a reason, in bytes.
const TOKEN_BYTES: usize = 48;

/// Rejects of one body.
#[derive(Debug)]
pub(crate) struct Rejects {
    pub(crate) stored: Vec<LineReject>,
    limit: usize,
}

impl Rejects {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            stored: Vec::new(),
            limit,
        }
    }

    /// Returns true if the limit of rejects is reached; the decoder must then stop.
    pub(crate) fn is_full(&self) -> bool {
        self.stored.len() >= self.limit
    }

    pub(crate) fn push(&mut self, line: u32, reason: Reason, offending: &[u8]) {
        let reason = match reason {
            Reason::Unreadable(Cow::Owned(mut text)) => {
                text.shrink_to_fit();
                text.into()
            }
            reason => reason,
        };
        self.stored.push(LineReject {
            line,
            reason,
            excerpt: match self.stored.len() {
                0..EXCERPTS_MAX => cut(offending, EXCERPT_BYTES),
                _ => String::new(),
            },
        });
    }

    /// Adds a reject which reports that `unread` lines or elements from `line` on were not read because of too many
    /// rejects.
    pub(crate) fn push_unread(&mut self, line: u32, unread: usize) {
        let cause = format!("too many rejects (limit {})", self.limit);
        self.push_unread_for(&cause, line, unread);
    }

    /// Adds a reject as [`Self::push_unread`] does, for another cause.
    pub(crate) fn push_unread_for(&mut self, cause: &str, line: u32, unread: usize) {
        let reason = match unread {
            0 => format!("{cause}: the rest was not read"),
            _ => format!("{cause}: {unread} more from here on were not read"),
        };
        self.push(line, reason.into(), b"");
    }
}

/// Formats a token of the body for a reason: escaped and truncated.
pub(crate) fn quote(token: &[u8]) -> String {
    format!("{:?}", cut(token, TOKEN_BYTES))
}

/// Returns the reason for a part of a point that is over a size limit.
pub(crate) fn too_large(what: &str, actual: usize, limit: usize) -> Reason {
    format!("{what} too large: limit {limit}, actual {actual}").into()
}

/// Returns at most `limit` bytes from the start of `bytes`, cut at a character boundary. Invalid UTF-8 is replaced.
fn cut(bytes: &[u8], limit: usize) -> String {
    let mut end = bytes.len().min(limit);
    let is_continuation = |at: usize| bytes.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    while end > limit.saturating_sub(4) && end < bytes.len() && is_continuation(end) {
        end -= 1;
    }
    let mut text = String::from_utf8_lossy(&bytes[..end]).into_owned();
    // A replacement character is longer than the byte that it replaces.
    while text.len() > limit {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_are_cut_at_a_character_boundary() {
        let text = "ä".repeat(100);
        assert_eq!(cut(text.as_bytes(), 119), "ä".repeat(59));
        assert_eq!(cut(&[0xff; 200], 120), "\u{fffd}".repeat(40));
        assert_eq!(cut(b"short", 120), "short");
    }
}
