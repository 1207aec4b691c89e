//! Benchmarks of the access control of a request: lookup of its token among 1,000 tokens, and the checks of its
//! role and of one table. Another benchmark verifies a JSON Web Token, which a server does once for each token.

#![allow(clippy::unwrap_used, reason = "a bench may panic")]

use std::hint::black_box;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use criterion::{Criterion, criterion_group, criterion_main};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use tideline_access::jwt::{JwtSettings, JwtVerifier};
use tideline_access::{
    Access, Action, Authenticated, Role, Scope, StoredSecret, TokenRecord, TokenText, Tokens,
};
use tideline_model::Timestamp;

/// Number of tokens of the server.
const TOKENS: usize = 1_000;

fn of_tokens(criterion: &mut Criterion) {
    let texts: Vec<TokenText> = (0..TOKENS).map(|_| TokenText::new().unwrap()).collect();
    let records = texts.iter().map(|text| TokenRecord {
        id: text.id().to_owned(),
        name: "agent".to_owned(),
        roles: vec![Role::Writer],
        scope: Scope::new(["fleet", "team-a-*"], []).unwrap(),
        created: 0,
        created_by: String::new(),
        expires: None,
        secrets: vec![StoredSecret {
            sha256: text.hash(),
            expires: None,
        }],
    });
    let tokens = Tokens::new(records.map(|record| (record, None)));
    let mut next = texts.iter().cycle();
    criterion.bench_function("access of a request, 1,000 tokens", |bench| {
        bench.iter(|| {
            let text = next.next().unwrap().expose();
            let Authenticated::Valid(principal) = tokens.authenticate(black_box(text), Timestamp::EPOCH)
            else {
                panic!("the token is valid");
            };
            let access = Access::new(&principal, Action::Write).unwrap();
            access.check_table(black_box("team-a-cpu")).unwrap();
        });
    });
}

fn of_a_provider(criterion: &mut Criterion) {
    let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let pair = Ed25519KeyPair::from_pkcs8(pair.as_ref()).unwrap();
    let encoded = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let keys = format!(
        r#"{{"keys": [{{"kty": "OKP", "crv": "Ed25519", "x": "{}"}}]}}"#,
        encoded(pair.public_key().as_ref())
    );
    let settings = JwtSettings {
        issuer: "i".to_owned(),
        audience: "a".to_owned(),
        roles_claim: "roles".to_owned(),
        tables_claim: None,
        models_claim: None,
        timelines_claim: None,
        tenants_claim: None,
    };
    let verifier = JwtVerifier::new(keys.as_bytes(), settings).unwrap();
    let claims = br#"{"iss": "i", "aud": "a", "sub": "ann", "exp": 4000000000, "roles": ["reader"]}"#;
    let message = format!("{}.{}", encoded(br#"{"alg": "EdDSA"}"#), encoded(claims));
    let token = format!("{message}.{}", encoded(pair.sign(message.as_bytes()).as_ref()));
    criterion.bench_function("verification of a JSON Web Token, Ed25519", |bench| {
        bench.iter(|| verifier.verify(black_box(&token), Timestamp::EPOCH).unwrap());
    });
}

criterion_group!(benches, of_tokens, of_a_provider);
criterion_main!(benches);
