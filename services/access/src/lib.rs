//! Access control: decides whether a principal may perform an action on a table.
//!
//! The crate is pure: it reads no files, sends nothing, and depends neither on HTTP nor on the engine. A service
//! authenticates a request with [`Tokens`], which returns a [`Principal`]. The service combines the principal with
//! the [`Action`] of the request in an [`Access`], and passes the access to the engine, which checks every table
//! that the request uses.
//!
//! | module | holds |
//! |---|---|
//! | [`action`] | [`Action`], [`Role`]: the actions that a role allows |
//! | [`scope`] | [`Scope`]: the tables, models and timelines to which a token is restricted |
//! | [`condition`] | [`TimelineCondition`]: the condition on these timelines |
//! | [`principal`] | [`Principal`], [`Access`], [`Denied`]: the decision |
//! | [`tenant`] | [`Tenant`]: owner of tables, with budgets |
//! | [`token`] | [`TokenText`]: the text of a token, its checksum and its hash |
//! | [`jwt`] | [`JwtVerifier`](jwt::JwtVerifier): JSON Web Tokens of an identity provider |
//! | `verification` | signature algorithms of these tokens |
//! | [`record`] | [`TokenRecord`]: the stored form of a token |
//! | [`registry`] | [`Tokens`]: the valid tokens of a server, found by their hash |
//!
//! # Examples
//!
//! ```
//! use std::sync::Arc;
//!
//! use tideline_access::{Access, Action, Principal, Role, Scope};
//!
//! let scope = Scope::new(["fleet", "team-a-*"], [])?;
//! let principal = Arc::new(Principal::new("telegraf", [Role::Writer], scope));
//! let write = Access::new(&principal, Action::Write)?;
//! assert!(write.check_table("team-a-cpu").is_ok());
//! assert!(write.check_table("billing").is_err());
//! assert!(Access::new(&principal, Action::Read).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod action;
pub mod condition;
pub mod jwt;
pub mod principal;
pub mod record;
pub mod registry;
pub mod scope;
pub mod tenant;
pub mod token;
mod verification;

pub use action::{Action, Role};
pub use condition::{TimelineCondition, TimelineConditionError};
pub use principal::{Access, Denied, Principal};
pub use record::{StoredSecret, TokenRecord};
pub use registry::{Authenticated, Tokens};

pub use scope::{Scope, ScopeError, TablePattern, TenantPattern};
pub use tenant::{
    Budgets, OverBudget, RunningQuery, StoredData, Tenant, TenantFigures, TenantRecord, TimelinesUsedUp,
    TooManyObjects,
};
pub use token::{TokenHash, TokenText};
