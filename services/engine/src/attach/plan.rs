//! Plan of an attachment: the segments and parts to attach, determined before anything is changed.
//!
//! Each description (sidecar of a segment) at the target is read once. Superseded segments and segments that are
//! already attached are omitted; the remaining segments are ordered newest first.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use parking_lot::Mutex;
use tideline_archive::{Archive, Description, origin_of};
use tideline_model::{SegmentId, SequenceNumber, TableName, TableSpec};
use tideline_series_store::{Adopted, Segment, StoreError};

use super::AttachRequest;
use super::plan_rows::PlannedRows;
use crate::engine::Engine;
use crate::error::{EngineError, Result};

/// Number of threads that read descriptions.
const READERS: usize = 8;

/// Segments and parts to attach, table by table.
#[derive(Debug)]
pub struct AttachPlan {
    pub(super) target: String,
    pub(super) own: bool,
    /// Tables with the segments to attach to them.
    pub tables: Vec<PlannedTable>,
    /// Segments skipped because later segments hold the same points.
    pub superseded: u64,
    /// Segments skipped because they are attached already or were written by this database.
    pub known: u64,
    /// Reasons why descriptions, settings or tables are omitted, one sentence each.
    pub problems: Vec<String>,
    /// Timelines of the segments to attach, counted once per segment.
    pub entries: u64,
    /// Wide tables with the parts to attach to them.
    pub rows: Vec<PlannedRows>,
    /// True if the files of parts are read and compared with their checksums before the parts are attached.
    pub(super) verify: bool,
    /// Origins of all descriptions.
    pub(super) origins: BTreeSet<String>,
}

/// Segments to attach to one table.
#[derive(Debug)]
pub struct PlannedTable {
    /// Name of the table in this database.
    pub name: TableName,
    /// Object names of the descriptions, newest first.
    pub keys: Vec<String>,
    /// Segments of these descriptions, in the same order.
    pub(super) segments: Vec<Segment>,
    /// Sequence number above all sequence numbers of the segments.
    pub(super) sequences_end: SequenceNumber,
    /// Settings of the table: the newest settings written next to its files, otherwise the settings of the newest
    /// segment that has settings. `source_tags` is always taken from the newest segment that has settings, if there is
    /// one.
    pub(super) spec: Option<TableSpec>,
    /// Origins whose files the table adopts; empty unless the request sets `own`.
    pub(super) adopted: Vec<Adopted>,
    /// True if all descriptions of the table could be read.
    pub(super) is_whole: bool,
}

/// Content of a description that the plan needs.
struct Found {
    key: String,
    origin: String,
    id: SegmentId,
    segment: Segment,
    spec: Option<TableSpec>,
}

impl Engine {
    pub(super) fn archive(&self) -> Result<&Archive> {
        let archive = self.settings.store.archive.as_deref();
        archive.ok_or_else(|| EngineError::Invalid("the archive is switched off".into()))
    }

    /// Determines the segments that a request attaches. Changes nothing; reads each description once.
    ///
    /// # Errors
    ///
    /// - [`EngineError::Forbidden`] if the target may not be used.
    /// - [`EngineError::Invalid`] if the target or the request is invalid.
    /// - [`EngineError::NoArchive`] if the target holds no matching archive.
    /// - [`EngineError::Attached`] if another table uses the files and one of the two tables owns them.
    /// - A store error if the target cannot be reached.
    pub fn plan_attach(&self, request: &AttachRequest) -> Result<AttachPlan> {
        let archive = self.archive()?;
        let AttachRequest {
            target, table, own, ..
        } = request;
        self.allow_target(target)?;
        if request.rename.is_some() && table.is_none() {
            return Err(EngineError::Invalid(
                "`as` renames a single table; set `table`".into(),
            ));
        }
        if !request.parts.is_empty() && table.is_none() {
            return Err(EngineError::Invalid(
                "`parts` needs a single table; set `table`".into(),
            ));
        }
        let keys = match request.parts.is_empty() {
            true => archive.descriptions(target, table.as_ref()),
            // A request that names parts attaches no segments, because only wide tables have named parts.
            false => Ok(Vec::new()),
        };
        let keys = keys.map_err(StoreError::from)?;
        let of_parts = archive.part_descriptions(target, table.as_ref());
        let of_parts = of_parts.map_err(StoreError::from)?;
        if keys.is_empty() && of_parts.is_empty() {
            let what = table
                .as_ref()
                .map_or_else(String::new, |table| format!(" of table {table}"));
            return Err(EngineError::NoArchive(format!("{target} holds no archive{what}")));
        }
        let mut plan = AttachPlan {
            target: target.clone(),
            own: *own,
            tables: Vec::new(),
            superseded: 0,
            known: 0,
            problems: Vec::new(),
            entries: 0,
            rows: Vec::new(),
            verify: request.verify,
            origins: BTreeSet::new(),
        };
        self.plan_series(&mut plan, request, keys)?;
        self.plan_rows(&mut plan, request, of_parts)?;
        check_origin(request, &plan.origins)?;
        Ok(plan)
    }

    /// Adds the segments of series tables to a plan.
    fn plan_series(&self, plan: &mut AttachPlan, request: &AttachRequest, keys: Vec<String>) -> Result<()> {
        let archive = self.archive()?;
        let target = request.target.as_str();
        let mut by_table: BTreeMap<TableName, Vec<Found>> = BTreeMap::new();
        let mut broken = BTreeSet::new();
        for (key, outcome) in read_all(keys, |key| archive.description(target, key)) {
            match outcome.map(|said| found(&key, said)) {
                Ok(Ok((table, found))) => by_table.entry(table).or_default().push(found),
                Err(error) if error.is_retryable() => return Err(StoreError::from(error).into()),
                Ok(Err(problem)) => note(plan, &mut broken, &key, problem),
                Err(error) => note(plan, &mut broken, &key, error.to_string()),
            }
        }
        plan.origins
            .extend(by_table.values().flatten().map(|of| of.origin.clone()));
        for (described, found) in by_table {
            let is_whole = !broken.contains(described.as_str());
            self.plan_table(plan, request, &described, found, is_whole)?;
        }
        Ok(())
    }

    fn plan_table(
        &self,
        plan: &mut AttachPlan,
        request: &AttachRequest,
        described: &TableName,
        found: Vec<Found>,
        is_whole: bool,
    ) -> Result<()> {
        let name = request.rename.clone().unwrap_or_else(|| described.clone());
        let own_origin = self.store.origin().map(|origin| format!("{origin:016x}"));
        let all = found.len();
        let wanted = |of: &Found| request.origin.as_ref().is_none_or(|origin| *origin == of.origin);
        let others = found
            .into_iter()
            .filter(|of| Some(&of.origin) != own_origin.as_ref());
        let others: Vec<Found> = others.collect();
        plan.known += (all - others.len()) as u64;
        let all = others.iter().filter(|of| wanted(of)).count();
        let mut found = newest_first(without_superseded(others));
        found.retain(wanted);
        plan.superseded += (all - found.len()) as u64;
        if let Some((one, other)) = strangers(&found) {
            plan.problems.push(format!(
                "table {described}: origins {one} and {other} both wrote points of the same time range, and \
                 neither database continues the other; attach each origin as a table of its own: set `table`, \
                 `origin` and `as`"
            ));
            return Ok(());
        }
        self.check_owners(request, &name, described, &found)?;
        let spec = found.iter().find_map(|of| of.spec.clone());
        let spec = self.newest_settings(plan, request, described)?.map_or_else(
            || spec.clone(),
            |newest| {
                // Source tags are fixed by the first write, because every timeline id depends on them.
                let source_tags = spec.as_ref().map(|spec| spec.source_tags.clone());
                Some(TableSpec {
                    source_tags: source_tags.unwrap_or(newest.source_tags),
                    ..newest
                })
            },
        );
        let sequences_end = found.iter().map(|of| of.segment.sequences_end()).max();
        let adopted = match request.own {
            true => origins(&plan.target, described, &found),
            false => Vec::new(),
        };
        if let Ok(table) = self.table(name.as_str()) {
            let known = self.store.descriptions_of(&table.points)?;
            let before = found.len();
            found.retain(|found| !known.contains(&found.key));
            plan.known += (before - found.len()) as u64;
        }
        plan.entries += found.iter().map(|of| of.segment.timelines).sum::<u64>();
        let (keys, segments) = found.into_iter().map(|of| (of.key, of.segment)).unzip();
        plan.tables.push(PlannedTable {
            name,
            keys,
            segments,
            sequences_end: sequences_end.unwrap_or_default(),
            spec,
            adopted,
            is_whole,
        });
        Ok(())
    }

    /// Returns the newest settings that a database has written next to the files of a table, if any. If the request has
    /// an origin, only the settings of that origin are considered. A database that has adopted files also writes its
    /// settings next to them.
    fn newest_settings(
        &self,
        plan: &mut AttachPlan,
        request: &AttachRequest,
        described: &TableName,
    ) -> Result<Option<TableSpec>> {
        let written = self.archive()?.settings(&plan.target, described.as_str());
        let mut settings = Vec::new();
        for (_, outcome) in written.map_err(StoreError::from)? {
            match outcome {
                Ok(written) => settings.push(written),
                Err(error) => plan.problems.push(error.to_string()),
            }
        }
        let is_wanted = |of: &str| request.origin.as_ref().is_none_or(|origin| origin == of);
        settings.retain(|written| is_wanted(&written.origin));
        let newest = settings
            .into_iter()
            .max_by_key(|written| (written.settings.changed, written.revision));
        Ok(newest.map(|written| written.settings.spec))
    }

    /// Checks that files owned by one table are used by no other table; otherwise dropping the owner would delete files
    /// that the other table uses.
    fn check_owners(
        &self,
        request: &AttachRequest,
        name: &TableName,
        described: &TableName,
        found: &[Found],
    ) -> Result<()> {
        for other in self.tables().into_iter().filter(|other| other.name() != name) {
            let archived = self.store.archived(&other.points);
            let files = archived.iter().filter_map(|segment| segment.archive.as_ref());
            let mut files = files.filter(|files| request.own || files.is_owned());
            let shares = files.any(|files| found.iter().any(|found| found.key == files.sidecar()));
            let adopted = other.points.adopted();
            let is_swept = |of: &Found| {
                adopted
                    .iter()
                    .any(|adopted| adopted.table == *described && adopted.origin == of.origin)
            };
            if shares || found.iter().any(is_swept) {
                return Err(EngineError::Attached(format!(
                    "files of table {described} at {} are attached to table {}, and an owner deletes its \
                     files with their points; attach them to one table only, or everywhere without `own`",
                    request.target,
                    other.name()
                )));
            }
        }
        Ok(())
    }
}

/// Reads descriptions with several threads, because a distant target has a high latency per request. Returns them in
/// the order of their names.
pub(super) fn read_all<T: Send>(
    keys: Vec<String>,
    read_one: impl Fn(&str) -> tideline_archive::Result<T> + Sync,
) -> Vec<(String, tideline_archive::Result<T>)> {
    let keys = Mutex::new(keys.into_iter());
    let read = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                loop {
                    let Some(key) = keys.lock().next() else { return };
                    let outcome = read_one(&key);
                    read.lock().push((key, outcome));
                }
            });
        }
    });
    let mut read = read.into_inner();
    read.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    read
}

pub(super) fn note(plan: &mut AttachPlan, broken: &mut BTreeSet<String>, key: &str, problem: String) {
    broken.insert(key.split('/').next().unwrap_or_default().to_owned());
    plan.problems.push(problem);
}

/// Extracts the content of a description that the plan needs. On error, returns the reason why the description is
/// invalid.
fn found(key: &str, description: Description) -> std::result::Result<(TableName, Found), String> {
    let (origin, id) = origin_of(key).ok_or_else(|| format!("{key}: the name contains no origin"))?;
    let segment = Segment::described(&description.segment).map_err(|error| format!("{key}: {error}"))?;
    let found = Found {
        key: key.to_owned(),
        origin: origin.to_owned(),
        id,
        segment,
        spec: description.spec,
    };
    Ok((description.table, found))
}

/// Sorts descriptions so that the newest attributes of a timeline are read first. Origins are sorted by descending
/// sequence of their newest write, and the segments of an origin by descending id.
fn newest_first(mut found: Vec<Found>) -> Vec<Found> {
    let mut newest: BTreeMap<String, u64> = BTreeMap::new();
    for of in &found {
        let of_origin = newest.entry(of.origin.clone()).or_default();
        *of_origin = (*of_origin).max(of.segment.written.newest.sequence);
    }
    found.sort_by_key(|of| std::cmp::Reverse((newest[&of.origin], of.origin.clone(), of.id)));
    found
}

/// Checks that the requested origin has written a segment or a part. Otherwise the error lists the origins of the
/// archive.
fn check_origin(request: &AttachRequest, have: &BTreeSet<String>) -> Result<()> {
    let Some(origin) = &request.origin else {
        return Ok(());
    };
    if have.contains(origin) {
        return Ok(());
    }
    let have: Vec<&str> = have.iter().map(String::as_str).collect();
    Err(EngineError::NoArchive(format!(
        "{} holds no archive of origin {origin:?}; its origins are {}",
        request.target,
        have.join(", ")
    )))
}

/// Returns two origins whose segments overlap in time and whose writes interleave. Neither of these databases
/// continues the other, so the order of their writes is undefined.
fn strangers(found: &[Found]) -> Option<(&str, &str)> {
    let mut by_time: Vec<&Found> = found.iter().collect();
    by_time.sort_unstable_by_key(|of| of.segment.first);
    for (at, one) in by_time.iter().enumerate() {
        let near = by_time[at + 1..].iter();
        let mut near = near.take_while(|other| other.segment.first <= one.segment.last);
        let crosses = |other: &&&Found| {
            other.origin != one.origin && other.segment.written.interleaves(&one.segment.written)
        };
        if let Some(other) = near.find(crosses) {
            return Some((&one.origin, &other.origin));
        }
    }
    None
}

/// Returns the distinct origins of descriptions, in the form that is stored with a table.
fn origins(target: &str, table: &TableName, found: &[Found]) -> Vec<Adopted> {
    let mut all: Vec<Adopted> = Vec::new();
    for of in found {
        if !all.iter().any(|known| known.origin == of.origin) {
            all.push(Adopted {
                target: target.to_owned(),
                table: table.clone(),
                origin: of.origin.clone(),
            });
        }
    }
    all
}

/// Removes descriptions of segments whose points another segment also holds: leftovers of an unfinished removal, and
/// segments that were rewritten into new files.
fn without_superseded(found: Vec<Found>) -> Vec<Found> {
    let replaced: HashSet<&str> = found
        .iter()
        .flat_map(|of| of.segment.replaces.iter().map(String::as_str))
        .collect();
    let is_superseded = |of: &Found| {
        replaced.contains(of.key.as_str())
            || found.iter().any(|later| {
                later.origin == of.origin && later.id > of.id && supersedes(&later.segment, &of.segment)
            })
    };
    let keep: Vec<bool> = found.iter().map(|of| !is_superseded(of)).collect();
    let mut keep = keep.into_iter();
    let mut found = found;
    found.retain(|_| keep.next().unwrap_or(true));
    found
}

/// Returns true if a later segment of a database holds the points of an earlier segment. This is the case if its window
/// and writes include the window and writes of the earlier segment. It is also the case if the ranges of both segments
/// overlap and their writes interleave: two valid segments of a database never overlap in this way, so the earlier
/// segment is a leftover.
fn supersedes(later: &Segment, earlier: &Segment) -> bool {
    let is_within = later.window.holds(earlier.window)
        && later.written.oldest <= earlier.written.oldest
        && earlier.written.newest <= later.written.newest;
    is_within || (later.range().overlaps(&earlier.range()) && later.written.interleaves(&earlier.written))
}
