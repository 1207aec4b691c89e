//! Registry of the valid tokens of a server, in memory.
//!
//! A token is found by its hash. Finding it takes less than a microsecond and does not depend on the number of tokens.
//! An attacker cannot choose a hash, so the time of a lookup reveals nothing about stored tokens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use hashbrown::HashMap;
use parking_lot::RwLock;
use tideline_model::Timestamp;

use crate::principal::Principal;
use crate::record::TokenRecord;
use crate::token::TokenHash;

/// Marker for a token that was never used.
const UNUSED: i64 = i64::MIN;

/// Valid tokens of a server.
#[derive(Debug, Default)]
pub struct Tokens(RwLock<State>);

#[derive(Debug, Default)]
struct State {
    tokens: BTreeMap<String, Arc<Token>>,
    /// Tokens by the hashes of their secrets, with the position of the secret in the record.
    secrets: HashMap<TokenHash, (Arc<Token>, usize)>,
}

#[derive(Debug)]
struct Token {
    record: TokenRecord,
    /// Principal of each secret, in the order of the record. A principal ends with its secret.
    principals: Vec<Arc<Principal>>,
    /// Time of the last use, in nanoseconds since the epoch, or [`UNUSED`].
    used: AtomicI64,
}

/// Outcome of an authentication.
#[derive(Debug, Clone)]
pub enum Authenticated {
    /// The token is valid.
    Valid(Arc<Principal>),
    /// The token with this id has expired, or was replaced by a rotation.
    Expired(String),
    /// There is no such token.
    Unknown,
}

impl Tokens {
    /// Creates a registry with the given tokens and the times of their last use.
    pub fn new(records: impl IntoIterator<Item = (TokenRecord, Option<Timestamp>)>) -> Self {
        let tokens = Self::default();
        for (record, used) in records {
            tokens.0.write().put(record, used);
        }
        tokens
    }

    /// Finds the principal of a token, and notes the time of its use.
    pub fn authenticate(&self, text: &str, now: Timestamp) -> Authenticated {
        let hash = TokenHash::of(text);
        let state = self.0.read();
        let Some((token, secret)) = state.secrets.get(&hash) else {
            return Authenticated::Unknown;
        };
        let principal = &token.principals[*secret];
        if !principal.is_valid(now) {
            return Authenticated::Expired(token.record.id.clone());
        }
        token.used.fetch_max(now.nanos(), Ordering::Relaxed);
        Authenticated::Valid(Arc::clone(principal))
    }

    /// Ends the principals of secrets whose overlap after a rotation is over, so that running queries with these
    /// secrets end too. Returns true if a principal ended.
    pub fn end_replaced(&self, now: Timestamp) -> bool {
        let mut has_ended = false;
        for token in self.0.read().tokens.values() {
            for (secret, principal) in token.record.secrets.iter().zip(&token.principals) {
                if secret.expires.is_some_and(|end| end <= now.nanos()) && !principal.is_revoked() {
                    principal.end();
                    has_ended = true;
                }
            }
        }
        has_ended
    }

    /// Adds a token, or replaces the token with the same id. The principals of a replaced token end, except those of
    /// secrets that stay if only the secrets differ.
    pub fn put(&self, record: TokenRecord) {
        self.0.write().put(record, None);
    }

    /// Removes a token and ends its principals. Returns false if there is no such token.
    pub fn remove(&self, id: &str) -> bool {
        let mut state = self.0.write();
        let Some(removed) = state.tokens.remove(id) else {
            return false;
        };
        state.forget_secrets(&removed.record);
        removed.end();
        true
    }

    /// Replaces all tokens. Ends the principals of tokens that are removed or changed.
    pub fn replace(&self, records: Vec<TokenRecord>) {
        let mut state = self.0.write();
        let mut left = std::mem::take(&mut state.tokens);
        state.secrets.clear();
        for record in records {
            let known = left.remove(&record.id);
            state.insert(record, known.as_deref(), None);
        }
        for token in left.values() {
            token.end();
        }
    }

    /// Returns a token and the time of its last use.
    pub fn get(&self, id: &str) -> Option<(TokenRecord, Option<Timestamp>)> {
        self.0.read().tokens.get(id).map(|token| token.view())
    }

    /// Returns all tokens by id, with the times of their last use.
    pub fn all(&self) -> Vec<(TokenRecord, Option<Timestamp>)> {
        let state = self.0.read();
        state.tokens.values().map(|token| token.view()).collect()
    }

    /// Returns the number of tokens.
    pub fn len(&self) -> usize {
        self.0.read().tokens.len()
    }

    /// Returns true if there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl State {
    fn put(&mut self, record: TokenRecord, used: Option<Timestamp>) {
        let known = self.tokens.remove(&record.id);
        if let Some(known) = &known {
            self.forget_secrets(&known.record);
        }
        self.insert(record, known.as_deref(), used);
    }

    /// Adds a token. `known` is the token that it replaces, whose secrets the caller has removed.
    fn insert(&mut self, record: TokenRecord, known: Option<&Token>, used: Option<Timestamp>) {
        let mut used = used.map_or(UNUSED, |time| time.nanos());
        let mut principals: Vec<_> = record.principals().into_iter().map(Arc::new).collect();
        if let Some(known) = known {
            used = used.max(known.used.load(Ordering::Relaxed));
            known.hand_over(&record, &mut principals);
        }
        let token = Arc::new(Token {
            principals,
            used: AtomicI64::new(used),
            record,
        });
        for (position, secret) in token.record.secrets.iter().enumerate() {
            self.secrets.insert(secret.sha256, (Arc::clone(&token), position));
        }
        self.tokens.insert(token.record.id.clone(), token);
    }

    fn forget_secrets(&mut self, record: &TokenRecord) {
        for secret in &record.secrets {
            self.secrets.remove(&secret.sha256);
        }
    }
}

impl Token {
    fn view(&self) -> (TokenRecord, Option<Timestamp>) {
        let used = self.used.load(Ordering::Relaxed);
        let used = (used != UNUSED).then(|| Timestamp::from_nanos_clamped(used));
        (self.record.clone(), used)
    }

    /// Ends the principals of all secrets.
    fn end(&self) {
        for principal in &self.principals {
            principal.end();
        }
    }

    /// Replaces the principals of a changed record with those of this token whose secrets stay, and gives them the end
    /// of the secret in the record. Ends the other principals of this token, and all if the records differ in more than
    /// their secrets.
    fn hand_over(&self, record: &TokenRecord, principals: &mut [Arc<Principal>]) {
        let without_secrets = |record: &TokenRecord| TokenRecord {
            secrets: Vec::new(),
            ..record.clone()
        };
        if without_secrets(&self.record) != without_secrets(record) {
            return self.end();
        }
        // Requests wait while the lock of the registry is held, so the secrets are not compared in pairs.
        let kept = record.secrets.iter().map(|secret| secret.sha256).zip(0..);
        let positions: HashMap<TokenHash, usize> = kept.collect();
        for (secret, known) in self.record.secrets.iter().zip(&self.principals) {
            match positions.get(&secret.sha256).copied() {
                Some(kept) if known.end_with(&principals[kept]) => principals[kept] = Arc::clone(known),
                _ => known.end(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::Role;
    use crate::record::StoredSecret;
    use crate::scope::Scope;

    fn at(nanos: i64) -> Timestamp {
        Timestamp::from_nanos_clamped(nanos)
    }

    fn record(id: &str, secret: &str) -> TokenRecord {
        TokenRecord {
            id: id.to_owned(),
            name: format!("name of {id}"),
            roles: vec![Role::Reader],
            scope: Scope::default(),
            created: 0,
            created_by: String::new(),
            expires: None,
            secrets: vec![StoredSecret {
                sha256: TokenHash::of(secret),
                expires: None,
            }],
        }
    }

    fn valid(tokens: &Tokens, text: &str, now: i64) -> Arc<Principal> {
        match tokens.authenticate(text, at(now)) {
            Authenticated::Valid(principal) => principal,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_token_is_found_by_its_text() {
        let tokens = Tokens::new([(record("1", "one"), None), (record("2", "two"), Some(at(3)))]);
        assert_eq!(valid(&tokens, "one", 10).id(), Some("1"));
        assert!(matches!(
            tokens.authenticate("three", at(10)),
            Authenticated::Unknown
        ));
        let used: Vec<Option<i64>> = tokens
            .all()
            .iter()
            .map(|(_, used)| used.map(|time| time.nanos()))
            .collect();
        assert_eq!(used, [Some(10), Some(3)]);
    }

    #[test]
    fn a_revoked_token_ends_at_once() {
        let tokens = Tokens::new([(record("1", "one"), None)]);
        let principal = valid(&tokens, "one", 10);
        assert!(tokens.remove("1") && !tokens.remove("1"));
        assert!(!principal.is_valid(at(10)), "also for requests that are running");
        assert!(matches!(
            tokens.authenticate("one", at(10)),
            Authenticated::Unknown
        ));
        assert!(tokens.is_empty());
    }

    #[test]
    fn both_secrets_are_valid_during_the_overlap_of_a_rotation() {
        let tokens = Tokens::new([(record("1", "one"), None)]);
        let principal = valid(&tokens, "one", 10);
        let (mut rotated, _) = tokens.get("1").expect("it exists");
        rotated
            .rotate(TokenHash::of("uno"), at(20), at(100))
            .expect("few secrets");
        tokens.put(rotated);
        assert!(
            Arc::ptr_eq(&principal, &valid(&tokens, "one", 99)),
            "the same principal"
        );
        let new = valid(&tokens, "uno", 99);
        assert!(
            principal.is_valid(at(99)) && !principal.is_valid(at(100)),
            "a request ends with its secret"
        );
        let late = tokens.authenticate("one", at(100));
        assert!(matches!(late, Authenticated::Expired(id) if id == "1"));
        assert!(!tokens.end_replaced(at(99)) && !principal.is_revoked());
        assert!(tokens.end_replaced(at(100)) && principal.is_revoked());
        assert!(!tokens.end_replaced(at(100)), "it has ended already");
        assert!(Arc::ptr_eq(&new, &valid(&tokens, "uno", 100)) && new.is_valid(at(1_000)));
    }

    #[test]
    fn the_removal_of_a_secret_ends_its_principal_only() {
        let mut both = record("1", "one");
        both.secrets.extend(record("1", "uno").secrets);
        let tokens = Tokens::new([(both, None)]);
        let (one, uno) = (valid(&tokens, "one", 10), valid(&tokens, "uno", 10));
        tokens.replace(vec![record("1", "uno")]);
        assert!(one.is_revoked() && !uno.is_revoked());
        assert!(Arc::ptr_eq(&uno, &valid(&tokens, "uno", 11)));
    }

    #[test]
    fn secrets_stay_in_any_order() {
        let with = |secrets: &[&str]| TokenRecord {
            secrets: secrets
                .iter()
                .flat_map(|secret| record("1", secret).secrets)
                .collect(),
            ..record("1", "")
        };
        let tokens = Tokens::new([(with(&["a", "b", "c"]), None)]);
        let known = ["a", "b", "c"].map(|secret| valid(&tokens, secret, 10));
        tokens.replace(vec![with(&["c", "d", "a"])]);
        let [a, b, c] = known;
        assert!(Arc::ptr_eq(&a, &valid(&tokens, "a", 11)) && Arc::ptr_eq(&c, &valid(&tokens, "c", 11)));
        assert!(b.is_revoked() && !a.is_revoked() && !c.is_revoked());
        assert!(!valid(&tokens, "d", 11).is_revoked());
    }

    #[test]
    fn a_rotation_without_overlap_ends_the_principal() {
        let tokens = Tokens::new([(record("1", "one"), None)]);
        let principal = valid(&tokens, "one", 10);
        let (mut rotated, _) = tokens.get("1").expect("it exists");
        rotated
            .rotate(TokenHash::of("uno"), at(20), at(20))
            .expect("few secrets");
        tokens.put(rotated);
        assert!(!principal.is_valid(at(20)), "also for requests that are running");
        assert!(valid(&tokens, "uno", 20).is_valid(at(20)));
        assert_eq!(tokens.get("1").and_then(|(_, used)| used), Some(at(20)));
    }

    #[test]
    fn an_expired_token_is_told_from_an_unknown_one() {
        let mut expiring = record("1", "one");
        expiring.expires = Some(50);
        let tokens = Tokens::new([(expiring, None)]);
        let principal = valid(&tokens, "one", 49);
        assert!(matches!(
            tokens.authenticate("one", at(50)),
            Authenticated::Expired(_)
        ));
        assert!(!principal.is_valid(at(50)));
    }

    #[test]
    fn replacing_all_keeps_the_principals_of_unchanged_tokens() {
        let tokens = Tokens::new([(record("1", "one"), None), (record("2", "two"), None)]);
        let (one, two) = (valid(&tokens, "one", 10), valid(&tokens, "two", 10));
        let mut changed = record("2", "two");
        changed.roles = vec![Role::Writer];
        tokens.replace(vec![record("1", "one"), changed, record("3", "three")]);
        assert!(one.is_valid(at(10)) && Arc::ptr_eq(&one, &valid(&tokens, "one", 11)));
        assert!(!two.is_valid(at(10)), "its roles have changed");
        assert_eq!(valid(&tokens, "two", 11).roles(), [Role::Writer]);
        assert_eq!(tokens.len(), 3);
        // A secret can move to a token that comes earlier in the list.
        let (mut first, mut second) = (record("1", "three"), record("3", "other"));
        first.id = "0".to_owned();
        second.secrets.truncate(1);
        tokens.replace(vec![first, second, record("1", "one")]);
        assert_eq!(valid(&tokens, "three", 11).id(), Some("0"));
        tokens.replace(Vec::new());
        assert!(!one.is_valid(at(11)) && tokens.is_empty());
        assert!(matches!(
            tokens.authenticate("one", at(11)),
            Authenticated::Unknown
        ));
    }
}
