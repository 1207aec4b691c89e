//! File of token hashes: tokens that tools of an operator create, without a request to the server.
//!
//! The file is JSON and holds no secrets, only hashes. The server reads it again whenever it changes. A file that cannot be
//! read or is not valid then changes nothing: the tokens of the last valid file stay, and the log has a warning.
//!
//! ```json
//! {"tokens": [{"id": "grafana", "roles": ["reader"], "tables": ["fleet"], "sha256": ["9f86…"]}]}
//! ```

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use hashbrown::HashSet;
use parking_lot::Mutex;
use serde::Deserialize;
use tideline_access::{Authenticated, Role, Scope, StoredSecret, TokenHash, TokenRecord, Tokens};
use tideline_engine::model::{TableModel, Timestamp};
use tideline_openapi::plain;

/// Largest file, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Longest id of a token, in bytes.
const ID_BYTES_MAX: usize = 64;
/// Mode bits with which others than the owner and the group can write a file.
const WRITABLE_BY_OTHERS: u32 = 0o002;
/// Mode bit with which the group can write a file.
const WRITABLE_BY_GROUP: u32 = 0o020;

/// Tokens of a file.
#[derive(Debug)]
pub(crate) struct HashesFile {
    path: PathBuf,
    tokens: Tokens,
    /// State of the file when it was last read; also of a file that is not valid, so that it is reported once.
    read: Mutex<Option<Stamp>>,
}

/// State of a file. A file that was replaced or written has another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    mode: u32,
}

/// Content of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    tokens: Vec<Entry>,
}

/// Token of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    /// Default: the id.
    name: Option<String>,
    roles: Vec<Role>,
    #[serde(default)]
    tables: Vec<String>,
    #[serde(default)]
    models: Vec<TableModel>,
    /// RFC 3339.
    expires: Option<String>,
    /// Hashes of the valid secrets; two during a rotation.
    sha256: Vec<TokenHash>,
}

impl HashesFile {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// Fails with the reason if the file cannot be read, is not valid, or can be written by other users.
    pub(crate) fn open(path: PathBuf) -> Result<Self, String> {
        let (records, stamp) = read(&path)?;
        Ok(Self {
            path,
            tokens: Tokens::new(records.into_iter().map(|record| (record, None))),
            read: Mutex::new(Some(stamp)),
        })
    }

    /// Finds the principal of a token.
    pub(crate) fn authenticate(&self, claimed: &str, now: Timestamp) -> Authenticated {
        self.tokens.authenticate(claimed, now)
    }

    /// Reads the file again if it has changed. Returns true if its tokens were replaced.
    pub(crate) fn follow(&self) -> bool {
        let mut last = self.read.lock();
        let current = fs::metadata(&self.path).ok().map(|metadata| Stamp::of(&metadata));
        if *last == current {
            return false;
        }
        match read(&self.path) {
            Ok((records, stamp)) => {
                *last = Some(stamp);
                tracing::info!(path = %self.path.display(), tokens = records.len(), "the file of token hashes was read");
                self.tokens.replace(records);
                true
            }
            Err(reason) => {
                *last = current;
                tracing::warn!(%reason, "the file of token hashes has changed but is not valid; its last valid state stays");
                false
            }
        }
    }

    /// Returns a token of the file and the time of its last use.
    pub(crate) fn get(&self, id: &str) -> Option<(TokenRecord, Option<Timestamp>)> {
        self.tokens.get(id)
    }

    /// Returns all tokens by id, with the times of their last use since the start.
    pub(crate) fn all(&self) -> Vec<(TokenRecord, Option<Timestamp>)> {
        self.tokens.all()
    }
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            mode: metadata.mode(),
        }
    }
}

fn read(path: &Path) -> Result<(Vec<TokenRecord>, Stamp), String> {
    let at = |reason: String| format!("{}: {reason}", path.display());
    let metadata = fs::metadata(path).map_err(|error| at(error.to_string()))?;
    if metadata.mode() & (WRITABLE_BY_OTHERS | WRITABLE_BY_GROUP) != 0 {
        return Err(at(format!(
            "other users can write this file (mode {:o}), and could give themselves access; set it to 600 or 644",
            metadata.mode() & 0o777
        )));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(at(format!(
            "the file has {} bytes; the limit is {FILE_BYTES_MAX}",
            metadata.len()
        )));
    }
    let bytes = fs::read(path).map_err(|error| at(error.to_string()))?;
    let content: Content = plain::read(&bytes).map_err(|fault| at(fault.message))?;
    let mut ids = HashSet::new();
    let mut hashes = HashSet::new();
    let mut records = Vec::with_capacity(content.tokens.len());
    for entry in content.tokens {
        let record = entry.into_record().map_err(&at)?;
        if !ids.insert(record.id.clone()) {
            return Err(at(format!("two tokens have the id {:?}", record.id)));
        }
        if let Some(secret) = record.secrets.iter().find(|secret| !hashes.insert(secret.sha256)) {
            return Err(at(format!(
                "token {:?}: the hash {} is there twice",
                record.id,
                String::from(secret.sha256)
            )));
        }
        records.push(record);
    }
    Ok((records, Stamp::of(&metadata)))
}

impl Entry {
    fn into_record(self) -> Result<TokenRecord, String> {
        let in_token = |reason: String| format!("token {:?}: {reason}", self.id);
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if !(1..=ID_BYTES_MAX).contains(&self.id.len()) || !self.id.bytes().all(is_allowed) {
            return Err(in_token(format!(
                "an id has 1 to {ID_BYTES_MAX} letters, digits, dots, dashes and underscores"
            )));
        }
        if self.sha256.is_empty() {
            return Err(in_token("sha256 has no hash".to_owned()));
        }
        let expires = self.expires.as_deref().map(|text| {
            let time = Timestamp::parse_rfc3339(text);
            time.ok_or_else(|| in_token(format!("expires: {text:?} is not a time as in RFC 3339")))
        });
        let expires = expires.transpose()?;
        let scope = Scope::new(self.tables, self.models);
        let scope = scope.map_err(|error| format!("token {:?}: {error}", self.id))?;
        let secrets = self.sha256.into_iter();
        let record = TokenRecord {
            name: self.name.unwrap_or_else(|| self.id.clone()),
            roles: self.roles,
            scope,
            created: 0,
            created_by: "file".to_owned(),
            expires: expires.map(|time| time.nanos()),
            secrets: secrets
                .map(|sha256| StoredSecret {
                    sha256,
                    expires: None,
                })
                .collect(),
            id: self.id,
        };
        record
            .check()
            .map_err(|reason| format!("token {:?}: {reason}", record.id))?;
        Ok(record)
    }
}
