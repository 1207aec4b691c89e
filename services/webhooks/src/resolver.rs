//! Name resolution with the address filter applied.
//!
//! The client calls `CheckedResolver` once per new connection and connects to the returned addresses only. No part of
//! the client resolves the name again, so a name cannot change its address between check and connection.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::pin::Pin;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving as ClientResolving};
use tokio::sync::Semaphore;

use crate::AddressFilter;

/// Maximum number of lookups at a time. A lookup occupies a thread until the resolver of the system answers, even after
/// its request has timed out.
const LOOKUPS_MAX: usize = 16;
/// Maximum number of addresses of a name to which a connection is attempted.
const ADDRESSES_MAX: usize = 8;

/// Pending lookup of a name.
pub type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Resolves names to addresses. The sender filters the addresses; an implementation does not.
pub trait Resolver: Send + Sync + 'static {
    /// Returns the addresses of a name in the order of preference. Dropping the future cancels the wait.
    ///
    /// # Errors
    ///
    /// The future returns the error of the resolver, for example if it does not find the name.
    fn resolve(&self, name: &str) -> Resolving;
}

impl<R: Resolver + ?Sized> Resolver for Arc<R> {
    fn resolve(&self, name: &str) -> Resolving {
        R::resolve(self, name)
    }
}

/// Resolver of the operating system (`getaddrinfo`): hosts file, DNS servers and search list of the machine.
#[derive(Debug)]
pub struct SystemResolver {
    lookups: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self {
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
        }
    }
}

impl Resolver for SystemResolver {
    fn resolve(&self, name: &str) -> Resolving {
        let name = name.to_owned();
        let lookups = Arc::clone(&self.lookups);
        Box::pin(async move {
            let permit = lookups.acquire_owned().await.map_err(io::Error::other)?;
            let lookup = tokio::task::spawn_blocking(move || {
                let addresses = (name.as_str(), 0).to_socket_addrs();
                drop(permit);
                addresses.map(|addresses| addresses.map(|address| address.ip()).collect())
            });
            lookup.await.map_err(io::Error::other)?
        })
    }
}

/// Addresses to which a client may connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Public addresses and listed networks: for HTTPS.
    Allowed,
    /// Listed networks: for plain HTTP.
    Listed,
}

/// Resolver of a client: resolves a name and returns the addresses that pass the filter.
pub(crate) struct CheckedResolver {
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) filter: Arc<AddressFilter>,
    pub(crate) scope: Scope,
}

/// Failure of a checked lookup. The messages contain no address, so that a user cannot read internal DNS records.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookupError {
    #[error("its name cannot be resolved")]
    Failed(#[source] io::Error),
    #[error(
        "its name has no public address, and none in a network that the operator lists in `webhooks.networks`; correct its \
         DNS records"
    )]
    NotAllowed,
    #[error(
        "http requires an address in a network that the operator lists in `webhooks.networks`, and its name has none; use \
         https"
    )]
    NotListed,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> ClientResolving {
        let lookup = self.resolver.resolve(name.as_str());
        let filter = Arc::clone(&self.filter);
        let scope = self.scope;
        Box::pin(async move {
            let addresses = lookup.await.map_err(LookupError::Failed)?;
            if addresses.is_empty() {
                let error = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
                return Err(LookupError::Failed(error).into());
            }
            let allowed: Vec<SocketAddr> = addresses
                .into_iter()
                .filter(|address| match scope {
                    Scope::Allowed => filter.allows(*address),
                    Scope::Listed => filter.lists(*address),
                })
                // Port 0 means the port of the request.
                .map(|address| SocketAddr::new(address.to_canonical(), 0))
                .take(ADDRESSES_MAX)
                .collect();
            if allowed.is_empty() {
                let error = match scope {
                    Scope::Allowed => LookupError::NotAllowed,
                    Scope::Listed => LookupError::NotListed,
                };
                return Err(error.into());
            }
            let addresses: Addrs = Box::new(allowed.into_iter());
            Ok(addresses)
        })
    }
}
