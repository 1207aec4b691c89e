//! Bytes on a socket, for what no decent client sends: headers that never end, bodies that never end, silence.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// One connection, byte by byte.
#[derive(Debug)]
pub struct RawConnection {
    stream: TcpStream,
}

impl RawConnection {
    /// Connects; every read and write ends after `patience`.
    pub fn open(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    /// Sends bytes. An error means that the server has closed its side.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Reads until the server closes or is silent for the patience of the connection.
    pub fn read_to_end(&mut self) -> String {
        let mut answer = Vec::new();
        let mut buffer = [0; 16 << 10];
        while let Ok(read @ 1..) = self.stream.read(&mut buffer) {
            answer.extend_from_slice(&buffer[..read]);
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Reads what comes first: the status of the answer, or `None` when the server closed without one.
    pub fn status(&mut self) -> Option<u16> {
        let answer = self.read_to_end();
        answer.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
    }
}
