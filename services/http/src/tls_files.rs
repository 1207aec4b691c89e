//! Certificates in files that are read again when they change: the certificate of the listener with its private
//! key, and the certificates of the authorities of other servers.
//!
//! A renewal replaces the certificate and the key one after the other. While they do not match, the previous
//! pair stays in use.

use parking_lot::Mutex;
use tideline_connections::Tls;
use tideline_connections::forward::Forwarder;

use crate::followed_file::FollowedFile;
use crate::settings::{HttpSettings, TlsSettings};

/// Files of a certificate and its key.
#[derive(Debug)]
pub(crate) struct TlsFiles {
    tls: Tls,
    files: Mutex<Files>,
}

#[derive(Debug)]
struct Files {
    certificate: FollowedFile,
    key: FollowedFile,
    certificate_pem: Vec<u8>,
    key_pem: Vec<u8>,
}

impl TlsFiles {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// Fails with the reason if a file is refused, or if the files do not contain a certificate and its key.
    pub(crate) fn open(settings: &TlsSettings) -> Result<Self, String> {
        let (certificate, certificate_pem) = FollowedFile::open(&settings.certificate_file, whole)?;
        let (key, key_pem) = FollowedFile::open_secret(&settings.key_file, whole)?;
        let tls = Tls::new(&certificate_pem, &key_pem).map_err(|error| {
            format!(
                "{} and {}: {error}",
                settings.certificate_file.display(),
                settings.key_file.display()
            )
        })?;
        let files = Mutex::new(Files {
            certificate,
            key,
            certificate_pem,
            key_pem,
        });
        Ok(Self { tls, files })
    }

    /// Returns the certificate and key for the listener.
    pub(crate) fn tls(&self) -> Tls {
        self.tls.clone()
    }

    /// Reads the files again if they have changed. A pair that cannot be used is logged, and changes nothing.
    pub(crate) fn follow(&self) {
        let mut files = self.files.lock();
        let (certificate, key) = (files.certificate.follow(whole), files.key.follow(whole));
        if certificate.is_none() && key.is_none() {
            return;
        }
        files.certificate_pem = certificate.unwrap_or_else(|| std::mem::take(&mut files.certificate_pem));
        files.key_pem = key.unwrap_or_else(|| std::mem::take(&mut files.key_pem));
        match self.tls.replace(&files.certificate_pem, &files.key_pem) {
            Ok(()) => tracing::info!("the changed certificate is in use"),
            Err(error) => {
                tracing::warn!(%error, "the changed certificate is refused; the previous one stays");
            }
        }
    }
}

/// File with the certificates of the authorities that a forwarder trusts.
#[derive(Debug)]
pub(crate) struct AuthoritiesFile {
    forwarder: Forwarder,
    /// `None` if the settings name no such file and the listener has no certificate.
    file: Mutex<Option<FollowedFile>>,
}

impl AuthoritiesFile {
    /// Reads the file of the settings, and creates a forwarder that trusts its authorities.
    ///
    /// # Errors
    ///
    /// Fails with the reason if the file is refused, or has no valid certificates.
    pub(crate) fn open(settings: &HttpSettings) -> Result<Self, String> {
        let own = settings.tls.as_ref().map(|tls| &tls.certificate_file);
        let parse = |pem: &[u8]| Forwarder::new(Some(pem)).map_err(|error| error.to_string());
        let (file, forwarder) = match settings.servers_ca_file.as_ref().or(own) {
            None => (None, Forwarder::new(None).map_err(|error| error.to_string())?),
            Some(path) => {
                let (file, forwarder) = FollowedFile::open(path, parse)?;
                (Some(file), forwarder)
            }
        };
        Ok(Self {
            forwarder,
            file: Mutex::new(file),
        })
    }

    /// Returns the forwarder.
    pub(crate) fn forwarder(&self) -> Forwarder {
        self.forwarder.clone()
    }

    /// Reads the file again if it has changed. A file that cannot be used is logged, and changes nothing.
    pub(crate) fn follow(&self) {
        if let Some(file) = &mut *self.file.lock() {
            let trust = |pem: &[u8]| self.forwarder.trust(pem).map_err(|error| error.to_string());
            file.follow(trust);
        }
    }
}

fn whole(bytes: &[u8]) -> Result<Vec<u8>, String> {
    Ok(bytes.to_vec())
}
