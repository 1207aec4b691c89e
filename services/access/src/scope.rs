//! Scopes: the tables, models and timelines to which a token is restricted.
//!
//! An empty scope restricts nothing. A scope can contain:
//!
//! - tenants: each request with the token acts for one tenant, and reaches only the tables of this tenant
//! - tables: the token reaches only tables with these names or prefixes
//! - models: the token reaches only tables of these models
//! - a condition: the token reaches only timelines that match it, in tables of the model series

use std::fmt;

use serde::{Deserialize, Serialize};
use tideline_model::{Role, TableModel, TableName};

use crate::condition::{TimelineCondition, TimelineConditionError};
use crate::tenant::check_name;

/// Maximum number of table patterns of a scope.
pub const PATTERNS_MAX: usize = 100;

/// Name of a table, or a prefix followed by `*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TablePattern(Box<str>);

/// Restriction of a token. The default restricts nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredScope", into = "StoredScope")]
pub struct Scope {
    tables: Vec<TablePattern>,
    models: Vec<TableModel>,
    condition: Option<TimelineCondition>,
    tenants: Vec<TenantPattern>,
}

/// Stored form of a scope. Tenants, and the existence of a condition, are entries of `tables` with a prefix that is
/// not allowed in the name of a table. A build that does not support these entries therefore refuses such a token,
/// instead of granting it more rights.
#[derive(Serialize, Deserialize)]
struct StoredScope {
    tables: Vec<String>,
    models: Vec<TableModel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timelines: Option<TimelineCondition>,
}

/// Prefix of an entry for a tenant in [`StoredScope::tables`].
const STORED_TENANT: &str = "tenant:";
/// Entry of a scope with a condition. A scope that was stored before this entry existed has the condition without the
/// entry.
const STORED_CONDITION: &str = "timelines:";

impl TryFrom<StoredScope> for Scope {
    type Error = ScopeError;

    fn try_from(stored: StoredScope) -> Result<Self, ScopeError> {
        let mut scope = Self {
            models: stored.models,
            condition: stored.timelines,
            ..Self::default()
        };
        let is_entry = |text: &String| scope.condition.is_some() && text == STORED_CONDITION;
        for text in stored.tables.into_iter().filter(|text| !is_entry(text)) {
            match text.strip_prefix(STORED_TENANT) {
                Some(tenant) => scope.tenants.push(tenant.to_owned().try_into()?),
                None => scope.tables.push(text.try_into()?),
            }
        }
        Ok(scope)
    }
}

impl From<Scope> for StoredScope {
    fn from(scope: Scope) -> Self {
        let tables = scope.tables.into_iter().map(String::from);
        let tenants = scope
            .tenants
            .into_iter()
            .map(|tenant| format!("{STORED_TENANT}{tenant}"));
        let condition = scope.condition.as_ref().map(|_| STORED_CONDITION.to_owned());
        Self {
            tables: tables.chain(tenants).chain(condition).collect(),
            models: scope.models,
            timelines: scope.condition,
        }
    }
}

/// Name of a tenant, or a prefix followed by `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantPattern(Box<str>);

/// Error of an invalid scope.
#[derive(Debug, thiserror::Error)]
pub enum ScopeError {
    /// The text is neither a table name nor a prefix.
    #[error(
        "{0:?} is neither the name of a table nor a prefix followed by one `*`; names have 1 to 64 characters of a-z, 0-9, _ and -"
    )]
    Pattern(String),
    /// The scope has too many patterns.
    #[error(
        "a scope has at most {PATTERNS_MAX} names and prefixes of tables, and of tenants; this one has {0}"
    )]
    TooMany(usize),
    /// The text is neither the name of a tenant nor a prefix.
    #[error("{0:?} is neither the name of a tenant nor a prefix followed by one `*`: {1}")]
    Tenant(String, String),
    /// The condition on timelines is not suitable.
    #[error(transparent)]
    Condition(#[from] TimelineConditionError),
    /// The scope has a condition on timelines, and models without timelines.
    #[error(
        "a condition on timelines restricts a token to tables of the model series; the scope also has the model {0}"
    )]
    OtherModel(TableModel),
}

/// Returns true if `name` is the pattern, or begins with it without its `*`.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == pattern,
    }
}

impl TablePattern {
    /// Returns true if the table has this name or begins with this prefix.
    pub fn matches(&self, table: &str) -> bool {
        matches(&self.0, table)
    }

    /// Returns true if a table can match both patterns.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        match (self.0.strip_suffix('*'), other.0.strip_suffix('*')) {
            (Some(one), Some(other)) => one.starts_with(other) || other.starts_with(one),
            (_, None) => self.matches(&other.0),
            (None, Some(_)) => other.matches(&self.0),
        }
    }

    /// Returns true if all tables that match another pattern also match this one.
    fn covers(&self, pattern: &str) -> bool {
        match (self.0.strip_suffix('*'), pattern.strip_suffix('*')) {
            (Some(own), Some(prefix)) => prefix.starts_with(own),
            (Some(own), None) => pattern.starts_with(own),
            (None, Some(_)) => false,
            (None, None) => *self.0 == *pattern,
        }
    }
}

impl TenantPattern {
    /// Returns true if the tenant has this name or begins with this prefix.
    fn matches(&self, tenant: &str) -> bool {
        matches(&self.0, tenant)
    }
}

impl TryFrom<String> for TenantPattern {
    type Error = ScopeError;

    fn try_from(text: String) -> Result<Self, ScopeError> {
        let name = text.strip_suffix('*').unwrap_or(&text);
        let is_all = name.is_empty() && !text.is_empty();
        match check_name(name) {
            Err(reason) if !is_all => Err(ScopeError::Tenant(text.chars().take(80).collect(), reason)),
            _ => Ok(Self(text.into())),
        }
    }
}

impl fmt::Display for TenantPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for TablePattern {
    type Error = ScopeError;

    fn try_from(text: String) -> Result<Self, ScopeError> {
        let name = text.strip_suffix('*').unwrap_or(&text);
        let is_all = name.is_empty() && !text.is_empty();
        match is_all || TableName::new(name).is_ok() {
            true => Ok(Self(text.into())),
            false => Err(ScopeError::Pattern(text.chars().take(80).collect())),
        }
    }
}

impl From<TablePattern> for String {
    fn from(pattern: TablePattern) -> Self {
        pattern.0.into()
    }
}

impl fmt::Display for TablePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Scope {
    /// Creates a scope of table names and prefixes, and of models. An empty list restricts nothing. The pattern `*`
    /// includes all tables and is the same as no pattern.
    ///
    /// # Errors
    ///
    /// [`ScopeError::Pattern`] for a text that is neither a table name nor a prefix, and [`ScopeError::TooMany`] for
    /// more than [`PATTERNS_MAX`] patterns.
    pub fn new<T: Into<String>>(
        tables: impl IntoIterator<Item = T>,
        models: impl IntoIterator<Item = TableModel>,
    ) -> Result<Self, ScopeError> {
        let tables = tables.into_iter().map(|text| TablePattern::try_from(text.into()));
        let mut tables = tables.collect::<Result<Vec<_>, _>>()?;
        if tables.len() > PATTERNS_MAX {
            return Err(ScopeError::TooMany(tables.len()));
        }
        if tables.iter().any(|pattern| &*pattern.0 == "*") {
            tables.clear();
        }
        let mut models: Vec<TableModel> = models.into_iter().collect();
        models.sort_unstable();
        models.dedup();
        if models.len() == TableModel::ALL.len() {
            models.clear();
        }
        Ok(Self {
            tables,
            models,
            condition: None,
            tenants: Vec::new(),
        })
    }

    /// Restricts the scope to requests that act for one of these tenants: names, and prefixes followed by `*`. An empty
    /// list changes nothing.
    ///
    /// # Errors
    ///
    /// [`ScopeError::Tenant`] for a text that is neither a name nor a prefix, and [`ScopeError::TooMany`] for more
    /// than [`PATTERNS_MAX`] patterns.
    pub fn with_tenants<T: Into<String>>(
        mut self,
        tenants: impl IntoIterator<Item = T>,
    ) -> Result<Self, ScopeError> {
        let tenants = tenants
            .into_iter()
            .map(|text| TenantPattern::try_from(text.into()));
        self.tenants = tenants.collect::<Result<_, _>>()?;
        match self.tenants.len() {
            0..=PATTERNS_MAX => Ok(self),
            count => Err(ScopeError::TooMany(count)),
        }
    }

    /// Returns the names and prefixes of the tenants for which requests act; empty for requests without a tenant.
    pub fn tenants(&self) -> &[TenantPattern] {
        &self.tenants
    }

    /// Returns true if requests may act for this tenant.
    pub fn has_tenant(&self, tenant: &str) -> bool {
        self.tenants.iter().any(|pattern| pattern.matches(tenant))
    }

    /// Returns the tenant if requests can act for one only.
    pub fn only_tenant(&self) -> Option<&str> {
        match self.tenants.as_slice() {
            [TenantPattern(name)] if !name.ends_with('*') => Some(name),
            _ => None,
        }
    }

    /// Restricts the scope to timelines that match a condition, and to tables of the model series; `None` changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// [`ScopeError::OtherModel`] if the scope is restricted to models other than series.
    pub fn with_condition(mut self, condition: Option<TimelineCondition>) -> Result<Self, ScopeError> {
        if condition.is_none() {
            return Ok(self);
        }
        if let Some(other) = self.models.iter().find(|model| **model != TableModel::Series) {
            return Err(ScopeError::OtherModel(*other));
        }
        self.models = vec![TableModel::Series];
        self.condition = condition;
        Ok(self)
    }

    /// Checks that a principal with these roles can have the scope. An admin can create tokens without a scope, and an
    /// operator manages whole tables, so their scopes cannot be restricted in this way.
    ///
    /// # Errors
    ///
    /// Returns the reason as a sentence for the creator of the token.
    pub fn check_roles(&self, roles: &[Role]) -> Result<(), &'static str> {
        if roles.contains(&Role::Admin) && !self.is_everything() {
            return Err(
                "the role admin cannot be restricted to tables, models, timelines or tenants, because an admin can create \
                 other tokens",
            );
        }
        if roles.contains(&Role::Operator) && self.condition.is_some() {
            return Err(
                "the role operator cannot be restricted to timelines, because policies and jobs apply to all timelines of \
                 a table",
            );
        }
        Ok(())
    }

    /// Returns the condition on timelines; `None` for all timelines.
    pub fn condition(&self) -> Option<&TimelineCondition> {
        self.condition.as_ref()
    }

    /// Returns the table names and prefixes; empty for all tables.
    pub fn tables(&self) -> &[TablePattern] {
        &self.tables
    }

    /// Returns the models; empty for all models.
    pub fn models(&self) -> &[TableModel] {
        &self.models
    }

    /// Returns true if the scope restricts nothing.
    pub fn is_everything(&self) -> bool {
        self.tables.is_empty()
            && self.models.is_empty()
            && self.condition.is_none()
            && self.tenants.is_empty()
    }

    /// Returns true if a table of this name can be in the scope.
    pub fn has_table(&self, table: &str) -> bool {
        self.tables.is_empty() || self.tables.iter().any(|pattern| pattern.matches(table))
    }

    /// Returns true if all tables that have this name, or begin with this prefix if it ends with `*`, are in the scope.
    /// This includes tables that are created later.
    pub fn covers(&self, pattern: &str) -> bool {
        self.models.is_empty() && self.covers_names(pattern)
    }

    /// Returns true if the scope includes the names of all tables like [`covers`](Self::covers), possibly only for
    /// tables of some models.
    pub fn covers_names(&self, pattern: &str) -> bool {
        self.tables.is_empty() || Self::patterns_cover(&self.tables, pattern)
    }

    pub(crate) fn patterns_cover(own: &[TablePattern], pattern: &str) -> bool {
        own.iter().any(|own| own.covers(pattern))
    }

    /// Returns true if tables of this model can be in the scope.
    pub fn has_model(&self, model: TableModel) -> bool {
        self.models.is_empty() || self.models.contains(&model)
    }
}

impl fmt::Display for Scope {
    /// Writes the scope as part of a sentence, such as `tables fleet, team-a-* of the model series`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |texts: Vec<String>| texts.join(", ");
        match self.tables.is_empty() {
            true => f.write_str("all tables")?,
            false => write!(
                f,
                "tables {}",
                join(self.tables.iter().map(ToString::to_string).collect())
            )?,
        }
        if !self.models.is_empty() {
            let models = self.models.iter().map(|model| model.name().to_owned());
            write!(f, " of the model {}", join(models.collect()))?;
        }
        if let Some(condition) = &self.condition {
            write!(f, ", timelines with {condition}")?;
        }
        match self.tenants.is_empty() {
            true => Ok(()),
            false => {
                let tenants = self.tenants.iter().map(ToString::to_string).collect();
                write!(f, ", tenants {}", join(tenants))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_prefixes_match() {
        let scope = Scope::new(["fleet", "team-a-*"], [TableModel::Series]).expect("valid");
        for (table, is_in) in [
            ("fleet", true),
            ("fleet2", false),
            ("team-a-", true),
            ("team-a-cpu", true),
            ("team-a", false),
            ("", false),
        ] {
            assert_eq!(scope.has_table(table), is_in, "{table:?}");
        }
        assert!(scope.has_model(TableModel::Series) && !scope.has_model(TableModel::Wide));
        assert_eq!(scope.to_string(), "tables fleet, team-a-* of the model series");
    }

    #[test]
    fn a_pattern_is_covered_by_a_wider_one() {
        let scope = Scope::new(["fleet", "team-a-*"], []).expect("valid");
        for (pattern, is_covered) in [
            ("fleet", true),
            ("fleet*", false),
            ("team-a-*", true),
            ("team-a-cpu", true),
            ("team-a-c*", true),
            ("team-*", false),
            ("*", false),
            ("", false),
        ] {
            assert_eq!(scope.covers(pattern), is_covered, "{pattern:?}");
        }
        assert!(Scope::default().covers("*"));
        let of_model = Scope::new(["fleet"], [TableModel::Wide]).expect("valid");
        assert!(
            !of_model.covers("fleet"),
            "a table of this name can get another model"
        );
    }

    #[test]
    fn everything_has_one_form() {
        let empty: [&str; 0] = [];
        for scope in [
            Scope::default(),
            Scope::new(empty, TableModel::ALL).expect("valid"),
            Scope::new(["fleet", "*"], []).expect("valid"),
        ] {
            assert!(scope.is_everything(), "{scope:?}");
            assert!(scope.has_table("any") && scope.has_model(TableModel::Feed));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "a*b", "**", "Fleet", "a b", "*a", "é"] {
            let refused = Scope::new([text], []);
            assert!(
                matches!(&refused, Err(ScopeError::Pattern(pattern)) if pattern == text),
                "{text:?}"
            );
        }
        let many = Scope::new(vec!["a"; PATTERNS_MAX + 1], []);
        assert!(matches!(many, Err(ScopeError::TooMany(count)) if count == PATTERNS_MAX + 1));
    }

    #[test]
    fn a_build_without_tenants_refuses_a_token_with_one() {
        let scope = Scope::new(["fleet"], []).and_then(|scope| scope.with_tenants(["acme", "team-*"]));
        let scope = scope.expect("valid");
        let json = serde_json::to_string(&scope).expect("serializes");
        assert_eq!(
            json,
            r#"{"tables":["fleet","tenant:acme","tenant:team-*"],"models":[]}"#
        );
        assert_eq!(serde_json::from_str::<Scope>(&json).expect("reads back"), scope);
        // A build without this entry applies this rule.
        for entry in ["tenant:acme", "tenant:team-*"] {
            assert!(TablePattern::try_from(entry.to_owned()).is_err());
        }
        for refused in [
            r#"{"tables":["tenant:"],"models":[]}"#,
            r#"{"tables":["a b"],"models":[]}"#,
        ] {
            assert!(serde_json::from_str::<Scope>(refused).is_err(), "{refused}");
        }
        assert_eq!((scope.has_tenant("team-1"), scope.only_tenant()), (true, None));
    }

    #[test]
    fn a_condition_restricts_to_the_model_series() {
        let condition = || Some(TimelineCondition::parse("team=x").expect("valid"));
        let scope = Scope::default().with_condition(condition()).expect("valid");
        assert!(!scope.is_everything() && !scope.covers("*"));
        assert!(scope.has_model(TableModel::Series) && !scope.has_model(TableModel::Wide));
        assert_eq!(
            scope.to_string(),
            "all tables of the model series, timelines with team=x"
        );
        let json = serde_json::to_string(&scope).expect("serializes");
        assert_eq!(
            json,
            r#"{"tables":["timelines:"],"models":["series"],"timelines":{"tag":"team","equals":"x"}}"#
        );
        let earlier = json.replace(r#""timelines:""#, "");
        for stored in [json, earlier] {
            assert_eq!(
                serde_json::from_str::<Scope>(&stored).expect("reads back"),
                scope,
                "{stored}"
            );
        }
        let without = r#"{"tables":["timelines:"],"models":["series"]}"#;
        assert!(
            serde_json::from_str::<Scope>(without).is_err(),
            "the condition is missing"
        );
        let empty: [&str; 0] = [];
        let wide = Scope::new(empty, [TableModel::Wide]).expect("valid");
        assert!(matches!(
            wide.with_condition(condition()),
            Err(ScopeError::OtherModel(TableModel::Wide))
        ));
    }
}
