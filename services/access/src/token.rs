//! Text of a token: `tl_`, an id, a random secret and a checksum.
//!
//! The prefix and the checksum let scanners of source code find tokens that were published by mistake, without false
//! alarms. The secret has 256 random bits, so its SHA-256 hash cannot be reversed by guessing, and needs no slow hash
//! function. Only the hash is stored.

use std::fmt;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

/// First characters of all tokens.
pub const PREFIX: &str = "tl_";
/// Random bytes of an id.
const ID_BYTES: usize = 6;
/// Random bytes of a secret.
const SECRET_BYTES: usize = 32;
/// Text of a new token. It has a masked `Debug` and no `Display`, so that it cannot appear in a log.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenText {
    text: String,
}

/// SHA-256 hash of a token, as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenHash([u8; 32]);

/// Error: the system provides no random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system provides no random numbers: {0}")]
pub struct NoRandomness(getrandom::Error);

impl TokenText {
    /// Creates a token with a random id and secret.
    ///
    /// # Errors
    ///
    /// [`NoRandomness`] if the system provides no random numbers.
    pub fn new() -> Result<Self, NoRandomness> {
        let mut id = [0; ID_BYTES];
        getrandom::getrandom(&mut id).map_err(NoRandomness)?;
        Self::with_id(&hex(&id))
    }

    /// Creates a token with a new secret for an existing id.
    ///
    /// # Errors
    ///
    /// [`NoRandomness`] if the system provides no random numbers.
    pub fn with_id(id: &str) -> Result<Self, NoRandomness> {
        let mut secret = [0; SECRET_BYTES];
        getrandom::getrandom(&mut secret).map_err(NoRandomness)?;
        let body = format!("{PREFIX}{id}_{}", hex(&secret));
        let checksum = crc32fast::hash(body.as_bytes());
        Ok(Self {
            text: format!("{body}{checksum:08x}"),
        })
    }

    /// Returns the id, which is no secret.
    pub fn id(&self) -> &str {
        let body = &self.text[PREFIX.len()..];
        body.split_once('_').map_or(body, |(id, _)| id)
    }

    /// Returns the hash to store.
    pub fn hash(&self) -> TokenHash {
        TokenHash::of(&self.text)
    }

    /// Returns the token itself, to show it once to the user that created it.
    pub fn expose(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenText({}, …)", self.id())
    }
}

impl TokenHash {
    /// Returns the hash of a token.
    pub fn of(token: &str) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        Self(hash)
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(…)")
    }
}

impl From<TokenHash> for String {
    fn from(hash: TokenHash) -> Self {
        hex(&hash.0)
    }
}

impl TryFrom<String> for TokenHash {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || "a SHA-256 hash has 64 hexadecimal digits".to_owned();
        if text.len() != 64 || !text.is_ascii() {
            return Err(wrong());
        }
        let mut hash = [0; 32];
        for (byte, at) in hash.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(hash))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recognizes a token by its form and checksum, as a scanner of source code does.
    fn is_token(text: &str) -> bool {
        let length = PREFIX.len() + 2 * ID_BYTES + 1 + 2 * SECRET_BYTES + 8;
        let Some((body, checksum)) = text.split_at_checked(text.len().saturating_sub(8)) else {
            return false;
        };
        text.len() == length
            && text.starts_with(PREFIX)
            && u32::from_str_radix(checksum, 16) == Ok(crc32fast::hash(body.as_bytes()))
    }

    #[test]
    fn a_token_is_recognized_by_its_form_and_checksum() {
        let token = TokenText::new().expect("random numbers");
        let text = token.expose();
        assert!(is_token(text), "{text}");
        assert_eq!(token.id().len(), 12);
        assert_eq!(&text[..16], format!("tl_{}_", token.id()));
        let mut changed = text.to_owned().into_bytes();
        changed[20] = if changed[20] == b'0' { b'1' } else { b'0' };
        assert!(!is_token(&String::from_utf8(changed).expect("ASCII")));
        for other in ["", "tl_", "é", "tl_éééé", &text[1..]] {
            assert!(!is_token(other), "{other}");
        }
    }

    #[test]
    fn debug_output_holds_no_secret() {
        let token = TokenText::new().expect("random numbers");
        assert_eq!(format!("{token:?}"), format!("TokenText({}, …)", token.id()));
        assert_eq!(format!("{:?}", token.hash()), "TokenHash(…)");
    }

    #[test]
    fn a_hash_is_read_back() {
        let hash = TokenHash::of("abc");
        let text = String::from(hash);
        assert_eq!(
            text,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(TokenHash::try_from(text), Ok(hash));
        for wrong in ["", "ba78", &"x".repeat(64), &"é".repeat(32)] {
            assert!(TokenHash::try_from(wrong.to_owned()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn another_secret_of_the_same_id_has_another_hash() {
        let first = TokenText::new().expect("random numbers");
        let second = TokenText::with_id(first.id()).expect("random numbers");
        assert_eq!(first.id(), second.id());
        assert_ne!(first.hash(), second.hash());
    }
}
