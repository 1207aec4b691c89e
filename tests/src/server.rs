//! Starts and stops the binary `tideline` as an operator does, on a separate data folder and a free loopback port.
//!
//! A server that a test leaves running is killed when its handle is dropped. Only processes that the handle
//! started are signalled.
//!
//! A folder of [`DataFolder::of_suite`] or [`DataFolder::in_cluster`] can stand for a keyspace of a cluster: its servers store
//! their data there, and are ready once they own the data.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::archive;
use crate::client::{Client, Response};
use crate::cluster::{self, Keyspace};
use crate::program::free_address;
use crate::{not_run, wait};

/// Time limit for a start on a busy machine in the dev profile. The product guarantees no start time; the
/// benchmark measures it.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// Documented time limit of a drain.
pub const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// Limits of free space for tests. A build can take most of the disk. With the default limit of 5 %, a server would
/// then delete kept changes, and finally refuse writes.
pub const FREE_SPACE: [(&str, &str); 2] = [
    ("TIDELINE__STORAGE__FREE_BYTES_MIN", "64MiB"),
    ("TIDELINE__STORAGE__FREE_PER_MILLE_MIN", "0"),
];

/// Running server; dropping it kills the process.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// True if the child is a tracer and the server is a child of the tracer.
    is_traced: bool,
    /// True if the data is in a cluster, so that the server is ready only as its owner.
    is_in_cluster: bool,
    log: Arc<Log>,
}

/// Data folder that outlives the servers started on it. Dropping it removes the folder, except after
/// [`DataFolder::within`].
#[derive(Debug)]
pub struct DataFolder {
    folder: PathBuf,
    /// Keyspace with the data; `None` if the folder has the data.
    keyspace: Option<Keyspace>,
    /// Removes the folder on drop; `None` for a folder that is kept.
    _owned: Option<TempDir>,
}

/// Options of a start, except the data folder.
#[derive(Debug, Clone, Default)]
pub struct Launch {
    /// Listen address; `None` selects a free port.
    listen: Option<SocketAddr>,
    /// Program with arguments that starts the server; empty for a direct start.
    tracer: Vec<String>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// File for standard error, to which the server logs; `None` pipes it to the test.
    log_file: Option<PathBuf>,
}

/// End of a server.
#[derive(Debug)]
pub struct Ended {
    /// Exit status.
    pub status: ExitStatus,
    /// Time from SIGTERM, or from the call of [`Server::ended_within`], to the end.
    pub took: Duration,
    /// Log. [`Server::ended_within`] returns the complete log, [`Server::terminate`] the lines that were read so far.
    pub log: String,
}

/// Log of a server, line by line, with a wake-up for waiting readers.
#[derive(Debug, Default)]
struct Log {
    lines: Mutex<Vec<String>>,
    said: Condvar,
    /// Number of outputs that are still open.
    open: AtomicUsize,
}

impl Launch {
    /// Sets the listen address, so that a restarted server keeps its address.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(address);
        self
    }

    /// Starts the server through a tracer such as strace; the first item is the program, followed by its
    /// options. The tracer must end with the server.
    pub fn traced_by(mut self, tracer: &[String]) -> Self {
        self.tracer = tracer.to_vec();
        self
    }

    /// Sends the log to this file instead of the test.
    pub fn log_file(mut self, path: &Path) -> Self {
        self.log_file = Some(path.to_owned());
        self
    }

    /// Adds command-line arguments.
    pub fn arguments<const N: usize>(mut self, arguments: [&str; N]) -> Self {
        self.arguments.extend(arguments.map(str::to_owned));
        self
    }

    /// Adds an environment variable.
    pub fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl DataFolder {
    /// Creates an empty folder.
    ///
    /// # Panics
    ///
    /// Panics if the temporary folder cannot be written.
    pub fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("tideline-test-")
            .tempdir()
            .expect("the temporary folder can be written");
        Self {
            folder: folder.path().to_owned(),
            keyspace: None,
            _owned: Some(folder),
        }
    }

    /// Uses a folder that is kept when the value is dropped.
    pub fn within(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            keyspace: None,
            _owned: None,
        }
    }

    /// Creates an empty folder, or with `TIDELINE_SUITE_BACKEND=cassandra` an empty keyspace and a folder for the search
    /// index.
    ///
    /// # Panics
    ///
    /// Panics if the temporary folder cannot be written, or the keyspace cannot be created.
    pub fn of_suite() -> Self {
        match cluster::is_selected() {
            true => Self::in_cluster().expect("TIDELINE_SUITE_BACKEND=cassandra needs a node of Cassandra"),
            false => Self::new(),
        }
    }

    /// Creates an empty keyspace on the shared node of Cassandra, and a folder for the search index. Returns `None` after a
    /// report if there is no node.
    ///
    /// # Panics
    ///
    /// Panics if the temporary folder cannot be written, or the keyspace cannot be created.
    pub fn in_cluster() -> Option<Self> {
        let keyspace = Some(Keyspace::create()?);
        Some(Self {
            keyspace,
            ..Self::new()
        })
    }

    /// Returns true if the folder has the data. Otherwise reports that a check of the folder is not run, because the data is
    /// in a cluster.
    pub fn has_data(&self) -> bool {
        if self.keyspace.is_some() {
            not_run("a check of the data folder: the data is in a cluster");
        }
        self.keyspace.is_none()
    }

    /// Stores a packed data folder: in this folder, or as a copy in the keyspace. Call this before the first start.
    ///
    /// # Panics
    ///
    /// Panics if the pack is damaged, the folder cannot be written, or the copy fails.
    pub fn fill(&self, packed: &[u8]) {
        let unpack = |folder: &Path| archive::unpack(packed, folder).expect("the pack is sound");
        match &self.keyspace {
            None => unpack(&self.path()),
            Some(keyspace) => {
                let source = self.beside("source");
                unpack(&source);
                keyspace.fill(&source);
            }
        }
    }

    /// Returns the path for `--data-dir`; neither constructor creates it.
    pub fn path(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Returns a path next to the data folder, for files of a test.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Starts a server on the folder and waits until it is ready.
    ///
    /// # Panics
    ///
    /// Panics if the server cannot be started or does not become ready; the message contains its log.
    pub fn start(&self, launch: &Launch) -> Server {
        let server = self.spawn(launch);
        server.wait_ready();
        server
    }

    /// Starts a server on the folder without waiting.
    ///
    /// # Panics
    ///
    /// Panics if the binary cannot be started, or the log file does not exist or cannot be written.
    pub fn spawn(&self, launch: &Launch) -> Server {
        let mut command = match launch.tracer.split_first() {
            Some((tracer, arguments)) => {
                let mut command = Command::new(tracer);
                command.args(arguments).arg(binary());
                command
            }
            None => Command::new(binary()),
        };
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TIDELINE_") {
                command.env_remove(name);
            }
        }
        let listen = launch.listen.unwrap_or_else(|| match &self.keyspace {
            None => SocketAddr::from(([127, 0, 0, 1], 0)),
            // A server that loses the data starts itself again, with the same arguments.
            Some(_) => free_address(),
        });
        let listen = listen.to_string();
        let log = launch.log_file.as_ref().map_or_else(Stdio::piped, |path| {
            let file = OpenOptions::new().append(true).open(path);
            file.expect("the log file can be written").into()
        });
        command
            .arg("serve")
            .args(["--listen", &listen, "--data-dir"])
            .arg(self.path());
        if let Some(keyspace) = &self.keyspace {
            command.args(["--backend", "cassandra"]);
            // The node can be on another machine.
            command.env("TIDELINE__CASSANDRA__ADVERTISE", &listen);
            keyspace.select(&mut command);
        }
        let child = command
            .args(&launch.arguments)
            .envs(FREE_SPACE)
            .envs(launch.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the binary starts");
        Server::watch(child, !launch.tracer.is_empty(), self.keyspace.is_some())
    }
}

impl Default for DataFolder {
    fn default() -> Self {
        Self::new()
    }
}

impl Server {
    fn watch(mut child: Child, is_traced: bool, is_in_cluster: bool) -> Self {
        let log = Arc::new(Log::default());
        if let Some(stdout) = child.stdout.take() {
            Log::follow(&log, stdout);
        }
        if let Some(stderr) = child.stderr.take() {
            Log::follow(&log, stderr);
        }
        Self {
            child,
            is_traced,
            is_in_cluster,
            log,
        }
    }

    /// Returns the listen address from the log; `None` if it is not logged within `patience`.
    pub fn address_within(&self, patience: Duration) -> Option<SocketAddr> {
        self.log.find_within(patience, address_in)
    }

    /// Returns a client of the server.
    ///
    /// # Panics
    ///
    /// Panics if the log contains no address in time; the message contains the log.
    pub fn client(&self) -> Client {
        let address = self.address_within(START_PATIENCE);
        Client::new(address.unwrap_or_else(|| panic!("no address in the log:\n{}", self.log())))
    }

    /// Waits until `/ready` returns 200, and in a cluster until the server owns the data.
    ///
    /// # Panics
    ///
    /// Panics if the server does not become ready in time; the message contains its log.
    pub fn wait_ready(&self) {
        let client = self.client();
        let ready = wait::until(START_PATIENCE, || {
            let response = client.send("GET", "/ready", &[], b"").ok()?;
            self.is_ready(&response).then_some(())
        });
        assert!(ready.is_some(), "not ready; the log:\n{}", self.log());
    }

    /// Returns true if a response of `/ready` shows that the server serves its data. A standby forwards requests, and is
    /// ready too.
    fn is_ready(&self, response: &Response) -> bool {
        response.status == 200 && (!self.is_in_cluster || response.json()["role"] == "owner")
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Sends SIGKILL and waits for the end.
    ///
    /// # Panics
    ///
    /// Panics if the server has already ended; a premature end fails the test.
    pub fn kill(mut self) {
        let ended = self.child.try_wait().expect("the server is our child");
        assert!(ended.is_none(), "ended prematurely: {ended:?}\n{}", self.log());
        self.kill_now();
    }

    /// Waits until the server is ready or has ended; returns the server if it is ready, else `None`.
    ///
    /// # Panics
    ///
    /// Panics if neither happens in time; the message contains the log.
    pub fn wait_ready_or_gone(mut self) -> Option<Self> {
        let mut client = None;
        let is_ready = wait::until(START_PATIENCE, || {
            if self.child.try_wait().expect("the server is our child").is_some() {
                return Some(false);
            }
            client = client
                .take()
                .or_else(|| self.address_within(Duration::ZERO).map(Client::new));
            let response = client.as_ref()?.send("GET", "/ready", &[], b"").ok()?;
            self.is_ready(&response).then_some(true)
        });
        let is_ready = is_ready.unwrap_or_else(|| panic!("neither ready nor gone; the log:\n{}", self.log()));
        is_ready.then_some(self)
    }

    /// Sends a signal.
    ///
    /// # Panics
    ///
    /// Panics if the server has ended.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the server is our child");
    }

    fn kill_now(&mut self) {
        // Either call fails only if the process has already ended. Killing the tracer would leave the server
        // running.
        if self.is_traced {
            let _ = kill_process(self.pid(), Signal::KILL);
        } else {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }

    /// Returns the exit status if the server has ended.
    ///
    /// # Panics
    ///
    /// Never, because the server is a child of this process.
    pub fn gone(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("the server is our child")
    }

    /// Waits until the server has ended; returns its exit status.
    ///
    /// # Errors
    ///
    /// Returns the server if it is still running after `patience`.
    pub fn wait_gone(mut self, patience: Duration) -> Result<ExitStatus, Self> {
        let gone = wait::until(patience, || {
            self.child.try_wait().expect("the server is our child")
        });
        gone.ok_or(self)
    }

    /// Waits until a signal has ended the server.
    ///
    /// # Panics
    ///
    /// Panics with `context` if the server is still running after a minute, or has ended without a signal.
    pub fn expect_killed(self, context: &str) {
        let gone = self.wait_gone(Duration::from_secs(60));
        assert!(
            gone.is_ok_and(|status| status.code().is_none()),
            "{context}: it was killed"
        );
    }

    /// Waits like [`wait_gone`](Self::wait_gone), and also returns the complete log.
    ///
    /// # Errors
    ///
    /// Returns the server if it is still running after `patience`.
    pub fn ended_within(mut self, patience: Duration) -> Result<Ended, Self> {
        let requested = Instant::now();
        let gone = wait::until(patience, || {
            self.child.try_wait().expect("the server is our child")
        });
        let Some(status) = gone else {
            return Err(self);
        };
        let took = requested.elapsed();
        let log = self.log.whole();
        Ok(Ended { status, took, log })
    }

    /// Sends SIGTERM and waits for the end, at most three times [`DRAIN_LIMIT`], so that the caller can report by how
    /// much a slow server exceeds the limit.
    ///
    /// # Panics
    ///
    /// Panics if the server does not end in that time.
    pub fn terminate(mut self) -> Ended {
        let requested = Instant::now();
        kill_process(self.pid(), Signal::TERM).expect("the server is our child");
        let status = wait::until(3 * DRAIN_LIMIT, || {
            self.child.try_wait().expect("the server is our child")
        });
        let took = requested.elapsed();
        let log = self.log();
        let Some(status) = status else {
            panic!("still running {took:?} after SIGTERM; the log:\n{log}");
        };
        Ended { status, took, log }
    }

    /// Returns the current resident memory of the child in bytes; with a tracer, the memory of the tracer.
    pub fn resident_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// Returns the peak resident memory of the child in bytes; with a tracer, the memory of the tracer.
    pub fn resident_bytes_peak(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    fn status_bytes(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("the server runs");
        let kib = status
            .lines()
            .find_map(|line| {
                line.strip_prefix(name)?
                    .trim()
                    .strip_suffix(" kB")?
                    .trim()
                    .parse::<u64>()
                    .ok()
            })
            .unwrap_or_else(|| panic!("no {name} in {status}"));
        kib << 10
    }

    /// Returns the process id of the child; of a traced server, this is the id of the tracer.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    fn pid(&self) -> Pid {
        let id = self.child.id();
        let traced = || {
            let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?;
            children.split_whitespace().next()?.parse().ok()
        };
        let traced = self.is_traced.then(traced).flatten();
        let id = traced.unwrap_or_else(|| i32::try_from(id).expect("process ids fit"));
        Pid::from_raw(id).expect("a child's id is not 0")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill_now();
        if thread::panicking() {
            let text = self.log.text();
            let tail: Vec<&str> = text.lines().rev().take(20).collect();
            for line in tail.iter().rev() {
                println!("server: {line}");
            }
        }
    }
}

impl Log {
    /// Reads one output of a child to its end, on a separate thread.
    fn follow(log: &Arc<Self>, output: impl Read + Send + 'static) {
        let log = Arc::clone(log);
        log.open.fetch_add(1, Ordering::SeqCst);
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                log.lines
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(line);
                log.said.notify_all();
            }
            let _all_is_said = log.lines.lock().unwrap_or_else(PoisonError::into_inner);
            log.open.fetch_sub(1, Ordering::SeqCst);
            log.said.notify_all();
        });
    }

    fn find_within<T>(&self, patience: Duration, find: impl Fn(&str) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + patience;
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let mut read = 0;
        loop {
            let found = lines[read..].iter().find_map(|line| find(line));
            if found.is_some() {
                return found;
            }
            read = lines.len();
            let left = deadline.checked_duration_since(Instant::now())?;
            lines = self
                .said
                .wait_timeout(lines, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Waits until all outputs are closed and returns the complete log.
    fn whole(&self) -> String {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        while self.open.load(Ordering::SeqCst) > 0 {
            lines = self.said.wait(lines).unwrap_or_else(PoisonError::into_inner);
        }
        lines.join("\n")
    }

    fn text(&self) -> String {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .join("\n")
    }
}

/// Returns the path of the binary that this workspace builds, in the profile of this test; `TIDELINE_BINARY`
/// overrides it.
///
/// # Panics
///
/// Panics if the built binary is missing; the panic contains the build command. A path in `TIDELINE_BINARY` is not
/// checked.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("TIDELINE_BINARY") {
        return PathBuf::from(path);
    }
    let test = std::env::current_exe().expect("a test has a path");
    // The test is `target/<profile>/deps/suite-…`; the binary is `target/<profile>/tideline`.
    let profile = test.ancestors().nth(2).unwrap_or(Path::new("."));
    let path = profile.join("tideline");
    assert!(
        path.is_file(),
        "{} is missing: run `cargo build -p tideline-server` in the profile of this test first",
        path.display()
    );
    path
}

/// Returns the address `127.0.0.1:PORT` in a line of the log; `None` if it is missing or the port is 0.
fn address_in(line: &str) -> Option<SocketAddr> {
    let at = line.find("127.0.0.1:")?;
    let text: String = line[at..]
        .chars()
        .take_while(|c| c.is_ascii_digit() || matches!(c, '.' | ':'))
        .collect();
    let address: SocketAddr = text.trim_end_matches([':', '.']).parse().ok()?;
    (address.port() != 0).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_the_output_of_a_server() {
        let found = |line| address_in(line).map(|address| address.port());
        assert_eq!(found("listening on http://127.0.0.1:8490/docs"), Some(8490));
        assert_eq!(found("{\"addr\":\"127.0.0.1:41\"}"), Some(41));
        assert_eq!(found("listen = 127.0.0.1:0"), None);
        assert_eq!(found("ready"), None);
    }
}
