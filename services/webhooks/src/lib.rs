//! Sender of signed HTTP requests to addresses that users have configured (webhooks).
//!
//! A user configures an address, and the server connects to it. Without limits, a user could read or change
//! services that only the server can reach (server-side request forgery). Three checks prevent this:
//!
//! 1. [`Target::parse`] accepts `https` addresses on the hosts that the operator allows.
//! 2. Each new connection resolves the name once, checks every address with [`AddressFilter`], and connects only to
//!    addresses that passed. A later change of the DNS record has no effect on an open connection.
//! 3. Redirects are not followed, proxies of the environment are not used, and the response is discarded.
//!
//! Requests are signed as defined by [Standard Webhooks](https://www.standardwebhooks.com). The crate sends one request
//! per call and stores nothing: the caller decides what to send, and repeats failed requests after a [`Backoff`].
//!
//! | module | holds |
//! |---|---|
//! | [`settings`] | limits set by the operator |
//! | [`host`] | patterns of allowed host names |
//! | [`address`] | the filter of IP addresses |
//! | [`target`] | the parsed and checked address of a receiver |
//! | [`secret`] | the signing secret and the signature |
//! | [`resolver`] | name resolution, with the filter applied |
//! | [`sender`] | the client: one request with its limits |
//! | `response` | the outcome of a response: statuses, `Retry-After` |
//! | [`error`] | reasons of failed requests, and whether a retry can help |
//! | [`backoff`] | delays between attempts |

pub mod address;
pub mod backoff;
pub mod error;
pub mod host;
pub mod resolver;
mod response;
pub mod secret;
pub mod sender;
pub mod settings;
pub mod target;

pub use address::AddressFilter;
pub use backoff::Backoff;
pub use error::{SendError, SendErrorKind};
pub use host::{HostPattern, NotAHostPattern};
pub use resolver::{Resolver, Resolving, SystemResolver};
pub use response::RETRY_AFTER_MAX;
pub use secret::{SecretError, WebhookSecret};
pub use sender::{Delivery, SenderError, WebhookSender};
pub use settings::WebhookSettings;
pub use target::{Target, TargetError};
pub use tideline_connections::{Network, NotANetwork};
