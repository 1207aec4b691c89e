//! Connections to a server through its Unix socket, for a server such as `unix:/run/tideline/tideline.sock`.
//!
//! ureq has no transport for Unix sockets. Its traits for other transports are excluded from its version guarantees, so
//! an update of ureq can require a change here.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use ureq::Error;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

/// Prefix of a server that is reached through a Unix socket. The path of the socket follows.
pub(super) const PREFIX: &str = "unix:";
/// Scheme and host of the requests. The server accepts the host from every client.
pub(super) const ORIGIN: &str = "http://localhost";

/// Connector of one Unix socket.
#[derive(Debug)]
pub(super) struct UnixConnector(pub(super) PathBuf);

/// Resolver that sends no requests to a name service, because all requests go through the socket.
#[derive(Debug)]
pub(super) struct NoResolver;

impl Resolver for NoResolver {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let mut addresses = self.empty();
        addresses.push(SocketAddr::from((Ipv4Addr::LOCALHOST, 80)));
        Ok(addresses)
    }
}

impl Connector for UnixConnector {
    type Out = UnixTransport;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<UnixTransport>, Error> {
        let config = details.config;
        Ok(Some(UnixTransport {
            stream: UnixStream::connect(&self.0)?,
            buffers: LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size()),
        }))
    }
}

/// Connection to a Unix socket.
#[derive(Debug)]
pub(super) struct UnixTransport {
    stream: UnixStream,
    buffers: LazyBuffers,
}

impl Transport for UnixTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.set_write_timeout(limit(timeout))?;
        let output = &self.buffers.output()[..amount];
        self.stream
            .write_all(output)
            .map_err(|error| failed(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.set_read_timeout(limit(timeout))?;
        let input = self.buffers.input_append_buf();
        let read = loop {
            match self.stream.read(input) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => break read.map_err(|error| failed(error, timeout))?,
            }
        };
        self.buffers.input_appended(read);
        Ok(read > 0)
    }

    fn is_open(&mut self) -> bool {
        // An idle connection has nothing to read until the server closes it.
        if self.stream.set_nonblocking(true).is_err() {
            return false;
        }
        let read = self.stream.read(&mut [0]);
        let is_idle = read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        is_idle && self.stream.set_nonblocking(false).is_ok()
    }
}

/// Returns the time limit of a read or write; `None` without one.
fn limit(timeout: NextTimeout) -> Option<std::time::Duration> {
    timeout.not_zero().map(|time| *time)
}

fn failed(error: std::io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => error.into(),
    }
}
