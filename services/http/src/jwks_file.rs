//! JSON Web Tokens of an identity provider, verified with the keys of a JWKS file. The file is read again when it changes.
//!
//! A verified token is kept until it expires, because checking its signature takes longer than anything else in
//! the authentication. When a key is removed from the file, the tokens that it has signed become invalid.

use std::path::Path;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use tideline_access::jwt::{JwtError, JwtSettings, JwtVerifier, VerifiedJwt};
use tideline_access::{Principal, TokenHash};
use tideline_engine::model::Timestamp;

use crate::followed_file::FollowedFile;

/// Maximum number of verified tokens that are kept.
const KEPT_MAX: usize = 10_000;

/// Tokens of an identity provider.
#[derive(Debug)]
pub(crate) struct JwksFile {
    settings: JwtSettings,
    file: Mutex<FollowedFile>,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    verifier: Arc<JwtVerifier>,
    /// Verified tokens by their hash.
    kept: HashMap<TokenHash, VerifiedJwt>,
}

impl JwksFile {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// Fails with the reason if the file is refused or is not a key set with keys for signatures.
    pub(crate) fn open(path: &Path, settings: JwtSettings) -> Result<Self, String> {
        let parse = |bytes: &[u8]| JwtVerifier::new(bytes, settings.clone());
        let (file, verifier) = FollowedFile::open(path, parse)?;
        Ok(Self {
            settings,
            file: Mutex::new(file),
            state: RwLock::new(State {
                verifier: Arc::new(verifier),
                kept: HashMap::new(),
            }),
        })
    }

    /// Finds the principal of a token.
    ///
    /// # Errors
    ///
    /// Fails with the reason of the refusal.
    pub(crate) fn authenticate(&self, claimed: &str, now: Timestamp) -> Result<Arc<Principal>, JwtError> {
        let hash = TokenHash::of(claimed);
        let verifier = {
            let state = self.state.read();
            if let Some(kept) = state.kept.get(&hash) {
                return match kept.principal.is_valid(now) {
                    true => Ok(Arc::clone(&kept.principal)),
                    false => Err(JwtError::Expired),
                };
            }
            Arc::clone(&state.verifier)
        };
        let verified = verifier.verify(claimed, now)?;
        let mut state = self.state.write();
        // The keys may have changed meanwhile.
        if !state.verifier.has_key(verified.key) {
            return Err(JwtError::UnknownKey);
        }
        if state.kept.len() >= KEPT_MAX {
            state.kept.retain(|_, kept| kept.principal.is_valid(now));
        }
        if state.kept.len() >= KEPT_MAX {
            // Dropped tokens are verified again.
            state.kept.clear();
        }
        let kept = state.kept.entry(hash).or_insert(verified);
        Ok(Arc::clone(&kept.principal))
    }

    /// Reads the file again if it has changed. Returns true if its keys were replaced.
    pub(crate) fn follow(&self) -> bool {
        let parse = |bytes: &[u8]| JwtVerifier::new(bytes, self.settings.clone());
        let Some(verifier) = self.file.lock().follow(parse) else {
            return false;
        };
        let mut state = self.state.write();
        state.kept.retain(|_, kept| {
            let stays = verifier.has_key(kept.key);
            if !stays {
                kept.principal.end();
            }
            stays
        });
        state.verifier = Arc::new(verifier);
        true
    }
}
