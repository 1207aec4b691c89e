//! Patterns of host names that the operator allows.
//!
//! Names are compared in the form that the URL standard defines: lower case, international names in Punycode. IP
//! addresses are compared as numbers, so every notation of a listed address matches, and no other address does.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use url::Host;

/// Pattern of allowed hosts: a name (`hooks.example.com`), the names below a domain (`*.example.com`), or an IP
/// address (`192.0.2.7`, `2001:db8::7`).
///
/// `*.example.com` matches names with one or more labels before `example.com`, but not `example.com`.
///
/// # Examples
///
/// ```
/// use tideline_webhooks::HostPattern;
///
/// let pattern: HostPattern = "*.Example.com".parse()?;
/// assert_eq!(pattern.to_string(), "*.example.com");
/// assert!("*".parse::<HostPattern>().is_err());
/// # Ok::<(), tideline_webhooks::NotAHostPattern>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern(Form);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    Name(String),
    /// Domain with a leading dot.
    Below(String),
    Address(IpAddr),
}

/// Error of a text that is not a pattern of hosts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a host: {reason}; use hooks.example.com, *.example.com or an IP address")]
pub struct NotAHostPattern {
    text: String,
    reason: &'static str,
}

impl HostPattern {
    /// Returns true if the pattern allows `host`.
    pub(crate) fn matches(&self, host: &Host<&str>) -> bool {
        match (&self.0, host) {
            (Form::Name(allowed), Host::Domain(name)) => allowed == name,
            (Form::Below(domain), Host::Domain(name)) => {
                let prefix = name.strip_suffix(domain.as_str());
                prefix.is_some_and(|prefix| !prefix.is_empty() && !prefix.starts_with('.'))
            }
            (Form::Address(allowed), Host::Ipv4(address)) => *allowed == IpAddr::V4(*address),
            (Form::Address(allowed), Host::Ipv6(address)) => *allowed == IpAddr::V6(*address),
            _ => false,
        }
    }
}

impl FromStr for HostPattern {
    type Err = NotAHostPattern;

    fn from_str(text: &str) -> Result<Self, NotAHostPattern> {
        let error = |reason| NotAHostPattern {
            text: text.to_owned(),
            reason,
        };
        let bare = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(text);
        if let Ok(address) = bare.parse() {
            return Ok(Self(Form::Address(address)));
        }
        if text == "*" || text == "*." {
            return Err(error("a wildcard for all hosts is not allowed"));
        }
        let (is_below, name) = match text.strip_prefix("*.") {
            Some(domain) => (true, domain),
            None => (false, text),
        };
        if name.contains('*') {
            return Err(error("a wildcard stands for whole labels at the beginning"));
        }
        if name.contains(['/', ':', '@', '?', '#']) {
            return Err(error("scheme, port, user and path are not part of it"));
        }
        if name.starts_with('.') || name.ends_with('.') || name.contains("..") {
            return Err(error("it has an empty label"));
        }
        match Host::parse(name) {
            Ok(Host::Domain(name)) if is_below => Ok(Self(Form::Below(format!(".{name}")))),
            Ok(Host::Domain(name)) => Ok(Self(Form::Name(name))),
            Ok(Host::Ipv4(address)) if !is_below => Ok(Self(Form::Address(address.into()))),
            _ => Err(error("the name is not valid")),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Name(name) => f.write_str(name),
            Form::Below(domain) => write!(f, "*{domain}"),
            Form::Address(address) => address.fmt(f),
        }
    }
}
