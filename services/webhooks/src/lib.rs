//! Sender of signed HTTP requests to addresses that users have named (webhooks).
//!
//! A user names an address, and the server connects to it. Without limits, a user could read or change services that
//! only the server can reach (server-side request forgery). Three checks prevent it:
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
//! | [`backoff`] | delays between attempts |

pub mod address;
pub mod backoff;
pub mod host;
pub mod secret;
pub mod settings;
pub mod target;

pub use address::AddressFilter;
pub use backoff::Backoff;
pub use host::{HostPattern, NotAHostPattern};
pub use secret::{SecretError, WebhookSecret};
pub use settings::WebhookSettings;
pub use target::{Target, TargetError};
pub use tideline_connections::{Network, NotANetwork};
