//! Watch over the nodes: what an acknowledged write means can change while the backend is open.
//!
//! A node can restart with another `commitlog_sync`, and a further data center can join the cluster. The public API of
//! the driver has no events for nodes. So a task compares the connected nodes every second, which needs no request. It
//! reads the setting when a node is connected that was not connected before, and every minute.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use scylla::client::session::Session;
use tideline_backend::{Acknowledged, BackendError, Result};
use uuid::Uuid;

use crate::data_center::{self, Location};
use crate::error::RETRY_AFTER;
use crate::nodes;
use crate::options::CassandraOptions;

/// Interval at which the connected nodes are compared.
const TICK: Duration = Duration::from_secs(1);
/// Interval at which the setting of all nodes is read.
const READ_INTERVAL: Duration = Duration::from_secs(60);
/// Pause after a failed read. Until then, the last result stays valid.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Findings of the watch.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Lowest durability that the settings accept.
    accepted: Acknowledged,
    found: Mutex<Found>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// Node that answers before a write is on its disk, with its setting.
    unsynced: Option<String>,
    /// Reason if the copies are spread over several data centers.
    spread: Option<String>,
}

impl Watch {
    /// Reads the setting of all connected nodes. Returns the ids of these nodes too, for [`run`].
    ///
    /// # Errors
    ///
    /// `Misconfigured` if a node syncs later than the settings accept, or if the setting cannot be read.
    pub(crate) async fn begin(
        session: &Session,
        options: &CassandraOptions,
        location: &Location,
    ) -> Result<(Self, BTreeSet<Uuid>)> {
        let connected = nodes::connected(session, &location.center);
        if connected.is_empty() {
            return Err(BackendError::Unavailable {
                reason: format!("no node of data center {:?} is connected", location.center),
                retry_after: RETRY_AFTER,
            });
        }
        let unsynced = first(&nodes::unsynced(session, options, &connected).await?);
        let watch = Self::new(options.acknowledged);
        watch.found.lock().unsynced = unsynced;
        match watch.refusal() {
            Some(reason) => Err(BackendError::Misconfigured { reason }),
            None => Ok((watch, nodes::ids(&connected))),
        }
    }

    fn new(accepted: Acknowledged) -> Self {
        Self {
            accepted,
            found: Mutex::default(),
        }
    }

    /// Returns the durability of an acknowledged write.
    pub(crate) fn acknowledged(&self) -> Acknowledged {
        match (self.accepted, &self.found.lock().unsynced) {
            (Acknowledged::Replicated, Some(_)) => Acknowledged::Replicated,
            // Without acceptance, writes are refused while a node does not sync.
            _ => Acknowledged::Synced,
        }
    }

    /// Returns the reason for which writes are refused now.
    pub(crate) fn refusal(&self) -> Option<String> {
        let found = self.found.lock();
        if let Some(spread) = &found.spread {
            return Some(spread.clone());
        }
        match (self.accepted, &found.unsynced) {
            (Acknowledged::Synced, Some(node)) => Some(format!(
                "{node}: it answers before a write is on its disk. Set commitlog_sync to group or batch on every node, \
                 or accept writes that are only in the memory of a quorum with cassandra.acknowledged = \"replicated\""
            )),
            _ => None,
        }
    }

    /// Stores the findings, and logs what they change. Returns true if they change the durability or the refusal.
    fn set(&self, found: Found) -> bool {
        let before = (self.acknowledged(), self.refusal());
        *self.found.lock() = found;
        let now = (self.acknowledged(), self.refusal());
        if now == before {
            return false;
        }
        let acknowledged = now.0.name();
        match (now.1, before.1) {
            (Some(reason), _) => tracing::error!(reason, "writes are refused"),
            (None, Some(_)) => tracing::info!(acknowledged, "writes are accepted again"),
            (None, None) => tracing::warn!(acknowledged, "the durability of acknowledged writes has changed"),
        }
        true
    }
}

/// Watches the nodes until the runtime ends. `before` has the nodes whose setting is known.
pub(crate) async fn run(
    session: Arc<Session>,
    options: CassandraOptions,
    location: Location,
    watch: Arc<Watch>,
    mut before: BTreeSet<Uuid>,
) {
    let mut is_failing = false;
    let mut due = Instant::now() + READ_INTERVAL;
    loop {
        tokio::time::sleep(TICK).await;
        let connected = nodes::connected(&session, &location.center);
        let now = nodes::ids(&connected);
        let is_new = !now.is_subset(&before);
        before = now;
        let centers = data_center::counts(&session);
        let spread = location.copies.spread(&options.keyspace, &centers);
        let is_due = is_new || Instant::now() >= due;
        let unsynced = match is_due && !connected.is_empty() {
            true => nodes::unsynced(&session, &options, &connected).await.map(Some),
            false => Ok(None),
        };
        let unsynced = match unsynced {
            Ok(Some(found)) => {
                is_failing = false;
                due = Instant::now() + READ_INTERVAL;
                first(&found)
            }
            Ok(None) => watch.found.lock().unsynced.clone(),
            Err(error) => {
                let message = "commitlog_sync of the nodes cannot be read; it is read again";
                match is_failing {
                    true => tracing::debug!(%error, "{message}"),
                    false => tracing::warn!(%error, "{message}"),
                }
                is_failing = true;
                due = Instant::now() + READ_AGAIN_AFTER;
                watch.found.lock().unsynced.clone()
            }
        };
        watch.set(Found { unsynced, spread });
    }
}

/// Describes one of the nodes that do not sync. The driver lists nodes in random order.
fn first(unsynced: &[(String, String)]) -> Option<String> {
    let (node, mode) = unsynced.iter().min()?;
    Some(format!("node {node} has commitlog_sync {mode:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_no_longer_syncs_lowers_the_durability_or_refuses_writes() {
        let unsynced = first(&[("10.0.0.1:9042".to_owned(), "periodic".to_owned())]);
        let found = |unsynced: Option<&str>| Found {
            unsynced: unsynced.map(str::to_owned),
            spread: None,
        };
        let strict = Watch::new(Acknowledged::Synced);
        let lenient = Watch::new(Acknowledged::Replicated);
        for watch in [&strict, &lenient] {
            assert_eq!(
                (watch.acknowledged(), watch.refusal()),
                (Acknowledged::Synced, None)
            );
            watch.set(found(unsynced.as_deref()));
        }
        let refusal = strict.refusal().expect("writes are refused");
        assert!(
            refusal.contains("10.0.0.1:9042 has commitlog_sync \"periodic\""),
            "{refusal}"
        );
        let lowered = (lenient.acknowledged(), lenient.refusal());
        assert_eq!(lowered, (Acknowledged::Replicated, None));
        for watch in [&strict, &lenient] {
            watch.set(found(None));
            assert_eq!(
                (watch.acknowledged(), watch.refusal()),
                (Acknowledged::Synced, None)
            );
        }
    }

    #[test]
    fn other_nodes_with_the_same_outcome_change_nothing() {
        let [a, b] = ["10.0.0.1:9042", "10.0.0.2:9042"].map(|node| (node.to_owned(), "periodic".to_owned()));
        let both = first(&[a.clone(), b.clone()]);
        assert_eq!(both, first(&[b.clone(), a.clone()]));
        let found = |unsynced: Option<String>| Found {
            unsynced,
            spread: None,
        };
        let strict = Watch::new(Acknowledged::Synced);
        let lenient = Watch::new(Acknowledged::Replicated);
        for (unsynced, changes) in [
            (None, [false, false]),
            (both, [true, true]),
            (first(std::slice::from_ref(&a)), [false, false]),
            // The refusal names the node that is left.
            (first(std::slice::from_ref(&b)), [true, false]),
            (None, [true, true]),
        ] {
            let changed = [&strict, &lenient].map(|watch| watch.set(found(unsynced.clone())));
            assert_eq!(changed, changes, "{unsynced:?}");
        }
    }

    #[test]
    fn copies_in_several_data_centers_refuse_writes() {
        let watch = Watch::new(Acknowledged::Replicated);
        watch.set(Found {
            unsynced: None,
            spread: Some("two data centers".to_owned()),
        });
        assert_eq!(watch.refusal().as_deref(), Some("two data centers"));
    }
}
