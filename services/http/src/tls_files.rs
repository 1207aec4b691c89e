//! Certificate and private key of the listener, read from files that are followed.
//!
//! A renewal replaces two files, one after the other. While they do not belong together, the previous pair stays in use.

use parking_lot::Mutex;
use tideline_connections::Tls;

use crate::followed_file::FollowedFile;
use crate::settings::TlsSettings;

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
    /// Fails with the reason if a file is refused, or they do not hold a certificate and its key.
    pub(crate) fn open(settings: &TlsSettings) -> Result<Self, String> {
        let whole = |bytes: &[u8]| Ok(bytes.to_vec());
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
        let whole = |bytes: &[u8]| Ok(bytes.to_vec());
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
