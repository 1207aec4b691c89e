//! Raw bytes on a socket, for malformed requests: endless headers, endless bodies, silence.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Raw TCP connection.
#[derive(Debug)]
pub struct RawConnection {
    stream: TcpStream,
}

impl RawConnection {
    /// Opens a connection; `patience` is the timeout of the connect and of every read and write.
    ///
    /// # Errors
    ///
    /// Returns the I/O error if the connection is refused or times out.
    pub fn open(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    /// Sends bytes.
    ///
    /// # Errors
    ///
    /// Returns the I/O error if the server has closed its side or the write times out.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Returns the status of the next HTTP/1.1 response; `None` if the connection is closed or a read times out
    /// before its status is received.
    pub fn first_status(&mut self) -> Option<u16> {
        let mut response = Vec::new();
        let mut buffer = [0; 4 << 10];
        while !response.contains(&b'\n') {
            match self.stream.read(&mut buffer) {
                Ok(read @ 1..) => response.extend_from_slice(&buffer[..read]),
                Ok(0) | Err(_) => break,
            }
        }
        let response = String::from_utf8_lossy(&response);
        response.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
    }
}
