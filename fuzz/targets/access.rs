//! Fuzz target: arbitrary bytes as a key set of an identity provider and as a JSON Web Token, and arbitrary text as a
//! token of the server, as a scope and as a condition on timelines. Nothing panics, and no JSON Web Token is accepted,
//! because the fuzzer has no private key. A condition that is accepted reads back from its JSON form.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use tideline_access::jwt::{JwtSettings, JwtVerifier};
use tideline_access::{Scope, TimelineCondition, TokenRecord, Tokens};
use tideline_model::Timestamp;

/// Keys whose private halves are not in the repository.
const KEYS: &str = r#"{"keys": [
    {"kty": "OKP", "crv": "Ed25519", "kid": "a", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
    {"kty": "EC", "crv": "P-256", "kid": "b", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}
]}"#;

#[derive(Debug, Arbitrary)]
struct Input {
    keys: Vec<u8>,
    token: String,
    record: Vec<u8>,
    scope: Vec<String>,
    condition: String,
}

fn settings() -> JwtSettings {
    JwtSettings {
        issuer: "i".to_owned(),
        audience: "a".to_owned(),
        roles_claim: "roles".to_owned(),
        tables_claim: Some("tables".to_owned()),
        models_claim: Some("models".to_owned()),
        timelines_claim: Some("timelines".to_owned()),
        tenants_claim: Some("tenants".to_owned()),
    }
}

fuzz_target!(|input: Input| {
    let _ = JwtVerifier::new(&input.keys, settings());
    let verifier = JwtVerifier::new(KEYS.as_bytes(), settings()).expect("valid keys");
    assert!(verifier.verify(&input.token, Timestamp::EPOCH).is_err());
    if let Ok(record) = serde_json::from_slice::<TokenRecord>(&input.record) {
        let _ = record.check();
        let tokens = Tokens::new([(record, None)]);
        let _ = tokens.authenticate(&input.token, Timestamp::EPOCH);
    }
    if let Ok(condition) = TimelineCondition::parse(&input.condition) {
        let again = TimelineCondition::parse(condition.as_json()).expect("its own form");
        assert_eq!(again, condition);
        let _ = condition.to_string();
    }
    if let Ok(scope) = Scope::new(input.scope, []) {
        let _ = scope.to_string();
        let _ = (scope.has_table(&input.token), scope.covers(&input.token));
    }
});
