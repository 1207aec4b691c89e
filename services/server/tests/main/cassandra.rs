//! Two servers on one real node of Cassandra: one owns the data, the other forwards requests and takes over.
//!
//! Acknowledged writes are all read after a kill, after a pause of the owner, and after a clean stop. An owner that stops
//! flushes first, so that the next owner replays little.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tideline_testkit::cassandra::shared_node;
use tideline_testkit::{rounds, wait};
use tideline_tests::Client;

use crate::process::{Running, output, text, tideline};

/// Lease of the servers. A take-over takes a quarter longer than the lease.
const LEASE: &str = "2s";
/// Default of the setting `cassandra.lease`, for the measurement of take-overs.
const DEFAULT_LEASE: &str = "4s";
/// Longest wait for a take-over, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Keyspace with tables on the shared node.
pub(crate) struct Cluster {
    contact: &'static str,
    keyspace: String,
    folder: TempDir,
}

impl Cluster {
    pub(crate) fn new(name: &str) -> Option<Self> {
        let cluster = Self {
            contact: shared_node()?,
            keyspace: format!("{name}_{}", std::process::id()),
            folder: tempfile::tempdir().expect("a temporary folder"),
        };
        let created = cluster.backend("schema", &["--replication", "1"]);
        assert!(created.1, "{}", created.0);
        Some(cluster)
    }

    /// Runs a command of `tideline backend`. Returns its output, and true if it succeeded.
    pub(crate) fn backend(&self, command: &str, more: &[&str]) -> (String, bool) {
        let place = ["--contact", self.contact, "--keyspace", &self.keyspace];
        let arguments = ["backend", command]
            .into_iter()
            .chain(place)
            .chain(more.iter().copied());
        let mut command = tideline(&arguments.collect::<Vec<_>>());
        command.env("TIDELINE__CASSANDRA__REQUEST_TIMEOUT", "30s");
        command.env("TIDELINE__CASSANDRA__ACKNOWLEDGED", "replicated");
        let output = output(command);
        let texts = text(&output.stdout) + &text(&output.stderr);
        (texts, output.status.success())
    }

    pub(crate) fn serve(&self, name: &str) -> (Running, SocketAddr) {
        self.serve_with_lease(name, LEASE)
    }

    fn serve_with_lease(&self, name: &str, lease: &str) -> (Running, SocketAddr) {
        self.serve_as(name, lease, None)
    }

    /// Starts a server. `tls` is the folder of its certificate and key.
    fn serve_as(&self, name: &str, lease: &str, tls: Option<&Path>) -> (Running, SocketAddr) {
        // A server that starts itself again listens on the same address only if the port is given.
        let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
        let listen = free.expect("a free port").to_string();
        let mut command = tideline(&["serve", "--listen", &listen, "--backend", "cassandra"]);
        command.args(["--contact", self.contact, "--keyspace", &self.keyspace]);
        command.arg("--data-dir").arg(self.folder.path().join(name));
        command.env("TIDELINE__CASSANDRA__LEASE", lease);
        // The shared node can be on another machine.
        command.env("TIDELINE__CASSANDRA__ADVERTISE", &listen);
        command.env("TIDELINE__CASSANDRA__ACKNOWLEDGED", "replicated");
        if let Some(folder) = tls {
            command
                .env(
                    "TIDELINE__HTTP__TLS_CERTIFICATE_FILE",
                    folder.join("tideline.crt"),
                )
                .env("TIDELINE__HTTP__TLS_KEY_FILE", folder.join("tideline.key"));
        }
        let mut running = Running::start(command);
        let line =
            running.wait_for(|line| line.starts_with("listening on ") || line.starts_with("tideline: "));
        let address = line.split("://").nth(1).and_then(|rest| rest.split(',').next());
        let address = address.and_then(|address| address.parse().ok());
        (running, address.unwrap_or_else(|| panic!("{line}")))
    }
}

/// Waits until `/ready` of a server reports a role. A server that starts again does not listen for a moment.
pub(crate) fn wait_for_role(address: SocketAddr, role: &str) -> Value {
    let look = || {
        let answer = Client::new(address).send("GET", "/ready", &[], b"").ok()?;
        let ready = answer.json();
        (ready["role"] == role && ready["status"] == "ready").then_some(ready)
    };
    wait::until(PATIENCE, look).unwrap_or_else(|| panic!("{address} is not {role}"))
}

/// Writes a point until a server acknowledges it. Returns the time until then. While a process takes the data over, a
/// connection can end without a response, so the request is then sent again.
fn write(address: SocketAddr, host: &str) -> Duration {
    let begun = Instant::now();
    let line = format!("load,host={host} one=1 1767225600000000000");
    let acknowledged = wait::until(PATIENCE, || {
        let headers = [("content-type", "text/plain")];
        let answer =
            Client::new(address).send("POST", "/v1/tables/default/points", &headers, line.as_bytes());
        let answer = answer.ok()?;
        assert!(answer.status < 300 || answer.status == 503, "{answer:?}");
        (answer.status < 300).then_some(())
    });
    acknowledged.unwrap_or_else(|| panic!("{address} acknowledges nothing"));
    begun.elapsed()
}

/// Returns the hosts with points.
fn hosts(address: SocketAddr) -> Vec<String> {
    let path = "/v1/tables/default/prometheus/api/v1/query?query=load_one&time=1767225600";
    let body = Client::new(address).get(path).json();
    let series = body["data"]["result"]
        .as_array()
        .unwrap_or_else(|| panic!("{body}"));
    let host = |one: &Value| one["metric"]["host"].as_str().expect("a host").to_owned();
    let mut hosts: Vec<String> = series.iter().map(host).collect();
    hosts.sort();
    hosts
}

#[test]
fn a_standby_forwards_and_takes_over() {
    let Some(cluster) = Cluster::new("takeover") else {
        return;
    };
    let (mut one, first) = cluster.serve("one");
    one.wait_for(|line| line.contains("this process owns the data"));
    let (two, second) = cluster.serve("two");
    let standby = wait_for_role(second, "standby");
    assert_eq!(standby["owner"], first.to_string());
    write(first, "a");
    write(second, "b");
    assert_eq!(hosts(second), ["a", "b"], "a standby forwards reads and writes");
    let backend = Client::new(second).get("/v1/backend").json();
    assert_eq!(backend["engine"], "cassandra");
    // The shared node syncs its commit log every ten seconds.
    let reasons = wait_for_role(first, "owner")["reasons"].to_string();
    assert!(
        reasons.contains("acknowledged writes are replicated"),
        "{reasons}"
    );
    assert_eq!(
        (&backend["medium"], &backend["backup"]),
        (&Value::from("cluster"), &Value::from("cluster_snapshot"))
    );
    for member in [
        "buffers_writes",
        "limits_free_space",
        "frees_at_once",
        "has_offline_check",
    ] {
        assert_eq!(backend[member], false, "{member}");
    }
    let metrics = |address| Client::new(address).get("/metrics").text();
    let of_owner = metrics(first);
    for line in [
        "tideline_cluster_owner 1",
        "tideline_cluster_request_seconds_bucket{le=\"+Inf\",kind=\"write\"} ",
    ] {
        assert!(of_owner.contains(line), "{line}: {of_owner}");
    }
    assert!(
        metrics(second).contains("tideline_cluster_owner 0"),
        "its own metrics"
    );
    let epoch = backend["epoch"].as_u64().expect("a number");

    // The owner is killed.
    one.signal(Signal::KILL);
    drop(one);
    let taken_in = write(second, "c");
    println!("take-over after a kill: {taken_in:?}");
    assert_eq!(hosts(second), ["a", "b", "c"], "nothing acknowledged is lost");
    let backend = Client::new(second).get("/v1/backend").json();
    assert_eq!(
        backend["epoch"],
        epoch + 1,
        "a take-over begins one epoch: {backend}"
    );

    // A paused owner that continues after a take-over refuses the waiting request, and then forwards requests.
    let (three, third) = cluster.serve("three");
    wait_for_role(third, "standby");
    two.signal(Signal::STOP);
    let taken_in = write(third, "d");
    println!("take-over after a pause: {taken_in:?}");
    let stale = std::thread::spawn(move || {
        let line = "load,host=stale one=1 1767225600000000000";
        Client::new(second).post_lines("/v1/tables/default/points", line)
    });
    // The request waits in the socket of the paused process.
    wait::pause(Duration::from_millis(300));
    two.signal(Signal::CONT);
    let stale = stale.join().expect("a response");
    assert_eq!(stale.status, 503, "{stale:?}");
    wait_for_role(second, "standby");
    write(second, "e");
    assert_eq!(hosts(third), ["a", "b", "c", "d", "e"]);

    // A clean stop hands over at once.
    three.signal(Signal::TERM);
    let taken_in = write(second, "f");
    println!("take-over after a stop: {taken_in:?}");
    let (status, _, said) = three.end();
    assert!(status.success(), "{said}");
    // The stopping owner may have executed the write, because it serves during its flush.
    wait_for_role(second, "owner");
    assert_eq!(hosts(second), ["a", "b", "c", "d", "e", "f"]);
    let (owner, _) = cluster.backend("owner", &[]);
    assert!(owner.contains(&format!("{second} owns the data")), "{owner}");
}

#[test]
fn a_stopping_owner_flushes_while_it_serves_and_then_hands_over() {
    /// Highest number of entries that the servers themselves commit while the owner stops, such as the times of jobs.
    const OWN_ENTRIES_MAX: u64 = 20;
    let Some(cluster) = Cluster::new("handover") else {
        return;
    };
    let (mut one, first) = cluster.serve("one");
    one.wait_for(|line| line.contains("this process owns the data"));
    let (mut two, second) = cluster.serve("two");
    wait_for_role(second, "standby");
    two.wait_for(|line| line.contains("the timelines are read ahead"));
    let mut written: Vec<String> = (0..100).map(|number| format!("h{number:03}")).collect();
    for host in &written {
        write(first, host);
    }
    one.signal(Signal::TERM);
    written.push("h100".to_owned());
    let taken_in = write(second, "h100");
    println!("first write through the next owner: {taken_in:?}");
    two.wait_for(|line| line.contains("the timelines that were read ahead are complete"));
    let opened = two.wait_for(|line| line.contains("the database is open"));
    let replayed = opened.split("replayed_entries=").nth(1).unwrap_or_default();
    let replayed: u64 = replayed.trim().parse().unwrap_or_else(|_| panic!("{opened}"));
    assert!(replayed <= 1 + OWN_ENTRIES_MAX, "{opened}");
    let (status, _, said) = one.end();
    assert!(status.success(), "{said}");
    // The service of a standby also drains, before it is replaced by that of the owner.
    let flushed = said.find("flushed for the next owner");
    assert!(
        flushed.is_some() && flushed < said.rfind("http service drains"),
        "{said}"
    );
    wait_for_role(second, "owner");
    assert_eq!(hosts(second), written);
}

#[test]
fn servers_with_tls_forward_over_tls() {
    let Some(cluster) = Cluster::new("encrypted") else {
        return;
    };
    let tls = cluster.folder.path().join("tls");
    let mut make = tideline(&["tls", "self-signed", "--out"]);
    make.arg(&tls);
    assert!(output(make).status.success());
    let (mut one, first) = cluster.serve_as("one", LEASE, Some(&tls));
    one.wait_for(|line| line.contains("this process owns the data"));
    let (mut two, second) = cluster.serve_as("two", LEASE, Some(&tls));
    let owner = format!("https://{first}");
    two.wait_for(|line| line.contains("standing by") && line.contains(&owner));
    let run = |arguments: &[&str]| {
        let mut command = tideline(arguments);
        command.args(["--server", &format!("https://{second}"), "--ca"]);
        let output = output({
            command.arg(tls.join("tideline.crt"));
            command
        });
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let points = cluster.folder.path().join("points.lp");
    std::fs::write(&points, "load,host=a one=1\n").expect("a file");
    run(&["write", points.to_str().expect("a path")]);
    assert!(
        run(&["latest"]).contains("load"),
        "the standby forwards reads and writes"
    );
    one.signal(Signal::TERM);
    assert!(one.end().0.success());
    two.wait_for(|line| line.contains("this process owns the data"));
    let kept = wait::until(PATIENCE, || run(&["latest"]).contains("load").then_some(()));
    kept.expect("the next owner serves over TLS");
}

#[test]
#[ignore = "measures; takes eight minutes"]
fn killed_owners_are_followed_within_seconds() {
    let Some(cluster) = Cluster::new("kills") else {
        return;
    };
    let kills = rounds("TIDELINE_OWNER_KILLS", 50, 50);
    let serve = |number: usize| cluster.serve_with_lease(&format!("server-{}", number % 2), DEFAULT_LEASE);
    let mut owner = serve(0);
    wait_for_role(owner.1, "owner");
    let (mut written, mut times) = (Vec::new(), Vec::new());
    for kill in 0..kills {
        let standby = serve(kill + 1);
        wait_for_role(standby.1, "standby");
        let [before, after] = ["before", "after"].map(|part| format!("{kill:03}-{part}"));
        write(owner.1, &before);
        owner.0.signal(Signal::KILL);
        let begun = Instant::now();
        write(standby.1, &after);
        written.extend([after, before]);
        written.sort();
        assert_eq!(hosts(standby.1), written, "kill {kill}");
        times.push(begun.elapsed());
        owner = standby;
    }
    times.sort();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{kills} owners killed: writes and reads again after {median:?} (median), {worst:?} (worst)");
}

#[test]
fn wrong_clusters_are_refused_with_what_to_do() {
    let Some(cluster) = Cluster::new("refused") else {
        return;
    };
    let (checked, is_usable) = cluster.backend("check", &[]);
    assert!(is_usable && checked.contains("request limits"), "{checked}");

    let missing = Cluster {
        keyspace: "no_such_keyspace".to_owned(),
        folder: tempfile::tempdir().expect("a temporary folder"),
        ..cluster
    };
    let (checked, is_usable) = missing.backend("check", &[]);
    assert!(
        !is_usable && checked.contains("tideline backend schema"),
        "{checked}"
    );
    let mut command = tideline(&["serve", "--listen", "127.0.0.1:0", "--backend", "cassandra"]);
    command.args(["--contact", missing.contact, "--keyspace", &missing.keyspace]);
    command.arg("--data-dir").arg(missing.folder.path());
    command.env("TIDELINE__CASSANDRA__ADVERTISE", "localhost:8490");
    let refused = output(command);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("tideline backend schema"),
        "{}",
        text(&refused.stderr)
    );

    // The shared node syncs its commit log every ten seconds, which `synced` does not accept.
    let existing = Cluster::new("unsynced").expect("the node runs");
    let mut command = tideline(&["serve", "--listen", "127.0.0.1:0", "--backend", "cassandra"]);
    command.args(["--contact", existing.contact, "--keyspace", &existing.keyspace]);
    command.arg("--data-dir").arg(existing.folder.path());
    command.env("TIDELINE__CASSANDRA__ADVERTISE", "localhost:8490");
    let refused = output(command);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stderr).contains("commitlog_sync"),
        "{}",
        text(&refused.stderr)
    );

    let unnamed = output(tideline(&["serve", "--backend", "cassandra"]));
    assert_eq!(unnamed.status.code(), Some(2));
    assert!(
        text(&unnamed.stderr).contains("--contact"),
        "{}",
        text(&unnamed.stderr)
    );
}
