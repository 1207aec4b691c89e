//! Token that is never printed.

use std::fmt;

/// Token. It has no `Display` and a masked `Debug`, so that it cannot appear in a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

/// Minimum length of a token, in bytes.
const TOKEN_BYTES_MIN: usize = tideline_http::Secret::LENGTH_MIN;

impl Secret {
    /// Validates a token: at least 16 characters, all of which are allowed in an `Authorization` header.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        if text.len() < TOKEN_BYTES_MIN {
            return Err(format!(
                "a token needs at least {TOKEN_BYTES_MIN} characters, this one has {}",
                text.len()
            ));
        }
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        match text.bytes().all(is_allowed) {
            true => Ok(Self(text.into())),
            false => Err("a token may only contain letters, digits and -._~+/=".to_owned()),
        }
    }

    /// Returns the token for the HTTP service, which only compares it.
    pub(crate) fn guarded(&self) -> tideline_http::Secret {
        tideline_http::Secret::new(&*self.0).expect("the token was validated by the same rules")
    }

    /// Returns the token itself, for sending it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("********")
    }
}
