//! Checksums of what is sent and of what comes back.

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

use crate::error::{ArchiveError, Result};

/// SHA-256 in hexadecimal.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex(&sha256(bytes))
}

/// SHA-256.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut sum = [0; 32];
    sum.copy_from_slice(digest(&SHA256, bytes).as_ref());
    sum
}

/// A number that no other database has: what its objects are told by from those of others.
///
/// # Errors
///
/// Where the system has no random numbers.
pub fn new_origin() -> Result<u64> {
    let mut bytes = [0; 8];
    let failed = |_| ArchiveError::format("an origin", "the system gives no random numbers");
    SystemRandom::new().fill(&mut bytes).map_err(failed)?;
    Ok(u64::from_be_bytes(bytes))
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
