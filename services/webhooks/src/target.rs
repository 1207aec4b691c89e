//! Target of a webhook: the address of a receiver, checked against the settings of the operator.
//!
//! The path and the query of an address may contain a secret of the receiver. `Debug`, `Display` and error messages
//! show only scheme, host and port.

use std::fmt;
use std::net::IpAddr;

use url::{Host, Url};

use crate::WebhookSettings;

/// Maximum length of an address in bytes.
pub const URL_BYTES_MAX: usize = 2048;

/// Address of a receiver that the settings allow. Its name has not been resolved.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    url: Url,
}

/// Error of an address that is not a valid target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The operator allows no hosts.
    #[error("webhooks are off; the operator turns them on by listing allowed hosts in `webhooks.hosts`")]
    Off,
    /// The address is too long.
    #[error("the address has {actual} bytes, at most {URL_BYTES_MAX} are allowed; shorten its path or query")]
    TooLong {
        /// Length of the address in bytes.
        actual: usize,
    },
    /// The address contains characters that parsers of addresses remove.
    #[error("the address contains spaces or control characters; percent-encode or remove them")]
    Spaces,
    /// The address is not a URL.
    #[error("not a valid address ({reason}); use https://host/path")]
    NotAUrl {
        /// Reason of the parser.
        reason: String,
    },
    /// The scheme is not supported.
    #[error("scheme {scheme:?} is not allowed in an address; use https")]
    Scheme {
        /// Scheme of the address.
        scheme: String,
    },
    /// Plain HTTP to a host that is not in a listed network.
    #[error(
        "http is allowed only for hosts in a network that the operator lists in `webhooks.networks`; use https"
    )]
    PlainHttp,
    /// The address contains a user name or a password.
    #[error(
        "the address contains a user name or password; remove it, receivers verify the signature instead"
    )]
    UserInfo,
    /// The address has a fragment.
    #[error("the address contains a fragment (`#…`), which is never sent; remove it")]
    Fragment,
    /// The port is 0.
    #[error("port 0 is not allowed; use a port from 1 to 65535, or none for the default port")]
    PortZero,
    /// The host name ends with a dot.
    #[error("host {host:?} ends with a dot; remove it")]
    TrailingDot {
        /// Host of the address.
        host: String,
    },
    /// The host is not in the list of the operator.
    #[error("host {host:?} is not allowed; use a host that the operator lists in `webhooks.hosts`")]
    HostNotAllowed {
        /// Host of the address.
        host: String,
    },
    /// The host is an IP address that is neither public nor in a listed network.
    #[error(
        "address {address} is not public; use a public address, or one in a network that the operator lists in \
         `webhooks.networks`"
    )]
    AddressNotAllowed {
        /// IP address in the text.
        address: IpAddr,
    },
}

impl TargetError {
    /// Returns true if other settings of the operator could allow the address; false if it is never allowed.
    pub fn is_not_allowed(&self) -> bool {
        match self {
            Self::Off | Self::PlainHttp | Self::HostNotAllowed { .. } | Self::AddressNotAllowed { .. } => {
                true
            }
            Self::TooLong { .. }
            | Self::Spaces
            | Self::NotAUrl { .. }
            | Self::Scheme { .. }
            | Self::UserInfo
            | Self::Fragment
            | Self::PortZero
            | Self::TrailingDot { .. } => false,
        }
    }
}

impl Target {
    /// Parses and checks an address. Does not resolve its name: the addresses of a name are checked by each connection.
    ///
    /// The scheme is `https`, or `http` for hosts in a listed network. User names, passwords and fragments are refused.
    /// A host that is an IP address must be listed as such, and must be public or in a listed network.
    ///
    /// # Errors
    ///
    /// [`TargetError`] with the reason. Its message does not repeat path and query.
    pub fn parse(text: &str, settings: &WebhookSettings) -> Result<Self, TargetError> {
        if settings.hosts.is_empty() {
            return Err(TargetError::Off);
        }
        if text.len() > URL_BYTES_MAX {
            return Err(TargetError::TooLong { actual: text.len() });
        }
        if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err(TargetError::Spaces);
        }
        let url = Url::parse(text).map_err(|error| TargetError::NotAUrl {
            reason: error.to_string(),
        })?;
        // Other characters become longer when they are percent-encoded.
        if url.as_str().len() > URL_BYTES_MAX {
            return Err(TargetError::TooLong {
                actual: url.as_str().len(),
            });
        }
        let target = Self { url };
        target.check(settings)?;
        Ok(target)
    }

    /// Checks the address against settings, which may have changed since it was parsed.
    pub(crate) fn check(&self, settings: &WebhookSettings) -> Result<(), TargetError> {
        let url = &self.url;
        if settings.hosts.is_empty() {
            return Err(TargetError::Off);
        }
        let is_plain = match url.scheme() {
            "https" => false,
            "http" => true,
            scheme => {
                return Err(TargetError::Scheme {
                    scheme: scheme.to_owned(),
                });
            }
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(TargetError::UserInfo);
        }
        if url.fragment().is_some() {
            return Err(TargetError::Fragment);
        }
        if url.port() == Some(0) {
            return Err(TargetError::PortZero);
        }
        let host = url.host().ok_or_else(|| TargetError::NotAUrl {
            reason: "it has no host".to_owned(),
        })?;
        let address = match host {
            Host::Domain(name) if name.ends_with('.') => {
                return Err(TargetError::TrailingDot {
                    host: name.to_owned(),
                });
            }
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(IpAddr::V4(address)),
            Host::Ipv6(address) => Some(IpAddr::V6(address)),
        };
        if !settings.hosts.iter().any(|pattern| pattern.matches(&host)) {
            return Err(TargetError::HostNotAllowed {
                host: host.to_string(),
            });
        }
        let filter = settings.address_filter();
        if is_plain && address.map_or(filter.lists_nothing(), |address| !filter.lists(address)) {
            return Err(TargetError::PlainHttp);
        }
        if let Some(address) = address.filter(|address| !filter.allows(*address)) {
            return Err(TargetError::AddressNotAllowed { address });
        }
        Ok(())
    }

    /// Returns the whole address with path and query, which may contain a secret of the receiver.
    pub fn as_str(&self) -> &str {
        self.url.as_str()
    }

    /// Returns the host: a name, or an IP address (IPv6 in brackets).
    pub fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// Returns true if the scheme is `http`.
    pub(crate) fn is_plain(&self) -> bool {
        self.url.scheme() == "http"
    }
}

/// Formats scheme, host and port, for logs.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.url.scheme(), self.host())?;
        self.url.port().map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self}/…)")
    }
}
