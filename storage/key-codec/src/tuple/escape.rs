//! Stored bytes of string and binary values: escaped, with a terminator.

use std::borrow::Cow;

use super::KeyDamage;

/// First byte of an escaped zero and of the terminator.
const ESCAPE: u8 = 0;
/// Second byte of the terminator. This byte is smaller than [`ZERO`], so a value sorts before its extensions.
const END: u8 = 1;
/// Second byte of an escaped zero.
const ZERO: u8 = u8::MAX;

/// Appends the ascending form: zeros escaped, then the terminator.
pub(crate) fn push_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    push_escaped_prefix(bytes, out);
    out.extend_from_slice(&[ESCAPE, END]);
}

/// Appends the ascending form without the terminator: the common prefix of all values that begin with `bytes`.
pub(crate) fn push_escaped_prefix(bytes: &[u8], out: &mut Vec<u8>) {
    let mut runs = bytes.split(|byte| *byte == 0);
    out.extend_from_slice(runs.next().unwrap_or_default());
    for run in runs {
        out.extend_from_slice(&[ESCAPE, ZERO]);
        out.extend_from_slice(run);
    }
}

/// Splits the first column off `key`. `mask` is XORed with each of its bytes to get the ascending form. Returns the
/// unescaped value and the bytes after its terminator. Ascending values without zero bytes are borrowed.
pub(super) fn split_escaped(key: &[u8], mask: u8) -> Result<(Cow<'_, [u8]>, &[u8]), KeyDamage> {
    let mut value = Vec::new();
    let mut rest = key;
    loop {
        let escape = rest.iter().position(|byte| *byte == ESCAPE ^ mask);
        let (run, after) = rest.split_at(escape.ok_or(KeyDamage::Truncated)?);
        let [_, second, after @ ..] = after else {
            return Err(KeyDamage::Truncated);
        };
        let found = second ^ mask;
        let is_first_run = rest.len() == key.len();
        if found == END && mask == 0 && is_first_run {
            return Ok((Cow::Borrowed(run), after));
        }
        value.extend(run.iter().map(|byte| byte ^ mask));
        match found {
            END => return Ok((Cow::Owned(value), after)),
            ZERO => value.push(0),
            _ => return Err(KeyDamage::Escape { found }),
        }
        rest = after;
    }
}
