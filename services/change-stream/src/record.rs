//! Records of change streams as JSON.
//!
//! A record begins with the cursor after it, the sequence of its journal entry as `position`, its table and its kind; a
//! gap has neither position nor table. Positions have the order of the writes, also in different partitions. Points have
//! the form of query results. Rows and messages have the form of reads, so a record can be written to another table
//! without conversion.

use std::io::Write as _;

use serde_json::{Value, json};
use tideline_engine::changes::{Change, TableChanges};
use tideline_engine::model::feed::SOURCE;
use tideline_engine::model::{TableModel, TimeRange, Timestamp};
use tideline_engine::rows::{CellValue, Effect, Mutation};
use tideline_engine::watch::WatchedDelete;
use tideline_engine::{Engine, WideTable};
use tideline_message_feed::MessageEncoder;
use tideline_message_feed::message::key_of;
use tideline_message_feed::viewer::was_inbox;
use tideline_openapi::change::ChangeKind;
use tideline_openapi::query::{IntegerForm, TimeForm};
use tideline_openapi::row::RowIntegers;
use tideline_results::{put_watched_series, timeline_view};
use tideline_rows::selection;
use tideline_rows::value::write_text;
use tideline_rows::{RowEncoder, RowsError, Selection};

use crate::error::Result;
use crate::position::Position;

/// Returns the kind of a change.
pub(crate) fn kind_of(changes: &TableChanges, change: &Change) -> ChangeKind {
    match change {
        Change::Points(_) => ChangeKind::Points,
        Change::Timeline(_) => ChangeKind::Timeline,
        Change::Deleted(_) => ChangeKind::PointsDeleted,
        Change::Search(..) => ChangeKind::Search,
        Change::Metric(_) => ChangeKind::Metric,
        Change::RowsDeleted(_) => ChangeKind::RowsDeleted,
        Change::Row { .. } if changes.table.spec().model == TableModel::Feed => ChangeKind::Message,
        Change::Row { .. } => ChangeKind::Row,
    }
}

/// Appends the record of a change. `after` is the position after it.
pub(crate) fn write_record(
    engine: &Engine,
    changes: &TableChanges,
    change: &Change,
    after: Position,
    out: &mut Vec<u8>,
) -> Result<()> {
    let kind = kind_of(changes, change);
    let kind = serde_json::to_value(kind).unwrap_or_default();
    let table = changes.table.name();
    write!(
        out,
        "{{\"cursor\":\"{after}\",\"position\":\"{}\",\"table\":\"{table}\",\"kind\":{kind}",
        after.sequence.0
    )
    .map_err(RowsError::from)?;
    match change {
        Change::Points(series) => {
            out.extend_from_slice(b",\"series\":");
            put_watched_series(series, TimeForm::Rfc3339, IntegerForm::Number, out);
        }
        Change::Timeline(timeline) => {
            let view = timeline_view(timeline.clone());
            write_member("timeline", &serde_json::to_value(view).unwrap_or_default(), out);
        }
        Change::Deleted(delete) => write_deleted(delete, out),
        Change::Search(name, text) => {
            write_member("name", &Value::from(name.as_str()), out);
            match text {
                Some(text) => {
                    out.extend_from_slice(b",\"search\":");
                    out.extend_from_slice(text.as_bytes());
                }
                None => write_member("deleted", &Value::from(true), out),
            }
        }
        Change::Metric(name) => write_member("name", &Value::from(name.as_str()), out),
        Change::Row { key, mutation } => {
            if let Some(rows) = &changes.rows {
                write_row(engine, rows, key, mutation, out)?;
            }
        }
        Change::RowsDeleted(range) => {
            if let Some(rows) = &changes.rows {
                write_bound("start", rows, &range.start, out)?;
                write_bound("end", rows, range.end.as_deref().unwrap_or_default(), out)?;
            }
        }
    }
    out.push(b'}');
    Ok(())
}

/// Reason of a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GapReason {
    /// The changes are not kept any more.
    Freed,
    /// The changes cannot be read.
    Damaged,
    /// The changes are older than the stream. The cursor belongs to another stream, or to an earlier one of this name.
    BeforeStream,
}

impl GapReason {
    const fn text(self) -> &'static str {
        match self {
            Self::Freed => "freed",
            Self::Damaged => "damaged",
            Self::BeforeStream => "before_stream",
        }
    }
}

/// Appends a gap: the record of changes that cannot be read. `after` is the position of the next readable change.
pub(crate) fn write_gap(from: Position, after: Position, reason: GapReason, out: &mut Vec<u8>) {
    let record = json!({
        "cursor": after.to_string(),
        "kind": "gap",
        "from": from.to_string(),
        "reason": reason.text(),
    });
    out.extend_from_slice(record.to_string().as_bytes());
}

/// Appends the record of the drop of a table. `after` is the position after it.
pub(crate) fn write_drop(table: &str, after: Position, out: &mut Vec<u8>) {
    let record = json!({
        "cursor": after.to_string(),
        "position": after.sequence.0.to_string(),
        "table": table,
        "kind": ChangeKind::Table,
        "op": "drop",
    });
    out.extend_from_slice(record.to_string().as_bytes());
}

fn write_member(name: &str, value: &Value, out: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = write!(out, ",\"{name}\":{value}");
}

fn write_deleted(delete: &WatchedDelete, out: &mut Vec<u8>) {
    if let Some(id) = delete.timelines.first() {
        write_member("timeline", &Value::from(id.to_string()), out);
    }
    write_member("removed", &Value::from(delete.is_removed), out);
    let TimeRange { start, end } = delete.range;
    let time = |nanos| Value::from(Timestamp::from_nanos_clamped(nanos).to_rfc3339());
    if !delete.range.is_empty() && start != i64::MIN {
        write_member("start", &time(start), out);
    }
    if !delete.range.is_empty() && end != i64::MAX {
        write_member("end", &time(end), out);
    }
}

/// Appends the members of a change of a row or message.
fn write_row(
    engine: &Engine,
    table: &WideTable,
    key: &[u8],
    mutation: &[u8],
    out: &mut Vec<u8>,
) -> Result<()> {
    let damaged = |reason: &dyn std::fmt::Display| RowsError::Damaged {
        table: table.table().name().to_string(),
        reason: format!("a journal entry: {reason}"),
    };
    let mutation = Mutation::decode(mutation).map_err(|error| damaged(&error))?;
    let mut mutation = engine.with_stored_contents(table, key, mutation)?;
    let missing = take_missing(table, &mut mutation);
    let op = match mutation.effect {
        Effect::Replace => "put",
        Effect::Update => "update",
        Effect::Delete => "delete",
    };
    write_member("op", &Value::from(op), out);
    let time = Timestamp::from_nanos_clamped(mutation.time).to_rfc3339();
    write_member("time", &Value::from(time), out);
    if !missing.is_empty() {
        write_member("missing", &Value::from(missing), out);
    }
    let is_feed = table.table().spec().model == TableModel::Feed;
    if is_feed {
        out.extend_from_slice(b",\"message\":");
        let encoder = MessageEncoder {
            columns: None,
            has_feed: true,
            has_lists: true,
        };
        encoder.write_row(table, key, &mutation, None, out)?;
        let (source, _) = table.column(SOURCE);
        let source = mutation.column(&source).and_then(|column| column.newest());
        if let Some(source) = source {
            // The entry of an inbox refers to the message of this feed with the same sequence number.
            out.extend_from_slice(b",\"source\":");
            tideline_rows::value::write_plain(&source.value, RowIntegers::Number, out);
        }
        let (feed, _) = key_of(table, key)?;
        // Only entries of inboxes name a source, but a deletion does not, because it has no columns.
        if source.is_some() || was_inbox(engine, table, feed) {
            write_member("inbox", &Value::from(true), out);
        }
        return Ok(());
    }
    // The key and the columns have the form that writes of rows accept.
    let has_versions = table.settings().max_versions > 1;
    let selection = match has_versions {
        true => Selection::new(None, Some(u32::MAX), None, RowIntegers::Number, Timestamp::EPOCH)?,
        false => Selection::all(RowIntegers::Number),
    };
    let start = out.len();
    selection.write_row(table, key, &mutation, None, out)?;
    // The members of the row become members of the record.
    out[start] = b',';
    out.truncate(out.len() - 1);
    let cleared = mutation.columns.iter().filter(|column| column.clears);
    let cleared: Vec<&str> = cleared.filter_map(|column| table.name_of(&column.name)).collect();
    if !cleared.is_empty() {
        out.extend_from_slice(b",\"clear\":[");
        for (at, name) in cleared.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            write_text(name, out);
        }
        out.push(b']');
    }
    Ok(())
}

/// Removes the values that are no longer stored from a change, and returns the names of their columns. Only values that a
/// write has stored outside of its row can be missing, after a later change has removed them from the row or the part
/// was archived.
fn take_missing(table: &WideTable, mutation: &mut Mutation<'_>) -> Vec<String> {
    let mut missing = Vec::new();
    for column in &mut mutation.columns {
        let count = column.versions.len();
        column
            .versions
            .retain(|version| !matches!(&version.value, CellValue::Large(value) if value.is_cut));
        if column.versions.len() < count
            && let Some(name) = table.name_of(&column.name)
        {
            missing.push(name.to_owned());
        }
    }
    missing
}

/// Appends a bound of a range of stored keys: its leading key columns as far as they are complete, and its bytes in
/// hexadecimal. Appends nothing for an open bound.
fn write_bound(name: &str, table: &WideTable, bound: &[u8], out: &mut Vec<u8>) -> Result<()> {
    if bound.is_empty() {
        return Ok(());
    }
    let stored: String = bound.iter().map(|byte| format!("{byte:02x}")).collect();
    write!(out, ",\"{name}\":{{\"stored\":\"{stored}\",\"key\":").map_err(RowsError::from)?;
    selection::write_bound(table, bound, RowIntegers::Number, out);
    out.push(b'}');
    Ok(())
}
