//! Settings of TLS, and their validation.

use std::path::PathBuf;

use tideline_http::TlsSettings;

use super::Resolved;
use super::sources::Problem;

/// Settings of TLS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsConfig {
    /// File of the certificate; without it, connections are in clear text.
    pub certificate_file: Option<PathBuf>,
    /// File of the private key.
    pub key_file: Option<PathBuf>,
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

impl Resolved {
    /// Returns a problem if only one of certificate and key is set, otherwise `None`.
    pub(super) fn unusable_tls(&self) -> Option<Problem> {
        let TlsConfig {
            certificate_file,
            key_file,
        } = &self.config.tls;
        let (set, reason) = match (certificate_file, key_file) {
            (None, None) | (Some(_), Some(_)) => return None,
            (Some(_), None) => (
                "http.tls_certificate_file",
                "http.tls_certificate_file needs http.tls_key_file, the private key of the certificate",
            ),
            (None, Some(_)) => (
                "http.tls_key_file",
                "http.tls_key_file needs http.tls_certificate_file, the certificate of the key",
            ),
        };
        Some(Problem::at(self.origin(set), reason.to_owned()))
    }
}
