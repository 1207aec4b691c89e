//! The server under test: the real binary in a separate process, with default settings unless a benchmark sets others.
//!
//! All waits poll the process and have a limit, so that a hung server ends the run with an error.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::control::Control;
use crate::error::{BenchError, Result};
use crate::http::Connection;
use crate::interrupt;
use crate::process::{cpu_time, forget_peak, peak_resident_bytes, resident_bytes, written_bytes};
use crate::wait::pause;

/// Running server. Dropping the value kills the process, so that no process remains after an error.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
    started: Instant,
}

/// Maximum duration of a start: far above the goal, so that a slow start is measured instead of failing.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// Polling interval of a starting server; bounds the error of the measured start time.
const READY_POLL: Duration = Duration::from_millis(1);
/// Maximum time until the server is idle after a seal.
const QUIET_LIMIT: Duration = Duration::from_secs(120);
/// Span in which an idle server uses at most [`QUIET_CPU`].
const QUIET_SPAN: Duration = Duration::from_secs(2);
/// CPU time that an idle server may use per [`QUIET_SPAN`], for timers and for responses to polls.
const QUIET_CPU: Duration = Duration::from_millis(20);
/// Maximum duration of background work.
const DRAIN_LIMIT: Duration = Duration::from_secs(3_600);
/// Background work is complete after more than this number of consecutive polls that find no work. The server plans
/// work every 5 s, so the polls must take longer than 5 s.
const IDLE_LOOKS: usize = 6;
const IDLE_POLL: Duration = Duration::from_secs(1);
/// Maximum time until the server ends after SIGTERM; the documented limit is 5 s.
const STOP_LIMIT: Duration = Duration::from_secs(30);
/// Maximum number of bytes of the log that an error quotes.
const LOG_TAIL_BYTES: usize = 2_000;

impl Server {
    /// Returns the path of the log of a server on this folder.
    pub(crate) fn log(data: &Path) -> PathBuf {
        data.with_extension("log")
    }

    /// Starts the binary on a folder and returns immediately; call [`wait_ready`](Self::wait_ready) next.
    pub(crate) fn spawn(binary: &Path, data: &Path) -> Result<Self> {
        Self::spawn_with(binary, data, &[])
    }

    /// Starts the binary as [`spawn`](Self::spawn) does, with settings as environment variables.
    fn spawn_with(binary: &Path, data: &Path, settings: &[(&str, &str)]) -> Result<Self> {
        let log = Self::log(data);
        let file = |source| BenchError::File {
            path: log.clone(),
            source,
        };
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(file)?;
        let errors = output.try_clone().map_err(file)?;
        let address = free_address()?;
        let started = Instant::now();
        let child = Command::new(binary)
            .arg("serve")
            .arg("--data-dir")
            .arg(data)
            .arg("--listen")
            .arg(address.to_string())
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(|source| BenchError::Start {
                path: binary.to_owned(),
                source,
            })?;
        interrupt::guard(child.id());
        Ok(Self {
            child,
            address,
            log,
            started,
        })
    }

    /// Starts the binary and waits until it is ready.
    pub(crate) fn start(binary: &Path, data: &Path) -> Result<Self> {
        Self::start_with(binary, data, &[])
    }

    /// Starts the binary as [`start`](Self::start) does, with settings as environment variables.
    pub(crate) fn start_with(binary: &Path, data: &Path, settings: &[(&str, &str)]) -> Result<Self> {
        let mut server = Self::spawn_with(binary, data, settings)?;
        server.wait_ready()?;
        Ok(server)
    }

    /// Waits until `/ready` returns 200; returns an open connection.
    pub(crate) fn wait_ready(&mut self) -> Result<Connection> {
        while self.started.elapsed() < READY_LIMIT {
            if let Ok(mut connection) = Connection::open(self.address)
                && let Ok(response) = connection.send("GET", "/ready", "text/plain", b"")
                && response.status == 200
            {
                return Ok(connection);
            }
            self.check_alive()?;
            pause(READY_POLL);
        }
        Err(BenchError::Late {
            what: "readiness".into(),
            limit: READY_LIMIT,
        })
    }

    pub(crate) fn connect(&self) -> Result<Connection> {
        Connection::open(self.address).map_err(|source| BenchError::Connection {
            what: "connecting to the server",
            source,
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the time since the process was started.
    pub(crate) fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the CPU time of all threads so far.
    pub(crate) fn cpu_time(&self) -> Result<Duration> {
        cpu_time(self.child.id())
    }

    /// Returns the peak resident memory since the start or the last [`forget_peak`](Self::forget_peak), in
    /// bytes.
    pub(crate) fn peak_resident_bytes(&self) -> Result<u64> {
        peak_resident_bytes(self.child.id())
    }

    /// Returns the current resident memory in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        resident_bytes(self.child.id())
    }

    /// Resets the peak; returns the current resident memory in bytes.
    pub(crate) fn forget_peak(&self) -> Result<u64> {
        forget_peak(self.child.id())?;
        resident_bytes(self.child.id())
    }

    /// Returns the bytes written to storage since the start.
    pub(crate) fn written_bytes(&self) -> Result<u64> {
        written_bytes(self.child.id())
    }

    /// Seals the points in memory and waits until the server is idle.
    pub(crate) fn seal_and_settle(&mut self) -> Result<()> {
        Control::open(self)?.seal()?;
        self.settle()
    }

    /// Waits until no background work is due, and then until the server is idle.
    pub(crate) fn drain(&mut self) -> Result<()> {
        let begun = Instant::now();
        let mut idle = 0;
        while begun.elapsed() < DRAIN_LIMIT {
            self.check_alive()?;
            idle = match Control::open(self)?.is_busy()? {
                true => 0,
                false => idle + 1,
            };
            if idle > IDLE_LOOKS {
                return self.settle();
            }
            pause(IDLE_POLL);
        }
        Err(BenchError::Late {
            what: "the end of all work in the background".into(),
            limit: DRAIN_LIMIT,
        })
    }

    /// Waits until the server is idle: uses at most [`QUIET_CPU`] in [`QUIET_SPAN`]. Merges and clean-up are then
    /// complete.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let begun = Instant::now();
        let mut before = self.cpu_time()?;
        while begun.elapsed() < QUIET_LIMIT {
            pause(QUIET_SPAN);
            self.check_alive()?;
            let now = self.cpu_time()?;
            if now - before <= QUIET_CPU {
                return Ok(());
            }
            before = now;
        }
        Err(BenchError::Late {
            what: "quiet after a seal".into(),
            limit: QUIET_LIMIT,
        })
    }

    /// Kills the process with SIGKILL, like a crash.
    pub(crate) fn kill(mut self) {
        self.end();
    }

    /// Sends SIGTERM and waits for the end; returns the duration.
    pub(crate) fn stop(mut self) -> Result<Duration> {
        let begun = Instant::now();
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // If the process has already ended, the loop below detects it.
            let _ = kill_process(pid, Signal::TERM);
        }
        while begun.elapsed() < STOP_LIMIT {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                interrupt::release(self.child.id());
                return Ok(begun.elapsed());
            }
            pause(Duration::from_millis(5));
        }
        Err(BenchError::Late {
            what: "the end after SIGTERM".into(),
            limit: STOP_LIMIT,
        })
    }

    fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(BenchError::Ended {
                status: status.to_string(),
                log: self.log_tail(),
            }),
            _ => Ok(()),
        }
    }

    fn log_tail(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let tail = &log[log.len().saturating_sub(LOG_TAIL_BYTES)..];
        String::from_utf8_lossy(tail).into_owned()
    }

    fn end(&mut self) {
        // Either call fails only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        interrupt::release(self.child.id());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns a free loopback address.
fn free_address() -> Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(|source| BenchError::Connection {
            what: "finding a free port",
            source,
        })
}
