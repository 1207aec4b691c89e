//! Benchmark group `find`: one million timelines with ten tags and five attributes. The group measures search
//! latency, index build, disk and memory.
//!
//! Every tag and attribute is a function of the timeline's number, so that the expected number of hits of
//! each query can be computed.

use std::time::Instant;

use serde_json::{Value, json};
use tideline_fleet::Random;
use tideline_model::{Clock, SystemClock};

use crate::benchmark::{Benchmark, Judged, Timing, milliseconds};
use crate::control::Control;
use crate::error::Result;
use crate::folder;
use crate::latency::Latencies;
use crate::load::{BATCH_ROWS, load_batches};
use crate::queries::{CheckedRequest, checked_request};
use crate::report::{Report, Unit, Wanted};
use crate::server::Server;
use crate::set::{DEFAULT_TABLE, Scale};
use crate::wanted;

/// Number of rounds of narrow queries.
const ROUNDS: usize = 500;
/// Number of rounds of queries that count all timelines, and of requests that list tag values.
const WIDE_ROUNDS: usize = 50;
/// Numbers of distinct values of some tags.
const RACKS: u64 = 1_000;
const SERVICES: u64 = 200;
const REGIONS: u64 = 9;
/// Number of timelines that share one value of the tag `serial`.
const SHARED: u64 = 5;
/// Words of the titles; each title has three of these words and the number of its rack.
const WORDS: [&str; 10] = [
    "backup",
    "storage",
    "gateway",
    "frontend",
    "database",
    "monitor",
    "balancer",
    "archive",
    "scheduler",
    "billing",
];

/// Set of generated timelines.
#[derive(Debug, Clone, Copy)]
struct Crowd {
    hosts: u64,
}

impl Crowd {
    /// Appends the single row of a timeline.
    fn write(self, host: u64, now: i64, out: &mut Vec<u8>) {
        let (shared, rack, service, region) = (
            host / SHARED,
            host % RACKS,
            host / RACKS % SERVICES,
            host % REGIONS,
        );
        let line = format!(
            "cpu,arch=a{},dc=d{},host=h{host:07},os=o{},rack=r{rack},region=g{region},serial=s{shared},service=v{service},\
             stage=t{},team=m{} usage={host}i {now}\n",
            host % 2,
            host % 100,
            host % 5,
            host % 3,
            host % 50,
        );
        out.extend_from_slice(line.as_bytes());
    }

    /// Returns the number of timelines in a rack.
    fn of_rack(self, rack: u64) -> u64 {
        (self.hosts + RACKS - 1 - rack) / RACKS
    }

    /// Returns the location of a rack; racks are at least two degrees apart.
    fn place(rack: u64) -> Value {
        json!({"lat": (rack / 40) as f64 * 2.0 - 24.0, "lon": (rack % 40) as f64 * 4.0 - 78.0})
    }

    /// Returns the attributes of all timelines in a rack.
    fn attributes(rack: u64) -> Value {
        let word = |at: u64| WORDS[(rack / 10u64.pow(at as u32) % 10) as usize];
        json!({
            "owner": format!("team-{}", rack % 50),
            "slot": rack,
            "site": Self::place(rack),
            "title": format!("{} {} {} unit{rack}", word(0), word(1), word(2)),
            "labels": [format!("row{}", rack % 20), word(0)],
        })
    }
}

impl Benchmark {
    /// Loads the timelines, sets their attributes, measures sizes and runs the queries.
    pub(crate) fn run_find(&self, report: &mut Report) -> Result<()> {
        let crowd = Crowd {
            hosts: match self.scale {
                Scale::Full => 1_000_000,
                Scale::Quick => 20_000,
            },
        };
        let content = format!("{} timelines, 10 tags, 5 attributes", crowd.hosts);
        let (mut server, data) = self.fresh("find", &content)?;
        let now = SystemClock.now().nanos();
        let mut next = 0;
        load_batches(server.address(), DEFAULT_TABLE, self.connections, |batch| {
            let end = crowd.hosts.min(next + BATCH_ROWS);
            (next..end).for_each(|host| crowd.write(host, now, batch));
            next = end;
        })?;
        let mut control = Control::open(&server)?;
        let before = server.cpu_time()?;
        for rack in 0..RACKS {
            control.change_attributes(
                DEFAULT_TABLE,
                &json!({
                    "timelines": {"where": {"tag": "rack", "equals": format!("r{rack}")}},
                    "set": Crowd::attributes(rack),
                }),
            )?;
        }
        let described = server.cpu_time()? - before;
        report.add(
            "five attributes set on all timelines, server CPU each",
            described.as_secs_f64() * 1e6 / crowd.hosts as f64,
            Unit::Microseconds,
            Wanted::Nothing,
        );
        control.seal()?;
        server.seal_and_settle()?;
        let usage = folder::usage(&data)?;
        let index = usage.parts.iter().filter(|(name, _)| name == folder::INDEX);
        let index_bytes: u64 = index.map(|(_, bytes)| *bytes).sum();
        report.add(
            "index on disk",
            index_bytes as f64 / crowd.hosts as f64,
            Unit::BytesPerTimeline,
            wanted::FIND_DISK,
        );
        server.stop()?;
        self.rebuild(&data, crowd, report)?;
        let mut server = Server::start(&self.server, &data)?;
        server.seal_and_settle()?;
        report.add(
            "resident memory after a start, everything in",
            server.resident_bytes()? as f64 / crowd.hosts as f64,
            Unit::BytesPerTimeline,
            wanted::FIND_MEMORY,
        );
        self.query_crowd(&server, crowd, report)?;
        server.kill();
        self.forget(&data)
    }

    /// Removes the index, starts the server and waits until it has rebuilt the index. Reports the rate of the build;
    /// the CPU time of a start with an index is subtracted.
    fn rebuild(&self, data: &std::path::Path, crowd: Crowd, report: &mut Report) -> Result<()> {
        let mut idle = Server::start(&self.server, data)?;
        idle.seal_and_settle()?;
        let start_cpu = idle.cpu_time()?;
        idle.stop()?;
        folder::remove_index(data)?;
        let mut server = Server::start(&self.server, data)?;
        server.seal_and_settle()?;
        let build = server.cpu_time()?.saturating_sub(start_cpu);
        report.add(
            "index build, CPU of a start with it less that of one without",
            crowd.hosts as f64 / build.as_secs_f64().max(1e-3) / 1e3,
            Unit::ThousandTimelinesPerCpuSecond,
            wanted::FIND_BUILD,
        );
        server.stop()?;
        Ok(())
    }

    fn query_crowd(&self, server: &Server, crowd: Crowd, report: &mut Report) -> Result<()> {
        let timing = |name, rounds, wanted| Timing {
            name,
            rounds,
            wanted,
            judged: Judged::Percentile99,
        };
        let narrow = timing("two equals and one in, a few hits", ROUNDS, wanted::FIND_EQUALS);
        self.time(server, narrow, report, |random| {
            let host = random.index(crowd.hosts as usize) as u64;
            let (rack, service) = (host % RACKS, host / RACKS % SERVICES);
            let is_hit = |host: &u64| host % RACKS == rack && host / RACKS % SERVICES == service;
            let total = (rack..crowd.hosts).step_by(RACKS as usize).filter(is_hit).count() as u64;
            found(
                &json!({"and": [
                    {"tag": "rack", "equals": format!("r{rack}")},
                    {"tag": "service", "equals": format!("v{service}")},
                    {"tag": "arch", "in": ["a0", "a1"]},
                ]}),
                total,
            )
        })?;
        let patterns: [(&'static str, &dyn Fn(u64) -> Value); 3] = [
            (
                "a prefix, 100 hits",
                &|ten| json!({"tag": "host", "prefix": format!("h{ten:05}")}),
            ),
            (
                "a wildcard, 100 hits",
                &|ten| json!({"tag": "host", "wildcard": format!("h{ten:05}*")}),
            ),
            (
                "a regular expression, 100 hits",
                &|ten| json!({"tag": "host", "regex": format!("h{ten:05}[0-9]+")}),
            ),
        ];
        for (name, condition) in patterns {
            self.time(
                server,
                timing(name, ROUNDS, wanted::FIND_PATTERN),
                report,
                |random| found(&condition(random.index(crowd.hosts as usize / 100) as u64), 100),
            )?;
        }
        let within = |name, condition: fn(u64) -> Value| {
            let timing = timing(name, ROUNDS, wanted::FIND_PATTERN);
            (timing, move |random: &mut Random| {
                let rack = random.index(RACKS as usize) as u64;
                found(&condition(rack), crowd.of_rack(rack))
            })
        };
        let (range, make) = within(
            "a range of numbers, 1,000 hits",
            |rack| json!({"attribute": "slot", "gte": rack as f64 - 0.5, "lt": rack as f64 + 0.5}),
        );
        self.time(server, range, report, make)?;
        let (geo, make) = within("within 50 km of a place, 1,000 hits", |rack| {
            let place = Crowd::place(rack);
            json!({"attribute": "site", "near": {"lat": place["lat"], "lon": place["lon"], "meters": 50_000}})
        });
        self.time(server, geo, report, make)?;
        self.time(
            server,
            timing(
                "words with a letter wrong over all properties, first page by relevance",
                ROUNDS,
                wanted::FIND_TEXT,
            ),
            report,
            |random| {
                let rack = random.index(RACKS as usize) as u64;
                let word = WORDS[(rack % 10) as usize];
                let (first, rest) = word.split_at(1);
                let wrong = format!("{first}x{rest} unit{rack}");
                let body = json!({
                    "where": {"and": [
                        {"property": "any", "text": wrong, "distance": 1},
                        {"attribute": "title", "text": format!("unit{rack}")},
                    ]},
                    "sort": [{"relevance": true}], "highlight": true, "limit": 20,
                });
                let total = crowd.of_rack(rack);
                checked_request(DEFAULT_TABLE, "timelines/search", &body, move |response| {
                    has(&response["total"], total)
                })
            },
        )?;
        self.list_values(server, report)?;
        self.time(
            server,
            timing(
                "counts by a tag of a fifth as many values",
                WIDE_ROUNDS,
                wanted::FIND_FACET,
            ),
            report,
            |_| {
                let body = json!({"by": [{"tag": "serial"}]});
                checked_request(DEFAULT_TABLE, "timelines/facets", &body, move |response| {
                    has(&response["timelines"], crowd.hosts)?;
                    has(&response["distinct"], crowd.hosts / SHARED)
                })
            },
        )
    }
}

impl Benchmark {
    /// Measures the first page of values of `serial`, the tag with the second-largest number of values.
    fn list_values(&self, server: &Server, report: &mut Report) -> Result<()> {
        let mut connection = server.connect()?;
        let path = format!("/v1/tables/{DEFAULT_TABLE}/tags/serial/values?limit=1000");
        let mut took = Vec::new();
        for _ in 0..WIDE_ROUNDS {
            let begun = Instant::now();
            connection.send_expecting_success("GET", &path, b"")?;
            took.push(begun.elapsed());
        }
        report.add(
            "a page of 1,000 values of a tag of a fifth as many as timelines, p99",
            milliseconds(Latencies::of(took).percentile(99)),
            Unit::Milliseconds,
            wanted::FIND_VALUES,
        );
        Ok(())
    }
}

/// Returns a search for the first page; `total` is the expected number of hits.
fn found(condition: &Value, total: u64) -> CheckedRequest<'static> {
    let body = json!({"where": condition});
    checked_request(DEFAULT_TABLE, "timelines/search", &body, move |response| {
        has(&response["total"], total)
    })
}

fn has(found: &Value, expected: u64) -> std::result::Result<(), String> {
    match found.as_u64() == Some(expected) {
        true => Ok(()),
        false => Err(format!("{expected} expected, {found} found")),
    }
}
