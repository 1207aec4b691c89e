//! Test environment: a running server with the command line that uses it, and a fake server for failures.
//!
//! Every command runs with its own home folder and without `TIDELINE_` variables of the environment.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::process::{Running, output, text, tideline};

/// Server with an empty store.
pub(crate) struct Lab {
    _server: Running,
    pub(crate) url: String,
    folder: tempfile::TempDir,
}

/// Result of a command.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Lab {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (server, address) = Running::serve(&folder.path().join("data"));
        Self {
            _server: server,
            url: format!("http://{address}"),
            folder,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Creates a file in the folder and returns its path.
    pub(crate) fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("a file");
        path.display().to_string()
    }

    /// Runs a command against the server.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        ended(self.command(arguments))
    }

    /// Runs a command that must succeed, and returns its output.
    #[track_caller]
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let ended = self.run(arguments);
        assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
        ended.out
    }

    /// Runs a command with `input` on its standard input.
    pub(crate) fn feed(&self, arguments: &[&str], input: &[u8]) -> Ended {
        let mut command = self.command(arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        child
            .stdin
            .take()
            .expect("it is piped")
            .write_all(input)
            .expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        Ended {
            code: output.status.code().unwrap_or(-1),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = at_home(arguments, self.folder.path());
        command.env("TIDELINE_SERVER", &self.url);
        command
    }
}

/// Creates a command with `home` as its home folder and working directory.
pub(crate) fn at_home(arguments: &[&str], home: &Path) -> Command {
    let mut command = tideline(arguments);
    command
        .env("HOME", home)
        .env_remove("XDG_CONFIG_HOME")
        .current_dir(home);
    command
}

pub(crate) fn ended(command: Command) -> Ended {
    let output = output(command);
    Ended {
        code: output.status.code().unwrap_or(-1),
        out: text(&output.stdout),
        err: text(&output.stderr),
    }
}

/// Request as received by the fake server.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// Returns the value of a header; `None` if it is missing. Names are compared without regard to case.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut found = lines
            .filter(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.to_owned());
        found.next()
    }
}

/// Fake server with programmed responses.
pub(crate) struct Pretender {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Pretender {
    /// Starts the server. `response` is called with the number of the request, from 0, and returns status,
    /// further header lines and body.
    pub(crate) fn start(
        response: impl Fn(usize, &Request) -> (u16, &'static str, String) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("it listens"));
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let (kept, response) = (Arc::clone(&requests), Arc::new(response));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (kept, response) = (Arc::clone(&kept), Arc::clone(&response));
                thread::spawn(move || converse(stream, &kept, &*response));
            }
        });
        Self { url, requests }
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("no panic").clone()
    }
}

fn converse(
    stream: TcpStream,
    kept: &Mutex<Vec<Request>>,
    response: &dyn Fn(usize, &Request) -> (u16, &'static str, String),
) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        let mut request = Request {
            head,
            body: Vec::new(),
        };
        let length = request
            .header("content-length")
            .and_then(|length| length.parse().ok())
            .unwrap_or(0);
        request.body.resize(length, 0);
        reader.read_exact(&mut request.body).ok()?;
        let number = {
            let mut kept = kept.lock().expect("no panic");
            kept.push(request.clone());
            kept.len() - 1
        };
        let (status, headers, body) = response(number, &request);
        let text = format!(
            "HTTP/1.1 {status} x\r\n{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        );
        reader.get_mut().write_all(text.as_bytes()).ok()?;
    }
}
