//! Minimal HTTP/1.1 client on a plain socket.
//!
//! The client supports only the features that the benchmark needs, so that its own cost does not affect the measured
//! latencies.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::error::{BenchError, Result};

/// Keep-alive connection. It is reopened after a response with `Connection: close`. It carries one request at
/// a time and must not be used after an error.
#[derive(Debug)]
pub(crate) struct Connection {
    address: SocketAddr,
    stream: TcpStream,
    /// True if the server closes the connection after the last response.
    is_closing: bool,
    /// Bytes read from the socket; unconsumed bytes begin at `used`.
    received: Vec<u8>,
    used: usize,
}

/// HTTP response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Seconds of the `Retry-After` header.
    pub(crate) retry_after: Option<u64>,
    pub(crate) body: Vec<u8>,
}

/// Read timeout: far longer than every measured latency, so that only a hung server ends the run.
const READ_TIMEOUT: Duration = Duration::from_secs(300);
/// Number of bytes requested from the socket per read.
const READ_BYTES: usize = 256 << 10;
/// Maximum size of a response head, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

impl Connection {
    /// Opens a connection; fails at once if no process listens on the address.
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_TIMEOUT))?;
        Ok(Self {
            address,
            stream,
            is_closing: false,
            received: Vec::new(),
            used: 0,
        })
    }

    /// Sends a request and reads the whole response, of any status.
    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &[u8],
    ) -> io::Result<Response> {
        self.send_with(method, path, &format!("Content-Type: {content_type}"), body)
    }

    /// Sends a request as [`send`](Self::send) does, with the given header lines instead of `Content-Type`.
    pub(crate) fn send_with(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> io::Result<Response> {
        let accept = match headers.contains("Accept:") {
            true => "",
            false => "Accept: application/json\r\n",
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\
             {accept}Content-Length: {}\r\n\r\n",
            body.len()
        );
        if self.is_closing {
            *self = Self::open(self.address)?;
        }
        write_both(&mut self.stream, head.as_bytes(), body)?;
        self.read_answer()
    }

    /// Sends a request with a JSON body and returns the body of the response. A status other than 200 to 204 is an
    /// error.
    pub(crate) fn send_expecting_success(
        &mut self,
        method: &'static str,
        path: &str,
        body: &[u8],
    ) -> Result<Vec<u8>> {
        let response = self
            .send(method, path, "application/json", body)
            .map_err(|source| BenchError::Connection {
                what: "sending a request to the server",
                source,
            })?;
        match response.status {
            200..=204 => Ok(response.body),
            status => Err(BenchError::Refused {
                method,
                path: path.to_owned(),
                status,
                body: excerpt(&response.body),
            }),
        }
    }

    fn read_answer(&mut self) -> io::Result<Response> {
        let head = self.read_head()?;
        let mut lines = head.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.strip_prefix("HTTP/1.1 "))
            .and_then(|line| line.get(..3))
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| malformed("missing status line"))?;
        let mut length = 0;
        let mut chunked = false;
        let mut retry_after = None;
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                length = value
                    .parse()
                    .map_err(|_| malformed("invalid number in Content-Length"))?;
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                chunked = value.eq_ignore_ascii_case("chunked");
            } else if name.eq_ignore_ascii_case("retry-after") {
                retry_after = value.parse().ok();
            } else if name.eq_ignore_ascii_case("connection") {
                self.is_closing = value.eq_ignore_ascii_case("close");
            }
        }
        let body = if chunked {
            self.read_chunks()?
        } else {
            let mut body = Vec::with_capacity(length);
            self.take(length, &mut body)?;
            body
        };
        Ok(Response {
            status,
            retry_after,
            body,
        })
    }

    fn read_head(&mut self) -> io::Result<String> {
        loop {
            if let Some(length) = find(&self.received[self.used..], b"\r\n\r\n") {
                let head = &self.received[self.used..self.used + length];
                let head = String::from_utf8_lossy(head).into_owned();
                self.used += length + 4;
                return Ok(head);
            }
            if self.received.len() - self.used > HEAD_BYTES_MAX {
                return Err(malformed("response head longer than 64 KiB"));
            }
            self.fill()?;
        }
    }

    fn read_chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.read_line()?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let length =
                usize::from_str_radix(digits, 16).map_err(|_| malformed("invalid length of a chunk"))?;
            if length == 0 {
                // Skips the trailers and the empty line that ends them.
                while !self.read_line()?.is_empty() {}
                return Ok(body);
            }
            self.take(length, &mut body)?;
            if !self.read_line()?.is_empty() {
                return Err(malformed("chunk data longer than its length"));
            }
        }
    }

    fn read_line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = find(&self.received[self.used..], b"\r\n") {
                let line = &self.received[self.used..self.used + end];
                let line = String::from_utf8_lossy(line).into_owned();
                self.used += end + 2;
                return Ok(line);
            }
            self.fill()?;
        }
    }

    /// Moves the next `length` bytes to the end of `out`.
    fn take(&mut self, length: usize, out: &mut Vec<u8>) -> io::Result<()> {
        let mut missing = length;
        loop {
            let ready = missing.min(self.received.len() - self.used);
            out.extend_from_slice(&self.received[self.used..self.used + ready]);
            self.used += ready;
            missing -= ready;
            if missing == 0 {
                return Ok(());
            }
            self.fill()?;
        }
    }

    /// Reads more bytes; consumed bytes are removed first.
    fn fill(&mut self) -> io::Result<()> {
        self.received.drain(..self.used);
        self.used = 0;
        let before = self.received.len();
        self.received.resize(before + READ_BYTES, 0);
        let read = self.stream.read(&mut self.received[before..]);
        self.received
            .truncate(before + read.as_ref().copied().unwrap_or(0));
        match read? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// Returns the first 400 bytes of a body, for messages.
pub(crate) fn excerpt(body: &[u8]) -> String {
    String::from_utf8_lossy(&body[..body.len().min(400)]).into_owned()
}

/// Writes two buffers with one vectored write if possible, to send few packets.
fn write_both(stream: &mut TcpStream, head: &[u8], body: &[u8]) -> io::Result<()> {
    let written = stream.write_vectored(&[IoSlice::new(head), IoSlice::new(body)])?;
    match written.checked_sub(head.len()) {
        Some(of_body) => stream.write_all(&body[of_body..]),
        None => {
            stream.write_all(&head[written..])?;
            stream.write_all(body)
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Serves these responses, one per request. After a response with `close`, the next one is sent on a new
    /// connection.
    fn serve(answers: &'static [&'static [u8]]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("a bound socket has an address");
        thread::spawn(move || {
            for answers in answers.split_inclusive(|response| find(response, b"close").is_some()) {
                let (mut stream, _) = listener.accept().expect("the test connects");
                for response in answers {
                    let mut request = [0; 4_096];
                    let _ = stream.read(&mut request).expect("the test asks");
                    for byte in *response {
                        stream.write_all(&[*byte]).expect("the test reads");
                    }
                }
            }
        });
        address
    }

    #[test]
    fn answers_of_known_length_and_in_chunks_are_read_to_their_end() {
        let address = serve(&[
            b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n",
            b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
            b"HTTP/1.1 503 Busy\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n",
        ]);
        let mut connection = Connection::open(address).expect("the server listens");
        let mut send = || {
            connection
                .send("GET", "/", "text/plain", b"")
                .expect("it answers")
        };
        assert_eq!(send().body, b"hello");
        assert_eq!(send().body, b"hello!");
        assert_eq!(send().status, 204);
        let busy = send();
        assert_eq!((busy.status, busy.retry_after), (503, Some(2)));
    }
}
