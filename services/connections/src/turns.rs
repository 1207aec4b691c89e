//! Turns: how many requests of a kind run at once.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::client::Client;
use crate::shares::{Share, Shares};

/// Limit of concurrent requests of a kind, shared fairly among clients. Clones share it.
#[derive(Debug, Clone)]
pub struct Turns {
    what: &'static str,
    timeout: Duration,
    shares: Shares,
}

/// No turn became free in time; retryable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoTurn(String);

impl Turns {
    /// Turns of `count` requests at once. `what` names them in messages; a request waits for its turn for at most `timeout`.
    pub fn new(what: &'static str, count: usize, timeout: Duration) -> Self {
        Self {
            what,
            timeout,
            shares: Shares::new(count),
        }
    }

    /// Waits for a turn of a client. It ends when it is dropped.
    ///
    /// # Errors
    ///
    /// No turn of the client became free in time.
    pub async fn take(&self, client: Client) -> Result<Turn, NoTurn> {
        match tokio::time::timeout(self.timeout, self.shares.take(client)).await {
            Ok(share) => Ok(Turn {
                turns: self.clone(),
                client,
                share: Some(share),
                runtime: Handle::current(),
            }),
            Err(_) => Err(self.refusal(client)),
        }
    }

    /// Returns a turn of a client if one is free now. It cannot be paused.
    pub fn take_if_free(&self, client: Client) -> Option<Share> {
        self.shares.take_if_free(client, 1)
    }

    fn refusal(&self, client: Client) -> NoTurn {
        let (what, count, in_use) = (self.what, self.shares.count(), self.shares.in_use(client));
        let message = match in_use.all < count {
            false => format!("{count} {what} are running, which is the limit, and none ended in time"),
            true => format!(
                "{own} of {count} {what} that may run at once are of this client ({client}), which is more than its share, \
                 and none of them ended in time; the rest is kept for other clients",
                own = in_use.own
            ),
        };
        NoTurn(message)
    }

    /// Requests that run now.
    pub fn running(&self) -> usize {
        self.shares.used()
    }

    /// Requests refused although turns were free.
    pub fn refused(&self) -> u64 {
        self.shares.refused()
    }
}

/// A turn among requests of a kind; ends when it is dropped.
#[derive(Debug)]
pub struct Turn {
    turns: Turns,
    client: Client,
    /// None while another request has the turn.
    share: Option<Share>,
    runtime: Handle,
}

impl Turn {
    /// Leaves the turn to another request.
    pub fn pause(&mut self) {
        self.share = None;
    }

    /// Waits for a turn again, behind those that wait already. Blocks: not for async code.
    pub fn resume(&mut self) {
        self.share = Some(self.runtime.block_on(self.turns.shares.take(self.client)));
    }
}
