//! State of the delivery of a feed: the ranges of sequence numbers that members read from the feed, and the progress of
//! the job that writes such messages to the inboxes later.
//!
//! The ranges are in the row ("", feed, "") of the table of users, which requests change. The progress is in the row
//! ("", feed, "fan_out"), which only the job writes. The progress applies to ranges that the job writes: it is the
//! effective start of such a range, so the job shortens the range without changing the row of the ranges.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tideline_engine::model::TimelineId;
use tideline_engine::model::feed::{FAN_OUT, PULLED};
use tideline_engine::rows::{
    Action, CellValue, Column, Image, RowDigest, RowWrite, RowWriteOptions, Unchanged, WideError,
};
use tideline_engine::{Engine, EngineError, WideTable};
use tideline_rows::Result;

use crate::delivery::fan_out_max;
use crate::members::user_key;
use crate::message::{damaged, newest};
use crate::send::COMMITS_MAX;

/// Range of sequence numbers that members read from the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pulled {
    pub(crate) from: i64,
    /// Exclusive end; `None` while messages are still pulled.
    pub(crate) to: Option<i64>,
    /// True while messages are also pushed, because the range has just begun or is about to end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_pushed_too: bool,
    /// True if the job writes the messages to the inboxes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_fanned_out: bool,
}

/// Progress of the job that writes messages to inboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// Sequence number below which the inboxes have all messages of the ranges of the job.
    pub(crate) done: i64,
    /// Sequence number below which the job writes messages at present. A member who joins gets the messages from `done`
    /// on from the job or from the request to join.
    pub(crate) until: i64,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            done: i64::MIN,
            until: i64::MIN,
        }
    }
}

/// State of the delivery of a feed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// Ranges, in rising order.
    pub(crate) pulled: Vec<Pulled>,
    pub(crate) progress: Progress,
}

impl State {
    /// Reads the state of a feed. `table` is the feed table, and `users` is its table of users.
    pub(crate) fn read(
        engine: &Engine,
        (table, users): (&WideTable, &WideTable),
        feed: TimelineId,
    ) -> Result<Self> {
        Ok(Self::with_digest(engine, (table, users), feed)?.0)
    }

    /// Reads the state of a feed, with the digest of the row of its ranges; `None` if it was never written.
    fn with_digest(
        engine: &Engine,
        (table, users): (&WideTable, &WideTable),
        feed: TimelineId,
    ) -> Result<(Self, Option<RowDigest>)> {
        // Reads the progress before the ranges: a progress that is newer than the ranges could belong to later ranges.
        // An older progress only leaves more messages to the readers. Without a job there is no progress.
        let progress = match fan_out_max(table) {
            0 => None,
            _ => read_json(engine, users, feed, FAN_OUT)?.map(|(progress, _)| progress),
        };
        let read = read_json(engine, users, feed, "")?;
        let (pulled, digest) = read.map_or_else(Default::default, |(pulled, digest)| (pulled, Some(digest)));
        let progress = progress.unwrap_or_default();
        Ok((Self { pulled, progress }, digest))
    }

    /// Changes the ranges of a feed. `change` returns false if there is nothing to change.
    pub(crate) fn change(
        engine: &Engine,
        (table, users): (&WideTable, &WideTable),
        feed: TimelineId,
        change: impl Fn(&mut Self) -> bool,
    ) -> Result<bool> {
        for _ in 0..COMMITS_MAX {
            let (mut state, digest) = Self::with_digest(engine, (table, users), feed)?;
            if !change(&mut state) {
                return Ok(false);
            }
            let (key, _) = user_key(users, "", feed, "")?;
            let unchanged = vec![Unchanged::Row {
                key: key.to_vec(),
                digest,
            }];
            if write_json(engine, users, (feed, ""), &state.pulled, unchanged)? {
                return Ok(true);
            }
        }
        let contended = WideError::Contended {
            attempts: COMMITS_MAX,
        };
        Err(EngineError::from(contended).into())
    }

    /// Sets the progress of the job.
    pub(crate) fn set_progress(
        engine: &Engine,
        users: &WideTable,
        feed: TimelineId,
        progress: Progress,
    ) -> Result<()> {
        write_json(engine, users, (feed, FAN_OUT), &progress, Vec::new())?;
        Ok(())
    }

    /// Returns the range without an end; `None` while messages are only pushed.
    pub(crate) fn open(&self) -> Option<&Pulled> {
        self.pulled.last().filter(|range| range.to.is_none())
    }

    /// Returns true if new messages are written to the inboxes by their request.
    pub(crate) fn is_pushed(&self) -> bool {
        self.open().is_none_or(|range| range.is_pushed_too)
    }

    /// Returns the ranges that members read from the feed, without messages that the job has written.
    pub(crate) fn left_to_readers(&self) -> impl Iterator<Item = (i64, Option<i64>)> {
        self.ranges(self.progress.done)
    }

    /// Returns true if the request of a joining member must not add an inbox entry for a message, because readers of
    /// the inbox read the message from the feed, or the job adds the entry.
    pub(crate) fn is_left_to_others(&self, sequence: i64) -> bool {
        let mut ranges = self.ranges(self.progress.until);
        ranges.any(|(from, to)| sequence >= from && to.is_none_or(|to| sequence < to))
    }

    /// Returns the ranges. Ranges of the job begin at `done` or later.
    fn ranges(&self, done: i64) -> impl Iterator<Item = (i64, Option<i64>)> {
        self.pulled.iter().filter_map(move |range| {
            let from = match range.is_fanned_out {
                true => range.from.max(done),
                false => range.from,
            };
            range.to.is_none_or(|to| from < to).then_some((from, range.to))
        })
    }

    /// Returns the parts of the ranges of the job that it has not written yet, below a sequence number.
    pub(crate) fn waiting(&self, end: i64) -> Vec<(i64, i64)> {
        let of_job = self.pulled.iter().filter(|range| range.is_fanned_out);
        let parts = of_job.map(|range| {
            let to = range.to.map_or(end, |to| to.min(end));
            (range.from.max(self.progress.done), to)
        });
        parts.filter(|(from, to)| from < to).collect()
    }

    /// Removes the ranges that the job has written completely.
    pub(crate) fn forget_written(&mut self) {
        let done = self.progress.done;
        self.pulled
            .retain(|range| !range.is_fanned_out || range.to.is_none_or(|to| to > done));
    }

    /// Ends the fan-out of the unwritten messages below `end`. If `end` is `None`, ends the fan-out of all unwritten
    /// and later messages. Readers of inboxes always read these messages from the feed. Returns true if this changes a
    /// range.
    pub(crate) fn leave_to_readers(&mut self, end: Option<i64>) -> bool {
        let done = self.progress.done;
        let mut ranges: Vec<Pulled> = Vec::with_capacity(self.pulled.len() + 1);
        for range in &self.pulled {
            let from = range.from.max(done);
            let is_reached = end.is_none_or(|end| from < end) && range.to.is_none_or(|to| from < to);
            if !range.is_fanned_out || !is_reached {
                ranges.push(*range);
                continue;
            }
            let rest = end.filter(|end| range.to.is_none_or(|to| *end < to));
            let to = rest.or(range.to);
            match ranges.last_mut() {
                // The messages before were left to the readers too.
                Some(last) if !last.is_fanned_out && last.to == Some(from) => last.to = to,
                _ => ranges.push(Pulled {
                    from,
                    to,
                    is_pushed_too: range.is_pushed_too && rest.is_none(),
                    is_fanned_out: false,
                }),
            }
            ranges.extend(rest.map(|from| Pulled { from, ..*range }));
        }
        let is_changed = ranges != self.pulled;
        self.pulled = ranges;
        is_changed
    }
}

/// Reads a JSON value of the state of a feed, with the digest of its row; `None` if it was never written.
fn read_json<T: DeserializeOwned + Default>(
    engine: &Engine,
    users: &WideTable,
    feed: TimelineId,
    row: &str,
) -> Result<Option<(T, RowDigest)>> {
    let (key, _) = user_key(users, "", feed, row)?;
    let Some(row) = engine.row(users, &key)? else {
        return Ok(None);
    };
    let columns = row.columns().map_err(|reason| damaged(users, reason))?;
    let value = match newest(users, &columns, PULLED) {
        Some(CellValue::Json(json)) => serde_json::from_str(json).map_err(|error| damaged(users, error))?,
        _ => T::default(),
    };
    Ok(Some((value, row.digest())))
}

/// Writes a JSON value of the state of a feed. Returns false if the required state has changed, so that nothing was
/// written.
fn write_json(
    engine: &Engine,
    users: &WideTable,
    (feed, row): (TimelineId, &str),
    value: &impl Serialize,
    unchanged: Vec<Unchanged>,
) -> Result<bool> {
    let (key, partition) = user_key(users, "", feed, row)?;
    let json = serde_json::to_string(value).map_err(|error| damaged(users, error))?;
    let (name, _) = users.column(PULLED);
    let make = |next_id: &mut dyn FnMut() -> i64| {
        let time = next_id();
        let value = CellValue::Json(json.clone().into());
        Ok(vec![RowWrite {
            key: key.clone(),
            partition,
            time,
            action: Action::Put(vec![Column::with(name.clone(), time, value)]),
            condition: None,
            image: Image::None,
        }])
    };
    let options = RowWriteOptions {
        unchanged,
        ..RowWriteOptions::default()
    };
    Ok(engine.write_rows(users, &make, &options)?.1.changed.is_none())
}
