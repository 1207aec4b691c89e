//! Nodes of the cluster as the driver knows them, and queries to a single node.
//!
//! Tables of the system are local to a node, so their contents are read from each node separately.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;
use scylla::client::session::Session;
use scylla::cluster::Node;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::policies::load_balancing::{NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::response::query_result::QueryResult;
use scylla::statement::unprepared::Statement;
use tideline_backend::{BackendError, Result};
use uuid::Uuid;

use crate::error::{Failure, unexpected};
use crate::options::CassandraOptions;

/// Returns the nodes that the driver has found, also those that are down.
pub(crate) fn all(session: &Session) -> Vec<Arc<Node>> {
    session.get_cluster_state().get_nodes_info().to_vec()
}

/// Returns the nodes of a data center to which the driver has connections.
pub(crate) fn connected(session: &Session, center: &str) -> Vec<Arc<Node>> {
    let mut nodes = all(session);
    nodes.retain(|node| node.datacenter.as_deref() == Some(center) && node.is_connected());
    nodes
}

/// Returns the ids of nodes.
pub(crate) fn ids(nodes: &[Arc<Node>]) -> BTreeSet<Uuid> {
    nodes.iter().map(|node| node.host_id).collect()
}

/// Returns the nodes that answer before a write is on disk, with their setting `commitlog_sync`.
///
/// # Errors
///
/// The error of a node whose setting cannot be read, unless another node does not sync.
pub(crate) async fn unsynced(
    session: &Session,
    options: &CassandraOptions,
    nodes: &[Arc<Node>],
) -> Result<Vec<(String, String)>> {
    let reads: Vec<_> = nodes
        .iter()
        .map(|node| sync_mode(session, options, node))
        .collect();
    let modes = join_all(reads).await;
    let names = nodes.iter().map(|node| node.address.to_string());
    without_sync(names.zip(modes))
}

/// Returns the nodes with a mode that answers before a write is on disk.
fn without_sync(read: impl IntoIterator<Item = (String, Result<String>)>) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut failed = None;
    for (node, mode) in read {
        match mode {
            Ok(mode) if ["group", "batch"].contains(&mode.as_str()) => {}
            Ok(mode) => found.push((node, mode)),
            Err(error) => failed = Some(error),
        }
    }
    // One node that does not sync determines the durability, whatever the other nodes do.
    match failed {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// Reads the setting `commitlog_sync` of a node; empty if the node has no such setting.
async fn sync_mode(session: &Session, options: &CassandraOptions, node: &Arc<Node>) -> Result<String> {
    // The first table is that of Cassandra, the second that of ScyllaDB.
    for table in ["system_views.settings", "system.config"] {
        let query = format!("SELECT value FROM {table} WHERE name = 'commitlog_sync'");
        match on_node(session, node, &query).await {
            Ok(rows) => {
                let mode = first_text(rows)?.unwrap_or_default();
                return Ok(mode.trim_matches('"').to_owned());
            }
            Err(error) if is_unknown_table(&error) => {}
            Err(error) => return Err(cannot_read(options, table, &error)),
        }
    }
    Ok(String::new())
}

/// Runs a query on one node.
pub(crate) async fn on_node(
    session: &Session,
    node: &Arc<Node>,
    query: &str,
) -> std::result::Result<QueryResult, ExecutionError> {
    let mut statement = Statement::new(query);
    let target = SingleTargetLoadBalancingPolicy::new(NodeIdentifier::Node(Arc::clone(node)), None);
    statement.set_load_balancing_policy(Some(target));
    // Tables of the system are local to a node.
    statement.set_consistency(scylla::statement::Consistency::One);
    session.query_unpaged(statement, &[]).await
}

/// Returns the only column of the first row; `None` without a row or a value.
pub(crate) fn first_text(rows: QueryResult) -> Result<Option<String>> {
    let rows = rows.into_rows_result();
    let rows = rows.map_err(|error| unexpected("the read of a setting", error))?;
    let row = rows.maybe_first_row::<(Option<String>,)>();
    let row = row.map_err(|error| unexpected("the read of a setting", error))?;
    Ok(row.and_then(|(text,)| text))
}

/// Returns true if a table or its keyspace does not exist.
fn is_unknown_table(error: &ExecutionError) -> bool {
    matches!(
        error,
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Invalid, _))
    )
}

/// Returns the error for a failed read of a table with settings. If the user lacks a permission, the error names it.
fn cannot_read(options: &CassandraOptions, table: &str, error: &ExecutionError) -> BackendError {
    match error {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Unauthorized, message)) => {
            let user = options.user.as_deref().unwrap_or("anonymous");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_fails_hides_no_node_without_sync() {
        fn read(node: &str, mode: Option<&str>) -> (String, Result<String>) {
            let mode = mode.map(str::to_owned);
            let mode = mode.ok_or_else(|| unexpected("a test", "no answer"));
            (node.to_owned(), mode)
        }
        let group = || read("10.0.0.1:9042", Some("group"));
        let batch = || read("10.0.0.2:9042", Some("batch"));
        let failed = || read("10.0.0.3:9042", None);
        let periodic = || read("10.0.0.4:9042", Some("periodic"));
        let found = without_sync([group(), batch()]).expect("all nodes are read");
        assert!(found.is_empty(), "{found:?}");
        without_sync([group(), failed(), batch()]).expect_err("a node may not sync");
        let found = without_sync([failed(), periodic(), failed()]).expect("a node does not sync");
        assert_eq!(found, [("10.0.0.4:9042".to_owned(), "periodic".to_owned())]);
    }
}
