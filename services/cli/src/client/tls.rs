//! TLS connections to a server: trusted certificates, and messages for failed handshakes.
//!
//! Without a file of authorities, the authorities of the system are trusted; with a file, only the authorities in it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::error::{CliError, Result};

/// Returns the TLS configuration of `https://` connections. `ca_file` holds certificates of authorities in PEM.
pub(super) fn config(ca_file: Option<&Path>) -> Result<TlsConfig> {
    let roots = match ca_file {
        Some(path) => RootCerts::from(authorities(path)?),
        None => RootCerts::PlatformVerifier,
    };
    let builder = TlsConfig::builder().root_certs(roots);
    let provider = Arc::new(ring::default_provider());
    Ok(builder.unversioned_rustls_crypto_provider(provider).build())
}

fn authorities(path: &Path) -> Result<Vec<Certificate<'static>>> {
    let bytes = fs::read(path).map_err(|error| CliError::file(path, error))?;
    let mut found = Vec::new();
    for item in parse_pem(&bytes) {
        match item {
            Ok(PemItem::Certificate(certificate)) => found.push(certificate),
            Ok(_) => {}
            Err(error) => return Err(unusable(path, &error.to_string())),
        }
    }
    match found.is_empty() {
        true => Err(unusable(path, "it contains no certificate")),
        false => Ok(found),
    }
}

fn unusable(path: &Path, reason: &str) -> CliError {
    CliError::usage(format!(
        "{}: {reason}; --ca requires a PEM file of certificates (-----BEGIN CERTIFICATE-----)",
        path.display()
    ))
}

/// Returns the reason if `error` is a failure of TLS; `None` for other errors.
pub(super) fn failure(error: &ureq::Error) -> Option<String> {
    let error = match error {
        ureq::Error::Rustls(error) => error,
        ureq::Error::Io(error) => error.get_ref()?.downcast_ref()?,
        ureq::Error::Tls(reason) => return Some((*reason).to_owned()),
        _ => return None,
    };
    Some(match error {
        rustls::Error::InvalidCertificate(reason) => {
            format!(
                "its certificate is not trusted ({reason}); pass its authority's certificate file by --ca"
            )
        }
        rustls::Error::InvalidMessage(_) => {
            "it does not use TLS; use http:// to connect in clear text".to_owned()
        }
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ca.pem");
        assert_eq!(config(Some(&path)).expect_err("no file").exit_status(), 1);
        for text in [
            "",
            "no PEM",
            "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
        ] {
            fs::write(&path, text).expect("a file");
            let error = config(Some(&path)).expect_err(text);
            assert_eq!(error.exit_status(), 2, "{error}");
            assert!(error.to_string().contains("--ca"), "{error}");
        }
    }
}
