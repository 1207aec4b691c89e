//! Certificates in files that are read again when they change: the certificate of the listener with its private
//! key, and the certificates of the authorities of other servers.
//!
//! A renewal replaces the certificate and the key one after the other. While they do not match, the previous
//! pair stays in use. The log and `/ready` have a warning while the newest files are not in use, and before the end of
//! the certificate.

use parking_lot::Mutex;
use tideline_connections::Tls;
use tideline_connections::certificate::{self, Validity};
use tideline_connections::forward::Forwarder;
use tideline_engine::model::Timestamp;
use tideline_engine::model::time::NANOS_PER_SECOND;

use crate::followed_file::{FileKind, FollowedFile};
use crate::settings::{HttpSettings, TlsSettings};

/// Longest time before the end of the certificate from which on there is a warning, in seconds: 14 days.
const WARN_BEFORE_MAX: i64 = 14 * 86_400;
/// Divisor of the lifetime of a certificate: a short-lived certificate has a warning in its last quarter. Programs that
/// renew certificates usually do so after two thirds of the lifetime at the latest.
const WARN_BEFORE_PART: i64 = 4;

/// Files of a certificate and its key.
#[derive(Debug)]
pub(crate) struct TlsFiles {
    tls: Tls,
    /// Locked while the files are read.
    files: Mutex<Files>,
    /// Outcome of the last read. It is locked only for a moment, so that requests do not wait for the file system.
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    /// Files whose newest version is not in use.
    behind: Vec<FileKind>,
    /// Validity of the certificate in use that ends first. `None` if it cannot be read.
    validity: Option<Validity>,
}

#[derive(Debug)]
struct Files {
    certificate: FollowedFile,
    key: FollowedFile,
    certificate_pem: Vec<u8>,
    key_pem: Vec<u8>,
    /// True if the newest certificate and the newest key cannot be used together.
    is_refused: bool,
    /// Validity of the certificate in use that ends first. `None` if it cannot be read.
    validity: Option<Validity>,
    /// State of the end that was last logged.
    logged: Expiry,
}

/// State of a certificate with respect to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expiry {
    Distant,
    Near,
    Over,
}

impl Expiry {
    fn of(validity: Option<Validity>, now: Timestamp) -> Self {
        let Some(Validity { begins, ends }) = validity else {
            return Self::Distant;
        };
        let before = (ends.saturating_sub(begins) / WARN_BEFORE_PART).min(WARN_BEFORE_MAX);
        match ends.saturating_sub(now.nanos().div_euclid(NANOS_PER_SECOND)) {
            ..=0 => Self::Over,
            left if left <= before => Self::Near,
            _ => Self::Distant,
        }
    }
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
        let files = Files {
            certificate,
            key,
            is_refused: false,
            validity: certificate::first_validity(&certificate_pem),
            logged: Expiry::Distant,
            certificate_pem,
            key_pem,
        };
        Ok(Self {
            tls,
            seen: Mutex::new(files.seen()),
            files: Mutex::new(files),
        })
    }

    /// Returns the certificate and key for the listener.
    pub(crate) fn tls(&self) -> Tls {
        self.tls.clone()
    }

    /// Returns the end of the certificate in use, in seconds since the epoch; of the certificate of the file that ends
    /// first. `None` if it cannot be read.
    pub(crate) fn ends(&self) -> Option<i64> {
        self.seen.lock().validity.map(|validity| validity.ends)
    }

    /// Returns the files whose newest version is not in use.
    pub(crate) fn files_behind(&self) -> Vec<FileKind> {
        self.seen.lock().behind.clone()
    }

    /// Returns the warning for `/ready` about the end of the certificate: from 14 days before the end, or in the last
    /// quarter of a shorter lifetime.
    pub(crate) fn end_warning(&self, now: Timestamp) -> Option<String> {
        let validity = self.seen.lock().validity;
        let verb = match Expiry::of(validity, now) {
            Expiry::Distant => return None,
            Expiry::Near => "ends",
            Expiry::Over => "ended",
        };
        let at = shown(validity?.ends);
        Some(format!(
            "http.tls_certificate_file: the certificate {verb} at {at}; replace the file, which needs no restart"
        ))
    }

    /// Reads the files again if they have changed. A pair that cannot be used is logged, and changes nothing. Also logs
    /// when the end of the certificate is near, and when it is reached.
    pub(crate) fn follow(&self, now: Timestamp) {
        let mut files = self.files.lock();
        self.replace_changed(&mut files);
        *self.seen.lock() = files.seen();
        let expiry = Expiry::of(files.validity, now);
        if expiry == files.logged {
            return;
        }
        files.logged = expiry;
        let ends = files.validity.map(|validity| shown(validity.ends));
        match expiry {
            Expiry::Distant => {}
            Expiry::Near => tracing::warn!(ends, "a certificate of the file ends soon; replace the file"),
            Expiry::Over => tracing::warn!(
                ends,
                "a certificate of the file has ended; clients may refuse it; replace the file"
            ),
        }
    }

    fn replace_changed(&self, files: &mut Files) {
        let (certificate, key) = (files.certificate.follow(whole), files.key.follow(whole));
        if certificate.is_none() && key.is_none() {
            return;
        }
        files.certificate_pem = certificate.unwrap_or_else(|| std::mem::take(&mut files.certificate_pem));
        files.key_pem = key.unwrap_or_else(|| std::mem::take(&mut files.key_pem));
        match self.tls.replace(&files.certificate_pem, &files.key_pem) {
            Ok(()) => {
                tracing::info!("the changed certificate is in use");
                files.is_refused = false;
                files.validity = certificate::first_validity(&files.certificate_pem);
            }
            Err(error) => {
                tracing::warn!(%error, "the changed certificate is refused; the previous one stays");
                files.is_refused = true;
            }
        }
    }
}

impl Files {
    /// Returns what requests see of the files.
    fn seen(&self) -> Seen {
        let certificate = self.certificate.is_behind() || self.is_refused;
        let behind = [
            certificate.then_some(FileKind::Certificate),
            self.key.is_behind().then_some(FileKind::Key),
        ];
        Seen {
            behind: behind.into_iter().flatten().collect(),
            validity: self.validity,
        }
    }
}

/// File with the certificates of the authorities that a forwarder trusts.
#[derive(Debug)]
pub(crate) struct AuthoritiesFile {
    forwarder: Forwarder,
    /// `None` if the settings name no such file and the listener has no certificate.
    file: Mutex<Option<FollowedFile>>,
    /// True if the settings name the file. Otherwise it is the certificate of the listener.
    is_named: bool,
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
            is_named: settings.servers_ca_file.is_some(),
        })
    }

    /// Returns the forwarder.
    pub(crate) fn forwarder(&self) -> Forwarder {
        self.forwarder.clone()
    }

    /// Returns the file of authorities if its newest version is not in use.
    pub(crate) fn file_behind(&self) -> Option<FileKind> {
        let file = self.file.lock();
        let is_behind = self.is_named && file.as_ref().is_some_and(FollowedFile::is_behind);
        is_behind.then_some(FileKind::Authorities)
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

/// Returns a time in seconds since the epoch as text.
fn shown(seconds: i64) -> String {
    Timestamp::from_nanos_clamped(seconds.saturating_mul(NANOS_PER_SECOND)).to_rfc3339()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    /// Replaces a file that only its owner can read.
    fn replace(path: &Path, text: &str) {
        let staged = path.with_extension("staged");
        fs::write(&staged, text).expect("a file");
        fs::set_permissions(&staged, fs::Permissions::from_mode(0o600)).expect("a mode");
        fs::rename(&staged, path).expect("renamed");
    }

    /// Makes a certificate that is valid from 2020 on and ends on this day, and its key.
    fn made(year: i32, month: u8, day: u8) -> (String, String) {
        made_for((2020, 1, 1), (year, month, day))
    }

    /// Makes a certificate that is valid from the first of these days until the second one, and its key.
    fn made_for(begin: (i32, u8, u8), end: (i32, u8, u8)) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        params.not_before = date_time_ymd(begin.0, begin.1, begin.2);
        params.not_after = date_time_ymd(end.0, end.1, end.2);
        let certificate = params.self_signed(&key).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    fn at(text: &str) -> Timestamp {
        Timestamp::parse_rfc3339(text).expect("a time")
    }

    #[test]
    fn the_end_and_refused_files_are_reported_until_a_valid_pair_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = TlsSettings {
            certificate_file: folder.path().join("tls.crt"),
            key_file: folder.path().join("tls.key"),
        };
        let (old, old_key) = made(2027, 3, 1);
        // The certificate that ends first counts, whichever its place in the file is.
        let (later, _) = made(2050, 1, 1);
        replace(&settings.certificate_file, &format!("{old}{later}"));
        replace(&settings.key_file, &old_key);
        let files = TlsFiles::open(&settings).expect("valid files");
        assert_eq!(files.ends(), Some(1_803_859_200));
        assert_eq!(files.end_warning(at("2027-02-14T23:59:59Z")), None);
        let near = files.end_warning(at("2027-02-15T00:00:00Z")).expect("a warning");
        assert!(near.contains("ends at 2027-03-01T00:00:00Z"), "{near}");
        let over = files.end_warning(at("2027-03-01T00:00:00Z")).expect("a warning");
        assert!(over.contains("ended at 2027-03-01T00:00:00Z"), "{over}");

        let now = at("2027-02-20T00:00:00Z");
        files.follow(now);
        assert!(files.files_behind().is_empty());
        // The new certificate arrives before its key.
        let (new, new_key) = made(2051, 6, 15);
        replace(&settings.certificate_file, &new);
        files.follow(now);
        assert_eq!(files.files_behind(), [FileKind::Certificate]);
        assert_eq!(files.ends(), Some(1_803_859_200), "the old one is in use");
        replace(&settings.key_file, &new_key);
        fs::set_permissions(&settings.key_file, fs::Permissions::from_mode(0o644)).expect("a mode");
        files.follow(now);
        assert_eq!(files.files_behind(), [FileKind::Certificate, FileKind::Key]);
        replace(&settings.key_file, &new_key);
        files.follow(now);
        assert!(files.files_behind().is_empty());
        assert_eq!(files.ends(), Some(2_570_400_000));
        assert_eq!(files.end_warning(now), None);
        fs::remove_file(&settings.certificate_file).expect("removed");
        files.follow(now);
        // Requests do not wait while the files are read.
        let _reading = files.files.lock();
        assert_eq!(files.files_behind(), [FileKind::Certificate]);
        assert_eq!(files.ends(), Some(2_570_400_000));
        assert_eq!(files.end_warning(now), None);
    }

    #[test]
    fn a_certificate_with_a_short_lifetime_has_a_warning_in_its_last_quarter() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = TlsSettings {
            certificate_file: folder.path().join("tls.crt"),
            key_file: folder.path().join("tls.key"),
        };
        let (certificate, key) = made_for((2027, 3, 1), (2027, 3, 9));
        replace(&settings.certificate_file, &certificate);
        replace(&settings.key_file, &key);
        let files = TlsFiles::open(&settings).expect("valid files");
        assert_eq!(files.end_warning(at("2027-03-06T23:59:59Z")), None);
        assert!(files.end_warning(at("2027-03-07T00:00:00Z")).is_some());
    }
}
