//! Signing secret of a webhook, and the signature of a request.
//!
//! The signature is defined by Standard Webhooks 1.0: HMAC-SHA256 over `id.timestamp.body`, in base64, with the
//! prefix `v1,`. Receivers verify it with any library of that specification.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// Minimum length of a key in bytes.
const KEY_BYTES_MIN: usize = 16;
/// Maximum length of a key in bytes.
const KEY_BYTES_MAX: usize = 256;
/// Prefix of a secret in base64.
const PREFIX: &str = "whsec_";

/// Secret that signs the requests of a webhook. Has no method that returns the key; `Debug` and `Display` hide it.
#[derive(Clone)]
pub struct WebhookSecret {
    key: hmac::Key,
    /// Key that the secret replaces.
    previous: Option<hmac::Key>,
}

/// Error of a secret. The message does not repeat the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// The key is too short or too long.
    #[error(
        "the secret has {actual} bytes, {KEY_BYTES_MIN} to {KEY_BYTES_MAX} are allowed; use 32 random bytes"
    )]
    Length {
        /// Length of the key in bytes.
        actual: usize,
    },
    /// The text after `whsec_` is not base64.
    #[error("the secret begins with `whsec_`, but the rest is not valid base64; encode the key with padding")]
    Encoding,
}

impl WebhookSecret {
    /// Reads a secret. In the form `whsec_` followed by base64, the decoded bytes are the key, as in Standard
    /// Webhooks; libraries of receivers expect this form. For any other text, its bytes are the key.
    ///
    /// # Errors
    ///
    /// [`SecretError`] if the key has fewer than 16 or more than 256 bytes, or the text after `whsec_` is not base64.
    pub fn parse(text: &str) -> Result<Self, SecretError> {
        match text.strip_prefix(PREFIX) {
            Some(encoded) => {
                let key = STANDARD.decode(encoded).map_err(|_| SecretError::Encoding)?;
                Self::from_key(&key)
            }
            None => Self::from_key(text.as_bytes()),
        }
    }

    /// Returns the secret with this key.
    ///
    /// # Errors
    ///
    /// [`SecretError::Length`] if the key has fewer than 16 or more than 256 bytes.
    pub fn from_key(key: &[u8]) -> Result<Self, SecretError> {
        if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(SecretError::Length { actual: key.len() });
        }
        Ok(Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, key),
            previous: None,
        })
    }

    /// Returns the secret with an additional signature by the key of `previous`, so that receivers can replace their
    /// copy of the secret without refusing requests.
    #[must_use]
    pub fn replacing(mut self, previous: &Self) -> Self {
        self.previous = Some(previous.key.clone());
        self
    }

    /// Returns the value of the header `webhook-signature`: one signature per key, separated by a space.
    pub fn signature(&self, id: &str, timestamp_seconds: i64, body: &[u8]) -> String {
        let signed = |key: &hmac::Key| {
            let mut context = hmac::Context::with_key(key);
            context.update(format!("{id}.{timestamp_seconds}.").as_bytes());
            context.update(body);
            format!("v1,{}", STANDARD.encode(context.sign()))
        };
        let signatures: Vec<String> = [Some(&self.key), self.previous.as_ref()]
            .into_iter()
            .flatten()
            .map(signed)
            .collect();
        signatures.join(" ")
    }
}

impl fmt::Display for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(secret)")
    }
}
