//! Signature algorithms of JSON Web Tokens, with `ring`, which the rest of the server uses too.
//!
//! `jsonwebtoken` gets the algorithms through an interface, so that the process needs only one implementation of
//! cryptography. Tokens are only verified here, never created.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::signature::{
    self as with_ring, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey, VerificationAlgorithm,
};
use signature::Verifier;

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: no_signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// Makes `jsonwebtoken` use these algorithms in this process.
pub(crate) fn install() {
    // This call fails if the algorithms are installed already.
    let _ = PROVIDER.install_default();
}

/// Check of signatures with one key and algorithm.
struct Check {
    key: DecodingKey,
    algorithm: Algorithm,
}

/// Algorithm of `ring`.
enum Parameters {
    Rsa(&'static RsaParameters),
    Other(&'static dyn VerificationAlgorithm),
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let (algorithm, key) = (*algorithm, key.clone());
    let is_of_family = parameters(algorithm).is_some_and(|parameters| match (parameters, key.family()) {
        (Parameters::Rsa(_), family) => family == AlgorithmFamily::Rsa,
        (Parameters::Other(_), AlgorithmFamily::Ec) => {
            matches!(algorithm, Algorithm::ES256 | Algorithm::ES384)
        }
        (Parameters::Other(_), AlgorithmFamily::Ed) => algorithm == Algorithm::EdDSA,
        (Parameters::Other(_), _) => false,
    });
    match is_of_family {
        true => Ok(Box::new(Check { key, algorithm })),
        false => Err(ErrorKind::InvalidAlgorithm.into()),
    }
}

fn no_signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::InvalidAlgorithm.into())
}

/// Returns the algorithm of `ring`; `None` for a symmetric one, which is not accepted.
fn parameters(algorithm: Algorithm) -> Option<Parameters> {
    Some(match algorithm {
        Algorithm::RS256 => Parameters::Rsa(&with_ring::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Parameters::Rsa(&with_ring::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Parameters::Rsa(&with_ring::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Parameters::Rsa(&with_ring::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Parameters::Rsa(&with_ring::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Parameters::Rsa(&with_ring::RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 => Parameters::Other(&with_ring::ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Parameters::Other(&with_ring::ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Parameters::Other(&with_ring::ED25519),
        _ => return None,
    })
}

impl Verifier<Vec<u8>> for Check {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let wrong = signature::Error::new;
        match (parameters(self.algorithm), self.key.kind()) {
            (Some(Parameters::Rsa(parameters)), DecodingKeyKind::RsaModulusExponent { n, e }) => {
                let key = RsaPublicKeyComponents { n, e };
                key.verify(parameters, message, signature).map_err(|_| wrong())
            }
            (Some(Parameters::Other(algorithm)), DecodingKeyKind::SecretOrDer(bytes)) => {
                let key = UnparsedPublicKey::new(algorithm, bytes);
                key.verify(message, signature).map_err(|_| wrong())
            }
            _ => Err(wrong()),
        }
    }
}

impl JwtVerifier for Check {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}
