//! Grants: the state of the service for a handler, with an engine that reaches only the tables that the request may
//! use.
//!
//! A handler without a [`Grant`] cannot access a table: the engine of the service is private, and a grant is
//! created only for a request whose token has a role for the route. The engine of a grant checks the scope of
//! the token whenever a table is found by its name.

use std::ops::Deref;
use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::Method;
use axum::http::request::Parts;
use tideline_access::{Access, Action, Principal};
use tideline_change_stream::{name_in_use, no_stream};
use tideline_connections::{Permit, Permits};
use tideline_engine::find::Stop;
use tideline_engine::model::{JobKind, TableModel, TableName};
use tideline_engine::{Engine, EngineError, Table};
use tideline_openapi::ErrorCode;
use tideline_query::{Budget, Cancel, Querier};
use tideline_scheduler::{Job, SchedulerError};

use crate::app::{App, Waiting, blocking, stoppable};
use crate::context::current_client;
use crate::failure::{Failure, Result};
use crate::guard::{Observation, UNNAMED_TENANT};

/// Error of a failed job whose target table is not in the scope of the token.
const HIDDEN_ERROR: &str = "the job failed; a token with the target table in its scope reads the reason";

/// Text in the outcome of a copy before the reason for which the target has refused a row.
pub(crate) const FIRST_REFUSAL: &str = ", the first: ";

/// Originator of a request, and the action that the route declares. `guard` stores it in the request.
#[derive(Debug, Clone)]
pub(crate) struct Granted {
    pub(crate) principal: Arc<Principal>,
    /// `None` for a route that decides by the content of the request, such as `/v1/sql`.
    pub(crate) access: Option<Access>,
}

/// State of the service for one request, restricted to the permissions of its principal.
#[derive(Debug, Clone)]
pub(crate) struct Grant {
    app: App,
    pub(crate) access: Access,
    /// The engine, restricted to tables that the principal may use.
    pub(crate) engine: Arc<Engine>,
    /// The querier of this engine.
    pub(crate) querier: Querier,
    observation: Observation,
}

/// State of the service for a request whose action depends on its content.
#[derive(Debug, Clone)]
pub(crate) struct Requester {
    app: App,
    pub(crate) principal: Arc<Principal>,
    observation: Observation,
}

impl Deref for Grant {
    type Target = App;

    fn deref(&self) -> &App {
        &self.app
    }
}

impl Deref for Requester {
    type Target = App;

    fn deref(&self) -> &App {
        &self.app
    }
}

impl FromRequestParts<App> for Grant {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let access = granted(parts)?.access.clone();
        let grant = Self {
            observation: parts.extensions.get().cloned().unwrap_or_default(),
            ..Self::new(app, access.ok_or_else(undeclared)?)
        };
        grant.check_path(parts).await?;
        Ok(grant)
    }
}

impl FromRequestParts<App> for Requester {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        Ok(Self {
            app: app.clone(),
            principal: Arc::clone(&granted(parts)?.principal),
            observation: parts.extensions.get().cloned().unwrap_or_default(),
        })
    }
}

/// Returns the name of the default table, for a request that does not name a table.
pub(crate) fn default_table(parts: &Parts) -> &str {
    let granted: Option<&Granted> = parts.extensions.get();
    granted.map_or(TableName::DEFAULT, |granted| granted.principal.default_table())
}

fn granted(parts: &Parts) -> Result<&Granted> {
    parts.extensions.get().ok_or_else(undeclared)
}

/// Returns the error of a route that declares no action. Tests check that no such route exists.
fn undeclared() -> Failure {
    tracing::error!("a route declares no action");
    Failure::new(ErrorCode::Internal, "internal error")
}

impl Requester {
    /// Returns the grant for an action.
    ///
    /// # Errors
    ///
    /// Fails if the request names no tenant although its token needs one, if no role of the principal allows the action,
    /// or, for a write, if the budget of its tenant is used up.
    pub(crate) fn grant(&self, action: Action) -> Result<Grant> {
        match action {
            Action::Write => self.grant_in_budget(Action::Write, false),
            action => self.grant_without_budget(action),
        }
    }

    /// Returns the grant for an action that stores data or, if `only_removes` is true, only removes data. Checks
    /// the budgets of the tenant.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`grant`](Self::grant).
    pub(crate) fn grant_in_budget(&self, action: Action, only_removes: bool) -> Result<Grant> {
        let grant = self.grant_without_budget(action)?;
        if let Some(tenant) = self.principal.tenant() {
            tenant.check_writes(self.service_engine().clock().monotonic(), only_removes)?;
        }
        Ok(grant)
    }

    fn grant_without_budget(&self, action: Action) -> Result<Grant> {
        if self.principal.needs_tenant() {
            return Err(Failure::invalid(UNNAMED_TENANT));
        }
        Ok(Grant {
            observation: self.observation.clone(),
            ..Grant::new(&self.app, Access::new(&self.principal, action)?)
        })
    }

    /// Sets the description of the change that the request makes; see [`Grant::note_change`].
    pub(crate) fn note_change(&self, change: String) {
        self.observation.set_change(change);
    }

    /// Returns the grant for the strongest action that the token allows: operate, write or read. Agents list
    /// databases and send `CREATE DATABASE` with a token that may only write; with the grant for such a token,
    /// the engine refuses to create a table.
    ///
    /// # Errors
    ///
    /// Fails if the request names no tenant although its token needs one, or if no role of the token allows any
    /// of these actions.
    pub(crate) fn strongest_grant(&self) -> Result<Grant> {
        let allowed = |action: &Action| Access::new(&self.principal, *action).is_ok();
        let strongest = [Action::Operate, Action::Write].into_iter().find(allowed);
        // These requests list and create databases; they write no points, so budgets are not checked.
        self.grant_without_budget(strongest.unwrap_or(Action::Read))
    }
}

impl Grant {
    fn new(app: &App, access: Access) -> Self {
        let engine = Arc::new(app.service_engine().with_access(access.clone()));
        Self {
            querier: app.querier.with_engine(Arc::clone(&engine)),
            observation: Observation::default(),
            engine,
            app: app.clone(),
            access,
        }
    }

    /// Checks the objects that the path names: a table, a change stream, a job. Handlers find tables through the
    /// engine, which checks the table again; the engine does not check the other objects. An object that the
    /// principal may not see is reported as if it did not exist. For a table, only its name is compared with the
    /// scope, whether it exists or not; for the users of a feed table, the name of the feed table.
    async fn check_path(&self, parts: &mut Parts) -> Result<()> {
        if self.access.principal().scope().is_everything() {
            return Ok(());
        }
        // The handler reports a path that cannot be read.
        let Ok(parameters) = RawPathParams::from_request_parts(parts, &()).await else {
            return Ok(());
        };
        for (name, value) in &parameters {
            match name {
                "table" => {
                    let owner = self.engine.owner_of_users(value);
                    let checked = owner.as_ref().map_or(value, TableName::as_str);
                    if self.access.check_table(checked).is_err() {
                        return Err(self.access.denied(value).into());
                    }
                }
                "stream" => {
                    let names_more = parameters.iter().count() > 1;
                    match parts.method {
                        // The records are restricted to those that the principal may read.
                        Method::GET | Method::HEAD if !names_more => self.check_reads_stream(value)?,
                        // The request can create the stream.
                        Method::PUT if !names_more => self.check_stream(value, true)?,
                        _ => self.check_stream(value, false)?,
                    }
                }
                "job" if !parts.uri.path().contains("/metrics/job/") => {
                    let number = value.parse().unwrap_or_default();
                    if self.scheduler.job(number).is_some_and(|job| !self.sees_job(&job)) {
                        return Err(SchedulerError::NoSuchJob(number).into());
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks that the principal may use a change stream, that is, that the scope includes all tables of the
    /// stream. Always succeeds for a principal without a scope; the operation then reports a stream that does not
    /// exist.
    ///
    /// # Errors
    ///
    /// Fails with the error of a missing stream if a table is not in the scope, or if the stream does not exist. If
    /// `may_be_new` is true, a stream that does not exist is allowed, and an existing stream with a table that is not in
    /// the scope is a conflict of names.
    pub(crate) fn check_stream(&self, name: &str, may_be_new: bool) -> Result<()> {
        if self.access.principal().scope().is_everything() {
            return Ok(());
        }
        match self.change_streams.tables_of(name) {
            Some(tables) if self.access.check_patterns(&tables).is_ok() => Ok(()),
            Some(_) if may_be_new => Err(name_in_use(name).into()),
            None if may_be_new => Ok(()),
            _ => Err(no_stream(name).into()),
        }
    }

    /// Checks that the principal may read a change stream with a cursor of its own, that is, that the scope includes the
    /// names of all tables of the stream. The changes of other models and timelines are then omitted.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`check_stream`](Self::check_stream) for a stream that exists.
    pub(crate) fn check_reads_stream(&self, name: &str) -> Result<()> {
        if self.access.principal().scope().is_everything() {
            return Ok(());
        }
        match self.change_streams.tables_of(name) {
            Some(tables) if self.has_names(&tables) => Ok(()),
            _ => Err(no_stream(name).into()),
        }
    }

    /// Checks that the principal may create a change stream of these tables, or give them to an existing one. The scope
    /// must include the names, because another table can have the name later. For the users of a feed table, it must
    /// also include that table.
    ///
    /// # Errors
    ///
    /// Fails with the refusal of the first table that is not in the scope.
    pub(crate) fn check_stream_tables(&self, tables: &[String]) -> Result<()> {
        self.access.check_patterns(tables)?;
        for table in tables {
            if let Some(owner) = self.engine.owner_of_users(table)
                && self.access.check_table(owner.as_str()).is_err()
            {
                return Err(self.access.denied(table).into());
            }
        }
        Ok(())
    }

    /// Returns true if the scope includes the names of all tables of a change stream. The users of a feed table belong to
    /// that table.
    pub(crate) fn has_names(&self, tables: &[String]) -> bool {
        // A table of users can have got the name after the stream was created.
        if self.access.check_names(tables).is_ok() {
            return true;
        }
        let owner = |table: &String| match self.engine.owner_of_users(table) {
            Some(owner) => owner.to_string(),
            None => table.clone(),
        };
        let owners: Vec<String> = tables.iter().map(owner).collect();
        self.access.check_names(&owners).is_ok()
    }

    /// Sets the description of the change for its audit record. Used by handlers whose path does not name the
    /// changed object. Called before the change, and again after it if the changed object is known only then. An
    /// empty description means that the request has changed nothing.
    pub(crate) fn note_change(&self, change: String) {
        self.observation.set_change(change);
    }

    /// Sets the text of the audit record that describes what the request changes, see
    /// [`audit_detail`](crate::audit_detail). Called before the change if possible, because the client can disconnect
    /// during the change. The text must not contain secrets.
    pub(crate) fn note_detail(&self, detail: String) {
        self.observation.set_detail(detail);
    }

    /// Returns true if the principal may see the jobs, queries and archive of a table. The table may have been
    /// dropped meanwhile. The model of a dropped table is not known, so a principal that may use only some models does
    /// not see it.
    pub(crate) fn sees_table(&self, table: &str) -> bool {
        match self.engine.table_of_any_model(table) {
            Ok(_) => true,
            Err(EngineError::Denied(_)) => false,
            Err(_) => self.engine.has_all_models(),
        }
    }

    /// Returns true if the principal may see a job. A job without a table applies to all tables.
    pub(crate) fn sees_job(&self, job: &Job) -> bool {
        let Some(table) = &job.table else {
            return self.access.check_all().is_ok();
        };
        // A new table can have the name of a dropped one, and another model.
        let is_same = || {
            let found = self.engine.table_of_any_model(&table.name);
            found.is_ok_and(|found| found.points().id() == table.id)
        };
        self.sees_table(&table.name) && (self.engine.has_all_models() || is_same())
    }

    /// Removes from a job what describes its target table, unless the principal may see this table.
    pub(crate) fn shown(&self, mut job: Job) -> Job {
        if self.access.check_all().is_ok() {
            return job;
        }
        let copies = matches!(job.kind, JobKind::Rekey | JobKind::Restore);
        if job.into.as_ref().is_some_and(|into| !self.sees_table(into)) {
            job.into = None;
            // The text can contain the name and the settings of the target.
            job.error = job.error.map(|_| HIDDEN_ERROR.to_owned());
            // The reason of the first refusal names columns of the target.
            if let Some(outcome) = &mut job.outcome
                && let Some(cut) = outcome.find(FIRST_REFUSAL)
            {
                outcome.truncate(cut);
            }
        } else if job.into.is_none() && copies {
            // The reason of a job of an earlier build contains the name of the target.
            let marks = [" into table ", " in table "];
            if let Some(cut) = marks.iter().find_map(|mark| job.reason.find(*mark)) {
                job.reason.truncate(cut);
            }
        }
        job
    }

    /// Returns false if the token has expired or was revoked since the request began. Long-running responses check
    /// this repeatedly.
    pub(crate) fn is_valid(&self) -> bool {
        self.access.principal().is_valid(self.engine.clock().now())
    }

    /// Checks that the token is still valid, for a request that has waited.
    ///
    /// # Errors
    ///
    /// Fails with [`ErrorCode::Unauthenticated`] if the token has expired or was revoked.
    pub(crate) fn check_valid(&self) -> Result<()> {
        self.app.check_valid(self.access.principal())
    }

    /// Waits for a permit. Writes use this function, so that a write does not begin if its token was revoked during
    /// the wait.
    ///
    /// # Errors
    ///
    /// Fails if no permit becomes free in time, or if the token has expired or was revoked during the wait.
    pub(crate) async fn permit(&self, permits: &Permits) -> Result<Permit> {
        let permit = permits.take(current_client()).await?;
        self.check_valid()?;
        Ok(permit)
    }

    /// Waits for a query permit and runs a read of the engine on a blocking thread.
    pub(crate) async fn read<T, F>(&self, call: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Engine) -> Result<T> + Send + 'static,
    {
        self.with_permit(&self.queries, call).await
    }

    /// Waits for a permit for changes and runs a change of the engine, other than a write of points, on a
    /// blocking thread.
    pub(crate) async fn change<T, F>(&self, call: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Engine) -> Result<T> + Send + 'static,
    {
        self.with_permit(&self.changes, call).await
    }

    async fn with_permit<T, F>(&self, permits: &Permits, call: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Engine) -> Result<T> + Send + 'static,
    {
        let permit = self.permit(permits).await?;
        let engine = Arc::clone(&self.engine);
        blocking(move || {
            let _permit = permit;
            call(&engine)
        })
        .await
    }

    /// Waits for a permit and runs a search, or a request that begins with a search, on a blocking thread. The search
    /// stops if the client disconnects or the time budget is used up.
    pub(crate) async fn search<T, F>(&self, permits: &Permits, table: String, call: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Engine, &Table, Stop<'_>) -> Result<T> + Send + 'static,
    {
        self.search_in(permits, (TableModel::Series, table), call).await
    }

    /// Runs [`Grant::search`] for a table with the given model.
    pub(crate) async fn search_in<T, F>(
        &self,
        permits: &Permits,
        (model, table): (TableModel, String),
        call: F,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Engine, &Table, Stop<'_>) -> Result<T> + Send + 'static,
    {
        let permit = permits.take(current_client()).await?;
        let cancel = Cancel::new();
        let _waiting = Waiting(Some(cancel.clone()));
        let watch = self.querier.watch(Budget::default(), &cancel);
        let engine = Arc::clone(&self.engine);
        blocking(move || {
            let _permit = permit;
            stoppable(&watch, |stop| {
                call(&engine, &engine.table_with_model(&table, model)?, stop)
            })
        })
        .await
    }

    /// Runs [`Grant::read`] for one series table.
    pub(crate) async fn read_table<T, F>(&self, name: String, call: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Engine, &Table) -> Result<T> + Send + 'static,
    {
        self.read(move |engine| call(engine, &engine.table(&name)?)).await
    }
}
