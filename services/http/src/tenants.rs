//! Tenants of the server: their stored form, and the tenant of a request.
//!
//! Stored tenants are rows of the server ([`Engine::put_state`]), with a copy in memory. A change is stored
//! before the copy is changed, under one lock. After an error of unknown outcome, the copy is read again from
//! the rows.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName};
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};
use tideline_access::{Principal, StoredData, Tenant, TenantRecord};
use tideline_engine::Engine;
use tideline_engine::model::TableName;
use tideline_engine::state_table::StateRow;
use tideline_engine::stored_data::TableData;
use tideline_openapi::ErrorCode;

use crate::app::App;
use crate::failure::{Failure, Result};

/// Header with the tenant of a request, as Grafana, Prometheus and other agents send it.
const TENANT: HeaderName = HeaderName::from_static("x-scope-orgid");
/// Owner of the state rows.
const OWNER: &str = "tenants";
/// Maximum number of tenants.
const TENANTS_MAX: usize = 1_000;

/// Tenants of a server.
#[derive(Debug)]
pub(crate) struct TenantStore {
    engine: Arc<Engine>,
    tenants: RwLock<HashMap<String, Arc<Tenant>>>,
    /// Held while tenants are stored.
    writing: Mutex<()>,
}

/// Tables and change streams of the server at one time, of which each belongs to one tenant or to none.
#[derive(Debug)]
pub(crate) struct OwnedObjects {
    tables: Vec<TableName>,
    /// Maximum number of tables of the server.
    pub(crate) tables_max: u64,
    /// Tables of each stream.
    streams: Vec<Vec<String>>,
}

impl OwnedObjects {
    /// Reads the names of all objects.
    pub(crate) fn read(app: &App) -> Self {
        let engine = app.service_engine();
        Self {
            tables: engine.table_owners(),
            tables_max: engine.tables_max() as u64,
            streams: app.change_streams.all_tables(),
        }
    }

    /// Returns the number of tables of a tenant.
    pub(crate) fn tables(&self, tenant: &Tenant) -> u64 {
        let own = |table: &&TableName| tenant.record().has_table(table.as_str());
        self.tables.iter().filter(own).count() as u64
    }

    /// Returns the number of change streams of a tenant.
    pub(crate) fn change_streams(&self, tenant: &Tenant) -> u64 {
        let own = |tables: &&Vec<String>| tenant.has_stream(tables);
        self.streams.iter().filter(own).count() as u64
    }
}

impl TenantStore {
    /// Reads the stored tenants.
    ///
    /// # Errors
    ///
    /// Fails if the rows cannot be read, or if this build cannot read one of them.
    pub(crate) fn open(engine: Arc<Engine>) -> Result<Self> {
        let records = read(&engine)?.into_iter();
        let tenants = records.map(|record| (record.name.clone(), Arc::new(Tenant::new(record))));
        let store = Self {
            tenants: RwLock::new(tenants.collect()),
            engine,
            writing: Mutex::default(),
        };
        store.measure();
        Ok(store)
    }

    /// Measures the stored data of all tenants.
    pub(crate) fn measure(&self) {
        let tenants = self.all();
        if tenants.is_empty() {
            return;
        }
        let tables = self.engine.stored_data();
        for tenant in tenants {
            let mut sum = StoredData::default();
            let own = tables
                .iter()
                .filter(|table| tenant.record().has_table(table.table.as_str()));
            own.for_each(|TableData { data, .. }| sum.add(data));
            tenant.set_stored(sum);
        }
    }

    /// Returns the principal of a request. If the token acts for tenants, the returned principal acts for the
    /// tenant that the header of the request names, or for the only tenant of the token. If the token has
    /// several tenants and the header is missing, the principal is returned unchanged; it reaches no table.
    ///
    /// # Errors
    ///
    /// Fails if the token may not act for the named tenant, or if the tenant does not exist; the message is the
    /// same in both cases. Also fails if the header is not valid.
    pub(crate) fn of_request(
        &self,
        principal: Arc<Principal>,
        headers: &HeaderMap,
    ) -> Result<Arc<Principal>> {
        if principal.scope().tenants().is_empty() {
            return Ok(principal);
        }
        let mut named = headers.get_all(TENANT).iter();
        let name = match (named.next(), named.next()) {
            (None, _) => match principal.scope().only_tenant() {
                Some(name) => name,
                None => return Ok(principal),
            },
            (Some(name), None) => name
                .to_str()
                .map_err(|_| Failure::invalid("the header X-Scope-OrgID is not plain ASCII"))?,
            (Some(_), Some(_)) => return Err(Failure::invalid("the request has two headers X-Scope-OrgID")),
        };
        let tenant = self.tenants.read().get(name).cloned();
        let tenant = tenant.ok_or_else(|| principal.denied_tenant(name))?;
        Ok(Arc::new(principal.acting_for(&tenant)?))
    }

    /// Returns a tenant.
    ///
    /// # Errors
    ///
    /// Fails if there is no tenant with this name.
    pub(crate) fn get(&self, name: &str) -> Result<Arc<Tenant>> {
        let found = self.tenants.read().get(name).cloned();
        found.ok_or_else(|| Failure::new(ErrorCode::NotFound, format!("there is no tenant {name:?}")))
    }

    /// Returns all tenants, sorted by name.
    pub(crate) fn all(&self) -> Vec<Arc<Tenant>> {
        let mut all: Vec<_> = self.tenants.read().values().cloned().collect();
        all.sort_by(|one, other| one.record().name.cmp(&other.record().name));
        all
    }

    /// Stores a new tenant, or replaces tables and budgets of an existing one. Returns the tenant, and true if it is new.
    ///
    /// # Errors
    ///
    /// Fails if the record is not valid, if a table could belong to two tenants, at the limit of tenants, and with the
    /// errors of the engine.
    pub(crate) fn put(&self, mut record: TenantRecord) -> Result<(Arc<Tenant>, bool)> {
        record.check().map_err(Failure::invalid)?;
        let _writing = self.writing.lock();
        let before = self.tenants.read().get(&record.name).cloned();
        for other in self.all() {
            let other = other.record();
            if other.name != record.name
                && let Some(pattern) = record.overlap(other)
            {
                return Err(Failure::new(
                    ErrorCode::Conflict,
                    format!(
                        "a table that matches {pattern} could also belong to the tenant {}; a table belongs to one tenant",
                        other.name
                    ),
                ));
            }
        }
        let count = self.tenants.read().len();
        match &before {
            Some(before) => {
                record.created = before.record().created;
                record.created_by.clone_from(&before.record().created_by);
            }
            None if count >= TENANTS_MAX => {
                return Err(Failure::over(
                    ErrorCode::OverLimit,
                    "number of tenants",
                    TENANTS_MAX as u64,
                    count as u64 + 1,
                ));
            }
            None => {}
        }
        let json = serde_json::to_string(&record).expect("a tenant has a JSON form");
        self.store(&record.name, Some(json))?;
        let tenant = Arc::new(match &before {
            Some(before) => before.changed(record),
            None => Tenant::new(record),
        });
        let name = tenant.record().name.clone();
        self.tenants.write().insert(name, Arc::clone(&tenant));
        self.measure();
        Ok((tenant, before.is_none()))
    }

    /// Removes a tenant. Its tables stay; tokens that act for it are refused from now on.
    ///
    /// # Errors
    ///
    /// Fails if there is no such tenant, and with the errors of the engine.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        let _writing = self.writing.lock();
        let tenant = self.get(name)?;
        self.store(name, None)?;
        self.tenants.write().remove(name);
        tenant.end();
        Ok(())
    }

    fn store(&self, name: &str, value: Option<String>) -> Result<()> {
        let row = StateRow {
            name: name.to_owned(),
            part: String::new(),
            value,
        };
        let Err(error) = self.engine.put_state(OWNER, &[row]) else {
            return Ok(());
        };
        match read(&self.engine) {
            Ok(records) => self.replace(records),
            Err(_) => tracing::warn!("the stored tenants could not be read again after a failed change"),
        }
        Err(error.into())
    }

    /// Replaces the copy in memory.
    fn replace(&self, records: Vec<TenantRecord>) {
        let mut tenants = self.tenants.write();
        let mut before = std::mem::take(&mut *tenants);
        for record in records {
            let name = record.name.clone();
            let tenant = match before.remove(&name) {
                Some(before) => before.changed(record),
                None => Tenant::new(record),
            };
            tenants.insert(name, Arc::new(tenant));
        }
        before.values().for_each(|removed| removed.end());
    }
}

fn read(engine: &Engine) -> Result<Vec<TenantRecord>> {
    let rows = engine.state_rows(OWNER)?.into_iter();
    let records = rows.map(|StateRow { name, value, .. }| {
        serde_json::from_str(value.as_deref().unwrap_or_default()).map_err(|error| {
            Failure::new(
                ErrorCode::Internal,
                format!("the stored tenant {name} cannot be read: {error}; start the version of the server that wrote it"),
            )
        })
    });
    records.collect()
}
