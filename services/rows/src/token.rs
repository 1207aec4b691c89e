//! Page tokens: the position of a scan, bound to its request.
//!
//! A token contains the merge key of the last row, which is the key of the row in the scan without its bucket. A digest
//! of the request and of the merge key precedes it. The server keeps no state for a token, so tokens stay valid after a
//! restart.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Result, RowsError};

/// Version of the token format.
const VERSION: u8 = 1;

/// Returns the token of the page that begins after a merge key. `terms` identify the request.
#[must_use]
pub fn encode(terms: &[u8], merge_key: &[u8]) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&digest(terms, merge_key));
    bytes.extend_from_slice(merge_key);
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Returns the merge key of a token; `None` if the token is damaged or belongs to another request.
#[must_use]
pub fn decode(terms: &[u8], token: &str) -> Option<Vec<u8>> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
    let (version, rest) = bytes.split_first()?;
    let (found, merge_key) = rest.split_first_chunk::<8>()?;
    let is_intact = *version == VERSION && *found == digest(terms, merge_key);
    is_intact.then(|| merge_key.to_vec())
}

/// Returns the position in the token of a search.
///
/// # Errors
///
/// [`RowsError::Invalid`] if the token is damaged or belongs to another request.
pub(crate) fn decode_search(terms: &[u8], token: &str) -> Result<Vec<u8>> {
    decode(terms, token).ok_or_else(|| {
        RowsError::Invalid(
            "page_token is damaged or belongs to another search; send it with the request whose response contained it"
                .into(),
        )
    })
}

/// Returns the merge key of the token of a scan.
///
/// # Errors
///
/// [`RowsError::Invalid`] if the token is damaged or belongs to another request.
pub(crate) fn decode_scan(terms: &[u8], token: &str) -> Result<Vec<u8>> {
    decode(terms, token).ok_or_else(|| {
        RowsError::Invalid(
            "page_token is damaged or belongs to another request; send it with the same table, prefix, range, \
             direction, columns, versions and condition"
                .into(),
        )
    })
}

fn digest(terms: &[u8], merge_key: &[u8]) -> [u8; 8] {
    let length = (terms.len() as u64).to_le_bytes();
    xxh3_64(&[&length[..], terms, merge_key].concat()).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_fits_only_its_request() {
        let token = encode(b"terms", b"key");
        assert_eq!(decode(b"terms", &token).as_deref(), Some(&b"key"[..]));
        assert!(decode(b"other", &token).is_none());
        assert!(decode(b"terms", &token.to_uppercase()).is_none());
        assert!(decode(b"terms", "").is_none());
        assert!(decode(b"terms", "?").is_none());
    }
}
