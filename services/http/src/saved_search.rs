//! Expansion of saved searches: each reference to a name is replaced with the saved condition.
//!
//! Saved searches may use each other. Nesting, uses and the size of the result are limited, because a few short
//! searches could otherwise expand to a huge condition.

use tideline_engine::Table;
use tideline_engine::condition::condition::{DEPTH_MAX, NODES_MAX};
use tideline_engine::condition::operators::In;
use tideline_engine::condition::{Condition, Test};
use tideline_openapi::query::TimelineSelector;
use tideline_openapi::search::SavedSearch;
use tideline_openapi::{self as wire, ErrorCode};

use crate::failure::{Failure, Result};
use crate::grant::Grant;

/// Maximum nesting depth of saved searches.
const NESTED_MAX: usize = 16;
/// Maximum number of uses of saved searches in one request. A nested use counts each time it is expanded.
const USES_MAX: usize = 100;

/// Returns the condition with every saved search of the table expanded.
pub(crate) fn expand(app: &Grant, table: &str, condition: Condition) -> Result<Condition> {
    if !condition.uses_saved() {
        // The existence of the table is checked later, when the request has a permit.
        return Ok(condition);
    }
    let table = app.engine.table(table)?;
    Expansion::of(&table, None).expand(condition)
}

/// Expands the condition of a selector; a selector with ids is returned unchanged.
pub(crate) fn expand_selector(
    app: &Grant,
    table: &str,
    mut selector: TimelineSelector,
) -> Result<TimelineSelector> {
    if let Some(condition) = selector.condition {
        selector.condition = Some(wire::Condition(expand(app, table, condition.0)?));
    }
    Ok(selector)
}

/// Runs [`expand_selector`] on an optional selector.
pub(crate) fn expand_optional(
    app: &Grant,
    table: &str,
    selector: Option<TimelineSelector>,
) -> Result<Option<TimelineSelector>> {
    selector
        .map(|selector| expand_selector(app, table, selector))
        .transpose()
}

/// Expands a new search before it is saved under a name; fails if it would use itself.
pub(crate) fn expand_new(table: &Table, name: &str, condition: &Condition) -> Result<Condition> {
    Expansion::of(table, Some((name, condition))).expand(Condition::Saved(name.to_owned()))
}

/// Parses the stored text of a saved search. A text that cannot be read is an internal error.
pub(crate) fn read(name: &str, text: &str) -> Result<SavedSearch> {
    serde_json::from_str(text).map_err(|error| {
        let message = format!("cannot read saved search {name:?}, maybe of a newer version: {error}");
        Failure::new(ErrorCode::Internal, message)
    })
}

struct Expansion<'a> {
    table: &'a Table,
    /// Search that is not saved yet, with its name.
    new: Option<(&'a str, &'a Condition)>,
    /// Names of the searches that are being expanded, the outermost first.
    within: Vec<String>,
    uses: usize,
    /// Number of conditions expanded so far; a condition `in` counts once per value.
    nodes: usize,
    /// Current nesting depth of conditions.
    depth: usize,
}

impl<'a> Expansion<'a> {
    fn of(table: &'a Table, new: Option<(&'a str, &'a Condition)>) -> Self {
        Self {
            table,
            new,
            within: Vec::new(),
            uses: 0,
            nodes: 0,
            depth: 0,
        }
    }

    fn expand(&mut self, condition: Condition) -> Result<Condition> {
        self.nodes += match &condition {
            Condition::Leaf {
                test: Test::In(In(values)),
                ..
            } => values.len(),
            _ => 1,
        };
        within(
            "number of conditions with all saved searches expanded",
            NODES_MAX,
            self.nodes,
        )?;
        self.depth += 1;
        within("nesting depth of conditions", DEPTH_MAX, self.depth)?;
        let expanded = self.expand_parts(condition);
        self.depth -= 1;
        expanded
    }

    fn expand_parts(&mut self, condition: Condition) -> Result<Condition> {
        let mut all = |conditions: Vec<Condition>| -> Result<Vec<Condition>> {
            conditions.into_iter().map(|inner| self.expand(inner)).collect()
        };
        Ok(match condition {
            Condition::And(conditions) => Condition::And(all(conditions)?),
            Condition::Or(conditions) => Condition::Or(all(conditions)?),
            Condition::Not(inner) => Condition::Not(Box::new(self.expand(*inner)?)),
            Condition::Saved(name) => self.spell_out(name)?,
            leaf @ (Condition::All | Condition::Leaf { .. }) => leaf,
        })
    }

    fn spell_out(&mut self, name: String) -> Result<Condition> {
        // Suggestions and errors would reveal the condition of the saved search.
        if let Some(condition) = self.table.condition() {
            return Err(Failure::new(
                ErrorCode::Forbidden,
                format!(
                    "a token that is restricted to timelines, here with {condition}, cannot use saved searches; repeat the \
                     condition"
                ),
            ));
        }
        if self.within.contains(&name) {
            let path = self.within.join(" → ");
            return Err(Failure::invalid(format!(
                "saved search {name:?} uses itself: {path} → {name}"
            )));
        }
        self.uses += 1;
        within(
            "nesting depth of saved searches",
            NESTED_MAX,
            self.within.len() + 1,
        )?;
        within("number of uses of saved searches", USES_MAX, self.uses)?;
        let condition = self.find(&name)?;
        self.within.push(name);
        let expanded = self.expand(condition)?;
        self.within.pop();
        Ok(expanded)
    }

    fn find(&self, name: &str) -> Result<Condition> {
        if let Some((_, condition)) = self.new.filter(|(new, _)| *new == name) {
            return Ok(condition.clone());
        }
        let text = self
            .table
            .searches()
            .get(name)
            .ok_or_else(|| unknown(self.table, name))?;
        Ok(read(name, &text)?.condition.0)
    }
}

/// Returns an error if `actual` is over `limit`.
fn within(what: &str, limit: usize, actual: usize) -> Result<()> {
    match actual > limit {
        true => Err(Failure::over(
            ErrorCode::OverLimit,
            what,
            limit as u64,
            actual as u64,
        )),
        false => Ok(()),
    }
}

/// Creates the error of an unknown saved search.
pub(crate) fn unknown(table: &Table, name: &str) -> Failure {
    let table = table.name().as_str();
    Failure::new(
        ErrorCode::NotFound,
        format!(
            "table {table} has no saved search {name:?}; GET /v1/tables/{table}/searches lists all of them"
        ),
    )
}
