//! Saved searches put in the place of their names.

use tideline_engine::Table;
use tideline_engine::condition::condition::{DEPTH_MAX, NODES_MAX};
use tideline_engine::condition::operators::In;
use tideline_engine::condition::{Condition, Test};
use tideline_openapi::query::TimelineSelector;
use tideline_openapi::search::SavedSearch;
use tideline_openapi::{self as wire, ErrorCode};

use crate::app::App;
use crate::failure::{Failure, Result};

/// Most saved searches within each other.
const NESTED_MAX: usize = 16;
/// Most uses of saved searches by one request, those within each other counted each time.
const USES_MAX: usize = 100;

/// The condition with every saved search of the table spelled out.
pub(crate) fn expand(app: &App, table: &str, condition: Condition) -> Result<Condition> {
    if !condition.uses_saved() {
        // Whether the table exists is asked when the request has its turn.
        return Ok(condition);
    }
    let table = app.engine.table(table)?;
    Expansion::of(&table, None).expand(condition)
}

/// As [`expand`], of timelines that are named by a condition or by ids.
pub(crate) fn expand_selector(
    app: &App,
    table: &str,
    mut selector: TimelineSelector,
) -> Result<TimelineSelector> {
    if let Some(condition) = selector.condition {
        selector.condition = Some(wire::Condition(expand(app, table, condition.0)?));
    }
    Ok(selector)
}

/// As [`expand_selector`], where a question may name none.
pub(crate) fn expand_optional(
    app: &App,
    table: &str,
    selector: Option<TimelineSelector>,
) -> Result<Option<TimelineSelector>> {
    selector
        .map(|selector| expand_selector(app, table, selector))
        .transpose()
}

/// What a search that is to be saved under a name means; refused where it would use itself.
pub(crate) fn expand_new(table: &Table, name: &str, condition: &Condition) -> Result<Condition> {
    Expansion::of(table, Some((name, condition))).expand(Condition::Saved(name.to_owned()))
}

/// What a saved search says.
pub(crate) fn read(name: &str, text: &str) -> Result<SavedSearch> {
    serde_json::from_str(text).map_err(|error| {
        let message = format!("saved search {name:?} was written by a newer build: {error}");
        Failure::new(ErrorCode::Internal, message)
    })
}

struct Expansion<'a> {
    table: &'a Table,
    /// A search that is not saved yet.
    new: Option<(&'a str, &'a Condition)>,
    /// The searches that are being spelled out, the outermost first.
    within: Vec<String>,
    uses: usize,
    /// Conditions and values so far, and conditions around the one at hand.
    nodes: usize,
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
            "conditions with all saved searches spelled out",
            NODES_MAX,
            self.nodes,
        )?;
        self.depth += 1;
        within("conditions within each other", DEPTH_MAX, self.depth)?;
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
        if self.within.contains(&name) {
            let path = self.within.join(" → ");
            return Err(Failure::invalid(format!(
                "saved search {name:?} uses itself: {path} → {name}"
            )));
        }
        self.uses += 1;
        within(
            "saved searches within each other",
            NESTED_MAX,
            self.within.len() + 1,
        )?;
        within("uses of saved searches", USES_MAX, self.uses)?;
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

/// Refuses what is more than its limit.
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

/// There is no such search.
pub(crate) fn unknown(table: &Table, name: &str) -> Failure {
    let table = table.name().as_str();
    Failure::new(
        ErrorCode::NotFound,
        format!(
            "table {table} has no saved search {name:?}; GET /v1/tables/{table}/searches lists those it has"
        ),
    )
}
