//! Access control for targets: requests may use the configured targets, the addresses that the operator lists, and all
//! addresses below them. Without a list, requests may use any address.
//!
//! The server accesses targets with its own credentials, and directories as its own user. Therefore requests must not
//! be able to choose arbitrary addresses.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use hashbrown::HashMap;
use object_store::ObjectStoreScheme;
use percent_encoding::percent_decode_str;
use url::Url;

use crate::error::{ArchiveError, Result, redacted};
use crate::target::Target;
use crate::{Archive, DEFAULT_TARGET};

/// Address schemes without a bucket or container.
const LOCAL_SCHEMES: [&str; 2] = ["file", "memory"];

/// Address under which targets are allowed: a bucket, a folder in a bucket, or a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetPrefix {
    /// The redacted address, for messages.
    text: String,
    scheme: String,
    /// Bucket, container or host. Includes the part before `@`, which names an Azure container.
    authority: String,
    /// Decoded path segments.
    folders: Vec<String>,
}

impl TargetPrefix {
    /// Returns true if `other` is this address or under it, compared by path segments.
    fn contains(&self, other: &Self) -> bool {
        let is_same_store = self.scheme == other.scheme && self.authority == other.authority;
        is_same_store && other.folders.starts_with(&self.folders)
    }
}

impl fmt::Display for TargetPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for TargetPrefix {
    type Err = ArchiveError;

    /// Parses an address and normalizes it in the same way as opening a target does: the scheme is lower-cased, `..`
    /// and backslashes are resolved.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::BadTarget`] if the address is not valid, has credentials or options, or has a path segment that
    /// decodes to a dot segment, to invalid UTF-8, or to text with a slash, backslash or zero byte.
    fn from_str(address: &str) -> Result<Self> {
        let text = redacted(address);
        let bad = |reason: String| ArchiveError::BadTarget {
            target: text.clone(),
            reason,
        };
        let url = Url::parse(address).map_err(|error| {
            bad(format!(
                "{error}; use file:///directory, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"
            ))
        })?;
        let has_user = !url.username().is_empty() && !url.scheme().starts_with("abfs");
        if has_user || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            return Err(bad(
                "credentials and options are not allowed in the address".into()
            ));
        }
        ObjectStoreScheme::parse(&url).map_err(|error| bad(error.to_string()))?;
        let is_local = LOCAL_SCHEMES.contains(&url.scheme());
        if !is_local && url.host_str().is_none_or(str::is_empty) {
            return Err(bad("it has no bucket or container".into()));
        }
        let decoded = |part: &str| {
            let part = percent_decode_str(part).decode_utf8().ok()?.into_owned();
            let is_plain = !matches!(part.as_str(), "." | "..") && !part.contains(['/', '\\', '\0']);
            is_plain.then_some(part)
        };
        let parts = url.path().split('/').filter(|part| !part.is_empty());
        let folders: Option<Vec<String>> = parts.map(decoded).collect();
        let folders =
            folders.ok_or_else(|| bad("its path has encoded slashes, zero bytes or dot segments".into()))?;
        Ok(Self {
            scheme: url.scheme().to_owned(),
            authority: url.authority().to_owned(),
            folders,
            text,
        })
    }
}

/// Maximum number of open targets in addition to the configured ones.
const OPEN_TARGETS_MAX: usize = 32;

/// Open targets. The number of targets opened by address is limited, because a client of an object store takes about
/// 100 KB. The least recently used target is closed first.
#[derive(Debug, Default)]
pub(crate) struct OpenTargets {
    configured: HashMap<String, Arc<Target>>,
    /// Targets opened by address, each with the number of its last use.
    others: HashMap<String, (u64, Arc<Target>)>,
    uses: u64,
}

impl OpenTargets {
    pub(crate) fn get(&mut self, name: &str) -> Option<Arc<Target>> {
        self.uses += 1;
        if let Some(target) = self.configured.get(name) {
            return Some(Arc::clone(target));
        }
        let (used, target) = self.others.get_mut(name)?;
        *used = self.uses;
        Some(Arc::clone(target))
    }

    pub(crate) fn keep(&mut self, name: &str, target: &Arc<Target>, is_configured: bool) {
        if is_configured {
            self.configured.insert(name.to_owned(), Arc::clone(target));
            return;
        }
        if self.others.len() >= OPEN_TARGETS_MAX {
            let by_use = |(_, (used, _)): &(&String, &(u64, Arc<Target>))| *used;
            let oldest = self
                .others
                .iter()
                .min_by_key(by_use)
                .map(|(name, _)| name.clone());
            oldest.and_then(|name| self.others.remove(&name));
        }
        self.others
            .insert(name.to_owned(), (self.uses, Arc::clone(target)));
    }

    pub(crate) fn len(&self) -> usize {
        self.configured.len() + self.others.len()
    }
}

impl Archive {
    /// Checks that requests may use a target, and opens it.
    ///
    /// # Errors
    ///
    /// The errors of [`check_allowed`](Self::check_allowed), and [`ArchiveError::BadTarget`] if the target cannot be
    /// opened.
    pub fn allow(&self, name: &str) -> Result<()> {
        self.check_allowed(name)?;
        self.target(name).map(drop)
    }

    /// Checks that requests may use a target: a configured one, an address under a configured one, or an address under
    /// [`ArchiveSettings::allowed`](crate::ArchiveSettings::allowed). If `allowed` is `None`, any other name or address
    /// passes unchecked, except the default target.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::NotAllowed`] if requests may not use the target; [`ArchiveError::BadTarget`] if `name` is not a
    /// valid address, or is the default target and the configuration does not set one.
    pub fn check_allowed(&self, name: &str) -> Result<()> {
        let targets = &self.settings.targets;
        if targets.contains_key(name) {
            return Ok(());
        }
        if name == DEFAULT_TARGET {
            return Err(ArchiveError::BadTarget {
                target: name.to_owned(),
                reason: "the server's configuration sets no archive.target".into(),
            });
        }
        let Some(listed) = &self.settings.allowed else {
            return Ok(());
        };
        let target: TargetPrefix = name.parse()?;
        let configured = targets.values().filter_map(|(address, _)| address.parse().ok());
        let allowed: Vec<TargetPrefix> = configured.chain(listed.iter().cloned()).collect();
        if allowed.iter().any(|prefix| prefix.contains(&target)) {
            return Ok(());
        }
        Err(ArchiveError::NotAllowed {
            target: redacted(name),
            allowed: named_list(&allowed),
        })
    }

    /// Returns the number of open targets.
    pub fn open_targets(&self) -> usize {
        self.open.lock().len()
    }
}

fn named_list(allowed: &[TargetPrefix]) -> String {
    if allowed.is_empty() {
        return "none, because neither archive.target nor archive.allowed_targets is set".to_owned();
    }
    let names: Vec<&str> = allowed.iter().map(|prefix| prefix.text.as_str()).collect();
    format!(
        "addresses under {} (archive.target, archive.allowed_targets)",
        names.join(", ")
    )
}
