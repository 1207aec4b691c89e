//! The client that sends webhooks: one signed request per call, within limits of time, size and number.
//!
//! There are two HTTP clients, one per scheme, because the resolver of a client gets the name without the scheme. The
//! addresses of an `https` target are public or listed, those of an `http` target are listed. Both clients follow no
//! redirects, use no proxies of the environment, store no cookies and decompress nothing.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Certificate, Client, ClientBuilder, Request, Response, redirect, retry};
use rustls::CertificateError;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use crate::error::{SendError, SendErrorKind};
use crate::resolver::{CheckedResolver, LookupError, Scope};
use crate::response::outcome;
use crate::{AddressFilter, Resolver, SystemResolver, Target, WebhookSecret, WebhookSettings};

const USER_AGENT: &str = concat!("tideline/", env!("CARGO_PKG_VERSION"));
const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Maximum length of a delivery id in bytes.
const ID_BYTES_MAX: usize = 256;
/// Maximum number of requests at a time. Further calls wait, and their time limit has not begun.
const REQUESTS_MAX: usize = 64;
/// Maximum time to connect, including the TLS handshake. A shorter time limit of the request takes precedence.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time to read a response body. The body is read only so that the connection can be used for another
/// request.
const BODY_TIME_MAX: Duration = Duration::from_secs(1);
/// Maximum number of idle connections per scheme, host and port.
const IDLE_CONNECTIONS_MAX: usize = 2;
/// Time after which an idle connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Message to a receiver.
#[derive(Debug, Clone)]
pub struct Delivery<'a> {
    /// Value of the header `webhook-id`, the same for all attempts: receivers detect repeated deliveries by it. It has
    /// 1 to 256 visible ASCII characters and no dot, because the signed text separates its parts by dots.
    pub id: &'a str,
    /// Time of the attempt in seconds since 1970. Receivers refuse old attempts.
    pub timestamp_seconds: i64,
    /// Value of the header `content-type`.
    pub content_type: &'a str,
    /// Body of the request.
    pub body: Bytes,
}

/// Error of settings from which no sender can be created.
#[derive(Debug, thiserror::Error)]
pub enum SenderError {
    /// The time limit is zero.
    #[error("the time limit of a webhook request is 0; set `webhooks.timeout` to a positive duration")]
    NoTime,
    /// The certificates of additional authorities are not valid.
    #[error("the certificates in `webhooks.ca_file` are not valid ({reason}); use certificates in PEM")]
    Roots {
        /// Reason of the parser.
        reason: String,
    },
    /// The HTTP client cannot be created, for example because the machine has no certificates of authorities.
    #[error(
        "the HTTP client of webhooks cannot be created ({reason}); install the certificates of authorities \
         (ca-certificates), or set `webhooks.ca_file`"
    )]
    Client {
        /// Reason of the client.
        reason: String,
    },
}

/// Sends webhooks. One per server: it owns the pool of connections and the limit of concurrent requests.
pub struct WebhookSender {
    settings: WebhookSettings,
    /// Client of `https` targets.
    secure: Client,
    /// Client of `http` targets; only if a network is listed.
    plain: Option<Client>,
    requests: Semaphore,
}

impl fmt::Debug for WebhookSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookSender").finish_non_exhaustive()
    }
}

impl WebhookSender {
    /// Creates a sender that uses the resolver of the operating system.
    ///
    /// # Errors
    ///
    /// [`SenderError`] if a setting is not valid, or the machine has no certificates of authorities.
    pub fn new(settings: WebhookSettings) -> Result<Self, SenderError> {
        Self::with_resolver(settings, SystemResolver::default())
    }

    /// Creates a sender that uses another resolver. The addresses from this resolver are checked like the addresses
    /// from the resolver of the operating system.
    ///
    /// # Errors
    ///
    /// [`SenderError`] if a setting is not valid, or the machine has no certificates of authorities.
    pub fn with_resolver(settings: WebhookSettings, resolver: impl Resolver) -> Result<Self, SenderError> {
        if settings.timeout.is_zero() {
            return Err(SenderError::NoTime);
        }
        // The TLS provider of the process; the result is an error if it is set already.
        let _set_before = rustls::crypto::ring::default_provider().install_default();
        let resolver: Arc<dyn Resolver> = Arc::new(resolver);
        let filter = Arc::new(settings.address_filter());
        let client = |scope| builder(&settings, &resolver, &filter, scope);
        let secure = client(Scope::Allowed)
            .https_only(true)
            .tls_certs_merge(extra_roots(&settings.extra_roots_pem)?)
            .build()
            .map_err(|error| SenderError::Client {
                reason: cause(&error),
            })?;
        let plain = if filter.lists_nothing() {
            None
        } else {
            // Without certificates, a TLS connection cannot be opened.
            let client = client(Scope::Listed).tls_certs_only([]).build();
            Some(client.map_err(|error| SenderError::Client {
                reason: cause(&error),
            })?)
        };
        Ok(Self {
            settings,
            secure,
            plain,
            requests: Semaphore::new(REQUESTS_MAX),
        })
    }

    /// Returns the settings with which targets are parsed.
    pub fn settings(&self) -> &WebhookSettings {
        &self.settings
    }

    /// Signs and sends one delivery as `POST`. Returns when the receiver has responded with a status of 2xx.
    ///
    /// Waits until fewer than 64 requests are running, then at most for the time limit of the settings. The
    /// response body is read up to its limits of size and time (1 s), and discarded; it does not change the outcome.
    /// Dropping the future cancels the request, which the receiver may have processed.
    ///
    /// # Errors
    ///
    /// [`SendError`] with its kind, whether a retry can help, and the delay that the receiver requested.
    pub async fn send(
        &self,
        target: &Target,
        secret: &WebhookSecret,
        delivery: Delivery<'_>,
    ) -> Result<(), SendError> {
        let refused =
            |error: crate::TargetError| SendError::new(SendErrorKind::TargetRefused, error.to_string());
        target.check(&self.settings).map_err(refused)?;
        let client = if target.is_plain() {
            let client = self.plain.as_ref();
            client.ok_or_else(|| refused(crate::TargetError::PlainHttp))?
        } else {
            &self.secure
        };
        let sent_at_seconds = delivery.timestamp_seconds;
        let request = request(client, target, secret, delivery)?;
        let _permit = self.requests.acquire().await;

        let deadline = Instant::now() + self.settings.timeout;
        let response = match timeout_at(deadline, client.execute(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(failure(target.host(), &error)),
            Err(_) => {
                let message = format!(
                    "{} did not respond within {:?}; a receiver should respond first and process the delivery later",
                    target.host(),
                    self.settings.timeout
                );
                return Err(SendError::new(SendErrorKind::TimedOut, message));
            }
        };
        let outcome = outcome(
            target.host(),
            response.status(),
            response.headers(),
            sent_at_seconds,
        );
        let body_deadline = deadline.min(Instant::now() + BODY_TIME_MAX);
        let body = discard(response, self.settings.response_bytes_max);
        // The status has decided the outcome, so a body that is cut off is not an error.
        let _cut_off = timeout_at(body_deadline, body).await;
        outcome
    }
}

fn builder(
    settings: &WebhookSettings,
    resolver: &Arc<dyn Resolver>,
    filter: &Arc<AddressFilter>,
    scope: Scope,
) -> ClientBuilder {
    Client::builder()
        .user_agent(USER_AGENT)
        .dns_resolver(CheckedResolver {
            resolver: Arc::clone(resolver),
            filter: Arc::clone(filter),
            scope,
        })
        .redirect(redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        // The caller decides about retries.
        .retry(retry::never())
        .http1_only()
        .connect_timeout(CONNECT_TIMEOUT.min(settings.timeout))
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .pool_idle_timeout(IDLE_TIMEOUT)
}

/// Parses certificates in PEM. An empty text means no certificates; any other text must contain at least one.
fn extra_roots(pem: &[u8]) -> Result<Vec<Certificate>, SenderError> {
    let bad = |reason: String| SenderError::Roots { reason };
    let roots = Certificate::from_pem_bundle(pem).map_err(|error| bad(cause(&error)))?;
    if roots.is_empty() && !pem.is_empty() {
        return Err(bad("there is no certificate".to_owned()));
    }
    Ok(roots)
}

fn request(
    client: &Client,
    target: &Target,
    secret: &WebhookSecret,
    delivery: Delivery<'_>,
) -> Result<Request, SendError> {
    let invalid = |message: String| SendError::new(SendErrorKind::InvalidDelivery, message);
    let id = delivery.id;
    let is_valid = !id.is_empty()
        && id.len() <= ID_BYTES_MAX
        && id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'.');
    if !is_valid {
        return Err(invalid(format!(
            "delivery id {id:?} is not valid; use 1 to {ID_BYTES_MAX} visible ASCII characters without dots"
        )));
    }
    let value = |text: &str| {
        let error = |_| invalid(format!("{text:?} is not valid as the value of a header"));
        HeaderValue::from_str(text).map_err(error)
    };
    let signature = secret.signature(id, delivery.timestamp_seconds, &delivery.body);
    client
        .post(target.url().clone())
        .header(CONTENT_TYPE, value(delivery.content_type)?)
        .header(WEBHOOK_ID, value(id)?)
        .header(WEBHOOK_TIMESTAMP, HeaderValue::from(delivery.timestamp_seconds))
        .header(WEBHOOK_SIGNATURE, value(&signature)?)
        .body(delivery.body)
        .build()
        .map_err(|error| invalid(format!("the request cannot be created: {}", cause(&error))))
}

/// Describes a request that has no response.
fn failure(host: &str, error: &reqwest::Error) -> SendError {
    let sources = || std::iter::successors(error.source(), |error| (*error).source());
    let lookup = sources().find_map(|source| source.downcast_ref::<LookupError>());
    let cause = cause(error);
    let (kind, reason) = match lookup {
        Some(refused @ (LookupError::NotAllowed | LookupError::NotListed)) => {
            (SendErrorKind::AddressRefused, refused.to_string())
        }
        Some(LookupError::Failed(_)) => (
            SendErrorKind::NameNotResolved,
            format!("its name cannot be resolved ({cause}); check the name and its DNS records"),
        ),
        None if error.is_timeout() => (
            SendErrorKind::TimedOut,
            "it did not accept a connection in time; check that it is running".to_owned(),
        ),
        None if error.is_connect() => (
            SendErrorKind::ConnectFailed,
            format!("no connection ({cause}); check that it is running and has a valid certificate"),
        ),
        None => (
            SendErrorKind::BrokenResponse,
            format!("the connection ended without a valid response ({cause})"),
        ),
    };
    SendError::new(kind, format!("{host} cannot be reached: {reason}"))
}

/// Returns the message of the innermost source of an error. Outer messages of the client contain the address.
fn cause(error: &dyn Error) -> String {
    let innermost = std::iter::successors(error.source(), |error| (*error).source()).last();
    let Some(innermost) = innermost else {
        return "unknown reason".to_owned();
    };
    let mut contained = std::iter::successors(Some(innermost), |error| inner(*error));
    let tls_error = contained.find_map(|error| error.downcast_ref::<rustls::Error>());
    match tls_error {
        // The message lists the names in the certificate, which may be internal.
        Some(rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. })) => {
            "the certificate is not valid for this name".to_owned()
        }
        _ => innermost.to_string(),
    }
}

/// Returns the error inside an I/O error. For a failed handshake this is the TLS error, or another I/O error that
/// contains the TLS error.
fn inner<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    Some(error.downcast_ref::<io::Error>()?.get_ref()?)
}

/// Reads a response body up to `bytes_max`. Dropping a response with unread bytes closes its connection.
async fn discard(mut response: Response, bytes_max: u64) {
    let mut bytes = 0_u64;
    while let Ok(Some(chunk)) = response.chunk().await {
        bytes = bytes.saturating_add(chunk.len() as u64);
        if bytes > bytes_max {
            return;
        }
    }
}
