//! Receivers on loopback with the behaviours that a sender must expect, and a resolver with fixed records.
//!
//! A receiver ends when it is dropped, and at the latest after [`LIFETIME`]. Its certificate is issued by an authority
//! that each receiver creates.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring;
use tideline_webhooks::{
    Delivery, Resolver, Resolving, SendError, Target, WebhookSecret, WebhookSender, WebhookSettings,
};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// Maximum time that a receiver runs.
const LIFETIME: Duration = Duration::from_secs(60);

/// Name in the certificates of the receivers.
pub(crate) const HOST: &str = "hooks.example.com";
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Behaviour of a receiver after it has read a request.
#[derive(Clone)]
pub(crate) enum Behaviour {
    /// Sends these bytes and reads the next request.
    Respond(String),
    /// Sends nothing.
    Hang,
    /// Sends these bytes one by one with a pause after each.
    Slow(String, Duration),
    /// Sends the first text, then repeats the second without end.
    Endless(String, String),
    /// Closes the connection.
    Close,
    /// Closes the connection before the TLS handshake.
    NoHandshake,
}

impl Behaviour {
    /// Responds with this status, further header lines, and no body.
    pub(crate) fn status(code: u16, headers: &str) -> Self {
        Self::Respond(format!("HTTP/1.1 {code} x\r\ncontent-length: 0\r\n{headers}\r\n"))
    }
}

/// Request that a receiver has read.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) line: String,
    /// Names in lower case, and values.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl ReceivedRequest {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Server of HTTPS, or of HTTP, on loopback.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    /// Certificate of the authority in PEM.
    pub(crate) authority: String,
    connections: Arc<AtomicUsize>,
    record: Arc<Record>,
    task: JoinHandle<()>,
}

/// Requests that a receiver has read.
#[derive(Default)]
struct Record {
    requests: Mutex<Vec<ReceivedRequest>>,
    /// Requests without a complete response, and the maximum of their number.
    open: AtomicUsize,
    open_max: AtomicUsize,
}

impl Record {
    fn begin(&self, request: ReceivedRequest) {
        let open = self.open.fetch_add(1, Ordering::SeqCst) + 1;
        self.open_max.fetch_max(open, Ordering::SeqCst);
        self.requests.lock().expect("not poisoned").push(request);
    }

    fn end(&self) {
        self.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Receiver {
    pub(crate) async fn https(behaviour: Behaviour) -> Self {
        Self::start("127.0.0.1:0", true, behaviour).await
    }

    pub(crate) async fn http(behaviour: Behaviour) -> Self {
        Self::start("127.0.0.1:0", false, behaviour).await
    }

    pub(crate) async fn start(address: &str, has_tls: bool, behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind(address).await.expect("a port");
        let address = listener.local_addr().expect("it listens");
        let (authority, config) = certified();
        let acceptor = has_tls.then(|| TlsAcceptor::from(Arc::new(config)));
        let connections = Arc::new(AtomicUsize::new(0));
        let record = Arc::new(Record::default());
        let (counted, recorded) = (Arc::clone(&connections), Arc::clone(&record));
        let accept = async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                if matches!(behaviour, Behaviour::NoHandshake) {
                    continue;
                }
                let (behaviour, recorded, acceptor) =
                    (behaviour.clone(), Arc::clone(&recorded), acceptor.clone());
                open.spawn(async move {
                    match acceptor {
                        Some(acceptor) => {
                            serve(acceptor.accept(stream).await.ok()?, &behaviour, &recorded).await
                        }
                        None => serve(stream, &behaviour, &recorded).await,
                    }
                });
            }
        };
        let task = tokio::spawn(async move {
            let _ended = tokio::time::timeout(LIFETIME, accept).await;
        });
        Self {
            address,
            authority,
            connections,
            record,
            task,
        }
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.record.requests.lock().expect("not poisoned").clone()
    }

    /// Returns the maximum number of requests that were open at the same time.
    pub(crate) fn open_max(&self) -> usize {
        self.record.open_max.load(Ordering::SeqCst)
    }

    /// Returns the address of the receiver below the name in its certificate.
    pub(crate) fn url(&self) -> String {
        format!("https://{HOST}:{}/inbox?key=quiet", self.address.port())
    }

    /// Returns settings that allow this receiver by name and by its address.
    pub(crate) fn settings(&self) -> WebhookSettings {
        WebhookSettings {
            hosts: vec![HOST.parse().expect("a host")],
            networks: vec![self.address.ip().to_string().parse().expect("a network")],
            timeout: Duration::from_secs(20),
            extra_roots_pem: self.authority.clone().into_bytes(),
            ..WebhookSettings::default()
        }
    }
}

/// Creates an authority, and a server configuration with a certificate of it.
fn certified() -> (String, ServerConfig) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let names = [HOST, "localhost", "127.0.0.1"].map(str::to_owned);
    let params = CertificateParams::new(names).expect("names");
    let certificate = params.signed_by(&key, &authority).expect("a certificate");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key.into())
        .expect("a key and its certificate");
    (authority.pem(), config)
}

/// Serves one connection. Returns `None` when it has ended.
async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    behaviour: &Behaviour,
    record: &Record,
) -> Option<()> {
    loop {
        let request = read_request(&mut stream).await?;
        record.begin(request);
        match behaviour {
            Behaviour::Respond(text) => {
                record.end();
                send(&mut stream, text).await?;
            }
            Behaviour::Hang => std::future::pending().await,
            Behaviour::Slow(text, pause) => {
                for at in 0..text.len() {
                    if at + 1 == text.len() {
                        record.end();
                    }
                    send(&mut stream, &text[at..=at]).await?;
                    tokio::time::sleep(*pause).await;
                }
            }
            Behaviour::Endless(first, repeated) => {
                send(&mut stream, first).await?;
                loop {
                    send(&mut stream, repeated).await?;
                }
            }
            Behaviour::Close | Behaviour::NoHandshake => return None,
        }
    }
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), text: &str) -> Option<()> {
    stream.write_all(text.as_bytes()).await.ok()?;
    stream.flush().await.ok()
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    let head_bytes = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        (stream.read_buf(&mut bytes).await.ok()? > 0).then_some(())?;
    };
    let head = String::from_utf8(bytes[..head_bytes].to_vec()).ok()?;
    let mut lines = head.split("\r\n");
    let mut request = ReceivedRequest {
        line: lines.next()?.to_owned(),
        headers: lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect(),
        body: bytes[head_bytes + 4..].to_vec(),
    };
    let length: usize = request.header("content-length").map_or(Ok(0), str::parse).ok()?;
    while request.body.len() < length {
        (stream.read_buf(&mut request.body).await.ok()? > 0).then_some(())?;
    }
    Some(request)
}

/// Resolver with the same records for all names. Later lookups return later entries; the last is repeated.
pub(crate) struct FixedResolver {
    records: Vec<Vec<IpAddr>>,
    lookups: AtomicUsize,
}

impl FixedResolver {
    pub(crate) fn new(records: &[&[&str]]) -> Arc<Self> {
        let parse = |addresses: &&[&str]| {
            let parsed = addresses.iter().map(|text| text.parse().expect("an address"));
            parsed.collect()
        };
        Arc::new(Self {
            records: records.iter().map(parse).collect(),
            lookups: AtomicUsize::new(0),
        })
    }

    pub(crate) fn lookups(&self) -> usize {
        self.lookups.load(Ordering::SeqCst)
    }
}

impl Resolver for FixedResolver {
    fn resolve(&self, _name: &str) -> Resolving {
        let number = self.lookups.fetch_add(1, Ordering::SeqCst);
        let records = self.records.get(number).or(self.records.last());
        let records = records.cloned().unwrap_or_default();
        Box::pin(async move { Ok(records) })
    }
}

/// Creates a sender for which all names resolve to 127.0.0.1.
pub(crate) fn sender(settings: WebhookSettings) -> WebhookSender {
    WebhookSender::with_resolver(settings, FixedResolver::new(&[&["127.0.0.1"]])).expect("a sender")
}

/// Sends a delivery to an address.
pub(crate) async fn deliver(sender: &WebhookSender, url: &str) -> Result<(), SendError> {
    let target = Target::parse(url, sender.settings()).expect("a target");
    let secret = WebhookSecret::parse(SECRET).expect("a secret");
    let delivery = Delivery {
        id: "msg_1",
        timestamp_seconds: 1_700_000_000,
        content_type: "application/json",
        body: Bytes::from_static(b"{\"n\":1}"),
    };
    sender.send(&target, &secret, delivery).await
}

/// Starts a receiver with a behaviour, and sends one delivery to it within `timeout`.
pub(crate) async fn deliver_to(behaviour: Behaviour, timeout: Duration) -> (Receiver, Result<(), SendError>) {
    let receiver = Receiver::https(behaviour).await;
    let settings = WebhookSettings {
        timeout,
        ..receiver.settings()
    };
    let outcome = deliver(&sender(settings), &receiver.url()).await;
    (receiver, outcome)
}
