//! JSON Web Tokens (RFC 7519) of an identity provider, verified with the keys of a JWKS file.
//!
//! Only asymmetric signatures are accepted, so a client that knows the verification keys cannot create a token. The
//! key determines the algorithm, never the token alone. A token must name the configured issuer and audience and
//! must expire.
//!
//! The current time is an argument. `jsonwebtoken` checks signature, issuer and audience; the times are checked here.

use std::sync::Arc;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Map, Value};
use tideline_model::{Role, TableModel, Timestamp};

use crate::condition::TimelineCondition;
use crate::principal::Principal;
use crate::scope::{Scope, ScopeError};
use crate::token::TokenHash;
use crate::verification;

/// Accepted difference between the clocks of the provider and of this server, in seconds.
const LEEWAY_SECONDS: f64 = 60.0;
/// Largest absolute value of `exp`, in seconds. A larger number is not a time. A smaller one can be beyond the range of
/// timestamps; the token then ends at the last timestamp.
const SECONDS_MAX: f64 = 1e12;
/// Longest text of a token, in bytes.
const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Longest name of a principal, in characters. A longer subject is cut.
const NAME_CHARACTERS_MAX: usize = 256;

/// Requirements of tokens, and the claims that hold roles and scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtSettings {
    /// Required issuer (`iss`).
    pub issuer: String,
    /// Required audience (`aud`).
    pub audience: String,
    /// Path of the claim with the roles: names of members, separated by dots. Its value is a text or a list of texts.
    pub roles_claim: String,
    /// Path of the claim with the names and prefixes of tables. Every token needs the claim, except the token of an
    /// admin. `None`: tokens are not restricted to tables.
    pub tables_claim: Option<String>,
    /// Path of the claim with the models. Every token needs the claim, except the token of an admin. `None`: tokens are
    /// not restricted to models.
    pub models_claim: Option<String>,
    /// Path of the claim with conditions on timelines, all of which must hold. Every token needs the claim, except the
    /// token of an admin. `None`: tokens are not restricted to timelines.
    pub timelines_claim: Option<String>,
    /// Path of the claim with the names and prefixes of the tenants for which requests act. Every token needs the
    /// claim, except the token of an admin. `None`: requests act for no tenant.
    pub tenants_claim: Option<String>,
}

/// Verifier of tokens.
#[derive(Debug)]
pub struct JwtVerifier {
    settings: JwtSettings,
    keys: Vec<Key>,
}

/// Public key of the provider.
#[derive(Debug)]
struct Key {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
    fingerprint: TokenHash,
}

/// Verified token.
#[derive(Debug, Clone)]
pub struct VerifiedJwt {
    /// Principal of the token. It ends when the token expires.
    pub principal: Arc<Principal>,
    /// Fingerprint of the key that has signed the token.
    pub key: TokenHash,
}

/// Reason why a token is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// The text is not a token, its signature is wrong, or it is for another issuer or audience. The message
    /// contains the reason from `jsonwebtoken`, which includes no secret.
    #[error("the JSON Web Token is not valid: {0}")]
    Invalid(String),
    /// No key of the JWKS file has the id that the token names.
    #[error("the JSON Web Token is signed with an unknown key; check whether the JWKS file is current")]
    UnknownKey,
    /// The token has expired.
    #[error("the JSON Web Token has expired")]
    Expired,
    /// The token is not valid yet.
    #[error("the JSON Web Token is not valid yet; check the clocks")]
    NotYet,
    /// The claims do not describe a valid principal.
    #[error("the claims of the JSON Web Token: {0}")]
    Claims(String),
}

/// Returns true if a text has the form of a JSON Web Token: three parts, of which the first is an encoded JSON object.
pub fn is_jwt(text: &str) -> bool {
    text.starts_with("ey") && text.split('.').count() == 3
}

impl JwtVerifier {
    /// Reads a key set (RFC 7517). Keys for encryption and of kinds that are not supported are left
    /// out, so that a new kind of key does not prevent the removal of an old key.
    ///
    /// # Errors
    ///
    /// Returns the reason if the text is not a key set, has no supported key for signatures, or has a symmetric or
    /// damaged key.
    pub fn new(jwks: &[u8], settings: JwtSettings) -> Result<Self, String> {
        verification::install();
        let set: JwkSet = serde_json::from_slice(jwks).map_err(|error| format!("not a JWKS: {error}"))?;
        let mut keys = Vec::with_capacity(set.keys.len());
        for (at, jwk) in set.keys.iter().enumerate() {
            if matches!(jwk.common.public_key_use, Some(PublicKeyUse::Encryption)) {
                continue;
            }
            keys.extend(Key::new(jwk).map_err(|reason| format!("key {at}: {reason}"))?);
        }
        match keys.is_empty() {
            true => Err("the JWKS has no supported key for signatures".to_owned()),
            false => Ok(Self { settings, keys }),
        }
    }

    /// Returns true if the key with this fingerprint is in the set.
    pub fn has_key(&self, fingerprint: TokenHash) -> bool {
        self.keys.iter().any(|key| key.fingerprint == fingerprint)
    }

    /// Verifies a token. Takes some tens of microseconds, so a caller keeps the result for further requests.
    ///
    /// # Errors
    ///
    /// [`JwtError`] with the reason of the refusal.
    pub fn verify(&self, token: &str, now: Timestamp) -> Result<VerifiedJwt, JwtError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(JwtError::Invalid(format!(
                "it is longer than {TOKEN_BYTES_MAX} bytes"
            )));
        }
        let invalid = |error: jsonwebtoken::errors::Error| JwtError::Invalid(error.to_string());
        let header = decode_header(token).map_err(invalid)?;
        if header.crit.is_some() {
            return Err(JwtError::Invalid(
                "its header has critical extensions (crit)".to_owned(),
            ));
        }
        let key = self.key(header.kid.as_deref(), header.alg)?;
        let mut validation = Validation::new(header.alg);
        validation.set_issuer(&[&self.settings.issuer]);
        validation.set_audience(&[&self.settings.audience]);
        validation.set_required_spec_claims(&["iss", "aud"]);
        // These checks would use the clock of the system. `check_times` also requires `exp`, with a message that
        // distinguishes a missing time from one that is out of range.
        validation.validate_exp = false;
        validation.validate_nbf = false;
        let claims = decode::<Map<String, Value>>(token, &key.key, &validation)
            .map_err(invalid)?
            .claims;
        let expires = self.check_times(&claims, now)?;
        Ok(VerifiedJwt {
            principal: Arc::new(self.principal(&claims)?.ending(expires)),
            key: key.fingerprint,
        })
    }

    /// Returns the only key with the algorithm and, if the token contains a key id, with this id. Fails if there is
    /// no such key, or more than one.
    fn key(&self, id: Option<&str>, algorithm: Algorithm) -> Result<&Key, JwtError> {
        let is_wanted = |key: &&Key| {
            let is_named = id.is_none() || key.id.as_deref() == id;
            is_named && key.algorithms.contains(&algorithm)
        };
        let mut found = self.keys.iter().filter(is_wanted);
        match (found.next(), found.next()) {
            (Some(key), None) => Ok(key),
            _ => Err(JwtError::UnknownKey),
        }
    }

    /// Checks the times of a token. Returns its end, with the leeway.
    fn check_times(&self, claims: &Map<String, Value>, now: Timestamp) -> Result<Timestamp, JwtError> {
        let seconds = |name: &str| match claims.get(name) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(seconds) => Ok(Some(seconds)),
                None => Err(JwtError::Claims(format!("{name} is not a number"))),
            },
        };
        let to_time = |seconds: f64| Timestamp::from_nanos_clamped((seconds * 1e9) as i64);
        let end = seconds("exp")?.ok_or_else(|| JwtError::Claims("exp is missing".to_owned()))?;
        if end.abs() > SECONDS_MAX {
            return Err(JwtError::Claims(format!(
                "exp is not a time in seconds since 1970; its absolute value is above {SECONDS_MAX}"
            )));
        }
        let end = to_time(end + LEEWAY_SECONDS);
        if now >= end {
            return Err(JwtError::Expired);
        }
        match seconds("nbf")? {
            Some(begin) if now < to_time(begin - LEEWAY_SECONDS) => Err(JwtError::NotYet),
            _ => Ok(end),
        }
    }

    /// Returns the principal that the claims describe.
    fn principal(&self, claims: &Map<String, Value>) -> Result<Principal, JwtError> {
        let settings = &self.settings;
        let subject = claims
            .get("sub")
            .and_then(Value::as_str)
            .unwrap_or("JSON Web Token");
        let name: String = subject
            .chars()
            .filter(|character| !character.is_control())
            .take(NAME_CHARACTERS_MAX)
            .collect();
        // The claim can also contain roles of other applications, which are ignored.
        let roles = texts(claims, &settings.roles_claim)?.unwrap_or_default();
        let roles: Vec<Role> = roles.iter().filter_map(|name| name.parse().ok()).collect();
        if roles.is_empty() {
            return Err(JwtError::Claims(format!(
                "{} has none of the roles reader, writer, operator and admin",
                settings.roles_claim
            )));
        }
        let is_admin = roles.contains(&Role::Admin);
        // A missing or empty list must not become an empty scope, which restricts nothing.
        type Read = fn(&Map<String, Value>, &str) -> Result<Option<Vec<String>>, JwtError>;
        let restriction = |claim: &Option<String>, read: Read| {
            let Some(claim) = claim else {
                return Ok(Vec::new());
            };
            match read(claims, claim)? {
                Some(list) if !list.is_empty() => Ok(list),
                None if is_admin => Ok(Vec::new()),
                _ => Err(JwtError::Claims(format!("{claim} is missing or empty"))),
            }
        };
        let tables = restriction(&settings.tables_claim, texts)?;
        let models = restriction(&settings.models_claim, texts)?
            .into_iter()
            .map(|name| {
                let found = TableModel::ALL.into_iter().find(|model| model.name() == name);
                found.ok_or_else(|| JwtError::Claims(format!("{name:?} is not a model of tables")))
            });
        let models = models.collect::<Result<Vec<_>, _>>()?;
        let invalid = |error: ScopeError| JwtError::Claims(error.to_string());
        let conditions = restriction(&settings.timelines_claim, spaced_texts)?;
        let condition = match conditions.is_empty() {
            true => None,
            false => Some(TimelineCondition::parse_all(&conditions).map_err(|error| invalid(error.into()))?),
        };
        let tenants = restriction(&settings.tenants_claim, texts)?;
        let scope = Scope::new(tables, models)
            .and_then(|scope| scope.with_condition(condition))
            .and_then(|scope| scope.with_tenants(tenants));
        let scope = scope.map_err(invalid)?;
        scope
            .check_roles(&roles)
            .map_err(|reason| JwtError::Claims(reason.to_owned()))?;
        Ok(Principal::new(&format!("jwt:{name}"), roles, scope))
    }
}

impl Key {
    /// Reads a key. Returns `None` for a kind that is not supported.
    fn new(jwk: &Jwk) -> Result<Option<Self>, String> {
        let of_kind: &[Algorithm] = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => &[
                Algorithm::RS256,
                Algorithm::RS384,
                Algorithm::RS512,
                Algorithm::PS256,
                Algorithm::PS384,
                Algorithm::PS512,
            ],
            AlgorithmParameters::EllipticCurve(key) => match key.curve {
                EllipticCurve::P256 => &[Algorithm::ES256],
                EllipticCurve::P384 => &[Algorithm::ES384],
                _ => &[],
            },
            AlgorithmParameters::OctetKeyPair(key) => match key.curve {
                EllipticCurve::Ed25519 => &[Algorithm::EdDSA],
                _ => &[],
            },
            AlgorithmParameters::OctetKey(_) => {
                return Err(
                    "symmetric keys (kty oct) are not accepted, because a server that verifies a token could also make one"
                        .to_owned(),
                );
            }
            _ => &[],
        };
        let mut algorithms = of_kind.to_vec();
        if let Some(named) = jwk.common.key_algorithm {
            let named = named.to_string();
            algorithms.retain(|algorithm| format!("{algorithm:?}") == named);
        }
        if algorithms.is_empty() {
            return Ok(None);
        }
        let fingerprint = serde_json::to_string(jwk).map_err(|error| error.to_string())?;
        Ok(Some(Self {
            id: jwk.common.key_id.clone(),
            algorithms,
            key: DecodingKey::from_jwk(jwk).map_err(|error| error.to_string())?,
            fingerprint: TokenHash::of(&fingerprint),
        }))
    }
}

/// Returns the texts of a claim: a list, or one text with spaces between them, as providers write scopes. `None` if it
/// is missing.
fn texts(claims: &Map<String, Value>, path: &str) -> Result<Option<Vec<String>>, JwtError> {
    match find(claims, path)? {
        Some(Value::String(text)) => Ok(Some(text.split_whitespace().map(str::to_owned).collect())),
        other => whole_texts(other, path),
    }
}

/// Returns the texts of a claim whose texts can have spaces: a list, or one text. `None` if it is missing.
fn spaced_texts(claims: &Map<String, Value>, path: &str) -> Result<Option<Vec<String>>, JwtError> {
    match find(claims, path)? {
        Some(Value::String(text)) => Ok(Some(vec![text.clone()])),
        other => whole_texts(other, path),
    }
}

fn whole_texts(found: Option<&Value>, path: &str) -> Result<Option<Vec<String>>, JwtError> {
    match found {
        None => Ok(None),
        Some(Value::Array(values)) => {
            let texts = values.iter().map(|value| value.as_str().map(str::to_owned));
            texts
                .collect::<Option<Vec<_>>>()
                .map(Some)
                .ok_or_else(|| not_texts(path))
        }
        Some(_) => Err(not_texts(path)),
    }
}

fn not_texts(path: &str) -> JwtError {
    JwtError::Claims(format!("{path} is neither a text nor a list of texts"))
}

/// Returns the value of a claim; `None` if it is missing. The whole path is first looked up as the name of one
/// member, because providers use names with dots. Then the path is read as names of nested members.
fn find<'c>(claims: &'c Map<String, Value>, path: &str) -> Result<Option<&'c Value>, JwtError> {
    let mut found = claims.get(path);
    if found.is_none() {
        let mut names = path.split('.');
        found = names.next().and_then(|name| claims.get(name));
        for name in names {
            found = match found {
                None => None,
                Some(Value::Object(members)) => members.get(name),
                Some(_) => return Err(not_texts(path)),
            };
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use proptest::prelude::*;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
    use serde_json::json;

    use super::*;
    use crate::{Access, Action};

    const NOW: i64 = 1_800_000_000;

    /// Keys of a provider.
    struct Provider {
        curve: EcdsaKeyPair,
        edwards: Ed25519KeyPair,
    }

    impl Provider {
        fn new() -> Self {
            let random = SystemRandom::new();
            let document =
                EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
            let curve =
                EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random);
            let edwards = Ed25519KeyPair::generate_pkcs8(&random).expect("a key");
            Self {
                curve: curve.expect("a key"),
                edwards: Ed25519KeyPair::from_pkcs8(edwards.as_ref()).expect("a key"),
            }
        }

        fn jwks(&self) -> Value {
            let point = self.curve.public_key().as_ref();
            json!({"keys": [
                {"kty": "EC", "crv": "P-256", "kid": "curve", "use": "sig", "x": encoded(&point[1..33]), "y": encoded(&point[33..])},
                {"kty": "OKP", "crv": "Ed25519", "kid": "edwards", "alg": "EdDSA", "x": encoded(self.edwards.public_key().as_ref())},
                {"kty": "RSA", "use": "enc", "kid": "encryption", "n": "AQAB", "e": "AQAB"},
                {"kty": "RSA", "alg": "RSA-OAEP", "kid": "also encryption", "n": "AQAB", "e": "AQAB"},
                {"kty": "EC", "crv": "P-521", "kid": "unknown", "x": "AQAB", "y": "AQAB"},
            ]})
        }

        fn verifier(&self) -> JwtVerifier {
            JwtVerifier::new(self.jwks().to_string().as_bytes(), settings()).expect("valid keys")
        }

        fn sign(&self, header: &Value, claims: &Value) -> String {
            let message = format!("{}.{}", encoded(header.to_string()), encoded(claims.to_string()));
            let signature = match header["alg"].as_str() {
                Some("EdDSA") => self.edwards.sign(message.as_bytes()).as_ref().to_vec(),
                _ => {
                    let signed = self.curve.sign(&SystemRandom::new(), message.as_bytes());
                    signed.expect("signs").as_ref().to_vec()
                }
            };
            format!("{message}.{}", encoded(signature))
        }
    }

    fn encoded(bytes: impl AsRef<[u8]>) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn settings() -> JwtSettings {
        JwtSettings {
            issuer: "https://id.example".to_owned(),
            audience: "tideline".to_owned(),
            roles_claim: "access.roles".to_owned(),
            tables_claim: Some("https://acme.example/tables".to_owned()),
            models_claim: None,
            timelines_claim: None,
            tenants_claim: None,
        }
    }

    fn claims() -> Value {
        json!({
            "iss": "https://id.example", "aud": ["other", "tideline"], "sub": "ann", "exp": NOW + 300,
            "access": {"roles": ["reader", "unknown"]}, "https://acme.example/tables": ["fleet", "team-a-*"]
        })
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_nanos_clamped(seconds * 1_000_000_000)
    }

    fn curve() -> Value {
        json!({"alg": "ES256", "kid": "curve", "typ": "JWT"})
    }

    #[test]
    fn a_claim_with_tenants_is_required_except_of_admins() {
        let provider = Provider::new();
        let claimed = |tenants: Value, roles: &str| {
            let with_claim = JwtSettings {
                tables_claim: None,
                tenants_claim: Some("org.tenants".to_owned()),
                ..settings()
            };
            let verifier = JwtVerifier::new(provider.jwks().to_string().as_bytes(), with_claim);
            let mut claims = claims();
            claims["access"]["roles"] = json!([roles]);
            claims["org"] = json!({"tenants": tenants});
            let verified = verifier
                .expect("valid keys")
                .verify(&provider.sign(&curve(), &claims), at(NOW));
            let shown = |verified: VerifiedJwt| {
                let tenants = verified.principal.scope().tenants().iter();
                tenants.map(ToString::to_string).collect::<Vec<_>>()
            };
            verified.map(shown)
        };
        assert_eq!(
            claimed(json!("acme team-*"), "reader"),
            Ok(vec!["acme".to_owned(), "team-*".to_owned()])
        );
        assert_eq!(claimed(json!(["acme"]), "operator"), Ok(vec!["acme".to_owned()]));
        for tenants in [Value::Null, json!([]), json!(["a b"]), json!(7)] {
            assert!(
                matches!(claimed(tenants.clone(), "reader"), Err(JwtError::Claims(_))),
                "{tenants}"
            );
        }
        assert!(
            claimed(json!(["acme"]), "admin").is_err(),
            "an admin acts for no tenant"
        );
    }

    #[test]
    fn a_claim_with_conditions_restricts_to_timelines() {
        let provider = Provider::new();
        let claimed = |conditions: Value, roles: &str| {
            let with_claim = JwtSettings {
                timelines_claim: Some("timelines".to_owned()),
                ..settings()
            };
            let verifier = JwtVerifier::new(provider.jwks().to_string().as_bytes(), with_claim);
            let mut claims = claims();
            claims["access"]["roles"] = json!([roles]);
            claims["timelines"] = conditions;
            let verified = verifier
                .expect("valid keys")
                .verify(&provider.sign(&curve(), &claims), at(NOW));
            verified.map(|verified| verified.principal.scope().condition().map(ToString::to_string))
        };
        // A text is one condition, even if it contains spaces. All conditions of a list must hold.
        assert_eq!(
            claimed(json!("team=a b"), "reader"),
            Ok(Some("team=a b".to_owned()))
        );
        let both = claimed(json!(["team=x", "host^=web"]), "writer").expect("accepted");
        assert!(both.is_some_and(|both| both.contains("team") && both.contains("web")));
        // A claim that is missing, empty or not a condition is refused, and so are roles for whole tables.
        for conditions in [
            Value::Null,
            json!([]),
            json!("nonsense"),
            json!("team=~x"),
            json!(7),
        ] {
            assert!(claimed(conditions.clone(), "reader").is_err(), "{conditions}");
        }
        assert!(claimed(json!("team=x"), "operator").is_err());
        assert!(claimed(json!("team=x"), "admin").is_err());
    }

    #[test]
    fn claims_become_a_principal() {
        let provider = Provider::new();
        let verifier = provider.verifier();
        for header in [
            curve(),
            json!({"alg": "EdDSA", "kid": "edwards"}),
            json!({"alg": "EdDSA"}),
        ] {
            let token = provider.sign(&header, &claims());
            assert!(is_jwt(&token));
            let found = verifier.verify(&token, at(NOW)).expect("valid");
            assert_eq!(found.principal.name(), "jwt:ann");
            assert_eq!(found.principal.roles(), [Role::Reader]);
            assert!(verifier.has_key(found.key));
            let read = Access::new(&found.principal, Action::Read).expect("a reader");
            assert!(read.check_table("team-a-cpu").is_ok() && read.check_table("billing").is_err());
            assert!(found.principal.is_valid(at(NOW + 359)) && !found.principal.is_valid(at(NOW + 360)));
        }
    }

    #[test]
    fn tokens_that_are_not_for_this_server_are_refused() {
        let provider = Provider::new();
        let verifier = provider.verifier();
        let with = |name: &str, value: Value| {
            let mut claims = claims();
            match value {
                Value::Null => claims.as_object_mut().and_then(|claims| claims.remove(name)),
                value => claims
                    .as_object_mut()
                    .and_then(|claims| claims.insert(name.to_owned(), value)),
            };
            verifier
                .verify(&provider.sign(&curve(), &claims), at(NOW))
                .expect_err(name)
        };
        assert!(matches!(
            with("iss", json!("https://evil.example")),
            JwtError::Invalid(_)
        ));
        assert!(matches!(with("iss", Value::Null), JwtError::Invalid(_)));
        assert!(matches!(with("aud", json!("other")), JwtError::Invalid(_)));
        assert!(matches!(with("aud", Value::Null), JwtError::Invalid(_)));
        assert_eq!(with("exp", json!(NOW - 60)), JwtError::Expired);
        assert!(matches!(
            with("exp", json!("9999999999")),
            JwtError::Invalid(_) | JwtError::Claims(_)
        ));
        let claims_error = |value: Value| match with("exp", value) {
            JwtError::Claims(reason) => reason,
            other => panic!("{other}"),
        };
        assert_eq!(claims_error(Value::Null), "exp is missing");
        let reason = claims_error(json!(1e30));
        assert!(reason.contains("not a time in seconds"), "{reason}");
        assert_eq!(with("nbf", json!(NOW + 61)), JwtError::NotYet);
        assert!(matches!(
            with("nbf", json!("soon")),
            JwtError::Invalid(_) | JwtError::Claims(_)
        ));
        for (name, value) in [
            ("access", Value::Null),
            ("access", json!({"roles": ["unknown"]})),
            ("access", json!({"roles": 1})),
            ("access", json!({"roles": ["admin"]})),
            ("access", json!("reader")),
            ("https://acme.example/tables", Value::Null),
            ("https://acme.example/tables", json!([])),
            ("https://acme.example/tables", json!({"a": 1})),
            ("https://acme.example/tables", json!([1])),
            ("https://acme.example/tables", json!(["A"])),
        ] {
            let error = with(name, value.clone());
            assert!(matches!(error, JwtError::Claims(_)), "{name} {value}: {error}");
        }
    }

    #[test]
    fn signatures_are_checked_with_the_algorithm_of_the_key() {
        let (provider, other) = (Provider::new(), Provider::new());
        let verifier = provider.verifier();
        let refused = |token: &str| verifier.verify(token, at(NOW)).expect_err("refused");
        assert!(
            matches!(refused(&other.sign(&curve(), &claims())), JwtError::Invalid(_)),
            "another key"
        );
        assert_eq!(
            refused(&provider.sign(&json!({"alg": "ES256", "kid": "none"}), &claims())),
            JwtError::UnknownKey
        );
        assert_eq!(
            refused(&provider.sign(&json!({"alg": "ES256", "kid": "edwards"}), &claims())),
            JwtError::UnknownKey
        );
        assert_eq!(
            refused(&provider.sign(&json!({"alg": "HS256", "kid": "curve"}), &claims())),
            JwtError::UnknownKey
        );
        let critical = json!({"alg": "ES256", "kid": "curve", "crit": ["b64"], "b64": false});
        assert!(matches!(
            refused(&provider.sign(&critical, &claims())),
            JwtError::Invalid(_)
        ));
        // No signature.
        for algorithm in ["none", "None", "NONE"] {
            let message = format!(
                "{}.{}",
                encoded(json!({"alg": algorithm}).to_string()),
                encoded(claims().to_string())
            );
            assert!(
                matches!(refused(&format!("{message}.")), JwtError::Invalid(_)),
                "{algorithm}"
            );
        }
        // Changed claims under a valid signature.
        let token = provider.sign(&curve(), &claims());
        let parts: Vec<&str> = token.split('.').collect();
        let mut more = claims();
        more["access"]["roles"] = json!(["writer"]);
        let changed = format!("{}.{}.{}", parts[0], encoded(more.to_string()), parts[2]);
        assert!(matches!(refused(&changed), JwtError::Invalid(_)));
        assert!(matches!(
            refused(&format!("{token}{}", "A".repeat(20_000))),
            JwtError::Invalid(_)
        ));
    }

    /// Public key of an RSA pair, and tokens that were signed with it (`openssl dgst -sha256 -sign`, PKCS #1 and PSS).
    const RSA_MODULUS: &str = "trE_qTQa6ERkTUeLmM2JOTDJZRE4sdE8vxQtFE-xeb9xXpFVB1uSzv__Tzd_IEU2o5Ou1MIxHc5bbM4hxodHlhXYIERN4-1HQMDE_vbCLw2TszAyD35bmNapDfihgcr-imQwwSqa8zvHbHWwLUsIePY3maIW97ru_vs8vK_qR3QEQXMM1Lbi4QZ5aTPc3BAn_b3lXOfOkorNgBcCFaWGYWY5UrXX-zuYjRMd5bHSZyXc65aIoVWb8rTNmshkMoIC_bVaxkjkvtXRAAX99EVSpWefXAD9ymaV0bnDd76MCedeql525IFZqtPZeghdJuLkwF5NXpbLpsLKER9VWRObgw";
    const RSA_TOKENS: [&str; 2] = [
        "eyJhbGciOiJSUzI1NiIsImtpZCI6InJzYSJ9.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUiLCJhdWQiOiJ0aWRlbGluZSIsInN1YiI6ImJlYSIsImV4cCI6MTgwMDAwMDMwMCwiYWNjZXNzIjp7InJvbGVzIjoid3JpdGVyIG9wZXJhdG9yIn19.HAx0pwa9EpNDoxVz0VGumQpodBhv_3W-sHYVQX3ljzK5pTHDyrx92QGI3-N0VALBlQleuaVuLrqYeoORVQTOk0bTYqOVuxtVMnZ7qNhh0427xfvqMuM8VqlrekPGauHk52qGrPuwh8hxAOV0tUPPSHtAFvlCKpodAYMdIBavMHOPVZNDi8312zC7zEXSkv2nV1Tvn3G1_VEr5quu2tCtPYOOQiOwYUHlbfr38LzZTNwto7h4w6K-ReYWe3aBZ2rZlvxvBRWLFdMDNxa-HD95clguNcHm1umcsLX7eo7qukeb_GrihoaVYXSv6SXuZ6n-mWt3yWV-8PW3z_gkHnGAtg",
        "eyJhbGciOiJQUzI1NiIsImtpZCI6InJzYSJ9.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUiLCJhdWQiOiJ0aWRlbGluZSIsInN1YiI6ImJlYSIsImV4cCI6MTgwMDAwMDMwMCwiYWNjZXNzIjp7InJvbGVzIjoid3JpdGVyIG9wZXJhdG9yIn19.FnXx9e3HI4Tkew9_3AWMdGH5tdEJFK60FU0D6h-vKQelup-OZ5ppJ04gXnD6yrh_wPI3ax5s3886Y-rrH1wWjk8rRRdmBzNpwypCfOyDL3U77qrr9LyTtSTlWj_bw12COha-L_FO4Doth2zCu32Y8tbOQbCbzBzzwjDPI9g8c0oGc6GS62411SqF2QYmsmYYwWDeo9loknQiotQU5f9Y95OMWDei-mdDPOlSVCXZJ9lgZ1SSziIUI8HvcCtTCkTyNLme3hxOzZE_YhcPWbQP_jVQmC6JQAB0FG94RfadbEC2MqzT1JrEbioIGfMbgh-c7hQ5X0u96QW8ZUY5z_CWQA",
    ];

    #[test]
    fn tokens_signed_with_rsa_are_accepted() {
        let key = |algorithm: Option<&str>| {
            let mut key = json!({"kty": "RSA", "kid": "rsa", "n": RSA_MODULUS, "e": "AQAB"});
            if let Some(algorithm) = algorithm {
                key["alg"] = json!(algorithm);
            }
            let settings = JwtSettings {
                tables_claim: None,
                timelines_claim: None,
                ..settings()
            };
            JwtVerifier::new(json!({"keys": [key]}).to_string().as_bytes(), settings).expect("valid keys")
        };
        for token in RSA_TOKENS {
            let found = key(None).verify(token, at(NOW)).expect("valid");
            assert_eq!(found.principal.roles(), [Role::Writer, Role::Operator]);
            let other = format!("{}A{}", &token[..token.len() - 20], &token[token.len() - 19..]);
            assert!(other == token || key(None).verify(&other, at(NOW)).is_err());
        }
        assert!(key(Some("RS256")).verify(RSA_TOKENS[0], at(NOW)).is_ok());
        let error = key(Some("RS256"))
            .verify(RSA_TOKENS[1], at(NOW))
            .expect_err("PS256");
        assert_eq!(error, JwtError::UnknownKey);
    }

    #[test]
    fn key_sets_without_use_are_refused() {
        for (set, part) in [
            (json!({}), "not a JWKS"),
            (json!({"keys": []}), "no supported key"),
            (json!({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}), "symmetric"),
            (
                json!({"keys": [{"kty": "EC", "crv": "P-521", "x": "", "y": ""}]}),
                "no supported key",
            ),
        ] {
            let reason = JwtVerifier::new(set.to_string().as_bytes(), settings()).expect_err("refused");
            assert!(reason.contains(part), "{set}: {reason}");
        }
    }

    proptest! {
        #![proptest_config(tideline_testkit::proptest_config(256))]

        /// No text makes the verifier panic, or gets accepted.
        #[test]
        fn other_texts_are_refused(text in "(ey)?[A-Za-z0-9_.=-]{0,200}") {
            let provider = Provider::new();
            prop_assert!(provider.verifier().verify(&text, at(NOW)).is_err());
        }

        /// A token with one changed character is refused, except for unused bits of the last character of a part.
        #[test]
        fn changed_tokens_are_refused(position in 0usize..400, letter in proptest::char::range('A', 'Z')) {
            let provider = Provider::new();
            let token = provider.sign(&curve(), &claims());
            let position = position % token.len();
            let mut changed = token.clone();
            changed.replace_range(position..=position, &letter.to_string());
            let is_last = token.as_bytes().get(position + 1).is_none_or(|next| *next == b'.');
            if changed != token && !is_last {
                prop_assert!(provider.verifier().verify(&changed, at(NOW)).is_err(), "{changed}");
            }
        }
    }
}
