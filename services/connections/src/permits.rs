//! Limits of concurrent requests of one kind, shared fairly among clients.
//!
//! A permit can be released and acquired again while a request waits for a slow client.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::client::Client;
use crate::shares::{Share, Shares};

/// Limit of concurrent requests of one kind, shared fairly among clients. Clones share the limit.
#[derive(Debug, Clone)]
pub struct Permits {
    what: &'static str,
    timeout: Duration,
    shares: Shares,
}

/// Error returned if no permit became free in time. The request may be retried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoPermit(String);

impl Permits {
    /// Creates a limit of `count` concurrent requests. `what` names the requests in messages. A request waits
    /// for its permit for at most `timeout`.
    pub fn new(what: &'static str, count: usize, timeout: Duration) -> Self {
        Self {
            what,
            timeout,
            shares: Shares::new(count),
        }
    }

    /// Creates a limit like [`new`](Self::new) for requests that take CPU time or a slot in the next commit.
    /// While a tenant shares the limit with other clients, it holds only its part of `tenants_max`; see
    /// [`Shares::with_tenants_max`].
    pub fn with_tenants_max(what: &'static str, count: usize, timeout: Duration, tenants_max: usize) -> Self {
        Self {
            what,
            timeout,
            shares: Shares::with_tenants_max(count, tenants_max),
        }
    }

    /// Waits for a permit for `client`. The permit is released when the returned value is dropped.
    ///
    /// # Errors
    ///
    /// Returns [`NoPermit`] if no permit became free for the client within the timeout.
    pub async fn take(&self, client: Client) -> Result<Permit, NoPermit> {
        match tokio::time::timeout(self.timeout, self.shares.take(client)).await {
            Ok(share) => Ok(Permit {
                permits: self.clone(),
                client,
                share: Some(share),
                runtime: Handle::current(),
            }),
            Err(_) => Err(self.refusal(client)),
        }
    }

    /// Returns a permit for `client` if one is free now. Such a permit cannot be paused.
    pub fn take_if_free(&self, client: Client) -> Option<Share> {
        self.shares.take_if_free(client, 1)
    }

    fn refusal(&self, client: Client) -> NoPermit {
        let (what, count, in_use) = (self.what, self.shares.count(), self.shares.in_use(client));
        let message = match in_use.all < count {
            false => format!("{count} {what} are running, which is the limit, and none ended in time"),
            true => format!(
                "this client ({client}) runs {own} of at most {count} concurrent {what}, which is more than \
                 its share, and none of them ended in time; the rest is kept for other clients",
                own = in_use.own
            ),
        };
        NoPermit(message)
    }

    /// Returns the number of running requests.
    pub fn running(&self) -> usize {
        self.shares.used()
    }

    /// Returns the number of requests that ended without a permit although permits were free.
    pub fn refused(&self) -> u64 {
        self.shares.refused()
    }
}

/// Permit to run one request; released when dropped.
#[derive(Debug)]
pub struct Permit {
    permits: Permits,
    client: Client,
    /// `None` while the permit is released by [`pause`](Self::pause).
    share: Option<Share>,
    runtime: Handle,
}

impl Permit {
    /// Releases the permit so that another request can run.
    pub fn pause(&mut self) {
        self.share = None;
    }

    /// Acquires the permit again. Waits like [`Permits::take`], but without a timeout. Blocks the thread: must
    /// not be called from async code.
    pub fn resume(&mut self) {
        self.share = Some(self.runtime.block_on(self.permits.shares.take(self.client)));
    }
}
