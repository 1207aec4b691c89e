//! Connections of HTTP clients, whatever is served on them.
//!
//! A service passes its requests to [`serve`], which accepts connections, bounds how many there are and how long they may take,
//! and shares them fairly among clients. It knows nothing of routes or of what the requests mean.
//!
//! | module | holds |
//! |---|---|
//! | [`mod@serve`] | the accept loop, limits of connections, draining |
//! | `connection` | one connection with its timeouts; the list of open ones |
//! | [`body`] | bodies of requests, bounded as sent, after decompression and over all requests |
//! | [`client`] | the client of a request, also behind trusted proxies |
//! | [`shares`], [`turns`] | fair shares of a bounded resource; how many requests of a kind run at once |
//! | [`spool`] | chunks of an answer between a thread that writes and a client that reads |
//! | [`pace`] | a rate of bytes that many senders share |
//! | [`mod@holding`] | a body that holds something until it has been sent |

pub mod body;
pub mod client;
mod connection;
pub mod holding;
pub mod pace;
pub mod serve;
pub mod shares;
pub mod spool;
pub mod turns;

pub use body::{BodyBytes, BodyError, BodyLimits, BodyReader, ReceivedBody};
pub use client::{Client, Network, NotANetwork, Origin};
pub use holding::holding;
pub use pace::Pace;
pub use serve::{ConnectionSettings, Service, serve};
pub use shares::{InUse, Share, Shares};
pub use spool::{Pushed, Spool};
pub use turns::{NoTurn, Turn, Turns};
