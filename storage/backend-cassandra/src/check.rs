//! Checks of a cluster before it is used: required abilities of the nodes, and the durability of their writes.
//!
//! Each check has a name, an outcome and a finding. After a failure, the finding includes the required change. If the
//! first check fails, the others are skipped.

use std::fmt;
use std::sync::Arc;

use scylla::cluster::Node;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use tideline_backend::{
    Acknowledged, Backend, BackendError, Direction, KeyRange, PageLimit, Partition, Result, RowChange, Space,
    Stamp, VALUE_BYTES_MAX, WRITE_BYTES_MAX,
};
use tideline_model::{Clock, Durability, SystemClock};
use uuid::Uuid;

use crate::backend::CassandraBackend;
use crate::cluster::{Cluster, is_applied};
use crate::data_center::{self, Location};
use crate::error::{Failure, missing_right, unexpected};
use crate::nodes::{self, first_text, on_node};
use crate::options::CassandraOptions;
use crate::schema::{self, StoredCenter};

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

/// Runs all checks. Writes rows that no server uses, and deletes them again.
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
        schema::SCHEMA_VERSION
    );
    let mut checks = vec![Check::new("connection and schema", Outcome::Passed, found)];
    checks.push(of_releases(cluster));
    checks.push(of_data_center(cluster));
    checks.push(of_replication(cluster));
    checks.push(of_durability(cluster, options.acknowledged));
    checks.push(of_clocks(cluster));
    checks.push(of_requests(&backend));
    checks.push(of_conditions(&backend));
    checks.push(of_tables(&backend));
    checks
}

fn of_releases(cluster: &Cluster) -> Check {
    let name = "releases";
    let mut releases = Vec::new();
    for node in nodes::all(cluster.session()) {
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

/// Reports the data center, and whether the keyspace stores it.
fn of_data_center(cluster: &Cluster) -> Check {
    let name = "data center";
    let center = &cluster.location.center;
    let stored = match cluster.block_on(schema::mark(cluster.session())) {
        Ok(mark) => mark.map_or(StoredCenter::NoColumn, |mark| mark.center),
        Err(error) => return Check::new(name, Outcome::Failed, error.to_string()),
    };
    match stored {
        StoredCenter::Named(_) => Check::new(
            name,
            Outcome::Passed,
            format!("{center}; the keyspace refuses servers in another one"),
        ),
        StoredCenter::Empty => Check::new(
            name,
            Outcome::Passed,
            format!("{center}; the first server stores it in the keyspace"),
        ),
        StoredCenter::NoColumn => Check::new(
            name,
            Outcome::Warning,
            format!(
                "{center}; the keyspace cannot store it, so servers in another data center would not be refused: run \
                 `tideline backend schema` again"
            ),
        ),
    }
}

fn of_replication(cluster: &Cluster) -> Check {
    let name = "replication";
    let Location { center, copies } = &cluster.location;
    let Some(count) = copies.within(center) else {
        let unknown = format!("unknown replication: {copies}");
        return Check::new(name, Outcome::Failed, unknown);
    };
    let nodes = data_center::counts(cluster.session());
    let node_count = nodes.get(center).copied().unwrap_or(0);
    let detail = format!("{count} copies on {node_count} nodes of data center {center}");
    match count {
        _ if count > node_count => Check::new(
            name,
            Outcome::Warning,
            format!(
                "{detail}: a quorum needs {} of {count} nodes; add nodes",
                count / 2 + 1
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
    let connected = nodes::connected(cluster.session(), &cluster.location.center);
    let unsynced = nodes::unsynced(cluster.session(), &cluster.options, &connected);
    match cluster.block_on(unsynced) {
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
    for node in nodes::all(cluster.session()) {
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

/// Reads the manifest, and inserts and deletes rows of `member` and `shard` under conditions, as leases and manifests
/// do.
fn of_conditions(backend: &CassandraBackend) -> Check {
    let name = "conditional requests";
    let manifest = match backend.manifest(tideline_backend::Shard(0)) {
        Ok(manifest) => manifest,
        Err(error) => return Check::new(name, Outcome::Failed, error.to_string()),
    };
    let trials = Trial::conditional(&Uuid::new_v4());
    match run_trials(backend.cluster(), &trials) {
        Ok(()) => Check::new(
            name,
            Outcome::Passed,
            format!(
                "they take effect; the manifest has version {} and epoch {}",
                manifest.version, manifest.epoch.0
            ),
        ),
        Err(reasons) => Check::new(name, Outcome::Failed, reasons),
    }
}

/// Writes, reads and deletes a row of each other table that servers write.
fn of_tables(backend: &CassandraBackend) -> Check {
    let name = "tables";
    let trials = Trial::plain(SystemClock.now().nanos() / 1_000);
    match run_trials(backend.cluster(), &trials) {
        Ok(()) => {
            let tables: Vec<&str> = trials.iter().map(|trial| trial.table).collect();
            let detail = format!("rows of {} can be written, read and deleted", tables.join(", "));
            Check::new(name, Outcome::Passed, detail)
        }
        Err(reasons) => Check::new(name, Outcome::Failed, reasons),
    }
}

/// Statements that write, read and delete a row that no server uses.
struct Trial {
    table: &'static str,
    write: String,
    read: String,
    delete: String,
    /// True if the write and the delete have a condition, which must be fulfilled.
    is_conditional: bool,
}

impl Trial {
    /// Returns the trials of tables that are written under conditions. Servers use no negative cluster or shard.
    fn conditional(name: &Uuid) -> [Self; 2] {
        let member = format!("cluster = -1 AND node = {name}");
        let shard = format!("shard = -1 AND kind = 0 AND name = textAsBlob('{name}')");
        [
            Self::of(
                "member",
                &member,
                true,
                format!(
                    "INSERT INTO member (cluster, node, address, renewals, is_dead, stamp_max) \
                     VALUES (-1, {name}, '', 0, true, 0) IF NOT EXISTS"
                ),
            ),
            Self::of(
                "shard",
                &shard,
                true,
                format!(
                    "INSERT INTO shard (shard, kind, name, detail) \
                     VALUES (-1, 0, textAsBlob('{name}'), textAsBlob('trial')) IF NOT EXISTS"
                ),
            ),
        ]
    }

    /// Returns the trials of the other tables. Servers use no negative shard, segment, part or space.
    fn plain(stamp: i64) -> [Self; 6] {
        let bulk = |table, unit: &str| {
            Self::stamped(
                table,
                &format!("{unit}, bucket, key, value"),
                "-1, 0, textAsBlob('trial'), textAsBlob('trial')",
                &format!("{unit} = -1 AND bucket = 0 AND key = textAsBlob('trial')"),
                stamp,
            )
        };
        [
            Self::stamped(
                "journal_slot",
                "shard, epoch, slot, last, bytes, written, is_forgotten",
                "-1, 0, 0, 0, 0, 0, true",
                "shard = -1 AND epoch = 0 AND slot = 0",
                stamp,
            ),
            Self::stamped(
                "journal",
                "shard, epoch, slot, sequence, value",
                "-1, 0, 0, 0, textAsBlob('trial')",
                "shard = -1 AND epoch = 0 AND slot = 0 AND sequence = 0",
                stamp,
            ),
            Self::stamped(
                "unit",
                "shard, kind, id, bucket, place, tier, bytes",
                "-1, 0, 0, 0, 0, 0, 0",
                "shard = -1 AND kind = 0 AND id = 0 AND bucket = 0",
                stamp,
            ),
            bulk("chunk", "segment"),
            bulk("part_row", "part"),
            bulk("space_row", "space"),
        ]
    }

    fn stamped(table: &'static str, columns: &str, values: &str, row: &str, stamp: i64) -> Self {
        let write = format!("INSERT INTO {table} ({columns}) VALUES ({values}) USING TIMESTAMP {stamp}");
        Self {
            delete: format!("DELETE FROM {table} USING TIMESTAMP {} WHERE {row}", stamp + 1),
            ..Self::of(table, row, false, write)
        }
    }

    fn of(table: &'static str, row: &str, is_conditional: bool, write: String) -> Self {
        Self {
            table,
            write,
            read: format!("SELECT * FROM {table} WHERE {row}"),
            delete: format!("DELETE FROM {table} WHERE {row} IF EXISTS"),
            is_conditional,
        }
    }
}

/// Runs trials. Returns the reasons of all that fail.
fn run_trials(cluster: &Cluster, trials: &[Trial]) -> std::result::Result<(), String> {
    let run = |trial: &Trial, statement: &str, is_conditional: bool| -> std::result::Result<(), String> {
        let at = |reason: String| format!("table {}: {reason}", trial.table);
        let answer = cluster.block_on(cluster.session().query_unpaged(statement, &[]));
        let answer = match answer {
            Ok(answer) => answer,
            Err(ExecutionError::LastAttemptError(RequestAttemptError::DbError(
                DbError::Unauthorized,
                message,
            ))) => {
                return Err(at(missing_right(&cluster.options, &message)));
            }
            Err(error) => return Err(at(Failure::of(&error).error.to_string())),
        };
        if is_conditional && !is_applied(answer).map_err(|error| at(error.to_string()))? {
            return Err(at("a condition that is true was refused".to_owned()));
        }
        Ok(())
    };
    let failed = trials.iter().filter_map(|trial| {
        let written = run(trial, &trial.write, trial.is_conditional);
        let read = run(trial, &trial.read, false);
        let deleted = run(trial, &trial.delete, trial.is_conditional && written.is_ok());
        written.and(read).and(deleted).err()
    });
    let failed: Vec<String> = failed.collect();
    match failed.is_empty() {
        true => Ok(()),
        false => Err(failed.join("; ")),
    }
}

async fn text(cluster: &Cluster, node: &Arc<Node>, query: &str) -> Result<Option<String>> {
    let rows = on_node(cluster.session(), node, query).await;
    first_text(rows.map_err(|error| Failure::of(&error).error)?)
}

async fn number(cluster: &Cluster, node: &Arc<Node>, query: &str) -> Result<i64> {
    let rows = on_node(cluster.session(), node, query).await;
    let rows = rows.map_err(|error| Failure::of(&error).error)?;
    let rows = rows.into_rows_result();
    let rows = rows.map_err(|error| unexpected("the read of a clock", error))?;
    let row = rows.first_row::<(i64,)>();
    let (number,) = row.map_err(|error| unexpected("the read of a clock", error))?;
    Ok(number)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_table_that_servers_write_is_tried() {
        let conditional = Trial::conditional(&Uuid::nil());
        let plain = Trial::plain(1);
        let tried: BTreeSet<&str> = conditional
            .iter()
            .chain(&plain)
            .map(|trial| trial.table)
            .collect();
        assert_eq!(tried, BTreeSet::from(schema::TABLES));
        for trial in &plain {
            assert!(trial.write.ends_with("USING TIMESTAMP 1"), "{}", trial.write);
            assert!(
                trial.delete.contains("USING TIMESTAMP 2 WHERE"),
                "{}",
                trial.delete
            );
        }
        for trial in &conditional {
            assert!(trial.write.ends_with("IF NOT EXISTS"), "{}", trial.write);
            assert!(trial.delete.ends_with("IF EXISTS"), "{}", trial.delete);
        }
    }
}
