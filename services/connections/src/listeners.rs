//! Sockets that accept connections: one for TCP, and possibly a Unix socket.
//!
//! When they are closed, connections that wait in the queues of the system are accepted first, so that no client whose
//! request is on the way is reset.

use std::io;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::client::Peer;

/// Maximum number of connections that are accepted when a socket is closed: the length of the queue of a TCP socket.
const WAITING_MAX: usize = 1_024;

/// Sockets of one service.
#[derive(Debug)]
pub struct Listeners {
    tcp: TcpListener,
    unix: Option<UnixListener>,
}

/// Accepted connection.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl From<TcpListener> for Listeners {
    fn from(tcp: TcpListener) -> Self {
        Self { tcp, unix: None }
    }
}

impl Listeners {
    /// Adds a Unix socket. Its connections are in clear text, because they do not leave the machine.
    #[must_use]
    pub fn with_unix(self, unix: UnixListener) -> Self {
        Self {
            unix: Some(unix),
            ..self
        }
    }

    /// Returns the listener of TCP connections.
    pub(crate) fn tcp(&self) -> &TcpListener {
        &self.tcp
    }

    /// Waits for the next connection. No connection is lost if the future is dropped.
    pub(crate) async fn accept(&self) -> io::Result<(Socket, Peer)> {
        let unix = async {
            match &self.unix {
                Some(unix) => unix.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = self.tcp.accept() => {
                let (stream, address) = accepted?;
                Ok((Socket::Tcp(stream), Peer::Address(address)))
            }
            accepted = unix => {
                let (stream, _) = accepted?;
                of_unix(stream)
            }
        }
    }

    /// Closes the sockets. Returns the connections that the system has completed, but that were not accepted yet. The
    /// system would reset them, although their clients may have sent requests.
    pub(crate) fn close(self) -> Vec<(Socket, Peer)> {
        let mut waiting = Vec::new();
        // Both sockets do not block, so an accept fails as soon as no connection waits.
        if let Ok(tcp) = self.tcp.into_std() {
            waiting.extend(accept_all(|| {
                let (stream, address) = tcp.accept()?;
                stream.set_nonblocking(true)?;
                let stream = TcpStream::from_std(stream)?;
                Ok((Socket::Tcp(stream), Peer::Address(address)))
            }));
        }
        if let Some(Ok(unix)) = self.unix.map(UnixListener::into_std) {
            waiting.extend(accept_all(|| {
                let (stream, _) = unix.accept()?;
                stream.set_nonblocking(true)?;
                of_unix(UnixStream::from_std(stream)?)
            }));
        }
        waiting
    }
}

fn of_unix(stream: UnixStream) -> io::Result<(Socket, Peer)> {
    let user = stream.peer_cred()?.uid();
    Ok((Socket::Unix(stream), Peer::User(user)))
}

/// Accepts connections until an accept fails, at most [`WAITING_MAX`]. Skips connections of clients that have
/// disconnected.
fn accept_all(
    mut accept: impl FnMut() -> io::Result<(Socket, Peer)>,
) -> impl Iterator<Item = (Socket, Peer)> {
    let next = move || {
        loop {
            match accept() {
                Ok(accepted) => return Some(accepted),
                Err(error) if is_clients_fault(&error) => {}
                Err(_) => return None,
            }
        }
    };
    std::iter::from_fn(next).take(WAITING_MAX)
}

/// Returns true if an accept failed because the client disconnected before. The next accept needs no wait.
pub(crate) fn is_clients_fault(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}
