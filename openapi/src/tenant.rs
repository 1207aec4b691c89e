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
    "budgets": {
        "points_per_second": 50_000, "new_timelines_per_minute": 1_000, "timelines": 100_000, "hot_bytes": 10_000_000_000u64,
        "queries": 8
    }
}))]
pub struct PutTenant {
    /// Tables of the tenant: names, and prefixes followed by `*`, at most 100. No table can belong to two tenants.
    pub tables: Vec<String>,
    /// Table of requests that do not name a table, such as `/api/v1/write`. It must be one of the tables of the
    /// tenant; it is not created automatically. `null`: such requests are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_table: Option<String>,
    /// Budgets.
    #[serde(default)]
    pub budgets: TenantBudgets,
}

/// Limits that apply to all requests of a tenant together, each at least 1. A request over a budget is refused
/// with 429 before its body is read. The budgets of timelines and of memory, and the budgets of writes by SQL,
/// are checked while the request is executed. A table or change stream over its budget is refused with 400
/// `over_limit`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantBudgets {
    /// Points, rows and messages written per second, averaged over ten seconds. A write that begins within the
    /// budget is stored as a whole; later writes are refused until the average is within the budget again. `null`:
    /// no limit.
    #[serde(default)]
    pub points_per_second: Option<u64>,
    /// New timelines per minute in all tables of the tenant. All timelines of a minute can be created at once.
    /// Points of further new timelines are rejected as retryable. `null`: no limit.
    #[serde(default)]
    pub new_timelines_per_minute: Option<u64>,
    /// Maximum number of concurrent requests that read. Watches, and reads that can wait for new data, do not
    /// count. `null`: no limit.
    #[serde(default)]
    pub queries: Option<u64>,
    /// Timelines in all tables of the tenant. Points of further new timelines are rejected and are not
    /// retryable. `null`: no limit.
    #[serde(default)]
    pub timelines: Option<u64>,
    /// Bytes in the hot tier, measured every ten seconds. Writes are refused while the tenant has at least this
    /// many bytes in the tier; nothing is deleted. Points count with their encoded size. Rows that are not
    /// archived count as hot, with the size from their last survey, and so do attributes, saved searches and
    /// metadata of metrics. `null`: no limit.
    #[serde(default)]
    pub hot_bytes: Option<u64>,
    /// Bytes in the cold tier, like `hot_bytes`.
    #[serde(default)]
    pub cold_bytes: Option<u64>,
    /// Bytes of files in the archive, like `hot_bytes`.
    #[serde(default)]
    pub archive_bytes: Option<u64>,
    /// Bytes of stored points, rows and values read per second, averaged over ten seconds. A read that begins
    /// within the budget is executed as a whole; later reads are refused until the average is within the budget
    /// again. `null`: no limit.
    #[serde(default)]
    pub bytes_read_per_second: Option<u64>,
    /// Bytes of memory that all requests hold at the same time for intermediate and final results, imports and
    /// uploads. A request that needs more than the remaining memory fails; the error is retryable if the request
    /// alone would fit. At least 1 MiB. `null`: only the limit of the process applies.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Number of tables. A feed table with inboxes counts as two. `null`: a tenth of `tables.count_max`, at least 1.
    #[serde(default)]
    pub tables: Option<u64>,
    /// Number of change streams that contain only tables of the tenant. `null`: 10.
    #[serde(default)]
    pub change_streams: Option<u64>,
}

/// Usage of a tenant: current values, and counts since the server started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TenantUse {
    /// Points, rows and messages of the writes, also those that were rejected.
    pub points: u64,
    /// Bytes of stored points, rows and values that were read.
    pub bytes_read: u64,
    /// Running requests that read.
    pub queries: u64,
    /// Bytes of memory of running requests; 0 without the budget `memory_bytes`.
    pub memory_bytes: u64,
    /// Timelines, as last measured.
    pub timelines: u64,
    /// Bytes in the hot tier, as last measured.
    pub hot_bytes: u64,
    /// Bytes in the cold tier, as last measured.
    pub cold_bytes: u64,
    /// Bytes in the archive, as last measured.
    pub archive_bytes: u64,
    /// Writes refused by `points_per_second`, `hot_bytes`, `cold_bytes` and `archive_bytes`.
    pub refused_points: u64,
    /// New timelines refused by `new_timelines_per_minute` and `timelines`.
    pub refused_timelines: u64,
    /// Requests refused by `queries` and `bytes_read_per_second`.
    pub refused_queries: u64,
    /// Reservations of memory refused by `memory_bytes`.
    pub refused_memory: u64,
    /// Tables. A feed table with inboxes counts as two.
    pub tables: u64,
    /// Largest allowed number of tables: the budget, or its default.
    pub tables_max: u64,
    /// Change streams that contain only tables of the tenant.
    pub change_streams: u64,
    /// Largest allowed number of change streams: the budget, or its default.
    pub change_streams_max: u64,
    /// New tables and change streams refused by `tables` and `change_streams`.
    pub refused_objects: u64,
}

/// Tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TenantView {
    /// Name.
    pub name: String,
    /// Tables of the tenant: names, and prefixes followed by `*`.
    pub tables: Vec<String>,
    /// Table of requests that do not name a table.
    pub default_table: Option<String>,
    /// Budgets.
    pub budgets: TenantBudgets,
    /// Usage: current values, and counts since the server started.
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
