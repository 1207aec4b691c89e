//! Response bodies of the Prometheus routes. Prometheus defines their form.
//!
//! The types describe the bodies in the OpenAPI document. Small bodies are serialized from them; query results are
//! serialized by `tideline-prometheus`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Error body of the Prometheus HTTP API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "status": "error",
    "errorType": "bad_data",
    "error": "invalid parameter \"query\": 1:4: parse error: unexpected end of input"
}))]
pub struct PrometheusError {
    /// Status; always `error`.
    pub status: String,
    /// Error class: `bad_data`, `execution`, `timeout`, `canceled`, `internal`, `unavailable`, `not_found` or
    /// `not_acceptable`.
    #[serde(rename = "errorType")]
    pub error_type: String,
    /// Human-readable description.
    pub error: String,
}

/// Success body of the Prometheus HTTP API.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Answer<T> {
    /// Status; always `success`.
    #[schema(example = "success")]
    pub status: String,
    /// Result.
    pub data: T,
    /// Warnings: reasons why the result may be wrong or incomplete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Notes on the result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub infos: Vec<String>,
}

impl<T> Answer<T> {
    /// Creates a success body without warnings.
    pub fn new(data: T) -> Self {
        Self {
            status: "success".into(),
            data,
            warnings: Vec::new(),
            infos: Vec::new(),
        }
    }
}

/// Result of a query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({
    "resultType": "vector",
    "result": [{"metric": {"__name__": "cpu_usage_user", "host": "sim-001"}, "value": [1795176000.25, "41.5"]}]
}))]
pub struct QueryData {
    /// `scalar`, `string`, `vector` or `matrix`.
    pub result_type: String,
    /// Result, in the form of `resultType`. Times are seconds with at most three decimals; numbers are strings.
    #[schema(value_type = Vec<serde_json::Value>)]
    pub result: serde_json::Value,
    /// Cost of the query, if the request has `stats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<QueryStatistics>,
}

/// Cost of a query.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct QueryStatistics {
    /// Time by phase.
    pub timings: QueryTimings,
    /// Number of samples that were read, and number of samples held in memory.
    pub samples: QuerySamples,
}

/// Time of a query by phase, in seconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueryTimings {
    /// Preparation and evaluation, including sorting of the result.
    pub eval_total_time: f64,
    /// Sorting; always 0, because it is part of the evaluation.
    pub result_sort_time: f64,
    /// Parsing of the expression.
    pub query_preparation_time: f64,
    /// Evaluation without preparation.
    pub inner_eval_time: f64,
    /// Wait for a permit to run.
    pub exec_queue_time: f64,
    /// Total time.
    pub exec_total_time: f64,
}

/// Number of samples that a query read, and number of samples that it held in memory.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuerySamples {
    /// Samples per step, as pairs of a timestamp in seconds and a count; with `stats=all`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    // Tuples of different types have no schema that all client generators support.
    #[schema(value_type = Vec<Vec<f64>>)]
    pub total_queryable_samples_per_step: Vec<(f64, u64)>,
    /// Samples of all steps. A sample of a range selector counts once for each step whose range contains it.
    pub total_queryable_samples: u64,
    /// Number of samples read; always equal to `totalQueryableSamples`.
    pub samples_read: u64,
    /// Largest number of samples held at the same time.
    pub peak_samples: u64,
}

/// Exemplars of a series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SeriesExemplars {
    /// Labels of the series.
    #[schema(value_type = BTreeMap<String, String>, example = json!({"__name__": "requests_total", "host": "sim-001"}))]
    pub series_labels: BTreeMap<String, String>,
    /// Exemplars by increasing timestamp.
    pub exemplars: Vec<Exemplar>,
}

/// Exemplar of a sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Exemplar {
    /// Labels, such as `trace_id`.
    #[schema(value_type = BTreeMap<String, String>, example = json!({"trace_id": "5c4f6b1d"}))]
    pub labels: BTreeMap<String, String>,
    /// Value.
    #[schema(example = "0.5")]
    pub value: String,
    /// Timestamp, in seconds.
    #[schema(example = 1_795_176_000.25)]
    pub timestamp: f64,
}

/// Metadata of a metric.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct Metadata {
    /// `counter`, `gauge`, `histogram`, `gaugehistogram`, `summary`, `info`, `stateset` or `unknown`.
    #[serde(rename = "type")]
    #[schema(example = "counter")]
    pub kind: String,
    /// Help text.
    #[schema(example = "Requests answered.")]
    pub help: String,
    /// Unit of the values.
    #[schema(example = "")]
    pub unit: String,
}

/// Scrape targets.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetDiscovery {
    /// Scraped targets; always empty.
    pub active_targets: Vec<serde_json::Value>,
    /// Targets that are not scraped; always empty.
    pub dropped_targets: Vec<serde_json::Value>,
    /// Number of targets that are not scraped, per pool; always empty.
    pub dropped_target_counts: BTreeMap<String, u64>,
}

/// Scrape pools.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScrapePoolDiscovery {
    /// Names of the pools; always empty.
    pub scrape_pools: Vec<String>,
}

/// Rules.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct RuleDiscovery {
    /// Groups of rules; always empty.
    pub groups: Vec<serde_json::Value>,
}

/// Alerts.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct AlertDiscovery {
    /// Active alerts; always empty.
    pub alerts: Vec<serde_json::Value>,
}

/// Alertmanagers.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlertmanagerDiscovery {
    /// Alertmanagers in use; always empty.
    pub active_alertmanagers: Vec<serde_json::Value>,
    /// Alertmanagers not in use; always empty.
    pub dropped_alertmanagers: Vec<serde_json::Value>,
}

/// Configuration file.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ConfigText {
    /// Text of the file in YAML.
    pub yaml: String,
}

/// Version of Prometheus that the language and API follow, and version of Tideline.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildInfo {
    /// Version of Prometheus whose language and API are implemented. Clients select their features by this
    /// version.
    #[schema(example = "3.14.0")]
    pub version: String,
    /// Version of Tideline.
    #[schema(example = "tideline-0.1.0")]
    pub revision: String,
    /// Branch of the build; always `tideline`.
    pub branch: String,
    /// User of the build; always `tideline`.
    pub build_user: String,
    /// Date of the build; always empty.
    pub build_date: String,
    /// Version of Go; always empty, because Tideline is not written in Go.
    pub go_version: String,
}

/// State of the process. Members about Go contain the closest equivalent.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeInfo {
    /// Start of the service, RFC 3339.
    pub start_time: String,
    /// Working directory; empty for a token with a scope.
    #[serde(rename = "CWD")]
    pub cwd: String,
    /// Host name of the machine; empty for a token with a scope.
    pub hostname: String,
    /// Current time, RFC 3339.
    pub server_time: String,
    /// Success of the last reload of the configuration; always true, because the server checks the configuration
    /// before the start.
    pub reload_config_success: bool,
    /// Start of the service, RFC 3339.
    pub last_config_time: String,
    /// Number of detected corruptions; always 0, because the server does not start with damaged data.
    pub corruption_count: u64,
    /// Number of threads of the process.
    pub goroutine_count: u64,
    /// Number of processors that the process may use.
    #[serde(rename = "GOMAXPROCS")]
    pub gomaxprocs: u64,
    /// Memory limit of Go; always the largest integer, because memory is limited by budgets.
    #[serde(rename = "GOMEMLIMIT")]
    pub gomemlimit: i64,
    /// Setting of the garbage collector of Go; always empty.
    #[serde(rename = "GOGC")]
    pub gogc: String,
    /// Debug settings of Go; always empty.
    #[serde(rename = "GODEBUG")]
    pub godebug: String,
    /// Retention of the table; empty = unlimited.
    #[schema(example = "30d")]
    pub storage_retention: String,
}

/// Progress of the journal replay.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct WalReplay {
    /// First segment of the journal; always 0, because the server responds only after the replay.
    pub min: u64,
    /// Last segment of the journal; always 0.
    pub max: u64,
    /// Replayed segment of the journal; always 0.
    pub current: u64,
}

/// Cardinality of a table.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TsdbStatus {
    /// Totals of the whole table.
    pub head_stats: HeadStats,
    /// Metric names with the most series.
    pub series_count_by_metric_name: Vec<TsdbStat>,
    /// Label names with the most values.
    pub label_value_count_by_label_name: Vec<TsdbStat>,
    /// Label names with the most bytes of values.
    pub memory_in_bytes_by_label_name: Vec<TsdbStat>,
    /// Pairs `name=value` with the most series.
    pub series_count_by_label_value_pair: Vec<TsdbStat>,
}

/// Totals of a table.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeadStats {
    /// Number of series.
    pub num_series: u64,
    /// Number of distinct pairs of name and value.
    pub num_label_pairs: u64,
    /// Number of published segments.
    pub chunk_count: u64,
    /// Oldest timestamp, in milliseconds; the largest integer if the table has no points.
    pub min_time: i64,
    /// Newest timestamp, in milliseconds; the smallest integer if the table has no points.
    pub max_time: i64,
}

/// Name with its count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TsdbStat {
    /// Name.
    #[schema(example = "cpu_usage_user")]
    pub name: String,
    /// Count.
    #[schema(example = 36)]
    pub value: u64,
}

/// JSON value in the form of Prometheus.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Anything(pub serde_json::Value);
