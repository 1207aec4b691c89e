//! PromQL queries: rates of counters at steps of one minute, a wide aggregate, one series, and a search for series
//! among a million.
//!
//! The data and the queries can also be sent to another product for comparison; see [`crate::peer`].

use std::fmt::Write as _;

use serde_json::Value;
use tideline_fleet::remote_write::Series;
use tideline_fleet::{FIELDS, Random};
use tideline_model::{Clock, SystemClock};

use crate::benchmark::{Benchmark, Judged, Timing, WIDE_ROUNDS};
use crate::error::Result;
use crate::load::{BATCH_ROWS, load_batches};
use crate::peer::Rounds;
use crate::queries::{CheckedRequest, TOLERANCE};
use crate::report::Report;
use crate::set::{DEFAULT_TABLE, HOUR, Kind, MINUTE, STEPS_AN_HOUR, Scale, Set};
use crate::truth::Truth;
use crate::wanted;

const SECOND: i64 = 1_000_000_000;
/// Number of rounds of fast queries.
const QUICK_ROUNDS: usize = 1_000;
/// Nanoseconds between two samples of a counter.
const SCRAPE: i64 = 15 * SECOND;
/// Number of values of the tag by which counters are summed.
const GROUPS: u64 = 10;
/// Relative tolerance of a rate: both ends of a window are extrapolated in floats.
const RATE_TOLERANCE: f64 = 1e-9;

/// Counters that rise linearly, each at one of seven rates.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counters {
    series: u64,
    samples: u64,
    start: i64,
}

pub(crate) const RATES: Timing = Timing {
    name: "sum by (x) (rate(m[5m])) of 1,000 series, 6 h by minute",
    rounds: WIDE_ROUNDS,
    wanted: wanted::RATES,
    judged: Judged::Median,
};
pub(crate) const ONE_SERIES: Timing = Timing {
    name: "PromQL: one series at an instant",
    rounds: QUICK_ROUNDS,
    wanted: wanted::ONE_SERIES,
    judged: Judged::Median,
};
pub(crate) const WIDE: Timing = Timing {
    name: "PromQL: mean of all fields by host and hour, 12 h of M",
    rounds: WIDE_ROUNDS,
    wanted: wanted::ALL_FIELDS_BY_HOUR,
    judged: Judged::Median,
};
pub(crate) const SERIES: Timing = Timing {
    name: "/series with two regular expressions, 1,000 hits among 1 M series",
    rounds: WIDE_ROUNDS,
    wanted: wanted::SERIES,
    judged: Judged::Median,
};

impl Counters {
    pub(crate) fn new(scale: Scale, now: i64) -> Self {
        let samples: u64 = 6 * 240;
        Self {
            series: match scale {
                Scale::Full => 1_000,
                Scale::Quick => 100,
            },
            samples,
            start: (now - samples as i64 * SCRAPE) / MINUTE * MINUTE,
        }
    }

    /// Returns the increase of a counter between two samples.
    fn gain(series: u64) -> u64 {
        1 + series % 7
    }

    fn tags(series: u64) -> [(&'static str, String); 3] {
        [
            ("instance", format!("i{series:05}")),
            ("job", format!("j{}", series % 3)),
            ("x", format!("x{}", series % GROUPS)),
        ]
    }

    /// Returns the value of a counter at sample number `at`.
    pub(crate) fn value(self, series: u64, at: u64) -> f64 {
        (at * Self::gain(series)) as f64
    }

    /// Returns the timestamps of all counters.
    pub(crate) fn rounds(self) -> Rounds {
        Rounds {
            start: self.start,
            step: SCRAPE,
            count: self.samples as usize,
        }
    }

    /// Returns all counters as series.
    pub(crate) fn all(self) -> Vec<Series> {
        let one = |series| labelled("http_requests", Self::tags(series));
        (0..self.series).map(one).collect()
    }

    fn write(self, row: u64, out: &mut Vec<u8>) {
        let (at, series) = (row / self.series, row % self.series);
        let [(_, instance), (_, job), (_, x)] = Self::tags(series);
        let line = format!(
            "http_requests,instance={instance},job={job},x={x} value={} {}\n",
            at * Self::gain(series),
            self.start + at as i64 * SCRAPE
        );
        out.extend_from_slice(line.as_bytes());
    }

    /// Returns the total increase per second of the counters in a group.
    fn rate(self, group: u64) -> f64 {
        let of_group = (0..self.series).filter(|series| series % GROUPS == group);
        of_group.map(Self::gain).sum::<u64>() as f64 / 15.0
    }

    /// Returns a query for the rate of each group over six hours, at steps of one minute.
    pub(crate) fn rates(self) -> CheckedRequest<'static> {
        let end = self.start + self.samples as i64 * SCRAPE;
        // The first step is at the end of the first full window.
        let start = self.start + 5 * MINUTE;
        let steps = (end - start) / MINUTE + 1;
        let query = "sum by (x) (rate(http_requests[5m]))";
        checked_request(
            "query_range",
            query,
            &range(start, end, MINUTE),
            move |response| {
                let series = list(&response["data"]["result"])?;
                if series.len() != GROUPS as usize {
                    return Err(format!("{} groups instead of {GROUPS}", series.len()));
                }
                for one in series {
                    let group = one["metric"]["x"].as_str().and_then(|x| x[1..].parse().ok());
                    let wanted = self.rate(group.ok_or("a series without its tag")?);
                    let values = list(&one["values"])?;
                    let middle = number(&values[values.len() / 2][1])?;
                    if values.len() != steps as usize {
                        return Err(format!("{} steps instead of {steps}", values.len()));
                    }
                    if (middle - wanted).abs() > RATE_TOLERANCE * wanted {
                        return Err(format!("{middle} a second instead of {wanted}"));
                    }
                }
                Ok(())
            },
        )
    }

    /// Returns an instant query for one counter at a random sample.
    pub(crate) fn one(self, random: &mut Random) -> CheckedRequest<'static> {
        let series = random.index(self.series as usize) as u64;
        let at = random.index(self.samples as usize) as u64;
        let query = format!("http_requests{{instance=\"i{series:05}\"}}");
        let time = format!("&time={}", seconds(self.start + at as i64 * SCRAPE + SECOND));
        checked_request("query", &query, &time, move |response| {
            let value = number(&response["data"]["result"][0]["value"][1])?;
            let wanted = (at * Self::gain(series)) as f64;
            match value == wanted {
                true => Ok(()),
                false => Err(format!("{value} instead of {wanted}")),
            }
        })
    }
}

impl Benchmark {
    /// Loads the data of each query and measures the query.
    pub(crate) fn run_promql(&self, report: &mut Report) -> Result<()> {
        self.run_counters(report)?;
        self.run_wide(report)?;
        self.run_series(report)
    }

    fn run_counters(&self, report: &mut Report) -> Result<()> {
        let counters = Counters::new(self.scale, SystemClock.now().nanos());
        let content = format!("{} counters, 6 h at 15 s", counters.series);
        let (mut server, data) = self.fresh("counters", &content)?;
        let mut next = 0;
        load_batches(server.address(), DEFAULT_TABLE, self.connections, |batch| {
            let end = (counters.series * counters.samples).min(next + BATCH_ROWS);
            (next..end).for_each(|row| counters.write(row, batch));
            next = end;
        })?;
        server.seal_and_settle()?;
        self.time(&server, RATES, report, |_| counters.rates())?;
        self.time(&server, ONE_SERIES, report, |random| counters.one(random))?;
        server.kill();
        self.forget(&data)
    }

    fn run_wide(&self, report: &mut Report) -> Result<()> {
        let set = self.set(Kind::M);
        let (mut server, data) = self.fresh("promql-M", &set.to_string())?;
        crate::load::load(server.address(), &set, self.connections)?;
        server.seal_and_settle()?;
        let truth = Truth::of(&set);
        self.time(&server, WIDE, report, |random| wide(&set, &truth, random))?;
        server.kill();
        self.forget(&data)
    }

    fn run_series(&self, report: &mut Report) -> Result<()> {
        let hosts = hosts(self.scale);
        let content = format!("{hosts} hosts with ten metrics each");
        let (mut server, data) = self.fresh("series", &content)?;
        let now = SystemClock.now().nanos();
        let rows = hosts * METRICS.len() as u64;
        let mut next = 0;
        load_batches(server.address(), DEFAULT_TABLE, self.connections, |batch| {
            let end = rows.min(next + BATCH_ROWS);
            (next..end).for_each(|row| write_metric(row, now, batch));
            next = end;
        })?;
        server.seal_and_settle()?;
        self.time(&server, SERIES, report, |_| series(hosts))?;
        server.kill();
        self.forget(&data)
    }
}

/// Returns the number of hosts for [`series`].
pub(crate) const fn hosts(scale: Scale) -> u64 {
    match scale {
        Scale::Full => 100_000,
        Scale::Quick => 2_000,
    }
}

/// Returns a request for the series of one metric of one host in a hundred.
pub(crate) fn series(hosts: u64) -> CheckedRequest<'static> {
    let hits = (0..hosts).filter(|host| host % 100 == 1).count();
    let selector = escaped("{__name__=~\".*cpu.*\", host=~\"h1.*\"}");
    CheckedRequest {
        path: format!("/api/v1/series?match[]={selector}"),
        body: String::new(),
        check: Box::new(move |response| match list(&response["data"])?.len() {
            found if found == hits => Ok(()),
            found => Err(format!("{found} series instead of {hits}")),
        }),
    }
}

/// Names of the ten metrics; only the first is a CPU metric.
pub(crate) const METRICS: [&str; 10] = [
    "node_cpu_busy",
    "node_memory_free",
    "node_disk_read",
    "node_disk_written",
    "node_net_in",
    "node_net_out",
    "node_load_1",
    "node_load_5",
    "node_uptime",
    "node_processes",
];

/// Returns the metric and the tags of the series that row number `row` belongs to; one host in a hundred is named
/// `h1…`.
fn of_row(row: u64) -> (&'static str, [(&'static str, String); 2]) {
    let (host, metric) = (
        row / METRICS.len() as u64,
        METRICS[(row % METRICS.len() as u64) as usize],
    );
    let rest = host / 100;
    let name = match host % 100 {
        1 => format!("h1-{rest:06}"),
        other => format!("h{}-{rest:06}", 20 + other % 80 + other / 80 * 180),
    };
    (metric, [("host", name), ("region", format!("r{}", host % 9))])
}

/// Returns the series of a row.
pub(crate) fn metric(row: u64) -> Series {
    let (metric, tags) = of_row(row);
    labelled(metric, tags)
}

/// Appends the single row of a series.
fn write_metric(row: u64, now: i64, out: &mut Vec<u8>) {
    let (metric, [(_, host), (_, region)]) = of_row(row);
    let line = format!("{metric},host={host},region={region} value={row} {now}\n");
    out.extend_from_slice(line.as_bytes());
}

fn labelled<const N: usize>(metric: &str, tags: [(&str, String); N]) -> Series {
    let name = ("__name__".to_owned(), metric.to_owned());
    let tags = tags.map(|(key, value)| (key.to_owned(), value));
    Series {
        labels: std::iter::once(name).chain(tags).collect(),
        ..Series::default()
    }
}

/// Returns a query of the Time Series Benchmark Suite as PromQL: the mean of each field by host and hour over twelve
/// hours, fewer in smaller sets.
pub(crate) fn wide<'a>(set: &'a Set, truth: &'a Truth, random: &mut Random) -> CheckedRequest<'a> {
    let hours = set.steps as usize / STEPS_AN_HOUR;
    let wide = hours.min(12);
    let first = random.index(hours - wide + 1) * STEPS_AN_HOUR;
    let steps = first..first + wide * STEPS_AN_HOUR;
    let metrics: Vec<String> = FIELDS.iter().map(|field| format!("cpu_{field}")).collect();
    let query = format!(
        "avg by (__name__, hostname) (avg_over_time({{__name__=~\"{}\"}}[1h]))",
        metrics.join("|")
    );
    // Windows are open on the left. With ends half a step before the hour, each window holds exactly the
    // points of its hour.
    let start = set.start + (steps.start as i64 * 10 + 3_595) * SECOND;
    let end = start + (wide as i64 - 1) * HOUR;
    let more = format!("{}&keep_grouped_names=true", range(start, end, HOUR));
    checked_request("query_range", &query, &more, move |response| {
        let series = list(&response["data"]["result"])?;
        let wanted = truth.hosts().len() * FIELDS.len();
        if series.len() != wanted {
            return Err(format!("{} series instead of {wanted}", series.len()));
        }
        let one = &series[series.len() / 2];
        let name = one["metric"]["__name__"]
            .as_str()
            .ok_or("a series without a name")?;
        let field = metrics
            .iter()
            .position(|metric| metric == name)
            .ok_or("an unknown name")?;
        let hostname = one["metric"]["hostname"].as_str().unwrap_or_default();
        let is_it = |host: &tideline_fleet::Host| host.tags().into_iter().any(|(_, value)| value == hostname);
        let host = truth.hosts().iter().position(is_it).ok_or("an unknown host")?;
        let values = list(&one["values"])?;
        if values.len() != wide {
            return Err(format!("{} windows instead of {wide}", values.len()));
        }
        for (at, value) in values.iter().enumerate() {
            let of_hour = steps.start + at * STEPS_AN_HOUR..steps.start + (at + 1) * STEPS_AN_HOUR;
            let wanted = truth.mean(of_hour, host..host + 1, field);
            let found = number(&value[1])?;
            if (found - wanted).abs() > TOLERANCE * wanted.abs() {
                return Err(format!("{found} instead of {wanted}"));
            }
        }
        Ok(())
    })
}

pub(crate) fn checked_request<'a>(
    endpoint: &str,
    query: &str,
    more: &str,
    check: impl Fn(&Value) -> std::result::Result<(), String> + 'a,
) -> CheckedRequest<'a> {
    CheckedRequest {
        path: format!("/api/v1/{endpoint}?query={}{more}", escaped(query)),
        body: String::new(),
        check: Box::new(check),
    }
}

fn range(start: i64, end: i64, step: i64) -> String {
    let (start, end) = (seconds(start), seconds(end));
    format!("&start={start}&end={end}&step={}", step / SECOND)
}

/// Formats a timestamp in seconds, as the HTTP API expects it.
fn seconds(nanos: i64) -> String {
    format!("{}.{:03}", nanos / SECOND, nanos % SECOND / 1_000_000)
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' => escaped.push(byte as char),
            _ => write!(escaped, "%{byte:02X}").expect("a string takes every write"),
        }
    }
    escaped
}

fn list(value: &Value) -> std::result::Result<&Vec<Value>, String> {
    value.as_array().ok_or_else(|| format!("not a list: {value}"))
}

fn number(value: &Value) -> std::result::Result<f64, String> {
    let number = value.as_str().and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("not a number: {value}"))
}
