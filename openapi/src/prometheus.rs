//! Bodies that Prometheus' clients expect. Their form is not ours to choose.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A failure, as Prometheus' HTTP API words it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "status": "error",
    "errorType": "bad_data",
    "error": "invalid parameter \"query\": 1:4: parse error: unexpected end of input"
}))]
pub struct PrometheusError {
    /// Always `error`.
    pub status: String,
    /// `bad_data`, `execution`, `timeout`, `canceled`, `internal`, `unavailable`, `not_found` or `not_acceptable`.
    #[serde(rename = "errorType")]
    pub error_type: String,
    /// For people.
    pub error: String,
}

/// A success, as Prometheus' HTTP API words it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Answer<T> {
    /// Always `success`.
    #[schema(example = "success")]
    pub status: String,
    /// What was asked for.
    pub data: T,
    /// What makes the answer doubtful or cuts it short.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What may be worth knowing about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub infos: Vec<String>,
}

impl<T> Answer<T> {
    /// A success without warnings.
    pub fn new(data: T) -> Self {
        Self {
            status: "success".into(),
            data,
            warnings: Vec::new(),
            infos: Vec::new(),
        }
    }
}

/// The result of a query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({
    "resultType": "vector",
    "result": [{"metric": {"__name__": "cpu_usage_user", "host": "sim-001"}, "value": [1795176000.25, "41.5"]}]
}))]
pub struct QueryData {
    /// `scalar`, `string`, `vector` or `matrix`.
    pub result_type: String,
    /// By `resultType`. Times are seconds with at most three digits behind the point, numbers are texts.
    #[schema(value_type = Vec<serde_json::Value>)]
    pub result: serde_json::Value,
    /// What it cost, where the request asks by `stats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<QueryStatistics>,
}

/// What a query cost.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
pub struct QueryStatistics {
    /// Where its time went.
    pub timings: QueryTimings,
    /// How many samples it took.
    pub samples: QuerySamples,
}

/// Where the time of a query went, in seconds.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueryTimings {
    /// Evaluation, preparation and sorting included.
    pub eval_total_time: f64,
    /// Always 0: sorting is part of the evaluation.
    pub result_sort_time: f64,
    /// Reading the expression.
    pub query_preparation_time: f64,
    /// Evaluation alone.
    pub inner_eval_time: f64,
    /// Waiting for its turn.
    pub exec_queue_time: f64,
    /// All of it.
    pub exec_total_time: f64,
}

/// How many samples a query took.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct QuerySamples {
    /// For each step, as pairs of an instant in seconds and a count; with `stats=all`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    // Pairs of several types have no schema that all generators of clients read.
    #[schema(value_type = Vec<Vec<f64>>)]
    pub total_queryable_samples_per_step: Vec<(f64, u64)>,
    /// Of all steps; those of a range count in each step whose range they lie in.
    pub total_queryable_samples: u64,
    /// Read from storage: each once.
    pub samples_read: u64,
    /// Held at once.
    pub peak_samples: u64,
}

/// The exemplars of a series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SeriesExemplars {
    /// Labels of the series.
    #[schema(value_type = BTreeMap<String, String>, example = json!({"__name__": "requests_total", "host": "sim-001"}))]
    pub series_labels: BTreeMap<String, String>,
    /// Its exemplars by rising instants.
    pub exemplars: Vec<Exemplar>,
}

/// An example of what was counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Exemplar {
    /// Its labels, such as `trace_id`.
    #[schema(value_type = BTreeMap<String, String>, example = json!({"trace_id": "5c4f6b1d"}))]
    pub labels: BTreeMap<String, String>,
    /// Its value.
    #[schema(example = "0.5")]
    pub value: String,
    /// Its instant, in seconds.
    #[schema(example = 1_795_176_000.25)]
    pub timestamp: f64,
}

/// What is known of a metric.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct Metadata {
    /// `counter`, `gauge`, `histogram`, `gaugehistogram`, `summary`, `info`, `stateset` or `unknown`.
    #[serde(rename = "type")]
    #[schema(example = "counter")]
    pub kind: String,
    /// What it is, for people.
    #[schema(example = "Requests answered.")]
    pub help: String,
    /// The unit of its values.
    #[schema(example = "")]
    pub unit: String,
}

/// Scrape targets.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetDiscovery {
    /// Always empty.
    pub active_targets: Vec<serde_json::Value>,
    /// Always empty.
    pub dropped_targets: Vec<serde_json::Value>,
    /// Always empty.
    pub dropped_target_counts: BTreeMap<String, u64>,
}

/// Scrape pools.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScrapePoolDiscovery {
    /// Always empty.
    pub scrape_pools: Vec<String>,
}

/// Rules.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct RuleDiscovery {
    /// Always empty.
    pub groups: Vec<serde_json::Value>,
}

/// Alerts.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct AlertDiscovery {
    /// Always empty.
    pub alerts: Vec<serde_json::Value>,
}

/// Alertmanagers.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlertmanagerDiscovery {
    /// Always empty.
    pub active_alertmanagers: Vec<serde_json::Value>,
    /// Always empty.
    pub dropped_alertmanagers: Vec<serde_json::Value>,
}

/// What Prometheus would be configured with.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ConfigText {
    /// YAML.
    pub yaml: String,
}

/// Which Prometheus' ways are followed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildInfo {
    /// The version of Prometheus whose language and interface these are: clients choose by it what they ask.
    #[schema(example = "3.14.0")]
    pub version: String,
    /// The version of Tideline.
    #[schema(example = "tideline-0.1.0")]
    pub revision: String,
    /// Always `tideline`.
    pub branch: String,
    /// Always `tideline`.
    pub build_user: String,
    /// Always empty.
    pub build_date: String,
    /// Always empty: it is not written in Go.
    pub go_version: String,
}

/// The process. Members that speak of Go hold what comes nearest.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeInfo {
    /// When it started.
    pub start_time: String,
    /// Its working folder.
    #[serde(rename = "CWD")]
    pub cwd: String,
    /// The machine's name.
    pub hostname: String,
    /// Now.
    pub server_time: String,
    /// Always true: a configuration is checked before the start.
    pub reload_config_success: bool,
    /// When it started.
    pub last_config_time: String,
    /// Always 0: damage stops the start.
    pub corruption_count: u64,
    /// Threads.
    pub goroutine_count: u64,
    /// Processors it may use.
    #[serde(rename = "GOMAXPROCS")]
    pub gomaxprocs: u64,
    /// The largest integer: memory is bounded by budgets.
    #[serde(rename = "GOMEMLIMIT")]
    pub gomemlimit: i64,
    /// Always empty.
    #[serde(rename = "GOGC")]
    pub gogc: String,
    /// Always empty.
    #[serde(rename = "GODEBUG")]
    pub godebug: String,
    /// How long the table keeps points; empty for ever.
    #[schema(example = "30d")]
    pub storage_retention: String,
}

/// How far the journal has been read again.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct WalReplay {
    /// Always 0: it answers when the journal has been read.
    pub min: u64,
    /// Always 0.
    pub max: u64,
    /// Always 0.
    pub current: u64,
}

/// How many series and labels a table has.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TsdbStatus {
    /// Of the whole table.
    pub head_stats: HeadStats,
    /// Metric names with most series.
    pub series_count_by_metric_name: Vec<TsdbStat>,
    /// Label names with most values.
    pub label_value_count_by_label_name: Vec<TsdbStat>,
    /// Label names whose values are longest together, in bytes.
    pub memory_in_bytes_by_label_name: Vec<TsdbStat>,
    /// Pairs `name=value` with most series.
    pub series_count_by_label_value_pair: Vec<TsdbStat>,
}

/// The whole of a table.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeadStats {
    /// Series.
    pub num_series: u64,
    /// Different pairs of name and value.
    pub num_label_pairs: u64,
    /// Sealed chunks.
    pub chunk_count: u64,
    /// The first instant, in milliseconds.
    pub min_time: i64,
    /// The last one.
    pub max_time: i64,
}

/// A name with its count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TsdbStat {
    /// The name.
    #[schema(example = "cpu_usage_user")]
    pub name: String,
    /// The count.
    #[schema(example = 36)]
    pub value: u64,
}

/// Whatever Prometheus has in its place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Anything(pub serde_json::Value);
