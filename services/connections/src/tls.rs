//! TLS of a listener: the certificate, which can be replaced while connections are open, and the stream of a connection.
//!
//! TLS 1.2 and 1.3 with the protocol HTTP/1.1. Open connections keep the certificate of their handshake.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::RwLock;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// First byte of a TLS handshake. No HTTP request begins with it.
const HANDSHAKE: u8 = 0x16;
/// Response to a request in clear text.
const CLEAR_TEXT: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 59\r\n\
    connection: close\r\n\r\nThis server speaks HTTPS here. Use an address of https://.\n";

/// Number of bytes of a request in clear text that are read and discarded.
const CLEAR_TEXT_BYTES_MAX: u64 = 64 << 10;

/// Certificate and key of a listener. Clones share them.
#[derive(Clone)]
pub struct Tls(Arc<RwLock<Arc<ServerConfig>>>);

/// Error of a certificate or key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file of the certificate has no certificate.
    #[error("there is no certificate (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    /// The file of the certificate is not valid PEM.
    #[error("the certificate is not valid PEM: {0}")]
    Certificate(rustls::pki_types::pem::Error),
    /// The file of the key is not valid PEM, or has no private key.
    #[error("there is no valid private key (-----BEGIN PRIVATE KEY-----): {0}")]
    Key(rustls::pki_types::pem::Error),
    /// The certificate and the key do not belong together, or are of a kind that is not supported.
    #[error("the certificate and the key cannot be used together: {0}")]
    Pair(#[from] rustls::Error),
}

impl Tls {
    /// Reads a certificate, with the certificates of intermediate authorities after it, and its private key, both as PEM.
    ///
    /// # Errors
    ///
    /// Returns [`TlsError`] if they cannot be used.
    pub fn new(certificates: &[u8], key: &[u8]) -> Result<Self, TlsError> {
        let config = config(certificates, key)?;
        Ok(Self(Arc::new(RwLock::new(config))))
    }

    /// Replaces certificate and key for the connections that are accepted from now on.
    ///
    /// # Errors
    ///
    /// Returns [`TlsError`] if they cannot be used; the previous certificate and key then stay.
    pub fn replace(&self, certificates: &[u8], key: &[u8]) -> Result<(), TlsError> {
        *self.0.write() = config(certificates, key)?;
        Ok(())
    }

    /// Accepts the handshake of a connection. A client that sends a request in clear text gets a response.
    pub(crate) async fn accept(&self, mut stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE {
            stream.write_all(CLEAR_TEXT).await?;
            stream.shutdown().await?;
            // A socket that is closed with unread bytes is reset, and the client may lose the response.
            let mut rest = stream.take(CLEAR_TEXT_BYTES_MAX);
            tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a request in clear text",
            ));
        }
        let config = Arc::clone(&self.0.read());
        TlsAcceptor::from(config).accept(stream).await
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

/// Returns the configuration of a client that trusts only these authorities.
pub(crate) fn client_config(authorities: Option<&[u8]>) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    if let Some(authorities) = authorities {
        for certificate in read_certificates(authorities)? {
            roots.add(certificate)?;
        }
    }
    Ok(
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth(),
    )
}

fn read_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let certificates = read.map_err(TlsError::Certificate)?;
    match certificates.is_empty() {
        true => Err(TlsError::NoCertificate),
        false => Ok(certificates),
    }
}

fn config(certificates: &[u8], key: &[u8]) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = read_certificates(certificates)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(TlsError::Key)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Stream of a connection, in clear text or encrypted.
#[derive(Debug)]
pub(crate) enum Transport {
    Clear(TcpStream),
    Encrypted(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

/// Stream of any of these kinds.
trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

impl Transport {
    fn stream(self: Pin<&mut Self>) -> Pin<&mut dyn Stream> {
        match self.get_mut() {
            Self::Clear(stream) => Pin::new(stream),
            Self::Encrypted(stream) => Pin::new(stream),
            Self::Unix(stream) => Pin::new(stream),
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, into)
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Clear(stream) => stream.is_write_vectored(),
            Self::Encrypted(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}
