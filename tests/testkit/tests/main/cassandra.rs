//! Tests of `tideline_testkit::cassandra` with real nodes: kill, pause, restart, the end of the parent, and missing
//! prerequisites.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tideline_testkit::cassandra::{CassandraNode, CommitLog, NodeSettings, is_unwanted, shared_node};
use tideline_testkit::{is_slow, wait};

use crate::{shown, subject, terminal};

/// Variable with the folder where a subject waits for its end.
const STOP_VARIABLE: &str = "SUBJECT_STOP";
/// Longest time from the end of a process to the end of its node.
const END_MAX: Duration = Duration::from_secs(20);

/// Sends a statement in version 4 of the native protocol with consistency ONE, and returns the body of the result.
fn query(address: &str, statement: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("the node accepts connections");
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .expect("a timeout");
    let mut exchange = |opcode: u8, body: &[u8]| -> (u8, Vec<u8>) {
        let length = (body.len() as u32).to_be_bytes();
        let frame = [&[4, 0, 0, 0, opcode], &length[..], body].concat();
        stream.write_all(&frame).expect("the request is sent");
        let mut header = [0; 9];
        stream.read_exact(&mut header).expect("a header");
        let [_, _, _, _, opcode, length @ ..] = header;
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut body).expect("a body");
        (opcode, body)
    };
    let startup = b"\x00\x01\x00\x0bCQL_VERSION\x00\x053.0.0";
    assert_eq!(exchange(1, startup).0, 2, "READY follows STARTUP");
    let length = (statement.len() as u32).to_be_bytes();
    let (opcode, body) = exchange(7, &[&length, statement.as_bytes(), &[0, 1, 0]].concat());
    let shown = String::from_utf8_lossy(&body);
    assert_eq!(opcode, 8, "RESULT follows QUERY {statement}: {shown}");
    body
}

fn contains(body: &[u8], part: &[u8]) -> bool {
    body.windows(part.len()).any(|window| window == part)
}

#[test]
fn a_killed_node_restarts_with_its_data() {
    let settings = NodeSettings {
        commit_log: CommitLog::Group,
        ..NodeSettings::default()
    };
    let Some(mut node) = CassandraNode::start(&settings) else {
        return;
    };
    let address = node.address().to_owned();
    assert!(node.answers());
    let sync = query(
        &address,
        "SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'",
    );
    assert!(contains(&sync, b"group"), "{}", String::from_utf8_lossy(&sync));
    for statement in [
        "CREATE KEYSPACE kept WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE kept.texts (id int PRIMARY KEY, text text)",
        "INSERT INTO kept.texts (id, text) VALUES (1, 'written before the kill')",
    ] {
        query(&address, statement);
    }

    node.pause();
    assert!(!node.answers(), "a paused node does not answer");
    node.resume();
    assert!(
        wait::until(Duration::from_secs(30), || node.answers().then_some(())).is_some(),
        "a resumed node answers"
    );

    node.kill();
    TcpStream::connect(&address).expect_err("a killed node does not accept connections");
    node.restart();
    assert_eq!(node.address(), address);
    let text = query(&address, "SELECT text FROM kept.texts WHERE id = 1");
    assert!(contains(&text, b"written before the kill"));

    drop(node);
    TcpStream::connect(&address).expect_err("a dropped node has ended");
    assert!(!home(&address).exists(), "the data is removed");
}

#[test]
fn a_second_node_joins_the_cluster() {
    if !is_slow() {
        tideline_testkit::not_run("a cluster of two nodes starts only with TIDELINE_SLOW=1");
        return;
    }
    let Some(first) = CassandraNode::start(&NodeSettings::default()) else {
        return;
    };
    let settings = NodeSettings {
        seed: Some(first.ip()),
        ..NodeSettings::default()
    };
    let second = CassandraNode::start(&settings).expect("the prerequisites of the first node are there");
    let peers = query(second.address(), "SELECT peer FROM system.peers_v2");
    assert!(contains(&peers, &first.ip().octets()), "{peers:?}");
}

/// Returns the folder of a node.
fn home(address: &str) -> PathBuf {
    let ip = address.split(':').next().expect("an address");
    std::env::temp_dir().join(format!("tideline-cassandra-{ip}"))
}

#[test]
#[ignore = "subject of the other tests"]
fn subject_shared() {
    let Some(address) = shared_node() else { return };
    assert_eq!(
        shared_node(),
        Some(address),
        "the second call returns the same node"
    );
    let Some(folder) = std::env::var_os(STOP_VARIABLE).map(PathBuf::from) else {
        panic!("address {address}");
    };
    // Renamed, so that a reader never sees a part of it.
    fs::write(folder.join("new"), address).expect("the address is written");
    fs::rename(folder.join("new"), folder.join("address")).expect("the address is published");
    wait::pause(Duration::from_secs(600));
}

/// Empty folder that is removed at the end of a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tideline-testkit-{}-{name}", std::process::id()));
        fs::create_dir(&path).expect("a new folder");
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    /// Writes an executable script into the subfolder `bin`.
    fn program(&self, name: &str, text: &str) {
        let folder = self.0.join("bin");
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join(name);
        fs::write(&path, text).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("an executable");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Process that is killed when the test ends.
struct Subject(Child);

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_shared_node_ends_with_a_killed_process() {
    if is_unwanted() {
        return;
    }
    let folder = Folder::new("parent");
    let program = std::env::current_exe().expect("the test has a path");
    let mut subject = Subject(
        Command::new(program)
            .args(["--exact", "cassandra::subject_shared", "--ignored", "--nocapture"])
            .env_remove("TIDELINE_CASSANDRA")
            .env(STOP_VARIABLE, folder.path())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the subject starts"),
    );
    let published = folder.path().join("address");
    let address = wait::until(Duration::from_secs(300), || {
        let ended = subject.0.try_wait().expect("a child").is_some();
        fs::read_to_string(&published)
            .ok()
            .map(Some)
            .or(ended.then_some(None))
    });
    let Some(address) = address.expect("the subject starts a node or ends") else {
        // Without the prerequisites, the subject has reported so; under `CI=true` it has failed.
        let messages = BufReader::new(subject.0.stderr.take().expect("a pipe"));
        let messages: Vec<String> = messages.lines().map_while(Result::ok).collect();
        let status = subject.0.wait().expect("a child");
        assert!(status.success(), "{messages:?}");
        tideline_testkit::skip(&messages.join(" "));
        return;
    };
    TcpStream::connect(&address).expect("the node runs while its process does");
    assert!(home(&address).exists());

    subject.0.kill().expect("a child");
    subject.0.wait().expect("a child");
    let ended = wait::until(END_MAX, || {
        let is_gone = TcpStream::connect(&address).is_err() && !home(&address).exists();
        is_gone.then_some(())
    });
    assert!(ended.is_some(), "the node at {address} outlives its process");
}

#[test]
fn a_missing_jdk_is_reported_and_fails_in_ci() {
    let folder = Folder::new("jdk");
    let none = [("JAVA_HOME", "/nowhere")];
    let output = subject("cassandra::subject_shared", &none);
    assert!(output.status.success(), "{output:?}");
    let expected =
        "skipped: cassandra::subject_shared: Apache Cassandra for tests: JAVA_HOME=/nowhere has no bin/java";
    assert!(terminal(&output).contains(expected), "{output:?}");
    let output = subject("cassandra::subject_shared", &[none[0], ("CI", "true")]);
    assert!(!output.status.success());
    assert!(
        shown(&output).contains("JAVA_HOME=/nowhere has no bin/java"),
        "{output:?}"
    );

    folder.program(
        "java",
        "#!/bin/sh\necho 'openjdk version \"21.0.1\" 2023-10-17' >&2\n",
    );
    let wrong = folder.path().to_str().expect("a text");
    let output = subject("cassandra::subject_shared", &[("JAVA_HOME", wrong)]);
    assert!(terminal(&output).contains("is not a JDK 17"), "{output:?}");
}

#[test]
fn a_failed_download_is_reported() {
    let folder = Folder::new("download");
    folder.program(
        "java",
        "#!/bin/sh\necho 'openjdk version \"17.0.1\" 2021-10-19' >&2\n",
    );
    folder.program("mvn", "#!/bin/sh\necho 'no registry answers'\nexit 1\n");
    let home = folder.path().to_str().expect("a text");
    let path = format!("{home}/bin:{}", std::env::var("PATH").expect("a path"));
    let environment = [
        ("JAVA_HOME", home),
        ("PATH", path.as_str()),
        ("XDG_CACHE_HOME", home),
    ];
    let output = subject("cassandra::subject_shared", &environment);
    assert!(output.status.success(), "{output:?}");
    let line = terminal(&output);
    assert!(
        line.contains("skipped: ") && line.contains("mvn did not download Cassandra"),
        "{output:?}"
    );
    assert!(line.contains("no registry answers"), "{output:?}");
}

#[test]
fn a_given_node_is_used_and_must_answer() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.set_nonblocking(true).expect("a setting of the socket");
    let address = listener.local_addr().expect("an address").to_string();
    let given = [
        ("TIDELINE_CASSANDRA", address.as_str()),
        ("JAVA_HOME", "/nowhere"),
    ];
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            let accepted = wait::until(Duration::from_secs(60), || listener.accept().ok());
            let (mut stream, _) = accepted.expect("the subject connects");
            let mut request = [0; 9];
            stream
                .read_exact(&mut request)
                .expect("a request for the options");
            stream
                .write_all(&[0x84, 0, 0, 0, 6, 0, 0, 0, 2, 0, 0])
                .expect("an answer");
        });
        subject("cassandra::subject_shared", &given)
    });
    assert!(
        shown(&output).contains(&format!("address {address}")),
        "{output:?}"
    );

    drop(listener);
    let output = subject("cassandra::subject_shared", &given);
    assert!(!output.status.success());
    assert!(
        shown(&output).contains(&format!(
            "TIDELINE_CASSANDRA={address}: no node of Cassandra answers"
        )),
        "{output:?}"
    );
}
