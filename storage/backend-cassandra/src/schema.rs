//! Tables of a keyspace, their version, and their creation.
//!
//! Servers never create or change tables: an operator runs `tideline backend schema` once. Changes of tables by several
//! processes at a time can leave a cluster with two versions of a table.
//!
//! | table | partition | rows | written |
//! |---|---|---|---|
//! | `schema_version` | name | version of these tables; name of the data center | once |
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
use scylla::response::query_result::QueryResult;
use scylla::statement::unprepared::Statement;
use scylla::statement::{Consistency, SerialConsistency};
use scylla::value::{CqlValue, Row};
use tideline_backend::{BackendError, Result};

use crate::cluster::{self, block_on_new};
use crate::data_center::{self, Copies, Location};
use crate::error::{Failure, of_keyspace, unexpected};
use crate::options::{CassandraOptions, Replication, is_keyspace};

/// Version of the tables that this build reads and writes.
pub const SCHEMA_VERSION: i32 = 1;

/// Tables with data.
pub(crate) const TABLES: [&str; 8] = [
    "member",
    "shard",
    "journal_slot",
    "journal",
    "unit",
    "chunk",
    "part_row",
    "space_row",
];

/// Statement that reads the version and the data center.
const READ_MARK: &str = "SELECT version, data_center FROM schema_version WHERE name = 'tideline'";
/// Statement that reads the version. Keyspaces of earlier builds have no column for the data center.
const READ_VERSION: &str = "SELECT version FROM schema_version WHERE name = 'tideline'";
/// Statement that adds the column to a keyspace of an earlier build.
const ADD_DATA_CENTER: &str = "ALTER TABLE schema_version ADD data_center text";

/// Time for which `schema_version`, `member` and `shard` keep the marks of deleted rows (tombstones), in seconds: one
/// day.
const GC_DAY: u32 = 86_400;
/// The same time for the tables of journals, units and segments: as long as nodes keep writes for a node that is down.
const GC_HINTS: u32 = 10_800;
/// The same time for rows that are changed in place. A node that was down for longer must be repaired before it
/// returns.
const GC_ROWS: u32 = 864_000;

/// Data center in the row of the version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoredCenter {
    /// The table has no column for it.
    NoColumn,
    /// None is stored yet.
    Empty,
    /// Name of the data center.
    Named(String),
}

impl StoredCenter {
    /// Refuses a process that uses another data center than the keyspace.
    pub(crate) fn check(&self, keyspace: &str, own: &str) -> Result<()> {
        match self {
            Self::Named(stored) if stored != own => Err(BackendError::Misconfigured {
                reason: format!(
                    "the owner of the data in keyspace {keyspace} is chosen in data center {stored:?}, and this \
                     process uses {own:?}: set cassandra.data_center to {stored:?}. To change the data center, stop \
                     all servers, make the copies in {own:?} complete (`nodetool rebuild`), and run UPDATE \
                     {keyspace}.schema_version SET data_center = null WHERE name = 'tideline' IF EXISTS"
                ),
            }),
            _ => Ok(()),
        }
    }
}

/// Row of the version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) version: i32,
    pub(crate) center: StoredCenter,
}

/// Creates the keyspace and its tables, unless they exist, and stores the data center. Returns the version. The
/// replication of a keyspace that exists is not changed.
///
/// # Errors
///
/// `Misconfigured` if the name of the keyspace is not allowed, if the user lacks rights, if the keyspace exists with
/// another replication, if the data center is not clear, if it has too few nodes for a quorum of the copies, or if the
/// tables have another version. `Unavailable` if the cluster cannot be reached; repeating the call is safe.
pub fn create(options: &CassandraOptions, replication: &Replication) -> Result<i32> {
    check_keyspace(&options.keyspace)?;
    block_on_new(async {
        let session = cluster::connect(options).await?;
        let release = release(&session).await?;
        let keyspace = &options.keyspace;
        let location = create_keyspace(&session, options, replication).await?;
        data_center::pin(&session, &location);
        let used = session.use_keyspace(keyspace.clone(), false).await;
        used.map_err(|error| of_keyspace(keyspace, &error))?;
        if let Some(found) = mark(&session).await? {
            check_version(keyspace, found.version)?;
            found.center.check(keyspace, &location.center)?;
        }
        for table in tables(&release) {
            run(&session, &table).await?;
        }
        let mark =
            format!("INSERT INTO schema_version (name, version) VALUES ('tideline', {SCHEMA_VERSION})");
        run(&session, &mark).await?;
        if !store_center(&session, keyspace, &location.center).await? {
            run(&session, ADD_DATA_CENTER).await?;
            if !store_center(&session, keyspace, &location.center).await? {
                return Err(unexpected(
                    "the write of the data center",
                    "schema_version has no column data_center",
                ));
            }
        }
        Ok(SCHEMA_VERSION)
    })
}

/// Creates the keyspace unless it exists. Refuses a replication that cannot work, or that differs from the existing
/// one.
async fn create_keyspace(
    session: &Session,
    options: &CassandraOptions,
    replication: &Replication,
) -> Result<Location> {
    let (keyspace, requested) = (&options.keyspace, Copies::from(replication));
    let nodes = data_center::counts(session);
    let existing = data_center::copies(session, keyspace).await?;
    if let Some(existing) = &existing
        && !matches!(existing, Copies::Unknown(_))
        && !existing.is_as(&requested)
    {
        return Err(BackendError::Misconfigured {
            reason: format!(
                "keyspace {keyspace} exists with the replication {existing}, and --replication requests {requested}. \
                 To keep it, request the existing copies. To change it, run ALTER KEYSPACE {keyspace} WITH replication = \
                 {requested}, then `nodetool repair --full` on every node; if it has no data yet, DROP KEYSPACE \
                 {keyspace} is enough"
            ),
        });
    }
    let is_new = existing.is_none();
    let copies = existing.unwrap_or(requested);
    if is_new
        && matches!(copies, Copies::Simple(_))
        && let (Some(first), 2..) = (nodes.keys().next(), nodes.len())
    {
        return Err(BackendError::Misconfigured {
            reason: format!(
                "the cluster has several data centers, {:?}: name one with --replication, such as {first}:3, and set \
                 cassandra.data_center to it",
                nodes.keys()
            ),
        });
    }
    let center = data_center::choose(options.data_center.as_deref(), keyspace, &nodes, &copies)?;
    match copies.missing_quorum(&center, &nodes) {
        Some(reason) if is_new => {
            return Err(BackendError::Misconfigured {
                reason: format!("{reason}: request fewer copies with --replication, or add nodes first"),
            });
        }
        Some(reason) => return Err(data_center::too_few_nodes(keyspace, &reason)),
        None => {}
    }
    // The right to create keyspaces is not needed for tables in an existing one.
    if is_new {
        let create = format!("CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {copies}");
        run(session, &create).await?;
    }
    Ok(Location { center, copies })
}

/// Stores the data center in the row of the version, unless one is stored. Refuses another one. Returns false if the
/// table has no column for it.
///
/// Nodes of all data centers take part in this conditional write, so that two of them cannot both succeed.
pub(crate) async fn store_center(session: &Session, keyspace: &str, center: &str) -> Result<bool> {
    let quoted = center.replace('\'', "''");
    let mut statement = Statement::new(format!(
        "UPDATE schema_version SET data_center = '{quoted}' WHERE name = 'tideline' IF data_center = null"
    ));
    statement.set_consistency(Consistency::Quorum);
    statement.set_serial_consistency(Some(SerialConsistency::Serial));
    let Some(answer) = unless_invalid(session, statement).await? else {
        return Ok(false);
    };
    let rows = answer.into_rows_result();
    let unreadable = |error: &dyn std::fmt::Display| unexpected("the write of the data center", error);
    let rows = rows.map_err(|error| unreadable(&error))?;
    let row = rows.first_row::<Row>().map_err(|error| unreadable(&error))?;
    // The condition is first, and after a refusal the stored name follows.
    match row.columns.as_slice() {
        [Some(CqlValue::Boolean(true)), ..] => Ok(true),
        [Some(CqlValue::Boolean(false)), Some(CqlValue::Text(stored)), ..] => {
            let stored = StoredCenter::Named(stored.clone());
            stored.check(keyspace, center).map(|()| true)
        }
        other => Err(unreadable(&format_args!("its columns are {other:?}"))),
    }
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

/// Returns the version and the data center of the keyspace of the session; `None` if there are no tables.
pub(crate) async fn mark(session: &Session) -> Result<Option<Mark>> {
    let unreadable = |error: &dyn std::fmt::Display| unexpected("the read of the schema version", error);
    if let Some(answer) = unless_invalid(session, READ_MARK).await? {
        let rows = answer.into_rows_result().map_err(|error| unreadable(&error))?;
        let row = rows.maybe_first_row::<(i32, Option<String>)>();
        let row = row.map_err(|error| unreadable(&error))?;
        return Ok(row.map(|(version, center)| Mark {
            version,
            center: center.map_or(StoredCenter::Empty, StoredCenter::Named),
        }));
    }
    let Some(answer) = unless_invalid(session, READ_VERSION).await? else {
        return Ok(None);
    };
    let rows = answer.into_rows_result().map_err(|error| unreadable(&error))?;
    let row = rows.maybe_first_row::<(i32,)>();
    let row = row.map_err(|error| unreadable(&error))?;
    Ok(row.map(|(version,)| Mark {
        version,
        center: StoredCenter::NoColumn,
    }))
}

/// Runs a query; `None` if its table or a column does not exist.
async fn unless_invalid(session: &Session, query: impl Into<Statement>) -> Result<Option<QueryResult>> {
    match session.query_unpaged(query, &[]).await {
        Ok(answer) => Ok(Some(answer)),
        Err(ExecutionError::LastAttemptError(RequestAttemptError::DbError(DbError::Invalid, _))) => Ok(None),
        Err(error) => Err(Failure::of(&error).error),
    }
}

/// Refuses tables of another version.
pub(crate) fn check_version(keyspace: &str, found: i32) -> Result<()> {
    if found == SCHEMA_VERSION {
        return Ok(());
    }
    let move_data = match found < SCHEMA_VERSION {
        true => {
            ". To move the data, copy it with that release into a data folder (`tideline backend copy --to fjall`), \
             and with this build into a new keyspace (`tideline backend schema`, `tideline backend copy --to cassandra`)"
        }
        false => " or a newer one",
    };
    Err(BackendError::Misconfigured {
        reason: format!(
            "the tables in keyspace {keyspace} have version {found}; this build uses version {SCHEMA_VERSION}: run the \
             release that created them{move_data}"
        ),
    })
}

/// Refuses a keyspace without tables, or with tables of another version.
pub(crate) async fn require(session: &Session, keyspace: &str) -> Result<Mark> {
    match mark(session).await? {
        Some(found) => check_version(keyspace, found.version).map(|()| found),
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
            "schema_version (name text PRIMARY KEY, version int, data_center text)",
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
