//! JSON Web Tokens of an identity provider, verified with the keys of a JWKS file. The file is read again when it changes.
//!
//! A verified token is kept until it expires, because the check of its signature is the slowest part of the
//! authentication. When a key is removed from the file, the tokens that were signed with the key become invalid.

use std::path::Path;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use tideline_access::jwt::{JwtError, JwtSettings, JwtVerifier, VerifiedJwt};
use tideline_access::{Principal, TokenHash};
use tideline_engine::model::Timestamp;

use crate::followed_file::{Behind, FollowedFile};

/// Maximum number of verified tokens that are kept in addition to the tokens of running requests.
const KEPT_MAX: usize = 10_000;

/// Tokens of an identity provider.
#[derive(Debug)]
pub(crate) struct JwksFile {
    settings: JwtSettings,
    /// Locked while the file is read.
    file: Mutex<FollowedFile>,
    behind: Behind,
    state: RwLock<State>,
    /// Maximum number of verified tokens that are kept in addition to the tokens of running requests.
    kept_max: usize,
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
        let (file, verifier) = FollowedFile::open_owned(path, parse)?;
        Ok(Self {
            settings,
            behind: file.behind(),
            file: Mutex::new(file),
            state: RwLock::new(State {
                verifier: Arc::new(verifier),
                kept: HashMap::new(),
            }),
            kept_max: KEPT_MAX,
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
        if state.kept.len() >= self.kept_max {
            state.kept.retain(|_, kept| kept.principal.is_valid(now));
        }
        if state.kept.len() >= self.kept_max {
            // Dropped tokens are verified again. The tokens of running requests stay, so that these requests end
            // when their key is removed.
            state.kept.retain(|_, kept| is_in_use(kept));
        }
        let kept = state.kept.entry(hash).or_insert(verified);
        Ok(Arc::clone(&kept.principal))
    }

    /// Returns true if the newest version of the file is not in use.
    pub(crate) fn is_behind(&self) -> bool {
        self.behind.is_set()
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

/// Returns true if a running request uses the principal of a token, or a principal for a tenant that was derived
/// from it.
fn is_in_use(kept: &mut VerifiedJwt) -> bool {
    Arc::get_mut(&mut kept.principal).is_none_or(|principal| !principal.is_sole())
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use ring::rand::SystemRandom;
    use ring::signature::{Ed25519KeyPair, KeyPair as _};
    use serde_json::json;

    use super::*;

    fn encoded(bytes: impl AsRef<[u8]>) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn new_key() -> Ed25519KeyPair {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        Ed25519KeyPair::from_pkcs8(document.as_ref()).expect("a key")
    }

    fn sign(key: &Ed25519KeyPair, subject: &str, expires: i64) -> String {
        let header = json!({"alg": "EdDSA", "kid": "one"}).to_string();
        let claims = json!({
            "iss": "https://id.example", "aud": "tideline", "sub": subject, "exp": expires, "roles": ["reader"]
        });
        let message = format!("{}.{}", encoded(header), encoded(claims.to_string()));
        format!("{message}.{}", encoded(key.sign(message.as_bytes())))
    }

    #[test]
    fn the_removal_of_a_key_ends_all_tokens_in_use() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("jwks.json");
        let publish = |key: &Ed25519KeyPair| {
            let next = folder.path().join("next");
            let key = encoded(key.public_key());
            let keys = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": key}]});
            std::fs::write(&next, keys.to_string()).expect("a file");
            std::fs::rename(&next, &path).expect("replaced");
        };
        let key = new_key();
        publish(&key);
        let settings = JwtSettings {
            issuer: "https://id.example".to_owned(),
            audience: "tideline".to_owned(),
            roles_claim: "roles".to_owned(),
            tables_claim: None,
            models_claim: None,
            timelines_claim: None,
            tenants_claim: None,
        };
        let mut file = JwksFile::open(&path, settings).expect("valid keys");
        file.kept_max = 1;
        let now = Timestamp::parse_rfc3339("2026-11-20T12:00:00Z").expect("a time");
        let expires = now.nanos() / 1_000_000_000 + 600;
        let authenticate = |subject: &str| {
            let principal = file.authenticate(&sign(&key, subject, expires), now);
            principal.expect("a valid token")
        };
        drop(authenticate("tom"));
        let principals = ["ann", "bob", "eve"].map(authenticate);
        assert_eq!(
            file.state.read().kept.len(),
            3,
            "a token that is not in use is dropped"
        );
        publish(&new_key());
        assert!(file.follow());
        for principal in &principals {
            assert!(principal.is_revoked(), "{principal}");
            assert!(!principal.is_valid(now), "{principal}");
        }
    }
}
