//! Diagnosis of one key: its stored data and their locations, and the rule that hides each piece from reads.
//!
//! The store traces the layers of the key. This module adds the names and types of columns, describes the rules in
//! words, and adds the indexes of the table and the tests of a condition.
//!
//! Values are shown as they are stored, so that values that no read returns can be found and corrected.

mod condition;
mod words;

use std::sync::Arc;

use serde_json::value::RawValue;
use tideline_engine::model::{PartPeriod, Tier, TierScope, Timestamp};
use tideline_engine::row_search::{IndexPhase, SearchTrace};
use tideline_engine::rows::{ColumnName, Effect, StoredRow};
use tideline_engine::why::{
    ChangeTrace, EntryTrace, IndexTrace, KeyTrace, LayerLocation, LayerTrace, PartTrace, PartVisibility,
    VersionTrace,
};
use tideline_engine::{Engine, WideTable};
use tideline_openapi::row::RowIntegers;
use tideline_openapi::row_why::{
    RowWhy, WhyChange, WhyCode, WhyColumn, WhyHidden, WhyIndex, WhyIndexColumn, WhyLayer, WhyLocation,
    WhyPart, WhyRow, WhyVersion,
};

pub(crate) use self::condition::{NamedTest, tests as named_tests};
use self::words::Words;
use crate::error::Result;
use crate::selection::{Selection, write_key};
use crate::{key, value};

/// Maximum number of columns that an explanation lists.
pub const WHY_COLUMNS_MAX: usize = 1_000;
/// Maximum number of versions that an explanation lists.
pub const WHY_VERSIONS_MAX: usize = 10_000;

/// Explains a key. The request id in the result is empty.
///
/// # Errors
///
/// [`Invalid`](crate::RowsError::Invalid) for a key or a condition that is not valid for the table,
/// [`OverLimit`](crate::RowsError::OverLimit) for a condition with too many tests,
/// [`Cancelled`](crate::RowsError::Cancelled) if `is_stopped` returns true, and the errors of [`Engine::trace_row`].
pub fn why(
    engine: &Engine,
    table: &Arc<WideTable>,
    request: &WhyRow,
    is_stopped: &dyn Fn() -> bool,
) -> Result<RowWhy> {
    let key = key::encode(table, &request.key)?;
    let now = engine.now();
    let selection = Selection::new(request.columns.as_deref(), None, None, RowIntegers::Number, now)?;
    let tests = request.filter.as_ref().map(condition::tests).transpose()?;
    let trace = engine.trace_row(table, &key)?;
    let words = Words::new(table, &trace);
    let hidden = match (trace.is_visible(), &trace.hidden) {
        (true, _) => None,
        (false, Some(hidden)) => Some(words.row(hidden)),
        (false, None) => Some(words.not_stored()),
    };
    let row = match trace.is_visible() {
        true => engine.row(table, &key)?,
        false => None,
    };
    let mut indexes = Vec::new();
    for index in engine.trace_indexes(table, &key, row.as_ref())? {
        indexes.push(secondary(&index, hidden.as_ref()));
    }
    for index in engine.trace_searches(table, &key, row.as_ref())? {
        indexes.push(search(&index, row.as_ref(), hidden.as_ref(), table)?);
    }
    let filter = match (&request.filter, tests) {
        (Some(filter), Some(tests)) => {
            let tested = condition::evaluate(engine, table, &key, row.as_ref(), (filter, tests), is_stopped);
            Some(tested?)
        }
        _ => None,
    };
    let (columns, columns_total, versions_total) = columns(table, &trace, &selection, &words);
    let mut json = Vec::new();
    write_key(table, &key, RowIntegers::Number, &mut json)?;
    Ok(RowWhy {
        key: raw(json),
        visible: trace.is_visible(),
        hidden,
        now: text(trace.now),
        written: trace.time.map(text),
        expires: trace.expires().map(text),
        max_versions: trace.versions_max,
        part: trace
            .part
            .zip(table.settings().parts.as_ref())
            .map(|(part, spec)| part_of(part, spec.every)),
        layers: trace.layers.iter().map(|layer| layer_of(layer, &words)).collect(),
        columns,
        columns_total,
        versions_total,
        indexes,
        filter,
        request_id: String::new(),
    })
}

fn text(nanos: i64) -> String {
    Timestamp::from_nanos_clamped(nanos).to_rfc3339()
}

/// Converts JSON that this crate has written. Returns `null` if it is not valid.
fn raw(json: Vec<u8>) -> Box<RawValue> {
    let json = String::from_utf8(json).unwrap_or_default();
    RawValue::from_string(json).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

fn part_of(part: PartTrace, every: PartPeriod) -> WhyPart {
    WhyPart {
        name: every.part_name(part.number),
        start: text(every.start_of(part.number)),
        end: text(every.start_of(part.number.saturating_add(1))),
        state: match part.visibility {
            PartVisibility::Visible => "visible",
            PartVisibility::Hidden => "hidden",
            PartVisibility::Dropped => "dropped",
        }
        .to_owned(),
    }
}

fn layer_of(layer: &LayerTrace, words: &Words<'_>) -> WhyLayer {
    let (place, generation) = match layer.location {
        LayerLocation::Buffer(generation) => (WhyLocation::Buffer, Some(generation)),
        LayerLocation::Single => (WhyLocation::Single, None),
        LayerLocation::Packed => (WhyLocation::Packed, None),
        LayerLocation::Archive => (WhyLocation::Archive, None),
    };
    let change = |change: &ChangeTrace| WhyChange {
        effect: match change.effect {
            Effect::Replace => "put",
            Effect::Update => "update",
            Effect::Delete => "delete",
        }
        .to_owned(),
        time: change.time.map(text),
        columns: change.columns,
        bytes: change.bytes,
        hidden: change.hidden.as_ref().map(|hidden| words.row(hidden)),
    };
    WhyLayer {
        place,
        generation,
        position: layer.sequence.map(|sequence| sequence.0.to_string()),
        deletes_range: layer.deletes_range,
        fragments: (layer.fragments > 0).then_some(layer.fragments),
        group: layer.group.clone(),
        changes: layer.changes.iter().map(change).collect(),
    }
}

/// Returns the selected columns that fit the limits, the number of all selected columns, and the number of all their
/// versions.
fn columns(
    table: &WideTable,
    trace: &KeyTrace,
    selection: &Selection,
    words: &Words<'_>,
) -> (Vec<WhyColumn>, usize, usize) {
    let (mut columns, mut listed, mut total, mut versions) = (Vec::new(), 0, 0, 0);
    for of_column in trace.versions.chunk_by(|one, other| one.column == other.column) {
        let Some(first) = of_column.first() else { continue };
        let known = table.name_of(&first.column);
        let name = match (known, &first.column) {
            (Some(name), _) => name.to_owned(),
            (None, ColumnName::Declared(number)) => format!("#{number}"),
            (None, ColumnName::Named(name)) => name.to_string(),
        };
        if !selection.has(&name) {
            continue;
        }
        total += 1;
        versions += of_column.len();
        let room = WHY_VERSIONS_MAX - listed;
        if columns.len() == WHY_COLUMNS_MAX || room == 0 {
            continue;
        }
        let declared = known.and_then(|name| table.column(name).1);
        let newest = of_column.iter().find(|traced| traced.hidden.is_none());
        let shown: Vec<WhyVersion> = of_column
            .iter()
            .take(room)
            .map(|traced| version(traced, trace, known.is_none(), words))
            .collect();
        listed += shown.len();
        columns.push(WhyColumn {
            declared: declared.map(|declared| declared.name().to_owned()),
            remark: newest.and_then(|newest| words.type_remark(&newest.version.value, declared)),
            name,
            versions: shown,
        });
    }
    columns.sort_by(|one, other| one.name.cmp(&other.name));
    (columns, total, versions)
}

fn version(traced: &VersionTrace, trace: &KeyTrace, is_removed: bool, words: &Words<'_>) -> WhyVersion {
    let mut json = Vec::new();
    value::write_plain(&traced.version.value, RowIntegers::Number, &mut json);
    let time = traced.version.time;
    let hidden = traced.hidden.as_ref().map(|hidden| words.version(hidden, traced));
    WhyVersion {
        version: text(time),
        is_in_future: time > trace.now,
        value_type: traced.version.value.column_type().name().to_owned(),
        value: raw(json),
        layer: traced.layer,
        expires: words.expiry_of_version(time),
        hidden: hidden.or_else(|| is_removed.then(|| words.column_removed())),
    }
}

/// Returns the diagnosis of the entry of the row in a secondary index. `row` is the reason why reads do not return the
/// row; `None` if they return it.
fn secondary(trace: &IndexTrace, row: Option<&WhyHidden>) -> WhyIndex {
    let hidden = match &trace.entry {
        EntryTrace::Present if trace.is_ready => None,
        EntryTrace::Present => Some(plain(
            WhyCode::IndexNotReady,
            "the index is being built; reads through it are refused until the job build_index has ended"
                .to_owned(),
        )),
        EntryTrace::NoRow => Some(row.cloned().unwrap_or_else(changed_meanwhile)),
        EntryTrace::NoValue { column } => Some(plain(
            WhyCode::NoValue,
            format!(
                "the row has no value of {column:?}, a column of the index key; rows without one have no entry"
            ),
        )),
        EntryTrace::OtherType {
            column,
            found,
            expected,
        } => Some(plain(
            WhyCode::OtherType,
            format!(
                "the value of {column:?} is a {found}, and the index holds values of type {expected}; write the value \
                 again with this type"
            ),
        )),
        EntryTrace::OtherTier { tier, covered } => Some(other_tier(*tier, *covered)),
        EntryTrace::Refused(reason) => Some(plain(WhyCode::TooLong, reason.clone())),
        EntryTrace::Missing if !trace.is_ready => Some(plain(
            WhyCode::IndexBehind,
            "the build of the index has not reached the row yet".to_owned(),
        )),
        EntryTrace::Missing => Some(changed_meanwhile()),
    };
    WhyIndex {
        name: trace.index.clone(),
        kind: "secondary".to_owned(),
        holds_row: hidden.is_none(),
        hidden,
        columns: Vec::new(),
    }
}

fn other_tier(tier: Tier, covered: TierScope) -> WhyHidden {
    plain(
        WhyCode::OtherTier,
        format!("the row is in the tier {tier}, and the index covers only the tier {covered}"),
    )
}

/// Returns the diagnosis of the document of the row in a search index. `hidden` is the reason why reads do not return
/// the row; `None` if they return it.
fn search(
    trace: &SearchTrace,
    row: Option<&StoredRow>,
    hidden: Option<&WhyHidden>,
    table: &WideTable,
) -> Result<WhyIndex> {
    let time = match row {
        Some(row) => {
            let columns = row.columns();
            Some(
                columns
                    .map_err(|reason| crate::read::damaged(table, reason))?
                    .time,
            )
        }
        None => None,
    };
    let changes = trace.backlog.changes;
    let not_ready = |what: &str| Some(plain(WhyCode::IndexNotReady, what.to_owned()));
    let reason = match (trace.phase, time) {
        (IndexPhase::Opening, _) => {
            not_ready("the index is being opened after a start; searches wait for it")
        }
        (IndexPhase::Failed, _) => {
            not_ready("the index has failed and is built again; searches are refused meanwhile")
        }
        (_, None) => Some(hidden.cloned().unwrap_or_else(changed_meanwhile)),
        _ if trace.other_tier.is_some() => trace.other_tier.map(|(tier, covered)| other_tier(tier, covered)),
        (IndexPhase::Building, Some(time)) if trace.document != Some(time) => Some(plain(
            WhyCode::IndexBehind,
            "the index is being built and has not reached the row; searches are refused until it is built"
                .to_owned(),
        )),
        (IndexPhase::Building, Some(_)) => {
            not_ready("the index is being built; searches are refused meanwhile")
        }
        (IndexPhase::Built, Some(time)) if trace.document == Some(time) => None,
        (IndexPhase::Built, Some(_)) if changes > 0 => Some(plain(
            WhyCode::IndexBehind,
            format!(
                "the index does not hold the last write of the row yet; {changes} changes wait. Write with refresh=wait, or \
                 search with at_least, to wait for a write"
            ),
        )),
        (IndexPhase::Built, Some(_)) => Some(changed_meanwhile()),
    };
    let columns = trace.left_out.iter().map(|column| WhyIndexColumn {
        name: column.column.clone(),
        form: column.form.name().to_owned(),
        hidden: match column.is_too_long {
            true => plain(
                WhyCode::TooLong,
                "keywords of more than 32 KiB are not indexed; index the column as text".to_owned(),
            ),
            false => plain(
                WhyCode::OtherType,
                format!(
                    "the stored value is streamed, not of the declared type, or not of the form {:?}; searches find it \
                     only by `exists`",
                    column.form.name()
                ),
            ),
        },
    });
    Ok(WhyIndex {
        name: trace.index.clone(),
        kind: "search".to_owned(),
        holds_row: reason.is_none(),
        hidden: reason,
        columns: columns.collect(),
    })
}

fn changed_meanwhile() -> WhyHidden {
    plain(
        WhyCode::ChangedMeanwhile,
        "the row was changed while it was explained; repeat the request".to_owned(),
    )
}

/// Returns a reason without a time and a layer.
fn plain(code: WhyCode, reason: String) -> WhyHidden {
    WhyHidden {
        code,
        since: None,
        by: None,
        reason,
    }
}
