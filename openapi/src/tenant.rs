//! Tenants: owners of tables, with budgets.
//!
//! A tenant has the tables with certain names and prefixes. Tokens act for tenants, see [`crate::token`].

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Tables and budgets of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "tables": ["acme-*"],
    "default_table": "acme-metrics",
    "budgets": {"points_per_second": 50_000, "new_timelines_per_minute": 1_000, "queries": 8}
}))]
pub struct PutTenant {
    /// Tables of the tenant: names, and prefixes followed by `*`, at most 100. No table can belong to two tenants.
    pub tables: Vec<String>,
    /// Table of requests that name none, such as `/api/v1/write`. It must be one of the tables of the tenant; it is not
    /// created. `null`: such requests are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_table: Option<String>,
    /// Budgets.
    #[serde(default)]
    pub budgets: TenantBudgets,
}

/// Limits of all requests for a tenant together. A request over the budget of points or queries is refused with
/// 429, before its body is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantBudgets {
    /// Points, rows and messages written per second, averaged over ten seconds. A write that begins within the budget is
    /// stored as a whole, and the next ones wait until the average is met again. `null`: no limit.
    #[serde(default)]
    pub points_per_second: Option<u64>,
    /// New timelines in all tables of the tenant per minute; those of a minute may come at once. Points of further new
    /// timelines are rejected as retryable. `null`: no limit.
    #[serde(default)]
    pub new_timelines_per_minute: Option<u64>,
    /// Requests that read, at the same time. Watches, and reads that can wait for something new, do not count. `null`: no
    /// limit.
    #[serde(default)]
    pub queries: Option<u64>,
}

/// Usage of a tenant since the server started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TenantUse {
    /// Points, rows and messages of the writes, also those that were rejected.
    pub points: u64,
    /// Running requests that read.
    pub queries: u64,
    /// Writes refused by `points_per_second`.
    pub refused_points: u64,
    /// New timelines refused by `new_timelines_per_minute`.
    pub refused_timelines: u64,
    /// Requests refused by `queries`.
    pub refused_queries: u64,
}

/// Tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TenantView {
    /// Name.
    pub name: String,
    /// Tables of the tenant: names, and prefixes followed by `*`.
    pub tables: Vec<String>,
    /// Table of requests that name none.
    pub default_table: Option<String>,
    /// Budgets.
    pub budgets: TenantBudgets,
    /// Usage since the server started.
    pub used: TenantUse,
    /// Creation time, RFC 3339.
    pub created: String,
    /// Principal that created the tenant.
    pub created_by: String,
}

/// One tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TenantDetail {
    /// Description of the tenant.
    #[serde(flatten)]
    pub view: TenantView,
    /// Id of the request, as in the server log.
    pub request_id: String,
}

/// All tenants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TenantList {
    /// Tenants, sorted by name.
    pub tenants: Vec<TenantView>,
    /// Id of the request, as in the server log.
    pub request_id: String,
}
