//! Metrics of a process that does not own the data of a cluster.
//!
//! They contain only figures of the process itself, so they need no token: a standby cannot check stored tokens.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::figures::Figures;
use super::{register_build, state};

/// Metrics that forwarded requests update.
#[derive(Debug, Default)]
pub(crate) struct StandbyMetrics {
    forwarded: Family<OutcomeLabels, Counter>,
}

/// Outcome of a request that a standby is to forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ForwardOutcome {
    /// The owner responded.
    Answered,
    /// The owner did not respond, or lost the data while it executed the request.
    Failed,
    /// The request was not forwarded, because no owner is known.
    NoOwner,
}

impl ForwardOutcome {
    const ALL: [Self; 3] = [Self::Answered, Self::Failed, Self::NoOwner];

    const fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Failed => "failed",
            Self::NoOwner => "no_owner",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

impl StandbyMetrics {
    /// Counts a request.
    pub(crate) fn count(&self, outcome: ForwardOutcome) {
        self.of(outcome).inc();
    }

    fn of(&self, outcome: ForwardOutcome) -> Counter {
        let labels = OutcomeLabels {
            outcome: outcome.name(),
        };
        self.forwarded.get_or_create(&labels).clone()
    }

    /// Encodes all metrics in the Prometheus text format.
    pub(crate) fn render(&self, has_owner: bool) -> Result<String, fmt::Error> {
        // Counters exist before their first request, so that monitors see an increase from 0.
        for outcome in ForwardOutcome::ALL {
            self.of(outcome);
        }
        let mut registry = Registry::with_prefix("tideline");
        registry.register(
            "cluster_forwarded_requests",
            "Requests that this process forwarded to the owner of the data, by their outcome",
            self.forwarded.clone(),
        );
        register_build(&mut registry);
        registry.register_collector(Box::new(StandbyCollector { has_owner }));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

/// Collector of the role and the process at scrape time.
#[derive(Debug)]
struct StandbyCollector {
    has_owner: bool,
}

impl Collector for StandbyCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut figures = Figures::new(encoder);
        state::owns_data(&mut figures, false)?;
        // Requests are forwarded, so the process is ready while there is an owner.
        figures.switch("ready_reads", "1 while reads are accepted", self.has_owner)?;
        figures.switch("ready_writes", "1 while writes are accepted", self.has_owner)?;
        state::process(&mut figures)
    }
}
