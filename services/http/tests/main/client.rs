//! A separate server for each test, and a simple HTTP client that returns status, headers and body.
//!
//! The server runs with the in-memory backend and a manual clock, so tests control disk faults and time.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tideline_backend::memory::{Character, MemoryBackend, MemoryDisk};
use tideline_engine::{Engine, Settings, TableLimits};
use tideline_http::HttpSettings;
use tideline_model::{ManualClock, Timestamp};
use tideline_scheduler::{Models, Scheduler};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Time of the server's clock at the start of a test.
pub(crate) const NOW: &str = "2026-11-20T12:00:00Z";
/// Longest time that a test waits for a response.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// Running service.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) disk: Arc<MemoryDisk>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) engine: Arc<Engine>,
    scheduler: Arc<Scheduler>,
    runtime: Runtime,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<JoinHandle<std::io::Result<()>>>,
    _index: TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(HttpSettings::default())
    }

    pub(crate) fn with(settings: HttpSettings) -> Self {
        Self::on(MemoryDisk::new(Character::Embedded), settings)
    }

    /// Starts a service with these limits of tables.
    pub(crate) fn with_tables(tables: TableLimits) -> Self {
        let disk = MemoryDisk::new(Character::Embedded);
        Self::on_tables(disk, HttpSettings::default(), tables)
    }

    pub(crate) fn on(disk: Arc<MemoryDisk>, settings: HttpSettings) -> Self {
        Self::on_tables(disk, settings, TableLimits::default())
    }

    pub(crate) fn on_tables(disk: Arc<MemoryDisk>, settings: HttpSettings, tables: TableLimits) -> Self {
        let index = tempfile::tempdir().expect("a folder for the index");
        let clock = Arc::new(ManualClock::new(Timestamp::parse_rfc3339(NOW).expect("a time")));
        let backend = Arc::new(MemoryBackend::open(&disk));
        let mut engine_settings = Settings {
            tables,
            ..Settings::new(index.path().to_owned())
        };
        // Overwritten values are removed at once, so that tests need not wait.
        engine_settings.rows.surplus_age_min = Duration::ZERO;
        let engine = Engine::open(backend, Arc::clone(&clock) as _, engine_settings);
        let engine = Arc::new(engine.expect("opens"));
        let scheduler = Arc::new(Scheduler::start(
            Arc::clone(&engine) as _,
            Models::of_engine(&engine),
            tideline_scheduler::Settings::default(),
        ));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = runtime
            .block_on(TcpListener::bind("127.0.0.1:0"))
            .expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        let serving = tideline_http::serve(
            listener,
            Arc::clone(&engine),
            Arc::clone(&scheduler),
            settings,
            || {},
            shutdown,
        );
        let serving = runtime.spawn(serving);
        Self {
            address,
            disk,
            clock,
            engine,
            scheduler,
            runtime,
            stop: Some(stop),
            serving: Some(serving),
            _index: index,
        }
    }

    /// Sends the stop signal without waiting.
    pub(crate) fn request_stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Stops the service, waits until it has returned, and stops the scheduler.
    pub(crate) fn wait_stopped(&mut self) {
        self.request_stop();
        if let Some(serving) = self.serving.take() {
            let served = self.runtime.block_on(serving).expect("no panic");
            served.expect("served to its end");
            self.scheduler.stop();
        }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).expect("connects");
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).expect("a timeout");
        stream
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, content_type: &str, body: impl AsRef<[u8]>) -> Response {
        self.send("POST", path, &[("content-type", content_type)], body.as_ref())
    }

    pub(crate) fn json(&self, method: &str, path: &str, body: &str) -> Response {
        self.send(
            method,
            path,
            &[("content-type", "application/json")],
            body.as_bytes(),
        )
    }

    pub(crate) fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let mut stream = self.connect();
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        stream.write_all(head.as_bytes()).expect("head sent");
        stream.write_all(body).expect("body sent");
        Response::read(&mut stream)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.wait_stopped();
        }
    }
}

/// Response with its chunks joined.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// Reads a response up to the end of the connection.
    pub(crate) fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("an answer in time");
        Self::parse(&bytes)
    }

    /// Reads one response with a `Content-Length`, or an interim response without a body, and leaves the connection
    /// open.
    pub(crate) fn read_one(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        let mut next = [0];
        while !bytes.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut next).expect("an answer in time");
            bytes.push(next[0]);
        }
        let mut response = Self::parse(&bytes);
        let length = response.header("content-length").parse().unwrap_or(0);
        response.body.resize(length, 0);
        stream.read_exact(&mut response.body).expect("the whole answer");
        response
    }

    fn parse(bytes: &[u8]) -> Self {
        let end = bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .expect("a complete head");
        let head = std::str::from_utf8(&bytes[..end]).expect("a plain head");
        let mut lines = head.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1))
            .expect("a status line");
        let headers: BTreeMap<String, String> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let mut body = bytes[end + 4..].to_vec();
        if headers
            .get("transfer-encoding")
            .is_some_and(|encoding| encoding == "chunked")
        {
            body = unchunk(&body);
        }
        Self {
            status: status.parse().expect("a number"),
            headers,
            body,
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// Returns the body as JSON, after a check of the status.
    pub(crate) fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text());
        self.value()
    }
}

fn unchunk(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let line = rest
            .windows(2)
            .position(|two| two == b"\r\n")
            .expect("a chunk size");
        let size = std::str::from_utf8(&rest[..line]).expect("a plain size");
        let size = usize::from_str_radix(size, 16).expect("a size");
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&rest[line + 2..line + 2 + size]);
        rest = &rest[line + 2 + size + 2..];
    }
}

/// Compresses `bytes` with gzip.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    writer.write_all(bytes).expect("writes to memory");
    writer.finish().expect("writes to memory")
}

/// Compresses `bytes` with each encoding that is supported for bodies of any size. Returns the names of the encodings
/// and the results.
pub(crate) fn compressed(bytes: &[u8]) -> [(&'static str, Vec<u8>); 3] {
    let mut deflate = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    deflate.write_all(bytes).expect("writes to memory");
    [
        ("gzip", gzip(bytes)),
        ("deflate", deflate.finish().expect("writes to memory")),
        ("zstd", zstd::encode_all(bytes, 1).expect("writes to memory")),
    ]
}
