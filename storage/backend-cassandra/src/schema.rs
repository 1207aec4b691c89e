//! Tables of a keyspace, their version, and their creation.
//!
//! Servers never create or change tables: an operator runs `tideline backend schema` once. Changes of tables by several
//! processes at a time can leave a cluster with two versions of a table.
//!
//! | table | partition | rows | written |
//! |---|---|---|---|
//! | `schema_version` | name | version of these tables | once |
//! | `member` | cluster | one per process: its address and the count of its renewals | conditionally |
//! | `shard` | shard | owner, epoch and version (static); rows of the manifest; ends of epochs | conditionally |
//! | `journal_slot` | shard | slots of the journal, with their sizes | plainly |
//! | `journal` | shard, epoch, slot | entries | plainly |
//! | `unit` | shard, kind | segments and parts that have rows, with their buckets | plainly |
//! | `chunk` | segment, bucket | rows of segments, never changed | plainly |
//! | `part_row` | part, bucket | rows of parts | plainly, with stamps |
//! | `space_row` | space, bucket | rows of key spaces | plainly, with stamps |
//!
//! Rows that are written once have fixed timestamps: 1 for the insert, a higher number for each later change. Then no
//! clock of a machine decides which version of a row is newer. Rows of parts and spaces carry the stamps of their
//! owner.

use futures_util::future::try_join_all;
use scylla::client::session::Session;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use tideline_backend::{BackendError, Result};

use crate::cluster::{self, block_on_new};
use crate::error::{Failure, of_keyspace, unexpected};
use crate::options::{CassandraOptions, Replication, is_keyspace};

/// Version of the tables that this build reads and writes.
pub const SCHEMA_VERSION: i32 = 1;

/// Tables with data.
const TABLES: [&str; 8] = [
    "member",
    "shard",
    "journal_slot",
    "journal",
    "unit",
    "chunk",
    "part_row",
    "space_row",
];

/// Statement that reads the version.
const READ_VERSION: &str = "SELECT version FROM schema_version WHERE name = 'tideline'";

/// Time for which `schema_version`, `member` and `shard` keep the marks of deleted rows (tombstones), in seconds: one
/// day.
const GC_DAY: u32 = 86_400;
/// The same time for the tables of journals, units and segments: as long as nodes keep writes for a node that is down.
const GC_HINTS: u32 = 10_800;
/// The same time for rows that are changed in place. A node that was down for longer must be repaired before it
/// returns.
const GC_ROWS: u32 = 864_000;

/// Creates the keyspace and its tables, unless they exist. Returns the version. The replication of a keyspace that
/// exists is not changed.
///
/// # Errors
///
/// `Misconfigured` if the name of the keyspace is not allowed, if the user lacks rights, or if the tables have another
/// version. `Unavailable` if the cluster cannot be reached; repeating the call is safe.
pub fn create(options: &CassandraOptions, replication: &Replication) -> Result<i32> {
    check_keyspace(&options.keyspace)?;
    block_on_new(async {
        let session = cluster::connect(options).await?;
        let release = release(&session).await?;
        // The right to create keyspaces is not needed for tables in an existing one.
        if !has_keyspace(&session, &options.keyspace).await? {
            run(&session, &create_keyspace(&options.keyspace, replication)).await?;
        }
        let used = session.use_keyspace(options.keyspace.clone(), false).await;
        used.map_err(|error| of_keyspace(&options.keyspace, &error))?;
        if let Some(found) = version(&session).await? {
            check_version(&options.keyspace, found)?;
        }
        for table in tables(&release) {
            run(&session, &table).await?;
        }
        let mark =
            format!("INSERT INTO schema_version (name, version) VALUES ('tideline', {SCHEMA_VERSION})");
        run(&session, &mark).await?;
        Ok(SCHEMA_VERSION)
    })
}

/// Deletes all rows of all tables. No process may use the keyspace.
///
/// # Errors
///
/// The errors of [`create`].
pub fn empty(options: &CassandraOptions) -> Result<()> {
    check_keyspace(&options.keyspace)?;
    block_on_new(async {
        let session = cluster::connect(options).await?;
        let emptied = TABLES.iter().map(|table| {
            let statement = format!("TRUNCATE {}.{table}", options.keyspace);
            let session = &session;
            async move { run(session, &statement).await }
        });
        try_join_all(emptied).await.map(|_| ())
    })
}

/// Deletes the keyspace with everything in it. A keyspace that does not exist is not an error.
///
/// # Errors
///
/// The errors of [`create`].
pub fn drop(options: &CassandraOptions) -> Result<()> {
    check_keyspace(&options.keyspace)?;
    block_on_new(async {
        let session = cluster::connect(options).await?;
        run(&session, &format!("DROP KEYSPACE IF EXISTS {}", options.keyspace)).await
    })
}

/// Returns true if the cluster has a keyspace. Every user can read the names of keyspaces.
async fn has_keyspace(session: &Session, keyspace: &str) -> Result<bool> {
    // The name has been checked, so it cannot end the text.
    let query =
        format!("SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = '{keyspace}'");
    let answer = session.query_unpaged(query, &[]).await;
    let rows = answer.map_err(|error| Failure::of(&error).error)?;
    let rows = rows.into_rows_result();
    let rows = rows.map_err(|error| unexpected("the read of the keyspaces", error))?;
    Ok(rows.rows_num() > 0)
}

/// Refuses names of keyspaces that would need quotes.
pub(crate) fn check_keyspace(keyspace: &str) -> Result<()> {
    if is_keyspace(keyspace) {
        return Ok(());
    }
    Err(BackendError::Misconfigured {
        reason: format!(
            "{keyspace:?} is no name of a keyspace: use 1 to 48 lower-case letters, digits and _, with a letter first"
        ),
    })
}

/// Returns the version of the tables in the keyspace of the session; `None` if there are no tables.
pub(crate) async fn version(session: &Session) -> Result<Option<i32>> {
    let answer = match session.query_unpaged(READ_VERSION, &[]).await {
        Ok(answer) => answer,
        Err(ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Invalid, _))) => {
            return Ok(None);
        }
        Err(error) => return Err(Failure::of(&error).error),
    };
    let rows = answer.into_rows_result();
    let rows = rows.map_err(|error| unexpected("the read of the schema version", error))?;
    let row = rows.maybe_first_row::<(i32,)>();
    let row = row.map_err(|error| unexpected("the read of the schema version", error))?;
    Ok(row.map(|(version,)| version))
}

/// Refuses tables of another version.
pub(crate) fn check_version(keyspace: &str, found: i32) -> Result<()> {
    if found == SCHEMA_VERSION {
        return Ok(());
    }
    Err(BackendError::Misconfigured {
        reason: format!(
            "the tables in keyspace {keyspace} have version {found}; this build uses version {SCHEMA_VERSION}: run the \
             release that created them, or copy the data to a keyspace of version {SCHEMA_VERSION}"
        ),
    })
}

/// Refuses a keyspace without tables, or with tables of another version.
pub(crate) async fn require(session: &Session, keyspace: &str) -> Result<()> {
    match version(session).await? {
        Some(found) => check_version(keyspace, found),
        None => Err(BackendError::Misconfigured {
            reason: format!(
                "keyspace {keyspace} has no tables of Tideline: create them with `tideline backend schema`"
            ),
        }),
    }
}

/// Returns the release of the node, such as `5.0.9`.
pub(crate) async fn release(session: &Session) -> Result<String> {
    let answer = session
        .query_unpaged("SELECT release_version FROM system.local", &[])
        .await;
    let rows = answer
        .map_err(|error| Failure::of(&error).error)?
        .into_rows_result();
    let rows = rows.map_err(|error| unexpected("the read of the release", error))?;
    let (release,) = rows
        .first_row::<(String,)>()
        .map_err(|error| unexpected("the read of the release", error))?;
    Ok(release)
}

async fn run(session: &Session, statement: &str) -> Result<()> {
    let done = session.query_unpaged(statement, &[]).await;
    done.map(|_| ()).map_err(|error| Failure::of(&error).error)
}

fn create_keyspace(keyspace: &str, replication: &Replication) -> String {
    let options = match replication {
        Replication::Simple(copies) => format!("'class': 'SimpleStrategy', 'replication_factor': {copies}"),
        Replication::DataCenters(centers) => {
            let centers = centers
                .iter()
                .map(|(name, copies)| format!(", '{name}': {copies}"));
            format!(
                "'class': 'NetworkTopologyStrategy'{}",
                centers.collect::<String>()
            )
        }
    };
    format!("CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {{{options}}}")
}

/// Returns the statements that create the tables.
fn tables(release: &str) -> Vec<String> {
    // The unified strategy exists since Cassandra 5; other engines get a strategy that they support.
    let major = release
        .split('.')
        .next()
        .and_then(|major| major.parse::<u32>().ok());
    let (bulk, rows) = match major {
        Some(5..) => (
            "{'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'T4'}",
            "{'class': 'UnifiedCompactionStrategy', 'scaling_parameters': 'L10'}",
        ),
        _ => (
            "{'class': 'SizeTieredCompactionStrategy'}",
            "{'class': 'LeveledCompactionStrategy'}",
        ),
    };
    let few = "{'class': 'LeveledCompactionStrategy'}";
    // Values are already compressed.
    let plain = match major {
        Some(4..) => " AND compression = {'enabled': false}",
        _ => " AND compression = {'sstable_compression': ''}",
    };
    let table = |text: &str, gc: u32, compaction: &str, more: &str| {
        format!(
            "CREATE TABLE IF NOT EXISTS {text} WITH gc_grace_seconds = {gc} AND compaction = {compaction}{more}"
        )
    };
    let rows_of = |name: &str, unit: &str| {
        format!(
            "{name} ({unit}, bucket int, key blob, value blob, PRIMARY KEY (({}, bucket), key))",
            first(unit)
        )
    };
    vec![
        table(
            "schema_version (name text PRIMARY KEY, version int)",
            GC_DAY,
            few,
            "",
        ),
        table(
            "member (cluster int, node uuid, address text, renewals bigint, is_dead boolean, stamp_max bigint, \
             PRIMARY KEY (cluster, node))",
            GC_DAY,
            few,
            "",
        ),
        table(
            "shard (shard int, epoch bigint static, owner uuid static, version bigint static, fence bigint static, \
             stamp_min bigint static, epoch_min bigint static, history_from bigint static, \
             kind tinyint, name blob, detail blob, PRIMARY KEY (shard, kind, name))",
            GC_DAY,
            few,
            "",
        ),
        table(
            "journal_slot (shard int, epoch bigint, slot bigint, last bigint, bytes bigint, written bigint, \
             is_forgotten boolean, PRIMARY KEY (shard, epoch, slot))",
            GC_HINTS,
            few,
            "",
        ),
        table(
            "journal (shard int, epoch bigint, slot bigint, sequence bigint, value blob, \
             PRIMARY KEY ((shard, epoch, slot), sequence))",
            GC_HINTS,
            bulk,
            plain,
        ),
        table(
            "unit (shard int, kind tinyint, id bigint, bucket int, place bigint, tier tinyint, bytes bigint, \
             PRIMARY KEY ((shard, kind), id, bucket))",
            GC_HINTS,
            few,
            "",
        ),
        table(&rows_of("chunk", "segment bigint"), GC_HINTS, bulk, plain),
        table(&rows_of("part_row", "part bigint"), GC_ROWS, rows, plain),
        table(&rows_of("space_row", "space bigint"), GC_ROWS, rows, plain),
    ]
}

/// Returns the name of a column from its definition.
fn first(column: &str) -> &str {
    column.split(' ').next().unwrap_or(column)
}
