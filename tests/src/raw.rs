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

    /// The status of the next answer, or `None` when the server closes, or is silent for the patience of the
    /// connection, without one.
    pub fn first_status(&mut self) -> Option<u16> {
        let mut answer = Vec::new();
        let mut buffer = [0; 4 << 10];
        while !answer.contains(&b'\n') {
            match self.stream.read(&mut buffer) {
                Ok(read @ 1..) => answer.extend_from_slice(&buffer[..read]),
                Ok(0) | Err(_) => break,
            }
        }
        let answer = String::from_utf8_lossy(&answer);
        answer.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
    }
}
