//! Metadata of metrics, as received from remote write, OTLP and imports.

use std::collections::BTreeMap;

use tideline_engine::{Engine, Table};
use tideline_openapi::prometheus::Metadata;

use crate::error::Result;
use crate::parameters::Parameters;

/// Request for metadata.
#[derive(Debug)]
pub struct MetadataRequest {
    limit: usize,
    per_metric: Option<usize>,
    /// Metric name; empty for all metrics.
    metric: String,
}

impl MetadataRequest {
    /// Reads the parameters of a request.
    ///
    /// # Errors
    ///
    /// `RequestError::Invalid` if a limit is not a number.
    pub fn read(parameters: &Parameters) -> Result<Self> {
        Ok(Self {
            limit: parameters.count("limit")?.unwrap_or(usize::MAX),
            // As in Prometheus, 0 means all.
            per_metric: parameters.count("limit_per_metric")?.filter(|limit| *limit > 0),
            metric: parameters.text("metric").to_owned(),
        })
    }

    /// Returns the metadata of a table by metric name. Metrics without metadata are not listed.
    pub fn find(&self, engine: &Engine, table: &Table) -> BTreeMap<String, Vec<Metadata>> {
        let mut by_name: BTreeMap<String, Vec<Metadata>> = BTreeMap::new();
        for known in engine.metadata(table) {
            if !self.metric.is_empty() && known.name != self.metric {
                continue;
            }
            let entries = by_name.entry(known.name).or_default();
            if self.per_metric.is_none_or(|limit| entries.len() < limit) {
                entries.push(Metadata {
                    kind: known.kind.name().to_owned(),
                    help: known.help,
                    unit: known.unit,
                });
            }
        }
        by_name.into_iter().take(self.limit).collect()
    }
}
