//! Secrets and signatures: published examples of Standard Webhooks, limits, and texts that must not show the secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tideline_webhooks::{SecretError, WebhookSecret};

#[test]
fn signatures_match_the_published_example() {
    // Example of the reference libraries of Standard Webhooks.
    let secret = WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
    let signature = secret.signature(
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        b"{\"test\": 2432232314}",
    );
    assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

#[test]
fn both_forms_of_a_secret_stand_for_the_same_key() {
    let key = b"0123456789abcdef0123456789abcdef";
    let encoded = format!("whsec_{}", STANDARD.encode(key));
    let raw = std::str::from_utf8(key).expect("text");
    let signatures = [
        WebhookSecret::parse(&encoded),
        WebhookSecret::parse(raw),
        WebhookSecret::from_key(key),
    ]
    .map(|secret| secret.expect("a secret").signature("a", 1, b"x"));
    assert_eq!(signatures[0], signatures[1]);
    assert_eq!(signatures[0], signatures[2]);
}

#[test]
fn the_signature_depends_on_every_part() {
    let secret = WebhookSecret::from_key(&[7; 32]).expect("a secret");
    let other = WebhookSecret::from_key(&[8; 32]).expect("a secret");
    let signatures = [
        secret.signature("a", 1, b"x"),
        secret.signature("b", 1, b"x"),
        secret.signature("a", 2, b"x"),
        secret.signature("a", 1, b"y"),
        other.signature("a", 1, b"x"),
    ];
    let distinct: std::collections::BTreeSet<_> = signatures.iter().collect();
    assert_eq!(distinct.len(), signatures.len());
}

#[test]
fn a_replaced_secret_signs_too() {
    let secret = |byte| WebhookSecret::from_key(&[byte; 32]).expect("a secret");
    let old = secret(1).replacing(&secret(0));
    let both = secret(2).replacing(&old).signature("a", 1, b"x");
    let expected = [secret(2), secret(1)].map(|secret| secret.signature("a", 1, b"x"));
    assert_eq!(both, expected.join(" "));
}

#[test]
fn the_length_of_the_key_is_limited() {
    for (length, is_valid) in [(0, false), (15, false), (16, true), (256, true), (257, false)] {
        let key = vec![b'k'; length];
        let encoded = format!("whsec_{}", STANDARD.encode(&key));
        let raw = String::from_utf8(key).expect("text");
        for text in [encoded, raw] {
            match WebhookSecret::parse(&text) {
                Ok(_) => assert!(is_valid, "{length}"),
                Err(error) => {
                    assert_eq!((error, is_valid), (SecretError::Length { actual: length }, false));
                    assert!(error.to_string().contains("16 to 256"), "{error}");
                }
            }
        }
    }
    assert_eq!(
        WebhookSecret::parse("whsec_not base64!").err(),
        Some(SecretError::Encoding)
    );
}

#[test]
fn texts_do_not_show_the_secret() {
    let secret = WebhookSecret::parse("correct horse battery").expect("a secret");
    for text in [
        format!("{secret}"),
        format!("{secret:?}"),
        format!("{:#?}", Some(&secret)),
    ] {
        assert!(!text.contains("horse") && !text.contains("99, 111"), "{text}");
    }
    let error = WebhookSecret::parse("whsec_horse!")
        .expect_err("not base64")
        .to_string();
    assert!(!error.contains("horse"), "{error}");
}
