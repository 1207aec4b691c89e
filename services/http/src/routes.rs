//! Actions of routes, read from the OpenAPI document.
//!
//! Each operation declares its action in the document, next to its handler: `security(("token" = ["read"]))`.
//! The checks and the document thus cannot differ. An empty list is for routes that any token may use, and for
//! routes whose action depends on the content of the request; `security(())` is for routes that need no token.
//!
//! `timelines` after the action declares that the operation accesses only the timelines that its token may use.
//! All other operations refuse tokens with a condition on timelines.

use std::collections::HashMap;
use std::sync::Arc;

use axum::http::Method;
use tideline_access::{Access, Action, Denied, Principal};
use utoipa::openapi::OpenApi;
use utoipa::openapi::path::{Operation, PathItem};

/// Declaration of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Declared {
    /// The route needs no token.
    Open,
    /// The route needs a valid token. Any token may use it, or the action depends on the content of the request.
    Any,
    /// The route needs a token with a role for an action.
    Action(Needed),
}

/// Access that a route needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needed {
    pub(crate) action: Action,
    /// True if the operation accesses only the timelines that its token may use.
    pub(crate) is_by_timelines: bool,
}

/// Second entry of a declaration, see [`Needed::is_by_timelines`].
const TIMELINES: &str = "timelines";

impl Needed {
    /// Returns true if the operation only reads.
    pub(crate) fn reads(self) -> bool {
        matches!(self.action, Action::Read | Action::Observe)
    }

    /// Checks that a principal has this access.
    ///
    /// # Errors
    ///
    /// Returns [`Denied`] if no role allows the action, or if the principal is restricted to timelines and the
    /// operation does not apply this restriction.
    pub(crate) fn grant(self, principal: &Arc<Principal>) -> Result<Access, Denied> {
        let access = Access::new(principal, self.action)?;
        if !self.is_by_timelines {
            access.check_all_timelines()?;
        }
        Ok(access)
    }
}

/// Paths of routes that are not in the document because they are variants of documented ones: every path of a
/// Pushgateway group, and the address of a table that browsers are redirected from.
const VARIANTS: [(&str, Action); 3] = [
    ("/metrics/{*group}", Action::Write),
    ("/v1/tables/{table}/prometheus/metrics/{*group}", Action::Write),
    ("/v1/tables/{table}/prometheus/", Action::Read),
];

/// Pages for readers: the guide and the OpenAPI document.
pub(crate) const PAGES: [&str; 8] = [
    "/",
    "/docs",
    "/docs/",
    "/docs/{*rest}",
    "/guide",
    "/guide/",
    "/guide/{file}",
    "/openapi.json",
];

/// Declared actions of all routes.
#[derive(Debug)]
pub(crate) struct Routes(HashMap<String, Vec<(Method, Declared)>>);

impl Routes {
    /// Reads the declarations of a document. An operation without a declaration is not among them.
    pub(crate) fn of(document: &OpenApi) -> Self {
        let mut routes: HashMap<String, Vec<(Method, Declared)>> = HashMap::new();
        for (path, item) in &document.paths.paths {
            for (method, operation) in operations(item) {
                if let Some(declared) = declaration(operation) {
                    routes.entry(path.clone()).or_default().push((method, declared));
                }
            }
        }
        Self(routes)
    }

    /// Returns the declaration of the route that matches a request. `path` is the template of the route; `None` if no
    /// route matches. `are_pages_open` is the setting for the guide and the OpenAPI document. A route without a
    /// declaration gets no action, so its handler gets no grant.
    pub(crate) fn declared(&self, method: &Method, path: Option<&str>, are_pages_open: bool) -> Declared {
        let Some(path) = path else {
            return Declared::Any;
        };
        if let Some(methods) = self.0.get(path) {
            // The service answers HEAD with the handler of GET.
            let wanted = if method == Method::HEAD {
                &Method::GET
            } else {
                method
            };
            let found = methods.iter().find(|(method, _)| method == wanted);
            return found.map_or(Declared::Any, |(_, declared)| *declared);
        }
        if let Some((_, action)) = VARIANTS.iter().find(|(variant, _)| *variant == path) {
            return Declared::Action(Needed {
                action: *action,
                is_by_timelines: true,
            });
        }
        match are_pages_open && PAGES.contains(&path) {
            true => Declared::Open,
            false => Declared::Any,
        }
    }
}

/// Returns the operations of a path with their methods.
pub(crate) fn operations(item: &PathItem) -> impl Iterator<Item = (Method, &Operation)> {
    let all = [
        (Method::GET, &item.get),
        (Method::PUT, &item.put),
        (Method::POST, &item.post),
        (Method::DELETE, &item.delete),
        (Method::PATCH, &item.patch),
    ];
    all.into_iter()
        .filter_map(|(method, operation)| Some((method, operation.as_ref()?)))
}

/// Returns the operations of a path with their methods, for a change of their descriptions.
pub(crate) fn operations_mut(item: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
    let all = [
        (Method::GET, &mut item.get),
        (Method::PUT, &mut item.put),
        (Method::POST, &mut item.post),
        (Method::DELETE, &mut item.delete),
        (Method::PATCH, &mut item.patch),
    ];
    all.into_iter()
        .filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// Returns the declaration of an operation; `None` if it has no declaration or an invalid one.
pub(crate) fn declaration(operation: &Operation) -> Option<Declared> {
    let [requirement] = operation.security.as_deref()? else {
        return None;
    };
    // The type of the requirement gives access to its content only in its serialized form.
    let requirement = serde_json::to_value(requirement).ok()?;
    let requirement = requirement.as_object()?;
    if requirement.is_empty() {
        return Some(Declared::Open);
    }
    match requirement.get("token")?.as_array()?.as_slice() {
        [] => Some(Declared::Any),
        [action, more @ ..] => {
            let is_by_timelines = match more {
                [] => false,
                [second] if second == TIMELINES => true,
                _ => return None,
            };
            let action = Action::from_name(action.as_str()?)?;
            Some(Declared::Action(Needed {
                action,
                is_by_timelines,
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_of_the_document_declares_its_action() {
        let document = crate::document();
        let mut count = 0;
        for (path, item) in &document.paths.paths {
            for (method, operation) in operations(item) {
                assert!(
                    declaration(operation).is_some(),
                    "{method} {path} declares no action"
                );
                count += 1;
            }
        }
        assert!(count > 150, "only {count} operations");
    }

    #[test]
    fn the_routes_without_a_token_are_those_of_health_checks() {
        for (path, item) in &crate::document().paths.paths {
            for (method, operation) in operations(item) {
                let is_open = declaration(operation) == Some(Declared::Open);
                assert_eq!(is_open, crate::auth::is_open(path), "{method} {path}");
            }
        }
    }

    #[test]
    fn operations_that_change_something_need_more_than_reading() {
        /// Suffixes of operations that read although their method is not safe.
        const READING: [&str; 25] = [
            "/advice",
            "/facets",
            "/feeds/search",
            "/feeds/read",
            "/feeds/merge",
            "/messages/search",
            "/latest",
            "/preview",
            "/query_exemplars",
            "/export",
            "/format_query",
            "/parse_query",
            "/query",
            "/query/batch",
            "/query_range",
            "/api/v1/read",
            "/series",
            "/labels",
            "/explain",
            "/get",
            "/scan",
            "/count",
            "/aggregate",
            "/rows/why",
            "/watch",
        ];
        for (path, item) in &crate::document().paths.paths {
            for (method, operation) in operations(item) {
                let may_read = method == Method::GET
                    || READING.iter().any(|end| path.ends_with(end))
                    || path.ends_with("/search")
                    || path == "/v1/sql";
                let reads = match declaration(operation) {
                    Some(Declared::Open | Declared::Any) => true,
                    Some(Declared::Action(needed)) => needed.reads(),
                    None => false,
                };
                assert!(may_read || !reads, "{method} {path} is declared as a read");
            }
        }
    }
}
