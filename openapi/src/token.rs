//! Tokens: credentials of clients, restricted by roles, tables, models, timelines and tenants.
//!
//! [`Role`] of `tideline-model` defines the names of roles, so that the API, stored tokens and the command line use the
//! same names.

use std::borrow::Cow;
use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use tideline_model::{Role, TableModel};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use crate::condition::Condition;
use crate::named::named;
use crate::table::TableModelSchema;
use crate::tenant::{TenantBudgets, TenantUse};
use crate::time::{DurationText, TimeInput};

/// New token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "telegraf", "roles": ["writer"], "tables": ["fleet", "team-a-*"], "expires": "now+90d"}))]
pub struct CreateToken {
    /// Name shown in lists and logs, 1 to 64 characters. Several tokens may have the same name.
    pub name: String,
    /// Roles, at least one. The token may do everything that at least one of its roles allows.
    #[schema(value_type = Vec<RoleSchema>)]
    pub roles: Vec<Role>,
    /// Tables that the token may use: names, and prefixes followed by `*`; at least one. Omitted: all tables.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "restriction"
    )]
    pub tables: Vec<String>,
    /// Models of tables that the token may use; at least one. Omitted: all models.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "restriction"
    )]
    #[schema(value_type = Vec<TableModelSchema>)]
    pub models: Vec<TableModel>,
    /// Condition on the timelines that the token may use, with the tests `equals`, `not_equals`, `in`, `prefix` and
    /// `exists` of tags, attributes, the measurement or the source. The token then reaches only tables with the model
    /// series, and the role must be `reader` or `writer`. Omitted: all timelines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timelines: Option<Condition>,
    /// Tenants for which requests with the token act: names, and prefixes followed by `*`. If several tenants are
    /// possible, each request names one of them in the header `X-Scope-OrgID`. A request reaches only the tables of
    /// its tenant. At least one; omitted: requests act for no tenant, and the header is ignored.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "restriction"
    )]
    pub tenants: Vec<String>,
    /// Time at which the token becomes invalid, for example `now+90d`. `null`: it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<TimeInput>,
}

/// Deserializes a list that restricts a token, for members with `#[serde(default, deserialize_with = "restriction")]`.
/// Refuses an empty list: it would restrict nothing, which a client that computes the list does not expect.
///
/// # Errors
///
/// Fails if the value is not a list of `T`, or is empty.
pub fn restriction<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let list = Vec::deserialize(deserializer)?;
    match list.is_empty() {
        true => Err(D::Error::custom(
            "the list is empty, which would restrict nothing; add an entry, or omit the member to restrict nothing",
        )),
        false => Ok(list),
    }
}

/// Rotation of a token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"overlap": "24h"}))]
pub struct RotateToken {
    /// Time for which the previous secret stays valid, at most 30 days. Default 24 h; `0s`: it becomes invalid
    /// immediately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap: Option<DurationText>,
}

/// Schema of [`Role`], with the names that `tideline-model` defines.
pub struct RoleSchema;

impl PartialSchema for RoleSchema {
    fn schema() -> RefOr<Schema> {
        named(
            "Roles of tokens: `reader` reads and searches data; `writer` writes and deletes data, and reads nothing; \
             `operator` reads, and manages tables, indexes, policies, jobs, archives and change streams; `admin` may do \
             everything and manages tokens.",
            Role::ALL.map(Role::name),
        )
    }
}

impl ToSchema for RoleSchema {
    fn name() -> Cow<'static, str> {
        "Role".into()
    }
}

/// Token, without its secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    /// Id. It is part of the token, but it is not secret.
    pub id: String,
    /// Name shown in lists and logs.
    pub name: String,
    /// Roles.
    #[schema(value_type = Vec<RoleSchema>)]
    pub roles: Vec<Role>,
    /// Tables that the token may use: names, and prefixes followed by `*`. Empty: all tables.
    pub tables: Vec<String>,
    /// Models of tables that the token may use. Empty: all models.
    #[schema(value_type = Vec<TableModelSchema>)]
    pub models: Vec<TableModel>,
    /// Condition on the timelines that the token may use; `null`: all timelines.
    pub timelines: Option<Condition>,
    /// Tenants for which requests with the token act: names, and prefixes followed by `*`.
    pub tenants: Vec<String>,
    /// Creation time, RFC 3339.
    pub created: String,
    /// Principal that created the token.
    pub created_by: String,
    /// Time at which the token becomes invalid, RFC 3339; `null` if it does not expire.
    pub expires: Option<String>,
    /// True if the token has expired.
    pub is_expired: bool,
    /// Time until which a secret from before the last rotation is valid, RFC 3339; `null` if there is no such secret.
    pub previous_secret_until: Option<String>,
    /// Time of the last use, RFC 3339; `null` if it was not used. After a crash of the server it may be up to 15 minutes
    /// too early.
    pub last_used: Option<String>,
}

/// Created or rotated token.
#[derive(Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "token": "tl_5f0c1e9a7b34_<64 hexadecimal digits and a checksum>",
    "id": "5f0c1e9a7b34",
    "name": "telegraf",
    "roles": ["writer"],
    "tables": ["fleet", "team-a-*"],
    "models": [],
    "timelines": null,
    "tenants": [],
    "created": "2026-11-28T12:00:00Z",
    "created_by": "configured token",
    "expires": "2027-02-26T12:00:00Z",
    "is_expired": false,
    "previous_secret_until": null,
    "last_used": null,
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct NewToken {
    /// The token to send with requests. It is shown only in this response, and only its hash is stored.
    pub token: String,
    /// Description of the token.
    #[serde(flatten)]
    pub view: TokenView,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken")
            .field("view", &self.view)
            .finish_non_exhaustive()
    }
}

/// One token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenDetail {
    /// Description of the token.
    #[serde(flatten)]
    pub view: TokenView,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// All tokens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// Tokens, sorted by id.
    pub tokens: Vec<TokenView>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// Principal of the request, with the permissions of its token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "name": "telegraf",
    "id": "5f0c1e9a7b34",
    "roles": ["writer"],
    "tables": ["fleet", "team-a-*"],
    "models": [],
    "timelines": null,
    "tenants": [],
    "tenant": null,
    "budgets": null,
    "used": null,
    "expires": "2027-02-26T12:00:00Z",
    "request_id": "01jd3k5w8v-000002a1"
}))]
pub struct AccessView {
    /// Name of the token; `configured token` for the token of the configuration, `anonymous` if the server requires none.
    pub name: String,
    /// Id of the token; `null` for a principal without a stored token.
    pub id: Option<String>,
    /// Roles.
    #[schema(value_type = Vec<RoleSchema>)]
    pub roles: Vec<Role>,
    /// Tables that the token may use: names, and prefixes followed by `*`. Empty: all tables.
    pub tables: Vec<String>,
    /// Models of tables that the token may use. Empty: all models.
    #[schema(value_type = Vec<TableModelSchema>)]
    pub models: Vec<TableModel>,
    /// Condition on the timelines that the token may use; `null`: all timelines.
    pub timelines: Option<Condition>,
    /// Tenants for which requests with the token act: names, and prefixes followed by `*`.
    pub tenants: Vec<String>,
    /// Tenant for which this request acts.
    pub tenant: Option<String>,
    /// Budgets of this tenant; `null` if the request acts for no tenant.
    pub budgets: Option<TenantBudgets>,
    /// Usage of this tenant: current values, and counts since the server started; `null` if the request acts for no
    /// tenant, or if the token is also restricted to tables, models or timelines.
    pub used: Option<TenantUse>,
    /// Time at which the token becomes invalid, RFC 3339; `null` if it does not expire. For a secret that was replaced
    /// by a rotation, the end of the overlap.
    pub expires: Option<String>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}
