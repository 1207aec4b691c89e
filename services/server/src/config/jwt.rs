//! Settings of JSON Web Tokens, and their validation.
//!
//! A token is only accepted for a known issuer and audience: without them, a token that the provider made for another
//! application would be valid here.

use std::path::PathBuf;

use tideline_http::{JwtFileSettings, JwtSettings};

use super::Resolved;
use super::sources::Problem;

/// Settings of JSON Web Tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtConfig {
    /// File with the public keys of the provider; without it, JSON Web Tokens are not accepted.
    pub jwks_file: Option<PathBuf>,
    /// Required issuer.
    pub issuer: Option<String>,
    /// Required audience.
    pub audience: Option<String>,
    /// Claim with the roles.
    pub roles_claim: String,
    /// Claim with the tables; `None` if tokens are not restricted to tables.
    pub tables_claim: Option<String>,
    /// Claim with the models; `None` if tokens are not restricted to models.
    pub models_claim: Option<String>,
    /// Claim with conditions on timelines; `None` if tokens are not restricted to timelines.
    pub timelines_claim: Option<String>,
    /// Claim with the tenants for which requests act; `None` if they act for none.
    pub tenants_claim: Option<String>,
}

impl Default for JwtConfig {
    fn default() -> Self {
        Self {
            jwks_file: None,
            issuer: None,
            audience: None,
            roles_claim: "roles".to_owned(),
            tables_claim: None,
            models_claim: None,
            timelines_claim: None,
            tenants_claim: None,
        }
    }
}

impl JwtConfig {
    /// Returns the settings of the HTTP service; `None` if JSON Web Tokens are not accepted.
    pub(super) fn settings(&self) -> Option<JwtFileSettings> {
        Some(JwtFileSettings {
            jwks_file: self.jwks_file.clone()?,
            claims: JwtSettings {
                issuer: self.issuer.clone()?,
                audience: self.audience.clone()?,
                roles_claim: self.roles_claim.clone(),
                tables_claim: self.tables_claim.clone(),
                models_claim: self.models_claim.clone(),
                timelines_claim: self.timelines_claim.clone(),
                tenants_claim: self.tenants_claim.clone(),
            },
        })
    }
}

impl Resolved {
    /// Returns a problem if the issuer or the audience of JSON Web Tokens is missing, otherwise `None`.
    pub(super) fn incomplete_jwt(&self) -> Option<Problem> {
        let jwt = &self.config.jwt;
        let missing = match (&jwt.issuer, &jwt.audience) {
            _ if jwt.jwks_file.is_none() => return None,
            (None, _) => "auth.jwt_issuer",
            (_, None) => "auth.jwt_audience",
            (Some(_), Some(_)) => return None,
        };
        Some(Problem::at(
            self.origin("auth.jwks_file"),
            format!(
                "auth.jwks_file needs {missing}: without it, tokens that the provider made for other applications would be accepted"
            ),
        ))
    }
}
