//! Settings of TLS, and their validation.
//!
//! A new installation listens beyond this machine in clear text only if a setting gives the reason. An installation of
//! an earlier release gets a warning.

use std::path::PathBuf;
use std::str::FromStr;

use tideline_http::TlsSettings;

use super::sources::Problem;
use super::{Config, Resolved};
use crate::installation::{self, TLS_RULE};

/// Reason why the connections of a server are in clear text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClearText {
    /// A proxy in front of the server has TLS.
    Proxy,
    /// TLS is switched off.
    Off,
}

impl ClearText {
    /// Returns the name used in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Proxy => "proxy",
            Self::Off => "off",
        }
    }
}

impl FromStr for ClearText {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        [Self::Proxy, Self::Off]
            .into_iter()
            .find(|reason| reason.name() == name)
            .ok_or_else(|| {
                format!("{name:?} is neither proxy nor off; a certificate (http.tls_certificate_file) switches TLS on")
            })
    }
}

/// Settings of TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsConfig {
    /// File of the certificate; without it, connections are in clear text.
    pub certificate_file: Option<PathBuf>,
    /// File of the private key.
    pub key_file: Option<PathBuf>,
    /// Reason for clear text, if the configuration names one.
    pub clear_text: Option<ClearText>,
}

impl TlsConfig {
    /// Returns the settings of the HTTP service; `None` for connections in clear text.
    pub(super) fn settings(&self) -> Option<TlsSettings> {
        Some(TlsSettings {
            certificate_file: self.certificate_file.clone()?,
            key_file: self.key_file.clone()?,
        })
    }
}

impl Config {
    /// Returns true if other machines can connect in clear text, and no setting allows it.
    fn is_exposed(&self) -> bool {
        self.is_public() && self.tls.settings().is_none() && self.tls.clear_text.is_none()
    }

    /// Returns a warning about clear text in an installation of an earlier release, if it applies.
    pub(super) fn clear_text_warning(&self) -> Option<String> {
        (self.is_exposed() && installation::is_earlier(&self.data_dir, TLS_RULE)).then(|| {
            format!(
                "connections to {} are in clear text, so tokens and data can be read on the way: {REMEDIES}; the next \
                 major version does not start without one of them",
                self.listen
            )
        })
    }
}

/// Settings that end the refusal or the warning, for messages.
const REMEDIES: &str = "set a certificate (http.tls_certificate_file; `tideline tls self-signed` makes one), or \
                        http.tls = \"proxy\" behind a proxy that has one, or http.tls = \"off\"";

impl Resolved {
    /// Returns a problem if a new installation listens beyond this machine in clear text, otherwise `None`.
    pub(super) fn clear_text(&self) -> Option<Problem> {
        let config = &self.config;
        (config.is_exposed() && !installation::is_earlier(&config.data_dir, TLS_RULE)).then(|| {
            Problem::at(
                self.origin("server.listen"),
                format!(
                    "{} can be reached from other machines, but in clear text: {REMEDIES}",
                    config.listen
                ),
            )
        })
    }

    /// Returns a problem if only one of certificate and key is set, or if TLS is both set and switched off,
    /// otherwise `None`.
    pub(super) fn unusable_tls(&self) -> Option<Problem> {
        let TlsConfig {
            certificate_file,
            key_file,
            clear_text,
        } = &self.config.tls;
        let (set, reason) = match (certificate_file, key_file) {
            (None, None) => return None,
            (Some(_), None) => (
                "http.tls_certificate_file",
                "http.tls_certificate_file needs http.tls_key_file, the private key of the certificate",
            ),
            (None, Some(_)) => (
                "http.tls_key_file",
                "http.tls_key_file needs http.tls_certificate_file, the certificate of the key",
            ),
            (Some(_), Some(_)) if clear_text.is_some() => (
                "http.tls",
                "http.tls selects clear text, but http.tls_certificate_file is set: remove one of them",
            ),
            (Some(_), Some(_)) => return None,
        };
        Some(Problem::at(self.origin(set), reason.to_owned()))
    }
}
