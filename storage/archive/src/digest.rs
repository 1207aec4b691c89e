//! Checksums of sent and received bytes, and random origins.

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

use crate::error::{ArchiveError, Result};

/// Returns the SHA-256 in hexadecimal.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex(&sha256(bytes))
}

/// Returns the SHA-256.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut sum = [0; 32];
    sum.copy_from_slice(digest(&SHA256, bytes).as_ref());
    sum
}

/// Returns a random number that identifies the objects of this database at shared targets.
///
/// # Errors
///
/// [`ArchiveError::Format`] if the system's random number generator fails.
pub fn new_origin() -> Result<u64> {
    let mut bytes = [0; 8];
    let failed = |_| ArchiveError::format("an origin", "the system's random number generator failed");
    SystemRandom::new().fill(&mut bytes).map_err(failed)?;
    Ok(u64::from_be_bytes(bytes))
}

/// Encodes bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
