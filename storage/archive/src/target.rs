//! A target: an object store with a few blocking operations.
//!
//! `object_store` implements S3 and compatible stores, Google Cloud Storage, Azure and directories. This module adds
//! puts that never replace an object, repeated reads and time limits. `object_store` is asynchronous, while all code
//! below `services/http` is blocking. A small runtime therefore drives the requests, and callers wait. The number of
//! requests in flight is limited.

mod check;
mod open;
mod requests;

use std::fmt;
use std::ops::Range;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use futures_util::future::try_join_all;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};

pub use check::{CheckStep, TargetCheck};
pub use open::TargetOptions;
use requests::RequestError;
pub(crate) use requests::Requests;

use crate::digest::sha256_hex;
use crate::error::{ArchiveError, Result, TargetFault, redacted};

/// Maximum number of attempts of a put. After each failed attempt the object is read back, because the put may have
/// succeeded.
const PUT_TRIES: usize = 3;
/// Maximum time for reading parts of an object, in addition to the time that their bytes take at
/// [`PARTS_BYTES_PER_SECOND_MIN`]. A query waits for the parts and occupies a thread of the query pool.
const PARTS_WITHIN: Duration = Duration::from_secs(10);
/// Minimum transfer rate of parts, in bytes per second.
const PARTS_BYTES_PER_SECOND_MIN: u64 = 1 << 20;
/// Maximum number of attempts of a read that returns fewer bytes than requested.
const GET_TRIES: usize = 3;

/// Object store with a path prefix.
pub struct Target {
    /// The redacted address, for messages.
    name: String,
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    /// True if the target is a local directory.
    is_local: bool,
    requests: Arc<Requests>,
    traffic: Traffic,
}

/// Counters of the requests to a target.
#[derive(Debug, Default)]
struct Traffic {
    gets: AtomicU64,
    bytes_got: AtomicU64,
    puts: AtomicU64,
    bytes_put: AtomicU64,
}

/// Numbers of requests and bytes of a target since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TargetTraffic {
    /// Number of read requests for content, one per range, including failed requests.
    pub gets: u64,
    /// Number of received content bytes.
    pub bytes_got: u64,
    /// Number of put requests, including failed requests.
    pub puts: u64,
    /// Number of content bytes of all put requests, including failed requests.
    pub bytes_put: u64,
}

/// Object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Object name, relative to the target.
    pub key: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of writing by the clock of the target, in nanoseconds since the epoch.
    pub modified: i64,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({})", self.name)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Target {
    /// Returns the traffic since the target was opened.
    pub fn traffic(&self) -> TargetTraffic {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TargetTraffic {
            gets: of(&self.traffic.gets),
            bytes_got: of(&self.traffic.bytes_got),
            puts: of(&self.traffic.puts),
            bytes_put: of(&self.traffic.bytes_put),
        }
    }

    /// Writes a new object. On success the object has exactly this content, written by this call or by an earlier call
    /// whose response was lost.
    ///
    /// # Errors
    ///
    /// Fails if the target denies the request or cannot be reached. [`ArchiveError::Damaged`] if an object of this name
    /// has other content.
    pub(crate) fn put_new(&self, key: &str, content: &Bytes) -> Result<()> {
        let mut failure = None;
        for _ in 0..PUT_TRIES {
            match self.put_once(key, content, PutMode::Create) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    // The put may have succeeded despite the error. An "exists" error may also be returned although no
                    // object was stored.
                    match self.holds(key, content) {
                        Ok(true) => return Ok(()),
                        Ok(false) => {}
                        Err(looked) if looked.is_retryable() => return Err(error),
                        Err(looked) => return Err(looked),
                    }
                    let is_final = matches!(
                        &error,
                        ArchiveError::Target {
                            kind: TargetFault::Refused | TargetFault::Missing,
                            ..
                        }
                    );
                    if is_final {
                        return Err(error);
                    }
                    failure = Some(error);
                }
            }
        }
        Err(failure.expect("a try that does not return has failed"))
    }

    /// Returns true if an object exists with this content, and false if it is missing. Other content is an error.
    fn holds(&self, key: &str, content: &Bytes) -> Result<bool> {
        let found = match self.get(key, content.len() as u64) {
            Ok(found) => found,
            Err(error) if error.is_missing() => return Ok(false),
            Err(error) => return Err(error),
        };
        if found.len() == content.len() && sha256_hex(&found) == sha256_hex(content) {
            return Ok(true);
        }
        Err(self.damaged(key, "an object of this name has other content"))
    }

    pub(crate) fn put_once(&self, key: &str, content: &Bytes, mode: PutMode) -> Result<()> {
        let (store, path) = (Arc::clone(&self.store), self.path(key));
        let payload = PutPayload::from_bytes(content.clone());
        self.traffic.puts.fetch_add(1, Ordering::Relaxed);
        self.traffic
            .bytes_put
            .fetch_add(content.len() as u64, Ordering::Relaxed);
        let options = PutOptions::from(mode);
        self.requests
            .run(async move { store.put_opts(&path, payload, options).await })
            .map(drop)
            .map_err(|error| self.failed("put", key, &error))
    }

    /// Reads a complete object of at most `bytes_max` bytes. A larger object counts as damaged and is not read.
    pub(crate) fn get(&self, key: &str, bytes_max: u64) -> Result<Bytes> {
        let (store, path) = (Arc::clone(&self.store), self.path(key));
        self.traffic.gets.fetch_add(1, Ordering::Relaxed);
        let got = self
            .requests
            .run(async move {
                let found = store.get_opts(&path, GetOptions::default()).await?;
                match found.meta.size {
                    bytes if bytes > bytes_max => Ok(Err(bytes)),
                    _ => found.bytes().await.map(Ok),
                }
            })
            .map_err(|error| self.failed("get", key, &error))?;
        let got = got.map_err(|bytes| {
            let reason = format!("it has {bytes} bytes; the limit is {bytes_max}");
            self.damaged(key, reason)
        })?;
        self.traffic
            .bytes_got
            .fetch_add(got.len() as u64, Ordering::Relaxed);
        Ok(got)
    }

    /// Reads non-empty ranges of an object in parallel. Limits each attempt to [`PARTS_WITHIN`] plus one second per
    /// complete MiB. Repeats the read, up to [`GET_TRIES`] attempts, if a response is too short.
    pub(crate) fn get_ranges(&self, key: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let bytes = ranges.iter().map(|range| range.end.saturating_sub(range.start));
        let bytes = bytes.fold(0, u64::saturating_add);
        let limit = PARTS_WITHIN.saturating_add(Duration::from_secs(bytes / PARTS_BYTES_PER_SECOND_MIN));
        let mut tries = 0;
        loop {
            let (store, path) = (Arc::clone(&self.store), self.path(key));
            let wanted = ranges.to_vec();
            self.traffic
                .gets
                .fetch_add(ranges.len() as u64, Ordering::Relaxed);
            let got = self.requests.run_within(Some(limit), async move {
                let one = |range: &Range<u64>| {
                    let options = GetOptions {
                        range: Some(GetRange::Bounded(range.clone())),
                        ..GetOptions::default()
                    };
                    let (store, path) = (&store, &path);
                    async move { store.get_opts(path, options).await?.bytes().await }
                };
                try_join_all(wanted.iter().map(one)).await
            });
            let got: Vec<Bytes> = got.map_err(|error| self.failed("get", key, &error))?;
            let bytes: usize = got.iter().map(Bytes::len).sum();
            self.traffic.bytes_got.fetch_add(bytes as u64, Ordering::Relaxed);
            let is_whole = ranges
                .iter()
                .zip(&got)
                .all(|(range, got)| got.len() as u64 == range.end - range.start);
            if is_whole {
                return Ok(got);
            }
            tries += 1;
            if tries == GET_TRIES {
                return Err(self.damaged(key, "it is shorter than its recorded size"));
            }
        }
    }

    /// Returns the size of an object; `None` if it does not exist.
    pub(crate) fn size(&self, key: &str) -> Result<Option<u64>> {
        let (store, path) = (Arc::clone(&self.store), self.path(key));
        let found = self.requests.run(async move { store.head(&path).await });
        match found.map_err(|error| self.failed("head", key, &error)) {
            Ok(found) => Ok(Some(found.size)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes an object. A missing object is not an error.
    pub(crate) fn delete(&self, key: &str) -> Result<()> {
        let (store, path) = (Arc::clone(&self.store), self.path(key));
        let done = self.requests.run(async move { store.delete(&path).await });
        match done.map_err(|error| self.failed("delete", key, &error)) {
            Err(error) if !error.is_missing() => return Err(error),
            _ => {}
        }
        if self.is_local {
            self.remove_empty_folders(key);
        }
        Ok(())
    }

    /// Returns the root of a local target.
    fn root(&self) -> PathBuf {
        FilePath::new("/").join(self.prefix.as_ref())
    }

    /// Returns the root of a local target if it does not exist, as while its file system is not mounted. An object that
    /// is not found there is not lost.
    fn missing_root(&self) -> Option<PathBuf> {
        let root = self.is_local.then(|| self.root())?;
        (!root.exists()).then_some(root)
    }

    /// Removes the folders of a deleted object that are now empty. Applies only to local directories, because other
    /// stores have no folders.
    fn remove_empty_folders(&self, key: &str) {
        let base = self.root();
        let folders = FilePath::new(key).ancestors().skip(1);
        for folder in folders.filter(|folder| !folder.as_os_str().is_empty()) {
            // A folder that is not empty is kept, and so are its parents.
            if std::fs::remove_dir(base.join(folder)).is_err() {
                return;
            }
        }
    }

    /// Returns the objects under a prefix that is empty or ends with a slash.
    ///
    /// # Errors
    ///
    /// Fails if the target cannot be reached or denies the request.
    pub fn list(&self, under: &str) -> Result<Vec<Listed>> {
        let (store, path) = (Arc::clone(&self.store), self.path(under));
        let found = self
            .requests
            .run(async move { store.list(Some(&path)).try_collect::<Vec<_>>().await })
            .map_err(|error| self.failed("list", under, &error))?;
        let below = |location: &Path| {
            let mut parts = location
                .prefix_match(&self.prefix)?
                .map(|part| part.as_ref().to_owned());
            let first = parts.next()?;
            Some(parts.fold(first, |path, part| format!("{path}/{part}")))
        };
        let listed = found.into_iter().filter_map(|object| {
            Some(Listed {
                key: below(&object.location)?,
                bytes: object.size,
                modified: object.last_modified.timestamp_nanos_opt()?,
            })
        });
        Ok(listed.collect())
    }

    /// Returns the names of the folders directly under a prefix that is empty or ends with a slash.
    pub(crate) fn folders(&self, under: &str) -> Result<Vec<String>> {
        let (store, path) = (Arc::clone(&self.store), self.path(under));
        let found = self
            .requests
            .run(async move { store.list_with_delimiter(Some(&path)).await })
            .map_err(|error| self.failed("list", under, &error))?;
        let names = found.common_prefixes.into_iter();
        Ok(names
            .filter_map(|path| Some(path.parts().next_back()?.as_ref().to_owned()))
            .collect())
    }

    fn path(&self, key: &str) -> Path {
        key.split('/')
            .filter(|part| !part.is_empty())
            .fold(self.prefix.clone(), |path, part| {
                // The parts are encoded already; `join` would encode them again.
                Path::parse(format!("{path}/{part}")).unwrap_or_else(|_| path.join(part))
            })
    }

    pub(crate) fn damaged(&self, key: &str, reason: impl Into<String>) -> ArchiveError {
        ArchiveError::Damaged {
            target: self.name.clone(),
            object: key.to_owned(),
            reason: reason.into(),
        }
    }

    fn failed(&self, action: &'static str, key: &str, no_answer: &RequestError) -> ArchiveError {
        use object_store::Error;
        let of_kind = |kind: TargetFault, reason: String| ArchiveError::Target {
            target: self.name.clone(),
            action,
            object: key.to_owned(),
            reason,
            kind,
        };
        let error = match no_answer {
            RequestError::Failed(error) => error,
            RequestError::Stopped => return ArchiveError::Stopped,
            RequestError::TooLate(limit) => {
                let reason = format!("no response within {} s", limit.as_secs());
                return of_kind(TargetFault::Unreachable, reason);
            }
        };
        if let (Error::NotFound { .. }, Some(root)) = (error, self.missing_root()) {
            let reason = format!(
                "the directory {} does not exist; mount its file system, or create the directory",
                root.display()
            );
            return of_kind(TargetFault::Unreachable, reason);
        }
        let kind = match error {
            Error::NotFound { .. } => TargetFault::Missing,
            Error::AlreadyExists { .. } | Error::Precondition { .. } => TargetFault::Exists,
            Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::NotSupported { .. }
            | Error::NotImplemented { .. }
            | Error::InvalidPath { .. } => TargetFault::Refused,
            _ => TargetFault::Unreachable,
        };
        of_kind(kind, redacted(&reasons(error)))
    }
}

/// Returns the message of an error and of its causes, without repetitions.
fn reasons(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}
