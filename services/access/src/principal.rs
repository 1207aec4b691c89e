//! Principals and the decision whether a principal may perform an action.
//!
//! The decision about a table depends on its name and model only. It is made before the table is looked up, so that
//! the refusal does not reveal whether a table of that name exists.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tideline_model::{TableModel, TableName, Timestamp};

use crate::action::{Action, Role};
use crate::condition::TimelineCondition;
use crate::scope::Scope;
use crate::tenant::{Tenant, TenantRecord};

/// End of a principal that never ends.
const NEVER: i64 = i64::MAX;
/// End of a principal whose token was revoked.
const REVOKED: i64 = i64::MIN;

/// Originator of a request: a token, or all clients of a server without tokens.
#[derive(Debug)]
pub struct Principal {
    name: Arc<str>,
    /// Id of the token; `None` for a principal without a stored token.
    id: Option<Arc<str>>,
    roles: Arc<[Role]>,
    scope: Arc<Scope>,
    /// Tenant for which the requests act.
    tenant: Option<Arc<Tenant>>,
    /// Time at which the principal ends, in nanoseconds since the epoch. A principal and those that
    /// [act for tenants](Self::acting_for) share it.
    ends: Arc<AtomicI64>,
}

impl Principal {
    /// Creates a principal that has no end.
    pub fn new(name: &str, roles: impl IntoIterator<Item = Role>, scope: Scope) -> Self {
        let mut roles: Vec<Role> = roles.into_iter().collect();
        roles.sort_unstable();
        roles.dedup();
        Self {
            name: name.into(),
            id: None,
            roles: roles.into(),
            scope: Arc::new(scope),
            tenant: None,
            ends: Arc::new(AtomicI64::new(NEVER)),
        }
    }

    /// Returns the principal of a stored token, with its id and end.
    #[must_use]
    pub(crate) fn of_token(mut self, id: &str, expires: Option<Timestamp>) -> Self {
        self.id = Some(id.into());
        self.with_own_end(expires)
    }

    /// Returns a principal with the same properties and a separate end. Both share their memory except for the end.
    #[must_use]
    pub(crate) fn with_own_end(&self, expires: Option<Timestamp>) -> Self {
        Self {
            name: Arc::clone(&self.name),
            id: self.id.clone(),
            roles: Arc::clone(&self.roles),
            scope: Arc::clone(&self.scope),
            tenant: self.tenant.clone(),
            ends: Arc::new(AtomicI64::new(expires.map_or(NEVER, |time| time.nanos()))),
        }
    }

    /// Returns the principal with an end.
    #[must_use]
    pub fn ending(mut self, end: Timestamp) -> Self {
        self.ends = Arc::new(AtomicI64::new(end.nanos()));
        self
    }

    /// Returns the principal of a request that acts for a tenant. It ends when this principal ends.
    ///
    /// # Errors
    ///
    /// [`Denied`] if the token may not act for the tenant.
    pub fn acting_for(&self, tenant: &Arc<Tenant>) -> Result<Self, Denied> {
        let name = &tenant.record().name;
        if !self.scope.has_tenant(name) {
            return Err(self.denied_tenant(name));
        }
        Ok(Self {
            name: Arc::clone(&self.name),
            id: self.id.clone(),
            roles: Arc::clone(&self.roles),
            scope: Arc::clone(&self.scope),
            tenant: Some(Arc::clone(tenant)),
            ends: Arc::clone(&self.ends),
        })
    }

    /// Returns the refusal of a tenant for which the token may not act, or which does not exist.
    pub fn denied_tenant(&self, tenant: &str) -> Denied {
        Denied {
            principal: self.to_string(),
            reason: Reason::Tenant(tenant.chars().take(80).collect()),
        }
    }

    /// Creates the principal of all requests to a server without tokens.
    pub fn anonymous() -> Self {
        Self::new("anonymous", [Role::Admin], Scope::default())
    }

    /// Creates the principal of the token in the configuration.
    pub fn configured() -> Self {
        Self::new("configured token", [Role::Admin], Scope::default())
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name; for a stored token, also its id.
    pub fn label(&self) -> String {
        match &self.id {
            Some(id) => format!("token {id} ({})", self.name),
            None => self.name.to_string(),
        }
    }

    /// Returns the id of the token; `None` for a principal without a stored token.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Returns the roles, in the order of [`Role::ALL`].
    pub fn roles(&self) -> &[Role] {
        &self.roles
    }

    /// Returns the scope.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Returns the tenant for which the requests act.
    pub fn tenant(&self) -> Option<&Arc<Tenant>> {
        self.tenant.as_ref()
    }

    /// Returns true if requests must name a tenant and this principal acts for none.
    pub fn needs_tenant(&self) -> bool {
        self.tenant.is_none() && !self.scope.tenants().is_empty()
    }

    /// Returns the name of the table that is used if a request names no table.
    pub fn default_table(&self) -> &str {
        let of_tenant = self
            .tenant
            .as_ref()
            .and_then(|tenant| tenant.record().default_table.as_ref());
        of_tenant.map_or(TableName::DEFAULT, TableName::as_str)
    }

    /// Returns true if the principal may use tables of this name. A token for tenants may use no table until the
    /// request names a tenant.
    fn has_table(&self, table: &str) -> bool {
        self.is_of_tenant(|tenant| tenant.record().has_table(table)) && self.scope.has_table(table)
    }

    /// Returns true if the principal may use all tables with this name or prefix.
    fn covers(&self, pattern: &str) -> bool {
        self.is_of_tenant(|tenant| tenant.covers(pattern)) && self.scope.covers(pattern)
    }

    /// Returns true if the principal may use tables of some model with all these names.
    fn covers_names(&self, pattern: &str) -> bool {
        self.is_of_tenant(|tenant| tenant.covers(pattern)) && self.scope.covers_names(pattern)
    }

    /// Returns true if the principal needs no tenant, or has one for which `holds` is true.
    fn is_of_tenant(&self, holds: impl FnOnce(&Tenant) -> bool) -> bool {
        match &self.tenant {
            Some(tenant) => tenant.is_current() && holds(tenant),
            None => !self.needs_tenant(),
        }
    }

    /// Returns true until the token expires or is revoked, or its tenant loses tables. Long-running responses check
    /// this repeatedly.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        self.is_token_valid(now) && self.tenant.as_ref().is_none_or(|tenant| tenant.is_current())
    }

    /// Returns true after the token was revoked, or after its tenant has lost tables. Running work then stops. The
    /// expiry time of the token is not checked: work that began before the token expired may finish.
    pub fn is_revoked(&self) -> bool {
        let has_ended = self.ends.load(Ordering::Relaxed) == REVOKED;
        has_ended || self.tenant.as_ref().is_some_and(|tenant| !tenant.is_current())
    }

    /// Returns true until the token expires or is revoked.
    pub fn is_token_valid(&self, now: Timestamp) -> bool {
        now.nanos() < self.ends.load(Ordering::Relaxed)
    }

    /// Returns the time at which the token, or its secret after a rotation, expires; `None` if it never does.
    pub fn expires(&self) -> Option<Timestamp> {
        let ends = self.ends.load(Ordering::Relaxed);
        (ends != NEVER).then(|| Timestamp::from_nanos_clamped(ends))
    }

    /// Returns true if no other principal shares the end of this one. A principal that
    /// [acts for a tenant](Self::acting_for) shares the end of the principal from which it was created.
    pub fn is_sole(&mut self) -> bool {
        Arc::get_mut(&mut self.ends).is_some()
    }

    /// Ends the principal, so that [`is_valid`](Self::is_valid) returns false from now on.
    pub fn end(&self) {
        self.ends.store(REVOKED, Ordering::Relaxed);
    }

    /// Moves the end of the principal to the earlier end of another one. Returns false, and changes nothing, if this
    /// principal ends before the other one.
    pub(crate) fn end_with(&self, other: &Self) -> bool {
        let end = other.ends.load(Ordering::Relaxed);
        self.ends.fetch_min(end, Ordering::Relaxed) >= end
    }

    fn denied(&self, action: Action, reason: Refused) -> Denied {
        Denied {
            principal: self.to_string(),
            reason: Reason::Action(action, reason),
        }
    }
}

impl fmt::Display for Principal {
    /// Writes the name, the id if the token is stored, and the tenant of the request if it has one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label())?;
        match &self.tenant {
            Some(tenant) => write!(f, " for the tenant {}", tenant.record().name),
            None => Ok(()),
        }
    }
}

/// Access of one request: its principal, and the action that it performs. Roles that do not allow the action are
/// refused when the access is created, so an existing `Access` means that the action is allowed on tables in the scope.
#[derive(Debug, Clone)]
pub struct Access {
    principal: Arc<Principal>,
    action: Action,
}

impl Access {
    /// Joins a principal with an action.
    ///
    /// # Errors
    ///
    /// [`Denied`] if no role of the principal allows the action.
    pub fn new(principal: &Arc<Principal>, action: Action) -> Result<Self, Denied> {
        match principal.roles.iter().any(|role| action.is_allowed_to(*role)) {
            true => Ok(Self {
                principal: Arc::clone(principal),
                action,
            }),
            false => Err(principal.denied(action, Refused::Role(principal.roles.to_vec()))),
        }
    }

    /// Returns the access of the same principal with another action.
    ///
    /// # Errors
    ///
    /// The error of [`Access::new`].
    pub fn with_action(&self, action: Action) -> Result<Self, Denied> {
        Self::new(&self.principal, action)
    }

    /// Returns the action.
    pub fn action(&self) -> Action {
        self.action
    }

    /// Returns the principal.
    pub fn principal(&self) -> &Arc<Principal> {
        &self.principal
    }

    /// Checks that the principal may perform the action on a table of this name. The table need not exist.
    ///
    /// # Errors
    ///
    /// [`Denied`] if the name is outside of the scope.
    pub fn check_table(&self, table: &str) -> Result<(), Denied> {
        match self.principal.has_table(table) {
            true => Ok(()),
            false => Err(self.out_of_scope(Some(table))),
        }
    }

    /// Checks that the principal may perform the action on an existing table.
    ///
    /// # Errors
    ///
    /// [`Denied`] if the name or the model is outside of the scope. The error does not reveal which of them it is.
    pub fn check(&self, table: &str, model: TableModel) -> Result<(), Denied> {
        match self.allows(table, model) {
            true => Ok(()),
            false => Err(self.out_of_scope(Some(table))),
        }
    }

    /// Checks that the principal may perform the action on all tables, as required for a request that names no
    /// table.
    ///
    /// # Errors
    ///
    /// [`Denied`] if the principal has a scope.
    pub fn check_all(&self) -> Result<(), Denied> {
        match self.principal.scope.is_everything() {
            true => Ok(()),
            false => Err(self.out_of_scope(None)),
        }
    }

    /// Checks that the principal may perform the action on all tables with these names and prefixes. An empty list
    /// means all tables.
    ///
    /// # Errors
    ///
    /// [`Denied`] if the scope does not include all tables of each name and prefix.
    pub fn check_patterns(&self, patterns: &[String]) -> Result<(), Denied> {
        if patterns.is_empty() {
            return self.check_all();
        }
        match patterns.iter().find(|pattern| !self.principal.covers(pattern)) {
            Some(pattern) => Err(self.out_of_scope(Some(pattern))),
            None => Ok(()),
        }
    }

    /// Checks like [`check_patterns`](Self::check_patterns), but ignores the models. For an operation whose result is
    /// restricted to the tables and timelines that the principal may use.
    ///
    /// # Errors
    ///
    /// [`Denied`] if the scope does not include all names.
    pub fn check_names(&self, patterns: &[String]) -> Result<(), Denied> {
        let all = ["*".to_owned()];
        let patterns = if patterns.is_empty() { &all } else { patterns };
        match patterns
            .iter()
            .find(|pattern| !self.principal.covers_names(pattern))
        {
            Some(pattern) => Err(self.out_of_scope(Some(pattern))),
            None => Ok(()),
        }
    }

    /// Returns the condition on the timelines that the principal may use; `None` for all timelines.
    pub fn condition(&self) -> Option<&TimelineCondition> {
        self.principal.scope.condition()
    }

    /// Checks that the principal may perform the action on all timelines of a table. Required for operations that
    /// do not apply the condition.
    ///
    /// # Errors
    ///
    /// [`Denied`] if the principal is restricted to timelines.
    pub fn check_all_timelines(&self) -> Result<(), Denied> {
        match self.condition() {
            None => Ok(()),
            Some(condition) => Err(self
                .principal
                .denied(self.action, Refused::Timelines(condition.clone()))),
        }
    }

    /// Returns true if the principal may perform the action on an existing table.
    pub fn allows(&self, table: &str, model: TableModel) -> bool {
        self.principal.has_table(table) && self.principal.scope.has_model(model)
    }

    /// Returns the refusal of a table outside of the scope.
    pub fn denied(&self, table: &str) -> Denied {
        self.out_of_scope(Some(table))
    }

    fn out_of_scope(&self, table: Option<&str>) -> Denied {
        let mut scope = self.principal.scope.to_string();
        if let Some(tenant) = &self.principal.tenant {
            let TenantRecord { name, tables, .. } = tenant.record();
            let tables: Vec<String> = tables.iter().map(ToString::to_string).collect();
            scope = format!(
                "{scope}, and the request acts for the tenant {name} with tables {}",
                tables.join(", ")
            );
        }
        let reason = Refused::Scope {
            table: table.map(|name| name.chars().take(80).collect()),
            scope,
        };
        self.principal.denied(self.action, reason)
    }
}

/// Refusal of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    principal: String,
    reason: Reason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Reason {
    /// The principal may not perform the action.
    Action(Action, Refused),
    /// The principal may not act for the tenant.
    Tenant(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Refused {
    /// None of these roles allows the action.
    Role(Vec<Role>),
    /// The table is outside of the scope. `None`: the action applies to all tables.
    Scope { table: Option<String>, scope: String },
    /// The operation applies to all timelines of a table, and the principal may use only those that match the
    /// condition.
    Timelines(TimelineCondition),
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { principal, reason } = self;
        let (action, reason) = match reason {
            Reason::Action(action, reason) => (action, reason),
            Reason::Tenant(tenant) => {
                return write!(f, "{principal} may not act for the tenant {tenant:?}");
            }
        };
        match reason {
            Refused::Role(roles) => {
                let names = |roles: &[Role]| {
                    roles
                        .iter()
                        .map(|role| role.name())
                        .collect::<Vec<_>>()
                        .join(", ")
                };
                let needed: Vec<Role> = Role::ALL
                    .into_iter()
                    .filter(|role| action.is_allowed_to(*role))
                    .collect();
                write!(
                    f,
                    "{principal} has the role {}; the action `{action}` needs one of {}",
                    names(roles),
                    names(&needed)
                )
            }
            Refused::Scope {
                table: Some(table),
                scope,
            } => write!(
                f,
                "{principal} may not perform the action `{action}` on table {table:?}; its scope is {scope}"
            ),
            Refused::Scope { table: None, scope } => write!(
                f,
                "{principal} may not perform the action `{action}` on all tables together; its scope is {scope}"
            ),
            Refused::Timelines(condition) => write!(
                f,
                "{principal} may not make this request, which is about all timelines of a table; it is restricted to \
                 timelines with {condition}"
            ),
        }
    }
}

impl std::error::Error for Denied {}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader() -> Arc<Principal> {
        let scope = Scope::new(["fleet"], [TableModel::Series]).expect("valid");
        Arc::new(Principal::new("grafana", [Role::Reader], scope))
    }

    #[test]
    fn an_action_needs_a_role() {
        let denied = Access::new(&reader(), Action::Write).expect_err("a reader");
        assert_eq!(
            denied.to_string(),
            "grafana has the role reader; the action `write` needs one of writer, admin"
        );
        let read = Access::new(&reader(), Action::Read).expect("a reader");
        assert!(read.with_action(Action::Observe).is_ok());
        assert!(read.with_action(Action::Operate).is_err());
    }

    #[test]
    fn a_refusal_is_the_same_for_missing_tables_and_other_models() {
        let read = Access::new(&reader(), Action::Read).expect("a reader");
        assert!(read.check("fleet", TableModel::Series).is_ok());
        let of_name = read
            .check("billing", TableModel::Series)
            .expect_err("another name");
        assert_eq!(
            of_name.to_string(),
            "grafana may not perform the action `read` on table \"billing\"; its scope is tables fleet of the model series"
        );
        assert_eq!(read.check("billing", TableModel::Wide), Err(of_name.clone()));
        assert_eq!(read.check_table("billing"), Err(of_name));
        assert!(read.check("fleet", TableModel::Wide).is_err());
        assert!(read.check_all().is_err());
    }

    #[test]
    fn a_principal_that_acts_for_a_tenant_has_only_its_tables() {
        let record: TenantRecord = serde_json::from_str(
            r#"{"name":"acme","tables":["acme-*","shared"],"default_table":"acme-metrics","created":1}"#,
        )
        .expect("valid");
        let tenant = Arc::new(Tenant::new(record));
        let scope = Scope::new(["acme-a*", "other", "sh*"], []).and_then(|scope| scope.with_tenants(["ac*"]));
        let token = Principal::new("gateway", [Role::Reader, Role::Operator], scope.expect("valid"))
            .of_token("17", None);
        let token = Arc::new(token);
        let read = Access::new(&token, Action::Read).expect("a reader");
        assert!(read.check_table("acme-a1").is_err(), "no tenant, no tables");
        let acting = Arc::new(token.acting_for(&tenant).expect("a tenant of the token"));
        assert_eq!(acting.default_table(), "acme-metrics");
        let read = Access::new(&acting, Action::Read).expect("a reader");
        for (table, is_allowed) in [
            ("acme-a1", true),
            ("shared", true),
            ("acme-b", false),
            ("other", false),
        ] {
            assert_eq!(read.check_table(table).is_ok(), is_allowed, "{table}");
            assert_eq!(
                read.check_patterns(&[table.to_owned()]).is_ok(),
                is_allowed,
                "{table}"
            );
        }
        assert!(read.check_patterns(&["acme-a*".to_owned()]).is_ok());
        assert!(read.check_patterns(&["sh*".to_owned()]).is_err());
        assert!(read.check_all().is_err());
        let denied = read.check_table("other").expect_err("outside of the tenant");
        assert!(
            denied
                .to_string()
                .contains("the tenant acme with tables acme-*, shared"),
            "{denied}"
        );
        let now = Timestamp::from_nanos_clamped(0);
        let mut record = tenant.record().clone();
        record.budgets.queries = Some(1);
        let same_tables = tenant.changed(record.clone());
        assert!(acting.is_valid(now));
        record.tables.truncate(1);
        let _changed = same_tables.changed(record);
        assert!(!acting.is_valid(now), "its tables have changed");
        let acting = token
            .acting_for(&Arc::new(Tenant::new(tenant.record().clone())))
            .expect("its tenant");
        assert!(acting.is_valid(now));
        token.end();
        assert!(!acting.is_valid(now), "it ends with its token");

        let scope = Scope::default().with_tenants(["globex"]).expect("valid");
        let other = Principal::new("b", [Role::Reader], scope);
        assert_eq!(
            other.acting_for(&tenant).expect_err("another tenant").to_string(),
            "b may not act for the tenant \"acme\""
        );
        let everything = Principal::new("c", [Role::Reader], Scope::default());
        assert!(
            everything.acting_for(&tenant).is_err(),
            "a token without tenants acts for none"
        );
    }

    #[test]
    fn a_principal_ends() {
        let at = Timestamp::from_nanos_clamped;
        let principal = Principal::new("a", [Role::Admin], Scope::default()).of_token("17", Some(at(10)));
        assert!(principal.is_valid(at(9)) && !principal.is_valid(at(10)));
        principal.end();
        assert!(!principal.is_valid(at(0)));
        assert_eq!(principal.to_string(), "token 17 (a)");
    }
}
