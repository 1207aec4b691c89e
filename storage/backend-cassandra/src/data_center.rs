//! Data center of a keyspace: the choice of one, the copies in it, and the refusal of several.
//!
//! Leases are decided by the nodes of one data center (`LOCAL_SERIAL`). Two processes that use different data centers
//! would both own the data. So a process uses the nodes of exactly one data center, also if another one joins the
//! cluster later, and the keyspace stores its name, see [`schema`](crate::schema).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use scylla::client::session::Session;
use scylla::cluster::{ClusterState, NodeRef};
use scylla::policies::load_balancing::{DefaultPolicy, FallbackPlan, LoadBalancingPolicy, RoutingInfo};
use scylla::routing::Shard;
use tideline_backend::{BackendError, Result};

use crate::error::{Failure, RETRY_AFTER, unexpected};
use crate::nodes;
use crate::options::Replication;

/// Copies of each row of a keyspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Copies {
    /// Copies on any nodes, without regard to data centers.
    Simple(u32),
    /// Copies in each data center that has some.
    Centers(BTreeMap<String, u32>),
    /// Options of a strategy that this build does not support.
    Unknown(String),
}

/// Data center that this process uses, and the copies of the keyspace.
#[derive(Debug, Clone)]
pub(crate) struct Location {
    pub(crate) center: String,
    pub(crate) copies: Copies,
}

/// Passes on the nodes of one data center. The driver's own preference logs a warning for each request to a keyspace
/// with `SimpleStrategy`.
#[derive(Debug)]
struct OneCenter {
    center: String,
    policy: Arc<dyn LoadBalancingPolicy>,
}

impl OneCenter {
    fn has(&self, node: NodeRef<'_>) -> bool {
        node.datacenter.as_deref() == Some(self.center.as_str())
    }
}

impl LoadBalancingPolicy for OneCenter {
    fn pick<'a>(
        &'a self,
        request: &'a RoutingInfo<'_>,
        cluster: &'a ClusterState,
    ) -> Option<(NodeRef<'a>, Option<Shard>)> {
        // Without a picked node, the driver uses the first one of the fallback.
        let picked = self.policy.pick(request, cluster);
        picked.filter(|(node, _)| self.has(node))
    }

    fn fallback<'a>(&'a self, request: &'a RoutingInfo<'_>, cluster: &'a ClusterState) -> FallbackPlan<'a> {
        let nodes = self.policy.fallback(request, cluster);
        Box::new(nodes.filter(move |(node, _)| self.has(node)))
    }

    fn name(&self) -> String {
        "OneCenter".to_owned()
    }
}

impl Copies {
    /// Parses the options of a keyspace.
    fn parse(options: &BTreeMap<String, String>) -> Self {
        let unknown = || Self::Unknown(format!("{options:?}"));
        let class = options.get("class").map_or("", String::as_str);
        match class.rsplit('.').next() {
            Some("SimpleStrategy") => {
                let copies = options.get("replication_factor");
                copies
                    .and_then(|copies| count(copies))
                    .map_or_else(unknown, Self::Simple)
            }
            Some("NetworkTopologyStrategy") => {
                let centers = options.iter().filter(|(name, _)| *name != "class");
                let centers = centers.map(|(name, copies)| Some((name.clone(), count(copies)?)));
                let Some(mut centers) = centers.collect::<Option<BTreeMap<String, u32>>>() else {
                    return unknown();
                };
                centers.retain(|_, copies| *copies > 0);
                Self::Centers(centers)
            }
            _ => unknown(),
        }
    }

    /// Returns the number of copies that requests to a data center reach; `None` if it is not known.
    pub(crate) fn within(&self, center: &str) -> Option<u32> {
        match self {
            Self::Simple(copies) => Some(*copies),
            Self::Centers(centers) => centers.get(center).copied(),
            Self::Unknown(_) => None,
        }
    }

    /// Returns true if a keyspace with these copies needs no change for the requested ones. In one data center,
    /// a number without a name is the same as with its name.
    pub(crate) fn is_as(&self, requested: &Self) -> bool {
        match (self, requested) {
            (Self::Centers(centers), Self::Simple(copies)) => {
                centers.len() == 1 && centers.values().all(|own| own == copies)
            }
            _ => self == requested,
        }
    }

    /// Returns the names of data centers with copies.
    fn names(&self) -> impl Iterator<Item = &String> {
        let centers = match self {
            Self::Centers(centers) => Some(centers.keys()),
            Self::Simple(_) | Self::Unknown(_) => None,
        };
        centers.into_iter().flatten()
    }

    /// Returns the reason if copies without regard to data centers are spread over several of them.
    pub(crate) fn spread(&self, keyspace: &str, nodes: &BTreeMap<String, u32>) -> Option<String> {
        let (Self::Simple(copies), Some(first), 2..) = (self, nodes.keys().next(), nodes.len()) else {
            return None;
        };
        Some(format!(
            "keyspace {keyspace} has SimpleStrategy, which spreads its copies over the data centers {}: run ALTER \
             KEYSPACE {keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy', '{first}': {copies}}} \
             with the name of one data center, then `nodetool repair --full`, and start the servers again",
            quoted(nodes.keys())
        ))
    }

    /// Returns the reason if a data center has too few nodes for a quorum of the copies. Nodes that are down count.
    pub(crate) fn missing_quorum(&self, center: &str, nodes: &BTreeMap<String, u32>) -> Option<String> {
        let copies = self.within(center)?;
        let (needed, count) = (copies / 2 + 1, nodes.get(center).copied().unwrap_or(0));
        (count < needed).then(|| {
            format!(
                "a quorum of {copies} copies needs {needed} nodes, and data center {center:?} has {count}"
            )
        })
    }
}

/// Replication as statements name it.
impl fmt::Display for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(copies) => {
                write!(f, "{{'class': 'SimpleStrategy', 'replication_factor': {copies}}}")
            }
            Self::Centers(centers) => {
                f.write_str("{'class': 'NetworkTopologyStrategy'")?;
                for (name, copies) in centers {
                    write!(f, ", '{name}': {copies}")?;
                }
                f.write_str("}")
            }
            Self::Unknown(options) => f.write_str(options),
        }
    }
}

impl From<&Replication> for Copies {
    fn from(replication: &Replication) -> Self {
        match replication {
            Replication::Simple(copies) => Self::Simple(u32::from(*copies)),
            Replication::DataCenters(centers) => {
                let centers = centers
                    .iter()
                    .map(|(name, copies)| (name.clone(), u32::from(*copies)));
                Self::Centers(centers.collect())
            }
        }
    }
}

/// Returns the data center whose nodes are used. `set` is the setting, `nodes` the number of nodes by data center.
pub(crate) fn choose(
    set: Option<&str>,
    keyspace: &str,
    nodes: &BTreeMap<String, u32>,
    copies: &Copies,
) -> Result<String> {
    let wrong = |reason: String| Err(BackendError::Misconfigured { reason });
    let Some(first) = nodes.keys().next() else {
        return Err(BackendError::Unavailable {
            reason: "the data centers of the nodes are not known yet".to_owned(),
            retry_after: RETRY_AFTER,
        });
    };
    let all: BTreeSet<&String> = nodes.keys().chain(copies.names()).collect();
    let center = match set {
        Some(set) if !nodes.contains_key(set) => {
            return wrong(format!(
                "cassandra.data_center is {set:?}, but the nodes are in {}: set one of these names",
                quoted(nodes.keys())
            ));
        }
        Some(set) => set,
        None if all.len() > 1 => {
            return wrong(format!(
                "the nodes and the copies of keyspace {keyspace} are in the data centers {}, and each of them would \
                 choose an owner of the data: set cassandra.data_center to one name, the same for all servers",
                quoted(all)
            ));
        }
        None => first.as_str(),
    };
    if matches!(copies, Copies::Centers(_)) && copies.within(center).is_none() {
        return wrong(format!(
            "keyspace {keyspace} has no copies in data center {center:?}: its replication is {copies}; set \
             cassandra.data_center to a name with copies, or add copies with ALTER KEYSPACE"
        ));
    }
    match copies.spread(keyspace, nodes) {
        Some(reason) => wrong(reason),
        None => Ok(center.to_owned()),
    }
}

/// Returns the number of nodes in each data center, with the nodes that are down.
pub(crate) fn counts(session: &Session) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for node in nodes::all(session) {
        if let Some(center) = &node.datacenter {
            *counts.entry(center.clone()).or_default() += 1;
        }
    }
    counts
}

/// Reads the copies of a keyspace; `None` if the keyspace does not exist. Every user can read them.
pub(crate) async fn copies(session: &Session, keyspace: &str) -> Result<Option<Copies>> {
    // The name has been checked, so it cannot end the text.
    let query = format!("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = '{keyspace}'");
    let answer = session.query_unpaged(query, &[]).await;
    let rows = answer
        .map_err(|error| Failure::of(&error).error)?
        .into_rows_result();
    let rows = rows.map_err(|error| unexpected("the read of the keyspace", error))?;
    let row = rows.maybe_first_row::<(BTreeMap<String, String>,)>();
    let row = row.map_err(|error| unexpected("the read of the keyspace", error))?;
    Ok(row.map(|(options,)| Copies::parse(&options)))
}

/// Restricts the requests of a session to the nodes of a data center.
pub(crate) fn pin(session: &Session, location: &Location) {
    let center = location.center.clone();
    let policy: Arc<dyn LoadBalancingPolicy> = match location.copies {
        Copies::Simple(_) => Arc::new(OneCenter {
            center,
            policy: DefaultPolicy::builder().build(),
        }),
        Copies::Centers(_) | Copies::Unknown(_) => DefaultPolicy::builder().prefer_datacenter(center).build(),
    };
    let mut handle = session.get_default_execution_profile_handle().clone();
    let profile = handle.pointee_to_builder().load_balancing_policy(policy);
    handle.map_to_another_profile(profile.build());
}

/// Returns the error for an existing keyspace that has more copies than its nodes can hold a quorum of.
pub(crate) fn too_few_nodes(keyspace: &str, reason: &str) -> BackendError {
    BackendError::Unavailable {
        reason: format!(
            "{reason}: add nodes, or lower the copies of keyspace {keyspace} with ALTER KEYSPACE {keyspace} WITH \
             replication = {{…}}; if it has no data yet, run DROP KEYSPACE {keyspace} and `tideline backend schema` \
             with a lower --replication"
        ),
        retry_after: RETRY_AFTER,
    }
}

/// Parses a number of copies: `3`, or `3/1` if one of them is transient.
fn count(text: &str) -> Option<u32> {
    text.split('/').next()?.parse().ok()
}

fn quoted<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("{name:?}")).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use tideline_backend::ErrorKind;

    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    fn numbers(pairs: &[(&str, u32)]) -> BTreeMap<String, u32> {
        pairs
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect()
    }

    fn centers(pairs: &[(&str, u32)]) -> Copies {
        Copies::Centers(numbers(pairs))
    }

    #[test]
    fn replication_options_are_parsed() {
        let simple = "org.apache.cassandra.locator.SimpleStrategy";
        let network = "org.apache.cassandra.locator.NetworkTopologyStrategy";
        for (options, expected) in [
            (
                map(&[("class", simple), ("replication_factor", "3")]),
                Copies::Simple(3),
            ),
            (
                map(&[("class", network), ("east", "3"), ("west", "5/1"), ("north", "0")]),
                centers(&[("east", 3), ("west", 5)]),
            ),
            (
                map(&[("class", "NetworkTopologyStrategy"), ("east", "1")]),
                centers(&[("east", 1)]),
            ),
        ] {
            assert_eq!(Copies::parse(&options), expected, "{options:?}");
        }
        for options in [
            map(&[("class", "org.apache.cassandra.locator.LocalStrategy")]),
            map(&[("class", simple)]),
            map(&[("class", network), ("east", "many")]),
            map(&[]),
        ] {
            let copies = Copies::parse(&options);
            assert!(matches!(copies, Copies::Unknown(_)), "{options:?}: {copies:?}");
        }
        let text = centers(&[("east", 3), ("west", 2)]).to_string();
        assert_eq!(text, "{'class': 'NetworkTopologyStrategy', 'east': 3, 'west': 2}");
    }

    #[test]
    fn one_data_center_is_chosen() {
        let one = numbers(&[("east", 3)]);
        let two = numbers(&[("east", 3), ("west", 3)]);
        let in_one = centers(&[("east", 3)]);
        let in_two = centers(&[("east", 3), ("west", 3)]);
        for (set, nodes, copies) in [
            (None, &one, &in_one),
            (None, &one, &Copies::Simple(3)),
            (Some("east"), &one, &Copies::Simple(3)),
            (Some("east"), &two, &in_one),
            (Some("east"), &two, &in_two),
        ] {
            let chosen = choose(set, "k", nodes, copies).expect("one data center");
            assert_eq!(chosen, "east", "{set:?} {nodes:?} {copies}");
        }
        for (set, nodes, copies, part) in [
            (None, &two, &in_one, "set cassandra.data_center"),
            (None, &two, &in_two, "\"east\", \"west\""),
            (None, &one, &in_two, "set cassandra.data_center"),
            (
                Some("nope"),
                &one,
                &in_one,
                "\"nope\", but the nodes are in \"east\"",
            ),
            (Some("west"), &two, &in_one, "no copies in data center \"west\""),
            (
                Some("east"),
                &two,
                &Copies::Simple(3),
                "'NetworkTopologyStrategy', 'east': 3",
            ),
        ] {
            let error = choose(set, "k", nodes, copies).expect_err("it is refused");
            assert_eq!(error.kind(), ErrorKind::Misconfigured, "{error}");
            assert!(error.to_string().contains(part), "{part:?} is missing: {error}");
        }
        let unknown = choose(Some("east"), "k", &BTreeMap::new(), &in_one).expect_err("no nodes");
        assert!(unknown.kind().is_retryable(), "{unknown}");
    }

    #[test]
    fn requested_copies_are_compared_with_existing_ones() {
        let one = centers(&[("east", 3)]);
        for (existing, requested, is_as) in [
            (&Copies::Simple(3), &Copies::Simple(3), true),
            (&Copies::Simple(3), &Copies::Simple(1), false),
            (&one, &one, true),
            (&one, &Copies::Simple(3), true),
            (&one, &Copies::Simple(2), false),
            (&one, &centers(&[("east", 3), ("west", 3)]), false),
            (&centers(&[("east", 3), ("west", 3)]), &Copies::Simple(3), false),
            (&Copies::Simple(3), &one, false),
        ] {
            assert_eq!(existing.is_as(requested), is_as, "{existing} {requested}");
        }
    }

    #[test]
    fn a_quorum_needs_enough_nodes() {
        let nodes = numbers(&[("east", 1), ("west", 2)]);
        let copies = Copies::Simple(3);
        let reason = copies.missing_quorum("east", &nodes).expect("one node of two");
        assert!(
            reason.contains("needs 2 nodes") && reason.contains("has 1"),
            "{reason}"
        );
        assert_eq!(copies.missing_quorum("west", &nodes), None);
        assert_eq!(Copies::Simple(1).missing_quorum("east", &nodes), None);
        assert_eq!(
            Copies::Unknown(String::new()).missing_quorum("east", &nodes),
            None
        );
    }
}
