//! `tideline top`: shows live rates and sizes of a running server, from its metrics.
//!
//! Rates are differences between two scrapes of `/metrics`.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::{jobs, pause};
use crate::client::{Client, ConnectionArguments};
use crate::error::Result;
use crate::output;
use crate::output::grid::Grid;

/// Maximum number of routes shown. The routes with the most requests per second come first.
const ROUTES_MAX: usize = 8;

/// Arguments of `top`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tideline top                          # until Ctrl-C
  tideline top --count 1 --json         # one update, for programs")]
pub(crate) struct TopArguments {
    #[command(flatten)]
    connection: ConnectionArguments,
    /// Interval between two updates; rates are averaged over it
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    interval: Duration,
    /// Number of updates before the command ends
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// All samples of one scrape. A key is the text of the name and the labels in the response.
struct Samples {
    at: Instant,
    values: BTreeMap<String, f64>,
}

/// Two consecutive scrapes.
struct ScrapePair<'a> {
    before: &'a Samples,
    now: &'a Samples,
}

/// Prints the rates and sizes at each interval.
pub(crate) fn run(arguments: &TopArguments) -> Result<()> {
    let client = arguments.connection.client()?;
    let is_terminal = std::io::stdout().is_terminal();
    let mut before = samples(&client)?;
    let mut updates = 0;
    while arguments.count.is_none_or(|count| updates < count) {
        pause(arguments.interval);
        let now = samples(&client)?;
        let scrapes = ScrapePair {
            before: &before,
            now: &now,
        };
        if arguments.connection.json {
            output::print(&scrapes.json())?;
        } else {
            let running = client.parse(&client.get("/v1/jobs?state=running")?)?;
            let mut text = scrapes.text(client.base());
            if running["jobs"].as_array().is_some_and(|jobs| !jobs.is_empty()) {
                text = format!("{text}\n{}", jobs::table(&running["jobs"]));
            }
            // Moves the cursor to the upper left corner and clears the screen.
            output::print(&format!(
                "{}{text}",
                if is_terminal { "\x1b[H\x1b[2J" } else { "" }
            ))?;
        }
        before = now;
        updates += 1;
    }
    Ok(())
}

fn samples(client: &Client) -> Result<Samples> {
    // A standby of a cluster has few metrics of its own.
    let text = client.get("/metrics?of=owner")?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let read = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    Ok(Samples {
        at: Instant::now(),
        values: lines.filter_map(read).collect(),
    })
}

impl Samples {
    /// Returns the sum of the samples of metric `name` whose labels contain the text `label`.
    fn sum(&self, name: &str, label: &str) -> f64 {
        let is_meant = |key: &str| {
            let labels = key.strip_prefix(name);
            labels.is_some_and(|labels| {
                (labels.is_empty() || labels.starts_with('{')) && labels.contains(label)
            })
        };
        self.values
            .iter()
            .filter(|(key, _)| is_meant(key))
            .map(|(_, value)| value)
            .sum()
    }
}

impl ScrapePair<'_> {
    /// Returns the growth of a counter per second. A value smaller than the previous one means that the server has
    /// restarted and the counter began at zero.
    fn rate(&self, name: &str, label: &str) -> f64 {
        let (before, now) = (self.before.sum(name, label), self.now.sum(name, label));
        let grown = if now < before { now } else { now - before };
        grown
            / self
                .now
                .at
                .duration_since(self.before.at)
                .as_secs_f64()
                .max(0.001)
    }

    fn gauge(&self, name: &str, label: &str) -> u64 {
        // Gauges of counts and bytes are non-negative integers.
        self.now.sum(name, label) as u64
    }

    fn json(&self) -> String {
        json!({
            "points_per_second": self.rate("tideline_ingest_points_total", ""),
            "values_per_second": self.rate("tideline_ingest_values_total", ""),
            "rejects_per_second": self.rate("tideline_ingest_rejects_total", ""),
            "requests_per_second": self.rate("tideline_http_requests_total", ""),
            "writes_running": self.gauge("tideline_writes_running", ""),
            "queries_running": self.gauge("tideline_queries_running", ""),
            "connections": self.gauge("tideline_http_connections", ""),
            "head_points": self.gauge("tideline_head_points", ""),
            "head_bytes": self.gauge("tideline_head_bytes", ""),
            "hot_points": self.gauge("tideline_tier_points", "\"hot\""),
            "hot_bytes": self.gauge("tideline_tier_bytes", "\"hot\""),
            "cold_points": self.gauge("tideline_tier_points", "\"cold\""),
            "cold_bytes": self.gauge("tideline_tier_bytes", "\"cold\""),
            "segments": self.gauge("tideline_segments", ""),
            "jobs_running": self.gauge("tideline_jobs", "\"running\""),
            "jobs_planned": self.gauge("tideline_jobs", "\"planned\""),
        })
        .to_string()
    }

    fn text(&self, server: &str) -> String {
        let ready = |name: &str| {
            if self.gauge(name, "") > 0 {
                "ready"
            } else {
                "NOT ready"
            }
        };
        let mut flow = Grid::new(["flow", "per second", "total"]);
        for (what, name) in [
            ("points", "tideline_ingest_points_total"),
            ("values", "tideline_ingest_values_total"),
            ("rejects", "tideline_ingest_rejects_total"),
            ("requests", "tideline_http_requests_total"),
            ("commits", "tideline_commits_total"),
        ] {
            let rate = self.rate(name, "");
            flow.row(vec![
                what.into(),
                output::count(rate.round() as u64),
                output::count(self.gauge(name, "")),
            ]);
        }
        let mut held = Grid::new(["tier", "points", "bytes", "segments"]);
        let head = |name: &str| self.gauge(name, "");
        held.row(vec![
            "head".into(),
            output::count(head("tideline_head_points")),
            output::bytes(head("tideline_head_bytes")),
            String::new(),
        ]);
        for tier in ["hot", "cold", "archive"] {
            let of = |name: &str| self.gauge(name, &format!("\"{tier}\""));
            held.row(vec![
                tier.into(),
                output::count(of("tideline_tier_points")),
                output::bytes(of("tideline_tier_bytes")),
                output::count(of("tideline_tier_segments")),
            ]);
        }
        format!(
            "{server}: reads {}, writes {}; {} connections, {} writes and {} queries running, {} jobs running, \
             {} planned\n\n{}\n{}\n{}",
            ready("tideline_ready_reads"),
            ready("tideline_ready_writes"),
            self.gauge("tideline_http_connections", ""),
            self.gauge("tideline_writes_running", ""),
            self.gauge("tideline_queries_running", ""),
            self.gauge("tideline_jobs", "\"running\""),
            self.gauge("tideline_jobs", "\"planned\""),
            flow.render(),
            held.render(),
            self.routes()
        )
    }

    /// Formats the busiest routes with the mean duration of their requests.
    fn routes(&self) -> String {
        let counter = "tideline_http_request_duration_seconds_count";
        let mut routes: Vec<(f64, f64, &str)> = Vec::new();
        for key in self.now.values.keys() {
            let Some(label) = key
                .strip_prefix(counter)
                .and_then(|labels| labels.strip_prefix('{')?.strip_suffix('}'))
            else {
                continue;
            };
            let rate = self.rate(counter, label);
            if rate > 0.0 {
                let seconds = self.rate("tideline_http_request_duration_seconds_sum", label);
                let route = label.strip_prefix("route=").unwrap_or(label).trim_matches('"');
                routes.push((rate, seconds / rate * 1_000.0, route));
            }
        }
        routes.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut grid = Grid::new(["route", "per second", "ms"]);
        for (rate, ms, route) in routes.into_iter().take(ROUTES_MAX) {
            grid.row(vec![route.to_owned(), format!("{rate:.1}"), format!("{ms:.2}")]);
        }
        grid.render()
    }
}

fn interval(text: &str) -> std::result::Result<Duration, String> {
    let nanos =
        tideline_openapi::model::time::parse_duration(text).and_then(|nanos| u64::try_from(nanos).ok());
    nanos
        .map(Duration::from_nanos)
        .filter(|interval| *interval >= Duration::from_millis(100))
        .ok_or_else(|| "expected a duration of at least 100ms, such as 2s".to_owned())
}
