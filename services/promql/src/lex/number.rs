//! Scanner for numbers and durations.
//!
//! The scanner determines only the length and the kind of a token. The parser computes the value.

use super::{TokenKind, is_letter_or_digit};

/// Returns the length in bytes of the number or duration at the start of a text, and its kind. The kind is
/// `None` if the token is malformed.
///
/// The text must begin with a digit, or with a point followed by a digit.
pub(super) fn scan(text: &str) -> (usize, Option<TokenKind>) {
    let mut scan = Scan {
        bytes: text.as_bytes(),
        at: 0,
    };
    if scan.number() {
        return (scan.at, Some(TokenKind::Number));
    }
    let is_duration = scan.duration();
    (scan.at, is_duration.then_some(TokenKind::Duration))
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn is(&self, wanted: &[u8]) -> bool {
        self.bytes.get(self.at).is_some_and(|at| wanted.contains(at))
    }

    fn accept(&mut self, wanted: &[u8]) -> bool {
        let is_there = self.is(wanted);
        self.at += usize::from(is_there);
        is_there
    }

    fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    fn is_before_word(&self) -> bool {
        let next = self.bytes.get(self.at);
        next.is_some_and(|at| is_letter_or_digit(char::from(*at)))
    }

    /// Scans digits with at most one point, one exponent, and underscores between digits; or hexadecimal
    /// digits after `0x`. Returns false if the scanned text is not a number.
    fn number(&mut self) -> bool {
        let is_hex = self.accept(b"0") && self.accept(b"xX");
        if is_hex {
            self.accept(b"_");
        }
        let digits: &[u8] = if is_hex {
            b"0123456789abcdefABCDEF"
        } else {
            b"0123456789"
        };
        let (mut has_point, mut has_exponent) = (false, false);
        self.accept(b".");
        self.accept(digits);
        loop {
            if self.is(b".") {
                self.at += 1;
                if has_point || self.accept(b"_.") || is_hex {
                    return false;
                }
                has_point = true;
            } else if self.is(b"eE") {
                self.at += 1;
                if has_exponent {
                    return false;
                }
                has_exponent = true;
                self.accept(b"+-");
                if self.accept(b"._eE") || self.is_at_end() {
                    return false;
                }
            } else if self.accept(b"_") {
                if self.accept(b"._eE") || self.is_at_end() {
                    return false;
                }
            } else if self.is(digits) {
                while self.accept(digits) {}
            } else {
                break;
            }
        }
        self.at > 0 && !self.is_before_word()
    }

    /// Scans the rest of a duration after its first digits. Returns false if the duration is malformed.
    fn duration(&mut self) -> bool {
        if !self.accept(b"smhdwy") {
            return false;
        }
        self.accept(b"s");
        while self.accept(b"0123456789") {
            while self.accept(b"0123456789") {}
            if !self.accept(b"smhdw") {
                return false;
            }
            self.accept(b"s");
        }
        // The error message includes the unexpected character after the duration.
        let is_before_word = self.is_before_word();
        self.at += usize::from(is_before_word);
        !is_before_word
    }
}
