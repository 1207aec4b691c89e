//! Settings of Prometheus' API, and the budgets derived from them.

use std::collections::BTreeMap;
use std::time::Duration;

use tideline_openapi::DurationText;
use tideline_query::Budget;

/// Bytes of a sample: timestamp and value.
const SAMPLE_BYTES: u64 = 16;

/// Settings of Prometheus' API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Lookback: a sample counts at an evaluation time if it is younger than this duration. A request can override it.
    /// Default 5 min.
    pub lookback_delta: Duration,
    /// Maximum number of samples that a query may hold at once. Default 50,000,000.
    pub samples_max: usize,
    /// Maximum duration of a query; a request can set a shorter one. Default 2 min.
    pub query_timeout: Duration,
    /// True if functions only mark metric names for removal, and the names are removed at the end of a query. Series
    /// that differ only by name then stay separate until the end. A request can override it. Default false, as in
    /// Prometheus.
    pub delayed_name_removal: bool,
    /// True if aggregations by metric name also keep the name, as in VictoriaMetrics. Implies
    /// `delayed_name_removal`. A request can override it. Default false: Prometheus returns an error if groups
    /// differ only by name.
    pub keep_grouped_names: bool,
    /// True if rates take the stored start timestamps of counters into account. Default false, as in Prometheus.
    pub start_timestamps: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lookback_delta: Duration::from_secs(5 * 60),
            samples_max: 50_000_000,
            query_timeout: Duration::from_secs(2 * 60),
            delayed_name_removal: false,
            keep_grouped_names: false,
            start_timestamps: false,
        }
    }
}

impl Settings {
    /// Returns the lookback delta in milliseconds.
    pub(crate) fn lookback_millis(&self) -> i64 {
        i64::try_from(self.lookback_delta.as_millis()).unwrap_or(i64::MAX)
    }

    /// Returns the budget of a query. The gathered samples may take as much memory as the samples of the evaluation,
    /// because a query of few series with many samples gathers all of them before the evaluation.
    pub fn query_budget(&self) -> Budget {
        let usual = Budget::default();
        let samples_max = self.samples_max as u64;
        Budget {
            held_bytes_max: samples_max.saturating_mul(SAMPLE_BYTES).max(usual.held_bytes_max),
            ..usual
        }
    }

    /// Returns the settings as flags of Prometheus.
    pub fn flags(&self, concurrency_max: usize) -> BTreeMap<&'static str, String> {
        let text = |duration: Duration| {
            let nanos = i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
            String::from(DurationText(nanos))
        };
        let features = [
            (self.delayed_name_removal, "promql-delayed-name-removal"),
            (self.start_timestamps, "use-start-timestamps"),
        ];
        let features: Vec<&str> = features
            .iter()
            .filter(|(on, _)| *on)
            .map(|(_, name)| *name)
            .collect();
        BTreeMap::from([
            ("query.lookback-delta", text(self.lookback_delta)),
            ("query.max-samples", self.samples_max.to_string()),
            ("query.timeout", text(self.query_timeout)),
            ("query.max-concurrency", concurrency_max.to_string()),
            ("enable-feature", features.join(",")),
        ])
    }
}

/// Returns the budget of a transfer. Timelines, points and values are not limited, since the memory of a transfer
/// does not grow with them.
pub fn transfer_budget() -> Budget {
    Budget {
        timelines_max: u64::MAX,
        points_max: u64::MAX,
        values_max: u64::MAX,
        ..Budget::default()
    }
}
