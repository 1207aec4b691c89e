//! Principals and the decision whether a principal may perform an action.
//!
//! The decision about a table depends on its name and model only. It is made before the table is looked up, so that the
//! refusal does not tell whether a table of that name exists.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tideline_model::{TableModel, Timestamp};

use crate::action::{Action, Role};
use crate::condition::TimelineCondition;
use crate::scope::Scope;

/// End of a principal that never ends.
const NEVER: i64 = i64::MAX;

/// Originator of a request: a token, or all clients of a server without tokens.
#[derive(Debug)]
pub struct Principal {
    name: Box<str>,
    /// Id of the token; `None` for a principal without a stored token.
    id: Option<Box<str>>,
    roles: Vec<Role>,
    scope: Scope,
    /// Time at which the principal ends, in nanoseconds since the epoch.
    ends: AtomicI64,
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
            roles,
            scope,
            ends: AtomicI64::new(NEVER),
        }
    }

    /// Returns the principal of a stored token, with its id and end.
    #[must_use]
    pub(crate) fn of_token(mut self, id: &str, expires: Option<Timestamp>) -> Self {
        self.id = Some(id.into());
        self.ends = AtomicI64::new(expires.map_or(NEVER, |time| time.nanos()));
        self
    }

    /// Returns the principal with an end.
    #[must_use]
    pub fn ending(mut self, end: Timestamp) -> Self {
        self.ends = AtomicI64::new(end.nanos());
        self
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

    /// Returns true until the token expires or is revoked. A long response checks it while it runs.
    pub fn is_valid(&self, now: Timestamp) -> bool {
        now.nanos() < self.ends.load(Ordering::Relaxed)
    }

    /// Returns the time at which the token expires; `None` if it never does.
    pub fn expires(&self) -> Option<Timestamp> {
        let ends = self.ends.load(Ordering::Relaxed);
        (ends != NEVER).then(|| Timestamp::from_nanos_clamped(ends))
    }

    /// Ends the principal, so that [`is_valid`](Self::is_valid) returns false from now on.
    pub fn end(&self) {
        self.ends.store(i64::MIN, Ordering::Relaxed);
    }

    fn denied(&self, action: Action, reason: Reason) -> Denied {
        Denied {
            principal: self.to_string(),
            action,
            reason,
        }
    }
}

impl fmt::Display for Principal {
    /// Writes the name and, for a stored token, its id.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.id {
            Some(id) => write!(f, "token {id} ({})", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Access of one request: its principal, and the action that it performs. Roles that do not allow the action are
/// refused when it is created, so holding an access means that the action is allowed on tables in the scope.
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
            false => Err(principal.denied(action, Reason::Role(principal.roles.clone()))),
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

    /// Returns the principal.
    pub fn principal(&self) -> &Arc<Principal> {
        &self.principal
    }

    /// Checks that the principal may perform the action on a table of this name. The table may not exist.
    ///
    /// # Errors
    ///
    /// [`Denied`] if the name is outside of the scope.
    pub fn check_table(&self, table: &str) -> Result<(), Denied> {
        match self.principal.scope.has_table(table) {
            true => Ok(()),
            false => Err(self.out_of_scope(Some(table))),
        }
    }

    /// Checks that the principal may perform the action on an existing table.
    ///
    /// # Errors
    ///
    /// [`Denied`] if the name or the model is outside of the scope. The error does not tell which.
    pub fn check(&self, table: &str, model: TableModel) -> Result<(), Denied> {
        match self.allows(table, model) {
            true => Ok(()),
            false => Err(self.out_of_scope(Some(table))),
        }
    }

    /// Checks that the principal may perform the action on all tables, as a request without a table does.
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

    /// Checks that the principal may perform the action on all tables with these names and prefixes; without any, on all
    /// tables.
    ///
    /// # Errors
    ///
    /// [`Denied`] if one of them is not wholly in the scope.
    pub fn check_patterns(&self, patterns: &[String]) -> Result<(), Denied> {
        if patterns.is_empty() {
            return self.check_all();
        }
        match patterns
            .iter()
            .find(|pattern| !self.principal.scope.covers(pattern))
        {
            Some(pattern) => Err(self.out_of_scope(Some(pattern))),
            None => Ok(()),
        }
    }

    /// Returns the condition on the timelines that the principal may use; `None` for all timelines.
    pub fn condition(&self) -> Option<&TimelineCondition> {
        self.principal.scope.condition()
    }

    /// Checks that the principal may perform the action on all timelines of a table, as an operation does that applies no
    /// condition.
    ///
    /// # Errors
    ///
    /// [`Denied`] if the principal is restricted to timelines.
    pub fn check_all_timelines(&self) -> Result<(), Denied> {
        match self.condition() {
            None => Ok(()),
            Some(condition) => Err(self
                .principal
                .denied(self.action, Reason::Timelines(condition.clone()))),
        }
    }

    /// Returns true if the principal may perform the action on an existing table.
    pub fn allows(&self, table: &str, model: TableModel) -> bool {
        self.principal.scope.has_table(table) && self.principal.scope.has_model(model)
    }

    /// Returns the refusal of a table outside of the scope.
    pub fn denied(&self, table: &str) -> Denied {
        self.out_of_scope(Some(table))
    }

    fn out_of_scope(&self, table: Option<&str>) -> Denied {
        let reason = Reason::Scope {
            table: table.map(|name| name.chars().take(80).collect()),
            scope: self.principal.scope.to_string(),
        };
        self.principal.denied(self.action, reason)
    }
}

/// Refusal of an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    principal: String,
    action: Action,
    reason: Reason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Reason {
    /// None of these roles allows the action.
    Role(Vec<Role>),
    /// The table is outside of the scope. `None`: the action applies to all tables.
    Scope { table: Option<String>, scope: String },
    /// The operation concerns all timelines of a table, and the principal only has those of the condition.
    Timelines(TimelineCondition),
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            principal,
            action,
            reason,
        } = self;
        match reason {
            Reason::Role(roles) => {
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
            Reason::Scope {
                table: Some(table),
                scope,
            } => write!(
                f,
                "{principal} may not perform the action `{action}` on table {table:?}; its scope is {scope}"
            ),
            Reason::Scope { table: None, scope } => write!(
                f,
                "{principal} may not perform the action `{action}` on all tables together; its scope is {scope}"
            ),
            Reason::Timelines(condition) => write!(
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
    fn a_principal_ends() {
        let at = Timestamp::from_nanos_clamped;
        let principal = Principal::new("a", [Role::Admin], Scope::default()).of_token("17", Some(at(10)));
        assert!(principal.is_valid(at(9)) && !principal.is_valid(at(10)));
        principal.end();
        assert!(!principal.is_valid(at(0)));
        assert_eq!(principal.to_string(), "token 17 (a)");
    }
}
