//! Nodes of Apache Cassandra for tests. `tests/cassandra/node` downloads Cassandra once and starts it on an address of
//! the loopback.
//!
//! [`shared_node`] is the node of a test binary, for tests that only need a cluster. A [`CassandraNode`] belongs to one
//! test, which can kill, pause and restart it. A node takes 1.2 GiB of memory when idle and 2 GiB under load; its start
//! takes 5 s on idle cores, up to 25 s on busy cores, and up to 40 s after a kill. Each node has its own address, so
//! test binaries can run at the same time. The data is stored in the folder for temporary files. Clients decide whether
//! their connections to a node are encrypted.
//!
//! A node ends when its handle is dropped. It also ends within a second of the end of the process that started it, even
//! if that process was killed. The data of the node is then removed.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::{not_run, skip, wait, workspace};

/// Value of [`SHARED_VARIABLE`] on a machine without Cassandra. Tests that need a node then report that they are not
/// run, even in CI.
const NO_NODE: &str = "none";
/// Variable with the contact point of a running node, `host:port`, that [`shared_node`] returns.
const SHARED_VARIABLE: &str = "TIDELINE_CASSANDRA";
/// Variable with the file (PEM) of the certificate of the node in [`SHARED_VARIABLE`].
const CERTIFICATE_VARIABLE: &str = "TIDELINE_CASSANDRA_CERTIFICATE";
/// Longest start. A start that replays the commit log on busy cores takes 40 s.
const START_MAX: Duration = Duration::from_secs(240);
/// Longest time to connect to a node, and to wait for its answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Port for clients.
const CQL_PORT: u16 = 9042;
/// Port for other nodes.
const STORAGE_PORT: u16 = 7000;
/// Number of addresses of one process.
const ADDRESSES: u32 = 254;
/// Lines of each log in the message of a failed start.
const LOG_LINES: usize = 20;
/// Frame of the native protocol, version 4, that requests the options of the server: flags, stream and length are 0.
const OPTIONS: [u8; 9] = [4, 0, 0, 0, 5, 0, 0, 0, 0];
/// First bytes of the answer to [`OPTIONS`]: version, flags, stream, and `SUPPORTED`.
const SUPPORTED: [u8; 5] = [0x84, 0, 0, 0, 6];

/// Settings of a node. All others are those of `tests/cassandra/cassandra.yaml.in`, where limits have Cassandra's
/// defaults.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    /// Heap of the JVM in MiB. The process takes up to 1.3 GiB more.
    pub heap_mib: u32,
    /// Durability of an acknowledged write.
    pub commit_log: CommitLog,
    /// True if the node demands a user; `cassandra` with the password `cassandra` may do everything.
    pub has_users: bool,
    /// Running node whose cluster the new node joins, which takes about 10 s longer. `None` starts a new cluster.
    pub seed: Option<Ipv4Addr>,
    /// Address that the node announces to clients in place of its own, for a relay that listens there. `None`: the
    /// address of the node.
    pub announced: Option<Ipv4Addr>,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            heap_mib: 768,
            commit_log: CommitLog::Periodic,
            has_users: false,
            seed: None,
            announced: None,
        }
    }
}

/// Time at which a node writes its commit log to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitLog {
    /// Every 10 s, the default of Cassandra. A kill of the process can lose the acknowledged writes of the last 0.1 s,
    /// because a restart reads the log up to its last marker; a power cut can lose the acknowledged writes of the last
    /// 10 s.
    Periodic,
    /// Before each answer; writes that arrive within 10 ms share an fsync.
    Group,
}

/// Running node that this process has started; dropping it kills the JVM and removes the data.
#[derive(Debug)]
pub struct CassandraNode {
    settings: NodeSettings,
    ip: Ipv4Addr,
    address: String,
    home: PathBuf,
    jvm: Child,
}

/// Reason why there is no node.
#[derive(Debug)]
enum Failure {
    /// Nodes are switched off for this run.
    Unwanted,
    /// A prerequisite is missing on this machine.
    Missing(String),
    /// The node cannot be used.
    Broken(String),
}

impl Failure {
    /// Returns `None` after a report for a missing prerequisite; panics in all other cases.
    #[track_caller]
    fn report<T>(&self) -> Option<T> {
        match self {
            Self::Unwanted => not_run(&format!("{SHARED_VARIABLE}={NO_NODE}")),
            Self::Missing(reason) => skip(reason),
            Self::Broken(reason) => panic!("{reason}"),
        }
        None
    }
}

/// Returns the contact point, `host:port`, of a node that all tests of this binary share. The first call starts it,
/// with default settings; it ends with the process. If `TIDELINE_CASSANDRA` names another node, returns that node and
/// starts nothing. Returns `None` after [`skip`] if JDK 17 or Maven is missing, or Cassandra cannot be downloaded.
///
/// Tests separate their data, for example by a keyspace for each test.
///
/// # Panics
///
/// Panics if the node does not start, or if the node in `TIDELINE_CASSANDRA` does not answer; panics under `CI=true`
/// instead of returning `None`. Later calls fail in the same way, without a new attempt.
#[track_caller]
pub fn shared_node() -> Option<&'static str> {
    SharedNode::get().map(SharedNode::address)
}

/// Returns the contact point of [`shared_node`], and the file (PEM) with the certificate of the node, for encrypted
/// connections. Also returns `None`, after [`skip`], if `TIDELINE_CASSANDRA` names a node and
/// `TIDELINE_CASSANDRA_CERTIFICATE` is not set.
///
/// # Panics
///
/// Panics as [`shared_node`] does.
#[track_caller]
pub fn shared_node_with_certificate() -> Option<(&'static str, PathBuf)> {
    let node = SharedNode::get()?;
    let certificate = match node {
        SharedNode::Started(node) => Some(node.certificate()),
        SharedNode::Given(_) => std::env::var_os(CERTIFICATE_VARIABLE).map(PathBuf::from),
    };
    if certificate.is_none() {
        skip(&format!(
            "{SHARED_VARIABLE} is set without {CERTIFICATE_VARIABLE}"
        ));
    }
    Some((node.address(), certificate?))
}

/// Returns true if no test may use a node.
pub fn is_unwanted() -> bool {
    std::env::var(SHARED_VARIABLE).as_deref() == Ok(NO_NODE)
}

/// Node of [`shared_node`].
enum SharedNode {
    Started(CassandraNode),
    Given(String),
}

impl SharedNode {
    /// Returns the node, which the first call finds or starts. Returns `None` after a report if there is no node.
    #[track_caller]
    fn get() -> Option<&'static Self> {
        static SHARED: OnceLock<Result<SharedNode, Failure>> = OnceLock::new();
        match SHARED.get_or_init(Self::find) {
            Ok(node) => Some(node),
            Err(failure) => failure.report(),
        }
    }

    fn address(&self) -> &str {
        match self {
            Self::Started(node) => node.address(),
            Self::Given(address) => address,
        }
    }

    fn find() -> Result<Self, Failure> {
        let Ok(address) = std::env::var(SHARED_VARIABLE) else {
            return CassandraNode::create(&NodeSettings::default()).map(Self::Started);
        };
        if is_unwanted() {
            return Err(Failure::Unwanted);
        }
        match answers(&address) {
            true => Ok(Self::Given(address)),
            false => Err(Failure::Broken(format!(
                "{SHARED_VARIABLE}={address}: no node of Cassandra answers there within {ANSWER_MAX:?}; set it to \
                 host:port of a running node, or unset it to start one"
            ))),
        }
    }
}

impl CassandraNode {
    /// Starts a node and waits until it answers clients. Returns `None` after [`skip`] if JDK 17 or Maven is missing, or
    /// Cassandra cannot be downloaded.
    ///
    /// # Panics
    ///
    /// Panics with the last lines of its logs if the node ends or does not answer within 240 s; panics under `CI=true`
    /// instead of returning `None`.
    #[track_caller]
    pub fn start(settings: &NodeSettings) -> Option<Self> {
        Self::create(settings).map_or_else(|failure| failure.report(), Some)
    }

    /// Returns the contact point for clients, `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Returns the address of the node, for the settings of a node that joins its cluster.
    pub fn ip(&self) -> Ipv4Addr {
        self.ip
    }

    /// Returns the file (PEM) with the certificate of the node, which names its address.
    pub fn certificate(&self) -> PathBuf {
        self.home.join("node.pem")
    }

    /// Returns true if the node answers a request for its options within 2 s.
    pub fn answers(&self) -> bool {
        answers(&self.address)
    }

    /// Ends the node by SIGKILL and waits for its end. Its data is kept for [`restart`](Self::restart).
    ///
    /// # Panics
    ///
    /// Panics if the process cannot be signalled.
    pub fn kill(&mut self) {
        self.jvm.kill().expect("the JVM is a child of this process");
        self.jvm.wait().expect("the JVM is a child of this process");
    }

    /// Stops the process by SIGSTOP: connections stay open, and nothing is answered.
    ///
    /// # Panics
    ///
    /// Panics if the node has ended.
    pub fn pause(&mut self) {
        self.signal("STOP");
    }

    /// Continues a paused process by SIGCONT.
    ///
    /// # Panics
    ///
    /// Panics if the node has ended.
    pub fn resume(&mut self) {
        self.signal("CONT");
    }

    /// Kills the node if it runs, starts it again with its data and address, and waits until it answers clients.
    ///
    /// # Panics
    ///
    /// Panics as [`start`](Self::start) does.
    pub fn restart(&mut self) {
        self.kill();
        let started = self.launch().and_then(|jvm| {
            self.jvm = jvm;
            self.await_answer()
        });
        started.unwrap_or_else(|reason| panic!("{reason}"));
    }

    /// Restarts the node like [`restart`](Self::restart), with another durability of acknowledged writes.
    ///
    /// # Panics
    ///
    /// Panics as [`start`](Self::start) does.
    pub fn restart_with(&mut self, commit_log: CommitLog) {
        self.settings.commit_log = commit_log;
        self.restart();
    }

    fn create(settings: &NodeSettings) -> Result<Self, Failure> {
        if is_unwanted() {
            return Err(Failure::Unwanted);
        }
        prepare().map_err(Failure::Missing)?;
        Self::boot(settings).map_err(Failure::Broken)
    }

    fn boot(settings: &NodeSettings) -> Result<Self, String> {
        let (ip, home) = reserve()?;
        let jvm = launch(settings, ip, &home).inspect_err(|_| drop(fs::remove_dir_all(&home)))?;
        let mut node = Self {
            settings: settings.clone(),
            ip,
            address: format!("{ip}:{CQL_PORT}"),
            home,
            jvm,
        };
        node.await_answer()?;
        Ok(node)
    }

    fn launch(&self) -> Result<Child, String> {
        launch(&self.settings, self.ip, &self.home)
    }

    /// Waits until the node answers; returns an error with the end of the logs if it does not.
    fn await_answer(&mut self) -> Result<(), String> {
        let state = wait::until(START_MAX, || match self.jvm.try_wait() {
            Ok(None) => answers(&self.address).then_some(Ok(())),
            Ok(Some(status)) => Some(Err(format!("ended ({status})"))),
            Err(error) => Some(Err(format!("cannot be observed: {error}"))),
        });
        let problem = match state {
            Some(Ok(())) => return Ok(()),
            Some(Err(problem)) => problem,
            None => format!("does not answer after {START_MAX:?}"),
        };
        let logs: String = ["console.log", "system.log"]
            .map(|name| last_lines(&self.home.join(name)))
            .concat();
        Err(format!(
            "node of Cassandra at {} {problem}:\n{logs}",
            self.address
        ))
    }

    fn signal(&mut self, signal: &str) {
        // The id belongs to the JVM until its end has been awaited.
        let ended = self.jvm.try_wait().expect("the JVM is a child of this process");
        assert!(
            ended.is_none(),
            "node of Cassandra at {} has ended: {ended:?}",
            self.address
        );
        let id = self.jvm.id().to_string();
        let status = Command::new("kill").args(["-s", signal, &id]).status();
        assert!(
            status.as_ref().is_ok_and(|status| status.success()),
            "kill -s {signal} {id}: {status:?}"
        );
    }
}

impl Drop for CassandraNode {
    fn drop(&mut self) {
        // If the process ends first, the script does the same.
        let _ = self.jvm.kill();
        let _ = self.jvm.wait();
        let _ = fs::remove_dir_all(&self.home);
    }
}

fn script() -> PathBuf {
    workspace().join("tests/cassandra/node")
}

/// Checks the prerequisites and downloads Cassandra if necessary; returns an error that names a missing prerequisite.
fn prepare() -> Result<(), String> {
    let script = script();
    let output = Command::new(&script).arg("prepare").output();
    let output = output.map_err(|error| format!("{} does not start: {error}", script.display()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// Returns an address whose ports are free, and its new folder. The folder reserves the address: the name is the same for
/// all processes. Processes start their search at different addresses.
fn reserve() -> Result<(Ipv4Addr, PathBuf), String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let process = std::process::id();
    for _ in 0..ADDRESSES {
        let number = NEXT.fetch_add(1, Ordering::Relaxed) % ADDRESSES + 1;
        // Addresses that begin with 127.0 are reserved for programs that are configured by hand.
        let [_, _, high, low] = process.to_be_bytes();
        let ip = Ipv4Addr::new(127, high % 128 + 1, low, number as u8);
        let home = std::env::temp_dir().join(format!("tideline-cassandra-{ip}"));
        match fs::create_dir(&home) {
            Ok(()) if is_free(ip) => return Ok((ip, home)),
            Ok(()) => drop(fs::remove_dir(&home)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(format!("{} cannot be created: {error}", home.display())),
        }
    }
    Err(format!(
        "all {ADDRESSES} addresses of process {process} are in use; remove old folders tideline-cassandra-127.* from {}",
        std::env::temp_dir().display()
    ))
}

/// Returns true if both ports of an address can be bound.
fn is_free(ip: Ipv4Addr) -> bool {
    [CQL_PORT, STORAGE_PORT]
        .iter()
        .all(|port| TcpListener::bind((ip, *port)).is_ok())
}

/// Starts the script, which becomes the JVM.
fn launch(settings: &NodeSettings, ip: Ipv4Addr, home: &Path) -> Result<Child, String> {
    let console = home.join("console.log");
    let mut command = Command::new(script());
    command
        .args(["run", "--address", &ip.to_string()])
        .arg("--home")
        .arg(home)
        .args(["--parent", &std::process::id().to_string()])
        .args(["--heap-mib", &settings.heap_mib.to_string()])
        .args(["--commitlog", settings.commit_log.name()]);
    if settings.has_users {
        command.args(["--login", "password"]);
    }
    if let Some(seed) = settings.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    if let Some(announced) = settings.announced {
        command.args(["--announced", &announced.to_string()]);
    }
    // The script runs in a separate process group: signals of a terminal for the test do not reach the script, which
    // then cleans up.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    File::create(&console)
        .and_then(|file| Ok((file.try_clone()?, file)))
        .and_then(|(out, err)| command.stdin(Stdio::null()).stdout(out).stderr(err).spawn())
        .map_err(|error| format!("{} does not start: {error}", script().display()))
}

/// Returns true if a node at `host:port` answers [`OPTIONS`].
fn answers(address: &str) -> bool {
    let exchange = || -> std::io::Result<bool> {
        let Some(address) = address.to_socket_addrs()?.next() else {
            return Ok(false);
        };
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.write_all(&OPTIONS)?;
        let mut answer = [0; SUPPORTED.len()];
        stream.read_exact(&mut answer)?;
        Ok(answer == SUPPORTED)
    };
    exchange().unwrap_or(false)
}

/// Returns the last lines of a file with its name; empty if it cannot be read.
fn last_lines(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.len().saturating_sub(LOG_LINES);
    format!("{}:\n{}\n", path.display(), lines[first..].join("\n"))
}

impl CommitLog {
    /// Returns the value of the argument `--commitlog`.
    fn name(self) -> &'static str {
        match self {
            Self::Periodic => "periodic",
            Self::Group => "group",
        }
    }
}
