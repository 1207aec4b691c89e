//! HTTP connection handling that is independent of the served routes.
//!
//! [`mod@serve`] accepts connections for a service, limits their number and idle time, and shares concurrent
//! requests fairly among clients. The service defines the routes and the meaning of requests.
//!
//! | module | holds |
//! |---|---|
//! | [`mod@serve`] | accept loop, connection limits, draining |
//! | `listeners` | the sockets that accept connections: TCP, and a Unix socket |
//! | `connection` | one connection with its timeouts; the list of open connections |
//! | [`body`] | request bodies: limits on the sent size, the decompressed size and all bodies in flight |
//! | [`client`] | client address of a request, if necessary as reported by a trusted proxy |
//! | [`forward`] | forwarding of requests to another process |
//! | [`shares`], [`permits`] | fair shares of a bounded resource; limits of concurrent requests of one kind |
//! | [`chunk_queue`] | queue of response chunks between a blocking writer and the connection |
//! | [`tls`] | TLS of a listener, with a certificate that can be replaced |
//! | [`certificate`] | time of validity of certificates |
//! | [`throttle`] | throttle: byte rate limit shared by many senders |
//! | [`mod@guarded_body`] | a response body that holds a value until the body has been sent |

pub mod body;
pub mod certificate;
pub mod chunk_queue;
pub mod client;
mod connection;
pub mod forward;
pub mod guarded_body;
mod listeners;
pub mod permits;
pub mod serve;
pub mod shares;
pub mod throttle;
pub mod tls;

pub use body::{BodyBytes, BodyError, BodyLimits, BodyReader, ReceivedBody};
pub use chunk_queue::{ChunkQueue, Pushed};
pub use client::{Client, Network, NotANetwork, Origin, Peer, TrustedProxy};
pub use guarded_body::with_guard;
pub use listeners::Listeners;
pub use permits::{NoPermit, Permit, Permits};
pub use serve::{ConnectionSettings, Service, serve};
pub use shares::{InUse, Share, Shares};
pub use throttle::Throttle;
pub use tls::{Tls, TlsError};
