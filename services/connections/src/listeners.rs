//! Sockets that accept connections: one for TCP, and possibly a Unix socket.

use std::io;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::client::Peer;

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
                let user = stream.peer_cred()?.uid();
                Ok((Socket::Unix(stream), Peer::User(user)))
            }
        }
    }
}
