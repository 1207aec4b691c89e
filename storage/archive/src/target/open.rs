//! Opening of targets from addresses: kind of store, path prefix, credentials.
//!
//! All remote stores get the same timeouts and retries, so that a caller waits for a limited time.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::{BackoffConfig, ClientConfigKey, ObjectStore, ObjectStoreScheme, RetryConfig};
use url::Url;

use super::{Requests, Target, Traffic, reasons};
use crate::error::{ArchiveError, Result, redacted};

/// Maximum time of one request including its body: a whole file over a slow connection.
const REQUEST_TIMEOUT: &str = "90 seconds";
/// Maximum time to connect.
const CONNECT_TIMEOUT: &str = "5 seconds";
/// Maximum time without data within a response.
const READ_TIMEOUT: &str = "30 seconds";
/// Retries after the first attempt of an idempotent request.
const RETRIES: usize = 4;
/// Time since the first attempt after which no further attempt starts.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// Options of a target with the names that `object_store` defines: credentials, endpoints, regions. `Debug` omits the
/// values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct TargetOptions(pub BTreeMap<String, String>);

impl fmt::Debug for TargetOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl TargetOptions {
    /// Reads a file of `name = value` lines. Converts names to lower case and removes double quotes around values.
    /// Skips empty lines and lines that begin with `#`.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::BadTarget`] if the file cannot be read, or a line has another form. The message does not repeat
    /// the line, because it may contain a secret.
    pub fn read(file: &FilePath) -> Result<Self> {
        let bad = |reason: String| ArchiveError::BadTarget {
            target: file.display().to_string(),
            reason,
        };
        let text = std::fs::read_to_string(file).map_err(|error| bad(format!("cannot be read: {error}")))?;
        let mut options = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines().map(str::trim)) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, value) = line
                .split_once('=')
                .ok_or_else(|| bad(format!("line {number} is not `name = value`")))?;
            let value = value.trim().trim_matches('"');
            options.insert(name.trim().to_ascii_lowercase(), value.to_owned());
        }
        Ok(Self(options))
    }
}

impl Target {
    /// Opens `file:///directory`, `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` (or `abfs://`),
    /// or `memory:`, which stores nothing permanently and is for tests. Sends no requests.
    ///
    /// Credentials come from `options`, the environment (`AWS_…`, `GOOGLE_…`, `AZURE_…`) or the role of the machine;
    /// the first source that has them is used. Files in a directory are synced.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::BadTarget`] if the address is not valid or not supported, or an option is unknown or not valid.
    pub(crate) fn open(text: &str, options: &TargetOptions, requests: Arc<Requests>) -> Result<Self> {
        let name = redacted(text);
        let bad = |reason: String| ArchiveError::BadTarget {
            target: name.clone(),
            reason,
        };
        let url = Url::parse(text).map_err(|error| {
            bad(format!(
                "{error}; use file:///directory, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"
            ))
        })?;
        // Azure addresses have the container name before the host.
        let has_user = !url.username().is_empty() && !url.scheme().starts_with("abfs");
        if has_user || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            return Err(bad(
                "credentials and options are not allowed in the address".into()
            ));
        }
        let (scheme, prefix) = ObjectStoreScheme::parse(&url).map_err(|error| bad(error.to_string()))?;
        let is_local = matches!(scheme, ObjectStoreScheme::Local);
        let failed = |error: object_store::Error| bad(redacted(&reasons(&error)));
        let unknown = |option: &str| bad(format!("option {option:?} is not known for this kind of target"));
        let store: Arc<dyn ObjectStore> = match scheme {
            ObjectStoreScheme::Local => {
                no_options(options).map_err(|option| unknown(&option))?;
                Arc::new(LocalFileSystem::new().with_fsync(true))
            }
            ObjectStoreScheme::Memory => Arc::new(InMemory::new()),
            ObjectStoreScheme::AmazonS3 => Arc::new(
                s3(text, options)
                    .map_err(|option| unknown(&option))?
                    .build()
                    .map_err(failed)?,
            ),
            ObjectStoreScheme::GoogleCloudStorage => Arc::new(
                google(text, options)
                    .map_err(|option| unknown(&option))?
                    .build()
                    .map_err(failed)?,
            ),
            ObjectStoreScheme::MicrosoftAzure => Arc::new(
                azure(text, options)
                    .map_err(|option| unknown(&option))?
                    .build()
                    .map_err(failed)?,
            ),
            _ => return Err(bad("this kind of target is not known".into())),
        };
        Ok(Self {
            name,
            store,
            prefix,
            is_local,
            requests,
            traffic: Traffic::default(),
        })
    }
}

/// Name of an unknown option.
type Unknown = String;

fn no_options(options: &TargetOptions) -> std::result::Result<(), Unknown> {
    options
        .0
        .keys()
        .next()
        .map_or(Ok(()), |option| Err(option.clone()))
}

fn retries() -> RetryConfig {
    use_ring();
    RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: RETRIES,
        retry_timeout: RETRY_TIMEOUT,
    }
}

/// Sets the TLS provider of the process. It is not an error if another one is set already.
fn use_ring() {
    let _set_before = rustls::crypto::ring::default_provider().install_default();
}

const TIMES: [(ClientConfigKey, &str); 3] = [
    (ClientConfigKey::Timeout, REQUEST_TIMEOUT),
    (ClientConfigKey::ConnectTimeout, CONNECT_TIMEOUT),
    (ClientConfigKey::ReadTimeout, READ_TIMEOUT),
];

fn s3(text: &str, options: &TargetOptions) -> std::result::Result<AmazonS3Builder, Unknown> {
    let mut builder = AmazonS3Builder::from_env()
        .with_url(text)
        .with_retry(retries())
        .with_checksum_algorithm(Checksum::SHA256);
    for (key, value) in TIMES {
        builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
    }
    for (name, value) in &options.0 {
        let key: AmazonS3ConfigKey = name.parse().map_err(|_| name.clone())?;
        builder = builder.with_config(key, value);
    }
    // An explicit http:// endpoint allows plain HTTP.
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
    if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
        builder = builder.with_config(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp), "true");
    }
    Ok(builder)
}

fn google(text: &str, options: &TargetOptions) -> std::result::Result<GoogleCloudStorageBuilder, Unknown> {
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_url(text)
        .with_retry(retries());
    for (key, value) in TIMES {
        builder = builder.with_config(GoogleConfigKey::Client(key), value);
    }
    for (name, value) in &options.0 {
        let key: GoogleConfigKey = name.parse().map_err(|_| name.clone())?;
        builder = builder.with_config(key, value);
    }
    Ok(builder)
}

fn azure(text: &str, options: &TargetOptions) -> std::result::Result<MicrosoftAzureBuilder, Unknown> {
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_url(text)
        .with_retry(retries());
    for (key, value) in TIMES {
        builder = builder.with_config(AzureConfigKey::Client(key), value);
    }
    for (name, value) in &options.0 {
        let key: AzureConfigKey = name.parse().map_err(|_| name.clone())?;
        builder = builder.with_config(key, value);
    }
    Ok(builder)
}
