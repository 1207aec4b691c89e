//! A flood of questions about cold points beside hot ones: every answer is right, and the hot ones take at most a few
//! times as long as alone.
//!
//! Times of a shared machine vary, so the ratio is taken within pairs of adjacent measurements, as the median of many
//! questions each, and its median over the pairs counts. If that exceeds the bound, all of it is measured again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use tideline_fleet::Random;
use tideline_model::{Clock as _, SystemClock, Value};
use tideline_tests::reading;
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Launch, rounds, seed};

const TABLE: &str = "flood";
const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3_600 * SECOND;
const DAY: i64 = 24 * HOUR;
const HOSTS: usize = 20;
/// Cold points come every minute, hot ones every ten seconds.
const COLD_STEP: i64 = 60 * SECOND;
const HOT_STEP: i64 = 10 * SECOND;
const COLD_DAYS: i64 = 8;
const HOT_HOURS: i64 = 3;
/// Clients that ask for cold points at once.
const FLOODERS: usize = 6;

/// Pairs of measurements, alone and beside the flood.
const PAIRS: u32 = 5;
/// Largest median of the ratios of both. A hot query that waited for a turn among the cold ones would take at least as
/// long as one of them, which reads days and not hours.
const RATIO_MAX: f64 = 3.0;
/// How often all pairs are measured before the ratio counts as too large.
const ATTEMPTS: usize = 3;

#[test]
fn hot_questions_are_answered_beside_a_flood_of_cold_ones() {
    let seed = seed("cold_flood");
    let span = Duration::from_millis(rounds("TIDELINE_FLOOD_MS", 1_500, 10_000) as u64) / PAIRS;
    let folder = DataFolder::new();
    let server = folder.start(&Launch::default());
    let client = server.client();
    // Whole hours, well inside each tier.
    let now = SystemClock.now().nanos().div_euclid(HOUR) * HOUR;
    let cold_start = (now.div_euclid(DAY) - COLD_DAYS - 3) * DAY;
    prepare(&client, cold_start, now);

    let mut medians = Vec::new();
    for attempt in 1..=ATTEMPTS {
        let mut ratios: Vec<f64> = (0..u64::from(PAIRS))
            .map(|pair| {
                let seed = seed.wrapping_add(pair * 100);
                let alone = ask_hot(&client, now, seed, span);
                let beside = beside_flood(&client, (cold_start, now), seed, span);
                let ratio = beside.median().as_secs_f64() / alone.median().as_secs_f64();
                println!("attempt {attempt}: hot alone {alone}; beside the flood {beside}; ratio {ratio:.2}");
                ratio
            })
            .collect();
        ratios.sort_unstable_by(f64::total_cmp);
        medians.push(ratios[ratios.len() / 2]);
        if medians.iter().any(|median| *median <= RATIO_MAX) {
            return;
        }
    }
    panic!(
        "hot questions beside {FLOODERS} clients that ask for cold points take {medians:.2?} times as long as alone, \
         more than {RATIO_MAX} in each attempt"
    );
}

/// Ends the flood.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks for hot points while others ask for cold ones.
fn beside_flood(client: &Client, (cold_start, now): (i64, i64), seed: u64, span: Duration) -> Latencies {
    let stop = AtomicBool::new(false);
    let (answered, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let (began, begins) = mpsc::channel();
    let beside = thread::scope(|scope| {
        for flooder in 0..FLOODERS as u64 {
            let (stop, began) = (&stop, began.clone());
            let (answered, refused) = (&answered, &refused);
            scope.spawn(move || {
                // Answers are parsed with the lowest priority: the service is measured, not its clients.
                rustix::process::setpriority_process(None, 19).expect("a thread may lower its priority");
                let mut random = Random::new(seed ^ (flooder + 1));
                while !stop.load(Ordering::Relaxed) {
                    let counter = if ask_cold(client, cold_start, &mut random) {
                        answered
                    } else {
                        refused
                    };
                    counter.fetch_add(1, Ordering::Relaxed);
                    // The receiver has left after the first answers.
                    let _ = began.send(());
                }
            });
        }
        // Should all of them panic, the channel closes.
        drop(began);
        // Also where an answer is wrong: the scope waits for the flood.
        let _stop = StopOnDrop(&stop);
        begins.recv().expect("the flood begins");
        ask_hot(client, now, seed, span)
    });
    let (answered, refused) = (answered.into_inner(), refused.into_inner());
    assert!(answered > 0, "cold questions are answered too");
    println!("{answered} cold answers, {refused} refused as overload");
    beside
}

/// How long questions took.
struct Latencies(Vec<Duration>);

impl Latencies {
    /// The latency that this part of the questions stayed below.
    fn at(&self, part: f64) -> Duration {
        self.0[(self.0.len() as f64 * part) as usize % self.0.len()]
    }

    fn median(&self) -> Duration {
        self.at(0.5)
    }
}

impl std::fmt::Display for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} answers, p50 {:?}, p99 {:?}",
            self.0.len(),
            self.median(),
            self.at(0.99)
        )
    }
}

/// Days of points in the cold tier, and hours of them in the hot one.
fn prepare(client: &Client, cold_start: i64, now: i64) {
    let table = json!({"name": TABLE, "policy": {"hot_ttl": "2d"}});
    client.post_json("/v1/tables", &table).expect_status(201);
    write(client, cold_start, COLD_DAYS * DAY / COLD_STEP, COLD_STEP);
    write(
        client,
        now - HOT_HOURS * HOUR,
        HOT_HOURS * HOUR / HOT_STEP,
        HOT_STEP,
    );
    for kind in ["seal", "migrate"] {
        let body = match kind {
            "seal" => json!({"kind": kind}),
            _ => json!({"kind": kind, "table": TABLE, "wait": true}),
        };
        let answer = client.post_json("/v1/jobs", &body);
        assert!(answer.is_success(), "{kind}: {answer:?}");
    }
}

fn write(client: &Client, start: i64, count: i64, step: i64) {
    let path = format!("/v1/tables/{TABLE}/points");
    for from in (0..count).step_by(500) {
        let mut lines = String::new();
        for number in from..(from + 500).min(count) {
            for host in 0..HOSTS as i64 {
                let (time, wave) = (start + number * step, (number * 7 + host * 13) % 100);
                lines.push_str(&format!(
                    "load,host=h{host} wave={wave}i,level={wave}.25 {time}\n"
                ));
            }
        }
        client.post_lines(&path, &lines).expect_status(200);
    }
}

/// Asks for the last hours of one machine after another, for some time.
fn ask_hot(client: &Client, now: i64, seed: u64, span: Duration) -> Latencies {
    let mut random = Random::new(seed);
    let mut latencies = Vec::new();
    let started = Instant::now();
    while started.elapsed() < span || latencies.is_empty() {
        let host = random.index(HOSTS);
        let question = question(host, now - HOT_HOURS * HOUR, now, "1m");
        let asked = Instant::now();
        let answer = client.post_json(&format!("/v1/tables/{TABLE}/query"), &question);
        latencies.push(asked.elapsed());
        let answer = answer.expect_status(200);
        let rows = reading::rows_of(&answer);
        assert_eq!(rows.len() as i64, HOT_HOURS * 60, "{question}: {answer:?}");
        let in_full = |row: &reading::Row| row.fields["count(wave)"] == Value::Signed(60 * SECOND / HOT_STEP);
        assert!(rows.iter().all(in_full), "{question}: {answer:?}");
    }
    latencies.sort_unstable();
    Latencies(latencies)
}

/// Asks for a random part of the cold days of one machine; whether it was answered, and not refused as overload.
fn ask_cold(client: &Client, cold_start: i64, random: &mut Random) -> bool {
    let (first, days) = (random.index(4) as i64, 1 + random.index(4) as i64);
    let start = cold_start + first * DAY;
    // Odd minutes, so that no summary of whole hours serves it.
    let (window, of_window) = [("7m", 7), ("1h", 60)][random.index(2)];
    let question = question(random.index(HOSTS), start, start + days * DAY, window);
    let answer = client.post_json(&format!("/v1/tables/{TABLE}/query"), &question);
    if [429, 503].contains(&answer.status) {
        assert_eq!(answer.json()["retryable"], true, "{answer:?}");
        return false;
    }
    let rows = reading::rows_of(&answer.expect_status(200));
    let count = |row: &reading::Row| match row.fields["count(wave)"] {
        Value::Signed(count) => count,
        ref other => panic!("{question}: a count is no {other:?}"),
    };
    assert_eq!(
        rows.iter().map(count).sum::<i64>(),
        days * DAY / COLD_STEP,
        "{question}"
    );
    assert!(rows.iter().all(|row| count(row) <= of_window), "{question}");
    true
}

fn question(host: usize, start: i64, end: i64, window: &str) -> Json {
    json!({
        "timelines": {"where": {"tag": "host", "equals": format!("h{host}")}},
        "range": {"start": start, "end": end},
        "aggregate": {"functions": ["count", "mean"], "window": window},
        "fields": ["wave"],
    })
}
