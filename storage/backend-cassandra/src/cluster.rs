//! Session with the cluster: prepared statements, repeated requests, counters.
//!
//! The driver repeats no request automatically. Plain requests are idempotent, because a repeated write has the same
//! key, value and timestamp: they are repeated with growing, random pauses until the time limit of the call.
//! Conditional requests are repeated only after responses that report that nothing was done. Reads without conditions
//! can be sent to two nodes, see [`speculation`](crate::speculation).

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use scylla::client::execution_profile::{ExecutionProfile, ExecutionProfileHandle};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::deserialize::row::DeserializeRow;
use scylla::errors::ExecutionError;
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::response::query_result::{QueryResult, QueryRowsResult};
use scylla::response::{PagingState, PagingStateResponse};
use scylla::serialize::batch::BatchValues;
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};
use tideline_backend::{BackendError, ErrorKind, REQUEST_BUCKETS, RequestCounts, Result};
use tokio::runtime::{Builder, Runtime};

use crate::data_center::{self, Location};
use crate::error::{
    Effect, Failure, RETRY_AFTER, no_keyspace, of_connection, of_keyspace, of_preparation, unexpected,
};
use crate::options::CassandraOptions;
use crate::schema::{self, StoredCenter};
use crate::speculation::Speculation;
use crate::tls;
use crate::watch::{self, Watch};

/// Threads that send and receive. The calls wait on their own threads.
const THREADS: usize = 2;
/// First pause before a request is repeated; it doubles with each repetition.
const PAUSE_MIN: Duration = Duration::from_millis(10);
/// Longest pause before a request is repeated.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Timeout of the first connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Number and time of requests.
#[derive(Debug, Default)]
struct Counted {
    done: AtomicU64,
    failed: AtomicU64,
    repeated: AtomicU64,
    micros: AtomicU64,
    times: [AtomicU64; REQUEST_BUCKETS],
}

impl Counted {
    fn read(&self, kind: &'static str) -> RequestCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RequestCounts {
            kind,
            done: read(&self.done),
            failed: read(&self.failed),
            repeated: read(&self.repeated),
            speculative: 0,
            time: Duration::from_micros(read(&self.micros)),
            times: self.times.each_ref().map(read),
        }
    }

    /// Counts an answered request.
    fn answered(&self, time: Duration) {
        self.done.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
        self.times[RequestCounts::bucket_of(time)].fetch_add(1, Ordering::Relaxed);
    }
}

/// Kind of a request. It determines after which failures the request is repeated, and which counters count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Read,
    Write,
    Conditional,
}

/// Connection to a cluster, with its threads.
pub(crate) struct Cluster {
    runtime: Option<Runtime>,
    session: Arc<Session>,
    pub(crate) options: CassandraOptions,
    pub(crate) location: Location,
    /// False until it is known that the keyspace stores the data center of this process.
    is_center_stored: AtomicBool,
    watch: Arc<Watch>,
    reads: Counted,
    writes: Counted,
    conditional: Counted,
    speculation: Arc<Speculation>,
    /// Profile of reads that can be sent twice.
    read_profile: ExecutionProfileHandle,
    /// Time since which every request has failed, and the last failure. `None` after an answer.
    failing: Mutex<Option<(Instant, String)>>,
}

impl Cluster {
    /// Connects to the cluster, and checks the data center, the version of the tables, and the durability.
    pub(crate) fn open(options: CassandraOptions) -> Result<Self> {
        schema::check_keyspace(&options.keyspace)?;
        let runtime = runtime()?;
        let (session, location, stored, (watch, nodes)) = runtime.block_on(async {
            let session = connect(&options).await?;
            let used = session.use_keyspace(options.keyspace.clone(), false).await;
            used.map_err(|error| of_keyspace(&options.keyspace, &error))?;
            let location = locate(&session, &options).await?;
            let stored = schema::require(&session, &options.keyspace).await?.center;
            stored.check(&options.keyspace, &location.center)?;
            let watch = Watch::begin(&session, &options, &location).await?;
            Ok::<_, BackendError>((Arc::new(session), location, stored, watch))
        })?;
        if stored == StoredCenter::NoColumn {
            tracing::warn!(
                keyspace = options.keyspace,
                "the keyspace cannot store its data center; run `tideline backend schema` again"
            );
        }
        let watch = Arc::new(watch);
        runtime.spawn(watch::run(
            Arc::clone(&session),
            options.clone(),
            location.clone(),
            Arc::clone(&watch),
            nodes,
        ));
        let speculation = Arc::new(Speculation::new());
        let read_profile = session
            .get_default_execution_profile_handle()
            .pointee_to_builder();
        let read_profile = read_profile.speculative_execution_policy(Some(Arc::clone(&speculation) as _));
        Ok(Self {
            runtime: Some(runtime),
            session,
            speculation,
            read_profile: read_profile.build().into_handle(),
            options,
            location,
            is_center_stored: AtomicBool::new(matches!(stored, StoredCenter::Named(_))),
            watch,
            reads: Counted::default(),
            writes: Counted::default(),
            conditional: Counted::default(),
            failing: Mutex::new(None),
        })
    }

    /// Runs a future to its end. The calling thread waits.
    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let runtime = self.runtime.as_ref().expect("the threads end with the value");
        runtime.block_on(future)
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Stores the data center of this process in the keyspace, unless the keyspace stores one, or has no column for it.
    /// Refuses another one.
    pub(crate) fn store_center(&self) -> Result<()> {
        if self.is_center_stored.load(Ordering::Acquire) {
            return Ok(());
        }
        let (keyspace, center) = (&self.options.keyspace, &self.location.center);
        let is_stored = self.block_on(schema::store_center(&self.session, keyspace, center))?;
        self.is_center_stored.store(is_stored, Ordering::Release);
        Ok(())
    }

    pub(crate) fn counts(&self) -> [RequestCounts; 3] {
        [
            RequestCounts {
                speculative: self.speculation.sent(),
                ..self.reads.read("read")
            },
            self.writes.read("write"),
            self.conditional.read("conditional"),
        ]
    }

    /// Returns the time for which every request has failed, and the last reason; `None` if the last request was
    /// answered.
    pub(crate) fn failing(&self) -> Option<(Duration, String)> {
        let failing = self.failing.lock();
        failing
            .as_ref()
            .map(|(since, reason)| (since.elapsed(), reason.clone()))
    }

    /// Prepares a statement.
    pub(crate) async fn prepare(&self, text: &str) -> Result<PreparedStatement> {
        let prepared = self.session.prepare(text).await;
        prepared.map_err(|error| of_preparation(&self.options, &error))
    }

    /// Prepares a read without conditions. The read is sent to a second node if the first one does not answer in the
    /// usual time.
    pub(crate) async fn prepare_read(&self, text: &str) -> Result<PreparedStatement> {
        let mut prepared = self.prepare(text).await?;
        prepared.set_is_idempotent(true);
        prepared.set_execution_profile_handle(Some(self.read_profile.clone()));
        prepared.set_history_listener(Arc::clone(&self.speculation) as _);
        Ok(prepared)
    }

    /// Prepares a read of conditional rows, which sees every earlier conditional write.
    pub(crate) async fn prepare_serial(&self, text: &str) -> Result<PreparedStatement> {
        let mut prepared = self.prepare(text).await?;
        prepared.set_consistency(Consistency::LocalSerial);
        Ok(prepared)
    }

    /// Runs one statement, and repeats it as its kind allows.
    pub(crate) async fn execute(
        &self,
        kind: RequestKind,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<QueryResult> {
        let values = &values;
        self.repeat(kind, || self.session.execute_unpaged(statement, values))
            .await
    }

    /// Runs a read, and returns its rows.
    pub(crate) async fn rows(
        &self,
        kind: RequestKind,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<QueryRowsResult> {
        let answer = self.execute(kind, statement, values).await?;
        answer
            .into_rows_result()
            .map_err(|error| unexpected("a read", error))
    }

    /// Runs a read, and returns one page of its rows.
    pub(crate) async fn page(
        &self,
        kind: RequestKind,
        statement: &PreparedStatement,
        values: impl SerializeRow,
        state: PagingState,
    ) -> Result<(QueryRowsResult, PagingStateResponse)> {
        let values = &values;
        let send = || self.session.execute_single_page(statement, values, state.clone());
        let (answer, next) = self.repeat(kind, send).await?;
        let rows = answer.into_rows_result();
        Ok((rows.map_err(|error| unexpected("a read", error))?, next))
    }

    /// Runs a read, and passes its rows to `visit`, page by page.
    pub(crate) async fn each_row<R>(
        &self,
        kind: RequestKind,
        statement: &PreparedStatement,
        values: impl SerializeRow,
        mut visit: impl FnMut(R) -> Result<()>,
    ) -> Result<()>
    where
        R: for<'frame> DeserializeRow<'frame, 'frame>,
    {
        let values = &values;
        let mut state = PagingState::start();
        loop {
            let (page, next) = self.page(kind, statement, values, state).await?;
            for row in page.rows::<R>().map_err(|error| unexpected("a read", error))? {
                visit(row.map_err(|error| unexpected("a read", error))?)?;
            }
            match next {
                PagingStateResponse::HasMorePages { state: more } => state = more,
                PagingStateResponse::NoMorePages => return Ok(()),
            }
        }
    }

    /// Runs statements of one partition as one write.
    pub(crate) async fn batch(
        &self,
        kind: RequestKind,
        batch: &Batch,
        values: impl BatchValues,
    ) -> Result<QueryResult> {
        let values = &values;
        self.repeat(kind, || self.session.batch(batch, values)).await
    }

    async fn repeat<T, F>(&self, kind: RequestKind, mut send: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, ExecutionError>>,
    {
        let counted = match kind {
            RequestKind::Read => &self.reads,
            RequestKind::Write => &self.writes,
            RequestKind::Conditional => &self.conditional,
        };
        let begun = Instant::now();
        let mut pause = PAUSE_MIN;
        loop {
            let sent = Instant::now();
            let left = self.options.call_timeout.saturating_sub(begun.elapsed());
            let answered = tokio::time::timeout(left, send()).await;
            let failure = match answered.unwrap_or(Err(ExecutionError::RequestTimeout(left))) {
                Ok(answer) => {
                    counted.answered(sent.elapsed());
                    *self.failing.lock() = None;
                    return Ok(answer);
                }
                Err(error) => Failure::of(&error),
            };
            self.note(sent, &failure);
            let may_repeat = match failure.effect {
                Effect::NotDone => true,
                Effect::Unknown => kind != RequestKind::Conditional,
                Effect::Final => false,
            };
            if !may_repeat || begun.elapsed() + pause >= self.options.call_timeout {
                // A scan that met too many deleted rows is repeated in smaller parts.
                let counter = match failure.error.kind() {
                    ErrorKind::TooManyDead => &counted.repeated,
                    _ => &counted.failed,
                };
                counter.fetch_add(1, Ordering::Relaxed);
                return Err(Self::failed(kind, failure));
            }
            counted.repeated.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(jittered(pause)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Records the failure of a request. `sent` is the time at which the request was sent.
    fn note(&self, sent: Instant, failure: &Failure) {
        let mut failing = self.failing.lock();
        *failing = match failure.effect {
            // A request that a node refuses has been answered.
            Effect::Final => None,
            _ => {
                let since = failing.as_ref().map_or(sent, |(since, _)| *since);
                Some((since, failure.error.to_string()))
            }
        };
    }

    /// Returns the error of a call. A conditional write of unknown effect has a separate error kind.
    fn failed(kind: RequestKind, failure: Failure) -> BackendError {
        match (kind, failure.effect) {
            (RequestKind::Conditional, Effect::Unknown) => BackendError::Unknown {
                reason: failure.error.to_string(),
            },
            _ => failure.error,
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // A runtime that waits for its threads must not be dropped on a thread of another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Returns true if the condition of a statement was fulfilled, as the first column of the result reports. The other
/// columns depend on the outcome.
pub(crate) fn is_applied(result: QueryResult) -> Result<bool> {
    use scylla::value::{CqlValue, Row};
    let unexpected = |error: &dyn std::fmt::Display| unexpected("a conditional write", error);
    let rows = result.into_rows_result().map_err(|error| unexpected(&error))?;
    let row = rows.first_row::<Row>().map_err(|error| unexpected(&error))?;
    match row.columns.first() {
        Some(Some(CqlValue::Boolean(is_applied))) => Ok(*is_applied),
        other => Err(unexpected(&format_args!("its first column is {other:?}"))),
    }
}

/// Returns an empty batch for rows of one partition, which is then written as a whole.
pub(crate) fn one_partition(timestamp: Option<i64>) -> Batch {
    let mut batch = Batch::new(BatchType::Unlogged);
    batch.set_timestamp(timestamp);
    batch
}

/// Determines the data center of a keyspace, and restricts the session to its nodes.
async fn locate(session: &Session, options: &CassandraOptions) -> Result<Location> {
    let keyspace = &options.keyspace;
    let copies = data_center::copies(session, keyspace).await?;
    let copies = copies.ok_or_else(|| no_keyspace(keyspace))?;
    let nodes = data_center::counts(session);
    let center = data_center::choose(options.data_center.as_deref(), keyspace, &nodes, &copies)?;
    if let Some(reason) = copies.missing_quorum(&center, &nodes) {
        return Err(data_center::too_few_nodes(keyspace, &reason));
    }
    let location = Location { center, copies };
    data_center::pin(session, &location);
    Ok(location)
}

/// Connects to the cluster, without a keyspace and to the nodes of all data centers.
pub(crate) async fn connect(options: &CassandraOptions) -> Result<Session> {
    let profile = ExecutionProfile::builder()
        .consistency(Consistency::LocalQuorum)
        .serial_consistency(Some(SerialConsistency::LocalSerial))
        .request_timeout(Some(options.request_timeout))
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .build();
    let mut builder = SessionBuilder::new()
        .known_nodes(&options.contact)
        .default_execution_profile_handle(profile.into_handle())
        .connection_timeout(CONNECT_TIMEOUT)
        .keyspaces_to_fetch([options.keyspace.clone()])
        .tcp_nodelay(true);
    if let Some(user) = &options.user {
        builder = builder.user(user, options.password.as_deref().unwrap_or_default());
    }
    if options.is_tls {
        builder = tls::encrypted(builder, options.ca_file.as_deref())?;
    }
    builder
        .build()
        .await
        .map_err(|error| of_connection(options, &error))
}

/// Runs a future on separate threads.
pub(crate) fn block_on_new<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = runtime()?;
    let outcome = runtime.block_on(future);
    runtime.shutdown_background();
    outcome
}

fn runtime() -> Result<Runtime> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("cassandra")
        .enable_all()
        .build();
    runtime.map_err(|error| BackendError::Unavailable {
        reason: format!("cannot start threads: {error}"),
        retry_after: RETRY_AFTER,
    })
}

/// Returns a random part of a pause, at least half of it, so that callers that failed at the same time do not retry at
/// the same time.
fn jittered(pause: Duration) -> Duration {
    let random = uuid::Uuid::new_v4().as_u128() as u64;
    pause / 2 + pause.mul_f64(random as f64 / u64::MAX as f64) / 2
}
