//! Agents write to the service while it is killed and restarted several times: every sample must be stored
//! once.
//!
//! `TIDELINE_AGENTS` names a folder with the programs of these Debian packages: `prometheus`,
//! `prometheus-node-exporter`, `vmagent` and `vmctl`. Without the variable, the test is reported as not run.
//!
//! A Prometheus and a vmagent scrape a node exporter every second and send the samples by remote write. This
//! Prometheus is also the reference: it stores its own samples and receives the samples of vmagent. Finally
//! the samples of the service and of the reference are compared, and vmctl copies the samples of vmagent into
//! another table.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tideline_model::{Clock as _, SystemClock};
use tideline_tests::client::escaped;
use tideline_tests::program::{Program, free_address};
use tideline_tests::server::DataFolder;
use tideline_tests::{Client, Launch, not_run, rounds, wait};

/// Number of kills in the short form of the test.
const KILLS: usize = 5;
/// Time between a restart and the next kill.
const LIFE: Duration = Duration::from_secs(6);
/// Time between a kill and the restart.
const ABSENCE: Duration = Duration::from_millis(1_500);
/// Minimum age in milliseconds of compared samples; the reference may lack younger samples.
const ON_THE_WAY: i64 = 3_000;
/// Time limit for agents to send the samples that they could not send earlier.
const PATIENCE: Duration = Duration::from_secs(90);

/// Samples by the labels of their series: timestamp in milliseconds, and the value as text.
type Samples = BTreeMap<BTreeMap<String, String>, Vec<(i64, String)>>;

#[test]
fn agents_lose_nothing_over_kills() {
    let Some(programs) = std::env::var_os("TIDELINE_AGENTS") else {
        not_run("TIDELINE_AGENTS names no folder with agents");
        return;
    };
    let programs = Path::new(&programs);
    let folder = DataFolder::new();
    let address = free_address();
    let launch = Launch::default().listen(address);
    let mut server = folder.start(&launch);
    let begun = SystemClock.now().nanos() / 1_000_000;

    let exporter_address = free_address();
    let _exporter = Program::new(&programs.join("prometheus-node-exporter"))
        .argument(format!("--web.listen-address={exporter_address}"))
        .start();
    let reference = free_address();
    let configuration = folder.beside("prometheus.yml");
    let scraped = format!(
        "scrape_configs:\n- job_name: node\n  static_configs:\n  - targets: ['{exporter_address}']\n"
    );
    let global = "global:\n  scrape_interval: 1s\n  scrape_timeout: 1s\n";
    let sent = format!("remote_write:\n- url: http://{address}/api/v1/write\n");
    let labelled = "  external_labels: {agent: prometheus}\n";
    std::fs::write(&configuration, format!("{global}{labelled}{sent}{scraped}"))
        .expect("the temporary folder can be written");
    let prometheus = Program::new(&programs.join("prometheus"))
        .argument(format!("--config.file={}", configuration.display()))
        .argument(format!("--storage.tsdb.path={}", folder.beside("tsdb").display()))
        .argument(format!("--web.listen-address={reference}"))
        .argument("--web.enable-remote-write-receiver")
        .start();
    let reference_client = Client::new(reference);
    wait::until(PATIENCE, || {
        let answer = reference_client.send("GET", "/-/ready", &[], b"").ok()?;
        (answer.status == 200).then_some(())
    })
    .expect("Prometheus becomes ready");
    let configuration = folder.beside("vmagent.yml");
    std::fs::write(
        &configuration,
        format!("{global}  external_labels: {{agent: vmagent}}\n{scraped}"),
    )
    .expect("the temporary folder can be written");
    let vmagent = Program::new(&programs.join("vmagent"))
        .argument(format!("-promscrape.config={}", configuration.display()))
        .argument(format!(
            "-remoteWrite.tmpDataPath={}",
            folder.beside("vmagent").display()
        ))
        .argument(format!("-httpListenAddr={}", free_address()))
        .argument(format!("-remoteWrite.url=http://{address}/api/v1/write"))
        .argument(format!("-remoteWrite.url=http://{reference}/api/v1/write"))
        .start();

    let kills = rounds("TIDELINE_ROUNDS", KILLS, 5 * KILLS);
    for _ in 0..kills {
        wait::pause(LIFE);
        server.kill();
        wait::pause(ABSENCE);
        server = folder.start(&launch);
    }
    wait::pause(LIFE);
    let client = server.client();
    let range = (begun, SystemClock.now().nanos() / 1_000_000 - ON_THE_WAY);
    for agent in ["prometheus", "vmagent"] {
        let theirs = match agent {
            // Prometheus adds its external label only to the samples that it sends.
            "prometheus" => "{__name__!=\"\", agent=\"\"}",
            _ => "{agent=\"vmagent\"}",
        };
        let wanted = without_agent(samples(&reference_client, "", theirs, range));
        let ours = format!("{{agent=\"{agent}\"}}");
        let mut found = Samples::new();
        let caught_up = wait::until(PATIENCE, || {
            found = without_agent(samples(&client, "", &ours, range));
            (found.values().map(Vec::len).sum::<usize>() >= wanted.values().map(Vec::len).sum()).then_some(())
        });
        compare(agent, &found, &wanted);
        assert!(caught_up.is_some(), "{agent}: samples are missing");
        println!(
            "{agent}: {} series, {} samples over {kills} kills, each there once",
            wanted.len(),
            wanted.values().map(Vec::len).sum::<usize>()
        );
    }
    // Stops the agents, so that the copied data does not change.
    drop((prometheus, vmagent));
    copy(programs, &client, range);
}

/// Copies the samples of vmagent into another table, with vmctl.
fn copy(programs: &Path, client: &Client, range: (i64, i64)) {
    let address = client.address();
    client
        .post_json("/v1/tables", &serde_json::json!({"name": "copied"}))
        .expect_status(201);
    let seconds = |millis: i64| (millis / 1_000).to_string();
    let status = Program::new(&programs.join("vmctl"))
        .argument("vm-native")
        .argument(format!("--vm-native-src-addr=http://{address}"))
        .argument(format!(
            "--vm-native-dst-addr=http://{address}/v1/tables/copied/prometheus"
        ))
        .argument("--vm-native-filter-match={agent=\"vmagent\"}")
        .argument(format!("--vm-native-filter-time-start={}", seconds(range.0)))
        .argument(format!(
            "--vm-native-filter-time-end={}",
            seconds(range.1 + 1_000)
        ))
        .argument("--vm-native-disable-binary-protocol")
        .argument("-s")
        .run();
    assert!(status.success(), "vmctl: {status}");
    let all = "{agent=\"vmagent\"}";
    let wanted = samples(client, "", all, range);
    let copied = samples(client, "/v1/tables/copied/prometheus", all, range);
    compare("vmctl", &copied, &wanted);
    println!("vmctl: {} series copied into another table", copied.len());
}

/// Returns all samples of a selector between two timestamps.
fn samples(client: &Client, prefix: &str, selector: &str, (start, end): (i64, i64)) -> Samples {
    let width = (end - start) / 1_000 + 1;
    let query = format!("{selector}[{width}s] @ {}.{:03}", end / 1_000, end % 1_000);
    let form = format!("query={}", escaped(&query));
    let headers = [("Content-Type", "application/x-www-form-urlencoded")];
    let path = format!("{prefix}/api/v1/query");
    let answer = client.send("POST", &path, &headers, form.as_bytes());
    let answer = answer
        .unwrap_or_else(|error| panic!("{error}"))
        .expect_status(200);
    let json = answer.json();
    let result = json["data"]["result"].as_array().expect("a result is a list");
    result.iter().map(series).collect()
}

fn series(one: &Value) -> (BTreeMap<String, String>, Vec<(i64, String)>) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let labels = one["metric"].as_object().expect("labels are an object");
    let labels = labels.iter().map(|(name, value)| (name.clone(), text(value)));
    let values = one["values"].as_array().expect("values are a list");
    let millis = |value: &Value| (value.as_f64().unwrap_or_default() * 1_000.0).round() as i64;
    let samples = values.iter().map(|pair| (millis(&pair[0]), text(&pair[1])));
    (labels.collect(), samples.collect())
}

fn without_agent(samples: Samples) -> Samples {
    let pairs = samples.into_iter().map(|(mut labels, samples)| {
        labels.remove("agent");
        (labels, samples)
    });
    pairs.collect()
}

/// Asserts that both sides have the same series and samples.
fn compare(who: &str, found: &Samples, wanted: &Samples) {
    for (series, samples) in wanted {
        let ours = found
            .get(series)
            .unwrap_or_else(|| panic!("{who}: {series:?} is missing"));
        let missing = samples.iter().find(|sample| !ours.contains(sample));
        assert_eq!(missing, None, "{who}: a sample of {series:?} is missing");
        assert_eq!(
            ours.len(),
            samples.len(),
            "{who}: {series:?} has unexpected samples"
        );
    }
    let other = found.keys().find(|series| !wanted.contains_key(*series));
    assert_eq!(other, None, "{who}: an unexpected series");
}
