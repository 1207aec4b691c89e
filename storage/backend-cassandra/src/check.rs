//! Checks of a cluster before it is used: required abilities of the nodes, and the durability of their writes.
//!
//! Each check has a name, an outcome and a finding. After a failure, the finding includes the required change. If the
//! first check fails, the others are skipped.

use std::fmt;
use std::sync::Arc;

use scylla::cluster::Node;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::response::query_result::QueryResult;
use scylla::statement::unprepared::Statement;
use tideline_backend::{
    Acknowledged, Backend, BackendError, Direction, KeyRange, PageLimit, Partition, Result, RowChange, Space,
    Stamp, VALUE_BYTES_MAX, WRITE_BYTES_MAX,
};
use tideline_model::{Clock, Durability, SystemClock};

use crate::backend::CassandraBackend;
use crate::cluster::Cluster;
use crate::error::{Failure, unexpected};
use crate::options::CassandraOptions;

/// Key space of the rows that the checks write and delete. No table uses it.
const TRIAL: Space = Space(u16::MAX);
/// Largest difference between the clocks of nodes and of this machine that causes no warning, in milliseconds.
const SKEW_MAX_MILLIS: i64 = 1_000;

/// Outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The cluster meets the requirement.
    Passed,
    /// Tideline can run on the cluster, but an operator should read the finding.
    Warning,
    /// Tideline cannot run on this cluster.
    Failed,
}

/// One check with its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Name of the check.
    pub name: &'static str,
    /// Outcome.
    pub outcome: Outcome,
    /// Finding; after a failure, with the required change.
    pub detail: String,
}

impl Check {
    fn new(name: &'static str, outcome: Outcome, detail: impl Into<String>) -> Self {
        Self {
            name,
            outcome,
            detail: detail.into(),
        }
    }
}

impl Outcome {
    /// Returns the name used in reports and by programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = self.outcome.name();
        write!(f, "{outcome:<8}{:<22}{}", self.name, self.detail)
    }
}

/// Runs all checks. Writes rows of a key space that nothing else uses, and deletes them again.
///
/// Returns the checks in their order. If the cluster cannot be opened, returns only the first check.
pub fn run(options: &CassandraOptions) -> Vec<Check> {
    let mut lenient = options.clone();
    // The durability is checked separately below.
    lenient.acknowledged = Acknowledged::Replicated;
    let backend = match CassandraBackend::open(lenient) {
        Ok(backend) => backend,
        Err(error) => {
            return vec![Check::new(
                "connection and schema",
                Outcome::Failed,
                error.to_string(),
            )];
        }
    };
    let cluster = backend.cluster();
    let found = format!(
        "keyspace {} has tables of version {}",
        options.keyspace,
        crate::schema::SCHEMA_VERSION
    );
    let mut checks = vec![Check::new("connection and schema", Outcome::Passed, found)];
    checks.push(of_releases(cluster));
    checks.push(of_replication(cluster));
    checks.push(of_durability(cluster, options.acknowledged));
    checks.push(of_clocks(cluster));
    checks.push(of_requests(&backend));
    checks.push(of_conditions(&backend));
    checks
}

/// Returns the durability that the nodes of a cluster provide, or an error if it is lower than required.
pub(crate) fn durability(cluster: &Cluster) -> Result<Acknowledged> {
    let unsynced = cluster.block_on(unsynced(cluster))?;
    let Some((node, mode)) = unsynced.first() else {
        return Ok(Acknowledged::Synced);
    };
    match cluster.options.acknowledged {
        Acknowledged::Replicated => Ok(Acknowledged::Replicated),
        Acknowledged::Synced => Err(BackendError::Misconfigured {
            reason: format!(
                "node {node} has commitlog_sync {mode:?}: it answers before a write is on its disk. Set commitlog_sync \
                 to group or batch on every node, or accept writes that are only in the memory of a quorum with \
                 cassandra.acknowledged = \"replicated\""
            ),
        }),
    }
}

/// Returns the nodes that answer before a write is on disk, with their setting.
async fn unsynced(cluster: &Cluster) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for node in nodes(cluster) {
        let mut mode = None;
        // The first table is that of Cassandra, the second that of ScyllaDB.
        for table in ["system_views.settings", "system.config"] {
            let query = format!("SELECT value FROM {table} WHERE name = 'commitlog_sync'");
            match on_node(cluster, &node, &query).await {
                Ok(rows) => {
                    mode = first_text(rows)?;
                    break;
                }
                Err(error) if is_unknown_table(&error) => {}
                Err(error) => return Err(cannot_read(cluster, table, &error)),
            }
        }
        let mode = mode.unwrap_or_default();
        let mode = mode.trim_matches('"').to_owned();
        if !["group", "batch"].contains(&mode.as_str()) {
            found.push((node.address.to_string(), mode));
        }
    }
    Ok(found)
}

fn of_releases(cluster: &Cluster) -> Check {
    let name = "releases";
    let mut releases = Vec::new();
    for node in nodes(cluster) {
        let read = text(cluster, &node, "SELECT release_version FROM system.local");
        match cluster.block_on(read) {
            Ok(release) => releases.push(release.unwrap_or_default()),
            Err(error) => {
                return Check::new(name, Outcome::Failed, format!("node {}: {error}", node.address));
            }
        }
    }
    let count = releases.len();
    releases.sort();
    releases.dedup();
    let detail = format!("{count} nodes with release {}", releases.join(", "));
    match releases.len() {
        1 => Check::new(name, Outcome::Passed, detail),
        _ => Check::new(name, Outcome::Warning, format!("{detail}: finish the upgrade")),
    }
}

fn of_replication(cluster: &Cluster) -> Check {
    let name = "replication";
    let query = format!(
        "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = '{}'",
        cluster.options.keyspace
    );
    let read = cluster.block_on(async {
        let answer = cluster.session().query_unpaged(query, &[]).await;
        let rows = answer
            .map_err(|error| Failure::of(&error).error)?
            .into_rows_result();
        let rows = rows.map_err(|error| unexpected("the read of the keyspace", error))?;
        let row = rows.first_row::<(std::collections::BTreeMap<String, String>,)>();
        row.map(|(replication,)| replication)
            .map_err(|error| unexpected("the read of the keyspace", error))
    });
    let replication = match read {
        Ok(replication) => replication,
        Err(error) => return Check::new(name, Outcome::Failed, error.to_string()),
    };
    let copies: Vec<u32> = replication
        .values()
        .filter_map(|value| value.parse().ok())
        .collect();
    let fewest = copies.iter().copied().min().unwrap_or(0);
    let node_count = nodes(cluster).len() as u32;
    let detail = format!("{fewest} copies on {node_count} nodes");
    match fewest {
        0 => Check::new(
            name,
            Outcome::Failed,
            format!("unknown replication: {replication:?}"),
        ),
        _ if fewest > node_count => Check::new(
            name,
            Outcome::Warning,
            format!(
                "{detail}: a quorum needs {} of {fewest} nodes; add nodes",
                fewest / 2 + 1
            ),
        ),
        1 | 2 => Check::new(
            name,
            Outcome::Warning,
            format!("{detail}: the loss of one node stops writes; use 3 copies"),
        ),
        _ => Check::new(name, Outcome::Passed, detail),
    }
}

fn of_durability(cluster: &Cluster, demanded: Acknowledged) -> Check {
    let name = "commitlog_sync";
    match cluster.block_on(unsynced(cluster)) {
        Err(error) => Check::new(name, Outcome::Failed, error.to_string()),
        Ok(unsynced) => match unsynced.first() {
            None => Check::new(
                name,
                Outcome::Passed,
                "every node syncs before it answers: synced",
            ),
            Some((node, mode)) => {
                let detail =
                    format!("node {node} has {mode:?}: an acknowledged write is in the memory of a quorum");
                match demanded {
                    Acknowledged::Replicated => {
                        let accepted = format!("{detail}; cassandra.acknowledged accepts it");
                        Check::new(name, Outcome::Warning, accepted)
                    }
                    Acknowledged::Synced => {
                        let refused = format!(
                            "{detail}; set group or batch on every node, or cassandra.acknowledged = \"replicated\""
                        );
                        Check::new(name, Outcome::Failed, refused)
                    }
                }
            }
        },
    }
}

fn of_clocks(cluster: &Cluster) -> Check {
    let name = "clocks";
    let mut widest = 0;
    for node in nodes(cluster) {
        let before = SystemClock.now().nanos() / 1_000_000;
        let read = number(cluster, &node, "SELECT toUnixTimestamp(now()) FROM system.local");
        let there = match cluster.block_on(read) {
            Ok(there) => there,
            Err(error) => {
                return Check::new(name, Outcome::Failed, format!("node {}: {error}", node.address));
            }
        };
        let after = SystemClock.now().nanos() / 1_000_000;
        let skew = if there < before {
            before - there
        } else {
            (there - after).max(0)
        };
        widest = widest.max(skew);
    }
    let detail = format!("the clocks of the nodes differ from this one by at most {widest} ms");
    match widest {
        0..=SKEW_MAX_MILLIS => Check::new(name, Outcome::Passed, detail),
        _ => Check::new(
            name,
            Outcome::Warning,
            format!("{detail}: synchronize them (NTP)"),
        ),
    }
}

/// Writes the largest value and the largest batch, and reads the value.
fn of_requests(backend: &CassandraBackend) -> Check {
    let name = "request limits";
    let partition = Partition::space(TRIAL, 0);
    let stamp = |ahead: i64| Stamp((SystemClock.now().nanos() / 1_000 + ahead) as u64);
    let put = |key: &[u8], bytes: usize| RowChange {
        key: key.to_vec().into(),
        value: Some(vec![0x5a; bytes].into()),
    };
    let tried = || {
        let cluster = backend.cluster();
        let rows = backend.rows();
        let largest = [put(b"value", VALUE_BYTES_MAX)];
        cluster.block_on(rows.write(cluster, partition, &largest, stamp(0).0 as i64))?;
        let many: Vec<RowChange> = (0..1_000_u32)
            .map(|n| put(&n.to_be_bytes(), WRITE_BYTES_MAX / 1_000 - 8))
            .collect();
        backend.write(partition, &many, stamp(1), Durability::Synced)?;
        let one = PageLimit {
            rows_max: 1,
            bytes_max: usize::MAX,
        };
        let page = backend.scan(partition, &KeyRange::prefix(b"value"), Direction::Ascending, one)?;
        let read = page.rows.first().map(|row| row.value.len());
        backend.remove_rows(partition, &KeyRange::ALL, stamp(2))?;
        Ok::<_, BackendError>(read)
    };
    match tried() {
        Ok(Some(VALUE_BYTES_MAX)) => Check::new(
            name,
            Outcome::Passed,
            format!("a value of {VALUE_BYTES_MAX} bytes and a batch of {WRITE_BYTES_MAX} bytes pass"),
        ),
        Ok(read) => Check::new(
            name,
            Outcome::Failed,
            format!("a written value was read as {read:?} bytes"),
        ),
        Err(error) => Check::new(name, Outcome::Failed, error.to_string()),
    }
}

/// Reads the manifest, which needs a conditional read.
fn of_conditions(backend: &CassandraBackend) -> Check {
    let name = "conditional requests";
    match backend.manifest(tideline_backend::Shard(0)) {
        Ok(manifest) => Check::new(
            name,
            Outcome::Passed,
            format!(
                "the manifest has version {} and epoch {}",
                manifest.version, manifest.epoch.0
            ),
        ),
        Err(error) => Check::new(name, Outcome::Failed, error.to_string()),
    }
}

/// Returns the nodes that the driver has found.
fn nodes(cluster: &Cluster) -> Vec<Arc<Node>> {
    cluster.session().get_cluster_state().get_nodes_info().to_vec()
}

async fn text(cluster: &Cluster, node: &Arc<Node>, query: &str) -> Result<Option<String>> {
    let rows = on_node(cluster, node, query).await;
    first_text(rows.map_err(|error| Failure::of(&error).error)?)
}

fn first_text(rows: QueryResult) -> Result<Option<String>> {
    let rows = rows.into_rows_result();
    let rows = rows.map_err(|error| unexpected("the read of a setting", error))?;
    let row = rows.maybe_first_row::<(Option<String>,)>();
    let row = row.map_err(|error| unexpected("the read of a setting", error))?;
    Ok(row.and_then(|(text,)| text))
}

async fn number(cluster: &Cluster, node: &Arc<Node>, query: &str) -> Result<i64> {
    let rows = on_node(cluster, node, query).await;
    let rows = rows.map_err(|error| Failure::of(&error).error)?;
    let rows = rows.into_rows_result();
    let rows = rows.map_err(|error| unexpected("the read of a clock", error))?;
    let row = rows.first_row::<(i64,)>();
    let (number,) = row.map_err(|error| unexpected("the read of a clock", error))?;
    Ok(number)
}

/// Runs a query on one node.
async fn on_node(
    cluster: &Cluster,
    node: &Arc<Node>,
    query: &str,
) -> std::result::Result<QueryResult, ExecutionError> {
    let mut statement = Statement::new(query);
    let target = SingleTargetLoadBalancingPolicy::new(NodeIdentifier::Node(Arc::clone(node)), None);
    statement.set_load_balancing_policy(Some(target));
    // Tables of the system are local to a node.
    statement.set_consistency(scylla::statement::Consistency::One);
    cluster.session().query_unpaged(statement, &[]).await
}

/// Returns true if a table or its keyspace does not exist.
fn is_unknown_table(error: &ExecutionError) -> bool {
    matches!(
        error,
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Invalid, _))
    )
}

/// Returns the error for a failed read of a table with settings. If the user lacks a permission, the error names it.
fn cannot_read(cluster: &Cluster, table: &str, error: &ExecutionError) -> BackendError {
    match error {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Unauthorized, message)) => {
            let user = cluster.options.user.as_deref().unwrap_or("anonymous");
            BackendError::Misconfigured {
                reason: format!(
                    "the user {user:?} may not read the setting commitlog_sync ({message}); run as an administrator: \
                     GRANT SELECT ON TABLE {table} TO {user}"
                ),
            }
        }
        other => Failure::of(other).error,
    }
}
