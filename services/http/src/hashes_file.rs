//! File of token hashes: tokens that tools of an operator create, without a request to the server.
//!
//! The file is JSON and holds no secrets, only hashes. The server reads it again whenever it changes. A file that cannot be
//! read or is not valid then changes nothing: the tokens of the last valid file stay, and the log has a warning.
//!
//! ```json
//! {"tokens": [{"id": "grafana", "roles": ["reader"], "tables": ["fleet"], "sha256": ["9f86…"]}]}
//! ```

use std::path::Path;

use hashbrown::HashSet;
use parking_lot::Mutex;
use serde::Deserialize;
use tideline_access::{
    Authenticated, Role, Scope, StoredSecret, TimelineCondition, TokenHash, TokenRecord, Tokens,
};
use tideline_engine::model::{TableModel, Timestamp};
use tideline_openapi::plain;
use tideline_openapi::token::restriction;

use crate::followed_file::{Behind, FollowedFile};

/// Longest id of a token, in bytes.
const ID_BYTES_MAX: usize = 64;

/// Tokens of a file.
#[derive(Debug)]
pub(crate) struct HashesFile {
    tokens: Tokens,
    /// Locked while the file is read.
    file: Mutex<FollowedFile>,
    behind: Behind,
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
    #[serde(default, deserialize_with = "restriction")]
    tables: Vec<String>,
    #[serde(default, deserialize_with = "restriction")]
    models: Vec<TableModel>,
    timelines: Option<TimelineCondition>,
    #[serde(default, deserialize_with = "restriction")]
    tenants: Vec<String>,
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
    /// Fails with the reason if the file is refused or its content is not valid.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let (file, records) = FollowedFile::open_owned(path, parse)?;
        Ok(Self {
            tokens: Tokens::new(records.into_iter().map(|record| (record, None))),
            behind: file.behind(),
            file: Mutex::new(file),
        })
    }

    /// Finds the principal of a token.
    pub(crate) fn authenticate(&self, claimed: &str, now: Timestamp) -> Authenticated {
        self.tokens.authenticate(claimed, now)
    }

    /// Reads the file again if it has changed. Returns true if its tokens were replaced.
    pub(crate) fn follow(&self) -> bool {
        let changed = self.file.lock().follow(parse);
        changed.map(|records| self.tokens.replace(records)).is_some()
    }

    /// Returns true if the newest version of the file is not in use.
    pub(crate) fn is_behind(&self) -> bool {
        self.behind.is_set()
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

/// Parses the content of the file, and returns its tokens.
fn parse(bytes: &[u8]) -> Result<Vec<TokenRecord>, String> {
    let content: Content = plain::read(bytes).map_err(|fault| fault.message)?;
    let (mut ids, mut hashes) = (HashSet::new(), HashSet::new());
    let mut records = Vec::with_capacity(content.tokens.len());
    for entry in content.tokens {
        let record = entry.into_record()?;
        if !ids.insert(record.id.clone()) {
            return Err(format!("two tokens have the id {:?}", record.id));
        }
        if let Some(secret) = record.secrets.iter().find(|secret| !hashes.insert(secret.sha256)) {
            return Err(format!(
                "token {:?}: the hash {} is there twice",
                record.id,
                String::from(secret.sha256)
            ));
        }
        records.push(record);
    }
    Ok(records)
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
        let scope = scope.and_then(|scope| scope.with_condition(self.timelines));
        let scope = scope.and_then(|scope| scope.with_tenants(self.tenants));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_does_not_mean_everything() {
        let file = |member: &str| {
            let hash = String::from(TokenHash::of("a token"));
            format!(r#"{{"tokens": [{{"id": "a", "roles": ["reader"], {member}"sha256": ["{hash}"]}}]}}"#)
        };
        let records = parse(file("").as_bytes()).expect("no restriction");
        assert!(records[0].scope.is_everything());
        for member in ["tables", "models", "tenants"] {
            let refused = parse(file(&format!("\"{member}\": [], ")).as_bytes()).expect_err(member);
            assert!(
                refused.contains(&format!("/tokens/0/{member}: the list is empty")),
                "{refused}"
            );
        }
    }
}
