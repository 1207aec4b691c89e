//! Tokens of the server: authentication of requests, and the stored tokens. Tokens can also come from the configuration,
//! from a file of hashes, and from an identity provider.
//!
//! Times are wall-clock times, as for certificates: after a long stop, the trusted time of the data can be behind
//! the wall clock.
//!
//! Stored tokens are rows of the server ([`Engine::put_state`]), with a copy in memory. A change is stored
//! before the copy is changed, under one lock, so both agree except after an error of unknown outcome. The copy
//! is then read again.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tideline_access::jwt::is_jwt;
use tideline_access::token::NoRandomness;
use tideline_access::{Authenticated, Principal, StoredSecret, TokenRecord, TokenText, Tokens};
use tideline_engine::Engine;
use tideline_engine::model::Timestamp;
use tideline_engine::state_table::{STATE_ROWS_MAX, StateRow};
use tideline_openapi::ErrorCode;

use crate::failure::{Failure, Result};
use crate::followed_file::FileKind;
use crate::hashes_file::HashesFile;
use crate::jwks_file::JwksFile;
use crate::settings::{HttpSettings, Secret};

/// Owner of the state rows.
const OWNER: &str = "tokens";
/// Part of the state rows with the time of the last use.
const USED: &str = "used";
/// Maximum number of stored tokens.
const TOKENS_MAX: usize = 10_000;
/// Shortest time between two stored times of use of a token.
const USE_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// Tokens of a server.
#[derive(Debug)]
pub(crate) struct TokenStore {
    engine: Arc<Engine>,
    tokens: Tokens,
    /// Token of the configuration.
    configured: Option<Secret>,
    /// Tokens of the file of hashes.
    file: Option<HashesFile>,
    /// Tokens of an identity provider.
    jwks: Option<JwksFile>,
    /// Principal of requests with the configured token, or of all requests if the server requires none.
    owner: Arc<Principal>,
    /// Held while tokens are stored.
    writing: Mutex<()>,
    /// Times of use that are stored, in nanoseconds since the epoch, by token.
    stored_uses: Mutex<HashMap<String, i64>>,
}

impl TokenStore {
    /// Reads the stored tokens, and the files of hashes and of keys.
    ///
    /// # Errors
    ///
    /// Fails if the rows cannot be read, or if this build cannot read one of them: without that row, a token
    /// could have other rights than its creator gave it. Fails if a file is not valid.
    pub(crate) fn open(engine: Arc<Engine>, settings: &HttpSettings) -> Result<Self> {
        let (tokens, stored_uses) = read(&engine)?;
        let file = settings.hashes_file.as_deref().map(HashesFile::open).transpose();
        let file = file.map_err(Failure::invalid)?;
        let jwks = settings.jwt.as_ref();
        let jwks = jwks
            .map(|jwt| JwksFile::open(&jwt.jwks_file, jwt.claims.clone()))
            .transpose();
        let jwks = jwks.map_err(Failure::invalid)?;
        let configured = settings.token.clone();
        let owner = match settings.requires_token() {
            true => Principal::configured(),
            false => Principal::anonymous(),
        };
        let store = Self {
            engine,
            tokens: Tokens::new(tokens),
            configured,
            file,
            jwks,
            owner: Arc::new(owner),
            writing: Mutex::default(),
            stored_uses: Mutex::new(stored_uses),
        };
        if let Some(warning) = store.warning() {
            tracing::warn!("{warning}");
        }
        Ok(store)
    }

    /// Returns a warning if the server has stored tokens but requires none, so that they restrict nothing.
    pub(crate) fn warning(&self) -> Option<String> {
        let count = self.tokens.len();
        (count > 0 && !self.is_required()).then(|| {
            format!(
                "every client may do everything, because the server requires no token although it has stored tokens \
                 ({count}): set auth.token_file, auth.hashes_file or auth.jwks_file, or revoke the tokens; the next major \
                 version does not start in this state"
            )
        })
    }

    /// Returns true if requests need a token.
    pub(crate) fn is_required(&self) -> bool {
        self.configured.is_some() || self.file.is_some() || self.jwks.is_some()
    }

    /// Returns the principal of all requests to a server that requires no token.
    pub(crate) fn anonymous(&self) -> Arc<Principal> {
        Arc::clone(&self.owner)
    }

    /// Finds the principal of a token.
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorCode::Unauthenticated`] if there is no such token or it has expired.
    pub(crate) fn authenticate(&self, claimed: &str) -> Result<Arc<Principal>> {
        if self.configured.as_ref().is_some_and(|token| token.is(claimed)) {
            return Ok(Arc::clone(&self.owner));
        }
        let now = self.engine.clock().now();
        if let Some(jwks) = &self.jwks
            && is_jwt(claimed)
        {
            let found = jwks.authenticate(claimed, now);
            return found.map_err(|error| unauthenticated(error.to_string()));
        }
        let mut found = self.tokens.authenticate(claimed, now);
        if let (Authenticated::Unknown, Some(file)) = (&found, &self.file) {
            found = file.authenticate(claimed, now);
        }
        match found {
            Authenticated::Valid(principal) => Ok(principal),
            Authenticated::Expired(id) => Err(unauthenticated(format!(
                "the token {id} has expired or was replaced by a rotation; ask an admin for a new one"
            ))),
            Authenticated::Unknown => Err(unauthenticated("the token is wrong, or was revoked".into())),
        }
    }

    /// Stores a new token. The draft contains everything except the id, the time and the secret. Returns the
    /// token and its record.
    ///
    /// # Errors
    ///
    /// Fails if the server requires no token, if the record is not valid, at the limit of tokens, and with the errors of
    /// the engine.
    pub(crate) fn create(&self, draft: TokenRecord) -> Result<(TokenText, TokenRecord)> {
        if !self.is_required() {
            return Err(Failure::new(
                ErrorCode::Conflict,
                "this server requires no token, so a new one would restrict nothing; first start it with --token-file, \
                 auth.hashes_file or auth.jwks_file",
            ));
        }
        draft.check().map_err(Failure::invalid)?;
        let now = self.engine.clock().now();
        if draft.expires.is_some_and(|end| end <= now.nanos()) {
            return Err(Failure::invalid("expires is in the past"));
        }
        let _writing = self.writing.lock();
        let count = self.tokens.len();
        if count >= TOKENS_MAX {
            return Err(Failure::over(
                ErrorCode::OverLimit,
                "number of tokens",
                TOKENS_MAX as u64,
                count as u64 + 1,
            ));
        }
        let mut text = TokenText::new().map_err(no_randomness)?;
        while self.get(text.id()).is_ok() {
            text = TokenText::new().map_err(no_randomness)?;
        }
        let record = TokenRecord {
            id: text.id().to_owned(),
            created: now.nanos(),
            secrets: vec![StoredSecret {
                sha256: text.hash(),
                expires: None,
            }],
            ..draft
        };
        self.put(&[row(&record)])?;
        self.tokens.put(record.clone());
        Ok((text, record))
    }

    /// Gives a token a new secret. The previous one stays valid for `overlap`.
    ///
    /// # Errors
    ///
    /// Fails if there is no such token, it has expired, has too many valid secrets or is in the file of hashes, and with
    /// the errors of the engine.
    pub(crate) fn rotate(&self, id: &str, overlap: Duration) -> Result<(TokenText, TokenRecord)> {
        let _writing = self.writing.lock();
        let mut record = self.stored(id)?;
        let now = self.engine.clock().now();
        if record.expires.is_some_and(|end| end <= now.nanos()) {
            return Err(Failure::new(
                ErrorCode::Conflict,
                format!("token {id} has expired; create another one"),
            ));
        }
        let overlap = i64::try_from(overlap.as_nanos()).unwrap_or(i64::MAX);
        let end = Timestamp::from_nanos_clamped(now.nanos().saturating_add(overlap));
        let text = TokenText::with_id(id).map_err(no_randomness)?;
        let rotated = record.rotate(text.hash(), now, end);
        rotated.map_err(|error| Failure::new(ErrorCode::Conflict, error.to_string()))?;
        self.put(&[row(&record)])?;
        self.tokens.put(record.clone());
        Ok((text, record))
    }

    /// Revokes a token: it is refused from now on, and watches that use it end.
    ///
    /// # Errors
    ///
    /// Fails if there is no such token or it is in the file of hashes, and with the errors of the engine.
    pub(crate) fn revoke(&self, id: &str) -> Result<()> {
        let _writing = self.writing.lock();
        let record = self.stored(id)?;
        self.put(&[
            StateRow {
                value: None,
                ..row(&record)
            },
            used_row(id, None),
        ])?;
        self.tokens.remove(id);
        self.stored_uses.lock().remove(id);
        Ok(())
    }

    /// Returns a token and the time of its last use.
    ///
    /// # Errors
    ///
    /// Fails if there is no such token.
    pub(crate) fn get(&self, id: &str) -> Result<(TokenRecord, Option<Timestamp>)> {
        let in_file = || self.file.as_ref()?.get(id);
        let found = self.tokens.get(id).or_else(in_file);
        found.ok_or_else(|| {
            Failure::new(
                ErrorCode::NotFound,
                // A caller can send the token instead of its id, so the text is not repeated.
                "there is no token with this id; the list of tokens contains their ids",
            )
        })
    }

    /// Returns all tokens by id, with the times of their last use.
    pub(crate) fn all(&self) -> Vec<(TokenRecord, Option<Timestamp>)> {
        let mut all = self.tokens.all();
        all.extend(self.file.iter().flat_map(HashesFile::all));
        all.sort_by(|(one, _), (other, _)| one.id.cmp(&other.id));
        all
    }

    /// Returns true if the token is in the file of hashes.
    pub(crate) fn is_of_file(&self, id: &str) -> bool {
        self.tokens.get(id).is_none() && self.file.as_ref().is_some_and(|file| file.get(id).is_some())
    }

    /// Ends running requests with secrets whose overlap after a rotation is over. Returns true if there was such a secret.
    pub(crate) fn end_replaced_secrets(&self) -> bool {
        self.tokens.end_replaced(self.engine.clock().now())
    }

    /// Reads the files of hashes and of keys again if they have changed. Returns the settings whose file has new content.
    pub(crate) fn follow_files(&self) -> Vec<&'static str> {
        let hashes = self.file.as_ref().is_some_and(HashesFile::follow);
        let keys = self.jwks.as_ref().is_some_and(JwksFile::follow);
        let files = [("auth.hashes_file", hashes), ("auth.jwks_file", keys)].into_iter();
        files
            .filter(|(_, is_new)| *is_new)
            .map(|(name, _)| name)
            .collect()
    }

    /// Returns the files of hashes and of keys whose newest version is not in use.
    pub(crate) fn files_behind(&self) -> impl Iterator<Item = FileKind> {
        let hashes = self.file.as_ref().is_some_and(HashesFile::is_behind);
        let keys = self.jwks.as_ref().is_some_and(JwksFile::is_behind);
        let files = [(FileKind::Hashes, hashes), (FileKind::Jwks, keys)].into_iter();
        files.filter(|(_, is_behind)| *is_behind).map(|(kind, _)| kind)
    }

    /// Returns a stored token, for a change.
    fn stored(&self, id: &str) -> Result<TokenRecord> {
        if self.is_of_file(id) {
            return Err(Failure::new(
                ErrorCode::Conflict,
                format!("token {id} is in the file auth.hashes_file; change the file"),
            ));
        }
        Ok(self.get(id)?.0)
    }

    /// Stores the times of use that are at least [`USE_INTERVAL`] later than the stored ones.
    ///
    /// # Errors
    ///
    /// Fails with the errors of the engine.
    pub(crate) fn keep_uses(&self) -> Result<()> {
        self.keep_later_uses(USE_INTERVAL)
    }

    /// Stores all times of use, before the server stops.
    ///
    /// # Errors
    ///
    /// Fails with the errors of the engine.
    pub(crate) fn keep_last_uses(&self) -> Result<()> {
        self.keep_later_uses(Duration::from_nanos(1))
    }

    /// Stores the times of use that are later than the stored ones by at least a duration.
    fn keep_later_uses(&self, interval: Duration) -> Result<()> {
        let _writing = self.writing.lock();
        let mut stored = self.stored_uses.lock();
        let mut later = Vec::new();
        for (record, used) in self.tokens.all() {
            let Some(used) = used.map(|time| time.nanos()) else {
                continue;
            };
            let before = stored.get(&record.id).copied().unwrap_or(i64::MIN);
            if used.saturating_sub(before) >= interval.as_nanos() as i64 {
                later.push((record.id, used));
            }
        }
        for uses in later.chunks(STATE_ROWS_MAX) {
            let rows: Vec<StateRow> = uses.iter().map(|(id, used)| used_row(id, Some(*used))).collect();
            self.engine.put_state(OWNER, &rows)?;
            stored.extend(uses.iter().cloned());
        }
        Ok(())
    }

    /// Stores rows. After an error, whose outcome can be unknown, the tokens are read again.
    fn put(&self, rows: &[StateRow]) -> Result<()> {
        let Err(error) = self.engine.put_state(OWNER, rows) else {
            return Ok(());
        };
        match read(&self.engine) {
            Ok((tokens, _)) => self
                .tokens
                .replace(tokens.into_iter().map(|(record, _)| record).collect()),
            Err(_) => tracing::warn!("the stored tokens could not be read again after a failed change"),
        }
        Err(error.into())
    }
}

/// Tokens with the times of their last use, and the stored times by token.
type Stored = (Vec<(TokenRecord, Option<Timestamp>)>, HashMap<String, i64>);

fn read(engine: &Engine) -> Result<Stored> {
    let rows = engine.state_rows(OWNER)?;
    let (uses, records): (Vec<StateRow>, Vec<StateRow>) = rows.into_iter().partition(|row| row.part == USED);
    let uses = uses
        .into_iter()
        .filter_map(|row| Some((row.name, row.value?.parse().ok()?)));
    let uses: HashMap<String, i64> = uses.collect();
    let mut tokens = Vec::with_capacity(records.len());
    for StateRow { name, value, .. } in records {
        let record = serde_json::from_str(value.as_deref().unwrap_or_default());
        let record: TokenRecord = record.map_err(|error| {
            Failure::new(
                ErrorCode::Internal,
                format!("the stored token {name} cannot be read: {error}; start the version of the server that wrote it"),
            )
        })?;
        let used = uses.get(&record.id).copied().map(Timestamp::from_nanos_clamped);
        tokens.push((record, used));
    }
    Ok((tokens, uses))
}

fn row(record: &TokenRecord) -> StateRow {
    StateRow {
        name: record.id.clone(),
        part: String::new(),
        value: Some(serde_json::to_string(record).expect("a token has a JSON form")),
    }
}

fn used_row(id: &str, used: Option<i64>) -> StateRow {
    StateRow {
        name: id.to_owned(),
        part: USED.to_owned(),
        value: used.map(|nanos| nanos.to_string()),
    }
}

fn unauthenticated(message: String) -> Failure {
    Failure::new(ErrorCode::Unauthenticated, message)
}

fn no_randomness(error: NoRandomness) -> Failure {
    tracing::error!(%error, "a token could not be created");
    Failure::new(ErrorCode::Internal, "internal error")
}

#[cfg(test)]
mod tests {
    use tideline_access::{Role, Scope};
    use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
    use tideline_engine::Settings;
    use tideline_engine::model::ManualClock;

    use super::*;

    #[test]
    fn a_use_is_stored_at_most_every_ten_minutes() {
        let folder = tempfile::tempdir().expect("a folder");
        let backend = Arc::new(MemoryBackend::open(&MemoryDisk::new(Character::Embedded)));
        let start = Timestamp::parse_rfc3339("2026-11-20T12:00:00Z").expect("a time");
        let clock = Arc::new(ManualClock::new(start));
        let engine_settings = Settings::new(folder.path().join("index"));
        let engine = Engine::open(backend, Arc::clone(&clock) as _, engine_settings);
        let engine = Arc::new(engine.expect("opens"));
        let settings = HttpSettings {
            token: Some(Secret::new("root-token-of-some-length").expect("long enough")),
            ..HttpSettings::default()
        };
        let open = || TokenStore::open(Arc::clone(&engine), &settings).unwrap_or_else(|_| panic!("opens"));
        let store = open();
        let draft = TokenRecord {
            id: String::new(),
            name: "a".to_owned(),
            roles: vec![Role::Reader],
            scope: Scope::default(),
            created: 0,
            created_by: String::new(),
            expires: None,
            secrets: Vec::new(),
        };
        let (text, record) = store.create(draft).unwrap_or_else(|_| panic!("created"));
        let stored_use = || {
            assert!(store.keep_uses().is_ok());
            open().all()[0].1
        };
        assert_eq!(stored_use(), None);
        assert!(store.authenticate(text.expose()).is_ok());
        assert_eq!(stored_use(), Some(start));
        clock.advance(599_000_000_000);
        assert!(store.authenticate(text.expose()).is_ok());
        assert_eq!(stored_use(), Some(start), "less than ten minutes later");
        clock.advance(1_000_000_000);
        assert!(store.authenticate(text.expose()).is_ok());
        assert_eq!(stored_use(), Some(engine.clock().now()));
        // A stop stores each use.
        clock.advance(1_000_000_000);
        assert!(store.authenticate(text.expose()).is_ok() && store.keep_last_uses().is_ok());
        let last = engine.clock().now();
        assert_eq!(stored_use(), Some(last));
        // A rotation, also one that ends the previous secret, keeps the time of the last use.
        assert!(store.rotate(&record.id, Duration::ZERO).is_ok());
        assert_eq!(store.all()[0].1, Some(last));
        engine.close().expect("closes");
    }
}
