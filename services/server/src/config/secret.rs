//! A text that must not be shown.

use std::fmt;

/// A token. It has neither `Display` nor a telling `Debug`, so that it cannot slip into a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

/// Fewest bytes of a token.
const TOKEN_BYTES_MIN: usize = tideline_http::Secret::LENGTH_MIN;

impl Secret {
    /// Takes a token: at least 16 characters, and only those that an `Authorization` header may carry.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        if text.len() < TOKEN_BYTES_MIN {
            return Err(format!(
                "a token has at least {TOKEN_BYTES_MIN} characters, this one has {}",
                text.len()
            ));
        }
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
        match text.bytes().all(is_allowed) {
            true => Ok(Self(text.into())),
            false => Err("a token has only letters, digits and -._~+/=".to_owned()),
        }
    }

    /// The same for the HTTP service, which only compares.
    pub(crate) fn guarded(&self) -> tideline_http::Secret {
        tideline_http::Secret::new(&*self.0)
            .expect("what is taken here is at least as long, and without blanks")
    }

    /// The token itself, for sending.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("********")
    }
}
