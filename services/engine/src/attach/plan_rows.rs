//! Plan of the attachment of archived parts of wide tables.
//!
//! For each origin, only the newest description of a part counts. A part that was restored and archived again has new
//! files; its old files are removed later.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use tideline_archive::layout::named;
use tideline_archive::rows::RowsDescription;
use tideline_model::{TableName, TableSpec};
use tideline_series_store::{Adopted, StoreError};

use super::AttachRequest;
use super::plan::{AttachPlan, note, read_all};
use crate::engine::Engine;
use crate::error::{EngineError, Result};

/// Parts to attach to one wide table.
#[derive(Debug)]
pub struct PlannedRows {
    /// Name of the table in this database.
    pub name: TableName,
    /// Parts, oldest first.
    pub parts: Vec<PlannedPart>,
    /// Settings of the table, taken from the newest part.
    pub(super) spec: TableSpec,
    /// Origins whose files the table adopts; empty unless the request sets `own`.
    pub(super) adopted: Vec<Adopted>,
    /// True if all parts of the table are attached, and all descriptions could be read.
    pub(super) is_whole: bool,
}

/// Part to attach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedPart {
    /// Name, such as `2026-11`.
    pub name: String,
    /// Object name of the description.
    pub key: String,
}

/// Fields of a description that are needed for the plan.
pub(super) struct FoundPart {
    key: String,
    origin: String,
    /// Number of the copy of the part. Within an origin, a newer copy has a higher number.
    copy: u64,
    number: i32,
    name: String,
    spec: TableSpec,
}

impl Engine {
    /// Adds the parts of wide tables to a plan.
    pub(super) fn plan_rows(
        &self,
        plan: &mut AttachPlan,
        request: &AttachRequest,
        keys: Vec<String>,
    ) -> Result<()> {
        let archive = self.archive()?;
        let target = request.target.as_str();
        let read = |key: &str| archive.rows_description(target, key);
        let mut by_table: BTreeMap<TableName, Vec<FoundPart>> = BTreeMap::new();
        let mut broken = BTreeSet::new();
        for (key, outcome) in read_all(keys, read) {
            match outcome.map(|described| found(&key, described)) {
                Ok(Ok((table, part))) => by_table.entry(table).or_default().push(part),
                Err(error) if error.is_retryable() => return Err(StoreError::from(error).into()),
                Ok(Err(problem)) => note(plan, &mut broken, &key, problem),
                Err(error) => note(plan, &mut broken, &key, error.to_string()),
            }
        }
        plan.origins
            .extend(by_table.values().flatten().map(|part| part.origin.clone()));
        check_parts(request, by_table.values().flatten())?;
        for (described, found) in by_table {
            let is_whole = !broken.contains(described.as_str());
            self.plan_row_table(plan, request, &described, (found, is_whole))?;
        }
        Ok(())
    }

    fn plan_row_table(
        &self,
        plan: &mut AttachPlan,
        request: &AttachRequest,
        described: &TableName,
        (mut found, is_whole): (Vec<FoundPart>, bool),
    ) -> Result<()> {
        let name = request.rename.clone().unwrap_or_else(|| described.clone());
        let own_origin = self.store.origin().map(|origin| format!("{origin:016x}"));
        let before = found.len();
        found.retain(|part| Some(&part.origin) != own_origin.as_ref());
        plan.known += (before - found.len()) as u64;
        found.retain(|part| {
            request
                .origin
                .as_ref()
                .is_none_or(|origin| *origin == part.origin)
        });
        self.check_row_owners(request, &name, described, &found)?;
        let Some(newest) = found.iter().max_by_key(|part| (part.number, part.copy)) else {
            return Ok(());
        };
        let (spec, origin) = (newest.spec.clone(), newest.origin.clone());
        let adopted = match request.own {
            true => origins(&plan.target, described, &found),
            false => Vec::new(),
        };
        let before = found.len();
        let mut parts = newest_copies(found, &spec, &origin);
        plan.superseded += (before - parts.len()) as u64;
        // Files of a part that is not attached must not be adopted: garbage collection would delete them.
        let all = parts.len();
        take_conflicts(&mut parts, described, &mut plan.problems);
        let is_wanted = |name: &String| request.parts.is_empty() || request.parts.contains(name);
        parts.retain(|part| is_wanted(&part.name));
        let is_whole = is_whole && parts.len() == all;
        if let Ok(table) = self.table_of_any_model(name.as_str()) {
            let known = self.rows.archived_descriptions(table.points.id())?;
            let before = parts.len();
            parts.retain(|part| !known.contains(&part.key));
            plan.known += (before - parts.len()) as u64;
        }
        plan.rows.push(PlannedRows {
            name,
            spec,
            adopted,
            is_whole,
            parts: parts
                .into_iter()
                .map(|FoundPart { name, key, .. }| PlannedPart { name, key })
                .collect(),
        });
        Ok(())
    }

    /// Checks that files owned by one table are used by no other table; otherwise dropping the parts of the owner would
    /// delete files that the other table uses.
    fn check_row_owners(
        &self,
        request: &AttachRequest,
        name: &TableName,
        described: &TableName,
        found: &[FoundPart],
    ) -> Result<()> {
        for other in self.tables().into_iter().filter(|other| other.name() != name) {
            let known = match request.own {
                true => self.rows.archived_descriptions(other.points.id())?,
                false => HashSet::new(),
            };
            let adopted = other.points.adopted();
            let is_owned = |part: &FoundPart| {
                let mut adopted = adopted.iter();
                adopted.any(|adopted| adopted.table == *described && adopted.origin == part.origin)
            };
            let shares = |part: &FoundPart| known.contains(&part.key);
            if found.iter().any(|part| is_owned(part) || shares(part)) {
                return Err(EngineError::Attached(format!(
                    "files of table {described} at {} are attached to table {}, and an owner deletes its \
                     files with their rows; attach them to one table only, or everywhere without `own`",
                    request.target,
                    other.name()
                )));
            }
        }
        Ok(())
    }
}

/// Extracts the content of a description that the plan needs. On error, returns the reason why the description is
/// invalid.
fn found(key: &str, described: RowsDescription) -> std::result::Result<(TableName, FoundPart), String> {
    let object = named(key).ok_or_else(|| format!("{key}: the name contains no origin"))?;
    let settings = described.spec.wide.as_ref().and_then(|wide| wide.parts.as_ref());
    let every = settings.map(|parts| parts.every);
    if every.is_none_or(|every| every.part_name(described.number) != described.name) {
        return Err(format!("{key}: its settings have no part {:?}", described.name));
    }
    let part = FoundPart {
        key: key.to_owned(),
        origin: object.origin.to_owned(),
        copy: object.number,
        number: described.number,
        name: described.name,
        spec: described.spec,
    };
    Ok((described.table, part))
}

/// Checks that the archive has the requested parts.
fn check_parts<'a>(request: &AttachRequest, found: impl Iterator<Item = &'a FoundPart>) -> Result<()> {
    let have: BTreeSet<&str> = found.map(|part| part.name.as_str()).collect();
    let mut wanted = request.parts.iter();
    match wanted.find(|name| !have.contains(name.as_str())) {
        Some(missing) => Err(EngineError::NoArchive(format!(
            "{} holds no part {missing:?}; the first and the last of its {} parts are {:?} and {:?}",
            request.target,
            have.len(),
            have.first().unwrap_or(&""),
            have.last().unwrap_or(&"")
        ))),
        None => Ok(()),
    }
}

/// Keeps the newest copy of each part of each origin. Removes the parts of `origin` that are recorded as dropped in
/// `spec`, the newest settings of this origin. Returns the parts in the order of their numbers.
fn newest_copies(mut found: Vec<FoundPart>, spec: &TableSpec, origin: &str) -> Vec<FoundPart> {
    let settings = spec.wide.as_ref().and_then(|wide| wide.parts.as_ref());
    let first = settings.map_or(i32::MIN, |parts| parts.first);
    found.retain(|part| part.origin != origin || part.number >= first);
    found.sort_by(|one, other| {
        let order = |part: &FoundPart| (part.number, part.origin.clone(), std::cmp::Reverse(part.copy));
        order(one).cmp(&order(other))
    });
    found.dedup_by(|later, first| (later.number, &later.origin) == (first.number, &first.origin));
    found
}

/// Removes the parts that several origins have, because the order of the writes of different origins is not known.
fn take_conflicts(parts: &mut Vec<FoundPart>, described: &TableName, problems: &mut Vec<String>) {
    let mut conflicts = BTreeSet::new();
    for pair in parts.windows(2) {
        if let [one, other] = pair
            && one.number == other.number
            && conflicts.insert(one.number)
        {
            problems.push(format!(
                "table {described}: origins {} and {} both have the part {}; attach each of them by `origin`, under another \
                 name or the preferred one first",
                one.origin, other.origin, one.name
            ));
        }
    }
    parts.retain(|part| !conflicts.contains(&part.number));
}

/// Returns the distinct origins of parts, in the form that is stored with a table.
fn origins(target: &str, table: &TableName, found: &[FoundPart]) -> Vec<Adopted> {
    let origins: BTreeSet<&String> = found.iter().map(|part| &part.origin).collect();
    let adopted = |origin: &String| Adopted {
        target: target.to_owned(),
        table: table.clone(),
        origin: origin.clone(),
    };
    origins.into_iter().map(adopted).collect()
}
