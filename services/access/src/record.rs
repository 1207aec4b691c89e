//! Stored form of a token: everything except the token itself.
//!
//! Records are stored in serialized form, so a new field needs a default for records that were stored without it.

use std::fmt;

use serde::{Deserialize, Serialize};
use tideline_model::Timestamp;

use crate::action::Role;
use crate::principal::Principal;
use crate::scope::Scope;
use crate::token::TokenHash;

/// Longest name of a token, in characters.
pub const NAME_CHARACTERS_MAX: usize = 64;
/// Maximum number of valid secrets of a token.
pub const SECRETS_MAX: usize = 4;

/// Token as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Id, which is part of the text of the token and no secret.
    pub id: String,
    /// Name that the creator gave to the token.
    pub name: String,
    /// Roles; at least one.
    pub roles: Vec<Role>,
    /// Restriction to tables, models and timelines.
    #[serde(default)]
    pub scope: Scope,
    /// Creation time, nanoseconds since the epoch.
    pub created: i64,
    /// Principal that created the token.
    #[serde(default)]
    pub created_by: String,
    /// Time at which the token becomes invalid, nanoseconds since the epoch; `None` if it does not expire.
    #[serde(default)]
    pub expires: Option<i64>,
    /// Hashes of the secrets, from old to new. After a rotation, previous secrets stay valid for a while.
    pub secrets: Vec<StoredSecret>,
}

/// Hash of a secret with its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSecret {
    /// Hash of the whole text of the token.
    pub sha256: TokenHash,
    /// Time at which this secret becomes invalid, nanoseconds since the epoch; `None` for the newest one.
    #[serde(default)]
    pub expires: Option<i64>,
}

/// Error of a rotation whose token already has [`SECRETS_MAX`] valid secrets: the id of the token, and the ends of the
/// previous secrets, from old to new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooManySecrets(String, Vec<Timestamp>);

impl fmt::Display for TooManySecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(id, ends) = self;
        let ends: Vec<String> = ends.iter().map(|end| end.to_rfc3339()).collect();
        write!(
            f,
            "token {id} has {SECRETS_MAX} valid secrets, which is the limit; the previous ones are valid until {}; rotate \
             the token after the first of these times, or with the overlap 0s, which ends all previous secrets",
            ends.join(", ")
        )
    }
}

impl std::error::Error for TooManySecrets {}

impl TokenRecord {
    /// Returns the principals of requests with each secret, in the order of the secrets. A principal ends with its
    /// secret, and with the token at the latest. All principals share one copy of the scope.
    pub fn principals(&self) -> Vec<Principal> {
        let base = Principal::new(&self.name, self.roles.iter().copied(), self.scope.clone())
            .of_token(&self.id, None);
        let of_secret = |secret: &StoredSecret| {
            let end = [self.expires, secret.expires].into_iter().flatten().min();
            base.with_own_end(end.map(Timestamp::from_nanos_clamped))
        };
        self.secrets.iter().map(of_secret).collect()
    }

    /// Adds a new secret, and ends all previous ones at `overlap_end` at the latest. Removes secrets that have ended by
    /// `now`.
    ///
    /// # Errors
    ///
    /// [`TooManySecrets`] if [`SECRETS_MAX`] previous secrets would stay valid. The record is then unchanged.
    pub fn rotate(
        &mut self,
        hash: TokenHash,
        now: Timestamp,
        overlap_end: Timestamp,
    ) -> Result<(), TooManySecrets> {
        let ends = self
            .secrets
            .iter()
            .map(|secret| secret.expires.unwrap_or(i64::MAX));
        let valid: Vec<i64> = ends
            .filter(|end| (*end).min(overlap_end.nanos()) > now.nanos())
            .collect();
        if valid.len() >= SECRETS_MAX {
            let replaced = valid.into_iter().filter(|end| *end != i64::MAX);
            let ends = replaced.map(Timestamp::from_nanos_clamped).collect();
            return Err(TooManySecrets(self.id.clone(), ends));
        }
        for secret in &mut self.secrets {
            let end = secret.expires.unwrap_or(i64::MAX).min(overlap_end.nanos());
            secret.expires = Some(end);
        }
        self.secrets
            .retain(|secret| secret.expires.is_none_or(|end| end > now.nanos()));
        self.secrets.push(StoredSecret {
            sha256: hash,
            expires: None,
        });
        Ok(())
    }

    /// Checks that a name can be shown in lists and logs, that there is a role, and that the roles can have the scope.
    ///
    /// # Errors
    ///
    /// Returns the reason as a sentence for the creator of the token.
    pub fn check(&self) -> Result<(), String> {
        let length = self.name.chars().count();
        if length == 0 || length > NAME_CHARACTERS_MAX || self.name.chars().any(char::is_control) {
            return Err(format!(
                "the name of a token has 1 to {NAME_CHARACTERS_MAX} characters, and no control characters"
            ));
        }
        if self.roles.is_empty() {
            return Err("a token needs a role: reader, writer, operator or admin".to_owned());
        }
        self.scope.check_roles(&self.roles).map_err(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::TimelineCondition;

    fn record() -> TokenRecord {
        TokenRecord {
            id: "0a1b".to_owned(),
            name: "telegraf".to_owned(),
            roles: vec![Role::Writer],
            scope: Scope::new(["fleet"], []).expect("valid"),
            created: 1,
            created_by: "configured token".to_owned(),
            expires: None,
            secrets: vec![StoredSecret {
                sha256: TokenHash::of("first"),
                expires: None,
            }],
        }
    }

    #[test]
    fn the_stored_form_stays() {
        let json = r#"{"id":"0a1b","name":"telegraf","roles":["writer"],"scope":{"tables":["fleet"],"models":[]},"created":1,"created_by":"configured token","expires":null,"secrets":[{"sha256":"a7937b64b8caa58f03721bb6bacf5c78cb235febe0e70b1b84cd99541461a08e","expires":null}]}"#;
        assert_eq!(serde_json::to_string(&record()).expect("serializes"), json);
        let read: TokenRecord = serde_json::from_str(json).expect("reads back");
        assert_eq!(read, record());
        // Empty lists are the stored form of a token without restrictions.
        let everything = json.replace(r#"["fleet"]"#, "[]");
        let read: TokenRecord = serde_json::from_str(&everything).expect("reads back");
        assert!(read.scope.is_everything());
    }

    #[test]
    fn the_principals_of_all_secrets_share_the_scope_but_not_the_end() {
        let mut token = record();
        token.secrets.push(StoredSecret {
            sha256: TokenHash::of("second"),
            expires: Some(100),
        });
        let principals = token.principals();
        let [first, second] = &principals[..] else {
            panic!("{principals:?}");
        };
        assert!(std::ptr::eq(first.scope(), second.scope()));
        assert_eq!((first.id(), second.id()), (Some("0a1b"), Some("0a1b")));
        first.end();
        let at = Timestamp::from_nanos_clamped;
        assert!(first.is_revoked() && second.is_valid(at(99)) && !second.is_valid(at(100)));
    }

    #[test]
    fn rotation_ends_the_previous_secrets() {
        let at = Timestamp::from_nanos_clamped;
        let mut token = record();
        assert_eq!(token.rotate(TokenHash::of("second"), at(100), at(200)), Ok(()));
        assert_eq!(token.rotate(TokenHash::of("third"), at(150), at(300)), Ok(()));
        let ends: Vec<Option<i64>> = token.secrets.iter().map(|secret| secret.expires).collect();
        assert_eq!(ends, [Some(200), Some(300), None], "an end is never moved back");
        assert_eq!(token.rotate(TokenHash::of("fourth"), at(250), at(250)), Ok(()));
        assert_eq!(token.secrets.len(), 1, "without overlap only the new one is left");
        for n in 1..SECRETS_MAX {
            assert_eq!(
                token.rotate(TokenHash::of(&n.to_string()), at(300), at(900)),
                Ok(())
            );
        }
        let before = token.clone();
        let hash = TokenHash::of("one too many");
        let refused = token.rotate(hash, at(300), at(1_000)).expect_err("the limit");
        assert_eq!(
            refused,
            TooManySecrets("0a1b".to_owned(), vec![at(900); SECRETS_MAX - 1])
        );
        assert_eq!(token, before);
        assert_eq!(token.rotate(hash, at(900), at(1_000)), Ok(()), "they have ended");
        assert_eq!(token.secrets.len(), 2);
    }

    #[test]
    fn tokens_that_make_no_sense_are_refused() {
        assert_eq!(record().check(), Ok(()));
        let with = |change: fn(&mut TokenRecord)| {
            let mut token = record();
            change(&mut token);
            token.check()
        };
        assert!(with(|token| token.name.clear()).is_err());
        assert!(with(|token| token.name = "a\nb".to_owned()).is_err());
        assert!(with(|token| token.name = "é".repeat(65)).is_err());
        assert!(with(|token| token.name = "é".repeat(64)).is_ok());
        assert!(with(|token| token.roles.clear()).is_err());
        assert!(with(|token| token.roles = vec![Role::Admin]).is_err());
        let condition = |token: &mut TokenRecord| {
            let condition = TimelineCondition::parse("team=x").expect("valid");
            let scope = std::mem::take(&mut token.scope);
            token.scope = scope.with_condition(Some(condition)).expect("valid");
        };
        let mut of_timelines = record();
        condition(&mut of_timelines);
        assert_eq!(of_timelines.check(), Ok(()));
        of_timelines.roles = vec![Role::Reader, Role::Operator];
        assert!(of_timelines.check().is_err());
    }
}
