//! Encrypted connections, with the feature `tls`. Without the feature, encrypted connections are refused.
//!
//! The driver checks the certificate of each node for the IP address of the connection, even if the contact point is
//! a name.

use std::io;
use std::path::Path;

use scylla::client::session_builder::SessionBuilder;
use tideline_backend::{BackendError, Result};

/// Adds encryption to all connections. Certificates of nodes are checked against `ca_file`, or against the authorities
/// of the system.
#[cfg(not(feature = "tls"))]
pub(crate) fn encrypted(builder: SessionBuilder, ca_file: Option<&Path>) -> Result<SessionBuilder> {
    check(ca_file).map(|()| builder)
}

/// Refuses encrypted connections.
#[cfg(not(feature = "tls"))]
pub(crate) fn check(_ca_file: Option<&Path>) -> Result<()> {
    Err(BackendError::Misconfigured {
        reason:
            "this build has no encrypted connections to a cluster: use a released binary, or build it with \
                 `--features cassandra-tls`"
                .to_owned(),
    })
}

/// Adds encryption to all connections. Certificates of nodes are checked against `ca_file`, or against the authorities
/// of the system.
#[cfg(feature = "tls")]
pub(crate) fn encrypted(builder: SessionBuilder, ca_file: Option<&Path>) -> Result<SessionBuilder> {
    Ok(builder.tls_context(Some(std::sync::Arc::new(config(ca_file)?))))
}

/// Reads `ca_file`.
#[cfg(feature = "tls")]
pub(crate) fn check(ca_file: Option<&Path>) -> Result<()> {
    config(ca_file).map(drop)
}

/// Returns the required change after an encrypted connection has failed.
#[cfg(not(feature = "tls"))]
pub(crate) fn advice(_failure: &io::Error, _ca_file: Option<&Path>) -> String {
    "check cassandra.tls".to_owned()
}

/// Returns the required change after an encrypted connection has failed.
#[cfg(feature = "tls")]
pub(crate) fn advice(failure: &io::Error, ca_file: Option<&Path>) -> String {
    use rustls::{CertificateError, Error};

    let cause = failure.get_ref().and_then(|cause| cause.downcast_ref::<Error>());
    let advice = match cause {
        // The second error is that of another authority with the same name.
        Some(Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature)) => {
            let authorities = match ca_file {
                Some(file) => format!("{} (cassandra.ca_file)", file.display()),
                None => {
                    "the list of the system, which is used because cassandra.ca_file is not set".to_owned()
                }
            };
            return format!(
                "the authority of the node's certificate is not in {authorities}; set cassandra.ca_file to a PEM \
                 file with the authority"
            );
        }
        Some(Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => {
            "the certificate of each node must name the IP address at which clients reach the node, as a subject \
             alternative name; host names are not compared"
        }
        Some(Error::InvalidCertificate(_)) => "replace the certificate of the node",
        Some(Error::InvalidMessage(_)) => {
            "the node does not encrypt its connections; enable client_encryption_options on all nodes, or set \
             cassandra.tls to false"
        }
        _ => "check cassandra.tls and cassandra.ca_file",
    };
    advice.to_owned()
}

/// Returns the configuration of encrypted connections.
#[cfg(feature = "tls")]
fn config(ca_file: Option<&Path>) -> Result<rustls::ClientConfig> {
    use std::sync::Arc;

    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    use rustls_platform_verifier::BuilderVerifierExt;

    let wrong = |what: String| BackendError::Misconfigured { reason: what };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let settings = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(format!("TLS: {error}")))?;
    let config = match ca_file {
        None => settings
            .with_platform_verifier()
            .map_err(|error| wrong(format!("the certificates of the system: {error}")))?,
        Some(file) => {
            let at = |error: &dyn std::fmt::Display| wrong(format!("{}: {error}", file.display()));
            let pem = std::fs::read(file).map_err(|error| at(&error))?;
            let mut roots = rustls::RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let certificate = certificate.map_err(|error| at(&error))?;
                roots.add(certificate).map_err(|error| at(&error))?;
            }
            if roots.is_empty() {
                return Err(at(&"it holds no certificate (PEM)"));
            }
            settings.with_root_certificates(roots)
        }
    };
    Ok(config.with_no_client_auth())
}
